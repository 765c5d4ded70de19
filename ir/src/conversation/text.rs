//! Text of messages on its way to tokens: markup and data, told apart until the last.

use base::{After, ChatTemplate, MarkupPart, Role, TokenId, Tokenizer};

use super::tags::Tags;

/// How text becomes tokens.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a dyn Tokenizer,
    /// The model's chat template, and the markup of messages.
    pub chat: Option<(&'a dyn ChatTemplate, &'a Tags)>,
}

/// Markup and text that follow one another, before they are tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    bits: Vec<Bit>,
    /// Whose message is the first that begins in it.
    first: Option<Role>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bit {
    Markup(MarkupPart),
    Data(String),
    Tokens(Vec<TokenId>),
}

impl Text {
    /// Adds text in which nothing is markup.
    pub(crate) fn data(&mut self, text: &str) {
        self.bits.push(Bit::Data(text.to_owned()));
    }

    /// Adds markup.
    pub(crate) fn markup(&mut self, markup: &[MarkupPart]) {
        self.bits.extend(markup.iter().cloned().map(Bit::Markup));
    }

    /// Adds the markup in front of a message.
    pub(crate) fn open(&mut self, role: Role, tags: &Tags) {
        self.markup(tags.open(role));
        self.first.get_or_insert(role);
    }

    /// Whose message is the first that begins in it.
    pub(crate) fn first(&self) -> Option<Role> {
        self.first
    }

    /// The same behind what the template begins a conversation with, which may put words into the first system
    /// message.
    pub(crate) fn begun(&self, tags: &Tags) -> Self {
        let mut open = Self::default();
        open.markup(tags.open(Role::System));
        let mut whole = Self { bits: Vec::new(), first: self.first };
        let rest = match self.bits.strip_prefix(&*open.bits) {
            Some(rest) if self.first == Some(Role::System) => {
                whole.markup(&tags.lead);
                rest
            }
            _ => {
                whole.markup(tags.before(self.first));
                &self.bits
            }
        };
        whole.bits.extend_from_slice(rest);
        whole
    }

    /// Adds what is tokens already: a model's own output.
    pub(crate) fn tokens(&mut self, tokens: &[TokenId]) {
        self.bits.push(Bit::Tokens(tokens.to_vec()));
    }

    /// Adds what stands in another.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bits.extend(other.bits.iter().cloned());
        self.first = self.first.or(other.first);
    }

    /// The tokens, leaving nothing. `is_first`: nothing stands before them.
    pub(crate) fn take(&mut self, tokenizer: &dyn Tokenizer, is_first: bool) -> Vec<TokenId> {
        let mut after = is_first.then_some(After::Nothing);
        let (mut tokens, mut stretch) = (Vec::new(), String::new());
        let encode = |after, stretch: &str| match after {
            _ if stretch.is_empty() => Vec::new(),
            Some(after) => tokenizer.encode_stretch(after, stretch),
            None => tokenizer.encode_data(stretch),
        };
        self.first = None;
        for bit in self.bits.drain(..) {
            let (done, next) = match bit {
                Bit::Data(text) | Bit::Markup(MarkupPart::Text(text)) => {
                    stretch += &text;
                    continue;
                }
                Bit::Markup(MarkupPart::Special(token)) => (vec![token], Some(After::Special)),
                Bit::Tokens(output) => (output, None),
            };
            tokens.extend(encode(after, &stretch));
            tokens.extend(done);
            stretch.clear();
            after = next;
        }
        tokens.extend(encode(after, &stretch));
        tokens
    }
}
