//! `/v1/relqueries`: run a template over rows, look at a run, call it off.

use std::sync::Arc;

use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use serving::Runtime;
use serving::clock::Deadline;
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::relquery_state::{AnswerRow, RelQueryState, Status};

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::kept_replies;
use crate::routes::start::{Incoming, Started, start};
use crate::routes::{only_get_delete, only_post};
use crate::services::lookup::{call_off, look_up};
use crate::services::tickets::{self, TicketRequest};
use crate::state::App;
use crate::stream::{self, RowFormat, event};
use crate::wire::relquery::{RelQueryReply, RelQueryRequest, ReplyShape, RowReply};

/// Prefix of public ids.
const PREFIX: &str = "rq-";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/relqueries").route(web::post().to(create)).default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/relqueries/{id}")
                .route(web::get().to(read))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_delete)),
        );
}

/// Runs a template over rows.
#[utoipa::path(
    post, path = "/v1/relqueries", tag = "relqueries",
    request_body(content = Object, description = "template, rows, columns, system, max_tokens, temperature, top_p, \
        top_k, seed, stop, ignore_eos, constraint ({choice: [..]}, {integer: {min, max}}, {regex} or {json_schema}), chat, \
        order, dependencies, cache, class, label, stream, deadline_ms"),
    responses(
        (status = 200, body = RelQueryReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 409, body = crate::error::ErrorBody, description = "another gateway runs the request of the idempotency key"),
        (status = 422, body = crate::error::ErrorBody, description = "the idempotency key names another request"),
        (status = 429, body = crate::error::ErrorBody),
    ),
    params(("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = "^[!-~]+$", description = "Names this request for good: sent again \
        with the same body, it gets the same run and its answers, also while that is under way; once it is over or has a ticket also from another \
        gateway and after a restart, for `store.ticket_ms_max`. Forgotten when every client left before the end.")),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let incoming = Incoming { request: &request, payload };
    let Started { handle, stream, deadline, for_ticket } =
        start::<RelQueryRequest>(&app, caller, incoming, PREFIX).await?;
    if stream {
        return Ok(stream::reply(stream::rows(app, handle, RelQueryEvents, deadline, for_ticket)));
    }
    let runtime = Arc::clone(handle.runtime());
    let relquery = answered(&app, handle, deadline, &for_ticket).await?;
    let shape = ReplyShape { rows: true, partial: true };
    // Asked first: a reply that was cut short is not kept as if it were whole, whatever ends meanwhile.
    let is_unfinished = *relquery.read().shown_status() == Status::Running;
    let response = HttpResponse::Ok().json(reply(&runtime, &relquery, shape));
    Ok(kept_replies::unfinished_if(is_unfinished, response))
}

/// Waits for a relQuery's end or its deadline, after which a ticket carries on.
pub(crate) async fn answered(
    app: &Data<App>,
    handle: OwnerHandle,
    deadline: Option<Deadline>,
    for_ticket: &TicketRequest,
) -> Result<Arc<RelQueryState>, RequestError> {
    if !handle.wait(deadline).await {
        return tickets::make(app, handle, for_ticket).await;
    }
    let relquery = Arc::clone(handle.relquery());
    let status = relquery.read().shown_status().clone();
    match status {
        Status::Failed(error) => Err(error),
        Status::Running | Status::Completed | Status::Cancelled => Ok(relquery),
    }
}

/// A relQuery as it stands, on the runtime that runs it.
fn reply(runtime: &Runtime, relquery: &RelQueryState, shape: ReplyShape) -> RelQueryReply {
    RelQueryReply::new(relquery, &runtime.model, runtime.shared.clock.now(), shape)
}

/// The events of a relQuery.
struct RelQueryEvents;

impl RowFormat for RelQueryEvents {
    fn row(&self, _: &RelQueryState, index: u32, row: &AnswerRow) -> String {
        event("row", &RowReply::new(index, row))
    }

    fn done(&self, runtime: &Runtime, relquery: &RelQueryState, partial: bool) -> String {
        event("done", &reply(runtime, relquery, ReplyShape { rows: false, partial }))
    }
}

/// A relQuery as it stands.
#[utoipa::path(
    get, path = "/v1/relqueries/{id}", tag = "relqueries", params(("id" = String, Path)),
    responses((status = 200, body = RelQueryReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (model, relquery) = look_up(&app, caller, PREFIX, &id).await?;
    let shape = ReplyShape { rows: true, partial: false };
    Ok(HttpResponse::Ok().json(reply(&model.runtime, &relquery, shape)))
}

/// Calls a relQuery off.
#[utoipa::path(
    delete, path = "/v1/relqueries/{id}", tag = "relqueries", params(("id" = String, Path)),
    responses((status = 200), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let cancelled = call_off(&app, caller, PREFIX, &id).await?;
    let reply = json!({ "id": *id, "object": "relquery.deleted", "cancelled": cancelled });
    Ok(HttpResponse::Ok().json(reply))
}
