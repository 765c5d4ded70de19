//! `/v1/cells`: calls that differ in their own cell alone are rows of one relQuery.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Constraint, Generation, Millis, TenantId, TokenCount};
use ir::catalogue::{Answer, Argument, BoundCall, Catalogue, SharedCall};
use ir::{Cell, Plan};
use serving::clock::Deadline;
use serving::demo;
use serving::error::RequestError;
use serving::intake::TemplateRows;
use serving::label::Label;
use serving::model::Model;
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;
use sql::runner::{AiColumn, PromptOrder};
use store::ResultKey;

use super::rows::{Lowering, TableRows};
use super::{Outline, PreparedRequest, RequestContext, Wanted};
use crate::config::LimitsConfig;
use crate::json::JsonFields;
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

    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError> {
        Ok(bind_all(context, CellsRequest::read(fields, context.validation())?))
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
    let CellsRequest { deadline, cache, stream, .. } = request;
    WantedCells { groups, answers: answers.into(), failed, deadline, cache, stream }
}

fn lower_cells(context: RequestContext<'_>, wanted: WantedCells) -> Result<PreparedRequest, RequestError> {
    let WantedCells { groups, answers, mut failed, deadline, cache, stream } = wanted;
    let mut parts = Vec::with_capacity(groups.len());
    for (group, rows, label) in groups {
        let columns = (group.0.columns(), Order::Rows);
        let (part, bad) = cell_part(context, group, columns, rows, cache)?;
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

/// The rows of one function with one set of shared arguments.
fn cell_part(
    context: RequestContext<'_>,
    (shared, constraint): CallGroup,
    (columns, order): (Vec<String>, Order),
    rows: TableRows,
    cache: bool,
) -> Result<(TemplateRows, Vec<(u32, RequestError)>), RequestError> {
    let (app, model) = (context.app, context.model.model());
    let output_max = TokenCount(shared.output_max.0.min(app.config.limits.output_tokens_max));
    let (constraint, compiled) =
        constraint_of(constraint, &shared.answer, context.validation().constraints)?.unzip();
    let compiled = compiled.unwrap_or_default();
    let generation = Generation { output_max, constraint, compiled, ..Generation::default() };
    let sampling = Sampling { generation: Arc::new(generation.clone()), seed: None };
    let lowering =
        Lowering { model, config: &app.config, sampling: &sampling, cache, order, dependencies: &[] };
    let plan = |table| Plan::relquery(&shared.template, None, model.has_chat, table, generation);
    let (mut part, failed) = rows.lower(columns, plan, lowering)?;
    let template = shared.template.to_string();
    let answer = serde_json::to_vec(&sampling.generation.constraint).expect("a constraint is plain data");
    part.open = Some(ResultKey::of(&[shared.function.as_bytes(), template.as_bytes(), &answer]).0);
    Ok((part, failed))
}

/// Rows of an AI column of SQL: their relQuery is their own, which others' rows do not join.
pub fn column(
    context: RequestContext<'_>,
    column: AiColumn,
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
    let (mut part, mut failed) = cell_part(context, group, columns, table, true)?;
    failed.append(&mut refused);
    part.open = None;
    Ok((part, failed))
}

/// The constraint that was asked for, or the one that makes answers readable, which is left out where the
/// executor cannot keep to it.
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
    let is_asked = asked.is_some();
    let Some(constraint) = asked.or(readable) else { return Ok(None) };
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
