//! The tokens of a call's prompt, and the boundaries of its spans as metadata (Span Queries, sections 5.2 and
//! 5.3).
//!
//! The paper marks spans with parentheses among the tokens, pads them to whole blocks and crops outputs that
//! end inside one. Here a span is a section of its own ([`Sees::Unit`]), so that there is nothing to pad, to
//! crop or to forge: blocks are cut where sections are. The dual output paradox (Fig. 1) is gone with it: an
//! output that was generated inside a plus is the last part of a span that is, token by token, the inner
//! call's prompt and what the model made of it, numbered from 0 as there, and never text that was decoded and
//! encoded again.

use base::{ChatTemplate, MarkupPart, RenderedPiece, Role, Sees, TokenId, Tokenizer};

use super::error::SpanError;
use super::plan::{CallId, Item, Plan, SpanPart};
use crate::conversation::{Encoder, Sectioned, Tags, Text};

/// The outputs of the calls that have run.
pub type Outputs<'a> = &'a dyn Fn(CallId) -> Output<'a>;

/// The output of a call that has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// As the engine generated it.
    Tokens(&'a [TokenId]),
    /// As a server said it.
    Text(&'a str),
}

impl Plan {
    /// The prompt of a call, of at most `length_max` positions, once its inputs have run.
    ///
    /// Spans that commute are units of their own, numbered from 0; what stands outside sees all before it,
    /// the answer's markup last of all. A prompt without spans has no sections: it is the one that a chat
    /// with these messages has.
    pub fn assemble(
        &self,
        id: CallId,
        encoder: Encoder<'_>,
        length_max: u32,
        outputs: Outputs<'_>,
    ) -> Result<Sectioned, SpanError> {
        Scribe::new(self, encoder, length_max, outputs)?.prompt(id)
    }

    /// The tokens of a span, as they stand in the unit of whoever reads it; also the prompt of a row that
    /// computes its keys and values ahead: of `[SpanPart::Whole(call)]` when the call has ended, of a
    /// fragment at any time.
    pub fn span(
        &self,
        parts: &[SpanPart],
        encoder: Encoder<'_>,
        length_max: u32,
        outputs: Outputs<'_>,
    ) -> Result<Vec<TokenId>, SpanError> {
        Scribe::new(self, encoder, length_max, outputs)?.span(parts)
    }
}

/// Who writes a prompt.
struct Scribe<'a, 'o> {
    plan: &'a Plan,
    tokenizer: &'a dyn Tokenizer,
    chat: &'a dyn ChatTemplate,
    tags: &'a Tags,
    length_max: u32,
    outputs: Outputs<'o>,
    /// Prompts inside the prompt: copies of a call have one, which is encoded once.
    known: Vec<(CallId, Vec<TokenId>)>,
}

impl<'a, 'o> Scribe<'a, 'o> {
    fn new(
        plan: &'a Plan,
        encoder: Encoder<'a>,
        length_max: u32,
        outputs: Outputs<'o>,
    ) -> Result<Self, SpanError> {
        let Encoder { tokenizer, chat } = encoder;
        let (chat, tags) = chat.ok_or(SpanError::NoChatTemplate)?;
        Ok(Self { plan, tokenizer, chat, tags, length_max, outputs, known: Vec::new() })
    }

    fn prompt(&mut self, id: CallId) -> Result<Sectioned, SpanError> {
        let length_max = self.length_max;
        let mut sheet = Sheet { sectioned: Sectioned::default(), call: id, length_max };
        let mut text = Text::default();
        let mut items = self.plan.call(id).items.as_slice();
        if let Some(rendered) = self.conversation(items) {
            let prompt = self.tokenizer.encode_rendered(&rendered);
            sheet.advance(prompt.len())?;
            return Ok(Sectioned { prompt, sections: Vec::new() });
        }
        // The template may have something to say in the system's message that is the first of all.
        if let [Item::Part(SpanPart::Message(Role::System, words)), rest @ ..] = items {
            text.markup(&self.tags.lead);
            text.data(self.tags.content(Role::System, words));
            text.markup(self.tags.close(Role::System));
            items = rest;
        } else {
            text.markup(&self.tags.begin);
        }
        for item in items {
            match item {
                Item::Part(part) => self.write(part, &mut text)?,
                Item::Group(members) => {
                    sheet.before(&mut text, self.tokenizer)?;
                    for member in members {
                        sheet.unit(&self.span(&member.parts)?)?;
                    }
                }
            }
        }
        text.markup(&self.tags.answer);
        sheet.before(&mut text, self.tokenizer)?;
        Ok(sheet.end())
    }

    /// A prompt that is messages alone, as the chat template writes it: it may look at all of them.
    fn conversation(&self, items: &[Item]) -> Option<Vec<RenderedPiece>> {
        let messages = items.iter().map(|item| match item {
            Item::Part(SpanPart::Message(role, words)) => Some((*role, &**words)),
            Item::Part(_) | Item::Group(_) => None,
        });
        let messages = messages.collect::<Option<Vec<_>>>()?;
        self.chat.render(&messages).ok()
    }

    fn span(&mut self, parts: &[SpanPart]) -> Result<Vec<TokenId>, SpanError> {
        let mut text = Text::default();
        parts.iter().try_for_each(|part| self.write(part, &mut text))?;
        Ok(text.take(self.tokenizer, false))
    }

    fn write(&mut self, part: &SpanPart, text: &mut Text) -> Result<(), SpanError> {
        match part {
            SpanPart::Message(role, words) => {
                text.markup(self.tags.open(*role));
                text.data(self.tags.content(*role, words));
                text.markup(self.tags.close(*role));
            }
            SpanPart::Output(id) => {
                text.markup(self.tags.open(Role::Assistant));
                write_output(text, (self.outputs)(*id), self.tags);
            }
            SpanPart::Whole(id) => {
                text.tokens(self.inner_prompt(*id)?);
                write_output(text, (self.outputs)(*id), self.tags);
            }
        }
        Ok(())
    }

    /// The prompt of a call that stands in another.
    fn inner_prompt(&mut self, id: CallId) -> Result<&[TokenId], SpanError> {
        let items = &self.plan.call(id).items;
        let known = match self.known.iter().position(|(other, _)| self.plan.call(*other).items == *items) {
            Some(known) => known,
            None => {
                let prompt = self.prompt(id)?.prompt;
                self.known.push((id, prompt));
                self.known.len() - 1
            }
        };
        Ok(&self.known[known].1)
    }
}

/// Writes an output and the end of its message, once where the model has written that itself.
fn write_output(text: &mut Text, output: Output<'_>, tags: &Tags) {
    let mut close = tags.close(Role::Assistant);
    match output {
        Output::Text(content) => text.data(tags.content(Role::Assistant, content)),
        Output::Tokens(tokens) => {
            text.tokens(tokens);
            if let ([MarkupPart::Special(end), rest @ ..], Some(last)) = (close, tokens.last())
                && end == last
            {
                close = rest;
            }
        }
    }
    text.markup(close);
}

/// A prompt as it grows.
struct Sheet {
    sectioned: Sectioned,
    call: CallId,
    length_max: u32,
}

impl Sheet {
    /// Adds what sees all before it, leaving `text` empty.
    fn before(&mut self, text: &mut Text, tokenizer: &dyn Tokenizer) -> Result<(), SpanError> {
        let tokens = text.take(tokenizer, self.sectioned.prompt.is_empty());
        let position = self.advance(tokens.len())?;
        if !tokens.is_empty() {
            self.sectioned.push(position, &tokens, Sees::Before);
        }
        Ok(())
    }

    /// Adds a span that sees only itself.
    fn unit(&mut self, tokens: &[TokenId]) -> Result<(), SpanError> {
        let origin = self.advance(tokens.len())?;
        if !tokens.is_empty() {
            let first = self.sectioned.sections.len() as u32;
            self.sectioned.push(origin, tokens, Sees::Unit { first, origin, is_placeholder: false });
        }
        Ok(())
    }

    /// The position of so many tokens more.
    fn advance(&self, tokens: usize) -> Result<u32, SpanError> {
        let start = self.sectioned.prompt.len();
        match u32::try_from(start + tokens) {
            Ok(end) if end <= self.length_max => Ok(end - tokens as u32),
            _ => Err(SpanError::TooLong { call: self.call.0, limit: self.length_max }),
        }
    }

    /// The whole: the answer follows from a token that sees all before it, and one section is none.
    fn end(self) -> Sectioned {
        let mut sectioned = self.sectioned;
        if let Some(last) = sectioned.sections.last_mut().filter(|last| last.sees != Sees::Before) {
            // The template has no markup for an answer to come: the last span gives its last token away.
            last.tokens.0 -= 1;
            let is_empty = last.tokens.0 == 0;
            let end = sectioned.prompt.len() as u32 - 1;
            if is_empty {
                sectioned.sections.pop();
            }
            let token = sectioned.prompt.pop();
            sectioned.push(end, token.as_slice(), Sees::Before);
        }
        if sectioned.sections.len() == 1 {
            sectioned.sections.clear();
        }
        sectioned
    }
}
