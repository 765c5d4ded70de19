//! From a request's fields to work: prompts become work items, one row each.

mod prepared;

use std::sync::Arc;

use base::{
    ChatTemplate, Compiled, Generation, PromptEnd, Role, Span, SpanKind, Time, TokenCount, TokenId,
    ToolCallForm, WorkItem,
};
use ir::{Lowered, Plan, RowProblem};
pub(crate) use prepared::PreparedRequest;
use serde_json::{Map, Value};
use serving::clock::Deadline;
use serving::config::PromptForm;
use serving::error::{RequestError, internal};
use serving::intake::{PendingRow, TemplateRows};
use serving::model::{Model, Runs};
use serving::relquery_state::RelQueryKind;
use serving::replicas::dialect;
use serving::submit::Prepared;

use crate::json::JsonFields;
use crate::services::client_loops::ClientLoop;
use crate::services::prepare::RequestContext;
use crate::services::prepare::rows::{
    Lowering, job_row, lower_chat, lower_options, lower_plan, prompt_bytes_max, row_error,
};
use crate::services::shortening::shortened;
use crate::services::tools;
use crate::wire::anthropic;
use crate::wire::openai::{
    Api, CallReader, ChatRequest, Common, CompletionPrompt, CompletionRequest, Message, PreviousResponse,
    PromptFields, PromptReply, ResponseEcho, ResponseRequest, ToolChoice, ToolRequest, Truncation,
    UsageChunks, chat as chat_fields, prompt_reply, template_variables, token_ids,
};
use crate::wire::relquery::Order;

/// Output tokens of a completion whose request does not say, as OpenAI has it.
pub(crate) const COMPLETION_TOKENS: u64 = 16;

/// A body of `/v1/completions`.
pub(crate) fn completion(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<PreparedRequest, RequestError> {
    let app = context.app;
    let CompletionRequest { common, best_of, prompts, starts_prompts, prompt: fields, ignored } =
        CompletionRequest::read(fields, context.validation())?;
    let (rows, rows_max) = (prompts.len() * common.n as usize, app.config.limits.rows_max);
    if rows > rows_max {
        let reason = format!("asks for {rows} answers; at most {rows_max} are allowed (limits.rows_max)");
        return Err(RequestError::invalid(if best_of.is_some() { "best_of" } else { "n" }, reason));
    }
    let client_loop = ClientLoop::of_completion(&common, &prompts);
    let lowering = lowering(context, &common);
    let output_max = common.max_tokens.unwrap_or(COMPLETION_TOKENS.min(app.config.limits.output_tokens_max));
    let generation =
        Generation { output_max: TokenCount(output_max), ..(*common.sampling.generation).clone() };
    let generation = Arc::new(generation);
    let mut texts = Vec::new();
    if fields.echo {
        let told = prompts.iter().map(|prompt| text_of(prompt, lowering.model));
        texts.extend(told.flat_map(|text| std::iter::repeat_n(text, common.n as usize)));
    }
    let room = context_max(lowering).saturating_sub(output_max);
    let mut items = Vec::with_capacity(prompts.len());
    for (number, prompt) in prompts.into_iter().enumerate() {
        let cut = (common.truncation, room);
        let (item, cut) = completion_item((prompt, starts_prompts), &generation, lowering, cut)?;
        if let Some(start) = cut.filter(|_| fields.echo) {
            // What is told in front of its answers is what they go on from, and no more than was text.
            let text: Arc<str> = lowering.model.text.decode_written(&item.prompt[start..]).into();
            let answers = common.n as usize;
            texts.iter_mut().skip(number * answers).take(answers).for_each(|told| *told = Arc::clone(&text));
        }
        items.push(item);
    }
    let endpoint = Endpoint { api: Api::Completion, route: "completions" };
    let asked = asked(endpoint, &common, items, lowering, context.arrival);
    let is_echo = fields.echoed_logprobs.is_some();
    let scored = asked.scored_tokens(lowering.model);
    let told = prompt_reply::check_told(scored, generation.prompt_logprobs, is_echo)?;
    token_ids::check_scores(rows as u64, output_max, &generation.logprob_tokens, told)?;
    let prompt = PromptReply { fields, texts };
    Ok(PreparedRequest { prompt, best_of, ..asked.of_loop(client_loop, ignored) })
}

/// The item of a prompt, and where a part of the prompt was left out, how many tokens in front of the rest its
/// tokenizer put there. `is_started`: whether it puts any there; `truncation`: what is kept of it, and how many tokens
/// the context leaves for it.
fn completion_item(
    (prompt, is_started): (CompletionPrompt, bool),
    generation: &Arc<Generation>,
    lowering: Lowering<'_>,
    (truncation, room): (Option<Truncation>, u64),
) -> Result<(WorkItem, Option<usize>), RequestError> {
    match prompt {
        CompletionPrompt::Text(text) => {
            check_bytes(text.len(), lowering, "prompt")?;
            let item = lower(&Plan::prompt(text, (**generation).clone()), lowering, "prompt")?;
            let start = lowering.model.text.prompt_start();
            let start = if item.prompt.starts_with(&start) { start.len() } else { 0 };
            if start > 0 && !is_started {
                return item_of_tokens(&item.prompt[start..], generation, lowering, (truncation, room));
            }
            truncated(item, lowering, (truncation, start, room))
        }
        CompletionPrompt::Tokens(tokens) => item_of_tokens(&tokens, generation, lowering, (truncation, room)),
    }
}

/// The same of a prompt that is tokens, in front of which nothing is put.
fn item_of_tokens(
    tokens: &[TokenId],
    generation: &Arc<Generation>,
    lowering: Lowering<'_>,
    (truncation, room): (Option<Truncation>, u64),
) -> Result<(WorkItem, Option<usize>), RequestError> {
    let Some(truncation) = truncation else { return Ok((take_tokens(tokens, generation, lowering)?, None)) };
    let kept = truncation.kept(tokens, 0, room)?;
    Ok((take_tokens(&kept, generation, lowering)?, (kept.len() < tokens.len()).then_some(0)))
}

/// An item with what is kept of its prompt, and as [`completion_item`] says whether a part was left out. What is kept
/// must fit the context. `start`: tokens that its tokenizer put in front of its text.
fn truncated(
    item: WorkItem,
    lowering: Lowering<'_>,
    (truncation, start, room): (Option<Truncation>, usize, u64),
) -> Result<(WorkItem, Option<usize>), RequestError> {
    let Some(truncation) = truncation else { return Ok((item, None)) };
    let kept = truncation.kept(&item.prompt, start, room)?;
    if kept.len() < item.prompt.len() {
        let front = &item.prompt[..start.min(kept.len())];
        let start = if kept.starts_with(front) { front.len() } else { 0 };
        return Ok((take_tokens(&kept, &item.generation, lowering)?, Some(start)));
    }
    check_context(item.prompt.len(), item.generation.output_max, lowering)?;
    Ok((item, None))
}

/// The text of a prompt: as it was sent, or what its tokens say, special ones as they are written.
fn text_of(prompt: &CompletionPrompt, model: &Model) -> Arc<str> {
    match prompt {
        CompletionPrompt::Text(text) => text.as_str().into(),
        CompletionPrompt::Tokens(tokens) => model.text.decode_written(tokens).into(),
    }
}

/// A body of `/v1/chat/completions`.
pub(crate) fn chat(context: RequestContext<'_>, fields: JsonFields) -> Result<PreparedRequest, RequestError> {
    conversation(context, ChatRequest::read(fields, context.validation())?)
}

/// A request of `/v1/responses`, ready to run.
#[derive(Debug)]
pub(crate) struct PreparedResponse {
    pub(crate) asked: PreparedRequest,
    /// What its reply repeats of it.
    pub(crate) echo: ResponseEcho,
    /// The whole conversation before the answer, where the response is to be kept.
    pub(crate) conversation: Option<Vec<Value>>,
    /// Its body, with that conversation as its input, where it is to run in the background.
    pub(crate) background: Option<Map<String, Value>>,
}

/// A body of `/v1/responses`. `previous`: the response that it names.
pub(crate) fn response(
    context: RequestContext<'_>,
    fields: JsonFields,
    previous: Option<PreviousResponse>,
) -> Result<PreparedResponse, RequestError> {
    let stores = context.app.config.openai.store_responses;
    let is_background = fields.get("background") == Some(&Value::Bool(true));
    let body = is_background.then(|| fields.copy_all());
    let request = ResponseRequest::read(fields, (previous, stores), context.validation())?;
    let ResponseRequest { chat, drops_oldest, echo, conversation: said } = request;
    let background = body.map(|mut body| {
        body.insert("input".into(), said.clone().unwrap_or_default().into());
        body
    });
    let prepare = |chat| conversation(context, chat);
    let bytes_max = prompt_bytes_max(context.model.model(), &context.app.config).0;
    let asked = if drops_oldest { shortened(chat, bytes_max, prepare)? } else { prepare(chat)? };
    Ok(PreparedResponse { asked, echo, conversation: said, background })
}

/// How the answer to a body of `/v1/responses` is told that another gateway runs, and how calls are read in it. Nothing is
/// lowered for that.
pub(crate) fn response_form(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<(ResponseEcho, Option<Arc<CallReader>>), RequestError> {
    let stores = context.app.config.openai.store_responses;
    // What went before stands in its input.
    let previous = Some(PreviousResponse::default());
    let request = ResponseRequest::read(fields, (previous, stores), context.validation())?;
    let ResponseRequest { chat: ChatRequest { common, mut tools, .. }, echo, .. } = request;
    let model = context.model.model();
    bound_calls(&mut tools, model);
    let asked_form = common.sampling.generation.constraint.as_ref();
    Ok((echo, tools.map(|tools| tools::reader(&tools, model, asked_form))))
}

/// A body of `/v1/messages`.
pub(crate) fn message(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<PreparedRequest, RequestError> {
    conversation(context, anthropic::chat_of(fields, true, context.validation())?).map_err(of_last_answer)
}

/// A body of `/v1/messages/count_tokens`.
pub(crate) fn message_to_count(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<PreparedRequest, RequestError> {
    conversation(context, anthropic::chat_of(fields, false, context.validation())?).map_err(of_last_answer)
}

/// The same error with the name that what is to be continued has in Anthropic's shape: that it stands last asks for it.
fn of_last_answer(error: RequestError) -> RequestError {
    match error {
        RequestError::Invalid { field, reason } if field == chat_fields::field_of(PromptEnd::Text) => {
            RequestError::invalid("messages", format!("must not end with an answer: {reason}"))
        }
        other => other,
    }
}

/// A conversation whose next answer is wanted.
fn conversation(context: RequestContext<'_>, chat: ChatRequest) -> Result<PreparedRequest, RequestError> {
    let app = context.app;
    let ChatRequest { mut common, messages, end, echo, mut tools, ignored } = chat;
    if !context.model.model().has_chat {
        return Err(RequestError::invalid("messages", "the model has no chat template: use /v1/completions"));
    }
    bound_calls(&mut tools, context.model.model());
    check_end(context, end, messages.last().map(|message| message.role))?;
    let asked_form = common.sampling.generation.constraint.clone();
    if let Some(tools) = &tools {
        hold_to_calls(context, tools, Arc::make_mut(&mut common.sampling.generation))?;
    }
    let reader = tools.as_ref().map(|tools| tools::reader(tools, context.model.model(), asked_form.as_ref()));
    let client_loop = ClientLoop::of_chat(&common, &messages);
    let lowering = lowering(context, &common);
    // A limit is the most that may be said, not what must fit: clients send one number for every model. Room
    // for one token is asked first; then as much is given as the context leaves, and an answer that meets its
    // end says `length`.
    let mut generation = Generation { output_max: TokenCount(1), ..(*common.sampling.generation).clone() };
    let model = lowering.model;
    // Those that are sent messages write the conversation themselves.
    let variables =
        generation.template_variables.take_if(|_| model.runs != Runs::Fleet(PromptForm::Messages));
    let template = with_variables(model, variables.as_deref())?;
    let other_end = ended(end, template.as_deref().unwrap_or(&*model.text))?;
    let written_by = other_end.as_deref().or(template.as_deref());
    let echoed = echo.then(|| echoed(&messages, end)).flatten();
    let item = lower_conversation(messages, tools.as_ref(), generation, (lowering, written_by))?;
    // A limit is a ceiling here: a token is left for the answer.
    let prompt_max = context_max(lowering).saturating_sub(1);
    let (mut item, _) = truncated(item, lowering, (common.truncation, 0, prompt_max))?;
    let prompt_logprobs = item.generation.prompt_logprobs;
    let told = prompt_reply::check_told(model.scored_tokens(&item.prompt), prompt_logprobs, false)?;
    let answers = u64::from(common.n);
    let room = model.answer_room(item.prompt.len() as u64);
    let wanted = common.max_tokens.unwrap_or_else(|| {
        // Nobody named a limit: an answer is no longer than can be told of.
        let most = token_ids::answer_max(answers, &item.generation.logprob_tokens, told);
        most.min(app.config.limits.output_tokens_max)
    });
    let has_open_end = common.max_tokens.is_none() && model.runs == Runs::Fleet(PromptForm::Messages);
    let output_max = TokenCount(room.min(wanted));
    item.generation = Arc::new(Generation { output_max, has_open_end, ..(*item.generation).clone() });
    let endpoint = Endpoint { api: Api::Chat, route: "chat" };
    token_ids::check_scores(answers, output_max.0, &item.generation.logprob_tokens, told)?;
    let mut asked = asked(endpoint, &common, vec![item], lowering, context.arrival);
    if prompt_logprobs.is_some() {
        // All answers have one prompt, of which the first row tells.
        for row in asked.work.parts.iter_mut().flat_map(|part| &mut part.rows).skip(1) {
            Arc::make_mut(&mut row.item.generation).prompt_logprobs = None;
        }
    }
    let fields =
        PromptFields { echo, prompt_logprobs, names_ids: common.names_ids, ..PromptFields::default() };
    let texts = echoed.into_iter().flat_map(|text| std::iter::repeat_n(text, common.n as usize)).collect();
    let prompt = PromptReply { fields, texts };
    Ok(PreparedRequest { tools: reader, prompt, ..asked.of_loop(client_loop, ignored) })
}

/// Allows as many calls in an answer as the model's template has room for: one may tell of a single one, and refuse a
/// conversation with two.
fn bound_calls(tools: &mut Option<ToolRequest>, model: &Model) {
    if let Some(tools) = tools {
        tools.is_parallel &= tools::native_form(model) != Some(ToolCallForm::Llama);
    }
}

/// Holds an answer to the form of the calls that it may make or must.
fn hold_to_calls(
    context: RequestContext<'_>,
    tools: &ToolRequest,
    generation: &mut Generation,
) -> Result<(), RequestError> {
    if tools.choice != ToolChoice::Auto && generation.output_min().0 > 0 {
        let reason = "cannot be combined with `tool_choice` required or a named tool";
        return Err(RequestError::invalid("min_tokens", reason));
    }
    let held = tools::constraint(tools, context.validation(), generation.constraint.as_ref())?;
    (generation.constraint, generation.compiled) =
        held.map_or((None, Compiled::default()), |(constraint, compiled)| (Some(constraint), compiled));
    Ok(())
}

/// The model's chat template with these variables, where there are any.
pub(crate) fn with_variables<'a>(
    model: &'a Model,
    variables: Option<&str>,
) -> Result<Option<Box<dyn ChatTemplate + 'a>>, RequestError> {
    let Some(variables) = variables else { return Ok(None) };
    let template = model.text.with_variables(variables).ok_or_else(|| {
        let reason =
            "the model's chat template takes no variables, or not these: the text of a special token";
        RequestError::invalid(template_variables::FIELD, reason)
    });
    template.map(Some)
}

/// The template with another end, where one is asked for.
pub(crate) fn ended<'a>(
    end: PromptEnd,
    template: &'a dyn ChatTemplate,
) -> Result<Option<Box<dyn ChatTemplate + 'a>>, RequestError> {
    if end == PromptEnd::Answer {
        return Ok(None);
    }
    let other = template.ending(end).ok_or_else(|| {
        RequestError::invalid(chat_fields::field_of(end), "is not known to the model's chat template")
    });
    other.map(Some)
}

/// Refuses an end that no server knows, where servers are sent messages and write the conversation themselves. `last`:
/// who speaks last in it.
fn check_end(context: RequestContext<'_>, end: PromptEnd, last: Option<Role>) -> Result<(), RequestError> {
    let is_sent = context.model.model().runs == Runs::Fleet(PromptForm::Messages);
    let Some(members) = context.model.runtime.members.as_ref().filter(|_| is_sent) else { return Ok(()) };
    let mut refusal = None;
    for dialect in members.dialects() {
        match dialect::ending(end, last, dialect) {
            Ok(_) => return Ok(()),
            Err(reason) => refusal = Some(RequestError::invalid(chat_fields::field_of(end), reason)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// What stands in front of an answer: the last message's text, where the answer is of the same speaker.
fn echoed(messages: &[Message], end: PromptEnd) -> Option<Arc<str>> {
    let last = messages.last()?;
    let is_same = end != PromptEnd::Answer || last.role == Role::Assistant;
    is_same.then(|| last.content.as_str().into())
}

/// The prompt of a conversation.
fn lower_conversation(
    messages: Vec<Message>,
    tools: Option<&ToolRequest>,
    generation: Generation,
    (lowering, template): (Lowering<'_>, Option<&dyn ChatTemplate>),
) -> Result<WorkItem, RequestError> {
    const FIELD: &str = "messages";
    let model = lowering.model;
    let concerns_tools = tools::concern(&messages, tools);
    let form = tools::native_form(model).filter(|_| concerns_tools);
    let Some(form) = form else {
        let messages = tools::plain(messages, tools);
        check_bytes(messages.iter().map(|(_, content)| content.len()).sum(), lowering, FIELD)?;
        let plan = Plan::conversation(messages, generation);
        return match template {
            None => lower(&plan, lowering, FIELD),
            Some(_) => item_of(lower_chat(&plan, lowering, template, 0)?, lowering, FIELD),
        };
    };
    let fields = tools::fields(&messages, tools, form);
    let texts = fields.tools.iter().chain(fields.messages.values());
    let texts = texts.chain(messages.iter().map(|message| &message.content));
    check_bytes(texts.map(String::len).sum(), lowering, FIELD)?;
    let messages: Vec<_> = messages.iter().map(|message| (message.role, message.content.as_str())).collect();
    let template = template.unwrap_or(&*model.text);
    let pieces = template.render_tools(&messages, &fields);
    let pieces = pieces.map_err(|error| RequestError::invalid(FIELD, error.to_string()))?;
    let options = lower_options(lowering, 0);
    let item = ir::lower_rendered(&pieces, &*model.text, &Arc::new(generation), &options);
    item.map_err(|problem| row_error(0, &problem, model))
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
        truncates: common.truncation.is_some(),
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
    let reason = format!(
        "has {found} bytes: more than {limit} cannot fit the context of {context} tokens. This model's maximum context \
         length is {context} tokens"
    );
    Err(RequestError::invalid(field, reason))
}

/// Lowers a plan of one row.
fn lower(plan: &Plan, lowering: Lowering<'_>, field: &str) -> Result<WorkItem, RequestError> {
    item_of(lower_plan(plan, lowering, 0)?, lowering, field)
}

/// The item of a lowered plan of one row.
fn item_of(lowered: Lowered, lowering: Lowering<'_>, field: &str) -> Result<WorkItem, RequestError> {
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
    tokens: &[TokenId],
    generation: &Arc<Generation>,
    lowering: Lowering<'_>,
) -> Result<WorkItem, RequestError> {
    check_context(tokens.len(), generation.output_max, lowering)?;
    Ok(WorkItem {
        row: 0,
        prompt: tokens.into(),
        spans: [Span { kind: SpanKind::Template, tokens: TokenCount(tokens.len() as u64) }].into(),
        sections: Arc::default(),
        generation: Arc::clone(generation),
        seed: 0,
    })
}

/// Refuses a prompt that does not fit the context with its output.
fn check_context(prompt: usize, output_max: TokenCount, lowering: Lowering<'_>) -> Result<(), RequestError> {
    let (prompt, context) = (TokenCount(prompt as u64), TokenCount(context_max(lowering)));
    if prompt.0.saturating_add(output_max.0) <= context.0 {
        return Ok(());
    }
    let problem = RowProblem::TooLong { prompt, output_max, context };
    Err(row_error(0, &problem, lowering.model))
}

/// Where a request came in.
pub(crate) struct Endpoint {
    /// The API whose replies it gets.
    pub(crate) api: Api,
    /// Its name in accounts.
    pub(crate) route: &'static str,
}

/// Puts items together, each as often as answers to it are wanted. The first answer's seed is the caller's; the others'
/// follow from it.
pub(crate) fn asked(
    Endpoint { api, route }: Endpoint,
    common: &Common,
    items: Vec<WorkItem>,
    lowering: Lowering<'_>,
    arrival: Time,
) -> PreparedRequest {
    let seed = common.sampling.seed.unwrap_or_else(rand::random);
    let is_one_prompt = items.len() == 1;
    let items = items.into_iter().flat_map(|item| std::iter::repeat_n(item, common.n as usize));
    let row = |(index, item): (u32, WorkItem)| {
        let item = WorkItem { row: index, seed: seed.wrapping_add(u64::from(index)), ..item };
        PendingRow { targets: vec![index], ..job_row(item, lowering) }
    };
    let mut rows: Vec<PendingRow> = (0..).zip(items).map(row).collect();
    let usage = match (common.include_usage, common.continuous_usage) {
        (false, _) => UsageChunks::None,
        (true, false) => UsageChunks::Last,
        (true, true) if lowering.model.has_ids() => {
            UsageChunks::Each(rows.iter().map(|row| row.item.prompt.len() as u64).collect())
        }
        (true, true) => UsageChunks::Each(Vec::new()),
    };
    let tells_tokens = common.sampling.generation.tells_tokens;
    let prompts = tells_tokens.then(|| rows.iter().map(|row| Arc::clone(&row.item.prompt)).collect());
    // Of many prompts a failure in the middle of one would end the stream of all.
    if is_one_prompt {
        rows.iter_mut().for_each(|row| stream(row, common));
    }
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route,
        class: common.class,
        rows: rows.len(),
        failed: Vec::new(),
        answered: Vec::new(),
        deadline: common.deadline.map(|span| Deadline::new(arrival, span)),
        pin: None,
        parts: vec![TemplateRows { open: None, label: None, rows }],
    };
    PreparedRequest {
        api,
        work,
        stream: common.stream,
        usage,
        ignored: Vec::new(),
        tools: None,
        prompts,
        prompt: PromptReply::default(),
        best_of: None,
        stops: common.sampling.generation.stop.as_slice().into(),
        client_loop: None,
    }
}

/// Has text go out as a server says it, for a client that streams, where nothing can be found wrong with the
/// answer once it is whole, and nobody else waits for it.
fn stream(row: &mut PendingRow, common: &Common) {
    let asked = &row.item.generation;
    if common.stream && row.key.is_none() && asked.constraint.is_none() && asked.logprobs.is_none() {
        Arc::make_mut(&mut row.item.generation).streams = true;
    }
}
