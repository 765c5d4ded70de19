//! Rows of a plan as prompts: each is filled, written by the chat template, cut at the template's special tokens
//! and tokenized.
//!
//! The template is run for every row with the row's own contents, because it may do to them what it likes. What
//! rows have in common is found in the prompts afterwards.

use std::collections::BTreeMap;

use base::{
    After, Bytes, ChatTemplate, Generation, MarkupPart, RenderedPiece, Role, Span, SpanKind, TextError,
    TokenCount, TokenId, Tokenizer,
};

use super::fill::{Content, Filled, contents, is_blank};
use super::options::LowerOptions;
use super::stretches::{CutPrompt, encode};
use crate::error::{IrError, RowProblem};
use crate::plan::TableRow;
use crate::shape::PromptShape;

/// What the prompts of all rows are made of.
pub(super) struct Frame<'a> {
    /// Whose messages the sections are, and what writes them; `None`: a raw prompt.
    chat: Option<(Vec<Role>, &'a dyn ChatTemplate)>,
    sections: Vec<Vec<Content>>,
    /// Sections that may not be blank: the last, and the last that has a field.
    asked: [Option<usize>; 2],
    tokenizer: &'a dyn Tokenizer,
    options: &'a LowerOptions,
}

/// A row's tokens and spans.
pub(super) type LoweredPrompt = Result<(Vec<TokenId>, Vec<Span>), RowProblem>;

impl<'a> Frame<'a> {
    /// The frame of a plan of this shape.
    pub(super) fn new(
        shape: &PromptShape<'_>,
        tokenizer: &'a dyn Tokenizer,
        chat: Option<&'a dyn ChatTemplate>,
        options: &'a LowerOptions,
    ) -> Result<Self, IrError> {
        let roles: Vec<Role> = shape.sections.iter().filter_map(|section| section.role).collect();
        let chat = match roles.is_empty() {
            true => None,
            false => Some((roles, chat.ok_or(IrError::NoChatTemplate)?)),
        };
        let last = shape.sections.len().checked_sub(1);
        let filled = shape.sections.iter().rposition(|section| !section.is_fixed());
        let sections = shape.sections.iter().map(contents).collect();
        Ok(Self { chat, sections, asked: [last, filled.or(last)], tokenizer, options })
    }

    /// Fills and tokenizes rows: each one's tokens and spans, or why it has none.
    pub(super) fn rows(
        &self,
        rows: &[TableRow],
        columns: usize,
        generation: &Generation,
    ) -> Vec<LoweredPrompt> {
        let filled = rows.iter().map(|row| self.fill(row, columns));
        let cut: Vec<Result<CutPrompt, RowProblem>> = self.cut(filled.collect());
        let (mut sound, mut problems) = (Vec::new(), Vec::with_capacity(cut.len()));
        for prompt in cut {
            problems.push(prompt.map(|prompt| sound.push(prompt)));
        }
        let mut encoded = encode(self.tokenizer, &sound).into_iter();
        let end = |problem: Result<(), RowProblem>| {
            problem?;
            let (prompt, spans) = encoded.next().expect("every sound prompt was encoded");
            self.check_length(&prompt, generation)?;
            Ok((prompt, spans.0))
        };
        problems.into_iter().map(end).collect()
    }

    /// A row's sections, filled; or what can be said of the row before its tokens are known.
    fn fill(&self, row: &TableRow, columns: usize) -> Result<Vec<Filled>, RowProblem> {
        if row.cells.len() != columns {
            return Err(RowProblem::CellCount { found: row.cells.len(), expected: columns });
        }
        if self.asked.iter().any(|section| section.is_none_or(|at| is_blank(&self.sections[at], row))) {
            return Err(RowProblem::EmptyPrompt);
        }
        self.sections.iter().try_for_each(|parts| self.check_bytes(Filled::bytes(parts, row)))?;
        Ok(self.sections.iter().map(|parts| Filled::new(parts, row)).collect())
    }

    /// Rows as prompts, cut at their special tokens.
    fn cut(&self, filled: Vec<Result<Vec<Filled>, RowProblem>>) -> Vec<Result<CutPrompt, RowProblem>> {
        let Some((roles, chat)) = &self.chat else {
            return filled.into_iter().map(|row| row.and_then(|row| self.checked(self.raw(&row)))).collect();
        };
        let sound = filled.iter().filter_map(|row| row.as_ref().ok());
        let sound: Vec<Vec<&str>> =
            sound.map(|row| row.iter().map(|section| section.text.as_str()).collect()).collect();
        let mut rendered = chat.render_rows(roles, &sound).into_iter();
        // Rows have most of their markup in common.
        let mut known = BTreeMap::new();
        let cut = |row: &Result<Vec<Filled>, RowProblem>| {
            let row = row.as_ref().map_err(Clone::clone)?;
            let pieces = rendered.next().expect("every sound row was rendered");
            let pieces = pieces.map_err(|TextError::Template(reason)| RowProblem::Template(reason))?;
            self.checked(self.conversation(&pieces, row, &mut known))
        };
        filled.iter().map(cut).collect()
    }

    /// A raw prompt. Only these start with BOS here: a chat template writes its own.
    fn raw(&self, row: &[Filled]) -> CutPrompt {
        let mut prompt = CutPrompt::default();
        self.tokenizer.prompt_start().into_iter().for_each(|token| prompt.push_start(token));
        row.iter()
            .filter(|section| !section.text.is_empty())
            .for_each(|section| prompt.stretch(After::Nothing).push_written(&section.text, section));
        prompt
    }

    /// A conversation; `known`: markup that was cut before.
    fn conversation(
        &self,
        pieces: &[RenderedPiece],
        row: &[Filled],
        known: &mut BTreeMap<String, Vec<MarkupPart>>,
    ) -> CutPrompt {
        let mut prompt = CutPrompt::default();
        for piece in pieces {
            match piece {
                RenderedPiece::Content { message, text } if !text.is_empty() => {
                    prompt.stretch(After::Special).push_written(text, &row[*message]);
                }
                RenderedPiece::Content { .. } => {}
                RenderedPiece::Markup(text) => {
                    if !known.contains_key(text) {
                        known.insert(text.clone(), self.tokenizer.split_markup(text));
                    }
                    prompt.push_markup(&known[text]);
                }
            }
        }
        prompt
    }

    fn checked(&self, prompt: CutPrompt) -> Result<CutPrompt, RowProblem> {
        checked(prompt, self.options)
    }

    fn check_bytes(&self, found: Bytes) -> Result<(), RowProblem> {
        check_bytes(found, self.options)
    }

    fn check_length(&self, prompt: &[TokenId], generation: &Generation) -> Result<(), RowProblem> {
        check_length(prompt, generation, self.options)
    }
}

/// A conversation's tokens and spans, as its template wrote it: all of it is the template's.
pub(super) fn rendered(
    pieces: &[RenderedPiece],
    (tokenizer, options): (&dyn Tokenizer, &LowerOptions),
    generation: &Generation,
) -> LoweredPrompt {
    let mut prompt = CutPrompt::default();
    for piece in pieces {
        match piece {
            RenderedPiece::Markup(text) => prompt.push_markup(&tokenizer.split_markup(text)),
            RenderedPiece::Content { text, .. } if text.is_empty() => {}
            RenderedPiece::Content { text, .. } => {
                prompt.stretch(After::Special).push(SpanKind::Template, text);
            }
        }
    }
    let encoded = encode(tokenizer, &[checked(prompt, options)?]).pop();
    let (prompt, spans) = encoded.ok_or(RowProblem::EmptyPrompt)?;
    check_length(&prompt, generation, options)?;
    Ok((prompt, spans.0))
}

/// Refuses stretches that are too long to even tokenize.
fn checked(prompt: CutPrompt, options: &LowerOptions) -> Result<CutPrompt, RowProblem> {
    prompt.texts().try_for_each(|text| check_bytes(Bytes(text.len() as u64), options))?;
    Ok(prompt)
}

fn check_bytes(found: Bytes, options: &LowerOptions) -> Result<(), RowProblem> {
    let limit = options.section_bytes_max;
    if found > limit { Err(RowProblem::TooManyBytes { found, limit }) } else { Ok(()) }
}

fn check_length(
    prompt: &[TokenId],
    generation: &Generation,
    options: &LowerOptions,
) -> Result<(), RowProblem> {
    let (tokens, context) = (TokenCount(prompt.len() as u64), options.context_max);
    let output_max = generation.output_max;
    match tokens.0.checked_add(output_max.0) {
        _ if prompt.is_empty() => Err(RowProblem::EmptyPrompt),
        Some(total) if total <= context.0 => Ok(()),
        _ => Err(RowProblem::TooLong { prompt: tokens, output_max, context }),
    }
}
