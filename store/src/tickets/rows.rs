//! The rows of tickets that have finished, each with its result. They are written once, by whoever has the ticket: a row that
//! is there already stays as it is.
//!
//! Beside them is what the work of a ticket keeps for its next start, numbered from [`FIRST_WORK_ROW`] on: it is shown nowhere,
//! counts among the tenant's bytes, and goes with the end of the ticket.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AnyConnection;
use sqlx::any::Any;

use super::check_holder;
use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::usage::{self, UsageKey, UsageRow, Used};

/// Rows per statement: three parameters each, below both databases' limits.
const ROWS_PER_STATEMENT: usize = 100;

/// Rows from this number on are no results: the work of a ticket keeps them for its next start.
pub const FIRST_WORK_ROW: u32 = 1 << 31;

/// A finished row of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketRow {
    /// Its place in the request.
    pub row: u32,
    /// Its result: JSON text, meaningful to the caller.
    pub result: String,
    /// Whether it failed.
    pub failed: bool,
}

impl Store {
    /// Adds finished rows, all or none. A row that is there already stays as it is. When this returns, the
    /// rows survive a crash. [`Error::Missing`] where the ticket was deleted or has expired, or where another
    /// than `holder` has it now.
    pub async fn append_rows(&self, id: &str, holder: &str, rows: &[TicketRow]) -> Result<(), Error> {
        self.append_held(id, holder, rows, true).await
    }

    /// The same of work that begins anew after a restart: its rows are taken back then, so they are no progress.
    pub async fn append_rerun_rows(&self, id: &str, holder: &str, rows: &[TicketRow]) -> Result<(), Error> {
        self.append_held(id, holder, rows, false).await
    }

    async fn append_held(
        &self,
        id: &str,
        holder: &str,
        rows: &[TicketRow],
        is_progress: bool,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            let added = append(&mut tx, id, &rows.iter().collect::<Vec<_>>()).await?;
            if is_progress && !added.is_empty() {
                note_progress(&mut tx, id).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// The same of rows each of which says what it used, which is added to the usage of its tenant where the row was
    /// not there yet: whoever is killed between two rows has both of the one and nothing of the other.
    pub async fn append_rows_with_usage(
        &self,
        id: &str,
        holder: &str,
        rows: &[(TicketRow, Option<UsageRow>)],
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            self.append_counted(&mut tx, id, rows).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// The same of what the work of a ticket keeps for its next start. [`Error::Missing`] where the ticket has ended, too.
    pub async fn keep_work_rows(
        &self,
        id: &str,
        holder: &str,
        rows: &[(TicketRow, Option<UsageRow>)],
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            let running: Option<(String,)> =
                sqlx::query_as("SELECT id FROM tickets WHERE id = $1 AND state = 'running'")
                    .bind(id)
                    .fetch_optional(&mut *tx)
                    .await?;
            if running.is_none() {
                return Err(Error::Missing("ticket"));
            }
            self.append_counted(&mut tx, id, rows).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    async fn append_counted(
        &self,
        tx: &mut AnyConnection,
        id: &str,
        rows: &[(TicketRow, Option<UsageRow>)],
    ) -> Result<(), Error> {
        let added = append(tx, id, &rows.iter().map(|(row, _)| row).collect::<Vec<_>>()).await?;
        if !added.is_empty() {
            note_progress(tx, id).await?;
        }
        let mut used: BTreeMap<UsageKey, Used> = BTreeMap::new();
        for (row, usage) in rows {
            if let (true, Some(UsageRow { key, used: more })) = (added.contains(&i64::from(row.row)), usage) {
                *used.entry(key.clone()).or_default() += *more;
            }
        }
        let used: Vec<UsageRow> = used.into_iter().map(|(key, used)| UsageRow { key, used }).collect();
        if !used.is_empty() {
            self.wait_for_writers(tx, Lock::Usage).await?;
            usage::add(tx, &used).await?;
        }
        Ok(())
    }

    /// What the work of a ticket has kept for its next start.
    pub async fn work_rows(&self, id: &str) -> Result<Vec<TicketRow>, Error> {
        self.reading(async {
            let sql = format!("{SELECT_ROWS} WHERE ticket = $1 AND row_number >= $2 ORDER BY row_number");
            let rows: Vec<(i64, String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .bind(i64::from(FIRST_WORK_ROW))
                .fetch_all(self.pool())
                .await?;
            rows.into_iter().map(ticket_row).collect()
        })
        .await
    }

    /// Takes a ticket's rows back, as its `holder`, but for what its work has kept: it begins again, and may give them in
    /// another order.
    pub async fn clear_rows(&self, id: &str, holder: &str) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            check_holder(&mut tx, id, holder).await?;
            sqlx::query("DELETE FROM ticket_rows WHERE ticket = $1 AND row_number < $2")
                .bind(id)
                .bind(i64::from(FIRST_WORK_ROW))
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }
}

/// What a [`TicketRow`] is made of.
pub(crate) const SELECT_ROWS: &str = "SELECT row_number, result, failed FROM ticket_rows";

/// A row of the table of rows.
pub(crate) fn ticket_row((number, result, failed): (i64, String, i64)) -> Result<TicketRow, Error> {
    Ok(TicketRow { row: row_number(number)?, result, failed: failed != 0 })
}

/// A row's number.
pub(crate) fn row_number(number: i64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|error| Error::Broken { what: "ticket row", reason: error.to_string() })
}

/// Adds finished rows of a ticket; the numbers of those that were not there.
pub(super) async fn append(
    connection: &mut AnyConnection,
    id: &str,
    rows: &[&TicketRow],
) -> Result<BTreeSet<i64>, Error> {
    let mut added = BTreeSet::new();
    for chunk in rows.chunks(ROWS_PER_STATEMENT) {
        let row = |i: usize| {
            let names: Vec<String> = (3 * i + 2..3 * i + 5).map(|number| format!("${number}")).collect();
            format!("($1, {})", names.join(", "))
        };
        let values: Vec<String> = (0..chunk.len()).map(row).collect();
        let sql = format!(
            "INSERT INTO ticket_rows (ticket, row_number, result, failed) VALUES {} \
             ON CONFLICT (ticket, row_number) DO NOTHING RETURNING row_number",
            values.join(", ")
        );
        // Safe: nothing but numbered placeholders is put in.
        let mut query = sqlx::query_as::<Any, (i64,)>(sqlx::AssertSqlSafe(sql)).bind(id);
        for row in chunk {
            query = query.bind(i64::from(row.row)).bind(&row.result).bind(i64::from(row.failed));
        }
        let numbers = query.fetch_all(&mut *connection).await;
        let numbers = numbers.map_err(|error| foreign(error, Error::Missing("ticket")))?;
        added.extend(numbers.into_iter().map(|(number,)| number));
    }
    Ok(added)
}

/// Drops what the work of a ticket has kept.
pub(super) async fn drop_work(connection: &mut AnyConnection, id: &str) -> Result<(), Error> {
    sqlx::query("DELETE FROM ticket_rows WHERE ticket = $1 AND row_number >= $2")
        .bind(id)
        .bind(i64::from(FIRST_WORK_ROW))
        .execute(connection)
        .await?;
    Ok(())
}

/// Forgets takes before the one that has got something done.
async fn note_progress(connection: &mut AnyConnection, id: &str) -> Result<(), Error> {
    let query = sqlx::query("UPDATE tickets SET takes = 1 WHERE id = $1 AND takes > 1").bind(id);
    query.execute(connection).await?;
    Ok(())
}
