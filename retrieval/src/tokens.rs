//! The embedding model's tokenizer: token ids for the model, byte spans for cutting.
//!
//! A text's `[SEP]` is text: nothing that a document says becomes a special token.

use std::ops::Range;
use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::error::Error;

/// A text's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    /// Special tokens included.
    pub(crate) ids: Vec<u32>,
    /// Whether the end of the text did not fit.
    pub(crate) is_truncated: bool,
}

/// Texts as an embedding model reads them, each cut to its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizedTexts(pub(crate) Vec<Ids>);

impl TokenizedTexts {
    /// Tokens that embedding them computes, special ones included.
    pub fn tokens(&self) -> u64 {
        self.0.iter().map(|text| text.ids.len() as u64).sum()
    }

    /// Puts others behind them.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }
}

/// The tokenizer twice: as it cuts a text to the model's length, and as it does not.
pub(crate) struct TokenizerPair {
    cutting: Tokenizer,
    whole: Tokenizer,
    /// Special tokens that are put around each text.
    pub(crate) specials: usize,
}

impl TokenizerPair {
    /// Reads tokenizer.json for a model of `vocab` rows and `tokens_max` positions.
    pub(crate) fn read(path: &Path, json: &[u8], vocab: usize, tokens_max: usize) -> Result<Self, Error> {
        let mut whole = parse(path, json)?;
        let ids = whole.get_vocab(true).into_values().max();
        match ids.map(|largest| largest as usize) {
            None => return Err(Error::field(path, "model.vocab", "is empty")),
            Some(largest) if largest >= vocab => {
                let reason =
                    format!("holds token id {largest}, but config.json says `vocab_size` is {vocab}");
                return Err(Error::field(path, "model.vocab", reason));
            }
            Some(_) => {}
        }
        whole.set_encode_special_tokens(true);
        whole.with_padding(None);
        let bad = |error: tokenizers::Error| Error::file(path, error);
        whole.with_truncation(None).map_err(bad)?;
        let specials = whole.encode_fast("", true).map_err(bad)?.len();
        if tokens_max <= specials {
            let reason =
                format!("puts {specials} tokens around a text, but the model has {tokens_max} positions");
            return Err(Error::field(path, "post_processor", reason));
        }
        let mut cutting = whole.clone();
        let truncation = TruncationParams { max_length: tokens_max, ..TruncationParams::default() };
        cutting.with_truncation(Some(truncation)).map_err(bad)?;
        let tokens = Self { cutting, whole, specials };
        // A vocabulary with holes fails here, not at a client's text.
        tokens.ids("The 1 \u{e4}\n\u{6f22} \u{1f600}").map_err(|error| Error::file(path, error))?;
        Ok(tokens)
    }

    /// A text's ids, cut to the model's length.
    pub(crate) fn ids(&self, text: &str) -> Result<Ids, Error> {
        let encoding =
            self.cutting.encode_fast(text, true).map_err(|error| Error::Model(error.to_string()))?;
        Ok(Ids { ids: encoding.get_ids().to_vec(), is_truncated: !encoding.get_overflowing().is_empty() })
    }

    /// Where each token of a text stands in it, in bytes, without special tokens.
    pub(crate) fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, Error> {
        let encoding = self.whole.encode(text, false).map_err(|error| Error::Model(error.to_string()))?;
        Ok(encoding.get_offsets().iter().map(|&(start, end)| start..end).collect())
    }
}

/// The tokenizers crate panics on some damaged decoders and normalizers, which must not take a server with
/// it.
fn parse(path: &Path, json: &[u8]) -> Result<Tokenizer, Error> {
    match std::panic::catch_unwind(|| Tokenizer::from_bytes(json)) {
        Ok(read) => read.map_err(|error| Error::file(path, error)),
        Err(_) => Err(Error::file(path, "a decoder or normalizer in it is damaged")),
    }
}
