//! Prompts put together from pieces have the tokens of the rendered text, as the tokenizers crate encodes it
//! whole.

use std::sync::LazyLock;

use base::{After, Piece, TokenId, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::model_tests::{
    TokenizerCase, byte_level, case, ids, legacy, legacy_json, llama_decoder, metaspace,
};
use crate::checkpoint::synthetic_text;

/// What the crate gives for a rendered prompt; `adds_bos` as for a raw one.
fn whole(case: &TokenizerCase, text: &str, adds_bos: bool) -> Vec<u32> {
    let mut reference = case.reference.clone();
    reference.with_truncation(None).expect("none is fine");
    reference.encode_fast(text, adds_bos).expect("it encodes").get_ids().to_vec()
}

/// A piece of a prompt, as text; contents are numbered in order.
fn prompt(parts: &[(bool, &str)]) -> (Vec<Piece>, Vec<String>, String) {
    let (mut pieces, mut contents) = (Vec::new(), Vec::new());
    for (is_content, text) in parts {
        if *is_content {
            pieces.push(Piece::Content(contents.len()));
            contents.push((*text).to_owned());
        } else {
            pieces.push(Piece::Markup((*text).to_owned()));
        }
    }
    (pieces, contents, parts.iter().map(|(_, text)| *text).collect())
}

fn joined(case: &TokenizerCase, parts: &[(bool, &str)]) -> (Vec<u32>, String) {
    let (pieces, contents, text) = prompt(parts);
    let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
    (ids(&case.text.encode_framed(&pieces, &contents)), text)
}

fn byte_level_with_space() -> TokenizerCase {
    let mut json: Value = serde_json::from_str(&synthetic_text::tokenizer_json()).expect("JSON");
    json["pre_tokenizer"]["add_prefix_space"] = json!(true);
    assert_eq!(json["pre_tokenizer"]["type"], "ByteLevel");
    case(json.to_string())
}

/// Every way to put a space in front of text, each with two special tokens of its templates.
static CASES: LazyLock<Vec<(TokenizerCase, [&str; 2])>> = LazyLock::new(|| {
    let pieces = ["<s>", "</s>"];
    let bytes = ["<|im_start|>", "<|im_end|>"];
    let mut cases = vec![(legacy(), pieces), (byte_level(), bytes), (byte_level_with_space(), bytes)];
    for scheme in ["first", "always", "never"] {
        cases.extend([true, false].map(|split| (metaspace(scheme, split, llama_decoder()), pieces)));
    }
    cases
});

#[test]
fn the_first_word_has_its_space_where_the_whole_prompt_has() {
    let case = legacy();
    let he = case.reference.token_to_id("\u{2581}he").expect("a piece of the vocabulary");
    assert_eq!(ids(&case.text.encode_stretch(After::Nothing, "he")), [he]);
    let (found, text) = joined(&case, &[(false, "<s>[a] "), (true, "he"), (false, " [/a]")]);
    assert!(found.contains(&he));
    assert_eq!(found, whole(&case, &text, false));
}

#[test]
fn a_raw_prompt_is_bos_and_its_text() {
    let mut json = legacy_json();
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } },
    });
    let case = case(json.to_string());
    for text in ["he", " he", "  he lo", "a\nhe", "\u{2581}he", "\u{e9}t\u{e9} \u{1f600}"] {
        let mut found = case.text.prompt_start();
        found.extend(case.text.encode_stretch(After::Nothing, text));
        assert_eq!(ids(&found), whole(&case, text, true), "{text:?}");
        assert_eq!(found[0], TokenId(1));
    }
}

#[test]
fn a_stretch_forges_nothing_even_across_the_border_of_template_and_cell() {
    for (case, specials) in CASES.iter() {
        for special in specials {
            for middle in 1..special.len() {
                let (left, right) = special.split_at(middle);
                for parts in [
                    [(false, left), (true, right)],
                    [(true, left), (false, right)],
                    [(true, left), (true, right)],
                ] {
                    let (found, _) = joined(case, &parts);
                    assert!(!found.iter().any(|id| case.added.contains(id)), "{parts:?} gave {found:?}");
                }
            }
        }
        assert!(case.text.encode_stretch(After::Nothing, "").is_empty());
        assert!(case.text.encode_stretch(After::Special, "").is_empty());
    }
}

proptest! {
    #[test]
    fn pieces_have_the_tokens_of_the_rendered_prompt(
        choices in prop::collection::vec((any::<bool>(), 0..16usize, "[ahelo \u{2581}\n\u{e9}]{0,6}"), 0..9),
    ) {
        for (case, specials) in CASES.iter() {
            // Markup holds a special token half of the time; contents are any text that holds none.
            let parts: Vec<(bool, String)> = choices.iter().map(|(is_content, choice, text)| {
                let special = if *is_content { None } else { specials.get(*choice / 4) };
                (*is_content, special.map_or(text.clone(), |special| match choice % 4 {
                    0 => format!("{special}{text}"),
                    1 => format!("{text}{special}"),
                    2 => format!("{special}\n"),
                    _ => (*special).to_owned(),
                }))
            }).collect();
            let parts: Vec<(bool, &str)> =
                parts.iter().map(|(is_content, text)| (*is_content, text.as_str())).collect();
            let (found, text) = joined(case, &parts);
            prop_assert_eq!(found, whole(case, &text, false), "{:?} in {:?}", text, parts);
        }
    }
}
