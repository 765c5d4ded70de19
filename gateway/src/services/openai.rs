//! From a request's fields to work: prompts become work items, one row each.

use std::sync::Arc;

use base::{Generation, Span, SpanKind, Time, TokenCount, TokenId, WorkItem};
use ir::{Plan, RowProblem};
use serving::clock::Deadline;
use serving::error::{RequestError, internal};
use serving::intake::{PendingRow, TemplateRows};
use serving::label::Label;
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;

use crate::json::JsonFields;
use crate::services::prepare::RequestContext;
use crate::services::prepare::rows::{Lowering, job_row, lower_plan, prompt_bytes_max, row_error};
use crate::wire::openai::{Api, ChatRequest, Common, CompletionPrompt, CompletionRequest};
use crate::wire::relquery::Order;

/// Output tokens of a completion whose request does not say, as OpenAI has it.
pub(crate) const COMPLETION_TOKENS: u64 = 16;

/// A request, ready to run, and how its client wants the reply.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// The route.
    pub(crate) api: Api,
    /// What to run.
    pub(crate) work: Prepared,
    /// As chunks.
    pub(crate) stream: bool,
    /// With a last chunk of usage.
    pub(crate) include_usage: bool,
}

impl PreparedRequest {
    /// The same, for this where it does not say what it is for.
    pub(crate) fn labelled(self, label: Option<Arc<Label>>) -> Self {
        Self { work: self.work.labelled(label.as_ref()), ..self }
    }
}

/// A body of `/v1/completions`.
pub(crate) fn completion(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<PreparedRequest, RequestError> {
    let app = context.app;
    let CompletionRequest { common, prompts } = CompletionRequest::read(fields, context.validation())?;
    let lowering = lowering(context, &common);
    let output_max = common.max_tokens.unwrap_or(COMPLETION_TOKENS.min(app.config.limits.output_tokens_max));
    let generation =
        Generation { output_max: TokenCount(output_max), ..(*common.sampling.generation).clone() };
    let generation = Arc::new(generation);
    let items = prompts.into_iter().map(|prompt| match prompt {
        CompletionPrompt::Text(text) => {
            check_bytes(text.len(), lowering, "prompt")?;
            lower(&Plan::prompt(text, (*generation).clone()), lowering, "prompt")
        }
        CompletionPrompt::Tokens(tokens) => take_tokens(tokens, &generation, lowering),
    });
    let items: Result<Vec<WorkItem>, RequestError> = items.collect();
    Ok(asked(
        Endpoint { api: Api::Completion, route: "completions" },
        &common,
        items?,
        lowering,
        context.arrival,
    ))
}

/// A body of `/v1/chat/completions`.
pub(crate) fn chat(context: RequestContext<'_>, fields: JsonFields) -> Result<PreparedRequest, RequestError> {
    let app = context.app;
    let ChatRequest { common, messages } = ChatRequest::read(fields, context.validation())?;
    if !context.model.model().has_chat {
        return Err(RequestError::invalid("messages", "the model has no chat template: use /v1/completions"));
    }
    let lowering = lowering(context, &common);
    // A limit is the most that may be said, not what must fit: clients send one number for every model. Room
    // for one token is asked first; then as much is given as the context leaves, and an answer that meets its
    // end says `length`.
    let generation = Generation { output_max: TokenCount(1), ..(*common.sampling.generation).clone() };
    check_bytes(messages.iter().map(|message| message.content.len()).sum(), lowering, "messages")?;
    let messages = messages.into_iter().map(|message| (message.role, message.content)).collect();
    let mut item = lower(&Plan::conversation(messages, generation), lowering, "messages")?;
    let room = context_max(lowering).saturating_sub(item.prompt.len() as u64);
    let wanted = common.max_tokens.unwrap_or(app.config.limits.output_tokens_max);
    item.generation =
        Arc::new(Generation { output_max: TokenCount(room.min(wanted)), ..(*item.generation).clone() });
    Ok(asked(Endpoint { api: Api::Chat, route: "chat" }, &common, vec![item], lowering, context.arrival))
}

/// What a lowering of such a request needs.
pub(crate) fn lowering<'a>(context: RequestContext<'a>, common: &'a Common) -> Lowering<'a> {
    Lowering {
        model: context.model.model(),
        config: &context.app.config,
        sampling: &common.sampling,
        cache: common.cache,
        order: Order::Rows,
        dependencies: &[],
    }
}

/// Most tokens of a prompt and its output together.
fn context_max(lowering: Lowering<'_>) -> u64 {
    lowering.model.context_max.0.min(lowering.model.kv_tokens())
}

/// Refuses text that cannot fit before it is tokenized.
fn check_bytes(found: usize, lowering: Lowering<'_>, field: &str) -> Result<(), RequestError> {
    let limit = prompt_bytes_max(lowering.model, lowering.config).0;
    if found as u64 <= limit {
        return Ok(());
    }
    let context = context_max(lowering);
    let reason = format!("has {found} bytes: more than {limit} cannot fit the context of {context} tokens");
    Err(RequestError::invalid(field, reason))
}

/// Lowers a plan of one row.
fn lower(plan: &Plan, lowering: Lowering<'_>, field: &str) -> Result<WorkItem, RequestError> {
    let lowered = lower_plan(plan, lowering, 0)?;
    match lowered.answers.first() {
        Some(Err(RowProblem::EmptyPrompt)) => Err(RequestError::invalid(field, "must hold some text")),
        Some(Err(problem)) => Err(row_error(0, problem, lowering.model)),
        Some(Ok(_)) | None => {
            lowered.items.into_iter().next().ok_or_else(|| internal("a plan of one row gave no item"))
        }
    }
}

/// A prompt of tokens, as it is.
fn take_tokens(
    tokens: Vec<TokenId>,
    generation: &Arc<Generation>,
    lowering: Lowering<'_>,
) -> Result<WorkItem, RequestError> {
    let (prompt, context) = (TokenCount(tokens.len() as u64), TokenCount(context_max(lowering)));
    let output_max = generation.output_max;
    if prompt.0.saturating_add(output_max.0) > context.0 {
        let problem = RowProblem::TooLong { prompt, output_max, context };
        return Err(row_error(0, &problem, lowering.model));
    }
    Ok(WorkItem {
        row: 0,
        prompt: tokens.into(),
        spans: [Span { kind: SpanKind::Template, tokens: prompt }].into(),
        sections: Arc::default(),
        generation: Arc::clone(generation),
        seed: 0,
    })
}

/// Where a request came in.
pub(crate) struct Endpoint {
    /// The API whose replies it gets.
    pub(crate) api: Api,
    /// Its name in accounts.
    pub(crate) route: &'static str,
}

/// Puts items together. The first prompt's seed is the caller's; the others' follow from it.
pub(crate) fn asked(
    Endpoint { api, route }: Endpoint,
    common: &Common,
    items: Vec<WorkItem>,
    lowering: Lowering<'_>,
    arrival: Time,
) -> PreparedRequest {
    let seed = common.sampling.seed.unwrap_or_else(rand::random);
    let row = |(index, item): (u32, WorkItem)| {
        let item = WorkItem { row: index, seed: seed.wrapping_add(u64::from(index)), ..item };
        PendingRow { targets: vec![index], ..job_row(item, lowering) }
    };
    let mut rows: Vec<PendingRow> = (0..).zip(items).map(row).collect();
    if let [only] = &mut rows[..] {
        stream(only, common);
    }
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route,
        class: common.class,
        rows: rows.len(),
        failed: Vec::new(),
        deadline: common.deadline.map(|span| Deadline::new(arrival, span)),
        pin: None,
        parts: vec![TemplateRows { open: None, label: None, rows }],
    };
    PreparedRequest { api, work, stream: common.stream, include_usage: common.include_usage }
}

/// Has text go out as a server says it, for a client that streams, where nothing can be found wrong with the
/// answer once it is whole, and nobody else waits for it.
fn stream(row: &mut PendingRow, common: &Common) {
    let asked = &row.item.generation;
    if common.stream && row.key.is_none() && asked.constraint.is_none() && asked.logprobs.is_none() {
        Arc::make_mut(&mut row.item.generation).streams = true;
    }
}
