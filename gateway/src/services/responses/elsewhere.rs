//! A response in the background that another gateway runs, for who reads it here: that gateway is asked to tell how far it
//! is, by the store, and what it tells is put onto a copy of the answer. Must not know HTTP.

use std::sync::Arc;

use base::{Millis, Nanos, TenantId, Time};
use serving::error::{RequestError, internal, stored};
use serving::relquery_state::{Arrival, RelQueryKind, RelQueryState};
use store::{ProgressPlace, Ticket};

use super::background::{KeptRequest, PREFIX, find_ticket};
use super::not_kept;
use super::running::RunningResponse;
use crate::json::JsonFields;
use crate::services::constraints::Purpose;
use crate::services::openai;
use crate::services::prepare::RequestContext;
use crate::state::App;
use crate::wire::openai::{ResponseEnvelope, put_piece};
use crate::wire::relquery;

/// How long a gateway tells a response that is asked for once.
const INTEREST_LASTS: Millis = Millis(15_000);
/// Time between two times that it is asked.
const ASK_EVERY: Millis = Millis(5_000);
/// Pieces that are read at a time.
const PIECES_MAX: u32 = 8;

/// A response that another gateway runs.
pub(crate) struct RemoteResponse {
    tenant: TenantId,
    ticket: String,
    /// A copy of its answer, as far as it is told.
    pub(crate) copy: RunningResponse,
    /// The run of its work that the copy is of, once there is one.
    run: Option<String>,
    /// The number of the next piece.
    next: u32,
    /// When its gateway was asked last.
    asked: Option<Time>,
}

impl RemoteResponse {
    /// Finds how a tenant's response is read.
    pub(crate) async fn find(app: &Arc<App>, tenant: TenantId, id: &str) -> Result<Self, RequestError> {
        let ticket = find_ticket(app, tenant, id).await?.ok_or_else(|| not_kept(id))?;
        // A request may be long.
        let reading = Arc::clone(app);
        let copy = tokio::task::spawn_blocking(move || copy_of(&reading, &ticket));
        let copy = copy.await.map_err(internal)??;
        Ok(Self { tenant, ticket: id.to_owned(), copy, run: None, next: 0, asked: None })
    }

    /// Has its gateway tell, and takes in what is new. Whether that is of another run: the copy begins anew.
    pub(crate) async fn take_in(&mut self, app: &App) -> Result<bool, RequestError> {
        let (store, shared) = (&app.runtime.store, &app.runtime.shared);
        let now = shared.clock.now();
        if self.asked.is_none_or(|asked| now.since(asked) >= Nanos::from(ASK_EVERY)) {
            self.asked = Some(now);
            stored(store.want_progress(self.tenant, &self.ticket, INTEREST_LASTS, shared.unix_now()).await)?;
        }
        let place = ProgressPlace { run: self.run.as_deref().unwrap_or_default(), next: self.next };
        let pieces = stored(store.progress((self.tenant, &self.ticket), place, PIECES_MAX).await)?;
        let mut is_anew = false;
        for piece in pieces {
            if self.run.as_ref() != Some(&piece.run) {
                self.copy.relquery = empty_copy(app, &self.copy.relquery);
                is_anew |= self.run.replace(piece.run).is_some();
                self.next = 0;
            }
            if piece.number != self.next {
                // It was begun anew between two looks: the next one finds it from its beginning.
                self.run = None;
                return Ok(true);
            }
            put_piece(&piece.content, &self.copy.relquery, now)?;
            self.next += 1;
        }
        Ok(is_anew)
    }
}

/// A copy of an answer of which nothing is told.
fn empty_copy(app: &App, of: &RelQueryState) -> Arc<RelQueryState> {
    let arrival = Arrival { unix_ms: of.created_ms, time: app.runtime.shared.clock.now() };
    RelQueryState::new(of.id, of.tenant, RelQueryKind::RelQuery, 1, arrival)
}

/// The same of a ticket's, and how it is read.
fn copy_of(app: &Arc<App>, ticket: &Ticket) -> Result<RunningResponse, RequestError> {
    let id = relquery::parse_id(PREFIX, &ticket.id).ok_or(RequestError::Internal)?;
    let fields = JsonFields::of(KeptRequest::of(ticket)?.body);
    let (arrival, tenant) = (app.runtime.shared.clock.now(), ticket.tenant);
    let model = app.models.of_request(&fields)?;
    let context = RequestContext { app, model, tenant, purpose: Purpose::Show, arrival };
    let (echo, tools) = openai::response_form(context, fields)?;
    let arrival = Arrival { unix_ms: ticket.created.0, time: arrival };
    let relquery = RelQueryState::new(id, tenant, RelQueryKind::RelQuery, 1, arrival);
    let envelope = ResponseEnvelope::new(&relquery, model.model(), echo).calling(tools);
    Ok(RunningResponse { relquery, envelope: Arc::new(envelope) })
}
