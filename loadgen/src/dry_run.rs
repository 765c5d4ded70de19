//! What was sent, as submissions for the simulator: prompts of as many tokens as the server counted, equal
//! where the sent text is equal. Pure.
//!
//! A client has no tokenizer. The text of a prompt is cut into pieces of equal length, one per token; the
//! length is that of all prompts of the same template, so that what rows share in text they share in tokens,
//! whether it is the template, a repeated field, or a whole row that another relQuery had before.

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
    let answered: Vec<(&RelQuery, Vec<ComputedRow>)> = records
        .iter()
        .filter(|record| record.error.is_none())
        .map(|record| {
            let relquery = trace.get(record.index as usize)?;
            Some((relquery, rows(relquery, record)?))
        })
        .collect::<Option<_>>()?;
    let mut totals: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (relquery, rows) in &answered {
        let (chars, tokens) = totals.entry(&relquery.template).or_default();
        *chars += rows.iter().map(|row| row.text.chars().count() as u64).sum::<u64>();
        *tokens += rows.iter().map(|row| row.prompt).sum::<u64>();
    }
    let mut words = PieceTokens::default();
    let mut lowered = Lowered::default();
    for (relquery, mut rows) in answered {
        let (chars, tokens) = totals[relquery.template.as_str()];
        let pitch = chars as f64 / tokens.max(1) as f64;
        // The server runs rows that share leading fields next to one another.
        rows.sort_by(|a, b| a.group.cmp(&b.group));
        let submission = submit(relquery, &rows, pitch, &mut words, &mut lowered.lengths);
        lowered.submissions.push(submission);
    }
    (!lowered.submissions.is_empty()).then_some(lowered)
}

/// A row that the model ran.
struct ComputedRow {
    text: String,
    prompt: u64,
    output: u64,
    /// Place of the first row with the same leading fields, field by field.
    group: Vec<usize>,
}

/// The rows that the model ran; those answered by another row's run cost nothing.
fn rows(relquery: &RelQuery, record: &Record) -> Option<Vec<ComputedRow>> {
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
            text: relquery.prompt(cells),
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

    /// `count` tokens for a text, a piece of `pitch` characters each; what the text is too short for is the
    /// row's own.
    fn prompt(&mut self, text: &str, pitch: f64, count: u64) -> Vec<TokenId> {
        let ends: Vec<usize> =
            text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len())).collect();
        let chars = ends.len() - 1;
        let at = |piece: u64| (piece as f64 * pitch) as usize;
        (0..count)
            .map(|piece| match (at(piece), at(piece + 1)) {
                (start, end) if end <= chars && start < end => self.piece(&text[ends[start]..ends[end]]),
                // Less than a character per token: the character's further tokens are told apart by place.
                (start, _) if start < chars && pitch < 1.0 => {
                    self.piece(&format!("{}+{}", &text[ends[start]..ends[start + 1]], piece))
                }
                _ => self.fresh(),
            })
            .collect()
    }
}

fn submit(
    relquery: &RelQuery,
    rows: &[ComputedRow],
    pitch: f64,
    words: &mut PieceTokens,
    lengths: &mut Vec<(u64, u64)>,
) -> Submission {
    let output_max = TokenCount(u64::from(relquery.max_tokens));
    let generation = Arc::new(Generation { output_max, ..Generation::default() });
    let mut items = Vec::with_capacity(rows.len());
    for (number, row) in (0..).zip(rows) {
        let seed = lengths.len() as u64;
        lengths.push((seed, row.output));
        items.push(WorkItem {
            row: number,
            prompt: words.prompt(&row.text, pitch, row.prompt).into(),
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
        let (a, b) = (words.prompt("abcd", 2.0, 4), words.prompt("abcd", 2.0, 4));
        assert_eq!(a[..2], b[..2]);
        assert!(a[2] != b[2] && a[2] != a[3]);
        let (a, b) = (words.prompt("äx", 0.5, 4), words.prompt("äy", 0.5, 4));
        assert_eq!((a.len(), a[..2] == b[..2], a[2] == b[2]), (4, true, false));
        assert_eq!(words.prompt("", 1.0, 2).len(), 2);
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
