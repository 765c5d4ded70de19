//! A call of a span query as a row: how it generates, and its prompt in sections once its inputs are there.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Generation, Section, SectionReuse, Sees, Span, SpanKind, TokenCount, TokenId, WorkItem};
use ir::span::{CallId, Output, Params, Plan, SpanPart};
use ir::{Encoder, Sectioned};
use serving::error::RequestError;
use serving::model::Model;

use crate::models::ServedModel;
use crate::services::prepare::RequestContext;
use crate::wire::query::span_error;

/// Output tokens of a call whose query does not say, where the context has room for so many: what the
/// reference's server takes.
const OUTPUT_TOKENS: u64 = 2_048;

/// How the calls of a request generate, by their parameters but for the seed: those alike share one.
pub(super) type GenerationsByParams = HashMap<String, Arc<Generation>>;

/// How a call generates.
pub(super) fn generation(
    context: RequestContext<'_>,
    path: &str,
    params: &Params,
    known: &mut GenerationsByParams,
) -> Result<Arc<Generation>, RequestError> {
    let key = format!("{:?}", Params { seed: None, ..params.clone() });
    if let Some(generation) = known.get(&key) {
        return Ok(Arc::clone(generation));
    }
    let generation = Arc::new(checked(context, path, params)?);
    known.insert(key, Arc::clone(&generation));
    Ok(generation)
}

fn checked(context: RequestContext<'_>, path: &str, params: &Params) -> Result<Generation, RequestError> {
    let (models, tenant) = (&context.app.models, context.tenant);
    let context = context.validation();
    let inside = params.place.path();
    let place = format!("{path}{}", inside.strip_prefix('$').unwrap_or(inside));
    let refuse = |field: &str, reason: String| Err(RequestError::invalid(format!("{place}.{field}"), reason));
    if let Some(name) = params.model.as_deref().filter(|name| !context.model.is_called(name)) {
        models.named_for(tenant, Some(name))?;
        return refuse("model", "must be the request's: the calls of a query run on one model".into());
    }
    let limit = context.limits.output_tokens_max;
    let output_max = params.max_tokens.unwrap_or(OUTPUT_TOKENS.min(limit));
    if output_max > limit {
        return refuse(
            "max_tokens",
            format!("is {output_max}, the limit is {limit} (limits.output_tokens_max)"),
        );
    }
    if params.stop.len() > context.limits.stops_max {
        return refuse("stop", format!("has more than {} strings", context.limits.stops_max));
    }
    if let Some(top_k) = params.top_k.filter(|top_k| *top_k > context.model.vocab) {
        return refuse("top_k", format!("is {top_k}, the model has {} tokens", context.model.vocab));
    }
    let field = format!("{place}.constraint");
    let compile = |constraint| context.constraints.compile(&field, constraint);
    let compiled = params.constraint.as_ref().map(compile).transpose()?.unwrap_or_default();
    Ok(Generation {
        output_max: TokenCount(output_max),
        temperature: params.temperature,
        top_p: params.top_p.unwrap_or(1.0),
        top_k: params.top_k,
        stop: params.stop.clone(),
        stop_tokens: Vec::new(),
        ignore_end: false,
        constraint: params.constraint.clone(),
        compiled,
        scoring: None,
        ..Generation::default()
    })
}

/// Refuses spans that the model cannot read elsewhere than where they were computed.
pub(super) fn check_reuse(model: &Model, path: &str, plan: &Plan) -> Result<(), RequestError> {
    let why = match model.reuse {
        SectionReuse::Anywhere => return Ok(()),
        SectionReuse::InPlace => {
            "the model learned its positions, so that a span cannot be read at another one"
        }
        SectionReuse::Never => "the model's attention has a window, which finds no spans",
    };
    if plan.calls.iter().any(ir::span::Call::has_groups) {
        return Err(RequestError::invalid(path, format!("has a `plus`: {why}; `cross` is read in order")));
    }
    Ok(())
}

/// The outputs of the calls that have run.
pub(super) type Outputs = Vec<Option<CallOutput>>;

/// The output of a call, as others read it.
#[derive(Clone, Debug)]
pub(super) enum CallOutput {
    /// As the engine generated it.
    Tokens(Arc<[TokenId]>),
    /// As a server said it.
    Text(Arc<str>),
}

impl CallOutput {
    fn read(&self) -> Output<'_> {
        match self {
            Self::Tokens(tokens) => Output::Tokens(tokens),
            Self::Text(text) => Output::Text(text),
        }
    }
}

/// What a row is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    Call(CallId),
    /// Keys and values of a span, before a call that reads it can begin.
    Ahead(Vec<SpanPart>),
}

/// A span as a section, so that its last block can be found too, however little is in it. Behind it stands a
/// token that nobody reads: a row ends with something that is no section of anybody else's.
pub fn ahead(span: Vec<TokenId>) -> Sectioned {
    let tokens = TokenCount(span.len() as u64);
    let unit = Sees::Unit { first: 0, origin: 0, is_placeholder: false };
    let sections = vec![
        Section { tokens, position: 0, sees: unit },
        Section { tokens: TokenCount(1), position: span.len() as u32, sees: Sees::Before },
    ];
    let last = span.last().copied();
    Sectioned { prompt: span.into_iter().chain(last).collect(), sections }
}

/// The row of a call, in which so many first tokens of each span are repaired, or of a span that is computed
/// ahead. What a rule made too long to fit is as it was without that rule.
pub(super) fn item(
    served: &ServedModel,
    plan: &Plan,
    generations: &[Arc<Generation>],
    (ask, outputs): (&Ask, &Outputs),
    repair_tokens: u32,
) -> Result<WorkItem, RequestError> {
    let made = item_of(served, plan, generations, (ask, outputs), repair_tokens);
    let (Ask::Call(id), Err(_)) = (ask, &made) else { return made };
    match plan.without_prompts(*id) {
        Some(plan) => item_of(served, &plan, generations, (ask, outputs), repair_tokens),
        None => made,
    }
}

fn item_of(
    served: &ServedModel,
    plan: &Plan,
    generations: &[Arc<Generation>],
    (ask, outputs): (&Ask, &Outputs),
    repair_tokens: u32,
) -> Result<WorkItem, RequestError> {
    let model = served.model();
    let context = model.context_max.0.min(model.kv_tokens());
    let length_max = u32::try_from(context).unwrap_or(u32::MAX);
    let tags = served.tags().map_err(|reason| RequestError::invalid("query", reason))?;
    let encoder = Encoder { tokenizer: &*model.text, chat: Some((&*model.text, tags)) };
    let output = |id: CallId| outputs[id.0].as_ref().map_or(Output::Text(""), CallOutput::read);
    let (sectioned, mut generation, seed) = match ask {
        Ask::Call(id) => {
            let seed = plan.call(*id).params.seed.unwrap_or_else(rand::random);
            let made = plan.assemble(*id, encoder, length_max, &output);
            // Copies of a call with a seed draw differently, as copies without one do.
            (made, Arc::clone(&generations[id.0]), seed.wrapping_add(id.0 as u64))
        }
        Ask::Ahead(parts) => {
            let made = plan.span(parts, encoder, length_max, &output);
            let nothing = Generation { output_max: TokenCount(1), ..Generation::default() };
            (made.map(ahead), Arc::new(nothing), 0)
        }
    };
    let sectioned = sectioned.map_err(|error| span_error("query", error))?;
    let tokens = sectioned.prompt.len() as u64;
    let left = context.saturating_sub(tokens).max(1);
    let has_max_tokens = matches!(ask, Ask::Call(id) if plan.call(*id).params.max_tokens.is_some());
    if !has_max_tokens && generation.output_max.0 > left {
        Arc::make_mut(&mut generation).output_max = TokenCount(left);
    }
    let too_long = |needed: u64| RequestError::TooLong {
        prompt: needed - generation.output_max.0,
        output: generation.output_max.0,
        what: if model.kv_tokens() < model.context_max.0 { "KV pool" } else { "context" },
        limit: context,
    };
    if tokens + generation.output_max.0 > context {
        return Err(too_long(tokens + generation.output_max.0));
    }
    // What is repaired is in the prompt twice, and in the context once.
    let sectioned = match ask {
        Ask::Call(_) => sectioned.repaired(&sectioned.first_tokens(|_| repair_tokens)),
        Ask::Ahead(_) => sectioned,
    };
    let item = WorkItem {
        row: 0,
        spans: [Span { kind: SpanKind::Field, tokens: TokenCount(sectioned.prompt.len() as u64) }].into(),
        prompt: sectioned.prompt.into(),
        sections: sectioned.sections.into(),
        generation: Arc::clone(&generation),
        seed,
    };
    let needed = item.kv_tokens_max(model.block_tokens).0;
    if needed > model.kv_tokens() { Err(too_long(needed)) } else { Ok(item) }
}
