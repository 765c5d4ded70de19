//! What operators did, when, and to what: written before it is done, so that nothing is done which is not there.

use std::path::Path;

use sqlx::{AnyConnection, Connection as _};

use crate::error::Error;
use crate::open::{Address, Lock, Store};
use crate::tenants::next_id;
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// Something that an operator is about to do.
#[derive(Clone, Copy, Debug)]
pub struct NewAuditEntry<'a> {
    /// Who: a key, the command line, a sign-in link.
    pub actor: &'a str,
    /// What: `key.create`.
    pub action: &'a str,
    /// To what: a tenant's name, a key's number.
    pub subject: &'a str,
    /// What was asked for, as JSON; no secrets.
    pub details: &'a str,
}

/// Something that an operator did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number; later ones have larger ones.
    pub id: u64,
    pub at: UnixMillis,
    pub actor: String,
    pub action: String,
    pub subject: String,
    /// JSON.
    pub details: String,
    /// Whether it was done; `None` where the server ended before it could say.
    pub is_done: Option<bool>,
}

type AuditColumns = (i64, i64, String, String, String, String, Option<i64>);

/// Whether a SQLite file has the log.
const LOG_TABLES: &str = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'audit_log'";

/// Writes an entry, inside the caller's transaction; its number.
pub(crate) async fn insert_audit(
    tx: &mut AnyConnection,
    entry: NewAuditEntry<'_>,
    (is_done, now): (Option<bool>, UnixMillis),
) -> Result<i64, Error> {
    let id = next_id(tx, "audit").await?;
    sqlx::query(
        "INSERT INTO audit_log (id, at, actor, action, subject, details, is_done) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(id)
    .bind(now.to_sql())
    .bind(entry.actor)
    .bind(entry.action)
    .bind(entry.subject)
    .bind(entry.details)
    .bind(is_done.map(i64::from))
    .execute(tx)
    .await?;
    Ok(id)
}

impl Store {
    /// Writes what is about to be done; its number.
    pub async fn begin_audit(&self, entry: NewAuditEntry<'_>, now: UnixMillis) -> Result<u64, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Counters).await?;
            let id = insert_audit(&mut tx, entry, (None, now)).await?;
            tx.commit().await?;
            Ok(from_sql(id))
        })
        .await
    }

    /// Does what is written down first, and then says whether it was done.
    ///
    /// # Errors
    /// Those of `act`; and nothing is done where it cannot be written down.
    pub async fn audited<T, E: From<Error>>(
        &self,
        entry: NewAuditEntry<'_>,
        now: UnixMillis,
        act: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let id = self.begin_audit(entry, now).await?;
        let done = act.await;
        if let Err(error) = self.end_audit(id, done.is_ok()).await {
            tracing::warn!(%error, id, "the audit log does not know how a change ended");
        }
        done
    }

    /// Writes what was done into a SQLite file that no program has open, whatever the version of its schema: it is not
    /// brought up to date. `false` where it is older than the log.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is no such file.
    pub async fn audit_in_file(
        file: &Path,
        entry: NewAuditEntry<'_>,
        now: UnixMillis,
    ) -> Result<bool, Error> {
        // To connect would make it.
        if !file.exists() {
            return Err(Error::Missing("SQLite file"));
        }
        sqlx::any::install_default_drivers();
        let written = async {
            let mut connection = AnyConnection::connect(&Address::File(file.to_owned()).to_url()).await?;
            let (tables,): (i64,) = sqlx::query_as(LOG_TABLES).fetch_one(&mut connection).await?;
            if tables > 0 {
                let mut tx = connection.begin().await?;
                insert_audit(&mut tx, entry, (Some(true), now)).await?;
                tx.commit().await?;
            }
            connection.close().await?;
            Ok::<bool, Error>(tables > 0)
        };
        written.await.map_err(|error| error.of_file(Some(file)))
    }

    /// Says how it ended.
    pub async fn end_audit(&self, id: u64, is_done: bool) -> Result<(), Error> {
        let query = sqlx::query("UPDATE audit_log SET is_done = $1 WHERE id = $2 AND is_done IS NULL");
        self.changed(query.bind(i64::from(is_done)).bind(to_sql(id))).await.map(|_| ())
    }

    /// The newest entries before a number, the newest first.
    pub async fn audit(&self, before: Option<u64>, most: u64) -> Result<Vec<AuditEntry>, Error> {
        self.reading(async {
            let rows: Vec<AuditColumns> = sqlx::query_as(
                "SELECT id, at, actor, action, subject, details, is_done FROM audit_log \
                 WHERE id < $1 ORDER BY id DESC LIMIT $2",
            )
            .bind(before.map_or(i64::MAX, to_sql))
            .bind(to_sql(most))
            .fetch_all(self.pool())
            .await?;
            let entry = |(id, at, actor, action, subject, details, is_done): AuditColumns| AuditEntry {
                id: from_sql(id),
                at: instant(at),
                actor,
                action,
                subject,
                details,
                is_done: is_done.map(|done| done != 0),
            };
            Ok(rows.into_iter().map(entry).collect())
        })
        .await
    }
}
