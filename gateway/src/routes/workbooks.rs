//! `/v1/workbooks`: what the page keeps on the server, its versions, and links that show it; `/v1/shared`: what a
//! link shows.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::Millis;
use serde::Deserialize;
use serde_json::json;
use serving::error::internal;
use store::{WorkbookDeleted, WorkbookDraft, WorkbookSaved, WorkbookVersion};

use crate::auth::{self, Authenticated};
use crate::error::{ApiError, ErrorBody};
use crate::routes::{get_only, only_delete, only_get_post, read_body, read_query};
use crate::services::workbooks;
use crate::state::App;
use crate::wire::workbooks::{self as wire, ShareReply, VersionReply, WorkbookReply, WorkbooksReply};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(get_only("/v1/workbooks", list))
        .service(
            web::resource("/v1/workbooks/{id}")
                .route(web::get().to(read))
                .route(web::post().to(save))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_post_delete)),
        )
        .service(get_only("/v1/workbooks/{id}/versions", versions))
        .service(
            web::resource("/v1/workbooks/{id}/shares")
                .route(web::get().to(shares))
                .route(web::post().to(share))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/workbooks/{id}/shares/{share}")
                .route(web::delete().to(end_share))
                .default_service(web::to(only_delete)),
        )
        .service(get_only("/v1/shared", shared));
}

async fn only_get_post_delete() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, POST, DELETE"))
}

/// The caller's workbooks, the one saved last first, and how much of the tenant's quota they take.
#[utoipa::path(
    get, path = "/v1/workbooks", tag = "workbooks", responses((status = 200, body = WorkbooksReply)),
    security(("key" = []))
)]
pub async fn list(app: Data<App>, Authenticated(caller): Authenticated) -> Result<HttpResponse, ApiError> {
    let (workbooks, bytes) = workbooks::list(&app, caller.tenant).await?;
    let bytes_max = app.config.workbooks.tenant_bytes_max;
    Ok(HttpResponse::Ok().json(WorkbooksReply::new(workbooks, bytes, bytes_max)))
}

/// Saves a workbook on top of the version that it stands on. Where another was saved meanwhile nothing is written:
/// 409 with the number that is there.
#[utoipa::path(
    post, path = "/v1/workbooks/{id}", tag = "workbooks", params(("id" = String, Path)),
    request_body(content = Object, description = "name, content (an object, kept as it is), base (the version that \
        the save stands on; 0 of a new workbook), close_version (true: this version stays as it is, the next save, \
        however soon, is another)"),
    responses(
        (status = 200, body = WorkbookReply),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody, description = "it stands on a workbook that is gone"),
        (status = 409, body = ErrorBody, description = "another version was saved meanwhile"),
        (status = 413, body = ErrorBody, description = "the tenant has no room; the message names the setting"),
    ),
    security(("key" = []))
)]
pub async fn save(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    let body = read_body(&app, &request, payload).await?;
    // Off the connection's thread: a workbook may have megabytes.
    let wanted = web::block(move || wire::save(crate::json::object(&body)?)).await.map_err(internal)??;
    let draft = WorkbookDraft {
        id: &id,
        name: &wanted.name,
        content: &wanted.content,
        base: wanted.base,
        closes: wanted.closes,
    };
    match workbooks::save(&app, caller.tenant, draft).await? {
        WorkbookSaved::Yes(saved) => Ok(HttpResponse::Ok().json(WorkbookReply::from(saved))),
        WorkbookSaved::Gone => Err(workbooks::gone(&id).into()),
        WorkbookSaved::Stale(there) => Err(ApiError::StaleVersion(format!(
            "the workbook `{id}` is at version {} and this save stands on {}: read it first",
            there.version, wanted.base
        ))),
    }
}

/// The query of a workbook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionQuery {
    version: Option<String>,
}

impl VersionQuery {
    /// The number of a version.
    fn number(&self) -> Result<Option<u64>, ApiError> {
        read_query("version", self.version.as_deref(), "must be the number of a version")
    }
}

/// A workbook's newest version with its content, or the kept version of a number.
#[utoipa::path(
    get, path = "/v1/workbooks/{id}", tag = "workbooks",
    params(("id" = String, Path), ("version" = Option<u64>, Query)),
    responses((status = 200, body = VersionReply), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    asked: Query<VersionQuery>,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    let found = workbooks::read(&app, caller.tenant, &id, asked.number()?).await?;
    with_content(found)
}

/// A reply of a version with its content.
fn with_content((version, content): (WorkbookVersion, String)) -> Result<HttpResponse, ApiError> {
    let json = VersionReply::with_content(version, &content)?;
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(json))
}

/// The versions of a workbook that are kept, the newest first: the last save of each five minutes
/// (`workbooks.version_ms`).
#[utoipa::path(
    get, path = "/v1/workbooks/{id}/versions", tag = "workbooks", params(("id" = String, Path)),
    responses((status = 200, body = Vec<VersionReply>), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn versions(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    let versions = workbooks::versions(&app, caller.tenant, &id).await?;
    let data: Vec<_> = versions.into_iter().map(VersionReply::from).collect();
    Ok(HttpResponse::Ok().json(json!({ "object": "list", "data": data })))
}

/// Deletes a workbook with its versions and links. Where a version is named and another was saved meanwhile nothing
/// is deleted: 409 with the number that is there.
#[utoipa::path(
    delete, path = "/v1/workbooks/{id}", tag = "workbooks",
    params(("id" = String, Path), ("version" = Option<u64>, Query)),
    responses(
        (status = 200), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "another version was saved meanwhile"),
    ),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    asked: Query<VersionQuery>,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    match workbooks::delete(&app, caller.tenant, (&id, asked.number()?)).await? {
        WorkbookDeleted::Yes => {
            let reply = json!({ "id": *id, "object": "workbook.deleted", "deleted": true });
            Ok(HttpResponse::Ok().json(reply))
        }
        WorkbookDeleted::Gone => Err(workbooks::gone(&id).into()),
        WorkbookDeleted::Stale(there) => Err(ApiError::StaleVersion(format!(
            "the workbook `{id}` is at version {}, which is not the one to delete: read it first",
            there.version
        ))),
    }
}

/// Makes a link that shows a workbook to whoever has it, and lets nobody change it. Its token is told once.
#[utoipa::path(
    post, path = "/v1/workbooks/{id}/shares", tag = "workbooks", params(("id" = String, Path)),
    request_body(content = Object, description = "days (how long it works; 30)"),
    responses(
        (status = 200, body = ShareReply),
        (status = 404, body = ErrorBody),
        (status = 413, body = ErrorBody, description = "as many links show it as may; the message names the setting"),
    ),
    security(("key" = []))
)]
pub async fn share(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    let body = read_body(&app, &request, payload).await?;
    let span = wire::share(crate::json::object(&body)?, &app.config.workbooks)?;
    let (share, token) = workbooks::share(&app, (caller.tenant, &id), Millis(span)).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(ShareReply::new(share, Some(token))))
}

/// The links that show a workbook, without their tokens.
#[utoipa::path(
    get, path = "/v1/workbooks/{id}/shares", tag = "workbooks", params(("id" = String, Path)),
    responses((status = 200, body = Vec<ShareReply>), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn shares(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    wire::check_id(&id)?;
    let shares = workbooks::shares(&app, caller.tenant, &id).await?;
    let data: Vec<_> = shares.into_iter().map(|share| ShareReply::new(share, None)).collect();
    Ok(HttpResponse::Ok().json(json!({ "object": "list", "data": data })))
}

/// Ends a link.
#[utoipa::path(
    delete, path = "/v1/workbooks/{id}/shares/{share}", tag = "workbooks",
    params(("id" = String, Path), ("share" = u64, Path)),
    responses((status = 200), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn end_share(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    place: Path<(String, String)>,
) -> Result<HttpResponse, ApiError> {
    let (id, share) = place.into_inner();
    wire::check_id(&id)?;
    let share = share.parse().map_err(|_| workbooks::share_gone(&id, &share))?;
    workbooks::end_share(&app, caller.tenant, &id, share).await?;
    Ok(HttpResponse::Ok().json(json!({ "id": share, "object": "workbook.share.deleted", "deleted": true })))
}

/// What a link shows: the newest version of its workbook. The link's token stands where a key stands elsewhere, so
/// that no address has it.
#[utoipa::path(
    get, path = "/v1/shared", tag = "workbooks",
    responses(
        (status = 200, body = VersionReply),
        (status = 401, body = ErrorBody, description = "the link ended or never was"),
    ),
    security(("key" = []))
)]
pub async fn shared(app: Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let found = match auth::bearer(&request) {
        Some(token) => workbooks::shared(&app, &token).await?,
        None => None,
    };
    with_content(found.ok_or(ApiError::InvalidToken("this link has ended, or never was; ask for another"))?)
}
