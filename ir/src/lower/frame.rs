//! The frame: what all rows of a plan have in common, tokenized once, with places for the rest.
//!
//! A prompt is cut at the special tokens of the chat template's own text. Between two of them lies a stretch of
//! text, of template and cells alike, which is tokenized whole: so a row has the tokens of its rendered prompt.

use base::{
    After, Bytes, ChatTemplate, Generation, MarkupPart, Piece, Span, SpanKind, TextError, TokenCount,
    TokenId, Tokenizer,
};

use super::LowerOptions;
use super::fill::{Content, Filled, Spans, contents, is_blank, push};
use crate::shape::{Section, Shape};
use crate::{IrError, Row, RowProblem};

/// A prompt, all that rows have in common tokenized.
pub(super) struct Frame<'a> {
    chunks: Vec<Chunk>,
    /// Sections that may not be blank: the last, and the last that has a field.
    asked: [Vec<Content>; 2],
    tokenizer: &'a dyn Tokenizer,
    options: &'a LowerOptions,
}

/// A part of a frame.
enum Chunk {
    /// Tokens that all rows share.
    Fixed(Vec<TokenId>),
    /// A stretch to fill, and the tokens of its text before the first and after the last field.
    Filled { after: After, parts: Vec<Content>, head: Vec<TokenId>, tail: Vec<TokenId> },
}

impl<'a> Frame<'a> {
    /// Tokenizes what rows have in common.
    pub(super) fn new(
        shape: &Shape<'_>,
        tokenizer: &'a dyn Tokenizer,
        chat: Option<&dyn ChatTemplate>,
        options: &'a LowerOptions,
    ) -> Result<Self, IrError> {
        let mut builder =
            Builder { chunks: Vec::new(), after: After::Nothing, stretch: Vec::new(), tokenizer };
        let roles: Vec<_> = shape.sections.iter().filter_map(|section| section.role).collect();
        if roles.is_empty() {
            // Only raw prompts start with BOS here: a chat template writes its own.
            builder.push_fixed(tokenizer.prompt_start());
            shape.sections.iter().for_each(|section| builder.push_section(section));
        } else {
            for piece in chat.ok_or(IrError::NoChatTemplate)?.frame(&roles)? {
                match piece {
                    Piece::Markup(text) => builder.push_markup(&text),
                    Piece::Content(i) => {
                        let missing =
                            || TextError::Template(format!("it names message {i}, which is not there"));
                        builder.push_section(shape.sections.get(i).ok_or_else(missing)?);
                    }
                }
            }
        }
        builder.end_stretch();
        let filled = shape.sections.iter().rfind(|section| !section.is_fixed());
        let asked = [shape.sections.last(), filled.or(shape.sections.last())];
        let asked = asked.map(|section| section.map_or(Vec::new(), contents));
        Ok(Self { chunks: builder.chunks, asked, tokenizer, options })
    }

    /// Fills and tokenizes one row.
    pub(super) fn row(
        &self,
        row: &Row,
        columns: usize,
        generation: &Generation,
    ) -> Result<(Vec<TokenId>, Vec<Span>), RowProblem> {
        if row.cells.len() != columns {
            return Err(RowProblem::CellCount { found: row.cells.len(), expected: columns });
        }
        if self.asked.iter().any(|section| is_blank(section, row)) {
            return Err(RowProblem::EmptyPrompt);
        }
        let (mut prompt, mut spans) = (Vec::new(), Spans::default());
        for chunk in &self.chunks {
            match chunk {
                Chunk::Fixed(tokens) => {
                    spans.push(SpanKind::Template, tokens.len());
                    prompt.extend(tokens);
                }
                Chunk::Filled { after, parts, head, tail } => {
                    self.check_bytes(Filled::bytes(parts, row))?;
                    let filled = Filled::new(parts, row);
                    let tokens = self.tokenizer.encode_stretch(*after, &filled.text);
                    filled.spans(&tokens, head, tail, &mut spans);
                    prompt.extend(tokens);
                }
            }
        }
        self.check_length(&prompt, generation)?;
        Ok((prompt, spans.0))
    }

    fn check_bytes(&self, found: Bytes) -> Result<(), RowProblem> {
        let limit = self.options.section_bytes_max;
        if found > limit { Err(RowProblem::TooManyBytes { found, limit }) } else { Ok(()) }
    }

    fn check_length(&self, prompt: &[TokenId], generation: &Generation) -> Result<(), RowProblem> {
        let (tokens, context) = (TokenCount(prompt.len() as u64), self.options.context_max);
        let output_max = generation.output_max;
        match tokens.0.checked_add(output_max.0) {
            _ if prompt.is_empty() => Err(RowProblem::EmptyPrompt),
            Some(total) if total <= context.0 => Ok(()),
            _ => Err(RowProblem::TooLong { prompt: tokens, output_max, context }),
        }
    }
}

/// A frame in the making.
struct Builder<'a> {
    chunks: Vec<Chunk>,
    /// What the stretch stands behind.
    after: After,
    /// The stretch so far.
    stretch: Vec<Content>,
    tokenizer: &'a dyn Tokenizer,
}

impl Builder<'_> {
    fn push_fixed(&mut self, tokens: Vec<TokenId>) {
        match self.chunks.last_mut() {
            Some(Chunk::Fixed(last)) => last.extend(tokens),
            _ => self.chunks.push(Chunk::Fixed(tokens)),
        }
    }

    fn push_markup(&mut self, text: &str) {
        for part in self.tokenizer.split_markup(text) {
            match part {
                MarkupPart::Text(text) => push(&mut self.stretch, Content::Text(text)),
                MarkupPart::Special(token) => {
                    self.end_stretch();
                    self.push_fixed(vec![token]);
                    self.after = After::Special;
                }
            }
        }
    }

    fn push_section(&mut self, section: &Section<'_>) {
        contents(section).into_iter().for_each(|part| push(&mut self.stretch, part));
    }

    /// Tokenizes what is known of the stretch.
    fn end_stretch(&mut self) {
        let (parts, after) = (std::mem::take(&mut self.stretch), self.after);
        match &parts[..] {
            [] => {}
            [Content::Text(text)] => self.push_fixed(self.tokenizer.encode_stretch(after, text)),
            [first, ..] => {
                let head = first.text().map(|text| self.tokenizer.encode_stretch(after, text));
                let tail = parts.last().and_then(Content::text).map(|text| self.tokenizer.encode_data(text));
                let (head, tail) = (head.unwrap_or_default(), tail.unwrap_or_default());
                self.chunks.push(Chunk::Filled { after, parts, head, tail });
            }
        }
    }
}
