//! `/v1/messages`: one answer to a conversation, in the shape of Anthropic's API.

use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use serving::caller::Caller;
use serving::clock::Late;
use serving::error::RequestError;
use serving::ownership;

use super::openai::{begin, ignored_header, of_client, stream, with_ignored};
use crate::auth::Authenticated;
use crate::error::{ApiError, Refusals};
use crate::routes::{ForModel, Prepare, ask_timely, only_post};
use crate::services::openai::{self as lower, PreparedRequest};
use crate::state::App;
use crate::wire::anthropic::{AnthropicMessage, MessageEnvelope, MessageError, MessageEvents};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/messages")
                .route(web::post().to(create_message))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/messages/count_tokens")
                .route(web::post().to(count_message_tokens))
                .default_service(web::to(only_post)),
        );
}

/// Answers a conversation.
#[utoipa::path(
    post, path = "/v1/messages", tag = "anthropic",
    request_body(content = Object, description = "model, max_tokens, messages (user and assistant, whose last one is continued; blocks of text, \
        tool_use and tool_result), system, stop_sequences, temperature, top_p, top_k, stream, tools (custom), tool_choice, output_config.format \
        (json_schema), metadata; thinking and context_management without effect; beyond Anthropic what /v1/chat/completions takes beyond OpenAI. Errors have Anthropic's shape."),
    responses((status = 200, body = AnthropicMessage), Refusals),
    security(("key" = []))
)]
pub async fn create_message(
    app: Data<App>,
    caller: Result<Authenticated, ApiError>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, MessageError> {
    let Authenticated(caller) = caller?;
    let (model, asked) = read(&app, caller, &request, payload, lower::message).await?;
    let asked = of_client(asked, request.headers())?;
    let ignored = ignored_header(&asked.ignored);
    let prompt = asked.prompt_tokens();
    let (is_stream, deadline, tools) = (asked.stream, asked.work.deadline, asked.tools);
    let Ok(handle) = begin(&app, &model, caller, asked.work).await? else {
        return Err(RequestError::Deadline.into());
    };
    let envelope = MessageEnvelope::new(handle.relquery(), model.model(), prompt);
    let envelope = envelope.calling(tools).stopping_at(asked.stops);
    if is_stream {
        let talk = stream::Talk::Messages(Box::new(MessageEvents::new(envelope)));
        let reply = crate::stream::reply(stream::events_of(app, handle, talk, deadline));
        return Ok(with_ignored(reply, ignored));
    }
    if !handle.wait(deadline).await {
        ownership::cancel(&model.runtime, handle.relquery());
        return Err(RequestError::Deadline.into());
    }
    let reply = envelope.reply(&handle.relquery().read())?;
    Ok(with_ignored(HttpResponse::Ok().json(reply), ignored))
}

/// Counts the tokens of a conversation, which is not run.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "anthropic",
    request_body(content = Object, description = "what /v1/messages takes; max_tokens may be left out"),
    responses(
        (status = 200, body = Object, description = "input_tokens"),
        (status = 501, body = crate::error::ErrorBody, description = "replicas without a tokenizer here (setting model.tokenizer)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn count_message_tokens(
    app: Data<App>,
    caller: Result<Authenticated, ApiError>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, MessageError> {
    let Authenticated(caller) = caller?;
    let (model, asked) = read(&app, caller, &request, payload, lower::message_to_count).await?;
    if !model.model().has_ids() {
        return Err(RequestError::NotConfigured("model.tokenizer").into());
    }
    let counted = json!({"input_tokens": asked.prompt_tokens()});
    Ok(with_ignored(HttpResponse::Ok().json(counted), ignored_header(&asked.ignored)))
}

/// Reads a request before its deadline.
async fn read(
    app: &Data<App>,
    caller: Caller,
    request: &HttpRequest,
    payload: Payload,
    prepare: Prepare<PreparedRequest>,
) -> Result<ForModel<PreparedRequest>, MessageError> {
    match ask_timely((app, caller), request, payload, prepare).await? {
        (Ok(asked), _) => Ok(asked),
        (Err(Late), _) => Err(RequestError::Deadline.into()),
    }
}
