//! Text in and out of tokens, as traits, so that `ir` can lower plans without knowing a tokenizer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::tokenizer_info::TokenizerInfo;

/// Text and tokens of one model.
///
/// A prompt is special tokens and the *stretches* of text between them. Characters of a stretch join into
/// tokens wherever they come from, template or cell; none joins across a special token. So a prompt whose
/// stretches are encoded whole has the tokens that every other client gives the rendered prompt, and only
/// what [`Tokenizer::split_markup`] finds in the template's own text is ever a special token.
pub trait Tokenizer: Send + Sync {
    /// Cuts markup at the special tokens that are written in it.
    fn split_markup(&self, text: &str) -> Vec<MarkupPart>;
    /// Tokens of a whole stretch, none where it is empty. Nothing in `text` can become a special token. Where
    /// the model is used to a space that no text holds (SentencePiece), it is in front.
    fn encode_stretch(&self, after: After, text: &str) -> Vec<TokenId>;
    /// Tokens of several stretches that all begin with `head`, each as [`Tokenizer::encode_stretch`] gives
    /// them; a place to share work among them.
    fn encode_stretches(&self, after: After, head: &str, texts: &[&str]) -> Vec<Vec<TokenId>> {
        debug_assert!(texts.iter().all(|text| text.starts_with(head)));
        texts.iter().map(|text| self.encode_stretch(after, text)).collect()
    }
    /// How many tokens each of these stretches has at the start of a prompt.
    fn count_stretches(&self, texts: &[String]) -> Vec<u32> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let encoded = self.encode_stretches(After::Nothing, "", &texts);
        encoded.iter().map(|tokens| u32::try_from(tokens.len()).unwrap_or(u32::MAX)).collect()
    }
    /// Tokens of text somewhere inside a stretch: nothing becomes a special token, nothing is put in front.
    fn encode_data(&self, text: &str) -> Vec<TokenId>;
    /// Text of tokens; special tokens give nothing, broken UTF-8 gives replacement characters.
    fn decode(&self, tokens: &[TokenId]) -> String;
    /// The same with special tokens as they are written.
    fn decode_written(&self, tokens: &[TokenId]) -> String {
        self.decode(tokens)
    }
    /// Number of token ids the model has; every id is below it.
    fn vocab_size(&self) -> u32;
    /// Special tokens that start a raw prompt (BOS, where the model has one); its stretch is
    /// [`After::Nothing`] all the same. A chat template writes its own: nothing goes before
    /// [`ChatTemplate::frame`]'s pieces.
    fn prompt_start(&self) -> Vec<TokenId>;
    /// How a token stands in the vocabulary; its text where nothing else is known.
    fn vocabulary_name(&self, token: TokenId) -> String {
        self.decode_written(&[token])
    }
    /// What clients are told of it.
    fn info(&self) -> TokenizerInfo {
        TokenizerInfo::default()
    }

    /// Tokens of a prompt that is markup alone.
    fn encode_markup(&self, text: &str) -> Vec<TokenId> {
        self.encode_framed(&[Piece::Markup(text.to_owned())], &[])
    }

    /// Tokens of a framed conversation with these contents; one that is missing is empty.
    fn encode_framed(&self, pieces: &[Piece], contents: &[&str]) -> Vec<TokenId> {
        self.encode_rendered(&put_in(pieces, contents))
    }

    /// Tokens of a rendered conversation.
    fn encode_rendered(&self, pieces: &[RenderedPiece]) -> Vec<TokenId> {
        let (mut tokens, mut stretch, mut after) = (Vec::new(), String::new(), After::Nothing);
        for piece in pieces {
            let markup = match piece {
                RenderedPiece::Markup(text) => self.split_markup(text),
                RenderedPiece::Content { text, .. } => {
                    stretch += text;
                    Vec::new()
                }
            };
            for part in markup {
                match part {
                    MarkupPart::Text(text) => stretch += &text,
                    MarkupPart::Special(token) => {
                        tokens.extend(self.encode_stretch(after, &stretch));
                        tokens.push(token);
                        stretch.clear();
                        after = After::Special;
                    }
                }
            }
        }
        tokens.extend(self.encode_stretch(after, &stretch));
        tokens
    }
}

/// A part of markup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkupPart {
    Special(TokenId),
    /// Text before, between or after special tokens; never empty, never two in a row.
    Text(String),
}

/// What a stretch of text stands behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The start of the prompt.
    Nothing,
    /// A special token of the template.
    Special,
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

/// In which words a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallForm {
    /// `<tool_call>`, a JSON object of `name` and `arguments`, `</tool_call>`; so Hermes, Qwen and many others.
    Hermes,
    /// `[TOOL_CALLS]` and a JSON array of such objects, or before each call, its name, `[ARGS]` and its arguments. The marks
    /// are special tokens, which answers are told without.
    Mistral,
    /// One JSON object of `name` and `parameters`, alone: Llama 3.
    Llama,
}

/// What a conversation with tools holds beside roles and contents, for a chat template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFields {
    /// Each tool that may be called: a JSON object as OpenAI's `tools` has it.
    pub tools: Vec<String>,
    /// More fields of messages, by their numbers: a JSON object of `tool_calls`, or of `tool_call_id`, `name` and a
    /// `role` that no [`Role`] is.
    pub messages: BTreeMap<usize, String>,
}

/// A part of a conversation whose contents are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text of the chat template itself: encode as markup.
    Markup(String),
    /// The content of message number `0`: encode as data.
    Content(usize),
}

/// A part of a conversation as a chat template writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenderedPiece {
    /// Text of the chat template itself: encode as markup.
    Markup(String),
    /// What the template makes of a message's content (most often it trims it, or leaves it as it is): encode
    /// as data.
    Content { message: usize, text: String },
}

impl RenderedPiece {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Markup(text) | Self::Content { text, .. } => text,
        }
    }
}

/// A frame with these contents as they are; one that is missing is empty.
pub fn put_in(pieces: &[Piece], contents: &[&str]) -> Vec<RenderedPiece> {
    let rendered = |piece: &Piece| match piece {
        Piece::Markup(text) => RenderedPiece::Markup(text.clone()),
        Piece::Content(message) => RenderedPiece::Content {
            message: *message,
            text: contents.get(*message).copied().unwrap_or_default().to_owned(),
        },
    };
    pieces.iter().map(rendered).collect()
}

/// Where a rendered conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// Where the assistant's answer begins.
    #[default]
    Answer,
    /// Behind the last message: no answer begins.
    Message,
    /// Behind the last message's text, which the output continues.
    Text,
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
    /// The markup around messages with these roles and contents that it does not change, ending where the
    /// assistant's answer begins.
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError>;

    /// The conversation as the template writes it, ending where the assistant's answer begins. Without an
    /// implementation of its own: contents stand in the frame as they are.
    fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
        let (roles, contents): (Vec<Role>, Vec<&str>) = messages.iter().copied().unzip();
        Ok(put_in(&self.frame(&roles)?, &contents))
    }

    /// In which words the template has models call tools; none where it has no words for tools.
    fn tool_call_form(&self) -> Option<ToolCallForm> {
        None
    }

    /// A conversation with tools as the template writes it, where it has words for them. What `fields` say is written
    /// as markup, so they are refused where the name of a special token is in them.
    fn render_tools(
        &self,
        _messages: &[(Role, &str)],
        _fields: &ToolFields,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        Err(TextError::Template("it has no words for tools".to_owned()))
    }

    /// The same template with these variables (JSON text of an object) in place of its own of their names; `None`
    /// where it takes none.
    fn with_variables(&self, _variables: &str) -> Option<Box<dyn ChatTemplate + '_>> {
        None
    }

    /// The same template for conversations that end there; `None` where it knows no other end than an answer's
    /// beginning.
    fn ending(&self, _end: PromptEnd) -> Option<Box<dyn ChatTemplate + '_>> {
        None
    }

    /// Conversations of these roles, each with its contents; a place to share work among them.
    fn render_rows(&self, roles: &[Role], rows: &[Vec<&str>]) -> Vec<Result<Vec<RenderedPiece>, TextError>> {
        rows.iter().map(|contents| self.render(&conversation(roles, contents))).collect()
    }
}

/// Messages of these roles and contents.
pub fn conversation<'a>(roles: &[Role], contents: &[&'a str]) -> Vec<(Role, &'a str)> {
    roles.iter().copied().zip(contents.iter().copied()).collect()
}

/// A template with another end, where its frames write a message as markup, content and markup, and behind the last
/// message one piece of markup that begins the answer.
#[derive(Clone, Copy, Debug)]
pub struct EndedFrames<T> {
    pub template: T,
    pub end: PromptEnd,
}

impl<T: ChatTemplate> ChatTemplate for EndedFrames<T> {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = self.template.frame(roles)?;
        let left_out = match self.end {
            PromptEnd::Answer => 0,
            PromptEnd::Message => 1,
            PromptEnd::Text => 2,
        };
        pieces.truncate(pieces.len().saturating_sub(left_out));
        Ok(pieces)
    }
}

/// A byte-level tokenizer for tests: token `b` is byte `b`; [`ByteText::END`] ends a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteText;

impl ByteText {
    /// The one special token, written `<end>` in markup.
    pub const END: TokenId = TokenId(256);
}

impl Tokenizer for ByteText {
    fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
        let mut parts = Vec::new();
        for (i, part) in text.split("<end>").enumerate() {
            if i > 0 {
                parts.push(MarkupPart::Special(Self::END));
            }
            if !part.is_empty() {
                parts.push(MarkupPart::Text(part.to_owned()));
            }
        }
        parts
    }

    fn encode_stretch(&self, _: After, text: &str) -> Vec<TokenId> {
        self.encode_data(text)
    }

    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn decode_written(&self, tokens: &[TokenId]) -> String {
        let stretches = tokens.split(|token| *token == Self::END);
        stretches.map(|stretch| self.decode(stretch)).collect::<Vec<_>>().join("<end>")
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

    fn ending(&self, end: PromptEnd) -> Option<Box<dyn ChatTemplate + '_>> {
        Some(Box::new(EndedFrames { template: *self, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_ends_where_it_is_told_to() {
        let said = |end| {
            let template = ByteText.ending(end).expect("it knows all ends");
            let pieces = template.render(&[(Role::User, "a"), (Role::Assistant, "b ")]).expect("it renders");
            pieces.iter().map(RenderedPiece::text).collect::<String>()
        };
        assert_eq!(said(PromptEnd::Answer), "[user]a<end>[assistant]b <end>[assistant]");
        assert_eq!(said(PromptEnd::Message), "[user]a<end>[assistant]b <end>");
        assert_eq!(said(PromptEnd::Text), "[user]a<end>[assistant]b ");
    }

    #[test]
    fn data_cannot_forge_a_special_token() {
        assert_eq!(ByteText.encode_markup("a<end>"), vec![TokenId(97), ByteText::END]);
        assert!(!ByteText.encode_data("a<end>").contains(&ByteText::END));
        assert_eq!(ByteText.decode(&ByteText.encode_data("a<end>é")), "a<end>é");
        let frame = ByteText.frame(&[Role::User]).expect("every conversation has a frame");
        let tokens = ByteText.encode_framed(&frame, &["<end>"]);
        assert_eq!(tokens.iter().filter(|token| **token == ByteText::END).count(), 1, "the template's own");
        assert_eq!(ByteText.decode(&tokens), "[user]<end>[assistant]");
        assert_eq!(ByteText.decode_written(&tokens), "[user]<end><end>[assistant]");
    }
}
