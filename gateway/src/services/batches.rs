//! Batches: many requests in a file, run in the background in class bulk, each exactly once.
//!
//! A batch is a ticket of the store, held by one gateway under the same lease as any ticket. Its worker reads
//! the input chunk by chunk, puts rows with a common prefix together (Dynamic Prefix Bucketing), keeps a
//! bounded number of them with the scheduler, and records each row as it ends, once, by its line's number. A
//! gateway that takes a batch over goes on behind what is recorded. Must not know HTTP.

mod called_off;
mod ends;
mod finish;
pub mod lines;
mod queue;
mod rows;
mod run;
pub mod running;
mod watch;

use std::sync::Arc;

use base::{Millis, TenantId};
use lines::LineError;
use serde::{Deserialize, Serialize};
use serving::caller::Caller;
use serving::error::stored;
use serving::error::{RequestError, internal};
use serving::relquery_state::Usage;
use serving::traces::{KeptOrigin, Origin};
use sha2::{Digest as _, Sha256};
use store::{
    BATCH, ClaimKind, Error, Lease, NewTicket, Page, RowCounts, Ticket, TicketState, UnixMillis, UsageRow,
};

use crate::services::takes::{self, TakeUp};
use crate::services::{files, tickets};
use crate::state::App;

/// Batches taken over at a time.
const CLAIMED_MAX: u32 = 64;

/// What a batch was asked to do, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest {
    pub input_file_id: String,
    /// Where they would go one by one.
    pub endpoint: String,
    /// The time it may take, as it was asked for.
    pub completion_window: String,
    /// The same.
    pub window: Millis,
    /// The client's own words.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// How long its files are kept, where the client says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_kept: Option<Millis>,
}

/// Tokens of answers of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerTokens {
    /// Prompt tokens.
    pub input: u64,
    /// Of those, tokens that were not computed.
    pub cached: u64,
    pub output: u64,
}

impl AnswerTokens {
    fn plus(self, more: Self) -> Self {
        Self {
            input: self.input + more.input,
            cached: self.cached + more.cached,
            output: self.output + more.output,
        }
    }
}

impl From<Usage> for AnswerTokens {
    fn from(usage: Usage) -> Self {
        Self { input: usage.prompt.0, cached: usage.cached.0, output: usage.output.0 }
    }
}

/// What is known of a batch beside its rows, as the store keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Requests, once they are counted.
    pub total: u64,
    /// Requests with an answer, at the end.
    pub completed: u64,
    /// Requests that failed, at the end.
    pub failed: u64,
    /// Tokens of the answers and of what was called off, at the end.
    pub tokens: Option<AnswerTokens>,
    /// Of them, those of lines that were called off with it so far: no line tells of these. Usage has them since this has.
    pub called_off: AnswerTokens,
    /// When the first could run.
    pub in_progress_at: Option<UnixMillis>,
    /// When the last was over.
    pub finalizing_at: Option<UnixMillis>,
    /// When it ended, whichever way.
    pub ended_at: Option<UnixMillis>,
    /// Its window passed first.
    pub is_expired: bool,
    /// Why nothing ran.
    pub errors: Vec<LineError>,
    /// Answers.
    pub output_file: Option<String>,
    /// Failures.
    pub error_file: Option<String>,
}

/// What the store keeps of a batch's request: what was asked, and where it came from. One that is sent again under its
/// idempotency key comes from elsewhere.
#[derive(Serialize, Deserialize)]
struct StoredRequest<R> {
    #[serde(flatten)]
    request: R,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<KeptOrigin>,
}

/// A batch as it stands.
#[derive(Clone, Debug)]
pub struct Batch {
    pub id: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it was asked to do.
    pub request: BatchRequest,
    /// The request that made it: what its rows are traced to.
    pub origin: Option<KeptOrigin>,
    /// How far it is.
    pub state: TicketState,
    /// What else is known.
    pub summary: Summary,
    /// When it was made.
    pub created: UnixMillis,
    /// When it was asked to stop.
    pub cancelling: Option<UnixMillis>,
    /// Servers that ended with it and recorded nothing of it, before a worker of this one had it.
    pub ends: u64,
    /// The line that is given up because of them, once it is known.
    pub given_up: Option<u32>,
}

impl Batch {
    fn of(ticket: Ticket) -> Result<Self, RequestError> {
        let Ticket { id, tenant, request, state, summary, created, cancelling, .. } = ticket;
        let StoredRequest { request, origin } = serde_json::from_str(&request).map_err(internal)?;
        let summary = match summary {
            Some(text) => serde_json::from_str(&text).map_err(internal)?,
            None => Summary::default(),
        };
        Ok(Self { id, tenant, request, origin, state, summary, created, cancelling, ends: 0, given_up: None })
    }

    /// How its worker takes it up.
    fn take_up(&self, app: &App) -> TakeUp {
        takes::decide(self.ends, app.config.store.takes_max)
    }

    /// When its window ends.
    pub fn expires(&self) -> UnixMillis {
        self.created.after(self.request.window)
    }
}

/// Has a worker run a batch, unless one does. It begins behind those that stand in the line before it.
fn start(app: &Arc<App>, batch: Batch, line: &mut queue::BatchQueue) {
    if !app.batches.started().insert(batch.id.clone()) {
        return;
    }
    let (app, ticket_in_line) = (app.clone(), line.next());
    let origin = batch.origin.as_ref().map(Origin::from);
    let work = async move {
        let id = batch.id.clone();
        run::run(&app, batch, ticket_in_line).await;
        app.batches.started().remove(&id);
        app.batches.ended.notify_waiters();
    };
    match origin {
        Some(origin) => drop(tokio::spawn(Arc::new(origin).scope(work))),
        None => drop(tokio::spawn(work)),
    }
}

/// Makes a batch. With a key that made one before, gives that one, whichever gateway made it.
pub async fn create(
    app: &Arc<App>,
    caller: Caller,
    request: BatchRequest,
    key: Option<&str>,
) -> Result<Batch, RequestError> {
    if app.runtime.is_draining() {
        return Err(RequestError::ShuttingDown);
    }
    let id = match key {
        Some(key) => id_of(caller.tenant, key),
        None => format!("batch_{:032x}", rand::random::<u128>()),
    };
    if key.is_some()
        && let Some(batch) = repeated(app, caller, &id, &request).await?
    {
        return Ok(batch);
    }
    check_input(app, caller.tenant, &request.input_file_id).await?;
    check_room(app, caller.tenant).await?;
    let now = app.runtime.shared.unix_now();
    let origin = Origin::current().map(|origin| origin.kept());
    let stored_request = StoredRequest { request: &request, origin: origin.clone() };
    let text = serde_json::to_string(&stored_request).map_err(internal)?;
    let ticket = NewTicket {
        id: &id,
        tenant: caller.tenant,
        kind: BATCH,
        request: &text,
        expires: now.after(app.config.bulk.keep_ms_max).max(now.after(request.window)),
        lease: &tickets::lease(app),
        key: None,
    };
    match app.runtime.store.create_ticket(ticket, now).await {
        Err(Error::Taken { .. }) => {
            let batch = repeated(app, caller, &id, &request).await?;
            return batch.ok_or(RequestError::Internal);
        }
        other => stored(other)?,
    }
    let batch = Batch {
        id,
        tenant: caller.tenant,
        request,
        origin,
        state: TicketState::Running,
        summary: Summary::default(),
        created: now,
        cancelling: None,
        ends: 0,
        given_up: None,
    };
    start(app, batch.clone(), &mut queue::BatchQueue::default());
    Ok(batch)
}

/// Refuses a file that is not there, or is no batch's.
async fn check_input(app: &App, tenant: TenantId, file: &str) -> Result<(), RequestError> {
    let input = match files::find(app, tenant, file).await {
        Err(RequestError::NotFound(what)) => {
            return Err(RequestError::invalid("input_file_id", format!("{what} not found")));
        }
        other => other?,
    };
    if input.purpose != "batch" {
        return Err(RequestError::invalid("input_file_id", "must be a file of purpose `batch`"));
    }
    Ok(())
}

/// Refuses one batch more than a tenant may have at a time.
async fn check_room(app: &App, tenant: TenantId) -> Result<(), RequestError> {
    let limit = app.config.bulk.tenant_batches_max;
    if stored(app.runtime.store.count_batches(tenant).await)? >= limit {
        return Err(RequestError::Busy {
            what: "unfinished batches of this tenant",
            limit: format!("{limit} (bulk.tenant_batches_max)"),
            retry_after: Millis(60_000),
        });
    }
    Ok(())
}

/// The id of the batch that a tenant's idempotency key names: the store itself keeps such a key from making
/// two.
fn id_of(tenant: TenantId, key: &str) -> String {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(b"relserve batch")
        .chain_update(tenant.0.to_le_bytes())
        .chain_update(key)
        .finalize()
        .into();
    let half: [u8; 16] = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
    format!("batch_{:032x}", u128::from_le_bytes(half))
}

/// The batch that a key made before.
async fn repeated(
    app: &App,
    caller: Caller,
    id: &str,
    request: &BatchRequest,
) -> Result<Option<Batch>, RequestError> {
    match find(app, caller.tenant, id).await {
        Ok(batch) if batch.request == *request => Ok(Some(batch)),
        Ok(_) => Err(RequestError::KeyReused("Idempotency-Key")),
        Err(RequestError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A tenant's batch.
pub async fn find(app: &App, tenant: TenantId, id: &str) -> Result<Batch, RequestError> {
    let now = app.runtime.shared.unix_now();
    let ticket = stored(app.runtime.store.ticket(tenant, id, now).await)?;
    let ticket = ticket.filter(|ticket| ticket.kind == BATCH);
    Batch::of(ticket.ok_or_else(|| RequestError::NotFound(format!("the batch `{id}`")))?)
}

/// A tenant's batches, newest first.
pub async fn list(app: &App, tenant: TenantId, page: Page<'_>) -> Result<Vec<Batch>, RequestError> {
    let now = app.runtime.shared.unix_now();
    let found = stored(app.runtime.store.tickets(tenant, BATCH, page, now).await)?;
    found.into_iter().map(Batch::of).collect()
}

/// Requests of a batch that are over.
pub async fn counts(app: &App, batch: &Batch) -> Result<RowCounts, RequestError> {
    if batch.state == TicketState::Running {
        return stored(app.runtime.store.count_rows(&batch.id).await);
    }
    let Summary { completed, failed, .. } = batch.summary;
    Ok(RowCounts { over: completed + failed, failed })
}

/// Asks a batch to stop. What it has done is kept.
pub async fn cancel(app: &App, tenant: TenantId, id: &str) -> Result<Batch, RequestError> {
    let now = app.runtime.shared.unix_now();
    stored(app.runtime.store.cancel_batch(tenant, id, now).await)?;
    // Its worker may be this gateway's; another's looks by itself.
    app.batches.look.send_replace(());
    find(app, tenant, id).await
}

/// Claims unfinished batches (after a restart, or of a gateway that is gone) and goes on with them, the
/// oldest first.
pub async fn resume(app: &Arc<App>, lease: &Lease) {
    let mut line = queue::BatchQueue::default();
    loop {
        let now = app.runtime.shared.unix_now();
        let claimed = match app.runtime.store.claim_tickets(ClaimKind::Batches, lease, CLAIMED_MAX, now).await
        {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::error!(%error, "unfinished batches cannot be claimed");
                return;
            }
        };
        if claimed.is_empty() {
            return;
        }
        for ticket in claimed {
            let (id, ends) = (ticket.id.clone(), ticket.ends_before(&lease.process));
            match Batch::of(ticket) {
                Ok(batch) => start(app, Batch { ends, ..batch }, &mut line),
                Err(error) => tracing::error!(%error, batch = id, "a batch cannot be read"),
            }
        }
    }
}

/// Writes down how far a batch is, and what was used besides.
async fn note(app: &App, id: &str, summary: &Summary, used: &[UsageRow]) -> Result<(), Error> {
    let summary = serde_json::to_string(summary).expect("a summary is plain data");
    app.runtime.store.note_batch(id, &app.config.store.node, &summary, used).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_batch_of_its_tenant() {
        assert_eq!(id_of(TenantId(1), "a"), id_of(TenantId(1), "a"));
        assert_ne!(id_of(TenantId(1), "a"), id_of(TenantId(2), "a"));
        assert_ne!(id_of(TenantId(1), "a"), id_of(TenantId(1), "b"));
    }

    #[test]
    fn a_summary_of_an_older_program_can_be_read() {
        let summary: Summary = serde_json::from_str(r#"{"total":3}"#).expect("readable");
        assert_eq!(summary, Summary { total: 3, ..Summary::default() });
    }
}
