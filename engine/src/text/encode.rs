//! Text to tokens: markup is cut at its special tokens; the stretches of text between them are encoded as
//! data, where nothing that a cell holds can become one.

use std::collections::BTreeMap;

use base::{AddedToken, After, MarkupPart, TokenId};
use serde_json::{Value, json};
use tokenizers::{
    Model, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper, Tokenizer,
};

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::parse_object;
use crate::checkpoint::gguf::is_white_space;
use crate::text::incremental::TOKENIZER_FILE;
use crate::text::words;

/// What happens to text before the model sees words.
#[derive(Debug)]
struct Steps {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
}

/// Encodes stretches of prompts and text inside them.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// The checkpoint's, but that no step puts a space in front of text.
    tokenizer: Tokenizer,
    /// The steps that it came with: what the start of a prompt goes through.
    at_start: Steps,
    /// What text inside a stretch goes through.
    inside: Steps,
    /// Whether [`Encoder::at_start`] is also what follows a special token.
    is_start_after_special: bool,
    /// Whether the words of a text's beginning do not depend on how it goes on.
    cuts_words: bool,
    /// Added tokens, which no data may yield, and the pieces they are decoded from: `None` for special
    /// ones, which have no text.
    added: BTreeMap<u32, Option<String>>,
    /// Rows of the embedding; ids above are never yielded.
    vocab: u32,
    /// The largest id below that which is a token; rows above it are padding.
    largest: u32,
}

impl Encoder {
    /// Reads tokenizer.json for a model with `vocab` embeddings.
    pub(crate) fn new(json: &str, vocab: u32) -> Result<Self, CheckpointError> {
        let bad = |error: tokenizers::Error| CheckpointError::malformed(TOKENIZER_FILE, error);
        let mut tokenizer = parse(json)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(bad)?;
        let added = added_pieces(&tokenizer); // before the normalizer changes, which some pieces went through
        let at_start = Steps::of(&tokenizer);
        let is_start_after_special = remove_leading_space(&mut tokenizer)?;
        let inside = Steps::of(&tokenizer);
        let cuts_words = words::cuts_words(&tokenizer);
        let largest = tokenizer.get_vocab(false).into_values().max().unwrap_or(0);
        if largest >= vocab {
            let reason = format!("holds token id {largest}, but config.json gives the model {vocab} ids");
            return Err(CheckpointError::field(TOKENIZER_FILE, "model.vocab", reason));
        }
        let largest = added.range(..vocab).next_back().map_or(largest, |(id, _)| largest.max(*id));
        let encoder =
            Self { largest, tokenizer, at_start, inside, is_start_after_special, cuts_words, added, vocab };
        encoder.plain(&encoder.at_start, "The 1 ä\n漢 \u{1f600}").map_err(bad)?; // a vocabulary with holes fails here, not in a row
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

    /// The largest id that is a token.
    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    /// What a token is decoded from; `None` where it has no text.
    pub(crate) fn piece(&self, token: TokenId) -> Option<String> {
        match self.added.get(&token.0) {
            Some(piece) => piece.clone(),
            None => self.tokenizer.get_model().id_to_token(token.0),
        }
    }

    /// How a special token is written, which has no text.
    pub(crate) fn special(&self, token: TokenId) -> Option<String> {
        let is_special = self.added.get(&token.0).is_some_and(Option::is_none);
        is_special.then(|| self.tokenizer.id_to_token(token.0)).flatten()
    }

    /// How the added tokens are written that markup is searched for, but for white space.
    pub(crate) fn added_names(&self) -> Vec<String> {
        let tokens = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let tokens = tokens.values().filter(|token| token.special || !is_white_space(&token.content));
        let mut names: Vec<String> = tokens.map(|token| token.content.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The added tokens that the model has, by their ids.
    pub(crate) fn added_tokens(&self) -> BTreeMap<u32, AddedToken> {
        let tokens = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let tokens = tokens.iter().filter(|(id, _)| **id < self.vocab);
        let told = tokens.map(|(id, token)| {
            let token = AddedToken {
                content: token.content.clone(),
                special: token.special,
                single_word: token.single_word,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                normalized: token.normalized,
            };
            (*id, token)
        });
        told.collect()
    }

    /// Cuts markup at the added tokens that are written in it, special or not.
    pub(crate) fn split(&self, markup: &str) -> Vec<MarkupPart> {
        let parts =
            self.tokenizer.get_added_vocabulary().extract_and_normalize(None::<&NormalizerWrapper>, markup);
        let mut found = Vec::new();
        for (part, _, special) in parts.get_splits(OffsetReferential::Original, OffsetType::None) {
            match special {
                Some(tokens) => {
                    let ids = tokens.iter().map(|token| token.id).collect();
                    found.extend(self.known(ids).into_iter().map(MarkupPart::Special));
                }
                None => found.push(MarkupPart::Text(part.to_owned())),
            }
        }
        found
    }

    /// Tokens of a whole stretch, none of them an added token. Its space in front, where the model is used to
    /// one, is put there by the steps that the checkpoint came with, so it is there exactly when theirs is.
    pub(crate) fn stretch(&self, after: After, text: &str) -> Vec<TokenId> {
        if text.is_empty() {
            return Vec::new(); // some pre-tokenizers would put their space in front of nothing
        }
        self.known(self.data_ids(self.steps(after), text))
    }

    /// See [`words::cuts_words`].
    pub(super) fn cuts_words(&self) -> bool {
        self.cuts_words
    }

    /// Tokens of whole words at the start of a stretch behind `after`, or inside one; `None` where an added
    /// token is among them.
    pub(super) fn words(&self, after: Option<After>, text: &str) -> Option<Vec<TokenId>> {
        let steps = after.map_or(&self.inside, |after| self.steps(after));
        let ids = self.plain(steps, text).ok()?;
        let is_data = !ids.iter().any(|id| self.is_reserved(*id));
        is_data.then(|| self.known(ids))
    }

    /// What a stretch behind `after` goes through.
    fn steps(&self, after: After) -> &Steps {
        if after == After::Nothing || self.is_start_after_special { &self.at_start } else { &self.inside }
    }

    /// Tokens of text inside a stretch, none of them an added token, special or not.
    pub(crate) fn data(&self, text: &str) -> Vec<TokenId> {
        self.known(self.data_ids(&self.inside, text))
    }

    /// Ids of data. The added vocabulary is not consulted. A model's own vocabulary may still merge its
    /// way to a reserved id (`</s>` from letters): such text is halved until it cannot; a character that
    /// has no other token than a reserved one (an unknown one, in a vocabulary without bytes) is lost.
    fn data_ids(&self, steps: &Steps, text: &str) -> Vec<u32> {
        let ids = self.plain(steps, text).unwrap_or_else(|error| {
            tracing::error!(%error, "the tokenizer failed on a stretch of text, which is left out");
            Vec::new()
        });
        if !ids.iter().any(|id| self.is_reserved(*id)) {
            return ids;
        }
        let characters = text.chars().count();
        if characters < 2 {
            return ids.into_iter().filter(|id| !self.is_reserved(*id)).collect();
        }
        let (middle, _) = text.char_indices().nth(characters / 2).expect("the middle is before the end");
        let (left, right) = text.split_at(middle);
        let mut ids = self.data_ids(steps, left);
        ids.extend(self.data_ids(&self.inside, right));
        ids
    }

    /// Normalises, cuts into words and runs the model, without the added vocabulary.
    fn plain(&self, steps: &Steps, text: &str) -> tokenizers::Result<Vec<u32>> {
        let mut parts = PreTokenizedString::from(text);
        if let Some(normalizer) = &steps.normalizer {
            parts.normalize(|part| normalizer.normalize(part))?;
        }
        if let Some(pre_tokenizer) = &steps.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        let model = self.tokenizer.get_model();
        parts.tokenize(|part| model.tokenize(part.get()))?;
        Ok(parts.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }

    /// Whether no data may yield an id: added tokens, but for white space. Gemma has an added token for each
    /// run of it, and no other for a line's end.
    fn is_reserved(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|piece| !piece.as_deref().is_some_and(is_white_space))
    }

    /// Ids that have an embedding.
    fn known(&self, ids: Vec<u32>) -> Vec<TokenId> {
        ids.into_iter().filter(|id| *id < self.vocab).map(TokenId).collect()
    }
}

/// Reads tokenizer.json. The tokenizers crate panics on some damaged decoders and normalizers (`expect` in
/// its deserialisers), which must not take the server with it.
fn parse(json: &str) -> Result<Tokenizer, CheckpointError> {
    match std::panic::catch_unwind(|| json.parse::<Tokenizer>()) {
        Ok(read) => read.map_err(|error| CheckpointError::malformed(TOKENIZER_FILE, error)),
        Err(_) => {
            parse_object(TOKENIZER_FILE, json)?;
            Err(CheckpointError::malformed(TOKENIZER_FILE, "a decoder or normalizer in it is damaged"))
        }
    }
}

/// Pieces of the added tokens, as the tokenizers crate decodes them.
fn added_pieces(tokenizer: &Tokenizer) -> BTreeMap<u32, Option<String>> {
    let vocabulary = tokenizer.get_added_vocabulary();
    let piece =
        |id: u32| vocabulary.simple_id_to_token(id).filter(|piece| !vocabulary.is_special_token(piece));
    vocabulary.get_added_tokens_decoder().keys().map(|id| (*id, piece(*id))).collect()
}

impl Steps {
    fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            normalizer: tokenizer.get_normalizer().cloned(),
            pre_tokenizer: tokenizer.get_pre_tokenizer().cloned(),
        }
    }
}

/// Takes out the steps that put a space in front of every text; whether they did so after special tokens too.
fn remove_leading_space(tokenizer: &mut Tokenizer) -> Result<bool, CheckpointError> {
    let bad = |error: &dyn std::fmt::Display| CheckpointError::malformed(TOKENIZER_FILE, error);
    let mut is_after_special = false;
    if let Some(normalizer) = tokenizer.get_normalizer() {
        let mut value = serde_json::to_value(normalizer).map_err(|error| bad(&error))?;
        if remove_prepend(&mut value) {
            is_after_special = true;
            let normalizer: NormalizerWrapper = serde_json::from_value(value).map_err(|error| bad(&error))?;
            tokenizer.with_normalizer(Some(normalizer)).map_err(|error| bad(&error))?;
        }
    }
    if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
        let mut value = serde_json::to_value(pre_tokenizer).map_err(|error| bad(&error))?;
        is_after_special |= remove_prefix_space(&mut value);
        let pre_tokenizer: PreTokenizerWrapper =
            serde_json::from_value(value).map_err(|error| bad(&error))?;
        tokenizer.with_pre_tokenizer(Some(pre_tokenizer));
    }
    Ok(is_after_special)
}

/// Removes `Prepend` from a normalizer; whether there was one. It acts on every stretch.
fn remove_prepend(normalizer: &mut Value) -> bool {
    if normalizer["type"] == "Prepend" {
        *normalizer = json!({ "type": "Sequence", "normalizers": [] });
        return true;
    }
    let inner = normalizer.get_mut("normalizers").and_then(Value::as_array_mut);
    inner.into_iter().flatten().fold(false, |any, step| remove_prepend(step) | any)
}

/// Switches off the prefix of `Metaspace` and `ByteLevel`; whether it stood in front of every stretch, not of
/// a prompt's first alone (`Metaspace` with the scheme `first`).
fn remove_prefix_space(pre_tokenizer: &mut Value) -> bool {
    if let Some(inner) = pre_tokenizer.get_mut("pretokenizers").and_then(Value::as_array_mut) {
        return inner.iter_mut().fold(false, |any, inner| remove_prefix_space(inner) | any);
    }
    match pre_tokenizer["type"].as_str() {
        Some("Metaspace") => {
            std::mem::replace(&mut pre_tokenizer["prepend_scheme"], json!("never")) == "always"
        }
        Some("ByteLevel") => std::mem::replace(&mut pre_tokenizer["add_prefix_space"], json!(false)) == true,
        _ => false,
    }
}
