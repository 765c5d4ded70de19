//! What clients are told of a checkpoint's tokenizer: what is named here of `tokenizer_config.json`, and nothing else.
//! Such files also hold paths, and whatever those wrote into them who made them.

use std::collections::BTreeMap;

use base::{AddedToken, TokenizerInfo};
use serde_json::Value;

/// Special tokens of which nothing here makes use.
const SPECIAL_TOKENS: [&str; 5] = ["pad_token", "unk_token", "sep_token", "cls_token", "mask_token"];
/// Settings that are true or false.
const FLAGS: [&str; 6] = [
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "clean_up_tokenization_spaces",
    "legacy",
    "split_special_tokens",
];

/// What is told of a tokenizer with these settings. The token that starts prompts and the one that ends answers are
/// empty where there is none.
pub(super) fn tokenizer_info(
    settings: &Value,
    added_tokens: BTreeMap<u32, AddedToken>,
    (bos_token, eos_token): (&str, &str),
    chat_template: Option<String>,
) -> TokenizerInfo {
    let known = [("bos_token", bos_token), ("eos_token", eos_token)];
    let known = known.into_iter().filter(|(_, token)| !token.is_empty());
    let known = known.map(|(name, token)| (name, token.to_owned()));
    let others = SPECIAL_TOKENS.into_iter().filter_map(|name| Some((name, token_name(&settings[name])?)));
    let additional = settings["additional_special_tokens"].as_array().into_iter().flatten();
    TokenizerInfo {
        class: settings["tokenizer_class"].as_str().filter(|class| !class.is_empty()).map(str::to_owned),
        chat_template,
        special_tokens: known.chain(others).collect(),
        additional_special_tokens: additional.filter_map(token_name).collect(),
        flags: FLAGS.into_iter().filter_map(|name| Some((name, settings[name].as_bool()?))).collect(),
        added_tokens,
    }
}

/// A special token's text: a string, or an object that holds it.
pub(super) fn token_name(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_file_that_is_told_which_is_named_here() {
        let settings = json!({
            "tokenizer_class": "LlamaTokenizer",
            "name_or_path": "/models/of/somebody",
            "vocab_file": "/models/vocab.json",
            "use_auth_token": "hf_secret",
            "bos_token": "<told as it is used>",
            "pad_token": {"content": "<pad>", "special": true},
            "unk_token": null,
            "mask_token": "",
            "additional_special_tokens": ["<a>", {"content": "<b>"}, 7],
            "add_bos_token": true,
            "legacy": "no flag",
        });
        let template = Some("{{ messages }}".to_owned());
        let info = tokenizer_info(&settings, BTreeMap::new(), ("<s>", ""), template.clone());
        let expected = TokenizerInfo {
            class: Some("LlamaTokenizer".to_owned()),
            chat_template: template,
            special_tokens: [("bos_token", "<s>".to_owned()), ("pad_token", "<pad>".to_owned())].into(),
            additional_special_tokens: vec!["<a>".to_owned(), "<b>".to_owned()],
            flags: [("add_bos_token", true)].into(),
            added_tokens: BTreeMap::new(),
        };
        assert_eq!(info, expected);
        assert_eq!(tokenizer_info(&Value::Null, BTreeMap::new(), ("", ""), None), TokenizerInfo::default());
    }
}
