//! Uploads in parts: a tenant says how large a file will be, sends it in parts, and has them put together.
//!
//! The bytes of an upload that is pending count among those of its tenant's files, whatever has come of them; those of its
//! parts, whole or still coming, are never more. What a part holds lies as a file lies (`files`), in base64, under the
//! part's identity, and is never whole. It ends with its upload, or, while it is coming, with its date.

use std::collections::BTreeMap;

use base::{Bytes, Millis, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, foreign, new_of};
use crate::files::{self, FileLimits, NewFile, ReceivedChunk};
use crate::open::{FilesOf, Store};
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// An upload to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPartedUpload<'a> {
    /// Its identity; chosen by the caller, unique in the store.
    pub id: &'a str,
    /// Whose it is.
    pub tenant: TenantId,
    /// What its file is for: the caller's word.
    pub purpose: &'a str,
    /// The file's name, for people.
    pub name: &'a str,
    /// Of the file.
    pub bytes: Bytes,
    /// For how long the file is kept, where that was asked for.
    pub kept: Option<Millis>,
    /// When the upload is forgotten.
    pub expires: UnixMillis,
}

/// How far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadState {
    /// Parts may come.
    Pending,
    /// There is a file.
    Completed,
    /// It was called off.
    Cancelled,
}

impl UploadState {
    /// The word that the store keeps.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    fn parse(word: &str) -> Result<Self, Error> {
        [Self::Pending, Self::Completed, Self::Cancelled]
            .into_iter()
            .find(|state| state.name() == word)
            .ok_or_else(|| Error::Broken { what: "upload state", reason: format!("`{word}` is none") })
    }
}

/// An upload as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartedUpload {
    /// Its identity.
    pub id: String,
    /// What its file is for.
    pub purpose: String,
    /// The file's name.
    pub name: String,
    /// Of the file.
    pub bytes: Bytes,
    /// For how long the file is kept, where that was asked for.
    pub kept: Option<Millis>,
    pub state: UploadState,
    /// The file that it became.
    pub file: Option<String>,
    /// When it was made.
    pub created: UnixMillis,
    /// When it is forgotten.
    pub expires: UnixMillis,
}

/// What there is too much of ([`Error::Full`]) where a part does not fit beside others that are still coming: it may where
/// one of them breaks off.
pub const BYTES_COMING: &str = "bytes in parts, with those that are still coming";

type UploadColumns = (String, String, String, i64, Option<i64>, String, Option<String>, i64, i64);

impl Store {
    /// Begins an upload. [`Error::Full`] where its tenant has no room for its file.
    pub async fn create_upload(
        &self,
        new: NewPartedUpload<'_>,
        limits: FileLimits,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Tenant(new.tenant)).await?;
            files::check_room(&mut tx, (new.tenant, new.bytes), limits, (None, now)).await?;
            sqlx::query(
                "INSERT INTO uploads (id, tenant, purpose, name, bytes, kept_ms, state, file, created, expires) \
                 VALUES ($1, $2, $3, $4, $5, $6, 'pending', NULL, $7, $8)",
            )
            .bind(new.id)
            .bind(to_sql(new.tenant.0))
            .bind(new.purpose)
            .bind(new.name)
            .bind(to_sql(new.bytes.0))
            .bind(new.kept.map(|kept| to_sql(kept.0)))
            .bind(now.to_sql())
            .bind(new.expires.to_sql())
            .execute(&mut *tx)
            .await
            .map_err(new_of("upload", new.id))?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// A tenant's upload.
    pub async fn upload(
        &self,
        tenant: TenantId,
        id: &str,
        now: UnixMillis,
    ) -> Result<Option<PartedUpload>, Error> {
        self.reading(async {
            let row: Option<UploadColumns> = sqlx::query_as(
                "SELECT id, purpose, name, bytes, kept_ms, state, file, created, expires FROM uploads \
                 WHERE id = $1 AND tenant = $2 AND expires > $3",
            )
            .bind(id)
            .bind(to_sql(tenant.0))
            .bind(now.to_sql())
            .fetch_optional(self.pool())
            .await?;
            row.map(upload).transpose()
        })
        .await
    }

    /// Begins a part. [`Error::Full`] where its upload has too many; [`Error::Missing`] where that is not pending (any more).
    pub async fn begin_part(
        &self,
        upload: &str,
        new: NewFile<'_>,
        parts_max: u64,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Upload(upload)).await?;
            if received(&mut tx, upload, now).await?.parts >= parts_max {
                return Err(Error::Full { what: "parts", limit: parts_max });
            }
            files::begin(&mut tx, new, now).await?;
            sqlx::query("INSERT INTO upload_parts (id, upload, bytes, whole) VALUES ($1, $2, 0, 0)")
                .bind(new.id)
                .bind(upload)
                .execute(&mut *tx)
                .await
                .map_err(|error| foreign(error, Error::Missing("upload")))?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Adds the next chunk of a part, whose bytes count from now on; nothing more has to come before `expires`.
    /// [`Error::Full`] where the parts would have more bytes than their upload; [`Error::Missing`] where that is not pending
    /// (any more), or the part is gone or past its date.
    pub async fn receive_part(
        &self,
        (upload, part): (&str, &str),
        chunk: ReceivedChunk<'_>,
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Upload(upload)).await?;
            let sums = received(&mut tx, upload, now).await?;
            let own: Option<(i64,)> =
                sqlx::query_as("SELECT bytes FROM upload_parts WHERE id = $1 AND upload = $2 AND whole = 0")
                    .bind(part)
                    .bind(upload)
                    .fetch_optional(&mut *tx)
                    .await?;
            let Some((own,)) = own else { return Err(Error::Missing("part")) };
            let own = from_sql(own).saturating_add(chunk.bytes.0);
            let limit = sums.announced;
            if sums.whole.saturating_add(own) > limit {
                return Err(Error::Full { what: "bytes in parts", limit });
            }
            if sums.whole.saturating_add(sums.coming).saturating_add(chunk.bytes.0) > limit {
                return Err(Error::Full { what: BYTES_COMING, limit });
            }
            put_off(&mut tx, part, (expires, now)).await?;
            let done = sqlx::query("UPDATE upload_parts SET bytes = $1 WHERE id = $2")
                .bind(to_sql(own))
                .bind(part)
                .execute(&mut *tx)
                .await?;
            // Uploads go by their date without a lock, and their parts with them.
            if done.rows_affected() == 0 {
                return Err(Error::Missing("upload"));
            }
            files::append(&mut tx, part, (chunk.number, chunk.content)).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Ends a part: it came whole, and is kept until `expires`. [`Error::Missing`] as of [`Store::receive_part`].
    pub async fn finish_part(
        &self,
        (upload, part): (&str, &str),
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Upload(upload)).await?;
            received(&mut tx, upload, now).await?;
            put_off(&mut tx, part, (expires, now)).await?;
            let done =
                sqlx::query("UPDATE upload_parts SET whole = 1 WHERE id = $1 AND upload = $2 AND whole = 0")
                    .bind(part)
                    .bind(upload)
                    .execute(&mut *tx)
                    .await?;
            if done.rows_affected() == 0 {
                return Err(Error::Missing("part"));
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// The parts of an upload that came whole, with their bytes.
    pub async fn upload_parts(&self, upload: &str) -> Result<BTreeMap<String, Bytes>, Error> {
        self.reading(async {
            let rows: Vec<(String, i64)> =
                sqlx::query_as("SELECT id, bytes FROM upload_parts WHERE upload = $1 AND whole = 1")
                    .bind(upload)
                    .fetch_all(self.pool())
                    .await?;
            Ok(rows.into_iter().map(|(id, bytes)| (id, Bytes(from_sql(bytes)))).collect())
        })
        .await
    }

    /// Ends an upload as this file, which can be read from now on; its parts go. [`Error::Full`] where the tenant has no
    /// room for the file; [`Error::Missing`] where the upload is not pending (any more), and nothing was done.
    pub async fn finish_upload(
        &self,
        (upload, file): (&str, &str),
        purpose: &str,
        size: (Bytes, u64),
        (expires, limits): (UnixMillis, FileLimits),
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Upload(upload)).await?;
            files::finish(&mut tx, (file, purpose), size, (expires, limits), (Some(upload), now)).await?;
            let done = sqlx::query(
                "UPDATE uploads SET state = 'completed', file = $1 WHERE id = $2 AND state = 'pending'",
            )
            .bind(file)
            .bind(upload)
            .execute(&mut *tx)
            .await?;
            if done.rows_affected() == 0 {
                return Err(Error::Missing("upload"));
            }
            delete_parts(&mut tx, upload).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Calls an upload off; its parts go. `false` where it is not pending (any more).
    pub async fn cancel_upload(&self, id: &str) -> Result<bool, Error> {
        self.bounded(async {
            let mut tx = self.begin_write_of_files(FilesOf::Upload(id)).await?;
            let done =
                sqlx::query("UPDATE uploads SET state = 'cancelled' WHERE id = $1 AND state = 'pending'")
                    .bind(id)
                    .execute(&mut *tx)
                    .await?;
            delete_parts(&mut tx, id).await?;
            tx.commit().await?;
            Ok(done.rows_affected() > 0)
        })
        .await
    }

    /// Forgets the uploads past their date; says how many. What their parts hold goes with [`Store::expire_files`].
    pub async fn expire_uploads(&self, now: UnixMillis) -> Result<u64, Error> {
        self.changed(sqlx::query("DELETE FROM uploads WHERE expires <= $1").bind(now.to_sql())).await
    }
}

/// What has come of an upload.
struct Received {
    /// The bytes that it is to have.
    announced: u64,
    /// Its parts, those that are still coming too.
    parts: u64,
    /// Bytes of those that came whole.
    whole: u64,
    /// Bytes of the others so far.
    coming: u64,
}

/// The parts of an upload, the bytes of those that came whole, and the bytes of the others that are not past their date. What
/// came whole, up to ten thousand parts, is summed from an index alone, as it is asked before each chunk.
const RECEIVED: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(whole_bytes), 0) AS BIGINT), \
    CAST(COALESCE(SUM(coming_bytes), 0) AS BIGINT) FROM \
    (SELECT bytes AS whole_bytes, 0 AS coming_bytes FROM upload_parts WHERE upload = $1 AND whole = 1 UNION ALL \
    SELECT 0, upload_parts.bytes FROM upload_parts JOIN files ON files.id = upload_parts.id \
    WHERE upload_parts.upload = $1 AND upload_parts.whole = 0 AND files.expires > $2) AS parts";

/// That of an upload that is pending and not past its date; [`Error::Missing`] of another. What broke off and is past its date
/// does not count.
async fn received(connection: &mut AnyConnection, upload: &str, now: UnixMillis) -> Result<Received, Error> {
    let announced: Option<(i64,)> =
        sqlx::query_as("SELECT bytes FROM uploads WHERE id = $1 AND state = 'pending' AND expires > $2")
            .bind(upload)
            .bind(now.to_sql())
            .fetch_optional(&mut *connection)
            .await?;
    let Some((announced,)) = announced else { return Err(Error::Missing("upload")) };
    let (parts, whole, coming): (i64, i64, i64) =
        sqlx::query_as(RECEIVED).bind(upload).bind(now.to_sql()).fetch_one(connection).await?;
    Ok(Received {
        announced: from_sql(announced),
        parts: from_sql(parts),
        whole: from_sql(whole),
        coming: from_sql(coming),
    })
}

/// Puts off the date of what a part holds. Files come before parts, as where a file is deleted with its part: two that
/// wait for each other end with an error.
async fn put_off(
    connection: &mut AnyConnection,
    part: &str,
    (expires, now): (UnixMillis, UnixMillis),
) -> Result<(), Error> {
    let done = sqlx::query("UPDATE files SET expires = $1 WHERE id = $2 AND expires > $3")
        .bind(expires.to_sql())
        .bind(part)
        .bind(now.to_sql())
        .execute(connection)
        .await?;
    if done.rows_affected() == 0 { Err(Error::Missing("part")) } else { Ok(()) }
}

/// Deletes the parts of an upload, with what they hold.
async fn delete_parts(connection: &mut AnyConnection, upload: &str) -> Result<(), Error> {
    let delete = "DELETE FROM files WHERE id IN (SELECT id FROM upload_parts WHERE upload = $1)";
    sqlx::query(delete).bind(upload).execute(connection).await?;
    Ok(())
}

/// The upload of a row of the table.
fn upload(row: UploadColumns) -> Result<PartedUpload, Error> {
    let (id, purpose, name, bytes, kept, state, file, created, expires) = row;
    Ok(PartedUpload {
        id,
        purpose,
        name,
        bytes: Bytes(from_sql(bytes)),
        kept: kept.map(|kept| Millis(from_sql(kept))),
        state: UploadState::parse(&state)?,
        file,
        created: instant(created),
        expires: instant(expires),
    })
}

#[cfg(test)]
mod tests {
    use sqlx::Row as _;

    use super::*;

    #[tokio::test]
    async fn parts_that_came_whole_are_summed_from_an_index_alone() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let explained = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {RECEIVED}"));
        let plan = sqlx::query(explained).bind("u").bind(1_i64);
        let plan = plan.fetch_all(store.pool()).await.expect("explained");
        let steps: Vec<String> = plan.iter().map(|row| row.get::<String, _>("detail")).collect();
        let by_size = "SEARCH upload_parts USING COVERING INDEX parts_by_size (upload=? AND whole=?)";
        assert!(steps.iter().any(|step| step == by_size), "{steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN files")), "{steps:?}");
    }
}
