//! Tickets: promises to finish work after the caller has gone.
//!
//! A ticket that was acknowledged outlives the process, with the rows that were finished so far. A running
//! ticket is held by one gateway under a lease; at its start, and when another's lease has run out, a
//! gateway claims what is unfinished and resumes it. Row results are written once: a second gateway that
//! repeats a row changes nothing, and one that has lost its lease writes nothing at all. How often one was taken up is
//! counted ([`crate::takes`]).
//!
//! A batch is a ticket too, of the kind [`BATCH`]: it may have many rows, so those are read page by page, and
//! it can be asked to stop from any gateway.

mod rows;

use base::{Bytes, TenantId};
use sqlx::AnyConnection;
use sqlx::any::{Any, AnyArguments};
use sqlx::query::Query;

use crate::error::{Error, new_of};
use crate::keys::hex;
use crate::open::{Lock, Store};
use crate::responses;
use crate::time::{UnixMillis, from_sql, instant, to_sql};
pub use rows::{FIRST_WORK_ROW, TicketRow};
pub(crate) use rows::{SELECT_ROWS, row_number, ticket_row};
use rows::{append, drop_work};

/// The kind of a ticket that holds a batch.
pub const BATCH: &str = "batch";

/// Who works on a ticket, and until when nobody else may claim it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// A name of the gateway that is the same after its restart (so that it need not wait for its own lease).
    pub holder: String,
    /// A name that this process of the gateway alone ever has: a ticket that comes from another was not given back.
    pub process: String,
    /// The end of the lease, by the database's clock ([`Store::now`]), which all gateways have in common.
    pub until: UnixMillis,
}

/// The idempotency key that a request came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketKey<'a> {
    /// The client's word, unique among its tenant's requests.
    pub name: &'a str,
    /// SHA-256 of the request: its path and body.
    pub request: [u8; 32],
}

/// What to make a ticket of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTicket<'a> {
    /// Its identity; chosen by the caller, unique in the store.
    pub id: &'a str,
    /// Whose it is.
    pub tenant: TenantId,
    /// What kind of request it holds: the caller's word.
    pub kind: &'a str,
    /// The request: JSON, enough to do the work again.
    pub request: &'a str,
    /// When it is forgotten, finished or not.
    pub expires: UnixMillis,
    /// Who works on it.
    pub lease: &'a Lease,
    /// By which the same request finds it.
    pub key: Option<TicketKey<'a>>,
}

/// How far a ticket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketState {
    /// Work goes on, or must be resumed.
    Running,
    /// All rows have ended.
    Completed,
    /// The caller took it back.
    Cancelled,
    /// It could not be done.
    Failed,
}

impl TicketState {
    /// The word that the store keeps.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self, Error> {
        [Self::Running, Self::Completed, Self::Cancelled, Self::Failed]
            .into_iter()
            .find(|state| state.name() == word)
            .ok_or_else(|| Error::Broken { what: "ticket state", reason: format!("`{word}` is none") })
    }
}

/// Which tickets a gateway takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Replies that outlive their clients; each comes with its rows.
    Replies,
    /// Batches; without their rows.
    Batches,
}

/// How many rows a ticket has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    pub over: u64,
    /// Those of them that failed.
    pub failed: u64,
}

/// Bytes of tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketBytes {
    /// Of what was asked for.
    pub requests: Bytes,
    /// Of the results by now.
    pub answers: Bytes,
}

impl TicketBytes {
    /// Of both.
    pub fn total(self) -> u64 {
        self.requests.0.saturating_add(self.answers.0)
    }
}

/// Whether a ticket was made within what its tenant may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketMade {
    Yes,
    NoRoom {
        /// What the tenant's tickets have that nothing is taken of.
        kept: TicketBytes,
        /// What the ticket would have added.
        own: TicketBytes,
    },
}

/// A part of a list, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Begins behind the one of this identity.
    pub after: Option<&'a str>,
    /// Most of them.
    pub limit: u32,
}

/// A ticket as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its identity.
    pub id: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// What kind of request it holds.
    pub kind: String,
    /// The request: JSON.
    pub request: String,
    /// How far it is.
    pub state: TicketState,
    /// What its end left beside the rows (usage and timing, say): JSON, meaningful to the caller.
    pub summary: Option<String>,
    /// When it was made.
    pub created: UnixMillis,
    /// When it is forgotten.
    pub expires: UnixMillis,
    /// Who works on it, or did last.
    pub holder: String,
    /// When it was asked to stop.
    pub cancelling: Option<UnixMillis>,
    /// How often it was taken up since a row of it was last stored, but for takes that were given back.
    pub takes: u64,
    /// The process that took it up last, and has not given it back.
    pub taken_by: Option<String>,
    /// The rows finished so far, by row number; of a batch none.
    pub rows: Vec<TicketRow>,
}

impl Ticket {
    /// How many processes have ended with it and got nothing done of it, that which asks left out.
    pub fn ends_before(&self, process: &str) -> u64 {
        self.takes.saturating_sub(u64::from(self.taken_by.as_deref() == Some(process)))
    }
}

type TicketColumns =
    (String, i64, String, String, String, Option<String>, i64, i64, String, Option<i64>, i64, Option<String>);

/// The columns of a [`TicketColumns`].
const COLUMNS: &str =
    "id, tenant, kind, request, state, summary, created, expires, holder, cancelling, takes, taken_by";

impl Store {
    /// Makes a running ticket. When this returns, the ticket survives a crash.
    pub async fn create_ticket(&self, new: NewTicket<'_>, now: UnixMillis) -> Result<(), Error> {
        self.bounded(async {
            let mut connection = self.pool().acquire().await?;
            insert(&mut connection, new, now).await
        })
        .await
    }

    /// The same of a ticket with rows that have finished already, where the tenant's tickets, but for batches, have no
    /// more than so many bytes with it: their requests and the results that they have by now. Its oldest responses in the
    /// background that are over make room; where that is not enough, none is deleted. Results that come later do not count:
    /// a ticket that was made takes them all.
    pub async fn create_ticket_within(
        &self,
        new: NewTicket<'_>,
        rows: &[TicketRow],
        bytes_max: Bytes,
        now: UnixMillis,
    ) -> Result<TicketMade, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            let answers: u64 = rows.iter().map(|row| row.result.len() as u64).sum();
            let own = TicketBytes { requests: Bytes(new.request.len() as u64), answers: Bytes(answers) };
            let excess = |kept: TicketBytes| (kept.total() + own.total()).saturating_sub(bytes_max.0);
            let beyond = excess(kept_bytes(&mut tx, new.tenant, now).await?);
            if beyond > 0 {
                responses::forget_oldest(&mut tx, (new.tenant, beyond), now).await?;
                let kept = kept_bytes(&mut tx, new.tenant, now).await?;
                if excess(kept) > 0 {
                    return Ok(TicketMade::NoRoom { kept, own });
                }
            }
            let id = new.id;
            insert(&mut tx, new, now).await?;
            append(&mut tx, id, &rows.iter().collect::<Vec<_>>()).await?;
            tx.commit().await?;
            Ok(TicketMade::Yes)
        })
        .await
    }

    /// Keeps less of the request of a ticket that has ended: what is still needed to show it.
    pub async fn shorten_ticket(&self, id: &str, request: &str) -> Result<bool, Error> {
        let query = sqlx::query("UPDATE tickets SET request = $1 WHERE id = $2 AND state <> 'running'")
            .bind(request)
            .bind(id);
        Ok(self.changed(query).await? > 0)
    }

    /// Ends a running ticket as its `holder`, or, without one, as its owner, whoever has it; what its work has kept goes.
    /// `false` where it had ended, is gone, or is held by another.
    pub async fn finish_ticket(
        &self,
        id: &str,
        holder: Option<&str>,
        state: TicketState,
        summary: Option<&str>,
    ) -> Result<bool, Error> {
        let sql = match holder {
            Some(_) => {
                "UPDATE tickets SET state = $1, summary = $2 WHERE id = $3 AND state = 'running' AND holder = $4"
            }
            None => "UPDATE tickets SET state = $1, summary = $2 WHERE id = $3 AND state = 'running'",
        };
        let query = sqlx::query(sql).bind(state.name()).bind(summary).bind(id);
        let query = match holder {
            Some(holder) => query.bind(holder),
            None => query,
        };
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            let is_ended = query.execute(&mut *tx).await?.rows_affected() > 0;
            if is_ended {
                drop_work(&mut tx, id).await?;
            }
            tx.commit().await?;
            Ok(is_ended)
        })
        .await
    }

    /// A tenant's ticket; another tenant's does not exist for it, nor does one past its date.
    pub async fn ticket(&self, tenant: TenantId, id: &str, now: UnixMillis) -> Result<Option<Ticket>, Error> {
        self.reading(async {
            let sql = format!("SELECT {COLUMNS} FROM tickets WHERE id = $1 AND tenant = $2 AND expires > $3");
            let row: Option<TicketColumns> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .bind(to_sql(tenant.0))
                .bind(now.to_sql())
                .fetch_optional(self.pool())
                .await?;
            match row {
                Some(row) => Ok(Some(self.with_rows(row).await?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// Takes over unfinished tickets, oldest first, at most `limit`: those that `lease.holder` held (it has
    /// restarted) and those whose lease has run out. Call until it gives none; a gateway that looks again
    /// while it works first renews its own with the same lease, so that it is not handed those.
    pub async fn claim_tickets(
        &self,
        work: ClaimKind,
        lease: &Lease,
        limit: u32,
        now: UnixMillis,
    ) -> Result<Vec<Ticket>, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            let kind = match work {
                ClaimKind::Replies => "kind <> $5",
                ClaimKind::Batches => "kind = $5",
            };
            let sql = format!(
                "UPDATE tickets SET holder = $1, leased_until = $2 WHERE id IN \
                 (SELECT id FROM tickets WHERE state = 'running' AND expires > $3 AND {kind} \
                  AND (leased_until <= $3 OR (holder = $1 AND leased_until < $2)) ORDER BY created, id LIMIT $4) \
                 RETURNING {COLUMNS}"
            );
            let mut claimed: Vec<TicketColumns> = sqlx::query_as::<Any, TicketColumns>(sqlx::AssertSqlSafe(sql))
            .bind(&lease.holder)
            .bind(lease.until.to_sql())
            .bind(now.to_sql())
            .bind(i64::from(limit))
            .bind(BATCH)
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            claimed.sort_by(|a, b| (a.6, &a.0).cmp(&(b.6, &b.0)));
            let mut tickets = Vec::with_capacity(claimed.len());
            for row in claimed {
                tickets.push(self.with_rows(row).await?);
            }
            Ok(tickets)
        })
        .await
    }

    /// Prolongs the lease on all running tickets of its holder; says how many those are.
    pub async fn renew_tickets(&self, lease: &Lease) -> Result<u64, Error> {
        let query =
            sqlx::query("UPDATE tickets SET leased_until = $1 WHERE holder = $2 AND state = 'running'")
                .bind(lease.until.to_sql())
                .bind(&lease.holder);
        self.changed(query).await
    }

    /// Deletes a tenant's ticket with its rows. `false` where it has none of that identity.
    pub async fn delete_ticket(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let query =
            sqlx::query("DELETE FROM tickets WHERE id = $1 AND tenant = $2").bind(id).bind(to_sql(tenant.0));
        Ok(self.deleted(query).await? > 0)
    }

    /// Deletes every ticket past its date; says how many.
    pub async fn expire_tickets(&self, now: UnixMillis) -> Result<u64, Error> {
        let query = sqlx::query("DELETE FROM tickets WHERE expires <= $1").bind(now.to_sql());
        self.deleted(query).await
    }

    /// Deletes tickets, with all that hangs on them. Who tells of them locks the same rows in another order.
    async fn deleted(&self, query: Query<'_, Any, AnyArguments>) -> Result<u64, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            let deleted = query.execute(&mut *tx).await?.rows_affected();
            tx.commit().await?;
            Ok(deleted)
        })
        .await
    }

    /// The ticket of a row of the table, with its results, without what its work has kept; a batch without any.
    async fn with_rows(&self, row: TicketColumns) -> Result<Ticket, Error> {
        let mut ticket = head(row)?;
        if ticket.kind != BATCH {
            let sql = format!("{SELECT_ROWS} WHERE ticket = $1 AND row_number < $2 ORDER BY row_number");
            let rows: Vec<(i64, String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(&ticket.id)
                .bind(i64::from(FIRST_WORK_ROW))
                .fetch_all(self.pool())
                .await?;
            ticket.rows = rows.into_iter().map(ticket_row).collect::<Result<_, _>>()?;
        }
        Ok(ticket)
    }
}

/// Bytes of a tenant's tickets, but for batches: requests, and the results by now.
async fn kept_bytes(
    connection: &mut AnyConnection,
    tenant: TenantId,
    now: UnixMillis,
) -> Result<TicketBytes, Error> {
    // A sum of BIGINTs is a NUMERIC to Postgres.
    let (requests, results): (i64, i64) = sqlx::query_as(
        "SELECT CAST(COALESCE(SUM(octet_length(request)), 0) AS BIGINT), CAST(COALESCE(SUM((SELECT \
         SUM(octet_length(result)) FROM ticket_rows WHERE ticket = id)), 0) AS BIGINT) \
         FROM tickets WHERE tenant = $1 AND expires > $2 AND kind <> $3",
    )
    .bind(to_sql(tenant.0))
    .bind(now.to_sql())
    .bind(BATCH)
    .fetch_one(connection)
    .await?;
    Ok(TicketBytes { requests: Bytes(from_sql(requests)), answers: Bytes(from_sql(results)) })
}

async fn insert(connection: &mut AnyConnection, new: NewTicket<'_>, now: UnixMillis) -> Result<(), Error> {
    // The work of a reply goes on; that of a batch has not begun.
    let is_taken = new.kind != BATCH;
    sqlx::query(
        "INSERT INTO tickets (id, tenant, kind, request, state, summary, created, expires, holder, leased_until, \
         idempotency_key, request_digest, takes, taken_by) \
         VALUES ($1, $2, $3, $4, 'running', NULL, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(new.id)
    .bind(to_sql(new.tenant.0))
    .bind(new.kind)
    .bind(new.request)
    .bind(now.to_sql())
    .bind(new.expires.to_sql())
    .bind(&new.lease.holder)
    .bind(new.lease.until.to_sql())
    .bind(new.key.map(|key| key.name))
    .bind(new.key.map(|key| hex(&key.request)))
    .bind(i64::from(is_taken))
    .bind(is_taken.then_some(new.lease.process.as_str()))
    .execute(connection)
    .await
    .map_err(new_of("ticket", new.id))?;
    Ok(())
}

/// The ticket of a row of the table.
fn head(row: TicketColumns) -> Result<Ticket, Error> {
    let (id, tenant, kind, request, state, summary, created, expires, holder, cancelling, takes, taken_by) =
        row;
    Ok(Ticket {
        id,
        tenant: TenantId(from_sql(tenant)),
        kind,
        request,
        state: TicketState::parse(&state)?,
        summary,
        created: instant(created),
        expires: instant(expires),
        holder,
        cancelling: cancelling.map(instant),
        takes: from_sql(takes),
        taken_by,
        rows: Vec::new(),
    })
}

/// Refuses a gateway that has lost its lease to another. The caller's lock keeps claims out until it is done.
pub(crate) async fn check_holder(
    connection: &mut AnyConnection,
    id: &str,
    holder: &str,
) -> Result<(), Error> {
    let found: Option<(String,)> = sqlx::query_as("SELECT holder FROM tickets WHERE id = $1")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    match found {
        None => Err(Error::Missing("ticket")),
        Some((found,)) if found != holder => Err(Error::Missing("lease")),
        Some(_) => Ok(()),
    }
}

impl Store {
    /// A tenant's tickets of a kind, newest first, without their rows.
    pub async fn tickets(
        &self,
        tenant: TenantId,
        kind: &str,
        page: Page<'_>,
        now: UnixMillis,
    ) -> Result<Vec<Ticket>, Error> {
        self.reading(async {
            let sql = format!(
                "SELECT {COLUMNS} FROM tickets WHERE tenant = $1 AND kind = $2 AND expires > $3 AND ($4 = '' OR EXISTS \
                 (SELECT 1 FROM tickets AS last WHERE last.id = $4 AND last.tenant = $1 AND \
                  (tickets.created < last.created OR (tickets.created = last.created AND tickets.id < last.id)))) \
                 ORDER BY created DESC, id DESC LIMIT $5"
            );
            let rows: Vec<TicketColumns> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(to_sql(tenant.0))
                .bind(kind)
                .bind(now.to_sql())
                .bind(page.after.unwrap_or_default())
                .bind(i64::from(page.limit))
                .fetch_all(self.pool())
                .await?;
            rows.into_iter().map(head).collect()
        })
        .await
    }
}
