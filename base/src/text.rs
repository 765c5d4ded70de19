//! Text in and out of tokens, as traits, so that `ir` can lower plans without knowing a tokenizer.

use serde::{Deserialize, Serialize};

use crate::TokenId;

/// Text and tokens of one model.
pub trait Tokenizer: Send + Sync {
    /// Tokens of markup: special tokens written in `text` are recognised.
    fn encode_markup(&self, text: &str) -> Vec<TokenId>;
    /// Tokens of data: nothing in `text` can become a special token.
    fn encode_data(&self, text: &str) -> Vec<TokenId>;
    /// Text of tokens; special tokens give nothing, broken UTF-8 gives replacement characters.
    fn decode(&self, tokens: &[TokenId]) -> String;
    /// Number of token ids the model has; every id is below it.
    fn vocab_size(&self) -> u32;
    /// Tokens that start a raw prompt (a BOS token, where the model has one). A chat template writes
    /// its own: nothing goes before [`ChatTemplate::frame`]'s pieces.
    fn prompt_start(&self) -> Vec<TokenId>;
}

/// Who speaks in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// The person, or a filled template.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word chat templates use.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// A part of a rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text of the chat template itself: encode as markup.
    Markup(String),
    /// The content of message number `0`: encode as data.
    Content(usize),
}

/// A chat template or a tokenizer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The template refuses this conversation (roles out of order, say).
    #[error("the model's chat template refuses the conversation: {0}")]
    Template(String),
}

/// A model's chat template.
pub trait ChatTemplate: Send + Sync {
    /// The markup around messages with these roles, ending where the assistant's answer begins.
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError>;
}

/// A byte-level tokenizer for tests: token `b` is byte `b`; [`ByteText::END`] ends a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteText;

impl ByteText {
    /// The one special token, written `<end>` in markup.
    pub const END: TokenId = TokenId(256);
}

impl Tokenizer for ByteText {
    fn encode_markup(&self, text: &str) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        for (i, part) in text.split("<end>").enumerate() {
            if i > 0 {
                tokens.push(Self::END);
            }
            tokens.extend(self.encode_data(part));
        }
        tokens
    }

    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn vocab_size(&self) -> u32 {
        257
    }

    fn prompt_start(&self) -> Vec<TokenId> {
        Vec::new()
    }
}

impl ChatTemplate for ByteText {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = Vec::new();
        for (i, role) in roles.iter().enumerate() {
            pieces.push(Piece::Markup(format!("[{}]", role.name())));
            pieces.push(Piece::Content(i));
            pieces.push(Piece::Markup("<end>".into()));
        }
        pieces.push(Piece::Markup("[assistant]".into()));
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_forge_a_special_token() {
        assert_eq!(ByteText.encode_markup("a<end>"), vec![TokenId(97), ByteText::END]);
        assert!(!ByteText.encode_data("a<end>").contains(&ByteText::END));
        assert_eq!(ByteText.decode(&ByteText.encode_data("a<end>é")), "a<end>é");
    }
}
