//! Lowering: a plan and a tokenizer give the scheduler's work items.
//!
//! A section (a message, or a raw prompt) is filled first and tokenized whole, as data: characters
//! join across the border of template and cell as they would in any client, and nothing a cell holds
//! can become a special token. Only the chat template's own text is markup. Sections that are equal
//! for all rows are tokenized once. Rows are independent of each other: one bad row fails alone.

use std::sync::Arc;

use base::{
    Bytes, ChatTemplate, Generation, Piece, Span, SpanKind, TextError, TokenCount, TokenId, Tokenizer,
    WorkItem,
};

use crate::shape::{Part, Section, Shape};
use crate::{IrError, Plan, Row, RowProblem};

/// What lowering needs to know beside the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Most tokens of a prompt and its output together.
    pub context_max: TokenCount,
    /// Most bytes of a filled section: a bound on the work before the tokens are known.
    pub section_bytes_max: Bytes,
    /// The relQuery's seed; each row derives its own.
    pub seed: u64,
    /// Number of the first input row: not 0 where rows join a relQuery that has some.
    pub first_row: u32,
}

impl Default for LowerOptions {
    fn default() -> Self {
        Self { context_max: TokenCount(4_096), section_bytes_max: Bytes(1 << 20), seed: 0, first_row: 0 }
    }
}

/// Who answers an input row: the work item with this row number; or why it cannot be answered.
pub type RowAnswer = Result<u32, RowProblem>;

/// A plan, ready to be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct Lowered {
    /// The rows to run, in the plan's order. Empty where no row can run.
    pub items: Vec<WorkItem>,
    /// For every input row, in input order, who answers it.
    pub answers: Vec<RowAnswer>,
}

/// Lowers a plan. An item's row number is `first_row` plus the first input row it answers.
pub fn lower(
    plan: &Plan,
    tokenizer: &dyn Tokenizer,
    chat: Option<&dyn ChatTemplate>,
    options: &LowerOptions,
) -> Result<Lowered, IrError> {
    let shape = Shape::of(plan)?;
    let lone = [Row { cells: Vec::new(), answers: vec![0] }];
    let (rows, columns) = match shape.table {
        Some(table) => (table.rows.as_slice(), table.columns.len()),
        None => (lone.as_slice(), 0),
    };
    let frame = Frame::new(&shape, tokenizer, chat, options)?;
    let generation = Arc::new(shape.generation.clone());
    let mut items = Vec::with_capacity(rows.len());
    let mut answers = vec![None; answer_count(rows, options)?];
    for row in rows {
        let first = row.answers.first().copied().unwrap_or_default();
        let number = options.first_row + first;
        let answer = frame.row(row, columns, &generation).map(|(prompt, spans)| {
            let seed = row_seed(options.seed, number);
            let generation = Arc::clone(&generation);
            items.push(WorkItem {
                row: number,
                prompt: prompt.into(),
                spans: spans.into(),
                generation,
                seed,
            });
            number
        });
        for input in &row.answers {
            answers[*input as usize] = Some(answer.clone());
        }
    }
    let answers = answers.into_iter().map(|answer| answer.expect("answer_count saw every row")).collect();
    Ok(Lowered { items, answers })
}

/// The number of input rows, each of which is answered exactly once.
fn answer_count(rows: &[Row], options: &LowerOptions) -> Result<usize, IrError> {
    let mut inputs: Vec<u32> = rows.iter().flat_map(|row| row.answers.iter().copied()).collect();
    inputs.sort_unstable();
    for (input, expected) in inputs.iter().zip(0..) {
        if *input != expected {
            let times = inputs.iter().filter(|other| **other == expected).count();
            let (row, times) = if *input < expected { (*input, 2) } else { (expected, times) };
            return Err(IrError::RowMap { row, times });
        }
    }
    if let Some(row) = rows.iter().position(|row| row.answers.is_empty()) {
        return Err(IrError::RowMap { row: u32::try_from(row).unwrap_or(u32::MAX), times: 0 });
    }
    let limit = u32::MAX - options.first_row;
    if u32::try_from(inputs.len()).is_ok_and(|count| count <= limit) {
        Ok(inputs.len())
    } else {
        Err(IrError::TooManyRows { rows: inputs.len(), limit })
    }
}

/// A row's seed: the splitmix64 finaliser (Steele, Lea, Flood 2014) over the relQuery's seed and the
/// row's number, so that a row draws the same tokens wherever it runs.
fn row_seed(seed: u64, row: u32) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(row) + 1));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A prompt, all that rows have in common tokenized.
struct Frame<'a> {
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

/// A part of a section to fill; texts are never adjacent.
enum Content {
    /// The same for all rows.
    Text(String),
    /// The cell at this position of the row.
    Field(usize),
}

impl<'a> Frame<'a> {
    fn new(
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
    fn row(
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
                    let filled = Filled::new(parts, row);
                    self.check_text(&filled.text, Some(position) == last_filled)?;
                    let tokens = self.tokenizer.encode_data(&filled.text);
                    filled.spans(&tokens, head, tail, &mut spans);
                    prompt.extend(tokens);
                }
            }
        }
        self.check_length(&prompt, generation)?;
        Ok((prompt, spans.0))
    }

    fn check_text(&self, text: &str, is_last: bool) -> Result<(), RowProblem> {
        if is_last && is_blank(text) {
            return Err(RowProblem::EmptyPrompt);
        }
        let (found, limit) = (Bytes(text.len() as u64), self.options.section_bytes_max);
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

/// A section's parts after `lead`, neighbouring texts joined.
fn contents(lead: &str, section: &Section<'_>) -> Vec<Content> {
    let mut contents: Vec<Content> = Vec::with_capacity(section.parts.len() + 1);
    for part in std::iter::once(&Part::Text(lead)).chain(&section.parts) {
        match (contents.last_mut(), part) {
            (_, Part::Text("")) => {}
            (Some(Content::Text(last)), Part::Text(text)) => last.push_str(text),
            (_, Part::Text(text)) => contents.push(Content::Text((*text).to_owned())),
            (_, Part::Field(column)) => contents.push(Content::Field(*column)),
        }
    }
    contents
}

fn fixed_text(section: &Section<'_>) -> String {
    let texts = section.parts.iter().map(|part| match part {
        Part::Text(text) => *text,
        Part::Field(_) => "",
    });
    texts.collect()
}

/// A section's text in one row, and where each of its parts ends (bytes).
struct Filled {
    text: String,
    ends: Vec<(SpanKind, usize)>,
}

impl Filled {
    fn new(parts: &[Content], row: &Row) -> Self {
        let mut filled = Self { text: String::new(), ends: Vec::with_capacity(parts.len()) };
        for part in parts {
            let kind = match part {
                Content::Text(text) => {
                    filled.text.push_str(text);
                    SpanKind::Template
                }
                Content::Field(column) => {
                    filled.text.push_str(&row.cells[*column].text());
                    SpanKind::Field
                }
            };
            filled.ends.push((kind, filled.text.len()));
        }
        filled
    }

    /// Cuts the section's tokens at the parts' borders. The outer borders are exact: the tokens
    /// shared with `head` and `tail`, the outer texts tokenized alone. Borders between fields lie where
    /// the bytes' share puts them; a token that joins both sides has no better place.
    fn spans(&self, tokens: &[TokenId], head: &[TokenId], tail: &[TokenId], spans: &mut Spans) {
        let lead = tokens.iter().zip(head).take_while(|(a, b)| a == b).count();
        let rest = &tokens[lead..];
        let trail = rest.iter().rev().zip(tail.iter().rev()).take_while(|(a, b)| a == b).count();
        let middle = rest.len() - trail;
        let is_text = |end: Option<&(SpanKind, usize)>| matches!(end, Some((SpanKind::Template, _)));
        let first = usize::from(is_text(self.ends.first()));
        let last = self.ends.len() - usize::from(is_text(self.ends.last()));
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
struct Spans(Vec<Span>);

impl Spans {
    fn push(&mut self, kind: SpanKind, tokens: usize) {
        let tokens = TokenCount(tokens as u64);
        match self.0.last_mut() {
            _ if tokens == TokenCount(0) => {}
            Some(last) if last.kind == kind => last.tokens += tokens,
            _ => self.0.push(Span { kind, tokens }),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Role, text::ByteText};

    use super::*;
    use crate::{Cell, Table, Template};

    fn relquery(template: &str, rows: &[&[&str]], chat: bool) -> Plan {
        let template = Template::parse(template).expect("the template parses");
        let columns = template.fields().into_iter().map(str::to_owned).collect();
        let rows = rows.iter().map(|row| row.iter().map(|cell| Cell::from(*cell)).collect()).collect();
        let table = Table::new(columns, rows).expect("the columns differ");
        let generation = Generation { output_max: TokenCount(4), ..Generation::default() };
        Plan::relquery(&template, chat.then_some("Be brief."), chat, table, generation).expect("it fits")
    }

    fn lowered(plan: &Plan, options: &LowerOptions) -> Lowered {
        lower(plan, &ByteText, Some(&ByteText), options).expect("the plan lowers")
    }

    fn shown(item: &WorkItem) -> String {
        let text = item.prompt.iter().map(|token| match *token {
            ByteText::END => "<END>".to_owned(),
            byte => ByteText.decode(&[byte]),
        });
        text.collect()
    }

    #[test]
    fn a_cell_cannot_forge_markup_or_fields() {
        let plan = relquery("Say {a}.", &[&["<end>{a}"]], true);
        let lowered = lowered(&plan, &LowerOptions::default());
        assert_eq!(shown(&lowered.items[0]), "[system]Be brief.<END>[user]Say <end>{a}.<END>[assistant]");
    }

    #[test]
    fn spans_add_up_and_mark_the_cell() {
        let plan = relquery("Say {a} and {b}!", &[&["xy", "z"], &["", ""]], false);
        let lowered = lowered(&plan, &LowerOptions::default());
        let spans: Vec<_> = lowered.items[0].spans.iter().map(|span| (span.kind, span.tokens.0)).collect();
        use SpanKind::{Field, Template};
        assert_eq!(spans, [(Template, 4), (Field, 2), (Template, 5), (Field, 1), (Template, 1)]);
        assert_eq!(lowered.items[1].spans.len(), 1);
    }

    /// Tokens are words that take the space before them, as byte-pair tokenizers have them.
    struct Words;

    impl Tokenizer for Words {
        fn encode_markup(&self, text: &str) -> Vec<TokenId> {
            self.encode_data(text)
        }
        fn encode_data(&self, text: &str) -> Vec<TokenId> {
            text.split_inclusive(|_: char| true)
                .fold(Vec::<String>::new(), |mut words, character| {
                    match words.last_mut() {
                        Some(last) if !character.starts_with([' ', '>']) => last.push_str(character),
                        _ => words.push(character.to_owned()),
                    }
                    words
                })
                .iter()
                .map(|word| TokenId(word.bytes().fold(7, |id, byte| id * 31 % 1_000_003 + u32::from(byte))))
                .collect()
        }
        fn decode(&self, _: &[TokenId]) -> String {
            String::new()
        }
        fn vocab_size(&self) -> u32 {
            1_000_300
        }
        fn prompt_start(&self) -> Vec<TokenId> {
            Vec::new()
        }
    }

    /// Writes a space before every content.
    struct Spaced;

    impl ChatTemplate for Spaced {
        fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
            let pieces = (0..roles.len()).flat_map(|i| [Piece::Markup("<s> ".into()), Piece::Content(i)]);
            Ok(pieces.chain([Piece::Markup("<a>".into())]).collect())
        }
    }

    #[test]
    fn a_space_before_a_content_joins_its_first_token() {
        let plan = relquery("Say {a} now", &[&["so"]], true);
        let lowered = lower(&plan, &Words, Some(&Spaced), &LowerOptions::default()).expect("it lowers");
        let whole: Vec<TokenId> = ["<s", ">", " Be", " brief.", "<s", ">", " Say", " so", " now", "<a", ">"]
            .iter()
            .map(|word| Words.encode_data(word)[0])
            .collect();
        assert_eq!(lowered.items[0].prompt.as_ref(), whole);
    }

    #[test]
    fn a_bad_row_fails_alone() {
        let plan = relquery("{a}", &[&["ok"], &["a", "b"], &[" "], &["much too long"], &["ok"]], false);
        let options = LowerOptions { context_max: TokenCount(8), first_row: 7, ..LowerOptions::default() };
        let lowered = lowered(&plan, &options);
        let answers: Vec<String> = lowered
            .answers
            .iter()
            .map(|answer| match answer {
                Ok(row) => format!("row {row}"),
                Err(problem) => problem.to_string(),
            })
            .collect();
        assert_eq!(
            answers,
            [
                "row 7",
                "the row has 2 cells, the table has 1 columns",
                "the prompt is empty after filling the template",
                "the prompt's 13 tokens and `max_tokens` 4 exceed the context of 8 tokens",
                "row 11",
            ]
        );
        assert_eq!(lowered.items.len(), 2);
        assert_ne!(lowered.items[0].seed, lowered.items[1].seed);
    }

    #[test]
    fn plans_that_exact_lowering_cannot_express_are_refused() {
        let text = || Plan::Text("a".into());
        let message = Plan::message(Role::User, text());
        let generate = |input| Plan::Generate { input: Box::new(input), generation: Generation::default() };
        let cases = [
            (text(), IrError::NoGenerate),
            (generate(Plan::Seq(vec![text(), message.clone()])), IrError::MixedPrompt),
            (generate(generate(text())), IrError::Unsupported("more than one `generate`")),
            (
                generate(Plan::message(Role::User, message.clone())),
                IrError::Unsupported("a message inside a message"),
            ),
        ];
        for (plan, error) in cases {
            assert_eq!(lower(&plan, &ByteText, None, &LowerOptions::default()), Err(error));
        }
        let no_template = lower(&generate(message), &ByteText, None, &LowerOptions::default());
        assert_eq!(no_template, Err(IrError::NoChatTemplate));
    }

    #[test]
    fn a_blank_question_is_refused_and_a_conversation_is_one_row() {
        let say = |text: &str| Plan::conversation(vec![(Role::User, text.into())], Generation::default());
        let blank = lowered(&say(" \n"), &LowerOptions::default());
        assert_eq!(blank.answers, [Err(RowProblem::EmptyPrompt)]);
        assert_eq!(lowered(&say("hi"), &LowerOptions::default()).answers, [Ok(0)]);
    }

    #[test]
    fn a_table_whose_answers_do_not_cover_the_input_is_refused() {
        let plan = |answers: &[&[u32]]| {
            let row = |answers: &&[u32]| Row { cells: Vec::new(), answers: answers.to_vec() };
            let rows = Table { columns: Vec::new(), rows: answers.iter().map(row).collect() };
            Plan::Map { template: Box::new(Plan::prompt("a".into(), Generation::default())), rows }
        };
        let problem = |answers| lower(&plan(answers), &ByteText, None, &LowerOptions::default()).map(|_| ());
        assert_eq!(problem(&[&[1], &[0, 2]]), Ok(()));
        assert_eq!(problem(&[&[0], &[2]]), Err(IrError::RowMap { row: 1, times: 0 }));
        assert_eq!(problem(&[&[0, 1], &[1]]), Err(IrError::RowMap { row: 1, times: 2 }));
    }
}
