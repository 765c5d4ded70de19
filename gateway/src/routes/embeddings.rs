//! `/v1/embeddings`, `/v1/score` and `/v1/rerank`: vectors of texts by the embedding model that corpora have, and how
//! near texts are to each other; and `/pooling`, vLLM's shape of vectors.

use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serving::error::{RequestError, internal};

use super::openai::{ignored_header, with_ignored};
use crate::auth::Authenticated;
use crate::error::{ApiError, Refusals};
use crate::json::JsonFields;
use crate::routes::{post_only, read_body};
use crate::services::corpora;
use crate::services::embeddings::{Embedded, vectors};
use crate::state::App;
use crate::wire::embeddings::{
    CompareRequest, EmbeddingLimits, EmbeddingsReply, EmbeddingsRequest, PoolingReply, RerankReply,
    ScoresReply, Texts,
};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(post_only("/v1/embeddings", embeddings))
        .service(post_only("/v1/score", score))
        .service(post_only("/v1/rerank", rerank))
        .service(post_only("/pooling", pooling));
}

/// The vectors of texts.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "openai",
    request_body(content = Object, description = "model (the embedding model's name), input (a text or several; no token ids), \
        encoding_format (float, base64), dimensions (fewer than the model's are its first ones), \
        truncate_prompt_tokens (-1: of a text that is too long the beginning)"),
    responses(
        (status = 200, body = EmbeddingsReply),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn embeddings(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = read(&app, &request, payload, EmbeddingsRequest::read).await?;
    let Embedded { model, vectors } = vectors(&app, (caller.tenant, "embeddings"), &asked.texts).await?;
    let reply = EmbeddingsReply::new(&model, &vectors, (asked.dims, asked.encoding));
    Ok(replied(reply, &asked.texts))
}

/// The vectors of texts in vLLM's shape.
#[utoipa::path(
    post, path = "/pooling", tag = "openai",
    request_body(content = Object, description = "what /v1/embeddings takes, and task (embed)"),
    responses(
        (status = 200, body = PoolingReply),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn pooling(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = read(&app, &request, payload, EmbeddingsRequest::read_pooling).await?;
    let Embedded { model, vectors } = vectors(&app, (caller.tenant, "embeddings"), &asked.texts).await?;
    let shared = &app.runtime.shared;
    let made = (shared.ids.next(), shared.clock.unix_ms() / 1_000);
    let reply = PoolingReply::new(made, &model, &vectors, (asked.dims, asked.encoding));
    Ok(replied(reply, &asked.texts))
}

/// How near texts are to others.
#[utoipa::path(
    post, path = "/v1/score", tag = "openai",
    request_body(content = Object, description = "model, text_1 (a text, or as many as text_2 has), text_2 (a text or several), \
        truncate_prompt_tokens; queries and documents or items, or data_1 and data_2, are other names of the two"),
    responses(
        (status = 200, body = ScoresReply),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn score(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = read(&app, &request, payload, CompareRequest::read_score).await?;
    let Embedded { model, vectors } = vectors(&app, (caller.tenant, "score"), &asked.texts).await?;
    let id = app.runtime.shared.ids.next();
    Ok(replied(ScoresReply::new(id, &model, (&vectors, asked.firsts)), &asked.texts))
}

/// Documents in the order of their nearness to a question.
#[utoipa::path(
    post, path = "/v1/rerank", tag = "openai",
    request_body(content = Object, description = "model, query (a text), documents (texts, or objects with a `text`), \
        top_n (how many are told; all of them where it is 0), truncate_prompt_tokens"),
    responses(
        (status = 200, body = RerankReply),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn rerank(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = read(&app, &request, payload, CompareRequest::read_rerank).await?;
    let Embedded { model, vectors } = vectors(&app, (caller.tenant, "rerank"), &asked.texts).await?;
    let top = asked.top.unwrap_or(asked.texts.texts.len());
    let reply = RerankReply::new(app.runtime.shared.ids.next(), &model, &asked.texts.texts, (&vectors, top));
    Ok(replied(reply, &asked.texts))
}

/// A reply, with the names of the request's fields that were left out.
fn replied(reply: impl Serialize, asked: &Texts) -> HttpResponse {
    with_ignored(HttpResponse::Ok().json(reply), ignored_header(&asked.ignored))
}

/// Reads a body's fields off the connection's thread. Its model is the embedding model, which is none of those that
/// run relQueries.
async fn read<T: Send + 'static>(
    app: &Data<App>,
    request: &HttpRequest,
    payload: Payload,
    read: fn(JsonFields, EmbeddingLimits<'_>) -> Result<T, RequestError>,
) -> Result<T, ApiError> {
    let dims = corpora::dims(app)?;
    let bytes = read_body(app, request, payload).await?;
    let state = app.clone();
    let work = web::block(move || {
        let config = &state.config;
        let limits = EmbeddingLimits {
            limits: &config.limits,
            retrieval: &config.retrieval,
            dims,
            unknown_fields: config.openai.unknown_fields,
        };
        read(crate::json::object(&bytes)?, limits)
    });
    Ok(work.await.map_err(internal)??)
}
