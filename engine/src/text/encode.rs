//! Text to tokens, in two ways: markup, where special tokens are recognised, and data, where nothing
//! that a cell holds can become one.

use std::collections::BTreeMap;

use base::TokenId;
use serde_json::{Value, json};
use tokenizers::{
    Model, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper, Tokenizer,
};

use crate::checkpoint::CheckpointError;
use crate::text::TOKENIZER_FILE;

/// Where SentencePiece tokenizers, and some others, put a space in front of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeadingSpace {
    /// At the start of a prompt.
    at_start: bool,
    /// After every special token.
    after_special: bool,
}

/// Encodes fragments of prompts. Fragments are put side by side, so none gets the space that some
/// tokenizers put in front of a text: what is said here is what the model reads.
#[derive(Debug)]
pub(crate) struct Encoder {
    tokenizer: Tokenizer,
    /// Added tokens, which no data may yield, and the pieces they are decoded from: `None` for special
    /// ones, which have no text.
    added: BTreeMap<u32, Option<String>>,
    /// Rows of the embedding; ids above are never yielded.
    vocab: u32,
    /// Where the model is used to a space that no text holds.
    leading_space: LeadingSpace,
}

impl Encoder {
    /// Reads tokenizer.json for a model with `vocab` embeddings.
    pub(crate) fn new(json: &str, vocab: u32) -> Result<Self, CheckpointError> {
        let bad = |error: tokenizers::Error| CheckpointError::malformed(TOKENIZER_FILE, error);
        let mut tokenizer: Tokenizer = json.parse().map_err(bad)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(bad)?;
        let added = added_pieces(&tokenizer); // before the normalizer changes, which some pieces went through
        let leading_space = remove_leading_space(&mut tokenizer)?;
        let largest = tokenizer.get_vocab(false).into_values().max().unwrap_or(0);
        if largest >= vocab {
            let reason = format!("holds token id {largest}, but config.json gives the model {vocab} ids");
            return Err(CheckpointError::field(TOKENIZER_FILE, "model.vocab", reason));
        }
        let encoder = Self { tokenizer, added, vocab, leading_space };
        encoder.plain("The 1 ä\n漢 \u{1f600}").map_err(bad)?; // a vocabulary with holes fails here, not in a row
        Ok(encoder)
    }

    /// The tokenizer itself.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Number of ids of the model.
    pub(crate) fn vocab(&self) -> u32 {
        self.vocab
    }

    /// What a token is decoded from; `None` where it has no text.
    pub(crate) fn piece(&self, token: TokenId) -> Option<String> {
        match self.added.get(&token.0) {
            Some(piece) => piece.clone(),
            None => self.tokenizer.get_model().id_to_token(token.0),
        }
    }

    /// The space that the model is used to at the start of a prompt, if it is.
    pub(crate) fn start(&self) -> Vec<TokenId> {
        if self.leading_space.at_start { self.data(" ") } else { Vec::new() }
    }

    /// Tokens of markup: every added token that is written in it is recognised.
    pub(crate) fn markup(&self, text: &str) -> Vec<TokenId> {
        let parts =
            self.tokenizer.get_added_vocabulary().extract_and_normalize(None::<&NormalizerWrapper>, text);
        let mut ids = Vec::new();
        let mut is_after_special = false;
        for (part, _, special) in parts.get_splits(OffsetReferential::Original, OffsetType::None) {
            if let Some(tokens) = special {
                ids.extend(tokens.iter().map(|token| token.id));
            } else if is_after_special && self.leading_space.after_special {
                ids.extend(self.data_ids(&format!(" {part}")));
            } else {
                ids.extend(self.data_ids(part));
            }
            is_after_special = special.is_some();
        }
        self.known(ids)
    }

    /// Tokens of data: none of them is an added token, special or not.
    pub(crate) fn data(&self, text: &str) -> Vec<TokenId> {
        self.known(self.data_ids(text))
    }

    /// Ids of data. The added vocabulary is not consulted. A model's own vocabulary may still merge its
    /// way to a reserved id (`</s>` from letters): such text is halved until it cannot; a character that
    /// has no other token than a reserved one (an unknown one, in a vocabulary without bytes) is lost.
    fn data_ids(&self, text: &str) -> Vec<u32> {
        let ids = self.plain(text).unwrap_or_else(|error| {
            tracing::error!(%error, "the tokenizer failed on a fragment, which is left out");
            Vec::new()
        });
        if !ids.iter().any(|id| self.added.contains_key(id)) {
            return ids;
        }
        let characters = text.chars().count();
        if characters < 2 {
            return ids.into_iter().filter(|id| !self.added.contains_key(id)).collect();
        }
        let (middle, _) = text.char_indices().nth(characters / 2).expect("the middle is before the end");
        let (left, right) = text.split_at(middle);
        let mut ids = self.data_ids(left);
        ids.extend(self.data_ids(right));
        ids
    }

    /// Normalises, cuts into words and runs the model, without the added vocabulary.
    fn plain(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        let mut parts = PreTokenizedString::from(text);
        if let Some(normalizer) = self.tokenizer.get_normalizer() {
            parts.normalize(|part| normalizer.normalize(part))?;
        }
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        let model = self.tokenizer.get_model();
        parts.tokenize(|part| model.tokenize(part.get()))?;
        Ok(parts.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }

    /// Ids that have an embedding.
    fn known(&self, ids: Vec<u32>) -> Vec<TokenId> {
        ids.into_iter().filter(|id| *id < self.vocab).map(TokenId).collect()
    }
}

/// Pieces of the added tokens, as the tokenizers crate decodes them.
fn added_pieces(tokenizer: &Tokenizer) -> BTreeMap<u32, Option<String>> {
    let vocabulary = tokenizer.get_added_vocabulary();
    let piece =
        |id: u32| vocabulary.simple_id_to_token(id).filter(|piece| !vocabulary.is_special_token(piece));
    vocabulary.get_added_tokens_decoder().keys().map(|id| (*id, piece(*id))).collect()
}

/// Takes out the steps that put a space in front of every text, and says where they did.
fn remove_leading_space(tokenizer: &mut Tokenizer) -> Result<LeadingSpace, CheckpointError> {
    let bad = |error: &dyn std::fmt::Display| CheckpointError::malformed(TOKENIZER_FILE, error);
    let mut space = LeadingSpace::default();
    if let Some(normalizer) = tokenizer.get_normalizer() {
        let mut value = serde_json::to_value(normalizer).map_err(|error| bad(&error))?;
        if remove_prepend(&mut value) {
            space = LeadingSpace { at_start: true, after_special: true };
            let normalizer: NormalizerWrapper = serde_json::from_value(value).map_err(|error| bad(&error))?;
            tokenizer.with_normalizer(Some(normalizer)).map_err(|error| bad(&error))?;
        }
    }
    if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
        let mut value = serde_json::to_value(pre_tokenizer).map_err(|error| bad(&error))?;
        remove_prefix_space(&mut value, &mut space);
        let pre_tokenizer: PreTokenizerWrapper =
            serde_json::from_value(value).map_err(|error| bad(&error))?;
        tokenizer.with_pre_tokenizer(Some(pre_tokenizer));
    }
    Ok(space)
}

/// Removes `Prepend` from a normalizer; whether there was one.
fn remove_prepend(normalizer: &mut Value) -> bool {
    if normalizer["type"] == "Prepend" {
        *normalizer = json!({ "type": "Sequence", "normalizers": [] });
        return true;
    }
    let inner = normalizer.get_mut("normalizers").and_then(Value::as_array_mut);
    inner.into_iter().flatten().fold(false, |any, step| remove_prepend(step) | any)
}

/// Switches off the prefix of `Metaspace` and `ByteLevel`, and notes where it stood.
fn remove_prefix_space(pre_tokenizer: &mut Value, space: &mut LeadingSpace) {
    if let Some(inner) = pre_tokenizer.get_mut("pretokenizers").and_then(Value::as_array_mut) {
        inner.iter_mut().for_each(|inner| remove_prefix_space(inner, space));
        return;
    }
    match pre_tokenizer["type"].as_str() {
        Some("Metaspace") => {
            let scheme = std::mem::replace(&mut pre_tokenizer["prepend_scheme"], json!("never"));
            space.at_start |= scheme != "never";
            space.after_special |= scheme == "always";
        }
        Some("ByteLevel") => {
            let had = std::mem::replace(&mut pre_tokenizer["add_prefix_space"], json!(false)) == true;
            space.at_start |= had;
            space.after_special |= had;
        }
        _ => {}
    }
}
