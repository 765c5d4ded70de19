//! Batches: tickets of many rows, which are read page by page, and whose end leaves files.
//!
//! All that a worker writes is fenced: a gateway that has lost its lease to another gets [`Error::Missing`].

use base::{Bytes, TenantId};
use sqlx::AssertSqlSafe;

use crate::error::Error;
use crate::open::{Lock, Store};
use crate::tickets::{
    BATCH, RowCounts, SELECT_ROWS, TicketRow, TicketState, check_holder, row_number, ticket_row,
};
use crate::time::{UnixMillis, from_sql, to_sql};
use crate::usage::{self, UsageRow};

/// What the end of a batch leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd<'a> {
    pub state: TicketState,
    /// What is said of it: JSON, meaningful to the caller.
    pub summary: &'a str,
    /// Its files: identity, bytes, lines. They are seen from now on.
    pub files: &'a [(String, Bytes, u64)],
}

impl Store {
    /// How many rows of a batch are over.
    pub async fn count_rows(&self, id: &str) -> Result<RowCounts, Error> {
        self.reading(async {
            let (over, failed): (i64, i64) = sqlx::query_as(
                "SELECT COUNT(*), CAST(COALESCE(SUM(failed), 0) AS BIGINT) FROM ticket_rows WHERE ticket = $1",
            )
            .bind(id)
            .fetch_one(self.pool())
            .await?;
            Ok(RowCounts { over: from_sql(over), failed: from_sql(failed) })
        })
        .await
    }

    /// The numbers of a batch's rows that are over, in order.
    pub async fn row_numbers(&self, id: &str) -> Result<Vec<u32>, Error> {
        self.reading(async {
            let rows: Vec<(i64,)> =
                sqlx::query_as("SELECT row_number FROM ticket_rows WHERE ticket = $1 ORDER BY row_number")
                    .bind(id)
                    .fetch_all(self.pool())
                    .await?;
            rows.into_iter().map(|(number,)| row_number(number)).collect()
        })
        .await
    }

    /// At most `limit` rows of a batch that failed, or that did not, from a number on.
    pub async fn ticket_rows(
        &self,
        id: &str,
        failed: bool,
        (from, limit): (u32, u32),
    ) -> Result<Vec<TicketRow>, Error> {
        self.reading(async {
            let sql = format!(
                "{SELECT_ROWS} WHERE ticket = $1 AND failed = $2 AND row_number >= $3 \
                 ORDER BY row_number LIMIT $4"
            );
            let rows: Vec<(i64, String, i64)> = sqlx::query_as(AssertSqlSafe(sql))
                .bind(id)
                .bind(i64::from(failed))
                .bind(i64::from(from))
                .bind(i64::from(limit))
                .fetch_all(self.pool())
                .await?;
            rows.into_iter().map(ticket_row).collect()
        })
        .await
    }

    /// Batches of a tenant that are not over.
    pub async fn count_batches(&self, tenant: TenantId) -> Result<u64, Error> {
        self.reading(async {
            let (count,): (i64,) = sqlx::query_as(
                "SELECT COUNT(*) FROM tickets WHERE tenant = $1 AND kind = $2 AND state = 'running'",
            )
            .bind(to_sql(tenant.0))
            .bind(BATCH)
            .fetch_one(self.pool())
            .await?;
            Ok(from_sql(count))
        })
        .await
    }

    /// Asks a running batch to stop, from any gateway. `false` where it is over, or was asked before.
    pub async fn cancel_batch(&self, tenant: TenantId, id: &str, now: UnixMillis) -> Result<bool, Error> {
        let query = sqlx::query(
            "UPDATE tickets SET cancelling = $1 \
                 WHERE id = $2 AND tenant = $3 AND kind = $4 AND state = 'running' AND cancelling IS NULL",
        )
        .bind(now.to_sql())
        .bind(id)
        .bind(to_sql(tenant.0))
        .bind(BATCH);
        Ok(self.changed(query).await? > 0)
    }

    /// Keeps what is said of a batch that goes on, and counts `usage` with that: once, however often the same is sent. What
    /// is said must tell it from what was said before.
    pub async fn note_batch(
        &self,
        id: &str,
        holder: &str,
        summary: &str,
        usage: &[UsageRow],
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            let noted = sqlx::query(
                "UPDATE tickets SET summary = $1 WHERE id = $2 AND state = 'running' \
                 AND (summary IS NULL OR summary <> $1)",
            )
            .bind(summary)
            .bind(id)
            .execute(&mut *tx)
            .await?;
            if noted.rows_affected() > 0 && !usage.is_empty() {
                self.wait_for_writers(&mut tx, Lock::Usage).await?;
                usage::add(&mut tx, usage).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Keeps what is said of a batch that begins, and counts it with `usage`: the first time, however often it is sent.
    pub async fn begin_batch(
        &self,
        id: &str,
        holder: &str,
        (summary, usage): (&str, &UsageRow),
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            let first = sqlx::query(
                "UPDATE tickets SET summary = $1 WHERE id = $2 AND state = 'running' AND summary IS NULL",
            )
            .bind(summary)
            .bind(id)
            .execute(&mut *tx)
            .await?;
            if first.rows_affected() > 0 {
                self.wait_for_writers(&mut tx, Lock::Usage).await?;
                usage::add(&mut tx, std::slice::from_ref(usage)).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Ends a batch, all at once: its files are seen, its rows (which are in them) are forgotten. `false`
    /// where it was over.
    pub async fn finish_batch(&self, id: &str, holder: &str, end: BatchEnd<'_>) -> Result<bool, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            let done = sqlx::query(
                "UPDATE tickets SET state = $1, summary = $2 WHERE id = $3 AND state = 'running'",
            )
            .bind(end.state.name())
            .bind(end.summary)
            .bind(id)
            .execute(&mut *tx)
            .await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            for (file, bytes, lines) in end.files {
                sqlx::query("UPDATE files SET whole = 1, bytes = $1, line_count = $2 WHERE id = $3")
                    .bind(to_sql(bytes.0))
                    .bind(to_sql(*lines))
                    .bind(file)
                    .execute(&mut *tx)
                    .await?;
            }
            sqlx::query("DELETE FROM ticket_rows WHERE ticket = $1").bind(id).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(true)
        })
        .await
    }
}
