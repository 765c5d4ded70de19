//! Filling: a message's text in one row, and which of a stretch's tokens came out of cells.

use base::{Bytes, Span, SpanKind, TokenCount, TokenId};

use crate::plan::TableRow;
use crate::shape::{ContentPart, Section};
use crate::template::record_name;

/// A part of a message to fill; texts are never adjacent.
pub(super) enum Content {
    /// The same for all rows.
    Text(String),
    /// The cell at this position of the row.
    Field(usize),
    /// The cells at these positions as a JSON object; each with what stands before its value.
    Record(Vec<(u16, String)>),
}

impl Content {
    /// Calls `see` for each stretch of the part's text in a row.
    fn write(&self, row: &TableRow, see: &mut dyn FnMut(SpanKind, &str)) {
        match self {
            Self::Text(text) => see(SpanKind::Template, text),
            Self::Field(column) => see(SpanKind::Field, &row.cells[*column].text()),
            Self::Record(entries) => {
                see(SpanKind::Template, "{");
                let mut first = true;
                let mut entry = |column: u16, name: &str| {
                    if !std::mem::take(&mut first) {
                        see(SpanKind::Template, ", ");
                    }
                    see(SpanKind::Template, name);
                    see(SpanKind::Field, &row.cells[usize::from(column)].json());
                };
                if row.record.is_empty() {
                    entries.iter().for_each(|(column, name)| entry(*column, name));
                } else {
                    let name_of = |column: &u16| entries.iter().find(|(other, _)| other == column);
                    row.record.iter().filter_map(name_of).for_each(|(column, name)| entry(*column, name));
                }
                see(SpanKind::Template, "}");
            }
        }
    }
}

/// Appends a part, neighbouring texts joined.
fn push(contents: &mut Vec<Content>, part: Content) {
    match (contents.last_mut(), part) {
        (Some(Content::Text(last)), Content::Text(text)) => last.push_str(&text),
        (_, Content::Text(text)) if text.is_empty() => {}
        (_, part) => contents.push(part),
    }
}

/// A section's parts.
pub(super) fn contents(section: &Section<'_>) -> Vec<Content> {
    let mut contents = Vec::with_capacity(section.parts.len());
    for part in &section.parts {
        let part = match part {
            ContentPart::Text(text) => Content::Text((*text).to_owned()),
            ContentPart::Field(column) => Content::Field(*column),
            ContentPart::Record(entries) => {
                let entry = |(column, name): &(u16, &str)| (*column, record_name(name));
                Content::Record(entries.iter().map(entry).collect())
            }
        };
        push(&mut contents, part);
    }
    contents
}

/// Whether nothing but white space, which asks nothing, fills the parts.
pub(super) fn is_blank(parts: &[Content], row: &TableRow) -> bool {
    parts.iter().all(|part| match part {
        Content::Text(text) => text.trim().is_empty(),
        Content::Field(column) => row.cells[*column].is_blank(),
        Content::Record(entries) => {
            entries.iter().all(|(column, _)| row.cells[usize::from(*column)].is_blank())
        }
    })
}

/// Text in one row, and where each of its parts ends (bytes); neighbours differ in kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    pub(super) text: String,
    ends: Vec<(SpanKind, usize)>,
}

impl Filled {
    /// Bytes of the text that [`Filled::new`] would build: a template that repeats a large cell is refused
    /// before its text takes the memory.
    pub(super) fn bytes(parts: &[Content], row: &TableRow) -> Bytes {
        let mut bytes = 0;
        parts.iter().for_each(|part| part.write(row, &mut |_, text| bytes += text.len() as u64));
        Bytes(bytes)
    }

    /// Fills parts from a row.
    pub(super) fn new(parts: &[Content], row: &TableRow) -> Self {
        let mut filled = Self::default();
        parts.iter().for_each(|part| part.write(row, &mut |kind, text| filled.push(kind, text)));
        filled
    }

    /// Adds text of one kind.
    pub(super) fn push(&mut self, kind: SpanKind, text: &str) {
        self.text.push_str(text);
        let end = self.text.len();
        match self.ends.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.0 == kind => last.1 = end,
            _ => self.ends.push((kind, end)),
        }
    }

    /// Adds what a chat template made of a filled message. Where that is no stretch of it, all of it counts as
    /// its cells'.
    pub(super) fn push_written(&mut self, written: &str, of: &Self) {
        let Some(start) = of.text.find(written) else {
            let has_field = of.ends.iter().any(|(kind, _)| *kind == SpanKind::Field);
            self.push(if has_field { SpanKind::Field } else { SpanKind::Template }, written);
            return;
        };
        let mut from = 0;
        for (kind, end) in &of.ends {
            let to = end.saturating_sub(start).clamp(from, written.len());
            self.push(*kind, &written[from..to]);
            from = to;
        }
    }

    /// The text before the first field and the text after the last; neither where there is no field.
    pub(super) fn outer(&self) -> (&str, &str) {
        let head = match self.ends.first() {
            Some((SpanKind::Template, end)) if self.ends.len() > 1 => &self.text[..*end],
            _ => "",
        };
        let tail = match self.ends[..] {
            [.., (_, end), (SpanKind::Template, _)] => &self.text[end..],
            _ => "",
        };
        (head, tail)
    }

    /// Cuts the stretch's tokens at the parts' borders. The outer borders are exact: the tokens
    /// shared with `head` and `tail`, the outer texts tokenized alone. Borders between fields lie where
    /// the bytes' share puts them; a token that joins both sides has no better place.
    pub(super) fn spans(&self, tokens: &[TokenId], head: &[TokenId], tail: &[TokenId], spans: &mut Spans) {
        let lead = tokens.iter().zip(head).take_while(|(a, b)| a == b).count();
        let rest = &tokens[lead..];
        let trail = rest.iter().rev().zip(tail.iter().rev()).take_while(|(a, b)| a == b).count();
        let middle = rest.len() - trail;
        let first = usize::from(!head.is_empty());
        let last = self.ends.len() - usize::from(!tail.is_empty());
        let from = if first == 1 { self.ends[0].1 } else { 0 };
        let to = if last == 0 { from } else { self.ends[last - 1].1 };
        spans.push(SpanKind::Template, lead);
        let mut placed = 0;
        for (i, (kind, end)) in self.ends[first..last].iter().enumerate() {
            let is_end = first + i + 1 == last;
            let share = if is_end { middle } else { middle * (end - from) / (to - from).max(1) };
            spans.push(*kind, share - placed);
            placed = share;
        }
        spans.push(SpanKind::Template, trail);
    }
}

/// Spans so far; neighbours of one kind are one span, empty ones are none.
#[derive(Default)]
pub(super) struct Spans(pub(super) Vec<Span>);

impl Spans {
    /// Appends a span.
    pub(super) fn push(&mut self, kind: SpanKind, tokens: usize) {
        let tokens = TokenCount(tokens as u64);
        match self.0.last_mut() {
            _ if tokens == TokenCount(0) => {}
            Some(last) if last.kind == kind => last.tokens += tokens,
            _ => self.0.push(Span { kind, tokens }),
        }
    }
}
