//! `/v1/files`: inputs of batches in, what batches leave out. OpenAI's shape.

use std::time::Duration;

use actix_multipart::{Field, Multipart};
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use actix_web::web::{self, Bytes, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use serving::caller::Caller;
use serving::error::stored;
use serving::error::{RequestError, internal, of_store};
use store::Page;

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::routes::{get_only, number, only_get_delete, only_get_post};
use crate::services::encoded::content_of;
use crate::services::files::{self, Draft, FileWriter, Lines, NewUpload, received};
use crate::services::sql::uploads as sql_uploads;
use crate::services::uploads::{check_purpose, is_encoded};
use crate::state::App;
use crate::wire::files::{FileReply, KEPT_SECONDS, List};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/files")
                .route(web::get().to(list))
                .route(web::post().to(upload))
                .default_service(web::to(only_get_post)),
        )
        .service(get_only("/v1/files/{id}/content", content))
        .service(
            web::resource("/v1/files/{id}")
                .route(web::get().to(read))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_delete)),
        );
}

/// Bytes of a form's field other than the file.
const FIELD_BYTES_MAX: usize = 1 << 10;
/// Most of a list at a time.
const LIST_MAX: u32 = 10_000;

/// Uploads a file: for a batch, or as a table of SQL.
#[utoipa::path(
    post, path = "/v1/files", tag = "batches",
    request_body(content = Object, content_type = "multipart/form-data", description = "file, purpose (`batch`: JSONL of requests, \
        UTF-8; `user_data`: a table of SQL, named .csv, .tsv, .jsonl, .ndjson or .parquet), expires_after[anchor] (`created_at`) and expires_after[seconds]"),
    responses(
        (status = 200, body = FileReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 413, body = crate::error::ErrorBody),
        (status = 429, body = crate::error::ErrorBody, description = "it does not fit beside files that are still coming"),
    ),
    security(("key" = []))
)]
pub async fn upload(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    check_form(&request, "file")?;
    let mut form = Form { app: &app, caller, draft: None, purpose: None, expires: None };
    let mut parts = Multipart::new(request.headers(), payload);
    let taken = form.take(&mut parts).await;
    match taken {
        Ok(reply) => Ok(HttpResponse::Ok().json(reply)),
        Err(error) => {
            if let Some(upload) = form.draft {
                upload.draft.discard().await;
            }
            Err(error)
        }
    }
}

/// Refuses what is no form; `field`: what it would have.
pub(super) fn check_form(request: &HttpRequest, field: &str) -> Result<(), ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.to_ascii_lowercase().starts_with("multipart/form-data") {
        return Ok(());
    }
    Err(ApiError::invalid(field, "is required: send a form (multipart/form-data)"))
}

/// A wait for bytes: a client that stalls is given up, one that goes on may take its time.
pub(super) async fn patient<T>(app: &App, wait: impl Future<Output = T>) -> Result<T, ApiError> {
    let patience = Duration::from_millis(app.config.server.body_ms_max.0);
    tokio::time::timeout(patience, wait).await.map_err(|_| ApiError::BodyTimeout)
}

/// The file's part of a form.
struct Upload {
    draft: Draft,
    size: (base::Bytes, u64),
    name: String,
}

/// A form as it comes in; its parts come in any order.
struct Form<'a> {
    app: &'a Data<App>,
    caller: Caller,
    draft: Option<Upload>,
    purpose: Option<String>,
    expires: Option<u64>,
}

impl Form<'_> {
    async fn take(&mut self, parts: &mut Multipart) -> Result<FileReply, ApiError> {
        while let Some(field) = patient(self.app, parts.next()).await? {
            let field = field.map_err(|cause| broken("file", cause))?;
            match field.name().unwrap_or_default() {
                "file" if self.draft.is_some() => return Err(ApiError::invalid("file", "is there twice")),
                "file" => self.file(field).await?,
                "purpose" => self.purpose = Some(self.text(field).await?),
                "expires_after[seconds]" => {
                    let seconds = self.text(field).await?.parse().ok();
                    self.expires = seconds.filter(|seconds| KEPT_SECONDS.contains(seconds));
                    if self.expires.is_none() {
                        let (least, most) = (KEPT_SECONDS.start(), KEPT_SECONDS.end());
                        let reason = format!("must be a number of seconds from {least} to {most}");
                        return Err(ApiError::invalid("expires_after[seconds]", reason));
                    }
                }
                "expires_after[anchor]" => match self.text(field).await?.as_str() {
                    "created_at" => {}
                    _ => return Err(ApiError::invalid("expires_after[anchor]", "must be `created_at`")),
                },
                other => return Err(ApiError::invalid(other, "is not a field of this form")),
            }
        }
        let Some(purpose) = self.purpose.as_deref() else {
            return Err(ApiError::invalid("purpose", "is required"));
        };
        let Some(Upload { draft, size, name }) = &mut self.draft else {
            return Err(ApiError::invalid("file", "is required"));
        };
        check_purpose(purpose, name, "file")?;
        if size.0.0 == 0 {
            return Err(ApiError::invalid("file", "is empty"));
        }
        let kept =
            self.expires.map_or(self.app.config.bulk.keep_ms_max, |seconds| base::Millis(seconds * 1_000));
        let expires = self.app.runtime.shared.unix_now().after(kept);
        Ok(FileReply::new(&draft.finish(purpose, *size, expires).await?))
    }

    async fn text(&self, mut field: Field) -> Result<String, ApiError> {
        let name = field.name().unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(piece) = patient(self.app, field.next()).await? {
            bytes.extend_from_slice(&piece.map_err(|cause| broken("file", cause))?);
            if bytes.len() > FIELD_BYTES_MAX {
                return Err(ApiError::invalid(name, format!("has more than {FIELD_BYTES_MAX} bytes")));
            }
        }
        String::from_utf8(bytes).map_err(|_| ApiError::invalid(name, "is not UTF-8 text"))
    }

    /// Streams the file into the store, a chunk at a time.
    async fn file(&mut self, mut field: Field) -> Result<(), ApiError> {
        let bulk = &self.app.config.bulk;
        let given = field.content_disposition().and_then(|form| form.get_filename());
        let name: String =
            given.unwrap_or("file.jsonl").chars().filter(|c| !c.is_control()).take(255).collect();
        let is_encoded = is_encoded(&name);
        let new = NewUpload { purpose: "batch", name: &name, is_encoded };
        let draft = Draft::receive(self.app, self.caller.tenant, new).await;
        let size = (base::Bytes(0), 0);
        self.draft = Some(Upload { draft: stored(draft)?, size, name });
        let mut writer = FileWriter::of(is_encoded);
        let mut bytes = 0;
        while let Some(piece) = patient(self.app, field.next()).await? {
            let piece = piece.map_err(|cause| broken("file", cause))?;
            bytes += piece.len() as u64;
            if bytes > bulk.file_bytes_max.0 {
                let limit = format!("{} bytes (bulk.file_bytes_max)", bulk.file_bytes_max.0);
                return Err(RequestError::TooLarge { what: "`file`".into(), limit }.into());
            }
            match writer.push(&piece, bulk.line_bytes_max)? {
                Some(chunk) => self.append(&chunk).await?,
                None => self.renew().await?,
            }
        }
        let (chunk, bytes, lines) = writer.end(bulk.line_bytes_max)?;
        if let Some(chunk) = chunk {
            self.append(&chunk).await?;
        }
        if let Some(upload) = &mut self.draft {
            upload.size = (bytes, lines);
        }
        Ok(())
    }

    async fn append(&mut self, chunk: &str) -> Result<(), ApiError> {
        match &mut self.draft {
            Some(upload) => received(upload.draft.take_chunk(None, chunk).await),
            None => Err(internal("a chunk of no file").into()),
        }
    }

    async fn renew(&mut self) -> Result<(), ApiError> {
        match &mut self.draft {
            Some(upload) => received(upload.draft.renew().await),
            None => Ok(()),
        }
    }
}

/// A form that is none, or that broke off.
pub(super) fn broken(field: &str, cause: actix_multipart::MultipartError) -> RequestError {
    RequestError::invalid(field, format!("is not a form that can be read: {cause}"))
}

/// Which part of a list.
#[derive(Debug, Deserialize)]
pub struct FileListQuery {
    after: Option<String>,
    limit: Option<String>,
    order: Option<String>,
    purpose: Option<String>,
}

/// The caller's files.
#[utoipa::path(
    get, path = "/v1/files", tag = "batches",
    params(("after" = Option<String>, Query), ("limit" = Option<u32>, Query, minimum = 1, maximum = 10000), ("order" = Option<String>, Query, pattern = "^(asc|desc)$"),
        ("purpose" = Option<String>, Query)),
    responses((status = 200, body = List<FileReply>)), security(("key" = []))
)]
pub async fn list(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    wanted: Query<FileListQuery>,
) -> Result<HttpResponse, ApiError> {
    let is_ascending = match wanted.order.as_deref() {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(ApiError::invalid("order", "must be `asc` or `desc`")),
    };
    let limit = number("limit", wanted.limit.as_deref(), (LIST_MAX, LIST_MAX))?;
    let page = Page { after: wanted.after.as_deref(), limit: limit + 1 };
    let now = app.runtime.shared.unix_now();
    let found =
        app.runtime.store.files(caller.tenant, wanted.purpose.as_deref(), (page, is_ascending), now).await;
    let replies = stored(found)?.iter().map(FileReply::new).collect();
    Ok(HttpResponse::Ok().json(List::new(replies, limit, |file: &FileReply| &file.id)))
}

/// A file.
#[utoipa::path(
    get, path = "/v1/files/{id}", tag = "batches", params(("id" = String, Path)),
    responses((status = 200, body = FileReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(FileReply::new(&files::find(&app, caller.tenant, &id).await?)))
}

/// Deletes a file. A batch that still reads it fails; what it has done is kept.
#[utoipa::path(
    delete, path = "/v1/files/{id}", tag = "batches", params(("id" = String, Path)),
    responses((status = 200), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let file = files::find(&app, caller.tenant, &id).await?;
    stored(app.runtime.store.delete_file(caller.tenant, &file.id).await)?;
    sql_uploads::forget(&app.config, caller.tenant, &file.id);
    Ok(HttpResponse::Ok().json(json!({ "id": file.id, "object": "file", "deleted": true })))
}

/// What stands in a file.
#[utoipa::path(
    get, path = "/v1/files/{id}/content", tag = "batches", params(("id" = String, Path)),
    responses((status = 200, body = String), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn content(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let file = files::find(&app, caller.tenant, &id).await?;
    let name = file.name.replace(['"', '\\'], "_");
    // Counted down, so that nothing is asked for behind the last byte, where nobody waits for the answer.
    let from = (app, Lines::of(&file.id), file.bytes.0);
    let chunks = stream::try_unfold(from, move |(app, mut lines, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        // An error here cuts the reply short of its declared length, which its client sees.
        let chunk = lines.next(&app).await.map_err(of_store)?;
        let Some(chunk) = chunk else { return Err(internal("a file ends before its length").into()) };
        let content = content_of(file.is_encoded, chunk.text)?;
        let left = left.saturating_sub(content.len() as u64);
        Ok::<_, ApiError>(Some((Bytes::from(content), (app, lines, left))))
    });
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/octet-stream"))
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")))
        .no_chunking(file.bytes.0)
        .streaming(chunks))
}
