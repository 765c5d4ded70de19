//! Rows of a table on their way to work items: the plan, its rewriting, its lowering, and what is wrong with a
//! row that cannot run.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Bytes, ChatTemplate, Compiled, Constraint, Generation, TokenCount, Tokenizer, WorkItem};
use ir::catalogue::constraint_of_row;
use ir::{Cell, LowerOptions, Lowered, Plan, RowProblem, Rules, Table, TableRow};
use serving::error::RequestError;
use serving::intake::{CellKey, PendingRow, TemplateRows};
use serving::model::Model;
use store::ResultKey;

use crate::config::Config;
use crate::wire::relquery::Order;
use crate::wire::sampling::Sampling;

/// What a lowering needs of the server.
#[derive(Clone, Copy)]
pub struct Lowering<'a> {
    pub model: &'a Model,
    /// The configuration.
    pub config: &'a Config,
    /// How outputs are produced.
    pub sampling: &'a Sampling,
    /// Whether answers may be shared and cached.
    pub cache: bool,
    /// What may be moved.
    pub order: Order,
    /// Groups of columns that determine each other.
    pub dependencies: &'a [Vec<String>],
    /// Whether prompts may be longer than the context: a part of them is left out later.
    pub truncates: bool,
}

/// Refuses a request none of whose rows can run.
pub fn some_can_run(
    rows: usize,
    failed: Vec<(u32, RequestError)>,
) -> Result<Vec<(u32, RequestError)>, RequestError> {
    if failed.len() < rows {
        return Ok(failed);
    }
    Err(failed.into_iter().next().map_or(RequestError::Internal, |(_, error)| error))
}

/// Rows of a table on their way to work items; numbers are those of the relQuery.
#[derive(Debug, Default)]
pub struct TableRows {
    numbers: Vec<u32>,
    cells: Vec<Vec<Cell>>,
    /// Per row, the columns of its record in their order; empty: in the table's.
    records: Vec<Vec<u16>>,
    pub(super) failed: Vec<(u32, RequestError)>,
}

impl TableRows {
    /// A row that can be filled.
    pub fn push(&mut self, number: u32, cells: Vec<Cell>) {
        self.push_in_order(number, cells, Vec::new());
    }

    /// A row that can be filled, with the columns of its record in their order.
    pub fn push_in_order(&mut self, number: u32, cells: Vec<Cell>, record: Vec<u16>) {
        self.numbers.push(number);
        self.cells.push(cells);
        self.records.push(record);
    }

    /// Its rows that can be filled.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[Cell])> {
        self.numbers.iter().copied().zip(self.cells.iter().map(Vec::as_slice))
    }

    /// Builds the plan, rewrites it and lowers it. Returns the rows to run and those that cannot.
    pub fn lower(
        self,
        columns: Vec<String>,
        plan: impl FnOnce(Table) -> Result<Plan, ir::IrError>,
        lowering: Lowering<'_>,
    ) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
        let Self { numbers, cells, records, mut failed } = self;
        let mut sources = OwnTexts::default();
        let own = lowering.sampling.generation.constraint.as_ref();
        if let Some(name) = own.and_then(Constraint::field) {
            sources = OwnTexts::of(name, &columns, &cells);
        }
        let rows = (0..).zip(cells).zip(records);
        let rows =
            rows.map(|((row, cells), record)| TableRow { cells, answers: vec![row], record }).collect();
        let plan = plan(Table { columns, rows }).map_err(plan_error)?;
        let rules = match lowering.order {
            Order::Exact | Order::Sent => Rules::all().without("order_rows"),
            Order::Rows => Rules::all(),
            Order::Fields => Rules::all().with_fields().with_dependencies(lowering.dependencies.to_vec()),
        };
        let (plan, _) = ir::rewrite(plan, &rules, &|texts| lowering.model.text.count_stretches(texts));
        let seed = lowering.sampling.seed.unwrap_or_else(rand::random);
        let Lowered { mut items, answers } = lower_plan(&plan, lowering, seed)?;
        items.iter_mut().for_each(|item| sources.fill_in(item));
        let mut job: Vec<PendingRow> = items.into_iter().map(|item| job_row(item, lowering)).collect();
        let mut place_of = HashMap::with_capacity(job.len());
        for (place, row) in job.iter().enumerate() {
            place_of.insert(row.item.row, place);
        }
        for (number, answer) in numbers.iter().zip(answers) {
            match answer {
                Ok(item) => match place_of.get(&item) {
                    Some(place) => job[*place].targets.push(*number),
                    None => failed.push((*number, RequestError::Internal)),
                },
                Err(problem) => failed.push((*number, row_error(*number, &problem, lowering.model))),
            }
        }
        Ok((TemplateRows { open: None, label: None, rows: job }, failed))
    }
}

/// The texts that rows' answers are copied from, or are what is said there.
#[derive(Default)]
struct OwnTexts {
    /// By row; none where answers have nothing to do with one.
    texts: Option<Vec<String>>,
}

impl OwnTexts {
    /// The cells of a column; where there is no such column, no text.
    fn of(name: &str, columns: &[String], cells: &[Vec<Cell>]) -> Self {
        let text = |column: usize, row: &Vec<Cell>| row.get(column).map(|cell| cell.text().into_owned());
        let column = columns.iter().position(|column| column == name);
        let texts = cells.iter().map(|row| column.and_then(|column| text(column, row)).unwrap_or_default());
        Self { texts: Some(texts.collect()) }
    }

    /// Gives a row the constraint with its own text; none where it has no text of its own.
    fn fill_in(&mut self, item: &mut WorkItem) {
        let Some(texts) = &mut self.texts else { return };
        let text =
            texts.get_mut(item.row as usize).map(std::mem::take).filter(|text| !text.trim().is_empty());
        let shared = item.generation.constraint.as_ref();
        let constraint = shared.zip(text).and_then(|(form, text)| constraint_of_row(form, &text));
        let mut generation = (*item.generation).clone();
        // What the rows have in common was compiled; a list of a row's own was not.
        if matches!(constraint, Some(Constraint::Choice(_))) {
            generation.compiled = Compiled::default();
        }
        item.generation = Arc::new(Generation { constraint, ..generation });
    }
}

/// Bytes of the longest token there is: published vocabularies stay below it.
const TOKEN_BYTES_MAX: u64 = 256;

/// Bytes above which a prompt cannot fit the context, whatever its tokens: it is refused before anybody
/// spends seconds on tokenizing it.
pub fn prompt_bytes_max(model: &Model, config: &Config) -> Bytes {
    let context = model.context_max.0.min(model.kv_tokens());
    Bytes(context.saturating_mul(TOKEN_BYTES_MAX).min(config.limits.body_bytes_max.0))
}

/// The model's limits.
pub fn lower_options(Lowering { model, config, truncates, .. }: Lowering<'_>, seed: u64) -> LowerOptions {
    let context = if truncates { u64::MAX } else { model.context_max.0.min(model.kv_tokens()) };
    LowerOptions {
        context_max: TokenCount(context),
        section_bytes_max: prompt_bytes_max(model, config),
        seed,
        ..LowerOptions::default()
    }
}

/// Lowers with the model's text and limits.
pub fn lower_plan(plan: &Plan, lowering: Lowering<'_>, seed: u64) -> Result<Lowered, RequestError> {
    let model = lowering.model;
    let chat: Option<&dyn ChatTemplate> = if model.has_chat { Some(&*model.text) } else { None };
    lower_chat(plan, lowering, chat, seed)
}

/// The same by a chat template.
pub fn lower_chat(
    plan: &Plan,
    lowering: Lowering<'_>,
    chat: Option<&dyn ChatTemplate>,
    seed: u64,
) -> Result<Lowered, RequestError> {
    let options = lower_options(lowering, seed);
    let tokenizer: &dyn Tokenizer = &*lowering.model.text;
    ir::lower(plan, tokenizer, chat, &options).map_err(plan_error)
}

/// A row to run, with the key of its answer where the answer is the same every time.
pub fn job_row(item: WorkItem, lowering: Lowering<'_>) -> PendingRow {
    // What is kept of an answer is its text.
    let is_scored = item.generation.logprobs.is_some() || item.generation.prompt_logprobs.is_some();
    let is_text_alone = !is_scored && !item.generation.tells_tokens;
    let is_kept = lowering.cache && is_text_alone;
    let key =
        (is_kept && lowering.sampling.is_deterministic()).then(|| cell_key(&item, lowering.model.revision));
    PendingRow { targets: Vec::new(), item, key }
}

/// Identity of an answer: all that decides it.
fn cell_key(item: &WorkItem, revision: u128) -> CellKey {
    let prompt: Vec<u8> = item.prompt.iter().flat_map(|token| token.0.to_le_bytes()).collect();
    let generation = serde_json::to_vec(&*item.generation).expect("a generation is plain data");
    // A greedy answer does not depend on the seed.
    let seed = if item.generation.temperature == 0.0 { 0 } else { item.seed };
    let (revision, seed) = (revision.to_le_bytes(), seed.to_le_bytes());
    let mut parts: Vec<&[u8]> = vec![&revision, &prompt, &generation, &seed];
    // The same tokens at other positions, or seeing less of each other, are another prompt.
    let sections = format!("{:?}", item.sections);
    if !item.sections.is_empty() {
        parts.push(sections.as_bytes());
    }
    ResultKey::of(&parts).0
}

/// A plan that cannot be run, in the caller's context.
pub fn plan_error(error: ir::IrError) -> RequestError {
    match error {
        ir::IrError::Template(error) => RequestError::invalid("template", error.to_string()),
        ir::IrError::NoChatTemplate => RequestError::invalid("chat", "the model has no chat template"),
        ir::IrError::Text(error) => RequestError::invalid("messages", error.to_string()),
        ir::IrError::TooManyRows { .. } => RequestError::invalid("rows", error.to_string()),
        ir::IrError::MixedPrompt
        | ir::IrError::Unsupported(_)
        | ir::IrError::NoGenerate
        | ir::IrError::RowMap { .. } => serving::error::internal(error),
    }
}

/// What is wrong with one row, in the caller's context.
pub fn row_error(index: u32, problem: &RowProblem, model: &Model) -> RequestError {
    match problem {
        RowProblem::CellCount { .. } | RowProblem::EmptyPrompt | RowProblem::Template(_) => {
            RequestError::invalid(format!("rows[{index}]"), problem.to_string())
        }
        RowProblem::TooManyBytes { limit, .. } => RequestError::TooLarge {
            what: format!("the prompt of rows[{index}]"),
            limit: format!("{} bytes", limit.0),
        },
        RowProblem::TooLong { prompt, output_max, context } => RequestError::TooLong {
            prompt: prompt.0,
            output: output_max.0,
            what: if model.kv_tokens() < model.context_max.0 { "KV pool" } else { "context" },
            limit: context.0,
        },
    }
}
