//! Files: uploads cut into chunks of whole lines as they arrive, and read back line by line; what is no text
//! in base64.
//!
//! They lie in the store, so that every gateway on the same database sees them; a gateway holds one chunk of
//! a file at a time, however large it is. Must not know HTTP, nor what stands in a file.

use std::sync::Arc;

use base::{Bytes, Millis, TenantId};
use serving::error::{RequestError, stored};
use store::{FileInfo, FileLimits, NewFile, ReceivedChunk, UnixMillis};

use crate::error::ApiError;
use crate::services::encoded::{Base64Chunks, bytes_in};
use crate::state::App;

/// How long bytes of an upload count that no gateway receives any more, for it was killed and none of its name has begun
/// since: more than clocks are apart.
const RECEIVED_MS: Millis = Millis(900_000);

/// Bytes of a chunk, but for a line that is longer.
const CHUNK_BYTES: usize = 256 << 10;

/// Where lines of a file come to: text that is cut behind a line's end once there is enough of it.
#[derive(Debug, Default)]
pub struct Cutter {
    pending: Vec<u8>,
    /// How much of that has no line's end in it: it need not be searched again.
    open: usize,
    bytes: u64,
    lines: u64,
}

impl Cutter {
    /// Takes bytes in. Gives a chunk once there is enough for one.
    pub fn push(&mut self, bytes: &[u8], line_max: Bytes) -> Result<Option<String>, RequestError> {
        self.pending.extend_from_slice(bytes);
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        self.open = match end {
            Some(place) => bytes.len() - place - 1,
            None => self.open + bytes.len(),
        };
        if self.open as u64 > line_max.0 {
            let line = self.lines + 1 + newlines(&self.pending);
            return Err(RequestError::TooLarge {
                what: format!("line {line} of `file`"),
                limit: format!("{} bytes (bulk.line_bytes_max)", line_max.0),
            });
        }
        if self.pending.len() < CHUNK_BYTES || self.open == self.pending.len() {
            return Ok(None);
        }
        let rest = self.pending.split_off(self.pending.len() - self.open);
        let chunk = std::mem::replace(&mut self.pending, rest);
        self.text(chunk, line_max).map(Some)
    }

    /// The last chunk, if anything is left, and then what came in all: bytes and lines.
    pub fn end(mut self, line_max: Bytes) -> Result<(Option<String>, Bytes, u64), RequestError> {
        let chunk = std::mem::take(&mut self.pending);
        let chunk = if chunk.is_empty() { None } else { Some(self.text(chunk, line_max)?) };
        Ok((chunk, Bytes(self.bytes), self.lines))
    }

    /// A chunk as text; what a database cannot hold is refused with its line.
    fn text(&mut self, chunk: Vec<u8>, line_max: Bytes) -> Result<String, RequestError> {
        let refuse = |line, reason: &str| Err(RequestError::invalid("file", format!("line {line} {reason}")));
        let first = self.lines + 1;
        let text = match String::from_utf8(chunk) {
            Ok(text) => text,
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                return refuse(first + newlines(valid), "is not UTF-8 text");
            }
        };
        if let Some(place) = text.bytes().position(|byte| byte == 0) {
            return refuse(first + newlines(&text.as_bytes()[..place]), "holds a NUL character");
        }
        for (number, line) in (first..).zip(text.split_inclusive('\n')) {
            if line.len() as u64 > line_max.0 {
                return refuse(number, &format!("has more than {} bytes (bulk.line_bytes_max)", line_max.0));
            }
            self.lines = number;
        }
        self.bytes += text.len() as u64;
        Ok(text)
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Where a file's bytes come to, and leave as chunks of the store: text, or base64 of bytes.
#[derive(Debug)]
pub enum FileWriter {
    Text(Cutter),
    Encoded(Base64Chunks),
}

impl FileWriter {
    /// Of a file that is bytes, or text.
    pub fn of(is_encoded: bool) -> Self {
        if is_encoded { Self::Encoded(Base64Chunks::default()) } else { Self::Text(Cutter::default()) }
    }

    /// Takes bytes in. Gives a chunk once there is enough for one.
    pub fn push(&mut self, bytes: &[u8], line_max: Bytes) -> Result<Option<String>, RequestError> {
        match self {
            Self::Text(cutter) => cutter.push(bytes, line_max),
            Self::Encoded(encoder) => Ok(encoder.push(bytes)),
        }
    }

    /// The last chunk, if anything is left, and then what came in all: bytes, and lines of text.
    pub fn end(self, line_max: Bytes) -> Result<(Option<String>, Bytes, u64), RequestError> {
        match self {
            Self::Text(cutter) => cutter.end(line_max),
            Self::Encoded(encoder) => {
                let (chunk, bytes) = encoder.end();
                Ok((chunk, bytes, 0))
            }
        }
    }
}

/// What a tenant may keep.
pub fn limits(app: &App) -> FileLimits {
    FileLimits { files: app.config.bulk.tenant_files_max, bytes: app.config.bulk.tenant_bytes_max }
}

/// That a tenant has no room for a file: what there is too much of, as the store names it. Where that is what still comes, it
/// may have room soon.
pub fn no_room(what: &str, limit: u64) -> RequestError {
    if what == store::FILE_BYTES_COMING {
        return RequestError::Busy {
            what: "bytes in what this tenant keeps, with files that are still coming",
            limit: limit.to_string(),
            retry_after: Millis(1_000),
        };
    }
    let limit = format!("{limit} {what}");
    RequestError::TooLarge { what: "what this tenant keeps, with this file,".into(), limit }
}

/// What a file is for, and what it is.
#[derive(Clone, Copy, Debug)]
pub struct NewUpload<'a> {
    pub purpose: &'a str,
    pub name: &'a str,
    /// Whether it is bytes, not text.
    pub is_encoded: bool,
}

/// A file being written. One that a client sends is deleted where it is dropped before its end: its bytes count.
pub struct Draft {
    app: Arc<App>,
    /// Its identity.
    pub id: String,
    tenant: TenantId,
    is_encoded: bool,
    chunks: u32,
    /// While a client sends it: when its date was last put off.
    renewed: Option<UnixMillis>,
}

impl Draft {
    /// Begins a file.
    pub async fn begin(
        app: &Arc<App>,
        tenant: TenantId,
        new: NewUpload<'_>,
        expires: UnixMillis,
    ) -> Result<Self, store::Error> {
        Self::begin_on(app, tenant, new, (expires, None)).await
    }

    /// The same, at a gateway that receives it from a client.
    async fn begin_on(
        app: &Arc<App>,
        tenant: TenantId,
        new: NewUpload<'_>,
        (expires, node): (UnixMillis, Option<&str>),
    ) -> Result<Self, store::Error> {
        let id = format!("file-{:032x}", rand::random::<u128>());
        let NewUpload { purpose, name, is_encoded } = new;
        let new = NewFile { id: &id, tenant, purpose, name, is_encoded, expires, node };
        app.runtime.store.begin_file(new, now(app)).await?;
        Ok(Self { app: app.clone(), id, tenant, is_encoded, chunks: 0, renewed: None })
    }

    /// Begins a file that a client sends.
    pub async fn receive(app: &Arc<App>, tenant: TenantId, new: NewUpload<'_>) -> Result<Self, store::Error> {
        let begun = now(app);
        let node = Some(app.config.store.node.as_str());
        let mut draft = Self::begin_on(app, tenant, new, (begun.after(patience(app)), node)).await?;
        draft.renewed = Some(begun);
        Ok(draft)
    }

    /// Begins a part of an upload that a client sends: one of at most so many.
    pub async fn receive_part(
        app: &Arc<App>,
        tenant: TenantId,
        (upload, new): (&str, NewUpload<'_>),
        parts_max: u64,
    ) -> Result<Self, store::Error> {
        let id = format!("part_{:032x}", rand::random::<u128>());
        let (NewUpload { purpose, name, is_encoded }, begun) = (new, now(app));
        let expires = begun.after(patience(app));
        let node = Some(app.config.store.node.as_str());
        let new = NewFile { id: &id, tenant, purpose, name, is_encoded, expires, node };
        app.runtime.store.begin_part(upload, new, parts_max, begun).await?;
        Ok(Self { app: app.clone(), id, tenant, is_encoded, chunks: 0, renewed: Some(begun) })
    }

    /// Adds the next chunk of what a client sends: it counts before it is written. `upload`: of a part.
    pub async fn take_chunk(&mut self, upload: Option<&str>, chunk: &str) -> Result<(), store::Error> {
        let (now, store) = (now(&self.app), &self.app.runtime.store);
        let expires = now.after(patience(&self.app));
        let bytes = bytes_in(self.is_encoded, chunk);
        let chunk = ReceivedChunk { number: self.chunks, content: chunk, bytes };
        match upload {
            Some(upload) => store.receive_part((upload, &self.id), chunk, expires, now).await?,
            None => store.receive_chunk(&self.id, chunk, (expires, limits(&self.app)), now).await?,
        }
        self.renewed = Some(now);
        self.chunks += 1;
        Ok(())
    }

    /// Puts off the date of what a client sends, where it is near: chunks of a slow client are far apart.
    pub async fn renew(&mut self) -> Result<(), store::Error> {
        let (now, patience) = (now(&self.app), patience(&self.app));
        let is_due = |renewed: UnixMillis| now.0.saturating_sub(renewed.0) >= patience.0 / 2;
        if self.renewed.is_some_and(is_due) {
            self.app.runtime.store.renew_draft(&self.id, now.after(patience), now).await?;
            self.renewed = Some(now);
        }
        Ok(())
    }

    /// What a client sent is whole, and stays.
    pub fn keep(&mut self) {
        self.renewed = None;
    }

    /// Adds a chunk of whole lines.
    pub async fn append(&mut self, chunk: &str) -> Result<(), store::Error> {
        self.app.runtime.store.append_chunk(&self.id, self.chunks, chunk).await?;
        self.chunks += 1;
        Ok(())
    }

    /// Ends an upload: the file can be read from now on, for this purpose.
    pub async fn finish(
        &mut self,
        purpose: &str,
        size: (Bytes, u64),
        expires: UnixMillis,
    ) -> Result<FileInfo, ApiError> {
        let (limits, now) = (limits(&self.app), now(&self.app));
        let store = &self.app.runtime.store;
        received(store.finish_file((&self.id, purpose), size, (expires, limits), now).await)?;
        self.keep();
        Ok(find(&self.app, self.tenant, &self.id).await?)
    }

    /// Deletes what was written, unless it is whole: its end may have been stored though it was answered with an error.
    pub async fn discard(mut self) {
        delete(&self.app, self.tenant, &self.id).await;
        self.keep();
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.renewed.is_none() {
            return;
        }
        // Its client's connection is gone. Without a runtime the process ends, and it goes by its date.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (app, tenant, id) = (self.app.clone(), self.tenant, std::mem::take(&mut self.id));
        runtime.spawn(async move { delete(&app, tenant, &id).await });
    }
}

async fn delete(app: &App, tenant: TenantId, id: &str) {
    if let Err(error) = app.runtime.store.delete_draft(tenant, id).await {
        tracing::warn!(%error, file = id, "a file that is not whole was not deleted; it goes by its date");
    }
}

fn now(app: &App) -> UnixMillis {
    app.runtime.shared.unix_now()
}

/// How long what has come of an upload counts where nothing more comes. A client may take its time between two pieces.
fn patience(app: &App) -> Millis {
    Millis(app.config.server.body_ms_max.0.saturating_mul(4).saturating_add(RECEIVED_MS.0))
}

/// What the store says of a file that a client sends. One that is not there any more was past its date: it came too slowly,
/// or the server did, or a clock was wrong. Nothing is wrong with it, and it may be sent again.
pub fn received<T>(result: Result<T, store::Error>) -> Result<T, ApiError> {
    match result {
        Err(store::Error::Full { what, limit }) => Err(no_room(what, limit).into()),
        Err(store::Error::Missing("file")) => Err(ApiError::BodyTimeout),
        other => Ok(stored(other)?),
    }
}

/// A tenant's file.
pub async fn find(app: &App, tenant: TenantId, id: &str) -> Result<FileInfo, RequestError> {
    let now = app.runtime.shared.unix_now();
    let found = stored(app.runtime.store.file(tenant, id, now).await)?;
    found.ok_or_else(|| RequestError::NotFound(format!("the file `{id}`")))
}

/// Forgets files past their date, and uploads that broke off a day ago.
pub async fn expire(app: &App) {
    let now = app.runtime.shared.unix_now();
    if let Err(error) = app.runtime.store.expire_files(now, now.before(Millis(86_400_000))).await {
        tracing::warn!(%error, "old files were not deleted");
    }
}

/// Deletes what a gateway of this name was receiving from clients, which receives nothing: it has not begun, or it ends.
pub async fn delete_drafts(app: &App) {
    match app.runtime.store.delete_drafts_of(&app.config.store.node).await {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "files that broke off with their server were deleted"),
        Err(error) => {
            tracing::warn!(%error, "files that broke off with their server were not deleted; they go by their date");
        }
    }
}

/// Reads a file chunk by chunk, with the numbers of its lines.
#[derive(Debug)]
pub struct Lines {
    file: String,
    chunk: u32,
    line: u32,
}

/// A chunk of a file.
#[derive(Clone, Debug)]
pub struct FileChunk {
    /// The number of its first line; a file's first is 1.
    pub first: u32,
    /// Its lines.
    pub text: String,
}

impl FileChunk {
    /// Its lines that hold something, with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &str)> {
        (self.first..).zip(self.text.lines()).filter(|(_, line)| !line.trim().is_empty())
    }
}

impl Lines {
    /// From a file's first line on.
    pub fn of(file: &str) -> Self {
        Self { file: file.to_owned(), chunk: 0, line: 1 }
    }

    /// The next chunk.
    pub async fn next(&mut self, app: &App) -> Result<Option<FileChunk>, store::Error> {
        let Some(text) = app.runtime.store.file_chunk(&self.file, self.chunk).await? else { return Ok(None) };
        let first = self.line;
        self.chunk += 1;
        self.line += u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        Ok(Some(FileChunk { first, text }))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;

    use super::*;

    #[test]
    fn a_file_whose_time_passed_while_it_came_is_not_called_wrong() {
        let late = received::<()>(Err(store::Error::Missing("file"))).expect_err("it is gone");
        assert_eq!(late.status_code(), 408);
        let full = received::<()>(Err(store::Error::Full { what: "files", limit: 3 })).expect_err("no room");
        assert_ne!(full.status_code(), 408);
    }

    fn cut(text: &[u8], step: usize, line_max: u64) -> Result<(Vec<String>, u64, u64), RequestError> {
        let mut cutter = Cutter::default();
        let mut chunks = Vec::new();
        for piece in text.chunks(step) {
            chunks.extend(cutter.push(piece, Bytes(line_max))?);
        }
        let (last, bytes, lines) = cutter.end(Bytes(line_max))?;
        chunks.extend(last);
        Ok((chunks, bytes.0, lines))
    }

    #[test]
    fn chunks_are_whole_lines_and_together_the_file() {
        let line = format!("{}\n", "x".repeat(999));
        let text = line.repeat(1_000) + "the last has no end";
        for step in [1_000, 4_096, 100_003, 2_000_000] {
            let (chunks, bytes, lines) = cut(text.as_bytes(), step, 10_000).expect("good");
            assert_eq!(chunks.concat(), text);
            assert_eq!((bytes, lines), (text.len() as u64, 1_001));
            let (last, others) = chunks.split_last().expect("some");
            assert!(others.iter().all(|chunk| chunk.ends_with('\n')), "step {step}");
            assert!(last.ends_with("end"));
        }
        assert_eq!(cut(b"", 10, 10), Ok((Vec::new(), 0, 0)));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [
            (&b"a\nb\xff\n"[..], "line 2 is not UTF-8"),
            (b"a\n\0\n", "line 2 holds a NUL"),
            (b"a\nb\n123456789012345\n", "line 3 "),
            (b"123456789012345", "line 1 "),
        ] {
            let error = cut(text, 1, 10).expect_err("bad").to_string();
            assert!(error.contains(line), "{error}");
            let error = cut(text, 1_000, 10).expect_err("bad").to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
