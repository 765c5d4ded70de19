//! Uploads in parts: a tenant says how large a file will be, sends it in parts, and has them put together.
//!
//! The bytes of an upload that is pending count among those of its tenant's files, whatever has come of them. What a part
//! holds lies as a file lies (`files`), in base64, under the part's identity, and is never whole. It ends with its upload.

use std::collections::BTreeMap;

use base::{Bytes, Millis, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, foreign, new_of};
use crate::files::{self, FileLimits};
use crate::open::{Lock, Store};
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
            let mut tx = self.begin_write(Lock::Files).await?;
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
        self.bounded(async {
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

    /// Adds a part whose chunks are there. [`Error::Full`] where an upload has too many, or too many bytes in them;
    /// [`Error::Missing`] where it is not pending (any more).
    pub async fn add_part(
        &self,
        upload: &str,
        (part, bytes): (&str, Bytes),
        parts_max: u64,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Files).await?;
            let most: Option<(i64,)> =
                sqlx::query_as("SELECT bytes FROM uploads WHERE id = $1 AND state = 'pending'")
                    .bind(upload)
                    .fetch_optional(&mut *tx)
                    .await?;
            let Some((most,)) = most else { return Err(Error::Missing("upload")) };
            let (parts, held): (i64, i64) = sqlx::query_as(
                "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM upload_parts WHERE upload = $1",
            )
            .bind(upload)
            .fetch_one(&mut *tx)
            .await?;
            if from_sql(parts) >= parts_max {
                return Err(Error::Full { what: "parts", limit: parts_max });
            }
            if from_sql(held).saturating_add(bytes.0) > from_sql(most) {
                return Err(Error::Full { what: "bytes in parts", limit: from_sql(most) });
            }
            sqlx::query("INSERT INTO upload_parts (id, upload, bytes) VALUES ($1, $2, $3)")
                .bind(part)
                .bind(upload)
                .bind(to_sql(bytes.0))
                .execute(&mut *tx)
                .await
                .map_err(|error| foreign(error, Error::Missing("part")))?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// The parts of an upload that came whole, with their bytes.
    pub async fn upload_parts(&self, upload: &str) -> Result<BTreeMap<String, Bytes>, Error> {
        self.bounded(async {
            let rows: Vec<(String, i64)> =
                sqlx::query_as("SELECT id, bytes FROM upload_parts WHERE upload = $1")
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
            let mut tx = self.begin_write(Lock::Files).await?;
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
            let mut tx = self.begin_write(Lock::Files).await?;
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
