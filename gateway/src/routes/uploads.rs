//! `/v1/uploads`: files that come in parts. OpenAI's shape.

use actix_multipart::Multipart;
use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt as _;

use crate::auth::Authenticated;
use crate::error::{ApiError, ErrorBody, Refusals};
use crate::routes::files::{broken, check_form, patient};
use crate::routes::{only_post, read_body};
use crate::services::uploads::{self, UploadPart};
use crate::state::App;
use crate::wire::uploads::{self as wire, UploadPartReply, UploadReply};

/// The field of a form that has the part.
const DATA: &str = "data";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/uploads").route(web::post().to(create)).default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/uploads/{id}/parts")
                .route(web::post().to(add_part))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/uploads/{id}/complete")
                .route(web::post().to(complete))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/uploads/{id}/cancel")
                .route(web::post().to(cancel))
                .default_service(web::to(only_post)),
        );
}

/// Begins an upload: says what file is to come.
#[utoipa::path(
    post, path = "/v1/uploads", tag = "batches",
    request_body(content = Object, description = "filename, purpose (as of `/v1/files`), bytes (of the whole file), mime_type, \
        expires_after (`{\"anchor\": \"created_at\", \"seconds\": 3600 to 2592000}`: of the file)"),
    responses(
        (status = 200, body = UploadReply),
        (status = 413, body = ErrorBody, description = "the tenant has no room for the file"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = read_body(&app, &request, payload).await?;
    let wanted = wire::request(crate::json::object(&body)?, &app.config.bulk)?;
    let upload = uploads::create(&app, caller.tenant, &wanted).await?;
    Ok(HttpResponse::Ok().json(UploadReply::new(&upload, None)))
}

/// Adds a part. Parts may come at once and in any order.
#[utoipa::path(
    post, path = "/v1/uploads/{id}/parts", tag = "batches", params(("id" = String, Path)),
    request_body(content = Object, content_type = "multipart/form-data", description = "data (at most 64 MiB)"),
    responses(
        (status = 200, body = UploadPartReply),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 413, body = ErrorBody),
        (status = 429, body = ErrorBody, description = "it does not fit beside parts that are still coming"),
    ),
    security(("key" = []))
)]
pub async fn add_part(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    check_form(&request, DATA)?;
    let mut part = UploadPart::begin(&app, caller.tenant, &id).await?;
    let mut form = Multipart::new(request.headers(), payload);
    match take(&app, &mut form, &mut part).await {
        Ok(part_id) => {
            let created_at = app.runtime.shared.unix_now().0 / 1_000;
            let upload_id = id.into_inner();
            let reply = UploadPartReply { id: part_id, object: "upload.part", created_at, upload_id };
            Ok(HttpResponse::Ok().json(reply))
        }
        Err(error) => {
            part.discard().await;
            Err(error)
        }
    }
}

/// Streams a form's one field into the store; the part's id.
async fn take(app: &App, form: &mut Multipart, part: &mut UploadPart) -> Result<String, ApiError> {
    let mut is_there = false;
    while let Some(field) = patient(app, form.next()).await? {
        let mut field = field.map_err(|cause| broken(DATA, cause))?;
        match field.name().unwrap_or_default() {
            DATA if is_there => return Err(ApiError::invalid(DATA, "is there twice")),
            DATA => is_there = true,
            other => return Err(ApiError::invalid(other, "is not a field of this form")),
        }
        while let Some(piece) = patient(app, field.next()).await? {
            part.push(&piece.map_err(|cause| broken(DATA, cause))?).await?;
        }
    }
    if !is_there {
        return Err(ApiError::invalid(DATA, "is required"));
    }
    part.finish(app).await
}

/// Puts parts together to a file. One that is completed is told again, one that is being completed is a 429.
#[utoipa::path(
    post, path = "/v1/uploads/{id}/complete", tag = "batches", params(("id" = String, Path)),
    request_body(content = Object, description = "part_ids (in their order), md5 (of the whole file)"),
    responses(
        (status = 200, body = UploadReply),
        (status = 404, body = ErrorBody),
        (status = 413, body = ErrorBody, description = "the tenant has no room for the file"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn complete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = read_body(&app, &request, payload).await?;
    let wanted = wire::completion(crate::json::object(&body)?)?;
    let (upload, file) = uploads::complete(&app, caller.tenant, (&id, wanted)).await?;
    Ok(HttpResponse::Ok().json(UploadReply::new(&upload, file.as_ref())))
}

/// Calls an upload off: its parts are deleted. One that was called off is told again.
#[utoipa::path(
    post, path = "/v1/uploads/{id}/cancel", tag = "batches", params(("id" = String, Path)),
    responses(
        (status = 200, body = UploadReply),
        (status = 400, body = ErrorBody, description = "it is completed"),
        (status = 404, body = ErrorBody)
    ),
    security(("key" = []))
)]
pub async fn cancel(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let upload = uploads::cancel(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().json(UploadReply::new(&upload, None)))
}
