//! How far tickets are, for readers at other gateways than those that run them: told while somebody reads so, and no longer.
//!
//! A reader's gateway wants to be told for a span, which ends by the database's clock. The process that has the ticket finds
//! that, and writes what is new of its work, a piece after the other. All pieces of a ticket are of one run of the work; a
//! run that begins anew deletes those of the one before, and what a process wrote is shown while it has the ticket alone.
//! Nothing of it is a promise: what a ticket came to stands in its rows and its end.

use std::collections::BTreeSet;

use base::{Millis, TenantId};
use sqlx::{Any, AssertSqlSafe};

use crate::error::{Error, foreign};
use crate::keys::random_secret;
use crate::open::{Lock, Store};
use crate::tickets::{Lease, row_number};
use crate::time::{UnixMillis, to_sql};

/// A piece of what is told of a ticket while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressPiece {
    /// Its place in its run: one that is the first replaces what was told of runs before.
    pub number: u32,
    /// A word that no other run has.
    pub run: String,
    /// JSON text, meaningful to the caller.
    pub content: String,
}

impl ProgressPiece {
    /// A word that no other run has.
    pub fn new_run() -> Result<String, Error> {
        random_secret("")
    }
}

/// Where the pieces of a ticket begin that its reader does not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressPlace<'a> {
    /// The run that it was told of; those of another are all new.
    pub run: &'a str,
    /// The number of the next piece of it.
    pub next: u32,
}

/// Deletes what was told of a ticket by runs before.
const BEGIN: &str = "DELETE FROM ticket_progress WHERE ticket = $1 AND EXISTS \
    (SELECT 1 FROM tickets WHERE id = $1 AND holder = $2 AND taken_by = $3 AND state = 'running')";

/// Writes a piece that follows on the one before it, of a ticket that its process has and somebody reads.
const APPEND: &str = "INSERT INTO ticket_progress (ticket, piece_number, process, run, content) \
    SELECT tickets.id, $4, $3, $5, $6 FROM tickets JOIN ticket_readers ON ticket_readers.ticket = tickets.id \
    WHERE tickets.id = $1 AND tickets.holder = $2 AND tickets.taken_by = $3 AND tickets.state = 'running' \
    AND ($4 = 0 OR EXISTS (SELECT 1 FROM ticket_progress AS last \
     WHERE last.ticket = $1 AND last.run = $5 AND last.piece_number = $4 - 1))";

impl Store {
    /// Has a tenant's ticket told by who runs it, for `span` from now. `false`: it does not run, or is another's.
    pub async fn want_progress(
        &self,
        tenant: TenantId,
        id: &str,
        span: Millis,
        now: UnixMillis,
    ) -> Result<bool, Error> {
        let sql = format!(
            "INSERT INTO ticket_readers (ticket, expires) SELECT id, {} + $1 FROM tickets \
             WHERE id = $2 AND tenant = $3 AND state = 'running' AND expires > $4 \
             ON CONFLICT (ticket) DO UPDATE SET expires = excluded.expires",
            self.database_clock()
        );
        self.bounded(async {
            // Safe: nothing but a constant is put in.
            let wanted = sqlx::query::<Any>(AssertSqlSafe(sql))
                .bind(to_sql(span.0))
                .bind(id)
                .bind(to_sql(tenant.0))
                .bind(now.to_sql())
                .execute(self.pool())
                .await;
            // It was deleted just now.
            let wanted = wanted.map_err(|error| foreign(error, Error::Missing("ticket")));
            match wanted {
                Ok(wanted) => Ok(wanted.rows_affected() > 0),
                Err(Error::Missing(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The tickets that a process has and that are to be told, at most `limit`.
    pub async fn wanted_progress(&self, process: &str, limit: u32) -> Result<Vec<String>, Error> {
        let sql = format!(
            "SELECT ticket FROM ticket_readers JOIN tickets ON tickets.id = ticket_readers.ticket \
             WHERE ticket_readers.expires > {} AND tickets.taken_by = $1 AND tickets.state = 'running' \
             ORDER BY ticket LIMIT $2",
            self.database_clock()
        );
        self.reading(async {
            // Safe: nothing but a constant is put in.
            let found: Vec<(String,)> = sqlx::query_as(AssertSqlSafe(sql))
                .bind(process)
                .bind(i64::from(limit))
                .fetch_all(self.pool())
                .await?;
            Ok(found.into_iter().map(|(ticket,)| ticket).collect())
        })
        .await
    }

    /// Tells tickets, each by a piece; of which ones it is written. It is not where a ticket has ended or is gone, where
    /// another has it now, where nobody reads it, and where the piece before it is not there.
    pub async fn append_progress(
        &self,
        lease: &Lease,
        pieces: &[(String, ProgressPiece)],
    ) -> Result<BTreeSet<String>, Error> {
        self.bounded(async {
            // As claims do: who has lost a ticket tells nothing of it behind them.
            let mut tx = self.begin_write(Lock::Tickets).await?;
            let mut written = BTreeSet::new();
            for (ticket, ProgressPiece { number, run, content }) in pieces {
                if *number == 0 {
                    let begun = sqlx::query(BEGIN).bind(ticket).bind(&lease.holder).bind(&lease.process);
                    begun.execute(&mut *tx).await?;
                }
                let added = sqlx::query(APPEND)
                    .bind(ticket)
                    .bind(&lease.holder)
                    .bind(&lease.process)
                    .bind(i64::from(*number))
                    .bind(run)
                    .bind(content);
                if added.execute(&mut *tx).await?.rows_affected() > 0 {
                    written.insert(ticket.clone());
                }
            }
            tx.commit().await?;
            Ok(written)
        })
        .await
    }

    /// What is told of a tenant's ticket from a place on, at most `limit` pieces.
    pub async fn progress(
        &self,
        (tenant, id): (TenantId, &str),
        place: ProgressPlace<'_>,
        limit: u32,
    ) -> Result<Vec<ProgressPiece>, Error> {
        self.reading(async {
            let found: Vec<(i64, String, String)> = sqlx::query_as(
                "SELECT piece_number, run, content FROM ticket_progress JOIN tickets ON tickets.id = ticket \
                 WHERE ticket = $1 AND tickets.tenant = $2 AND tickets.taken_by = process \
                 AND (run <> $3 OR piece_number >= $4) ORDER BY piece_number LIMIT $5",
            )
            .bind(id)
            .bind(to_sql(tenant.0))
            .bind(place.run)
            .bind(i64::from(place.next))
            .bind(i64::from(limit))
            .fetch_all(self.pool())
            .await?;
            found.into_iter().map(piece).collect()
        })
        .await
    }

    /// Forgets what was told of tickets that have ended, or that nobody reads any more; says of how many.
    pub async fn forget_progress(&self) -> Result<u64, Error> {
        let sql = format!(
            "DELETE FROM ticket_readers WHERE expires <= {} OR NOT EXISTS \
             (SELECT 1 FROM tickets WHERE tickets.id = ticket_readers.ticket AND tickets.state = 'running')",
            self.database_clock()
        );
        self.bounded(async {
            // What is being told is not taken away meanwhile.
            let mut tx = self.begin_write(Lock::Tickets).await?;
            // Safe: nothing but a constant is put in.
            let forgotten = sqlx::query::<Any>(AssertSqlSafe(sql)).execute(&mut *tx).await?.rows_affected();
            tx.commit().await?;
            Ok(forgotten)
        })
        .await
    }
}

/// A row of the table of pieces.
fn piece((number, run, content): (i64, String, String)) -> Result<ProgressPiece, Error> {
    Ok(ProgressPiece { number: row_number(number)?, run, content })
}
