//! Uploads in parts: what is to come is said first, its parts come in any order, and then they are put together to a
//! file. Their bytes count among their tenant's files from the start. Must not know HTTP, nor what stands in a file.

use std::sync::Arc;

use base::{Bytes, Millis, TenantId};
use md5::{Digest as _, Md5};
use serving::error::{RequestError, internal, stored};
use sql::tables::TableFormat;
use store::{FileInfo, NewPartedUpload, PartedUpload, UnixMillis, UploadState};

use crate::error::ApiError;
use crate::services::encoded::{Base64Chunks, content_of};
use crate::services::files::{Draft, FileWriter, NewUpload, limits, no_room};
use crate::services::sql::uploads::PURPOSE;
use crate::services::upload_joins::UploadJoin;
use crate::state::App;
use crate::wire::uploads::{UploadCompletion, UploadRequest};

/// How long an upload may take, as OpenAI has it.
const UPLOAD_MS: Millis = Millis(3_600_000);
/// Bytes of one part, as OpenAI has it.
const PART_BYTES_MAX: u64 = 64 << 20;
/// Parts of one upload.
const PARTS_MAX: u64 = 10_000;

/// Refuses a purpose that files do not have, or not those of this name; `field` has the file.
pub fn check_purpose(purpose: &str, name: &str, field: &str) -> Result<(), RequestError> {
    match (purpose, format_of(name)) {
        ("batch", Some(TableFormat::Parquet)) => {
            Err(RequestError::invalid(field, "must be JSONL for the purpose `batch`"))
        }
        ("batch", _) | (PURPOSE, Some(_)) => Ok(()),
        (PURPOSE, None) => {
            let reason = "must have a name that ends in .csv, .tsv, .jsonl, .ndjson or .parquet";
            Err(RequestError::invalid(field, reason))
        }
        _ => Err(RequestError::invalid("purpose", "must be `batch` or `user_data`")),
    }
}

fn format_of(name: &str) -> Option<TableFormat> {
    TableFormat::of(name).map(|(format, _)| format)
}

/// Whether a file of this name is bytes, not text.
pub fn is_encoded(name: &str) -> bool {
    format_of(name) == Some(TableFormat::Parquet)
}

fn now(app: &App) -> UnixMillis {
    app.runtime.shared.unix_now()
}

/// Begins an upload.
pub async fn create(
    app: &App,
    tenant: TenantId,
    wanted: &UploadRequest,
) -> Result<PartedUpload, RequestError> {
    check_purpose(&wanted.purpose, &wanted.filename, "filename")?;
    let id = format!("upload_{:032x}", rand::random::<u128>());
    let now = now(app);
    let new = NewPartedUpload {
        id: &id,
        tenant,
        purpose: &wanted.purpose,
        name: &wanted.filename,
        bytes: wanted.bytes,
        kept: wanted.kept,
        expires: now.after(UPLOAD_MS),
    };
    match app.runtime.store.create_upload(new, limits(app), now).await {
        Err(store::Error::Full { what, limit }) => return Err(no_room(what, limit)),
        other => stored(other)?,
    }
    find(app, tenant, &id).await
}

/// A tenant's upload.
pub async fn find(app: &App, tenant: TenantId, id: &str) -> Result<PartedUpload, RequestError> {
    let found = stored(app.runtime.store.upload(tenant, id, now(app)).await)?;
    found.ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> RequestError {
    RequestError::NotFound(format!("the upload `{id}`"))
}

/// Refuses an upload that takes no parts any more.
fn check_pending(upload: &PartedUpload) -> Result<(), RequestError> {
    match upload.state {
        UploadState::Pending => Ok(()),
        UploadState::Completed | UploadState::Cancelled => Err(over(upload.state.name())),
    }
}

fn over(state: &str) -> RequestError {
    RequestError::invalid("upload_id", format!("is of an upload that is {state}"))
}

/// Calls an upload off. What it became stays.
pub async fn cancel(app: &App, tenant: TenantId, id: &str) -> Result<PartedUpload, RequestError> {
    let upload = find(app, tenant, id).await?;
    if upload.state != UploadState::Cancelled {
        check_pending(&upload)?;
        stored(app.runtime.store.cancel_upload(id).await)?;
    }
    let upload = find(app, tenant, id).await?;
    match upload.state {
        UploadState::Cancelled => Ok(upload),
        // It was completed meanwhile.
        UploadState::Pending | UploadState::Completed => Err(over(upload.state.name())),
    }
}

/// Puts an upload's parts together. One that is completed is told again: its client may not have heard it.
pub async fn complete(
    app: &Arc<App>,
    tenant: TenantId,
    (id, wanted): (&str, UploadCompletion),
) -> Result<(PartedUpload, Option<FileInfo>), RequestError> {
    let mut upload = find(app, tenant, id).await?;
    if upload.state != UploadState::Completed {
        check_pending(&upload)?;
        let begun = app.upload_joins.begin(id).ok_or_else(|| RequestError::Busy {
            what: "completion of an upload at a time",
            limit: "1".into(),
            retry_after: Millis(1_000),
        })?;
        // A task of its own: where its client leaves, nothing half written stays behind.
        let joining = tokio::spawn(join(Arc::clone(app), tenant, (upload, begun), wanted));
        let joined = joining.await.map_err(internal)?;
        upload = find(app, tenant, id).await?;
        // It may be completed all the same: by another gateway, or by a commit of which nothing was heard.
        if upload.state != UploadState::Completed {
            joined?;
        }
    }
    let file = match &upload.file {
        Some(file) => stored(app.runtime.store.file(tenant, file, now(app)).await)?,
        None => None,
    };
    Ok((upload, file))
}

async fn join(
    app: Arc<App>,
    tenant: TenantId,
    (upload, _begun): (PartedUpload, UploadJoin),
    wanted: UploadCompletion,
) -> Result<(), RequestError> {
    check_parts(&app, &upload, &wanted.part_ids).await?;
    let new =
        NewUpload { purpose: &upload.purpose, name: &upload.name, is_encoded: is_encoded(&upload.name) };
    let kept = upload.kept.unwrap_or(app.config.bulk.keep_ms_max);
    let expires = now(&app).after(kept);
    let mut draft = stored(Draft::begin(&app, tenant, new, expires).await)?;
    let ended = match write(&app, &mut draft, (&upload, &wanted)).await {
        Ok(size) => finish(&app, &draft, (&upload, size), expires).await,
        Err(error) => Err(error),
    };
    if ended.is_err() {
        draft.discard().await;
    }
    ended
}

/// Refuses parts that are none of an upload's, or not as many bytes as it was to have.
async fn check_parts(app: &App, upload: &PartedUpload, parts: &[String]) -> Result<(), RequestError> {
    let known = stored(app.runtime.store.upload_parts(&upload.id).await)?;
    let mut bytes = 0_u64;
    for (place, part) in parts.iter().enumerate() {
        let Some(size) = known.get(part) else {
            return Err(RequestError::invalid(format!("part_ids[{place}]"), "is no part of this upload"));
        };
        bytes = bytes.saturating_add(size.0);
    }
    if bytes != upload.bytes.0 {
        let reason = format!("have {bytes} bytes together, and `bytes` of the upload is {}", upload.bytes.0);
        return Err(RequestError::invalid("part_ids", reason));
    }
    Ok(())
}

/// Writes what the parts hold as chunks of a file; its bytes and lines.
async fn write(
    app: &App,
    draft: &mut Draft,
    (upload, wanted): (&PartedUpload, &UploadCompletion),
) -> Result<(Bytes, u64), RequestError> {
    let line_max = app.config.bulk.line_bytes_max;
    let (mut writer, mut hash) = (FileWriter::of(is_encoded(&upload.name)), Md5::new());
    for part in &wanted.part_ids {
        let mut number = 0;
        while let Some(chunk) = stored(app.runtime.store.file_chunk(part, number).await)? {
            number += 1;
            let bytes = content_of(true, chunk)?;
            hash.update(&bytes);
            if let Some(chunk) = writer.push(&bytes, line_max)? {
                stored(draft.append(&chunk).await)?;
            }
        }
    }
    let (chunk, bytes, lines) = writer.end(line_max)?;
    if let Some(chunk) = chunk {
        stored(draft.append(&chunk).await)?;
    }
    if bytes != upload.bytes {
        // Its parts went while they were read: it was called off, or its time was over.
        return Err(not_found(&upload.id));
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if wanted.md5.as_ref().is_some_and(|md5| *md5 != digits) {
        return Err(RequestError::invalid("md5", format!("is not that of the parts, which is {digits}")));
    }
    Ok((bytes, lines))
}

async fn finish(
    app: &App,
    draft: &Draft,
    (upload, size): (&PartedUpload, (Bytes, u64)),
    expires: UnixMillis,
) -> Result<(), RequestError> {
    let of = (upload.id.as_str(), draft.id.as_str());
    let bounds = (expires, limits(app));
    match app.runtime.store.finish_upload(of, &upload.purpose, size, bounds, now(app)).await {
        Err(store::Error::Full { what, limit }) => Err(no_room(what, limit)),
        Err(store::Error::Missing("upload")) => Err(over("completed or cancelled already")),
        other => stored(other),
    }
}

/// A part on its way into the store.
pub struct UploadPart {
    draft: Draft,
    upload: PartedUpload,
    chunks: Base64Chunks,
    bytes: u64,
}

impl UploadPart {
    /// Begins a part of an upload.
    pub async fn begin(app: &Arc<App>, tenant: TenantId, id: &str) -> Result<Self, ApiError> {
        let upload = find(app, tenant, id).await?;
        check_pending(&upload)?;
        let new = NewUpload { purpose: "upload_part", name: &upload.name, is_encoded: true };
        let draft = of_part(Draft::receive_part(app, tenant, (&upload.id, new), PARTS_MAX).await)?;
        Ok(Self { draft, upload, chunks: Base64Chunks::default(), bytes: 0 })
    }

    /// Takes bytes in.
    pub async fn push(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        self.bytes += piece.len() as u64;
        let limit = match self.bytes {
            bytes if bytes > self.upload.bytes.0 => {
                Some(format!("{} (`bytes` of the upload)", self.upload.bytes.0))
            }
            bytes if bytes > PART_BYTES_MAX => Some(format!("{PART_BYTES_MAX} bytes of one part")),
            _ => None,
        };
        if let Some(limit) = limit {
            return Err(RequestError::TooLarge { what: "`data`".into(), limit }.into());
        }
        match self.chunks.push(piece) {
            Some(chunk) => of_part(self.draft.take_chunk(Some(&self.upload.id), &chunk).await),
            None => of_part(self.draft.renew().await),
        }
    }

    /// Ends it: its id.
    pub async fn finish(&mut self, app: &App) -> Result<String, ApiError> {
        if self.bytes == 0 {
            return Err(ApiError::invalid("data", "is empty"));
        }
        let (chunk, _) = std::mem::take(&mut self.chunks).end();
        if let Some(chunk) = chunk {
            of_part(self.draft.take_chunk(Some(&self.upload.id), &chunk).await)?;
        }
        let part = (self.upload.id.as_str(), self.draft.id.as_str());
        of_part(app.runtime.store.finish_part(part, self.upload.expires, now(app)).await)?;
        self.draft.keep();
        Ok(self.draft.id.clone())
    }

    /// Deletes what was written.
    pub async fn discard(self) {
        self.draft.discard().await;
    }
}

/// What the store says of a part that a client sends.
fn of_part<T>(result: Result<T, store::Error>) -> Result<T, ApiError> {
    match result {
        Err(store::Error::Full { what: store::BYTES_COMING, limit }) => Err(RequestError::Busy {
            what: "bytes in the parts of the upload, with those that are still coming",
            limit: limit.to_string(),
            retry_after: Millis(1_000),
        }
        .into()),
        Err(store::Error::Full { what, limit }) => Err(RequestError::TooLarge {
            what: "the upload, with this part,".into(),
            limit: format!("{limit} {what}"),
        }
        .into()),
        Err(store::Error::Missing("upload")) => Err(over("completed or cancelled already").into()),
        // Past its date, as a file's; where its upload is over, sending it again tells that.
        Err(store::Error::Missing("part" | "file")) => Err(ApiError::BodyTimeout),
        other => Ok(stored(other)?),
    }
}

/// Forgets uploads whose time is over.
pub async fn expire(app: &App) {
    if let Err(error) = app.runtime.store.expire_uploads(now(app)).await {
        tracing::warn!(%error, "old uploads were not deleted");
    }
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;

    use super::*;

    #[test]
    fn a_part_whose_time_passed_while_it_came_is_not_called_wrong() {
        for what in ["part", "file"] {
            let late = of_part::<()>(Err(store::Error::Missing(what))).expect_err("it is gone");
            assert_eq!(late.status_code(), 408, "{what}");
        }
        let over = of_part::<()>(Err(store::Error::Missing("upload"))).expect_err("its upload is over");
        assert_eq!(over.status_code(), 400);
    }
}
