//! `/v1/batches`: files of requests, run in the background. OpenAI's shape.

use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use store::Page;

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::Refusals;
use crate::kept_replies::key_of;
use crate::routes::{get_only, number, only_get_post, only_post, read_body};
use crate::services::batches::{self, Batch};
use crate::state::App;
use crate::wire::batches::{self as wire, BatchReply};
use crate::wire::files::List;

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/batches")
                .route(web::get().to(list))
                .route(web::post().to(create))
                .default_service(web::to(only_get_post)),
        )
        .service(get_only("/v1/batches/{id}", read))
        .service(
            web::resource("/v1/batches/{id}/cancel")
                .route(web::post().to(cancel))
                .default_service(web::to(only_post)),
        );
}

/// Batches on a list where the client does not say, and most of them.
const LISTED: (u32, u32) = (20, 100);

async fn reply(app: &App, batch: &Batch) -> Result<BatchReply, ApiError> {
    Ok(BatchReply::new(batch, batches::counts(app, batch).await?))
}

/// Makes a batch out of a file.
#[utoipa::path(
    post, path = "/v1/batches", tag = "batches",
    request_body(content = Object, description = "input_file_id, endpoint (/v1/chat/completions or /v1/completions), \
        completion_window (`24h`; beyond OpenAI any number of hours), metadata, output_expires_after (`{\"anchor\": \
        \"created_at\", \"seconds\": 3600 to 2592000}`)"),
    responses(
        (status = 200, body = BatchReply),
        Refusals,
    ),
    params(("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = "^[!-~]+$", description = "Names this batch for good: sent again with the \
        same body, it gives the same batch, restarts included.")),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let key = key_of(request.headers())?.map(str::to_owned);
    let body = read_body(&app, &request, payload).await?;
    let asked = wire::request(crate::json::object(&body)?, &app.config.bulk)?;
    let batch = batches::create(&app, caller, asked, key.as_deref()).await?;
    Ok(HttpResponse::Ok().json(reply(&app, &batch).await?))
}

/// Which part of a list.
#[derive(Debug, Deserialize)]
pub struct BatchListQuery {
    after: Option<String>,
    limit: Option<String>,
}

/// The caller's batches, newest first.
#[utoipa::path(
    get, path = "/v1/batches", tag = "batches",
    params(("after" = Option<String>, Query), ("limit" = Option<u32>, Query, minimum = 1, maximum = 100)),
    responses((status = 200, body = List<BatchReply>)), security(("key" = []))
)]
pub async fn list(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    wanted: Query<BatchListQuery>,
) -> Result<HttpResponse, ApiError> {
    let limit = number("limit", wanted.limit.as_deref(), LISTED)?;
    let page = Page { after: wanted.after.as_deref(), limit: limit + 1 };
    let mut replies = Vec::new();
    for batch in batches::list(&app, caller.tenant, page).await? {
        replies.push(reply(&app, &batch).await?);
    }
    Ok(HttpResponse::Ok().json(List::new(replies, limit, |batch: &BatchReply| &batch.id)))
}

/// A batch as it stands.
#[utoipa::path(
    get, path = "/v1/batches/{id}", tag = "batches", params(("id" = String, Path)),
    responses((status = 200, body = BatchReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let batch = batches::find(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().json(reply(&app, &batch).await?))
}

/// Calls a batch off. What it has done is kept, in its files.
#[utoipa::path(
    post, path = "/v1/batches/{id}/cancel", tag = "batches", params(("id" = String, Path)),
    responses((status = 200, body = BatchReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn cancel(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let batch = batches::cancel(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().json(reply(&app, &batch).await?))
}
