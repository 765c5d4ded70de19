//! `/v1/cells`: calls that differ in their own cell alone are rows of one relQuery.

use std::collections::HashMap;
use std::sync::Arc;

use base::{AnswerScoring, Constraint, Generation, Millis, TenantId, TokenCount};
use ir::catalogue::{Answer, Argument, BoundCall, Catalogue, Guide, SharedCall};
use ir::{Cell, Plan};
use serving::caller::Caller;
use serving::clock::Deadline;
use serving::demo;
use serving::error::RequestError;
use serving::intake::TemplateRows;
use serving::label::Label;
use serving::model::{Model, Runs};
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;
use sql::runner::{AiColumn, PromptOrder};
use store::ResultKey;

use super::rows::{Lowering, TableRows};
use super::{Outline, PreparedRequest, RequestContext, Wanted};
use crate::config::{CellsConfig, LimitsConfig};
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::services::calibration::{self, ANSWERS_MAX, CONTENT_FREE, Learning, Priors};
use crate::services::cell_budget;
use crate::services::constraints::TenantConstraints;
use crate::state::App;
use crate::wire::cells::{Call, CellsRequest};
use crate::wire::constraint::Checked;
use crate::wire::relquery::Order;
use crate::wire::sampling::Sampling;

/// The rows of a relQuery, and what they are for: what the first of them says.
type LabelledRows = (CallGroup, TableRows, Option<Arc<Label>>);

/// Calls of cell functions, bound to their functions.
#[derive(Debug)]
pub struct WantedCells {
    groups: Vec<LabelledRows>,
    /// What is known of each group's answers without content.
    priors: Vec<Option<Priors>>,
    guidance: CellsConfig,
    answers: Arc<[Answer]>,
    failed: Vec<(u32, RequestError)>,
    deadline: Option<Millis>,
    cache: bool,
    stream: bool,
}

impl Wanted for WantedCells {
    async fn admit(app: &App, tenant: TenantId) -> Result<(), RequestError> {
        cell_budget::hold(app, tenant).await
    }

    async fn settle(&mut self, app: &Arc<App>, model: &Arc<ServedModel>, caller: Caller) {
        for ((group, ..), priors) in self.groups.iter().zip(&mut self.priors) {
            *priors = calibration::priors(app, model, caller, (group, self.guidance, Learning::Run)).await;
        }
    }

    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError> {
        let usual = usual(context.app, context.model.model());
        let request = CellsRequest::read(fields, context.validation(), usual)?;
        if request.guidance.asks_calibration && !tells_probabilities(context.model.model()) {
            let reason = "is for models that the local engine runs: others tell no probabilities of labels";
            return Err(RequestError::invalid("guidance.calibration", reason));
        }
        Ok(bind_all(context, request))
    }

    fn outline(&self) -> Outline {
        let (kind, rows) = (RelQueryKind::Cells(Arc::clone(&self.answers)), self.answers.len());
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
    let mut groups: Vec<LabelledRows> = Vec::new();
    let mut group_of: HashMap<CallGroup, usize> = HashMap::new();
    for (index, call) in (0..).zip(request.calls) {
        let label = call.as_ref().ok().and_then(|call| call.label.clone());
        match call.and_then(|call| bind(index, &call, &app.config.limits, context.model.model())) {
            Ok((group, row)) => {
                answers.push(group.0.answer.clone());
                let group = *group_of.entry(group).or_insert_with_key(|group| {
                    groups.push((group.clone(), TableRows::default(), label));
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
    let CellsRequest { deadline, cache, stream, guidance, .. } = request;
    let (priors, guidance) = (vec![None; groups.len()], guidance.config);
    WantedCells { groups, priors, guidance, answers: answers.into(), failed, deadline, cache, stream }
}

fn lower_cells(context: RequestContext<'_>, wanted: WantedCells) -> Result<PreparedRequest, RequestError> {
    let WantedCells { groups, priors, guidance, answers, mut failed, deadline, cache, stream } = wanted;
    let mut parts = Vec::with_capacity(groups.len());
    for ((group, rows, label), priors) in groups.into_iter().zip(priors) {
        let columns = (group.0.columns(), Order::Rows);
        let options = RowOptions { guidance, scoring: calibrated(priors), cache };
        let (part, bad) = cell_part(context, group, columns, rows, options)?;
        failed.extend(bad);
        parts.push(TemplateRows { label, ..part });
    }
    let work = Prepared {
        rows: answers.len(),
        kind: RelQueryKind::Cells(answers),
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
pub type CallGroup = (SharedCall, Option<Constraint>);

/// Binds a call to its function.
fn bind(
    index: u32,
    call: &Call,
    limits: &LimitsConfig,
    model: &Model,
) -> Result<(CallGroup, Cell), RequestError> {
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
    let group = (shared, call.constraint.clone());
    check_model(model, &group, || format!("calls[{index}].function"))?;
    Ok((group, row))
}

/// Refuses what the model would answer with nonsense.
fn check_model(
    model: &Model,
    (shared, constraint): &CallGroup,
    field: impl FnOnce() -> String,
) -> Result<(), RequestError> {
    let picks = match (&shared.answer, constraint) {
        (_, Some(Constraint::Choice(_) | Constraint::Integer { .. })) => true,
        (answer, None) => matches!(answer, Answer::Label { .. } | Answer::Integer { .. }),
        (_, Some(_)) => false,
    };
    if picks || !model.picks_only {
        return Ok(());
    }
    let reason = format!(
        "`{}` is beyond the built-in {}; serve a real model: `./run` fetches one, `relserve pull` lists more",
        shared.function,
        demo::CAN
    );
    Err(RequestError::invalid(field(), reason))
}

/// How rows of a function run.
struct RowOptions {
    guidance: CellsConfig,
    /// Which of the answers is drawn, where not simply the likeliest.
    scoring: Option<AnswerScoring>,
    /// Whether answers may be shared and cached.
    cache: bool,
}

fn calibrated(priors: Option<Priors>) -> Option<AnswerScoring> {
    priors.map(|priors| AnswerScoring::Calibrated(priors.to_vec()))
}

/// Whether what runs a model's rows says how likely each of a few answers is.
fn tells_probabilities(model: &Model) -> bool {
    model.runs == Runs::Engine && model.constraints.is_some()
}

/// Whether the answers of a call can be calibrated: they are a few, and what runs the rows says how likely each
/// is.
pub fn can_calibrate(model: &Model, (shared, constraint): &CallGroup) -> bool {
    let listed = shared.form.as_ref().and_then(Constraint::listed);
    // A record has no cells to empty; and a yes to a question has no opposite that nothing would speak for.
    let is_own = Catalogue::built_in().function(&shared.function).is_ok() && !shared.template.has_record();
    // Ratings are no names of classes: measured, they get worse (docs/QUALITY.md).
    let is_closed = is_own && matches!(shared.answer, Answer::Label { .. });
    constraint.is_none()
        && is_closed
        && tells_probabilities(model)
        && listed.is_some_and(|count| (2..=ANSWERS_MAX).contains(&count))
}

/// The rows from which is learned how likely a call's answers are without content: one part for each answer,
/// whose rows are one for each content-free text, numbered in that order.
pub fn content_free_parts(
    context: RequestContext<'_>,
    (shared, _): &CallGroup,
    guidance: CellsConfig,
) -> Result<Vec<TemplateRows>, RequestError> {
    let answers = shared.form.as_ref().and_then(Constraint::listed).unwrap_or_default();
    let columns = shared.columns();
    let mut parts = Vec::new();
    for answer in 0..answers as u32 {
        let mut rows = TableRows::default();
        for (number, text) in (answer * CONTENT_FREE.len() as u32..).zip(CONTENT_FREE) {
            rows.push(number, vec![Cell::from(text); columns.len()]);
        }
        let options = RowOptions { guidance, scoring: Some(AnswerScoring::Only(answer)), cache: true };
        let columns = (columns.clone(), Order::Exact);
        let (part, mut failed) = cell_part(context, (shared.clone(), None), columns, rows, options)?;
        if let Some((_, error)) = failed.pop() {
            return Err(error);
        }
        parts.push(TemplateRows { open: None, ..part });
    }
    Ok(parts)
}

/// The rows of one function with one set of shared arguments.
fn cell_part(
    context: RequestContext<'_>,
    (shared, constraint): CallGroup,
    (columns, order): (Vec<String>, Order),
    rows: TableRows,
    RowOptions { guidance, scoring, cache }: RowOptions,
) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
    let (app, model) = (context.app, context.model.model());
    let output_max = TokenCount(shared.output_max.0.min(app.config.limits.output_tokens_max));
    let form = shared.form.as_ref().filter(|_| guidance.constraints);
    let (constraint, compiled) = constraint_of(constraint, form, context.validation().constraints)?.unzip();
    let compiled = compiled.unwrap_or_default();
    let generation = Generation { output_max, constraint, compiled, scoring, ..Generation::default() };
    let sampling = Sampling { generation: Arc::new(generation.clone()), seed: None };
    let lowering =
        Lowering { model, config: &app.config, sampling: &sampling, cache, order, dependencies: &[] };
    let guide = (guidance.examples && takes_examples(model) && !shared.guide.turns.is_empty())
        .then_some(&shared.guide);
    let plan = |table| match guide {
        Some(Guide { turns, template }) => {
            Plan::guided(template.as_ref().unwrap_or(&shared.template), turns, table, generation)
        }
        None => Plan::relquery(&shared.template, None, model.has_chat, table, generation),
    };
    let (mut part, failed) = rows.lower(columns, plan, lowering)?;
    let template = format!("{} {guide:?}", shared.template);
    let answer = serde_json::to_vec(&*sampling.generation).expect("a generation is plain data");
    part.open = Some(ResultKey::of(&[shared.function.as_bytes(), template.as_bytes(), &answer]).0);
    Ok((part, failed))
}

/// How functions are put to a model where a request does not say. One that was trained on the bare prompts has no
/// lean towards a label to correct.
pub fn usual(app: &App, model: &Model) -> CellsConfig {
    let cells = app.config.cells;
    CellsConfig { calibration: cells.calibration && !model.knows_bare_prompts, ..cells }
}

/// Whether examples help a model: it takes turns, and was not made for the bare prompts.
fn takes_examples(model: &Model) -> bool {
    model.has_chat && !model.knows_bare_prompts
}

/// Rows of an AI column of SQL: their relQuery is their own, which others' rows do not join.
pub fn column(
    context: RequestContext<'_>,
    (column, priors): (AiColumn, Option<Priors>),
    order: PromptOrder,
    rows: Vec<Vec<Cell>>,
) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
    let group = (column.shared.clone(), column.constraint.clone());
    check_model(context.model.model(), &group, || "function".to_owned())?;
    let bytes_max = context.app.config.limits.cell_bytes_max.0;
    let mut table = TableRows::default();
    let mut refused = Vec::new();
    for (index, cells) in (0..).zip(rows) {
        match cells.iter().map(|cell| cell.text().len() as u64).max().filter(|bytes| *bytes > bytes_max) {
            Some(bytes) => {
                let what = format!("a value of {bytes} bytes in a prompt");
                refused.push((index, RequestError::TooLarge { what, limit: format!("{bytes_max} bytes") }));
            }
            None => table.push(index, cells),
        }
    }
    let order = match order {
        PromptOrder::Exact => Order::Exact,
        PromptOrder::Rows => Order::Rows,
        PromptOrder::Fields => Order::Fields,
    };
    let columns = (column.columns(), order);
    let options = RowOptions {
        guidance: usual(context.app, context.model.model()),
        scoring: calibrated(priors),
        cache: true,
    };
    let (mut part, mut failed) = cell_part(context, group, columns, table, options)?;
    failed.append(&mut refused);
    part.open = None;
    Ok((part, failed))
}

/// The constraint that was asked for, or the one that makes answers readable, which is left out where the
/// executor cannot keep to it.
fn constraint_of(
    asked: Option<Constraint>,
    form: Option<&Constraint>,
    constraints: TenantConstraints<'_>,
) -> Result<Option<Checked>, RequestError> {
    let is_asked = asked.is_some();
    let Some(constraint) = asked.or_else(|| form.cloned()) else { return Ok(None) };
    if !constraints.can_compile() && !is_asked {
        return Ok(None);
    }
    match constraints.compile("calls", &constraint) {
        Ok(compiled) => Ok(Some((constraint, compiled))),
        Err(RequestError::Invalid { reason, .. }) if !is_asked => {
            tracing::warn!(reason, "the answers of a cell function are not constrained");
            Ok(None)
        }
        Err(RequestError::Invalid { reason, .. }) if matches!(constraint, Constraint::JsonSchema(_)) => {
            Err(RequestError::invalid("schema", format!("is no JSON Schema that can be kept to: {reason}")))
        }
        Err(error) => Err(error),
    }
}
