//! vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info`: the tokens that the model gets of a prompt or a conversation,
//! the text of tokens, and what the tokenizer is.

use std::sync::Arc;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Data, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serving::error::internal;

use super::openai::{ignored_header, with_ignored};
use crate::auth::Authenticated;
use crate::error::{ApiError, Refusals};
use crate::routes::{ModelQuery, ask, get_only, post_only};
use crate::services::tokenize::{self as lower, ReplyWithIgnored};
use crate::state::App;
use crate::wire::openai::{DetokenizeReply, TokenizeReply};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(post_only("/tokenize", tokenize))
        .service(post_only("/detokenize", detokenize))
        .service(get_only("/tokenizer_info", tokenizer_info));
}

/// The tokens of a prompt or of a conversation, which is not run.
#[utoipa::path(
    post, path = "/tokenize", tag = "openai",
    request_body(content = Object, description = "model; prompt (a text), or messages, tools, chat_template_kwargs, \
        add_generation_prompt and continue_final_message as /v1/chat/completions takes them; add_special_tokens (of a prompt \
        true where it is absent), return_token_strs"),
    responses(
        (status = 200, body = TokenizeReply),
        (status = 501, body = crate::error::ErrorBody, description = "replicas without a tokenizer here (setting model.tokenizer)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn tokenize(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (_, reply) = ask((&app, caller), &request, payload, lower::tokenize).await?;
    Ok(replied(reply))
}

/// The text of tokens.
#[utoipa::path(
    post, path = "/detokenize", tag = "openai",
    request_body(content = Object, description = "model, tokens (ids)"),
    responses(
        (status = 200, body = DetokenizeReply),
        (status = 501, body = crate::error::ErrorBody, description = "replicas without a tokenizer here (setting model.tokenizer)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn detokenize(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (_, reply) = ask((&app, caller), &request, payload, lower::detokenize).await?;
    Ok(replied(reply))
}

/// What a model's tokenizer is: its class, special and added tokens, chat template and longest prompt.
#[utoipa::path(
    get, path = "/tokenizer_info", tag = "openai", params(("model" = Option<String>, Query)),
    responses((status = 200)), security(("key" = []))
)]
pub async fn tokenizer_info(
    app: Data<App>,
    _: Authenticated,
    asked: Query<ModelQuery>,
) -> Result<HttpResponse, ApiError> {
    let model = Arc::clone(asked.of(&app)?);
    let json = web::block(move || lower::tokenizer_info(model.model())).await.map_err(internal)??;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(json))
}

fn replied(ReplyWithIgnored { json, ignored }: ReplyWithIgnored) -> HttpResponse {
    let reply = HttpResponse::Ok().content_type(ContentType::json()).body(json);
    with_ignored(reply, ignored_header(&ignored))
}
