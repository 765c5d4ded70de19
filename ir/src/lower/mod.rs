//! Lowering: a plan and a tokenizer give the scheduler's work items.
//!
//! All text between two special tokens of the chat template (all of a raw prompt) is filled first and
//! tokenized whole, as data: characters join across the borders of template and cell as they would in
//! any client, and nothing a cell holds can become a special token. Only the chat template's own text
//! is searched for those. The template is run for each row, and what rows turn out to have in common is
//! tokenized once. Rows are independent of each other: one bad row fails alone.

mod fill;
mod frame;
mod options;
mod stretches;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::{ChatTemplate, Generation, RenderedPiece, TextError, Tokenizer, WorkItem};

use crate::error::{IrError, RowProblem};
use crate::plan::{Plan, TableRow};
use crate::shape::PromptShape;
use frame::Frame;
pub use options::LowerOptions;

/// Rows that are filled and tokenized together: enough to share among all threads there are, and their texts
/// are no more memory than their tokens will be.
const ROWS_TOGETHER: usize = 256;

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
    let shape = PromptShape::of(plan)?;
    let lone = [TableRow::new(Vec::new(), vec![0])];
    let (rows, columns) = match shape.table {
        Some(table) => (table.rows.as_slice(), table.columns.len()),
        None => (lone.as_slice(), 0),
    };
    let frame = Frame::new(&shape, tokenizer, chat, options)?;
    let generation = Arc::new(shape.generation.clone());
    let mut items = Vec::with_capacity(rows.len());
    let mut answers = vec![None; answer_count(rows, options)?];
    let prompts = rows.chunks(ROWS_TOGETHER).flat_map(|rows| frame.rows(rows, columns, &generation));
    let mut refusal = None;
    for (row, prompt) in rows.iter().zip(prompts) {
        if let Err(RowProblem::Template(reason)) = &prompt {
            refusal.get_or_insert_with(|| TextError::Template(reason.clone()));
        }
        let first = row.answers.first().copied().unwrap_or_default();
        let number = options.first_row + first;
        let answer = prompt.map(|(prompt, spans)| {
            let seed = row_seed(options.seed, number);
            let generation = Arc::clone(&generation);
            items.push(WorkItem {
                row: number,
                prompt: prompt.into(),
                spans: spans.into(),
                sections: Arc::default(),
                generation,
                seed,
            });
            number
        });
        for input in &row.answers {
            answers[*input as usize] = Some(answer.clone());
        }
    }
    let answers: Vec<RowAnswer> =
        answers.into_iter().map(|answer| answer.expect("answer_count saw every row")).collect();
    // A conversation that the template never takes is nothing that is wrong with a row.
    let is_refused = |answer: &RowAnswer| matches!(answer, Err(RowProblem::Template(_)));
    match refusal {
        Some(refusal) if answers.iter().all(is_refused) => Err(refusal.into()),
        _ => Ok(Lowered { items, answers }),
    }
}

/// Lowers a conversation that its template has written already.
pub fn lower_rendered(
    pieces: &[RenderedPiece],
    tokenizer: &dyn Tokenizer,
    generation: &Arc<Generation>,
    options: &LowerOptions,
) -> Result<WorkItem, RowProblem> {
    let (prompt, spans) = frame::rendered(pieces, (tokenizer, options), generation)?;
    let (row, sections) = (options.first_row, Arc::default());
    let (prompt, spans, generation) = (prompt.into(), spans.into(), Arc::clone(generation));
    Ok(WorkItem { row, prompt, spans, sections, generation, seed: row_seed(options.seed, row) })
}

/// The number of input rows, each of which is answered exactly once.
fn answer_count(rows: &[TableRow], options: &LowerOptions) -> Result<usize, IrError> {
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
