//! SageMaker's `/invocations`, as vLLM has it: a body says by its fields which route it is for, and is answered as there.

use actix_web::error::PayloadError;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse, dev};
use futures_util::StreamExt as _;
use serving::error::{RequestError, internal};

use crate::auth::Authenticated;
use crate::error::{ApiError, Refusals};
use crate::json::JsonFields;
use crate::routes::{embeddings, openai, post_only, read_timely};
use crate::state::App;

/// A route that bodies are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvokedRoute {
    Chat,
    Completion,
    Embeddings,
    Score,
    Rerank,
}

/// A field that bodies of each route have, in the order in which vLLM tries them.
const FIELDS: [(&str, InvokedRoute); 7] = [
    ("messages", InvokedRoute::Chat),
    ("prompt", InvokedRoute::Completion),
    ("input", InvokedRoute::Embeddings),
    ("text_1", InvokedRoute::Score),
    ("queries", InvokedRoute::Score),
    ("data_1", InvokedRoute::Score),
    ("query", InvokedRoute::Rerank),
];

/// The route.
pub fn configure(routes: &mut ServiceConfig) {
    routes.service(post_only("/invocations", invocations));
}

/// What a body of `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/score` or `/v1/rerank` is answered with.
#[utoipa::path(
    post, path = "/invocations", tag = "openai",
    request_body(content = Object, description = "a body of /v1/chat/completions (with messages), /v1/completions (prompt), \
        /v1/embeddings (input), /v1/score (text_1, queries or data_1) or /v1/rerank (query)"),
    responses(
        (status = 200, body = Object, description = "as that route answers"),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn invocations(
    app: Data<App>,
    authenticated: Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = read_timely(&app, &request, payload).await?.body;
    let payload = again(&request, body.clone()).await?;
    let found = web::block(move || route_of(&crate::json::object(&body)?));
    match found.await.map_err(internal)?? {
        InvokedRoute::Chat => openai::chat_completions(app, authenticated, request, payload).await,
        InvokedRoute::Completion => openai::completions(app, authenticated, request, payload).await,
        InvokedRoute::Embeddings => embeddings::embeddings(app, authenticated, request, payload).await,
        InvokedRoute::Score => embeddings::score(app, authenticated, request, payload).await,
        InvokedRoute::Rerank => embeddings::rerank(app, authenticated, request, payload).await,
    }
}

/// The route that a body is for.
fn route_of(fields: &JsonFields) -> Result<InvokedRoute, RequestError> {
    let is_there = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let found = FIELDS.iter().find(|(name, _)| is_there(name));
    found.map(|(_, route)| *route).ok_or_else(|| {
        let names: Vec<&str> = FIELDS[1..].iter().map(|(name, _)| *name).collect();
        let reason = format!("is missing, or one of these fields of other routes: {}", names.join(", "));
        RequestError::invalid(FIELDS[0].0, reason)
    })
}

/// A body that was read, for a route to read.
async fn again(request: &HttpRequest, body: Bytes) -> Result<Payload, ApiError> {
    let body = futures_util::stream::once(async move { Ok::<Bytes, PayloadError>(body) });
    let mut body = dev::Payload::Stream { payload: body.boxed_local() };
    Ok(Payload::from_request(request, &mut body).await.map_err(internal)?)
}
