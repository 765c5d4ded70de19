//! Where a text may be cut so that the words before the cut do not depend on what follows, and which
//! tokenizers are known to be of the kind for which that is so.

use serde_json::Value;
use tokenizers::{Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer};

/// Bytes between the cut and the end of the common beginning. What comes behind may reach back over the end
/// by a contraction ("'l" and "l"), by a run of white space, which is avoided apart, or by an accent; the
/// longest of these is three bytes.
const MARGIN: usize = 8;

/// Words as cl100k (Llama 3) and Qwen 2 cut them. They look one character ahead, and at a run of white space
/// whole.
pub(super) const WORDS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Whether the words of a text's beginning do not depend on how it goes on.
pub(super) fn cuts_words(tokenizer: &Tokenizer) -> bool {
    let json = |step: Option<Result<Value, serde_json::Error>>| step.transpose().unwrap_or(None);
    let normalizer = tokenizer.get_normalizer().map(serde_json::to_value);
    let pre_tokenizer = tokenizer.get_pre_tokenizer().map(serde_json::to_value);
    let is_plain = match normalizer {
        None => true,
        Some(step) => step.is_ok_and(|step| step["type"] == "NFC"),
    };
    is_plain && json(pre_tokenizer).is_some_and(|step| cuts(&step) == Some(true))
}

/// Whether a step cuts words as is known here; `None` where it may do something else.
fn cuts(step: &Value) -> Option<bool> {
    match step["type"].as_str()? {
        "ByteLevel" => Some(step["use_regex"] == true), // GPT-2's words
        "Digits" => Some(false),
        "Split" => {
            let is_known = WORDS.iter().any(|words| step["pattern"]["Regex"] == *words);
            (is_known && step["behavior"] == "Isolated" && step["invert"] == false).then_some(true)
        }
        "Sequence" => {
            let steps = step["pretokenizers"].as_array()?.iter().map(cuts);
            steps.collect::<Option<Vec<bool>>>().map(|cuts| cuts.contains(&true))
        }
        _ => None,
    }
}

/// Where the common beginning of texts can be cut off: between two words of each of them.
pub(super) fn cut(tokenizer: &Tokenizer, head: &str) -> Option<usize> {
    let mut words = PreTokenizedString::from(head);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        words.normalize(|part| normalizer.normalize(part)).ok()?;
    }
    tokenizer.get_pre_tokenizer()?.pre_tokenize(&mut words).ok()?;
    let bytes = head.as_bytes();
    let starts = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
    let starts = starts.into_iter().map(|(_, (start, _), _)| start);
    let is_safe = |start: &usize| {
        // Between ASCII characters nothing composes, and the word before is no white space.
        *start > 0
            && start + MARGIN <= bytes.len()
            && bytes[start - 1].is_ascii_graphic()
            && bytes[*start].is_ascii()
    };
    starts.rev().find(is_safe)
}
