//! The frame: what all rows of a plan have in common, tokenized once, with places for the rest.

use base::{
    Bytes, ChatTemplate, Generation, Piece, Span, SpanKind, TextError, TokenCount, TokenId, Tokenizer,
};

use super::LowerOptions;
use super::fill::{Content, Filled, Spans, contents};
use crate::shape::{Part, Section, Shape};
use crate::{IrError, Row, RowProblem};

/// A prompt, all that rows have in common tokenized.
pub(super) struct Frame<'a> {
    chunks: Vec<Chunk>,
    tokenizer: &'a dyn Tokenizer,
    options: &'a LowerOptions,
}

/// A part of a frame.
enum Chunk {
    /// Tokens that all rows share.
    Fixed(Vec<TokenId>),
    /// A section to fill, and the tokens of the text before its first and after its last field.
    Filled { parts: Vec<Content>, head: Vec<TokenId>, tail: Vec<TokenId> },
    /// The last section, blank for every row.
    Blank,
}

impl<'a> Frame<'a> {
    /// Tokenizes what rows have in common.
    pub(super) fn new(
        shape: &Shape<'_>,
        tokenizer: &'a dyn Tokenizer,
        chat: Option<&dyn ChatTemplate>,
        options: &'a LowerOptions,
    ) -> Result<Self, IrError> {
        let mut frame = Self { chunks: Vec::new(), tokenizer, options };
        let roles: Vec<_> = shape.sections.iter().filter_map(|section| section.role).collect();
        if roles.is_empty() {
            // Only raw prompts start with BOS here: a chat template writes its own.
            frame.push_fixed(tokenizer.prompt_start());
            for section in &shape.sections {
                frame.push_section("", section);
            }
        } else {
            let mut lead = String::new();
            for piece in chat.ok_or(IrError::NoChatTemplate)?.frame(&roles)? {
                match piece {
                    Piece::Markup(text) => {
                        frame.push_markup(&lead);
                        lead = text;
                    }
                    Piece::Content(i) => {
                        let missing =
                            || TextError::Template(format!("it names message {i}, which is not there"));
                        let section = shape.sections.get(i).ok_or_else(missing)?;
                        // White space before a content joins its first token in every client that
                        // tokenizes the rendered text whole, so it goes with the content.
                        let markup = lead.trim_end();
                        frame.push_markup(markup);
                        frame.push_section(&lead[markup.len()..], section);
                        lead.clear();
                    }
                }
            }
            frame.push_markup(&lead);
        }
        let blank = |section: &Section<'_>| section.is_fixed() && is_blank(&fixed_text(section));
        if shape.sections.last().is_none_or(blank) {
            frame.chunks.push(Chunk::Blank);
        }
        Ok(frame)
    }

    fn push_fixed(&mut self, tokens: Vec<TokenId>) {
        match self.chunks.last_mut() {
            Some(Chunk::Fixed(last)) => last.extend(tokens),
            _ => self.chunks.push(Chunk::Fixed(tokens)),
        }
    }

    fn push_markup(&mut self, text: &str) {
        if !text.is_empty() {
            self.push_fixed(self.tokenizer.encode_markup(text));
        }
    }

    /// A section, after white space that goes with it.
    fn push_section(&mut self, lead: &str, section: &Section<'_>) {
        let parts = contents(lead, section);
        if section.is_fixed() {
            let tokens = match parts.first() {
                Some(Content::Text(text)) => self.tokenizer.encode_data(text),
                _ => Vec::new(),
            };
            return self.push_fixed(tokens);
        }
        let outer = |part: Option<&Content>| match part {
            Some(Content::Text(text)) => self.tokenizer.encode_data(text),
            _ => Vec::new(),
        };
        let (head, tail) = (outer(parts.first()), outer(parts.last()));
        self.chunks.push(Chunk::Filled { parts, head, tail });
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
        let (mut prompt, mut spans) = (Vec::new(), Spans::default());
        let last_filled = self.chunks.iter().rposition(|chunk| matches!(chunk, Chunk::Filled { .. }));
        for (position, chunk) in self.chunks.iter().enumerate() {
            match chunk {
                Chunk::Blank => return Err(RowProblem::EmptyPrompt),
                Chunk::Fixed(tokens) => {
                    spans.push(SpanKind::Template, tokens.len());
                    prompt.extend(tokens);
                }
                Chunk::Filled { parts, head, tail } => {
                    self.check_bytes(Filled::bytes(parts, row))?;
                    let filled = Filled::new(parts, row);
                    if Some(position) == last_filled && is_blank(&filled.text) {
                        return Err(RowProblem::EmptyPrompt);
                    }
                    let tokens = self.tokenizer.encode_data(&filled.text);
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

/// White space alone asks nothing.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn fixed_text(section: &Section<'_>) -> String {
    let texts = section.parts.iter().map(|part| match part {
        Part::Text(text) => *text,
        Part::Field(_) => "",
    });
    texts.collect()
}
