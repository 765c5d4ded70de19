//! Who has a ticket, and how often it was taken up: a process that is killed with it leaves its take in the count.
//!
//! A take counts when a process begins to work on a ticket. It is given back where the process ends in order, and
//! forgotten once a row of the ticket is stored. What is left are processes that ended with the ticket (or lost their
//! lease) without having got anything done of it; the caller decides how many may.

use base::TenantId;

use crate::error::Error;
use crate::open::{Lock, Store};
use crate::tickets::{Lease, TicketState};
use crate::time::{UnixMillis, to_sql};

/// Counts a take once, however often its process asks for it.
const TAKE: &str = "UPDATE tickets SET takes = takes + 1, taken_by = $1 \
    WHERE id = $2 AND holder = $3 AND state = 'running' AND (taken_by IS NULL OR taken_by <> $1)";
const GIVE_BACK: &str = "UPDATE tickets SET takes = takes - 1, taken_by = NULL \
    WHERE taken_by = $1 AND state = 'running'";
const GIVE_ONE_BACK: &str = "UPDATE tickets SET takes = takes - 1, taken_by = NULL \
    WHERE taken_by = $1 AND state = 'running' AND id = $2";

impl Store {
    /// How far a tenant's ticket is, and who has it. Not its request, nor its rows, which may be large.
    pub async fn ticket_holder(
        &self,
        tenant: TenantId,
        id: &str,
        now: UnixMillis,
    ) -> Result<Option<(TicketState, String)>, Error> {
        self.reading(async {
            let row: Option<(String, String)> = sqlx::query_as(
                "SELECT state, holder FROM tickets WHERE id = $1 AND tenant = $2 AND expires > $3",
            )
            .bind(id)
            .bind(to_sql(tenant.0))
            .bind(now.to_sql())
            .fetch_optional(self.pool())
            .await?;
            let Some((state, holder)) = row else { return Ok(None) };
            Ok(Some((TicketState::parse(&state)?, holder)))
        })
        .await
    }

    /// Notes that a process begins to work on tickets that it holds, all or none. When this returns, the note survives
    /// whatever the work does to the process.
    pub async fn take_tickets(&self, ids: &[&str], lease: &Lease) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Tickets).await?;
            for id in ids {
                let take = sqlx::query(TAKE).bind(&lease.process).bind(*id).bind(&lease.holder);
                take.execute(&mut *tx).await?;
            }
            Ok(tx.commit().await?)
        })
        .await
    }

    /// A process works on a ticket no more, which another may go on with. `false` where it had not taken it up.
    pub async fn give_ticket_back(&self, id: &str, process: &str) -> Result<bool, Error> {
        Ok(self.changed(sqlx::query(GIVE_ONE_BACK).bind(process).bind(id)).await? > 0)
    }

    /// A process ends in order: it works on none of its tickets any more; says how many those were.
    pub async fn give_tickets_back(&self, process: &str) -> Result<u64, Error> {
        self.changed(sqlx::query(GIVE_BACK).bind(process)).await
    }
}
