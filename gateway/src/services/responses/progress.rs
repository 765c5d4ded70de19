//! Tells readers at other gateways how far responses are that run here. What is new of an answer is written to the store
//! while somebody there reads it, all in one write every [`PACE_MAX`]; while nobody does nothing is written. Must not know
//! HTTP.

use std::sync::Arc;
use std::time::Duration;

use store::ProgressPiece;
use tokio::sync::watch;

use super::background::PREFIX;
use super::running::RunningResponse;
use crate::services::tickets;
use crate::state::{App, CurrentApp};
use crate::wire::openai::AnswerPieces;
use crate::wire::relquery;

/// Time between two writes, where `store.flush_ms` is not less.
const PACE_MAX: Duration = Duration::from_millis(250);
/// Writes between two looks who reads.
const WRITES_PER_LOOK: u32 = 4;
/// Responses that are told at a time.
const RESPONSES_MAX: u32 = 256;
/// Bytes from which on the rest waits for the next write.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// A response that is read elsewhere.
struct ReadResponse {
    ticket: String,
    response: RunningResponse,
    /// What its pieces have in common, which those of another time that it was read do not.
    run: String,
    /// The number of the next piece.
    next: u32,
    answer: AnswerPieces,
}

/// Those of this gateway.
#[derive(Default)]
struct ProgressWriter {
    rounds: u32,
    responses: Vec<ReadResponse>,
}

/// Time between two writes, and from a look that found something written to the next one.
pub(crate) fn pace(app: &App) -> Duration {
    PACE_MAX.min(Duration::from_millis(app.config.store.flush_ms.0))
}

/// Writes while there is something to tell, until it is told to stop.
pub(crate) async fn run(current: Arc<CurrentApp>, mut stop: watch::Receiver<bool>) {
    let mut writer = ProgressWriter::default();
    // Ok: it is told, or the sender is gone.
    while tokio::time::timeout(pace(&current.get()), stop.changed()).await.is_err() {
        writer.write_round(&current.get()).await;
    }
}

impl ProgressWriter {
    async fn write_round(&mut self, app: &App) {
        if self.responses.is_empty() && app.responses.is_empty() {
            self.rounds = 0;
            return;
        }
        if self.rounds.is_multiple_of(WRITES_PER_LOOK) {
            self.look(app).await;
        }
        self.rounds = self.rounds.wrapping_add(1);
        self.forget_ended(app).await;
        self.write(app).await;
    }

    /// Finds which are read, and which not any more.
    async fn look(&mut self, app: &App) {
        let process = tickets::process(app);
        let wanted = match app.runtime.store.wanted_progress(process, RESPONSES_MAX).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::debug!(%error, "readers of responses at other gateways are not known");
                return;
            }
        };
        self.responses.retain(|known| wanted.contains(&known.ticket));
        for ticket in wanted {
            let is_known = self.responses.iter().any(|known| known.ticket == ticket);
            let id = relquery::parse_id(PREFIX, &ticket).filter(|_| !is_known);
            let Some(response) = id.and_then(|id| app.responses.find(id)) else { continue };
            match ProgressPiece::new_run() {
                Ok(run) => {
                    let answer = AnswerPieces::default();
                    self.responses.push(ReadResponse { ticket, response, run, next: 0, answer });
                }
                Err(error) => tracing::warn!(%error, "a response is not told to other gateways"),
            }
        }
    }

    /// Forgets those that do not run here any more, and what was told of those that have ended.
    async fn forget_ended(&mut self, app: &App) {
        let known = self.responses.len();
        self.responses.retain(|ReadResponse { response, .. }| {
            let running = app.responses.find(response.relquery.id);
            running.is_some_and(|running| Arc::ptr_eq(&running.relquery, &response.relquery))
        });
        if self.responses.len() < known
            && let Err(error) = app.runtime.store.forget_progress().await
        {
            tracing::debug!(%error, "what was told of a response is not forgotten yet");
        }
    }

    async fn write(&mut self, app: &App) {
        let (mut pieces, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        for ReadResponse { ticket, response, run, next, answer } in &mut self.responses {
            if bytes >= WRITE_BYTES_MAX {
                break;
            }
            looked_at += 1;
            if let Some(content) = answer.next_piece(&response.relquery) {
                bytes += content.len();
                pieces.push((ticket.clone(), ProgressPiece { number: *next, run: run.clone(), content }));
                *next += 1;
            }
        }
        // Whoever had to wait is the first of the next write.
        self.responses.rotate_left(looked_at);
        if pieces.is_empty() {
            return;
        }
        match app.runtime.store.append_progress(&tickets::lease(app), &pieces).await {
            Ok(written) => {
                let is_lost = |known: &ReadResponse| {
                    let mut tickets = pieces.iter().map(|(ticket, _)| ticket);
                    tickets.any(|ticket| *ticket == known.ticket) && !written.contains(&known.ticket)
                };
                self.responses.retain(|known| !is_lost(known));
            }
            // Nobody knows what is written: those that are read still begin with another run.
            Err(error) => {
                tracing::debug!(%error, "readers of responses at other gateways are not told");
                self.responses.clear();
            }
        }
    }
}
