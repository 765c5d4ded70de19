//! What a tokenizer says of itself, in the words of the files that tokenizers come with.

use std::collections::BTreeMap;

/// What clients are told of a tokenizer. Whatever else its files hold (paths, accounts) stays untold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerInfo {
    /// The class that Transformers reads it with, where its files name one.
    pub class: Option<String>,
    /// The source of its chat template, where it has one.
    pub chat_template: Option<String>,
    /// Special tokens by what they are for: `bos_token`, `eos_token` and others.
    pub special_tokens: BTreeMap<&'static str, String>,
    /// Special tokens that its files name beside those.
    pub additional_special_tokens: Vec<String>,
    /// Settings that are true or false: `add_bos_token` and others.
    pub flags: BTreeMap<&'static str, bool>,
    /// Tokens that are searched for in a text before it is cut into words, by their ids.
    pub added_tokens: BTreeMap<u32, AddedToken>,
}

/// A token that is searched for in a text before it is cut into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// How it is written.
    pub content: String,
    /// Whether it has no text in an answer.
    pub special: bool,
    /// Whether it is found as a whole word alone.
    pub single_word: bool,
    /// Whether it takes the blanks in front of it.
    pub lstrip: bool,
    /// Whether it takes the blanks behind it.
    pub rstrip: bool,
    /// Whether it is searched for in the normalised text.
    pub normalized: bool,
}
