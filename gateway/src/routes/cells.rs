//! `/v1/cells`: a batch of cell-function calls, each with its own value or error.

use std::sync::Arc;

use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;
use serving::Runtime;
use serving::error::internal;
use serving::relquery_state::{AnswerRow, RelQueryState, Status};

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::kept_replies;
use crate::routes::relqueries::answered;
use crate::routes::start::{Incoming, Started, start};
use crate::routes::{TRUE_OR_FALSE, ask, only_get_delete, only_post, read_query};
use crate::services::lookup::{call_off, look_up};
use crate::services::prepare::Wanted as _;
use crate::services::prepare::cells::WantedCells;
use crate::state::App;
use crate::stream::{self, RowFormat, event};
use crate::wire::cell_prompts::CellPromptsReply;
use crate::wire::cells::{CellReply, CellsReply};
use crate::wire::relquery::ReplyShape;

/// Prefix of public ids.
const PREFIX: &str = "cl-";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(web::resource("/v1/cells").route(web::post().to(create)).default_service(web::to(only_post)))
        .service(
            web::resource("/v1/cells/prompts")
                .route(web::post().to(prompts))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/cells/{id}")
                .route(web::get().to(read))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_delete)),
        );
}

/// What is told of cells.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellsQuery {
    details: Option<String>,
}

impl CellsQuery {
    /// Whether each cell comes with its tokens, times and source.
    fn has_details(&self) -> Result<bool, ApiError> {
        Ok(read_query("details", self.details.as_deref(), TRUE_OR_FALSE)?.unwrap_or(false))
    }
}

/// Runs cell-function calls; `GET /v1/catalogue` lists the functions.
#[utoipa::path(
    post, path = "/v1/cells", tag = "cells",
    request_body(content = Object, description = "calls: [{function, args, constraint, label}], labels, deadline_ms, cache, stream, \
        guidance: {examples, constraints, calibration}, each true or false"),
    responses(
        (status = 200, body = CellsReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 409, body = crate::error::ErrorBody, description = "another gateway runs the request of the idempotency key"),
        (status = 422, body = crate::error::ErrorBody, description = "the idempotency key names another request"),
        (status = 429, body = crate::error::ErrorBody),
    ),
    params(("details" = Option<bool>, Query, description = "with each cell's tokens, times and source"),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = "^[!-~]+$", description = "Names this request for good: sent again \
        with the same body, it gets the same run and its answers, also while that is under way; once it is over or has a ticket also from another \
        gateway and after a restart, for `store.ticket_ms_max`. Forgotten when every client left before the end.")),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    query: Query<CellsQuery>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let details = query.has_details()?;
    let incoming = Incoming { request: &request, payload };
    let Started { handle, stream, deadline, for_ticket } =
        start::<WantedCells>(&app, caller, incoming, PREFIX).await?;
    if stream {
        return Ok(stream::reply(stream::rows(app, handle, Cells { details }, deadline, for_ticket)));
    }
    let runtime = Arc::clone(handle.runtime());
    let relquery = answered(&app, handle, deadline, &for_ticket).await?;
    let shape = ReplyShape { rows: true, partial: true };
    // Asked first, as of `/v1/relqueries`.
    let is_unfinished = *relquery.read().shown_status() == Status::Running;
    let response = HttpResponse::Ok().json(CellsReply::new(&relquery, &runtime.model, shape, details));
    Ok(kept_replies::unfinished_if(is_unfinished, response))
}

/// The events of a batch of cells.
struct Cells {
    details: bool,
}

impl RowFormat for Cells {
    fn row(&self, relquery: &RelQueryState, index: u32, row: &AnswerRow) -> String {
        let cell = CellReply::new(relquery, index, row, self.details);
        event("cell", &CellReply { index: Some(index), ..cell })
    }

    fn done(&self, runtime: &Runtime, relquery: &RelQueryState, partial: bool) -> String {
        let shape = ReplyShape { rows: false, partial };
        event("done", &CellsReply::new(relquery, &runtime.model, shape, false))
    }
}

/// A batch of cells as it stands.
#[utoipa::path(
    get, path = "/v1/cells/{id}", tag = "cells",
    params(("id" = String, Path), ("details" = Option<bool>, Query)),
    responses((status = 200, body = CellsReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    query: Query<CellsQuery>,
) -> Result<HttpResponse, ApiError> {
    let details = query.has_details()?;
    let (model, relquery) = look_up(&app, caller, PREFIX, &id).await?;
    let shape = ReplyShape { rows: true, partial: false };
    Ok(HttpResponse::Ok().json(CellsReply::new(&relquery, model.model(), shape, details)))
}

/// Calls a batch of cells off.
#[utoipa::path(
    delete, path = "/v1/cells/{id}", tag = "cells", params(("id" = String, Path)),
    responses((status = 200), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let cancelled = call_off(&app, caller, PREFIX, &id).await?;
    Ok(HttpResponse::Ok().json(json!({ "id": *id, "object": "cells.deleted", "cancelled": cancelled })))
}

/// The prompts that calls would be sent as, with their tokens; nothing runs.
#[utoipa::path(
    post, path = "/v1/cells/prompts", tag = "cells",
    request_body(content = Object, description = "as of `POST /v1/cells`"),
    responses((status = 200, body = CellPromptsReply), (status = 400, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn prompts(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (model, prepared) = ask((&app, caller), &request, payload, WantedCells::prepare).await?;
    // Texts of thousands of prompts: off the connection's thread.
    let reply = web::block(move || CellPromptsReply::new(&prepared.work, model.model()));
    Ok(HttpResponse::Ok().json(reply.await.map_err(internal)?))
}
