//! The events of a response in the background, as server-sent events.
//!
//! A reader reads the response at its own pace, as other streams do, and its leaving ends nothing. What it is told
//! follows from the answer ([`BackgroundEvents`]); the end is told as the response's ticket has it, so that a crash takes
//! nothing back. One that another gateway runs is told of a copy of its answer, a little later.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{Bytes, Data};
use base::TenantId;
use futures_util::Stream;
use serde_json::Value;
use serving::error::RequestError;
use tokio::sync::watch;

use crate::services::responses::elsewhere::{LookPace, RemoteResponse, TakenIn};
use crate::services::responses::running::RunningResponse;
use crate::services::responses::{background, progress};
use crate::state::App;
use crate::wire::openai::BackgroundEvents;

/// How long the reader of a response that does not run here is told nothing at most: less than connections have when the
/// server ends.
const SILENCE_MAX: Duration = Duration::from_secs(1);

struct BackgroundReader {
    app: Data<App>,
    tenant: TenantId,
    id: String,
    events: BackgroundEvents,
    /// While it runs here.
    running: Option<(RunningResponse, watch::Receiver<u64>)>,
    /// While it does not.
    elsewhere: Elsewhere,
    looks: LookPace,
    /// How long its reader was told nothing of that.
    silent: Duration,
    /// Its last reply, once it is over and while that is told.
    reply: Option<Value>,
    /// Whether all was told.
    is_over: bool,
}

/// What is known of a response that another gateway runs.
#[derive(Default)]
enum Elsewhere {
    /// Nothing yet.
    #[default]
    Unknown,
    Found(Box<RemoteResponse>),
    /// It cannot be read here, such as one of a model that this gateway does not serve: its end is told.
    Unreadable,
}

/// The events of a tenant's response whose first reply this is, behind the event `after`.
pub(super) fn events_of(
    app: Data<App>,
    tenant: TenantId,
    first_reply: Value,
    after: Option<u64>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let id = first_reply["id"].as_str().unwrap_or_default().to_owned();
    let events = BackgroundEvents::new(first_reply, after);
    let (elsewhere, looks, silent) = Default::default();
    let reader = BackgroundReader {
        app,
        tenant,
        id,
        events,
        running: None,
        elsewhere,
        looks,
        silent,
        reply: None,
        is_over: false,
    };
    futures_util::stream::unfold(reader, |mut reader| async move {
        let events = reader.next().await?;
        Some((Ok(Bytes::from(events)), reader))
    })
}

impl BackgroundReader {
    async fn next(&mut self) -> Option<String> {
        while !self.is_over {
            if let Some(reply) = &self.reply {
                let (events, is_all) = self.events.end(reply);
                if self.events.is_contradicted() {
                    return Some(self.fail(&RequestError::AnswerChanged));
                }
                self.is_over = is_all;
                // Nothing, where the reader has the last event.
                return Some(events).filter(|events| !events.is_empty());
            }
            let (mut events, may_be_over) = self.look();
            let asks = events.is_empty() && may_be_over && !self.events.is_contradicted();
            if asks && (self.running.is_some() || self.looks.is_due() || self.app.runtime.is_draining()) {
                match self.find_end().await {
                    Some(Ok(reply)) => {
                        self.begin_end(reply);
                        continue;
                    }
                    Some(Err(why)) => return Some(self.fail(&why)),
                    None if self.running.is_none() => {
                        let (told, found_more) = self.look_elsewhere().await;
                        events = told;
                        self.looks.looked(found_more, progress::pace(&self.app));
                    }
                    None => {}
                }
            }
            if self.events.is_contradicted() {
                return Some(self.fail(&RequestError::AnswerChanged));
            }
            if !events.is_empty() {
                self.looks.look_at_once();
                return Some(events);
            }
            if !self.has_changed().await {
                return Some(": waiting\n\n".into());
            }
        }
        None
    }

    /// The last that is told: why there is no more.
    fn fail(&mut self, why: &RequestError) -> String {
        self.is_over = true;
        self.events.error(why)
    }

    /// It is over, with this reply.
    fn begin_end(&mut self, reply: Value) {
        if matches!(self.elsewhere, Elsewhere::Found(_)) {
            // It may be of another run than what was told.
            self.events.run_anew();
        }
        self.reply = Some(reply);
    }

    /// What is new, and whether there may be no more here.
    fn look(&mut self) -> (String, bool) {
        if self.running.as_ref().is_none_or(|(response, _)| response.relquery.read().is_over()) {
            self.find_anew();
        }
        let Some((response, version)) = &mut self.running else { return (self.events.begun(), true) };
        version.mark_unchanged();
        self.events.look(&response.envelope, &response.relquery)
    }

    /// Finds what runs here of it: it may have left, or have been taken up anew.
    fn find_anew(&mut self) {
        let Some(found) = background::running(&self.app, self.tenant, &self.id) else {
            if self.running.take().is_some() {
                self.looks.look_at_once();
            }
            return;
        };
        let is_known = |(known, _): &(RunningResponse, _)| Arc::ptr_eq(&known.relquery, &found.relquery);
        if !self.running.as_ref().is_some_and(is_known) {
            let version = found.relquery.follow();
            self.events.run_anew();
            self.running = Some((found, version));
            self.elsewhere = Elsewhere::Unknown;
        }
    }

    /// What is new of one that another gateway runs, and whether anything is, told or not.
    async fn look_elsewhere(&mut self) -> (String, bool) {
        if matches!(self.elsewhere, Elsewhere::Unknown) {
            self.events.run_anew();
            self.elsewhere = match RemoteResponse::find(&self.app, self.tenant, &self.id).await {
                Ok(found) => Elsewhere::Found(Box::new(found)),
                // The next look finds it.
                Err(RequestError::NoDatabase(_)) => Elsewhere::Unknown,
                Err(error) => {
                    tracing::debug!(%error, ticket = self.id, "a response is told here at its end alone");
                    Elsewhere::Unreadable
                }
            };
        }
        let Elsewhere::Found(found) = &mut self.elsewhere else { return (String::new(), false) };
        // Much is told by several calls.
        let (events, _) = self.events.look(&found.copy.envelope, &found.copy.relquery);
        if !events.is_empty() || self.events.is_contradicted() {
            return (events, true);
        }
        if self.app.runtime.store.health().outage().is_some() {
            return (events, false);
        }
        let taken = found.take_in(&self.app).await.unwrap_or_else(|error| {
            tracing::debug!(%error, ticket = self.id, "a response is not told for now");
            TakenIn::Nothing
        });
        if taken == TakenIn::Anew {
            self.events.run_anew();
        }
        let (events, _) = self.events.look(&found.copy.envelope, &found.copy.relquery);
        (events, taken != TakenIn::Nothing)
    }

    /// The end, once it stands in the ticket; or why none is told here.
    async fn find_end(&self) -> Option<Result<Value, RequestError>> {
        match background::last_reply(&self.app, self.tenant, &self.id).await {
            // A server that shuts down has not ended it: it is told at the next one.
            Ok(None) | Err(RequestError::NoDatabase(_)) if self.app.runtime.is_draining() => {
                Some(Err(RequestError::ShuttingDown))
            }
            Err(RequestError::NoDatabase(_)) => None,
            found => found.transpose(),
        }
    }

    /// Waits for news; `false`: there is none for a while, or none that is heard of here.
    async fn has_changed(&mut self) -> bool {
        let silence = Duration::from_millis(self.app.config.server.keep_alive_ms.0);
        match &mut self.running {
            Some((_, version)) => tokio::time::timeout(silence, version.changed()).await.is_ok(),
            None => {
                let silence = silence.min(SILENCE_MAX);
                let wait = self.looks.left().min(silence.saturating_sub(self.silent));
                tokio::time::sleep(wait).await;
                self.looks.wait(wait);
                self.silent += wait;
                let is_still = self.silent >= silence;
                if is_still {
                    self.silent = Duration::ZERO;
                }
                !is_still
            }
        }
    }
}
