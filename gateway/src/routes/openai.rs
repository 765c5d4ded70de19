//! The OpenAI set: `/v1/models`, `/v1/completions`, `/v1/chat/completions`.
//!
//! A completion is a relQuery with one row per prompt; what it says streams from the same relQuery. Errors
//! are those of the whole request, because this API has none per prompt.

mod stream;

use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serving::caller::Caller;
use serving::clock::Late;
use serving::ownership;
use serving::relquery_state::Usage;
use serving::submit::{self, Resumed};

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::too_late;
use crate::error::{ErrorBody, Refusals};
use crate::models::ServedModel;
use crate::routes::{ask_timely, get_only, only_post};
use crate::services::openai::{self as lower, PreparedRequest};
use crate::state::App;
use crate::wire::label;
use crate::wire::openai::{Api, ChatChoice, CompletionChoice, Envelope, ModelList, ModelObject, Reply};

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
        );
}

/// The models that can be called.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai",
    responses((status = 200, body = ModelList), (status = 401, body = ErrorBody)), security(("key" = []))
)]
pub async fn models(app: Data<App>, _: Authenticated) -> HttpResponse {
    HttpResponse::Ok().json(ModelList { object: "list", data: models_of(&app) })
}

/// All models, each by its name and by its aliases.
fn models_of(app: &App) -> Vec<ModelObject> {
    app.models.iter().flat_map(|model| ModelObject::all(model.model())).collect()
}

/// A model by its name or an alias.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = ModelObject), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn model(app: Data<App>, _: Authenticated, id: Path<String>) -> Result<HttpResponse, ApiError> {
    let known = models_of(&app).into_iter().find(|known| known.id == *id);
    let known = known.ok_or_else(|| app.models.unknown(&id))?;
    Ok(HttpResponse::Ok().json(known))
}

/// Completes prompts: text (taken as data: nothing in it becomes a special token) or token ids.
#[utoipa::path(
    post, path = "/v1/completions", tag = "openai",
    request_body(content = Object, description = "model, prompt, max_tokens (default 16), temperature, top_p, top_k, \
        seed, stop, stream, stream_options.include_usage; beyond OpenAI: response_format, structured_outputs, guided_choice, \
        guided_regex, guided_json, constraint, ignore_eos, class, cache, deadline_ms; logprobs (0 to 20) where servers run \
        rows. What is not supported is refused by name unless it changes nothing."),
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
    match ask_timely((&app, caller), &request, payload, lower::completion).await? {
        (Ok((model, asked)), _) => {
            let asked = asked.labelled(label::of_client(request.headers()));
            answer(app, &model, caller, asked).await
        }
        (Err(Late), peek) => Ok(late(peek.is_stream())),
    }
}

/// Answers a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai",
    request_body(content = Object, description = "model, messages (system, developer, user, assistant; text only), \
        max_completion_tokens or max_tokens (the most that is said; never more than the context leaves), temperature, top_p, top_k, seed, stop, \
        response_format (json_object, json_schema), stream, stream_options.include_usage; beyond OpenAI: structured_outputs, \
        guided_choice, guided_regex, guided_json, constraint, ignore_eos, class, cache, deadline_ms; logprobs, top_logprobs \
        (0 to 20) where servers run rows. What is not supported is refused by name unless it changes nothing."),
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
    match ask_timely((&app, caller), &request, payload, lower::chat).await? {
        (Ok((model, asked)), _) => {
            let asked = asked.labelled(label::of_client(request.headers()));
            answer(app, &model, caller, asked).await
        }
        (Err(Late), peek) => Ok(late(peek.is_stream())),
    }
}

/// The reply where the deadline passed before the work began, in the shape that is waited for.
pub(crate) fn late(is_stream: bool) -> HttpResponse {
    if is_stream {
        return crate::stream::reply(stream::late());
    }
    HttpResponse::GatewayTimeout().json(too_late(Usage::default()))
}

/// Runs what was asked and answers in its shape. Dropping this future (the client is gone) cancels the work.
pub(crate) async fn answer(
    app: Data<App>,
    model: &ServedModel,
    caller: Caller,
    asked: PreparedRequest,
) -> Result<HttpResponse, ApiError> {
    let deadline = asked.work.deadline;
    let submitted = submit::submit(&model.runtime, caller, asked.work, Resumed::default());
    let Ok(handle) = app.runtime.shared.clock.within(deadline, submitted).await else {
        return Ok(late(asked.stream));
    };
    let handle = handle?;
    let envelope = Envelope::new(asked.api, handle.relquery(), model.model());
    if asked.stream {
        return Ok(crate::stream::reply(stream::chunks(
            app,
            handle,
            envelope,
            asked.include_usage,
            deadline,
        )));
    }
    if !handle.wait(deadline).await {
        ownership::cancel(&model.runtime, handle.relquery());
        return Ok(HttpResponse::GatewayTimeout().json(too_late(handle.relquery().read().spent())));
    }
    let state = handle.relquery().read();
    let reply = match asked.api {
        Api::Completion => HttpResponse::Ok().json(envelope.completion(&state)?),
        Api::Chat => HttpResponse::Ok().json(envelope.chat(&state)?),
    };
    Ok(reply)
}
