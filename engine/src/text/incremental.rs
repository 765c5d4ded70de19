//! Tokens one by one to text that is final, whatever the tokenizer; the byte tokenizer's own way.

use base::text::ByteText;
use base::{TokenId, Tokenizer as _};

/// The files' names, for errors.
pub(super) const TOKENIZER_FILE: &str = "tokenizer.json";
pub(super) const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";

/// Incremental decoding: tokens one by one to text that is final.
///
/// The pieces of a row, concatenated, equal the decoding of all its tokens at once. Each call costs
/// the same however long the output is already.
pub trait TokenText: Send + Sync {
    /// The state of a new output.
    fn start(&self) -> DecodeState {
        DecodeState::default()
    }

    /// Text that is final with this token; empty while a character is incomplete.
    fn push(&self, state: &mut DecodeState, token: TokenId) -> String;

    /// Text that was held back; call once, after the last token.
    fn flush(&self, state: &mut DecodeState) -> String;

    /// The bytes a token stands for inside an output; `None` where it has no text.
    fn bytes(&self, token: TokenId) -> Option<Vec<u8>>;

    /// How a special token is written that has no text in an output.
    fn special(&self, _token: TokenId) -> Option<String> {
        None
    }

    /// The tokens of text somewhere inside an output.
    fn encode(&self, text: &str) -> Vec<TokenId>;

    /// Whether a space in front of an output is not part of its text.
    fn drops_leading_space(&self) -> bool {
        false
    }

    /// Ids from this one on are no tokens: embeddings are padded to round sizes, and nothing trains the rest.
    fn ids_end(&self) -> u32;
}

/// Where the decoding of one output stands.
#[derive(Clone, Debug, Default)]
pub struct DecodeState {
    /// Bytes that are not yet whole characters.
    pub(crate) pending: Vec<u8>,
    /// How many characters may still be stripped from the front of the output.
    pub(crate) strip_left: usize,
    /// Whether a piece has been decoded; the first is special to some tokenizers.
    pub(crate) is_started: bool,
}

/// Takes the whole characters, and the replacement of broken ones, from the front of `pending`.
///
/// Over a stream this gives exactly what [`String::from_utf8_lossy`] gives for all bytes at once.
pub(crate) fn take_characters(pending: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut done = 0;
    for chunk in pending.utf8_chunks() {
        let invalid = chunk.invalid();
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let is_last = done + invalid.len() == pending.len();
        let is_incomplete = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if is_last && is_incomplete {
            break; // the next token may complete it; elsewhere what follows has broken it for good
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
    }
    pending.drain(..done);
    text
}

/// What is left of `pending` at the end of the output.
pub(crate) fn take_rest(pending: &mut Vec<u8>) -> String {
    String::from_utf8_lossy(&std::mem::take(pending)).into_owned()
}

/// The byte tokenizer decodes incrementally too, so that executors can be tested without a checkpoint.
impl TokenText for ByteText {
    fn push(&self, state: &mut DecodeState, token: TokenId) -> String {
        state.pending.extend(u8::try_from(token.0));
        take_characters(&mut state.pending)
    }

    fn flush(&self, state: &mut DecodeState) -> String {
        take_rest(&mut state.pending)
    }

    fn bytes(&self, token: TokenId) -> Option<Vec<u8>> {
        u8::try_from(token.0).ok().map(|byte| vec![byte])
    }

    fn special(&self, token: TokenId) -> Option<String> {
        (token == Self::END).then(|| "<end>".to_owned())
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.encode_data(text)
    }

    fn ids_end(&self) -> u32 {
        self.vocab_size()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_broken_character_holds_back_nothing_that_follows_it() {
        let mut state = ByteText.start();
        let texts = [0xE3, 0x33, 0x34].map(|byte| ByteText.push(&mut state, TokenId(byte)));
        assert_eq!(texts, ["", "\u{FFFD}3", "4"]);
    }

    proptest! {
        #[test]
        fn bytes_decoded_one_by_one_equal_bytes_decoded_at_once(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let tokens: Vec<TokenId> = bytes.iter().map(|byte| TokenId(u32::from(*byte))).collect();
            let mut state = ByteText.start();
            let mut text: String = tokens.iter().map(|token| ByteText.push(&mut state, *token)).collect();
            text += &ByteText.flush(&mut state);
            prop_assert_eq!(text, ByteText.decode(&tokens));
        }
    }
}
