//! Many stretches with one beginning, as the rows of a template are: the words that are the same in all of
//! them are encoded once, the rest of each in parallel.
//!
//! Where a tokenizer cuts text into words before its model sees them, and each word's cut depends on the text
//! up to the next character alone, the cuts in the common beginning are those of every whole text, up to a
//! few characters before its end. [`super::words`] knows which tokenizers are of that kind; others encode
//! each text whole.

use base::{After, TokenId};
use rayon::prelude::*;

use super::encode::Encoder;
use super::words::cut;

/// Texts that a task encodes at least: less is not worth waking a thread for.
const TEXTS_PER_TASK: usize = 4;

impl Encoder {
    /// Tokens of stretches that all begin with `head`: each what [`Encoder::stretch`] gives.
    pub(crate) fn stretches(&self, after: After, head: &str, texts: &[&str]) -> Vec<Vec<TokenId>> {
        let cut = if self.cuts_words() && texts.len() > 1 { cut(self.tokenizer(), head) } else { None };
        let begin = cut.and_then(|cut| Some((cut, self.words(Some(after), &head[..cut])?)));
        let encode = |text: &&str| {
            let cut_off = begin.as_ref().and_then(|(cut, begin)| {
                let rest = self.words(None, &text[*cut..])?;
                Some([begin.as_slice(), &rest].concat())
            });
            cut_off.unwrap_or_else(|| self.stretch(after, text))
        };
        texts.par_iter().with_min_len(TEXTS_PER_TASK).map(encode).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tokenizers::{
        Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer,
    };

    use super::super::model_tests::{byte_level, legacy};
    use super::super::words::{WORDS, cuts_words};
    use super::*;
    use crate::checkpoint::synthetic_text;

    /// A tokenizer with these steps and the synthetic model.
    fn with(normalizer: &Value, pre_tokenizer: &Value) -> Tokenizer {
        let mut json: Value = serde_json::from_str(&synthetic_text::tokenizer_json()).expect("JSON");
        (json["normalizer"], json["pre_tokenizer"]) = (normalizer.clone(), pre_tokenizer.clone());
        json.to_string().parse().expect("a valid tokenizer")
    }

    fn known() -> Vec<Tokenizer> {
        let byte_level = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let split = |words: &str| {
            let split = json!({"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})
        };
        let digits = json!({"type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": true}, byte_level(true)]});
        let (none, nfc) = (Value::Null, json!({"type": "NFC"}));
        vec![
            with(&none, &byte_level(true)),
            with(&none, &digits),
            with(&none, &split(WORDS[0])),
            with(&nfc, &split(WORDS[1])),
        ]
    }

    /// Words of a text: bytes in it.
    fn words(tokenizer: &Tokenizer, text: &str) -> Vec<(usize, usize)> {
        let mut words = PreTokenizedString::from(text);
        if let Some(normalizer) = tokenizer.get_normalizer() {
            words.normalize(|part| normalizer.normalize(part)).expect("it normalises");
        }
        tokenizer.get_pre_tokenizer().expect("it has one").pre_tokenize(&mut words).expect("it cuts");
        let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().map(|(_, range, _)| range).collect()
    }

    #[test]
    fn only_known_steps_are_cut() {
        assert!(known().iter().all(cuts_words));
        let other = json!({"type": "Split", "pattern": {"Regex": "a(?=b*c)"}, "behavior": "Isolated", "invert": false});
        assert!(!cuts_words(&with(&Value::Null, &other)));
        assert!(!cuts_words(&with(&json!({"type": "Lowercase"}), &json!({"type": "Whitespace"}))));
        assert!(!cuts_words(legacy().text.encoder().tokenizer()));
    }

    #[test]
    fn a_template_is_cut_near_its_end() {
        for tokenizer in known() {
            let head = "Classify the text. Answer with one of these labels: positive, negative.\n\nText: ";
            let cut = cut(&tokenizer, head).expect("it has words");
            assert!(head.len() - cut < 20, "{:?}", &head[cut..]);
        }
    }

    /// Pieces that words join, part or wait for.
    const PIECES: [&str; 27] = [
        "a",
        "The",
        " word",
        "'",
        "l",
        "'l",
        "'s",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "1",
        "23",
        ".",
        "!!",
        "é",
        "e",
        "\u{301}",
        "\u{338}",
        "=",
        "漢",
        "\u{1f600}",
        "\u{a0}",
        "\u{3000}",
        "</s>",
        "<|im_end|>",
    ];

    /// Whether a head is cut between words of the whole text.
    fn holds(tokenizer: &Tokenizer, head: &str, rest: &str) -> bool {
        let Some(cut) = cut(tokenizer, head) else { return true };
        let mut parts = words(tokenizer, &head[..cut]);
        let behind = words(tokenizer, &format!("{}{rest}", &head[cut..]));
        parts.extend(behind.iter().map(|(start, end)| (start + cut, end + cut)));
        words(tokenizer, &format!("{head}{rest}")) == parts
    }

    #[test]
    fn the_words_before_the_cut_are_those_of_every_text() {
        for tokenizer in known() {
            for (a, b, c) in triples() {
                let (head, rest) = (format!("Some words. {a}{b}"), format!("{c}l"));
                assert!(holds(&tokenizer, &head, &rest), "{head:?} and {rest:?}");
            }
        }
    }

    /// Two pieces before the end of a head, and one behind it.
    fn triples() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let pairs = PIECES[..12].iter().flat_map(|a| PIECES.iter().map(move |b| (*a, *b)));
        pairs.flat_map(|(a, b)| PIECES.iter().map(move |c| (a, b, *c)))
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn however_long_the_words_before_the_cut_are_those_of_the_text(head in text(), rest in text()) {
            for tokenizer in known() {
                prop_assert!(holds(&tokenizer, &head, &rest), "{:?} and {:?}", head, rest);
            }
        }

        #[test]
        fn stretches_have_the_tokens_of_each_alone(head in text(), rests in prop::collection::vec(text(), 1..6)) {
            let texts: Vec<String> = rests.iter().map(|rest| format!("{head}{rest}")).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            for case in [byte_level(), legacy()] {
                let encoder = case.text.encoder();
                for after in [After::Nothing, After::Special] {
                    let alone: Vec<_> = texts.iter().map(|text| encoder.stretch(after, text)).collect();
                    prop_assert_eq!(encoder.stretches(after, &head, &texts), alone);
                }
            }
        }
    }
}
