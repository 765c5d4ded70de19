//! What was sent, as submissions for the simulator: prompts of as many tokens as the server counted, equal
//! where the sent text is equal. Pure.
//!
//! A client has no tokenizer. The text of a prompt is cut into pieces, one per token, so that what rows share in
//! text they share in tokens, whether it is the template, a repeated field, or a whole row that another relQuery had
//! before. A piece is as long as tokens are in all prompts of the same template: those of the template by themselves
//! and those of the cells by themselves ([`PromptLengths`]), for caches hold whole blocks, and which block is the first
//! that rows do not share hangs on a token.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{
    Generation, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, Time, TokenCount, TokenId,
    WorkItem,
};
use sim::Lowered;

use crate::record::{Record, TokenUsage};
use crate::workload::RelQuery;

/// The relQueries that were answered, in the order of their arrival; `None` where the server did not tell the
/// tokens of one.
pub fn lowered(trace: &[RelQuery], records: &[Record]) -> Option<Lowered> {
    let answered: Vec<(&RelQuery, Vec<ComputedRow<'_>>)> = records
        .iter()
        .filter(|record| record.error.is_none())
        .map(|record| {
            let relquery = trace.get(record.index as usize)?;
            Some((relquery, rows(relquery, record)?))
        })
        .collect::<Option<_>>()?;
    let mut lengths: BTreeMap<&str, PromptLengths> = BTreeMap::new();
    for (relquery, rows) in &answered {
        let lengths = lengths.entry(&relquery.template).or_default();
        rows.iter().for_each(|row| lengths.add(row));
    }
    let mut words = PieceTokens::default();
    let mut lowered = Lowered::default();
    for (relquery, mut rows) in answered {
        let sizes = lengths[relquery.template.as_str()].sizes();
        // The server runs rows that share leading fields next to one another.
        rows.sort_by(|a, b| a.group.cmp(&b.group));
        let submission = submit(relquery, &rows, sizes, &mut words, &mut lowered.lengths);
        lowered.submissions.push(submission);
    }
    (!lowered.submissions.is_empty()).then_some(lowered)
}

/// A row that the model ran.
struct ComputedRow<'a> {
    /// Its text, part by part, each with whether it is a cell.
    parts: Vec<(&'a str, bool)>,
    prompt: u64,
    output: u64,
    /// Place of the first row with the same leading fields, field by field.
    group: Vec<usize>,
}

/// Rows of a template below which its text and its cells are not told apart.
const ROWS_MIN: f64 = 16.0;
/// Part of what a character is on average below which none is believed to be.
const SIZE_PART_MIN: f64 = 0.125;

/// How long prompts of one template are, in characters and in tokens, in sum over its rows.
///
/// ```text
/// tokens of a row = tokens of the template + tokens to a character of cells * characters of its cells
/// ```
///
/// by least squares. Where rows are too few or too much alike to tell, or where the one or the other would be next to
/// nothing (a server that tells no row's tokens, so that all have the mean), a character is as many tokens everywhere.
#[derive(Clone, Copy, Debug, Default)]
struct PromptLengths {
    rows: f64,
    template: f64,
    cells: f64,
    cells_squared: f64,
    tokens: f64,
    cells_times_tokens: f64,
}

/// Tokens to a character.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TokenSizes {
    template: f64,
    cells: f64,
}

impl PromptLengths {
    fn add(&mut self, row: &ComputedRow<'_>) {
        let chars = |is_cells: bool| {
            let parts = row.parts.iter().filter(|(_, is_cell)| *is_cell == is_cells);
            parts.map(|(text, _)| text.chars().count()).sum::<usize>() as f64
        };
        let (cells, tokens) = (chars(true), row.prompt as f64);
        self.rows += 1.0;
        self.template += chars(false);
        self.cells += cells;
        self.cells_squared += cells * cells;
        self.tokens += tokens;
        self.cells_times_tokens += cells * tokens;
    }

    fn sizes(&self) -> TokenSizes {
        let even = self.tokens / (self.template + self.cells).max(1.0);
        let even = TokenSizes { template: even, cells: even };
        let mean = self.cells / self.rows.max(1.0);
        let spread = self.cells_squared - self.cells * mean;
        // Lengths are whole: where two rows differ it is more than this.
        if self.rows < ROWS_MIN || spread < 0.5 || self.template < 1.0 {
            return even;
        }
        let cells = (self.cells_times_tokens - self.tokens * mean) / spread;
        let template = (self.tokens - cells * self.cells) / self.template;
        let least = SIZE_PART_MIN * even.cells;
        if cells > least && template > least { TokenSizes { template, cells } } else { even }
    }
}

impl TokenSizes {
    /// Tokens up to the end of each character.
    fn ends(self, parts: &[(&str, bool)]) -> Vec<f64> {
        let sizes = parts.iter().flat_map(|(text, is_cell)| {
            std::iter::repeat_n(if *is_cell { self.cells } else { self.template }, text.chars().count())
        });
        let ends = sizes.scan(0.0, |end, size| {
            *end += size;
            Some(*end)
        });
        ends.collect()
    }
}

/// The rows that the model ran; those answered by another row's run cost nothing.
fn rows<'a>(relquery: &'a RelQuery, record: &Record) -> Option<Vec<ComputedRow<'a>>> {
    let count = relquery.rows.len() as u64;
    let each = |total: Option<u64>| total.map(|total| total / count.max(1));
    let mean = TokenUsage {
        prompt: each(record.tokens.prompt),
        output: each(record.tokens.output),
        ..TokenUsage::default()
    };
    let mut groups: HashMap<&[String], usize> = HashMap::new();
    let mut rows = Vec::with_capacity(relquery.rows.len());
    for (index, cells) in relquery.rows.iter().enumerate() {
        let reported = record.row_tokens.get(index).copied().unwrap_or_default();
        if reported.computed == Some(0) {
            continue;
        }
        let output = match relquery.ignore_eos {
            true => Some(u64::from(relquery.max_tokens)),
            false => reported.output.or(mean.output),
        };
        let group = (1..=cells.len()).map(|end| *groups.entry(&cells[..end]).or_insert(index)).collect();
        rows.push(ComputedRow {
            parts: relquery.parts(cells),
            prompt: reported.prompt.or(mean.prompt)?.max(1),
            output: output?.max(1),
            group,
        });
    }
    Some(rows)
}

/// Numbers for pieces of text, in order of first sight.
#[derive(Default)]
struct PieceTokens {
    known: HashMap<String, u32>,
    next: u32,
}

/// The simulator's own output tokens have numbers below this.
const FIRST_WORD: u32 = 1_000_000;

/// What sums of sizes may be off by.
const ROUNDING: f64 = 1e-6;

impl PieceTokens {
    fn piece(&mut self, text: &str) -> TokenId {
        if let Some(number) = self.known.get(text) {
            return TokenId(*number);
        }
        let fresh = self.fresh();
        self.known.insert(text.to_owned(), fresh.0);
        fresh
    }

    /// A token that nothing else has.
    fn fresh(&mut self) -> TokenId {
        self.next += 1;
        TokenId(FIRST_WORD + self.next)
    }

    /// `count` tokens for a text, each the characters that end with it (`ends`: of each character, in tokens); what
    /// the text is too short for is the row's own.
    fn prompt(&mut self, text: &str, ends: &[f64], count: u64) -> Vec<TokenId> {
        let mut chars = text.chars().zip(ends).peekable();
        let mut tokens = Vec::new();
        for piece in 0..count {
            let mut text = String::new();
            while let Some((next, _)) = chars.next_if(|(_, end)| **end <= (piece + 1) as f64 + ROUNDING) {
                text.push(next);
            }
            tokens.push(match chars.peek() {
                _ if !text.is_empty() => self.piece(&text),
                // Less than a character per token: the character's tokens are told apart by place.
                Some((next, _)) => self.piece(&format!("{next}+{piece}")),
                None => self.fresh(),
            });
        }
        tokens
    }
}

fn submit(
    relquery: &RelQuery,
    rows: &[ComputedRow<'_>],
    sizes: TokenSizes,
    words: &mut PieceTokens,
    lengths: &mut Vec<(u64, u64)>,
) -> Submission {
    let output_max = TokenCount(u64::from(relquery.max_tokens));
    let generation = Arc::new(Generation { output_max, ..Generation::default() });
    let mut items = Vec::with_capacity(rows.len());
    for (number, row) in (0..).zip(rows) {
        let seed = lengths.len() as u64;
        let text: String = row.parts.iter().map(|(text, _)| *text).collect();
        lengths.push((seed, row.output));
        items.push(WorkItem {
            row: number,
            prompt: words.prompt(&text, &sizes.ends(&row.parts), row.prompt).into(),
            spans: [Span { kind: SpanKind::Template, tokens: TokenCount(row.prompt) }].into(),
            sections: Arc::default(),
            generation: Arc::clone(&generation),
            seed,
        });
    }
    Submission {
        id: RelQueryId(u64::from(relquery.index)),
        tenant: TenantId(0),
        weight: 1_000,
        scope: 0,
        class: ServiceClass::Interactive,
        arrival: Time(u64::try_from(relquery.arrival.as_nanos()).unwrap_or(u64::MAX)),
        deadline: None,
        items,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::RelQueryOutcome;

    fn relquery(index: u32, cells: &[&str]) -> RelQuery {
        RelQuery {
            index,
            arrival: Duration::from_millis(u64::from(index) * 10),
            task: "rate".into(),
            table: "t".into(),
            template: "Rate the text. {text}".into(),
            columns: vec!["text".into()],
            rows: cells.iter().map(|cell| vec![(*cell).to_owned()]).collect(),
            max_tokens: 5,
            ignore_eos: false,
            choices: Vec::new(),
        }
    }

    /// Told as a byte-level tokenizer would: a token per character.
    fn record(relquery: &RelQuery, outputs: &[u64]) -> Record {
        let row = |(cells, output): (&Vec<String>, &u64)| {
            let prompt = relquery.prompt(cells).len() as u64;
            let computed = if *output == 0 { 0 } else { prompt };
            TokenUsage {
                prompt: Some(prompt),
                computed: Some(computed),
                cached: Some(0),
                output: Some(*output),
            }
        };
        let row_tokens = relquery.rows.iter().zip(outputs).map(row).collect();
        Record::new(relquery, RelQueryOutcome { row_tokens, ..RelQueryOutcome::default() }, None, 1.0)
    }

    #[test]
    fn rows_have_the_tokens_that_the_server_counted_and_share_what_their_texts_share() {
        let trace = [relquery(0, &["good one", "bad", "good one", "good two"]), relquery(1, &["bad"])];
        let records = [record(&trace[0], &[2, 3, 0, 5]), record(&trace[1], &[1])];
        let lowered = lowered(&trace, &records).expect("all is told");
        let items = &lowered.submissions[0].items;
        let prompts: Vec<usize> = items.iter().map(|item| item.prompt.len()).collect();
        assert_eq!(prompts, [23, 18, 23], "the repeated row was not run");
        let outputs: Vec<u64> = lowered.lengths.iter().map(|(_, output)| *output).collect();
        assert_eq!(outputs, [2, 3, 5, 1]);
        let shared = |a: &WorkItem, b: &WorkItem| {
            a.prompt.iter().zip(b.prompt.iter()).take_while(|(a, b)| a == b).count()
        };
        assert_eq!(shared(&items[0], &items[1]), 15, "the template");
        assert_eq!(shared(&items[0], &items[2]), 20, "and the first word");
        assert_eq!(shared(&items[1], &lowered.submissions[1].items[0]), 18, "a row that came again");
        assert_eq!(lowered.submissions[1].arrival, Time(10_000_000));
    }

    #[test]
    fn a_text_too_short_for_its_tokens_is_filled_with_tokens_of_its_own() {
        let mut words = PieceTokens::default();
        let mut prompt = |text: &str, size: f64, count| {
            let ends = TokenSizes { template: size, cells: size }.ends(&[(text, true)]);
            words.prompt(text, &ends, count)
        };
        let (a, b) = (prompt("abcd", 0.5, 4), prompt("abcd", 0.5, 4));
        assert_eq!(a[..2], b[..2]);
        assert!(a[2] != b[2] && a[2] != a[3]);
        let (a, b) = (prompt("äx", 2.0, 4), prompt("äy", 2.0, 4));
        assert_eq!((a.len(), a[..2] == b[..2], a[2] == b[2]), (4, true, false));
        assert!(a[0] != a[1] && a[2] != a[3]);
        assert_eq!(prompt("", 1.0, 2).len(), 2);
    }

    #[test]
    fn a_template_has_the_tokens_that_rows_of_different_lengths_have_in_common() {
        // Its 15 characters are 10 tokens, and each character of a cell is one.
        let letters = (b'a'..=b'v')
            .zip(0..)
            .map(|(letter, number)| char::from(letter).to_string().repeat(1 + number % 9));
        let cells: Vec<String> = ["zzzy".to_owned(), "zzzx".to_owned()].into_iter().chain(letters).collect();
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        let trace = [relquery(0, &cells)];
        let usage = |cell: &&str| TokenUsage {
            prompt: Some(10 + cell.len() as u64),
            output: Some(1),
            ..TokenUsage::default()
        };
        let row_tokens = cells.iter().map(usage).collect();
        let outcome = RelQueryOutcome { row_tokens, ..RelQueryOutcome::default() };
        let lowered = lowered(&trace, &[Record::new(&trace[0], outcome, None, 1.0)]).expect("all is told");
        let items = &lowered.submissions[0].items;
        let shared = |a: usize, b: usize| {
            let (a, b) = (&items[a].prompt, &items[b].prompt);
            a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count()
        };
        assert_eq!((shared(0, 1), shared(0, 2), shared(2, 3)), (13, 10, 10));
        assert_eq!(items[0].prompt.len(), 14);
        let few = |rows: f64| PromptLengths {
            rows,
            template: 15.0 * rows,
            cells: 5.0 * rows,
            cells_squared: 25.0 * rows,
            tokens: 10.0 * rows,
            cells_times_tokens: 50.0 * rows,
        };
        let even = TokenSizes { template: 0.5, cells: 0.5 };
        assert_eq!((few(3.0).sizes(), few(100.0).sizes()), (even, even), "few rows, and rows that are alike");
        // Cells of different lengths in prompts that all have the mean of tokens, as sums of rounded numbers have it.
        let means =
            PromptLengths { cells_squared: 2_600.0, cells_times_tokens: 5_000.0 + 1e-9, ..few(100.0) };
        assert_eq!(means.sizes(), even);
    }

    #[test]
    fn rows_with_the_same_leading_field_run_next_to_one_another() {
        let trace = [relquery(0, &["b", "a", "b"])];
        let lowered = lowered(&trace, &[record(&trace[0], &[1, 1, 1])]).expect("all is told");
        let items = &lowered.submissions[0].items;
        assert_eq!(items[0].prompt, items[1].prompt);
        assert_ne!(items[1].prompt, items[2].prompt);
    }
}
