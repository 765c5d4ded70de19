//! `/v1/cells`: calls that differ in their own cell alone are rows of one relQuery.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Constraint, Millis, TenantId};
use ir::Cell;
use ir::catalogue::{Answer, Argument, BoundCall, Catalogue};
use serde_json::Value;
use serving::caller::Caller;
use serving::clock::Deadline;
use serving::demo;
use serving::error::RequestError;
use serving::intake::TemplateRows;
use serving::label::Label;
use serving::model::Model;
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;
use sql::runner::{AiColumn, PromptOrder};

use super::call_group::{CallGroup, RowOptions, calibrated, cell_part, tells_probabilities};
use super::rows::TableRows;
use super::{Outline, PreparedRequest, RequestContext, Wanted};
use crate::config::{CellsConfig, LimitsConfig};
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::services::calibration::{self, Learning};
use crate::services::cell_budget;
use crate::services::known_cells::{CellDigest, GroupDigest};
use crate::services::priors::Priors;
use crate::state::App;
use crate::wire::cells::{Call, CellsRequest};
use crate::wire::relquery::Order;

/// Calls that are bound where they arrive.
const LIGHT_CALLS_MAX: usize = 16;

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

    fn is_light(fields: &JsonFields) -> bool {
        let calls = fields.get("calls").and_then(Value::as_array);
        calls.is_some_and(|calls| {
            calls.len() <= LIGHT_CALLS_MAX && calls.iter().all(|call| call.get("constraint").is_none())
        })
    }

    fn outline(&self) -> Outline {
        let (kind, rows) = (RelQueryKind::Cells(Arc::clone(&self.answers)), self.answers.len());
        Outline { route: cell_budget::ROUTE, kind, rows, stream: self.stream, deadline: self.deadline }
    }

    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError> {
        lower_cells(context, self)
    }

    fn known(&self, context: RequestContext<'_>) -> Option<Prepared> {
        let model = context.model;
        if !self.cache || !self.failed.is_empty() {
            return None;
        }
        let mut answered = Vec::with_capacity(self.answers.len());
        for ((group, rows, _), priors) in self.groups.iter().zip(&self.priors) {
            let digest = digest_of(context, (group, priors.as_ref()), self.guidance);
            for (number, row) in rows.iter() {
                let key = model.known_cells.get(&digest.cell(row))?;
                answered.push((number, model.runtime.shared.results.get(context.tenant, &key)?));
            }
        }
        let deadline = self.deadline.map(|span| Deadline::new(context.arrival, span));
        Some(Prepared { answered, ..prepared(Arc::clone(&self.answers), deadline) })
    }
}

/// What decides the answers of a group's cells beside their rows.
fn digest_of(
    context: RequestContext<'_>,
    (group, priors): (&CallGroup, Option<&Priors>),
    guidance: CellsConfig,
) -> GroupDigest {
    let output_max = context.app.config.limits.output_tokens_max;
    GroupDigest::of(&format!("{group:?} {priors:?} {guidance:?} {output_max}"))
}

/// The relQuery of cells whose answers are read so, none of them there yet.
fn prepared(answers: Arc<[Answer]>, deadline: Option<Deadline>) -> Prepared {
    Prepared {
        rows: answers.len(),
        kind: RelQueryKind::Cells(answers),
        route: cell_budget::ROUTE,
        class: base::ServiceClass::Interactive,
        failed: Vec::new(),
        answered: Vec::new(),
        deadline,
        pin: None,
        parts: Vec::new(),
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
        let digest = digest_of(context, (&group, priors.as_ref()), guidance);
        let asked: HashMap<u32, CellDigest> =
            rows.iter().map(|(number, row)| (number, digest.cell(row))).collect();
        let columns = (group.0.columns(), Order::Rows);
        let options = RowOptions { guidance, scoring: calibrated(priors), cache };
        let (part, bad) = cell_part(context, group, columns, rows, options)?;
        failed.extend(bad);
        for row in &part.rows {
            let digests = row.targets.iter().filter_map(|number| asked.get(number));
            if let Some(key) = row.key {
                digests.for_each(|digest| context.model.known_cells.keep(*digest, key));
            }
        }
        parts.push(TemplateRows { label, ..part });
    }
    let deadline = deadline.map(|span| Deadline::new(context.arrival, span));
    let work = Prepared { failed, parts, ..prepared(answers, deadline) };
    Ok(PreparedRequest { work, stream })
}

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

/// How functions are put to a model where a request does not say. One that was trained on the bare prompts has no
/// lean towards a label to correct.
pub fn usual(app: &App, model: &Model) -> CellsConfig {
    let cells = app.config.cells;
    CellsConfig { calibration: cells.calibration && !model.knows_bare_prompts, ..cells }
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
