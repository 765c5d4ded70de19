//! A response in the background that another gateway runs, for who reads it here: that gateway is asked to tell how far it
//! is, by the store, and what it tells is put onto a copy of the answer. Must not know HTTP.

use std::sync::Arc;
use std::time::Duration;

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
/// Time between two looks, at most, while nothing changes.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// When a reader looks next at what another gateway tells: the database is asked each time, so ever later while nothing
/// changes. The first look is at once.
#[derive(Debug, Default)]
pub(crate) struct LookPace {
    /// Time from the last look to the next one.
    span: Duration,
    /// How much of it is over.
    waited: Duration,
}

impl LookPace {
    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.waited >= self.span
    }

    /// Time to the next look.
    pub(crate) fn left(&self) -> Duration {
        self.span.saturating_sub(self.waited)
    }

    /// So much time is over.
    pub(crate) fn wait(&mut self, span: Duration) {
        self.waited += span;
    }

    /// A look is over. `least`: time to the next one behind news.
    pub(crate) fn looked(&mut self, found_more: bool, least: Duration) {
        let span = if found_more { least } else { (2 * self.span).clamp(least, LOOK_MAX.max(least)) };
        *self = Self { span, waited: Duration::ZERO };
    }

    /// The reader has taken what it was told: there may be more already.
    pub(crate) fn look_at_once(&mut self) {
        *self = Self::default();
    }
}

/// What was new of a response that another gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenIn {
    Nothing,
    More,
    /// Of another run: the copy begins anew.
    Anew,
}

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

    /// Has its gateway tell, and takes in what is new.
    pub(crate) async fn take_in(&mut self, app: &App) -> Result<TakenIn, RequestError> {
        let (store, shared) = (&app.runtime.store, &app.runtime.shared);
        let now = shared.clock.now();
        if self.asked.is_none_or(|asked| now.since(asked) >= Nanos::from(ASK_EVERY)) {
            self.asked = Some(now);
            stored(store.want_progress(self.tenant, &self.ticket, INTEREST_LASTS, shared.unix_now()).await)?;
        }
        let place = ProgressPlace { run: self.run.as_deref().unwrap_or_default(), next: self.next };
        let pieces = stored(store.progress((self.tenant, &self.ticket), place, PIECES_MAX).await)?;
        let mut taken = if pieces.is_empty() { TakenIn::Nothing } else { TakenIn::More };
        for piece in pieces {
            if self.run.as_ref() != Some(&piece.run) {
                self.copy.relquery = empty_copy(app, &self.copy.relquery);
                if self.run.replace(piece.run).is_some() {
                    taken = TakenIn::Anew;
                }
                self.next = 0;
            }
            if piece.number != self.next {
                // It was begun anew between two looks: the next one finds it from its beginning.
                self.run = None;
                return Ok(TakenIn::Anew);
            }
            put_piece(&piece.content, &self.copy.relquery, now)?;
            self.next += 1;
        }
        Ok(taken)
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
    let model = app.models.of_request(tenant, &fields)?;
    let context = RequestContext { app, model, tenant, purpose: Purpose::Show, arrival };
    let (echo, tools) = openai::response_form(context, fields)?;
    let arrival = Arrival { unix_ms: ticket.created.0, time: arrival };
    let relquery = RelQueryState::new(id, tenant, RelQueryKind::RelQuery, 1, arrival);
    let envelope = ResponseEnvelope::new(&relquery, model.model(), echo).calling(tools);
    Ok(RunningResponse { relquery, envelope: Arc::new(envelope) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_ever_later_while_nothing_changes_and_soon_behind_news() {
        let ms = Duration::from_millis;
        let mut looks = LookPace::default();
        let mut until_next = |found_more: bool| {
            assert!(looks.is_due());
            looks.looked(found_more, ms(250));
            let left = looks.left();
            looks.wait(left / 2);
            assert!(!looks.is_due(), "half of it is over");
            looks.wait(looks.left());
            left
        };
        let still = [(); 5].map(|()| until_next(false));
        assert_eq!(still, [250, 500, 1_000, 2_000, 2_000].map(ms));
        assert_eq!([true, false, true].map(&mut until_next), [250, 500, 250].map(ms));
        assert_eq!(until_next(false), ms(500));
        looks.look_at_once();
        assert!(looks.is_due());
        looks.looked(false, ms(20));
        assert_eq!(looks.left(), ms(20), "as often as its gateway writes");
    }
}
