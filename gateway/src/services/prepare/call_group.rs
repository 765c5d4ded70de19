//! Calls of one function that share all arguments but the row's: the rows of a relQuery, and those from which
//! is learned how likely its answers are without content.

use std::sync::Arc;

use base::{AnswerScoring, Constraint, Generation, TokenCount};
use ir::catalogue::{Answer, Catalogue, Guide, SharedCall};
use ir::{Cell, Plan};
use serving::error::RequestError;
use serving::intake::{OpenTo, TemplateRows};
use serving::label::Label;
use serving::model::{Model, Runs};
use store::ResultKey;

use super::RequestContext;
use super::rows::{Lowering, TableRows};
use crate::config::CellsConfig;
use crate::services::constraints::TenantConstraints;
use crate::services::priors::Priors;
use crate::wire::constraint::Checked;
use crate::wire::relquery::Order;
use crate::wire::sampling::Sampling;

/// Answers of a choice that is corrected: each is asked for once per content-free text.
pub const ANSWERS_MAX: u64 = 32;
/// What stands where a text would: the paper's, but for the empty one, which no prompt may have.
pub const CONTENT_FREE: [&str; 3] = ["N/A", "[MASK]", "..."];
/// What these rows go by in the live view, where their caller would otherwise see rows that nobody asked for.
const CALIBRATION: &str = "calibration of labels";

/// What the calls of one relQuery share, and the constraint they came with.
pub type CallGroup = (SharedCall, Option<Constraint>);

/// How rows of a function run.
pub(super) struct RowOptions {
    pub(super) guidance: CellsConfig,
    /// Which of the answers is drawn, where not simply the likeliest.
    pub(super) scoring: Option<AnswerScoring>,
    /// Whether answers may be shared and cached.
    pub(super) cache: bool,
}

pub(super) fn calibrated(priors: Option<Priors>) -> Option<AnswerScoring> {
    priors.map(|priors| AnswerScoring::Calibrated(priors.to_vec()))
}

/// Whether what runs a model's rows says how likely each of a few answers is.
pub(super) fn tells_probabilities(model: &Model) -> bool {
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
        parts.push(TemplateRows { open: None, label: Label::of_client(CALIBRATION), ..part });
    }
    Ok(parts)
}

/// The rows of one function with one set of shared arguments.
pub(super) fn cell_part(
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
    let lowering = Lowering {
        model,
        config: &app.config,
        sampling: &sampling,
        cache,
        order,
        dependencies: &[],
        truncates: false,
    };
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
    let key = ResultKey::of(&[shared.function.as_bytes(), template.as_bytes(), &answer]);
    part.open = Some(OpenTo::template(key.0));
    Ok((part, failed))
}

/// Whether examples help a model: it takes turns, and was not made for the bare prompts.
fn takes_examples(model: &Model) -> bool {
    model.has_chat && !model.knows_bare_prompts
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
