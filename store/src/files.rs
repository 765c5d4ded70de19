//! Files, as clients upload them and as batches leave them: texts of whole lines, or bytes in base64.
//!
//! A file lies in the database in chunks, so that every gateway sees it and none holds it whole. While it is
//! being written nobody sees it; what an upload that broke off left behind goes with its date. Deleting is
//! for good.
//!
//! The bytes of what a client sends count among what its tenant keeps before they are written, so that no number of
//! uploads at once is more than that. Until it is whole such a file has a date that is near, and is put off while bytes come:
//! what a gateway leaves that was killed counts no longer than that, and no longer than until one of its name begins.

use base::{Bytes, TenantId};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, FromRow, Row as _};

use crate::error::{Error, foreign, new_of};
use crate::open::{FilesOf, Store};
use crate::tickets::Page;
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// A file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// Its identity; chosen by the caller, unique in the store.
    pub id: &'a str,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it is for: the caller's word.
    pub purpose: &'a str,
    /// Its name, for people.
    pub name: &'a str,
    /// Whether its chunks are base64 of bytes, not text.
    pub is_encoded: bool,
    /// When it is forgotten.
    pub expires: UnixMillis,
    /// The gateway that receives it, where a client sends it: see [`Store::delete_drafts_of`].
    pub node: Option<&'a str>,
}

/// What there is too much of ([`Error::Full`]) where a file does not fit beside others that are still coming: it may where one
/// of them breaks off.
pub const FILE_BYTES_COMING: &str = "bytes in files, with those that are still coming";

/// What a tenant may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    pub files: u64,
    /// Bytes of all of them together.
    pub bytes: Bytes,
}

/// The next chunk of what a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedChunk<'a> {
    /// Its place among the chunks; the first is 0.
    pub number: u32,
    /// As it is kept: whole lines, or base64.
    pub content: &'a str,
    /// Of the file, however they are kept.
    pub bytes: Bytes,
}

/// A file that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its identity.
    pub id: String,
    /// What it is for.
    pub purpose: String,
    pub name: String,
    /// Whether its chunks are base64 of bytes, not text.
    pub is_encoded: bool,
    /// Of the file, however its chunks are kept.
    pub bytes: Bytes,
    /// Of text; 0 of bytes.
    pub lines: u64,
    /// When it was made.
    pub created: UnixMillis,
    /// When it is forgotten.
    pub expires: UnixMillis,
}

struct FileColumns {
    id: String,
    purpose: String,
    name: String,
    encoded: i64,
    bytes: i64,
    line_count: i64,
    created: i64,
    expires: i64,
}

// By hand: the derive would compile all drivers a second time, for the compiler's own use.
impl<'r> FromRow<'r, AnyRow> for FileColumns {
    fn from_row(row: &'r AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            purpose: row.try_get("purpose")?,
            name: row.try_get("name")?,
            encoded: row.try_get("encoded")?,
            bytes: row.try_get("bytes")?,
            line_count: row.try_get("line_count")?,
            created: row.try_get("created")?,
            expires: row.try_get("expires")?,
        })
    }
}

const COLUMNS: &str = "id, purpose, name, encoded, bytes, line_count, created, expires";

impl From<FileColumns> for FileInfo {
    fn from(columns: FileColumns) -> Self {
        Self {
            id: columns.id,
            purpose: columns.purpose,
            name: columns.name,
            is_encoded: columns.encoded != 0,
            bytes: Bytes(from_sql(columns.bytes)),
            lines: from_sql(columns.line_count),
            created: instant(columns.created),
            expires: instant(columns.expires),
        }
    }
}

impl Store {
    /// Begins a file. Nobody sees it before [`Self::finish_file`].
    pub async fn begin_file(&self, new: NewFile<'_>, now: UnixMillis) -> Result<(), Error> {
        self.bounded(async {
            let mut connection = self.pool().acquire().await?;
            begin(&mut connection, new, now).await
        })
        .await
    }

    /// Adds the next chunk: of whole lines, or base64 of the next bytes.
    pub async fn append_chunk(&self, id: &str, number: u32, content: &str) -> Result<(), Error> {
        self.bounded(async {
            let mut connection = self.pool().acquire().await?;
            append(&mut connection, id, (number, content)).await
        })
        .await
    }

    /// Adds the next chunk of a file that a client sends, whose bytes count from now on; nothing more has to come before
    /// `expires`. [`Error::Full`] where its tenant has no room for what has come so far; [`Error::Missing`] where the
    /// file is gone, or past its date.
    pub async fn receive_chunk(
        &self,
        id: &str,
        chunk: ReceivedChunk<'_>,
        (expires, limits): (UnixMillis, FileLimits),
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::File(id)).await?;
            let found: Option<(i64, i64)> = sqlx::query_as(
                "SELECT tenant, bytes FROM files WHERE id = $1 AND whole = 0 AND expires > $2",
            )
            .bind(id)
            .bind(now.to_sql())
            .fetch_optional(&mut *tx)
            .await?;
            let Some((tenant, received)) = found else { return Err(Error::Missing("file")) };
            let bytes = Bytes(from_sql(received).saturating_add(chunk.bytes.0));
            let tenant = TenantId(from_sql(tenant));
            check_room(&mut tx, (tenant, bytes), limits, (Some(id), now)).await?;
            sqlx::query("UPDATE files SET bytes = $1, expires = $2 WHERE id = $3")
                .bind(to_sql(bytes.0))
                .bind(expires.to_sql())
                .bind(id)
                .execute(&mut *tx)
                .await?;
            append(&mut tx, id, (chunk.number, chunk.content)).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Puts off the date of a file, or of a part, that a client still sends. [`Error::Missing`] where it is gone, or past
    /// its date.
    pub async fn renew_draft(&self, id: &str, expires: UnixMillis, now: UnixMillis) -> Result<(), Error> {
        let query = sqlx::query("UPDATE files SET expires = $1 WHERE id = $2 AND whole = 0 AND expires > $3")
            .bind(expires.to_sql())
            .bind(id)
            .bind(now.to_sql());
        if self.changed(query).await? == 0 { Err(Error::Missing("file")) } else { Ok(()) }
    }

    /// Ends a file of so many bytes and lines: from now on it can be read, for this purpose. [`Error::Full`]
    /// where the tenant has no room for it beside its files and its uploads that are pending.
    pub async fn finish_file(
        &self,
        file: (&str, &str),
        size: (Bytes, u64),
        (expires, limits): (UnixMillis, FileLimits),
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::File(file.0)).await?;
            finish(&mut tx, file, size, (expires, limits), (None, now)).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// A tenant's file.
    pub async fn file(&self, tenant: TenantId, id: &str, now: UnixMillis) -> Result<Option<FileInfo>, Error> {
        self.reading(async {
            let sql = format!(
                "SELECT {COLUMNS} FROM files WHERE id = $1 AND tenant = $2 AND expires > $3 AND whole = 1"
            );
            let row: Option<FileColumns> = sqlx::query_as(AssertSqlSafe(sql))
                .bind(id)
                .bind(to_sql(tenant.0))
                .bind(now.to_sql())
                .fetch_optional(self.pool())
                .await?;
            Ok(row.map(FileInfo::from))
        })
        .await
    }

    /// A tenant's files (of a purpose), newest first or oldest first.
    pub async fn files(
        &self,
        tenant: TenantId,
        purpose: Option<&str>,
        (page, is_ascending): (Page<'_>, bool),
        now: UnixMillis,
    ) -> Result<Vec<FileInfo>, Error> {
        self.reading(async {
            let (sign, order) = if is_ascending { (">", "ASC") } else { ("<", "DESC") };
            let sql = format!(
                "SELECT {COLUMNS} FROM files WHERE tenant = $1 AND expires > $2 AND whole = 1 \
                 AND ($3 = '' OR purpose = $3) AND ($4 = '' OR EXISTS \
                 (SELECT 1 FROM files AS last WHERE last.id = $4 AND last.tenant = $1 AND \
                  (files.created {sign} last.created OR (files.created = last.created AND files.id {sign} last.id)))) \
                 ORDER BY created {order}, id {order} LIMIT $5"
            );
            let rows: Vec<FileColumns> = sqlx::query_as(AssertSqlSafe(sql))
                .bind(to_sql(tenant.0))
                .bind(now.to_sql())
                .bind(purpose.unwrap_or_default())
                .bind(page.after.unwrap_or_default())
                .bind(i64::from(page.limit))
                .fetch_all(self.pool())
                .await?;
            Ok(rows.into_iter().map(FileInfo::from).collect())
        })
        .await
    }

    /// A chunk of a file; `None` behind the last, and where the file is gone.
    pub async fn file_chunk(&self, id: &str, number: u32) -> Result<Option<String>, Error> {
        self.reading(async {
            let row: Option<(String,)> =
                sqlx::query_as("SELECT content FROM file_chunks WHERE file = $1 AND chunk_number = $2")
                    .bind(id)
                    .bind(i64::from(number))
                    .fetch_optional(self.pool())
                    .await?;
            Ok(row.map(|(content,)| content))
        })
        .await
    }

    /// Deletes a tenant's file, also one that is not whole. `false` where it has none of that identity.
    pub async fn delete_file(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let query =
            sqlx::query("DELETE FROM files WHERE id = $1 AND tenant = $2").bind(id).bind(to_sql(tenant.0));
        Ok(self.changed(query).await? > 0)
    }

    /// Deletes a tenant's file that is not whole: one that is stays.
    pub async fn delete_draft(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let query = sqlx::query("DELETE FROM files WHERE id = $1 AND tenant = $2 AND whole = 0")
            .bind(id)
            .bind(to_sql(tenant.0));
        Ok(self.changed(query).await? > 0)
    }

    /// Deletes what the gateway of a name was receiving from clients: it receives nothing any more. Says how many.
    pub async fn delete_drafts_of(&self, node: &str) -> Result<u64, Error> {
        let query = sqlx::query(
            "DELETE FROM files WHERE node = $1 AND whole = 0 AND NOT EXISTS \
             (SELECT 1 FROM upload_parts WHERE upload_parts.id = files.id AND upload_parts.whole = 1)",
        );
        self.changed(query.bind(node)).await
    }

    /// Deletes every file past its date, and what was begun before `begun` and is not whole; says how many.
    pub async fn expire_files(&self, now: UnixMillis, begun: UnixMillis) -> Result<u64, Error> {
        let query = sqlx::query("DELETE FROM files WHERE expires <= $1 OR (whole = 0 AND created <= $2)")
            .bind(now.to_sql())
            .bind(begun.to_sql());
        self.changed(query).await
    }
}

/// [`Store::begin_file`] on a connection.
pub(crate) async fn begin(
    connection: &mut AnyConnection,
    new: NewFile<'_>,
    now: UnixMillis,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO files \
         (id, tenant, purpose, name, encoded, bytes, line_count, created, expires, whole, node) \
         VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $7, 0, $8)",
    )
    .bind(new.id)
    .bind(to_sql(new.tenant.0))
    .bind(new.purpose)
    .bind(new.name)
    .bind(i64::from(new.is_encoded))
    .bind(now.to_sql())
    .bind(new.expires.to_sql())
    .bind(new.node)
    .execute(connection)
    .await
    .map_err(new_of("file", new.id))?;
    Ok(())
}

/// [`Store::append_chunk`] on a connection.
pub(crate) async fn append(
    connection: &mut AnyConnection,
    id: &str,
    (number, content): (u32, &str),
) -> Result<(), Error> {
    sqlx::query("INSERT INTO file_chunks (file, chunk_number, content) VALUES ($1, $2, $3)")
        .bind(id)
        .bind(i64::from(number))
        .bind(content)
        .execute(connection)
        .await
        .map_err(|error| foreign(error, Error::Missing("file")))?;
    Ok(())
}

/// How many files a tenant has, with its uploads that are pending; their bytes; and those of what it sends just now. It reads
/// indexes alone, as it is asked before each chunk; parts of uploads have no bytes as files.
const HELD: &str = "SELECT CAST(COALESCE(SUM(number), 0) AS BIGINT), CAST(COALESCE(SUM(kept), 0) AS BIGINT), \
    CAST(COALESCE(SUM(coming), 0) AS BIGINT) FROM \
    (SELECT 1 AS number, bytes AS kept, 0 AS coming FROM files WHERE tenant = $1 AND whole = 1 UNION ALL \
    SELECT 0, 0, bytes FROM files WHERE tenant = $1 AND whole = 0 AND bytes > 0 AND expires > $2 AND id <> $3 UNION ALL \
    SELECT 1, bytes, 0 FROM uploads WHERE state = 'pending' AND tenant = $1 AND expires > $2 AND id <> $3) AS held";

/// Refuses what a tenant has no room for: one more file of so many bytes, beside its files, what it sends just now, and its
/// uploads that are pending, but for the file or upload of the identity `except`. Where it would fit but for what it sends
/// just now, that is what the refusal names.
pub(crate) async fn check_room(
    connection: &mut AnyConnection,
    (tenant, bytes): (TenantId, Bytes),
    limits: FileLimits,
    (except, now): (Option<&str>, UnixMillis),
) -> Result<(), Error> {
    let (count, kept, coming): (i64, i64, i64) = sqlx::query_as(HELD)
        .bind(to_sql(tenant.0))
        .bind(now.to_sql())
        .bind(except.unwrap_or_default())
        .fetch_one(connection)
        .await?;
    if from_sql(count) >= limits.files {
        return Err(Error::Full { what: "files", limit: limits.files });
    }
    let alone = from_sql(kept).saturating_add(bytes.0);
    if alone > limits.bytes.0 {
        return Err(Error::Full { what: "bytes in files", limit: limits.bytes.0 });
    }
    if alone.saturating_add(from_sql(coming)) > limits.bytes.0 {
        return Err(Error::Full { what: FILE_BYTES_COMING, limit: limits.bytes.0 });
    }
    Ok(())
}

/// [`Store::finish_file`] in a transaction that holds the lock of files; of `upload`, where it comes from one.
pub(crate) async fn finish(
    connection: &mut AnyConnection,
    (id, purpose): (&str, &str),
    (bytes, lines): (Bytes, u64),
    (expires, limits): (UnixMillis, FileLimits),
    (upload, now): (Option<&str>, UnixMillis),
) -> Result<(), Error> {
    let tenant: Option<(i64,)> = sqlx::query_as("SELECT tenant FROM files WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    let Some((tenant,)) = tenant else { return Err(Error::Missing("file")) };
    let tenant = TenantId(from_sql(tenant));
    // What it counted for while it came is in its size.
    check_room(&mut *connection, (tenant, bytes), limits, (upload.or(Some(id)), now)).await?;
    let done = sqlx::query(
        "UPDATE files SET whole = 1, bytes = $1, line_count = $2, expires = $3, purpose = $5 WHERE id = $4",
    )
    .bind(to_sql(bytes.0))
    .bind(to_sql(lines))
    .bind(expires.to_sql())
    .bind(id)
    .bind(purpose)
    .execute(&mut *connection)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Error::Missing("file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_tenant_has_is_summed_from_indexes_alone() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {HELD}"));
        let plan = sqlx::query(explained).bind(1_i64).bind(1_i64).bind("");
        let plan = plan.fetch_all(store.pool()).await.expect("explained");
        let steps: Vec<String> = plan.iter().map(|row| row.get::<String, _>("detail")).collect();
        let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" files ")).collect();
        assert_eq!(reads.len(), 2, "{steps:?}");
        for read in reads {
            let is_by_size = read.contains("USING COVERING INDEX files_by_size (tenant=? AND whole=?");
            assert!(is_by_size, "{steps:?}");
        }
    }
}
