//! The OpenAI set: `/v1/models`, `/v1/completions`, `/v1/chat/completions`, `/v1/responses`.
//!
//! A completion is a relQuery with `n` rows per prompt; what it says streams from the same relQuery. Errors
//! are those of the whole request, because this API has none per prompt.

mod background;
mod frame_meter;
mod last_responses;
mod response_create;
pub mod responses;
mod socket_messages;
pub(super) mod stream;
pub mod websocket;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::TenantId;
use serving::caller::Caller;
use serving::clock::Late;
use serving::gateway_ids::VIA;
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::Usage;
use serving::submit::{self, Prepared, Resumed};

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::too_late;
use crate::error::{ErrorBody, Refusals};
use crate::models::ServedModel;
use crate::routes::{Prepare, ask_timely, get_only, only_post};
use crate::services::openai::{self as lower, PreparedRequest};
use crate::state::App;
use crate::wire::label;
use crate::wire::openai::{
    Api, ChatChoice, Chunker, CompletionChoice, Envelope, LoopHeaders, ModelList, ModelObject, Reply,
};

/// Names the fields of a request that were left out.
const IGNORED: HeaderName = HeaderName::from_static("x-relserve-ignored-fields");
/// Bytes of that header.
const IGNORED_BYTES_MAX: usize = 1_024;

/// The routes. A model's name may hold slashes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(get_only("/v1/models", models))
        .service(get_only("/v1/models/{id:.+}", model))
        .service(
            web::resource("/v1/completions")
                .route(web::post().to(completions))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/chat/completions")
                .route(web::post().to(chat_completions))
                .default_service(web::to(only_post)),
        )
        .configure(responses::configure);
}

/// The models that the caller's tenant can call.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai",
    responses((status = 200, body = ModelList), (status = 401, body = ErrorBody)), security(("key" = []))
)]
pub async fn models(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
) -> HttpResponse {
    let is_gateway = request.headers().contains_key(VIA);
    HttpResponse::Ok().json(ModelList { object: "list", data: models_of(&app, caller.tenant, is_gateway) })
}

/// The models that a tenant may use, each by its name and by its aliases; for another gateway with the gateways that it
/// leads to.
fn models_of(app: &App, tenant: TenantId, is_gateway: bool) -> Vec<ModelObject> {
    let may_use = |name: &str| app.runtime.shared.budgets.allows(tenant, name).is_ok();
    let retrieval = &app.config.retrieval;
    let embedder = retrieval.model.as_ref().map(|_| retrieval.model_name());
    let embedder = embedder
        .filter(|name| may_use(name))
        .map(|name| ModelObject::embedder(&name, app.runtime.model.created));
    let allowed = app.models.iter().filter(|model| may_use(&model.model().name));
    let named = allowed.flat_map(|model| {
        let gateways = if is_gateway { model.gateways() } else { Vec::new() };
        let all = ModelObject::all(model.model()).into_iter();
        all.map(move |object| ModelObject { gateways: gateways.clone(), ..object })
    });
    named.chain(embedder).collect()
}

/// A model that the caller's tenant can call, by its name or an alias.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = ModelObject), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn model(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let known = models_of(&app, caller.tenant, false).into_iter().find(|known| known.id == *id);
    let known = known.ok_or_else(|| app.models.unknown_to(caller.tenant, &id))?;
    Ok(HttpResponse::Ok().json(known))
}

/// Completes prompts: text (taken as data: nothing in it becomes a special token) or token ids.
#[utoipa::path(
    post, path = "/v1/completions", tag = "openai",
    request_body(content = Object, description = "model, prompt, n, best_of, max_tokens (default 16), temperature, top_p, top_k, \
        seed, stop, presence_penalty, frequency_penalty, logit_bias, logprobs (0 to 20), echo, stream, stream_options.include_usage; \
        beyond OpenAI: min_p, repetition_penalty, min_tokens, stop_token_ids, include_stop_str_in_output, skip_special_tokens, \
        stream_options.continuous_usage_stats, response_format, structured_outputs, guided_choice, guided_regex, guided_json, \
        guided_grammar, constraint, ignore_eos, return_token_ids, return_tokens_as_token_ids, prompt_logprobs, logprob_token_ids, \
        allowed_token_ids, truncate_prompt_tokens, truncation_side, class, cache, deadline_ms. What is not supported is refused by name unless it changes nothing; what is unknown is left out and named in \
        `x-relserve-ignored-fields`, as `openai.unknown_fields` says."),
    responses(
        (status = 200, body = Reply<CompletionChoice>),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn completions(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    serve((app, caller), &request, payload, lower::completion).await
}

/// Answers a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai",
    request_body(content = Object, description = "model, messages (system, developer, user, assistant, tool, function; text only), \
        tools, tool_choice, parallel_tool_calls, functions, function_call, \
        max_completion_tokens or max_tokens (the most that is said; never more than the context leaves), n, temperature, top_p, top_k, seed, stop, \
        presence_penalty, frequency_penalty, logit_bias, logprobs, top_logprobs (0 to 20), \
        response_format (json_object, json_schema), stream, stream_options.include_usage; beyond OpenAI: min_p, \
        repetition_penalty, min_tokens, stop_token_ids, include_stop_str_in_output, skip_special_tokens, chat_template_kwargs, \
        continue_final_message, add_generation_prompt, echo, stream_options.continuous_usage_stats, structured_outputs, guided_choice, guided_regex, \
        guided_json, guided_grammar, \
        constraint, ignore_eos, return_token_ids, return_tokens_as_token_ids, prompt_logprobs, logprob_token_ids, \
        allowed_token_ids, truncate_prompt_tokens, truncation_side, class, cache, deadline_ms. What is not supported is refused by name unless it changes nothing; what is unknown is left out and named in \
        `x-relserve-ignored-fields`, as `openai.unknown_fields` says."),
    responses(
        (status = 200, body = Reply<ChatChoice>),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn chat_completions(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    serve((app, caller), &request, payload, lower::chat).await
}

/// Reads a request, runs it and answers, with the names of fields that were left out in a header.
async fn serve(
    (app, caller): (Data<App>, Caller),
    request: &HttpRequest,
    payload: Payload,
    prepare: Prepare<PreparedRequest>,
) -> Result<HttpResponse, ApiError> {
    let (model, asked) = match ask_timely((&app, caller), request, payload, prepare).await? {
        (Ok(asked), _) => asked,
        (Err(Late), peek) => return Ok(late(peek.is_stream())),
    };
    let asked = of_client(asked, request.headers())?;
    let ignored = ignored_header(&asked.ignored);
    Ok(with_ignored(answer(app, &model, caller, asked).await?, ignored))
}

/// A reply with the names of fields that were left out.
pub(super) fn with_ignored(mut reply: HttpResponse, ignored: Option<HeaderValue>) -> HttpResponse {
    if let Some(ignored) = ignored {
        reply.headers_mut().insert(IGNORED, ignored);
    }
    reply
}

/// A request with what its headers say: which client's it is, and of which loop.
pub(super) fn of_client(asked: PreparedRequest, headers: &HeaderMap) -> Result<PreparedRequest, ApiError> {
    let names = LoopHeaders::read(headers)?;
    Ok(asked.labelled(label::of_client(headers)).joining(&names))
}

/// The names of fields that were left out, as far as a header has room for them; a name may be anything that JSON holds.
pub(super) fn ignored_header(names: &[String]) -> Option<HeaderValue> {
    let visible = |name: &String| name.replace(|c: char| !c.is_ascii_graphic() || c == ',', "?");
    let mut names = names.iter().map(visible);
    let mut listed = names.next()?;
    for name in names {
        listed.push_str(", ");
        listed.push_str(&name);
    }
    listed.truncate(IGNORED_BYTES_MAX);
    HeaderValue::from_str(&listed).ok()
}

/// The reply where the deadline passed before the work began, in the shape that is waited for.
pub(crate) fn late(is_stream: bool) -> HttpResponse {
    if is_stream {
        return crate::stream::reply(stream::late());
    }
    HttpResponse::GatewayTimeout().json(too_late(Usage::default()))
}

/// Starts work, unless its deadline passes before.
pub(super) async fn begin(
    app: &App,
    model: &ServedModel,
    caller: Caller,
    work: Prepared,
) -> Result<Result<OwnerHandle, Late>, ApiError> {
    let deadline = work.deadline;
    let submitted = submit::submit(&model.runtime, caller, work, Resumed::default());
    match app.runtime.shared.clock.within(deadline, submitted).await {
        Ok(handle) => Ok(Ok(handle?)),
        Err(late) => Ok(Err(late)),
    }
}

/// Runs what was asked and answers in its shape. Dropping this future (the client is gone) cancels the work.
pub(crate) async fn answer(
    app: Data<App>,
    model: &ServedModel,
    caller: Caller,
    asked: PreparedRequest,
) -> Result<HttpResponse, ApiError> {
    let deadline = asked.work.deadline;
    let Ok(handle) = begin(&app, model, caller, asked.work).await? else { return Ok(late(asked.stream)) };
    let envelope = Envelope::new(asked.api, handle.relquery(), model.model())
        .calling(asked.tools)
        .telling_tokens(asked.prompts)
        .telling_prompts(asked.prompt)
        .stopping_at(asked.stops)
        .choosing(asked.best_of);
    if asked.stream {
        let rows = handle.relquery().read().rows.len();
        let chunks = stream::Talk::Chunks(Box::new(Chunker::new(envelope, rows, asked.usage)));
        return Ok(crate::stream::reply(stream::events_of(app, handle, chunks, deadline)));
    }
    if !handle.wait(deadline).await {
        ownership::cancel(&model.runtime, handle.relquery());
        return Ok(HttpResponse::GatewayTimeout().json(too_late(handle.relquery().read().spent())));
    }
    // The loop does not wait until the reply is written: how likely prompts were may be much of it.
    let state = handle.relquery().read().clone();
    let reply = match asked.api {
        Api::Completion => HttpResponse::Ok().json(envelope.completion(&state)?),
        Api::Chat => HttpResponse::Ok().json(envelope.chat(&state)?),
    };
    Ok(reply)
}
