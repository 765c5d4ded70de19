//! From a request's fields to work: read, build the span tree, rewrite, lower.
//!
//! Pure but for randomness where the caller gives no seed; slow for large tables, so handlers call it off
//! their thread. A row that cannot run fails alone; where no row can run, its error is the request's.

use std::collections::HashMap;
use std::sync::Arc;

use base::{
    Bytes, ChatTemplate, Constraint, Generation, Millis, TenantId, Time, TokenCount, Tokenizer, WorkItem,
};
use ir::catalogue::{Answer, Argument, BoundCall, Catalogue, SharedCall};
use ir::{Cell, LowerOptions, Lowered, Plan, RowProblem, Rules, Table, TableRow, Template};
use serde_json::Value;
use serving::clock::Deadline;
use serving::error::RequestError;
use serving::intake::{CellKey, PendingRow, TemplateRows};
use serving::model::Model;
use serving::relquery_state::Kind;
use serving::submit::Prepared;
use store::ResultKey;

use crate::config::{Config, LimitsConfig};
use crate::json::JsonFields;
use crate::services::columns::{check_dependencies, columns, record_of, same_keys};
use crate::services::constraints::{Purpose, TenantConstraints};
use crate::state::App;
use crate::wire::ValidationContext;
use crate::wire::cells::{Call, CellsRequest};
use crate::wire::constraint::Checked;
use crate::wire::relquery::{Order, RelQueryRequest, RowIn};
use crate::wire::sampling::Sampling;

/// Where a tenant's requests are prepared.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The server's state.
    pub app: &'a App,
    /// Whose requests.
    pub tenant: TenantId,
    /// Why they are prepared.
    pub purpose: Purpose,
    /// When they arrived: their deadlines count from there.
    pub arrival: Time,
}

impl<'a> RequestContext<'a> {
    /// What its requests are read against.
    pub fn validation(self) -> ValidationContext<'a> {
        let constraints = self.app.constraints.of(self.tenant, self.purpose);
        ValidationContext { limits: &self.app.config.limits, model: &self.app.runtime.model, constraints }
    }
}

/// A request, ready to run, and how its client wants the reply.
#[derive(Debug)]
pub struct PreparedRequest {
    /// What to run.
    pub work: Prepared,
    /// As events.
    pub stream: bool,
}

/// A request for rows, read and checked. To lower it takes a while: its rows are tokenized.
pub trait Wanted: Send + Sized + 'static {
    /// Reads a body's fields.
    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError>;
    /// What is known of it before it is lowered.
    fn outline(&self) -> Outline;
    /// Makes its rows ready to run.
    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError>;
}

/// What a partial reply needs of a request.
#[derive(Clone, Debug)]
pub struct Outline {
    /// How its rows are shown.
    pub kind: Kind,
    /// How many they are.
    pub rows: usize,
    /// As events.
    pub stream: bool,
    /// After which time a partial reply goes out.
    pub deadline: Option<Millis>,
}

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
}

/// `/v1/relqueries`.
pub fn relquery(context: RequestContext<'_>, fields: JsonFields) -> Result<PreparedRequest, RequestError> {
    RelQueryRequest::read(fields, context.validation())?.lower(context)
}

impl Wanted for RelQueryRequest {
    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError> {
        Self::read(fields, context.validation())
    }

    fn outline(&self) -> Outline {
        Outline { kind: Kind::RelQuery, rows: self.rows.len(), stream: self.stream, deadline: self.deadline }
    }

    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError> {
        lower_relquery(context, self)
    }
}

fn lower_relquery(
    context: RequestContext<'_>,
    request: RelQueryRequest,
) -> Result<PreparedRequest, RequestError> {
    let app = context.app;
    let template = Template::parse(&request.template)
        .map_err(|error| RequestError::invalid("template", error.to_string()))?;
    let columns = columns(&request, &template)?;
    template.check_columns(&columns).map_err(|error| RequestError::invalid("template", error.to_string()))?;
    check_dependencies(&request, &columns, &template)?;
    let mut rows = TableRows::default();
    let is_open = request.columns.is_none() && template.has_record();
    for (index, row) in (0..).zip(&request.rows) {
        let known = if is_open { same_keys(index, row, &columns) } else { Ok(()) };
        match known.and_then(|()| row_cells(index, row, &columns, &app.config.limits)) {
            Ok(cells) if request.order == Order::Sent => {
                rows.push_in_order(index, cells, record_of(row, &columns, &template));
            }
            Ok(cells) => rows.push(index, cells),
            Err(error) => rows.failed.push((index, error)),
        }
    }
    let chat = request.chat.unwrap_or(app.runtime.model.has_chat);
    if chat && !app.runtime.model.has_chat {
        return Err(RequestError::invalid("chat", "the model has no chat template"));
    }
    let lowering = Lowering {
        model: &app.runtime.model,
        config: &app.config,
        sampling: &request.sampling,
        cache: request.cache,
        order: request.order,
        dependencies: &request.dependencies,
    };
    let plan = |table| {
        let generation = (*request.sampling.generation).clone();
        Plan::relquery(&template, request.system.as_deref(), chat, table, generation)
    };
    let (part, failed) = rows.lower(columns, plan, lowering)?;
    let total = request.rows.len();
    let work = Prepared {
        kind: Kind::RelQuery,
        route: "relqueries",
        class: request.class,
        rows: total,
        failed: some_can_run(total, failed)?,
        deadline: request.deadline.map(|span| Deadline::new(context.arrival, span)),
        pin: None,
        parts: vec![part],
    };
    Ok(PreparedRequest { work, stream: request.stream })
}

/// `/v1/cells`: calls that differ in their own cell alone are rows of one relQuery.
pub fn cells(context: RequestContext<'_>, fields: JsonFields) -> Result<PreparedRequest, RequestError> {
    WantedCells::read(context, fields)?.lower(context)
}

/// Calls of cell functions, bound to their functions.
#[derive(Debug)]
pub struct WantedCells {
    groups: Vec<(CallGroup, TableRows)>,
    answers: Arc<[Answer]>,
    failed: Vec<(u32, RequestError)>,
    deadline: Option<Millis>,
    cache: bool,
    stream: bool,
}

impl Wanted for WantedCells {
    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError> {
        Ok(bind_all(context, CellsRequest::read(fields, context.validation())?))
    }

    fn outline(&self) -> Outline {
        let (kind, rows) = (Kind::Cells(Arc::clone(&self.answers)), self.answers.len());
        Outline { kind, rows, stream: self.stream, deadline: self.deadline }
    }

    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError> {
        lower_cells(context, self)
    }
}

fn bind_all(context: RequestContext<'_>, request: CellsRequest) -> WantedCells {
    let app = context.app;
    let mut failed = Vec::new();
    let mut answers = Vec::with_capacity(request.calls.len());
    let mut groups: Vec<(CallGroup, TableRows)> = Vec::new();
    let mut group_of: HashMap<CallGroup, usize> = HashMap::new();
    for (index, call) in (0..).zip(request.calls) {
        match call.and_then(|call| bind(index, &call, &app.config.limits)) {
            Ok((group, row)) => {
                answers.push(group.0.answer.clone());
                let group = *group_of.entry(group).or_insert_with_key(|group| {
                    groups.push((group.clone(), TableRows::default()));
                    groups.len() - 1
                });
                groups[group].1.push(index, vec![row]);
            }
            Err(error) => {
                answers.push(Answer::Text);
                failed.push((index, error));
            }
        }
    }
    let CellsRequest { deadline, cache, stream, .. } = request;
    WantedCells { groups, answers: answers.into(), failed, deadline, cache, stream }
}

fn lower_cells(context: RequestContext<'_>, wanted: WantedCells) -> Result<PreparedRequest, RequestError> {
    let WantedCells { groups, answers, mut failed, deadline, cache, stream } = wanted;
    let mut parts = Vec::with_capacity(groups.len());
    for (group, rows) in groups {
        let (part, bad) = cell_part(context, group, rows, cache)?;
        failed.extend(bad);
        parts.push(part);
    }
    let work = Prepared {
        rows: answers.len(),
        kind: Kind::Cells(answers),
        route: "cells",
        class: base::ServiceClass::Interactive,
        failed,
        deadline: deadline.map(|span| Deadline::new(context.arrival, span)),
        pin: None,
        parts,
    };
    Ok(PreparedRequest { work, stream })
}

/// What the calls of one relQuery share, and the constraint they came with.
type CallGroup = (SharedCall, Option<Constraint>);

/// Binds a call to its function.
fn bind(index: u32, call: &Call, limits: &LimitsConfig) -> Result<(CallGroup, Cell), RequestError> {
    let field = || format!("calls[{index}]");
    let mut arguments = Vec::with_capacity(call.args.len());
    for (number, value) in call.args.iter().enumerate() {
        let place = || format!("calls[{index}].args[{number}]");
        let Some(argument) = Argument::from_json(value) else {
            return Err(RequestError::invalid(
                place(),
                "must be a cell, a list of cells or a range of cells",
            ));
        };
        let bytes: usize = match &argument {
            Argument::Cell(cell) => cell.text().len(),
            Argument::List(cells) => cells.iter().map(|cell| cell.text().len()).sum(),
            Argument::Range(rows) => rows.iter().flatten().map(|cell| cell.text().len()).sum(),
        };
        if bytes as u64 > limits.cell_bytes_max.0 {
            let limit = format!("{} bytes", limits.cell_bytes_max.0);
            return Err(RequestError::TooLarge { what: format!("`{}` of {bytes} bytes", place()), limit });
        }
        arguments.push(argument);
    }
    let bound = Catalogue::built_in().bind(&call.function, &arguments);
    let BoundCall { shared, row } =
        bound.map_err(|error| RequestError::invalid(field(), error.to_string()))?;
    if call.constraint.is_some() && shared.answer != Answer::Text {
        let reason =
            format!("is only for functions that answer with text; `{}` has its own", shared.function);
        return Err(RequestError::invalid(format!("calls[{index}].constraint"), reason));
    }
    Ok(((shared, call.constraint.clone()), row))
}

/// The rows of one function with one set of shared arguments.
fn cell_part(
    context: RequestContext<'_>,
    (shared, constraint): CallGroup,
    rows: TableRows,
    cache: bool,
) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
    let app = context.app;
    let output_max = TokenCount(shared.output_max.0.min(app.config.limits.output_tokens_max));
    let (constraint, compiled) =
        constraint_of(constraint, &shared.answer, context.validation().constraints)?.unzip();
    let compiled = compiled.unwrap_or_default();
    let generation = Generation { output_max, constraint, compiled, ..Generation::default() };
    let sampling = Sampling { generation: Arc::new(generation.clone()), seed: None };
    let lowering = Lowering {
        model: &app.runtime.model,
        config: &app.config,
        sampling: &sampling,
        cache,
        order: Order::Rows,
        dependencies: &[],
    };
    let plan = |table| Plan::relquery(&shared.template, None, app.runtime.model.has_chat, table, generation);
    let (mut part, failed) = rows.lower(shared.columns(), plan, lowering)?;
    let template = shared.template.to_string();
    let answer = serde_json::to_vec(&sampling.generation.constraint).expect("a constraint is plain data");
    part.open = Some(ResultKey::of(&[shared.function.as_bytes(), template.as_bytes(), &answer]).0);
    Ok((part, failed))
}

/// The constraint that was asked for, or the one that makes answers readable, where the executor can keep to
/// it.
fn constraint_of(
    asked: Option<Constraint>,
    answer: &Answer,
    constraints: TenantConstraints<'_>,
) -> Result<Option<Checked>, RequestError> {
    let readable = match answer {
        Answer::Text | Answer::Lines { .. } => None,
        Answer::Label { labels } => Some(Constraint::Choice(labels.clone())),
        Answer::Integer { low, high } => Some(Constraint::Integer { low: *low, high: *high }),
    };
    let Some(constraint) = asked.or(readable) else { return Ok(None) };
    if !constraints.can_compile() {
        return Ok(None);
    }
    match constraints.compile("calls", &constraint) {
        Ok(compiled) => Ok(Some((constraint, compiled))),
        Err(RequestError::Invalid { reason, .. }) => {
            tracing::warn!(reason, "the answers of a cell function are not constrained");
            Ok(None)
        }
        Err(error) => Err(error),
    }
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

/// Rows of a table on their way to work items; numbers are those of the relquery.
#[derive(Debug, Default)]
pub struct TableRows {
    numbers: Vec<u32>,
    cells: Vec<Vec<Cell>>,
    /// Per row, the columns of its record in their order; empty: in the table's.
    records: Vec<Vec<u16>>,
    failed: Vec<(u32, RequestError)>,
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

    /// Builds the plan, rewrites it and lowers it. Returns the rows to run and those that cannot.
    pub fn lower(
        self,
        columns: Vec<String>,
        plan: impl FnOnce(Table) -> Result<Plan, ir::IrError>,
        lowering: Lowering<'_>,
    ) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
        let Self { numbers, cells, records, mut failed } = self;
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
        let Lowered { items, answers } = lower_plan(&plan, lowering, seed)?;
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
        Ok((TemplateRows { open: None, rows: job }, failed))
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

/// Lowers with the model's text and limits.
pub fn lower_plan(plan: &Plan, lowering: Lowering<'_>, seed: u64) -> Result<Lowered, RequestError> {
    let Lowering { model, config, .. } = lowering;
    let options = LowerOptions {
        context_max: TokenCount(model.context_max.0.min(model.kv_tokens())),
        section_bytes_max: prompt_bytes_max(model, config),
        seed,
        ..LowerOptions::default()
    };
    let tokenizer: &dyn Tokenizer = &*model.text;
    let chat: Option<&dyn ChatTemplate> = if model.has_chat { Some(&*model.text) } else { None };
    ir::lower(plan, tokenizer, chat, &options).map_err(plan_error)
}

/// A row to run, with the key of its answer where the answer is the same every time.
pub fn job_row(item: WorkItem, lowering: Lowering<'_>) -> PendingRow {
    let key = (lowering.cache && lowering.sampling.is_deterministic())
        .then(|| cell_key(&item, lowering.model.revision));
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

/// The cells of one row, in the order of the columns.
fn row_cells(
    index: u32,
    row: &RowIn,
    columns: &[String],
    limits: &LimitsConfig,
) -> Result<Vec<Cell>, RequestError> {
    match row {
        RowIn::List(values) if values.len() != columns.len() => Err(RequestError::invalid(
            format!("rows[{index}]"),
            format!("has {} cells, the table has {} columns", values.len(), columns.len()),
        )),
        RowIn::List(values) => {
            values.iter().zip(columns).map(|(value, name)| cell(index, name, value, limits)).collect()
        }
        RowIn::Named(map) => {
            let one = |name: &String| match map.get(name) {
                Some(value) => cell(index, name, value, limits),
                None => Err(RequestError::invalid(format!("rows[{index}]"), format!("has no `{name}`"))),
            };
            columns.iter().map(one).collect()
        }
    }
}

/// One cell, within its limit.
fn cell(index: u32, name: &str, value: &Value, limits: &LimitsConfig) -> Result<Cell, RequestError> {
    let field = || format!("rows[{index}].{name}");
    let Some(cell) = Cell::from_json(value) else {
        return Err(RequestError::invalid(field(), "must be a string, a number, a boolean or null"));
    };
    let bytes = cell.text().len() as u64;
    if bytes > limits.cell_bytes_max.0 {
        let limit = format!("{} bytes", limits.cell_bytes_max.0);
        return Err(RequestError::TooLarge { what: format!("`{}` of {bytes} bytes", field()), limit });
    }
    Ok(cell)
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
        RowProblem::CellCount { .. } | RowProblem::EmptyPrompt => {
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
