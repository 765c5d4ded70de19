//! A file's tokenizer and chat template, as the texts of a Hugging Face folder that say the same.
//!
//! So a model reads and writes the same tokens whichever form it comes in: there is one encoder. What is not
//! known for certain (how text is cut into words) is refused by key, not approximated.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::file::Gguf;
use super::pieces::{is_white_space, merges_of_scores};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::generation::SpecialIds;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";

/// Control tokens that end an answer whatever the file says of them: what llama.cpp takes for ends. A folder
/// names them in generation_config.json, which has no place in a GGUF.
const ENDS: [&str; 10] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// How byte-level text is cut into words: the regular expressions of the models' own tokenizer.json.
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// What Falcon cuts numbers by, from their beginning on.
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";

/// What a file says of text.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTexts {
    /// A tokenizer.json.
    pub tokenizer: String,
    /// A tokenizer_config.json, chat template included.
    pub tokenizer_config: String,
    /// Special tokens.
    pub ids: SpecialIds,
}

/// A token's role: the numbers of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// The vocabulary: texts and roles by id.
struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    roles: Vec<Role>,
}

/// Reads the texts of a model with `vocab` embeddings.
pub fn texts(gguf: &Gguf, vocab: usize) -> Result<GgufTexts, CheckpointError> {
    let vocabulary = Vocabulary::read(gguf, vocab)?;
    let kind = gguf.need(MODEL, Gguf::text)?;
    let (tokenizer, adds_begin) = match gguf.text("tokenizer.huggingface.json")? {
        Some(json) => (json.to_owned(), None),
        None => match kind {
            "gpt2" => byte_level(gguf, &vocabulary)?,
            "llama" => sentence_pieces(gguf, &vocabulary)?,
            other => {
                let reason = format!("`{other}` is not supported; known are gpt2 and llama");
                return Err(gguf.error(MODEL, reason));
            }
        },
    };
    let id = |key: &str| -> Result<Option<u32>, CheckpointError> {
        match gguf.id(key)? {
            Some(id) if id as usize >= vocabulary.tokens.len() => {
                Err(gguf.error(key, format!("{id} is no token: there are {}", vocabulary.tokens.len())))
            }
            id => Ok(id),
        }
    };
    let begin = id("tokenizer.ggml.bos_token_id")?;
    let end = id("tokenizer.ggml.eos_token_id")?;
    let named = [id("tokenizer.ggml.eot_token_id")?, id("tokenizer.ggml.eom_token_id")?];
    let mut ends: Vec<u32> = end.into_iter().chain(named.into_iter().flatten()).collect();
    ends.extend(
        vocabulary.with_role(Role::Control).filter(|(_, text)| ENDS.contains(text)).map(|(id, _)| id),
    );
    ends.sort_unstable();
    ends.dedup();
    let text_of = |id: Option<u32>| id.map(|id| vocabulary.tokens[id as usize]);
    let adds_begin = gguf.flag("tokenizer.ggml.add_bos_token")?.or(adds_begin);
    let tokenizer_config = json!({
        "bos_token": text_of(begin), "eos_token": text_of(end), "add_bos_token": adds_begin,
        "chat_template": gguf.text("tokenizer.chat_template")?,
    });
    Ok(GgufTexts {
        tokenizer,
        tokenizer_config: tokenizer_config.to_string(),
        ids: SpecialIds { begin, ends },
    })
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &'a Gguf, vocab: usize) -> Result<Self, CheckpointError> {
        let tokens = gguf.texts(TOKENS)?.ok_or_else(|| gguf.error(TOKENS, "is missing"))?;
        if tokens.is_empty() || tokens.len() > vocab {
            let reason = format!("has {} tokens, the model has {vocab} embeddings", tokens.len());
            return Err(gguf.error(TOKENS, reason));
        }
        let roles = match gguf.numbers(TYPES)? {
            None => vec![Role::Normal; tokens.len()],
            Some(numbers) if numbers.len() == tokens.len() => {
                let role = |number: &f64| {
                    Role::of(*number)
                        .ok_or_else(|| gguf.error(TYPES, format!("{number} is no type of a token")))
                };
                numbers.iter().map(role).collect::<Result<_, _>>()?
            }
            Some(numbers) => {
                let reason = format!("has {} values for {} tokens", numbers.len(), tokens.len());
                return Err(gguf.error(TYPES, reason));
            }
        };
        Ok(Self { tokens, roles })
    }

    /// Ids and texts.
    fn all(&self) -> impl Iterator<Item = (u32, &'a str, Role)> {
        (0..).zip(self.tokens.iter().zip(&self.roles)).map(|(id, (text, role))| (id, *text, *role))
    }

    fn with_role(&self, wanted: Role) -> impl Iterator<Item = (u32, &'a str)> {
        self.all().filter(move |(.., role)| *role == wanted).map(|(id, text, _)| (id, text))
    }

    /// Ids by text. Unused ones are padding of the embedding; of two with one text the first counts, as no
    /// text can lead to the other.
    fn ids(&self) -> HashMap<&'a str, u32> {
        let mut ids = HashMap::new();
        for (id, text, _) in self.all().filter(|(.., role)| *role != Role::Unused) {
            ids.entry(text).or_insert(id);
        }
        ids
    }

    /// The `added_tokens` of a tokenizer.json.
    fn added(&self) -> Vec<Value> {
        self.added_but(&[])
    }

    /// The same without some, which are pieces.
    fn added_but(&self, pieces: &[(String, u32)]) -> Vec<Value> {
        let is_added = |role| matches!(role, Role::Control | Role::Unknown | Role::UserDefined);
        let is_piece = |id: u32| pieces.iter().any(|(_, piece)| *piece == id);
        let added =
            self.all().filter(|(id, text, role)| is_added(*role) && !text.is_empty() && !is_piece(*id));
        let entry = |(id, text, role): (u32, &str, Role)| {
            json!({
                "id": id, "content": text, "special": role != Role::UserDefined, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        };
        added.map(entry).collect()
    }
}

impl Role {
    fn of(number: f64) -> Option<Self> {
        [Self::Normal, Self::Unknown, Self::Control, Self::UserDefined, Self::Unused, Self::Byte]
            .into_iter()
            .zip(1..)
            .find(|(_, known)| f64::from(*known) == number)
            .map(|(role, _)| role)
    }
}

/// A tokenizer.json of byte-level BPE, and whether a prompt starts with the begin token where no key says.
fn byte_level(gguf: &Gguf, vocabulary: &Vocabulary<'_>) -> Result<(String, Option<bool>), CheckpointError> {
    let pre = gguf.text(PRE)?.ok_or_else(|| {
        gguf.error(PRE, "is missing: the file is older than this key, without which words cannot be cut")
    })?;
    let split = |words: &str| json!({ "type": "Split", "pattern": { "Regex": words }, "behavior": "Isolated", "invert": false });
    let bytes = |use_regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex,
        })
    };
    let digits = json!({ "type": "Digits", "individual_digits": true });
    let numbers = json!({ "type": "Digits", "individual_digits": false });
    let punctuation = json!({ "type": "Punctuation", "behavior": "Contiguous" });
    let (steps, composes, ignores_merges, adds_begin) = match pre {
        "gpt-2" => (vec![bytes(true)], false, false, false),
        "smollm" => (vec![digits, bytes(true)], false, false, false),
        "qwen2" => (vec![split(QWEN2_WORDS), bytes(false)], true, false, false),
        "llama-bpe" | "llama3" | "llama-v3" => (vec![split(LLAMA3_WORDS), bytes(false)], false, true, true),
        "smaug-bpe" => (vec![split(LLAMA3_WORDS), bytes(false)], false, false, false),
        "mpt" => (vec![bytes(true)], true, false, false),
        "falcon" => (vec![punctuation, bytes(true), numbers, split(THREE_DIGITS)], false, false, false),
        other => {
            let known = "gpt-2, smollm, qwen2, llama-bpe, smaug-bpe, mpt and falcon";
            return Err(gguf.error(PRE, format!("`{other}` is not supported; known are {known}")));
        }
    };
    let ids = vocabulary.ids();
    let merges = gguf.texts(MERGES)?.ok_or_else(|| gguf.error(MERGES, "is missing"))?;
    let merge = |text: &&str| {
        // A token may be a space itself, so the space between the two is not the first character.
        let at = text.char_indices().skip(1).find(|(_, character)| *character == ' ').map(|(at, _)| at);
        let parts = at.map(|at| (&text[..at], &text[at + 1..]));
        let known = |part: &str| ids.contains_key(part);
        match parts.filter(|(l, r)| known(l) && known(r) && known(&format!("{l}{r}"))) {
            Some((left, right)) => Ok(json!([left, right])),
            None => Err(gguf.error(MERGES, format!("`{text}` does not merge two tokens to a third"))),
        }
    };
    let merges = merges.iter().map(merge).collect::<Result<Vec<_>, _>>()?;
    let json = json!({
        "version": "1.0", "added_tokens": vocabulary.added(), "post_processor": null,
        "normalizer": if composes { json!({ "type": "NFC" }) } else { Value::Null },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": steps },
        "decoder": bytes(true),
        "model": {
            "type": "BPE", "vocab": vocab(&ids), "merges": merges, "ignore_merges": ignores_merges,
        },
    });
    Ok((json.to_string(), Some(adds_begin)))
}

/// A tokenizer.json of SentencePiece's BPE, as Hugging Face converts it.
fn sentence_pieces(
    gguf: &Gguf,
    vocabulary: &Vocabulary<'_>,
) -> Result<(String, Option<bool>), CheckpointError> {
    // Runs of white space that are cut out before anything else (Gemma's): pieces that are merged first.
    let spaces: Vec<(String, u32)> = vocabulary
        .with_role(Role::UserDefined)
        .filter(|(_, text)| is_white_space(text))
        .map(|(id, text)| (text.replace(' ', "▁"), id))
        .collect();
    let mut ids = vocabulary.ids();
    ids.retain(|_, id| !spaces.iter().any(|(_, space)| space == id));
    ids.extend(spaces.iter().map(|(text, id)| (text.as_str(), *id)));
    let scores = gguf.numbers(SCORES)?.ok_or_else(|| gguf.error(SCORES, "is missing"))?;
    if scores.len() != vocabulary.tokens.len() {
        let reason = format!("has {} values for {} tokens", scores.len(), vocabulary.tokens.len());
        return Err(gguf.error(SCORES, reason));
    }
    let pieces = vocabulary.with_role(Role::Normal).map(|(id, text)| (text, id, scores[id as usize]));
    let pieces = pieces.chain(spaces.iter().map(|(text, id)| (text.as_str(), *id, f64::INFINITY)));
    let pieces: Vec<(&str, u32, f64)> = pieces.filter(|(text, id, _)| ids.get(text) == Some(id)).collect();
    let merges = merges_of_scores(&pieces).map_err(|reason| gguf.error(TOKENS, reason))?;
    let merges: Vec<Value> = merges.into_iter().map(|(left, right)| json!([left, right])).collect();
    let has_bytes = vocabulary.with_role(Role::Byte).count() == 256;
    let prefixes = gguf.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let prepend = prefixes.then(|| json!({ "type": "Prepend", "prepend": "▁" }));
    let mark = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let strip = prefixes.then(|| json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    let unmark = json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " });
    let decoders: Vec<Value> = [unmark, json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })].into();
    let unknown = vocabulary.with_role(Role::Unknown).next().map(|(_, text)| text);
    let json = json!({
        "version": "1.0", "added_tokens": vocabulary.added_but(&spaces), "post_processor": null,
        "pre_tokenizer": null,
        "normalizer": {
            "type": "Sequence", "normalizers": prepend.into_iter().chain([mark]).collect::<Vec<_>>(),
        },
        "decoder": { "type": "Sequence", "decoders": decoders.into_iter().chain(strip).collect::<Vec<_>>() },
        "model": {
            "type": "BPE", "vocab": vocab(&ids), "merges": merges, "unk_token": unknown, "fuse_unk": true,
            "byte_fallback": has_bytes,
        },
    });
    Ok((json.to_string(), Some(true)))
}

/// The `vocab` of a tokenizer.json.
fn vocab(ids: &HashMap<&str, u32>) -> Map<String, Value> {
    let mut ids: Vec<(&str, u32)> = ids.iter().map(|(text, id)| (*text, *id)).collect();
    ids.sort_unstable_by_key(|(_, id)| *id);
    ids.into_iter().map(|(text, id)| (text.to_owned(), json!(id))).collect()
}
