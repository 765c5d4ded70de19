//! The frame: what all rows of a plan have in common, tokenized once, with places for the rest.
//!
//! A prompt is cut at the special tokens of the chat template's own text. Between two of them lies a stretch
//! of text, of template and cells alike, which is tokenized whole: so a row has the tokens of its rendered
//! prompt.

use base::{
    After, Bytes, ChatTemplate, Generation, MarkupPart, Piece, Span, SpanKind, TextError, TokenCount,
    TokenId, Tokenizer,
};

use super::fill::{Content, Filled, Spans, contents, is_blank, push};
use super::options::LowerOptions;
use crate::error::{IrError, RowProblem};
use crate::plan::TableRow;
use crate::shape::{PromptShape, Section};

/// A prompt, all that rows have in common tokenized.
pub(super) struct Frame<'a> {
    chunks: Vec<FramePart>,
    /// Sections that may not be blank: the last, and the last that has a field.
    asked: [Vec<Content>; 2],
    tokenizer: &'a dyn Tokenizer,
    options: &'a LowerOptions,
}

/// A row's tokens and spans.
pub(super) type LoweredPrompt = Result<(Vec<TokenId>, Vec<Span>), RowProblem>;

/// A part of a frame.
enum FramePart {
    /// Tokens that all rows share.
    Fixed(Vec<TokenId>),
    /// A stretch to fill, and the tokens of its text before the first and after the last field.
    Filled { after: After, parts: Vec<Content>, head: Vec<TokenId>, tail: Vec<TokenId> },
}

impl<'a> Frame<'a> {
    /// Tokenizes what rows have in common.
    pub(super) fn new(
        shape: &PromptShape<'_>,
        tokenizer: &'a dyn Tokenizer,
        chat: Option<&dyn ChatTemplate>,
        options: &'a LowerOptions,
    ) -> Result<Self, IrError> {
        let mut builder =
            FrameBuilder { chunks: Vec::new(), after: After::Nothing, stretch: Vec::new(), tokenizer };
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

    /// Fills and tokenizes rows: each one's tokens and spans, or why it has none.
    pub(super) fn rows(
        &self,
        rows: &[TableRow],
        columns: usize,
        generation: &Generation,
    ) -> Vec<LoweredPrompt> {
        let begin = |row| self.check(row, columns).map(|()| (Vec::new(), Spans::default()));
        let mut prompts: Vec<_> = rows.iter().map(begin).collect();
        for chunk in &self.chunks {
            let sound =
                prompts.iter_mut().zip(rows).filter_map(|(prompt, row)| Some((prompt.as_mut().ok()?, row)));
            match chunk {
                FramePart::Fixed(tokens) => sound.for_each(|((prompt, spans), _)| {
                    spans.push(SpanKind::Template, tokens.len());
                    prompt.extend(tokens);
                }),
                FramePart::Filled { after, parts, head, tail } => {
                    let (sound, filled): (Vec<_>, Vec<_>) =
                        sound.map(|(prompt, row)| (prompt, Filled::new(parts, row))).unzip();
                    let begin = parts.first().and_then(Content::text).unwrap_or_default();
                    let texts: Vec<&str> = filled.iter().map(|filled| filled.text.as_str()).collect();
                    let encoded = self.tokenizer.encode_stretches(*after, begin, &texts);
                    for (((prompt, spans), filled), tokens) in sound.into_iter().zip(&filled).zip(encoded) {
                        filled.spans(&tokens, head, tail, spans);
                        prompt.extend(tokens);
                    }
                }
            }
        }
        let end = |(prompt, spans): (Vec<TokenId>, Spans)| {
            self.check_length(&prompt, generation).map(|()| (prompt, spans.0))
        };
        prompts.into_iter().map(|prompt| prompt.and_then(end)).collect()
    }

    /// What can be said of a row before its tokens are known.
    fn check(&self, row: &TableRow, columns: usize) -> Result<(), RowProblem> {
        if row.cells.len() != columns {
            return Err(RowProblem::CellCount { found: row.cells.len(), expected: columns });
        }
        if self.asked.iter().any(|section| is_blank(section, row)) {
            return Err(RowProblem::EmptyPrompt);
        }
        self.chunks.iter().try_for_each(|chunk| match chunk {
            FramePart::Fixed(_) => Ok(()),
            FramePart::Filled { parts, .. } => self.check_bytes(Filled::bytes(parts, row)),
        })
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
struct FrameBuilder<'a> {
    chunks: Vec<FramePart>,
    /// What the stretch stands behind.
    after: After,
    /// The stretch so far.
    stretch: Vec<Content>,
    tokenizer: &'a dyn Tokenizer,
}

impl FrameBuilder<'_> {
    fn push_fixed(&mut self, tokens: Vec<TokenId>) {
        match self.chunks.last_mut() {
            Some(FramePart::Fixed(last)) => last.extend(tokens),
            _ => self.chunks.push(FramePart::Fixed(tokens)),
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
                self.chunks.push(FramePart::Filled { after, parts, head, tail });
            }
        }
    }
}
