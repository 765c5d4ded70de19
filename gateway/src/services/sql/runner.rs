//! The rows of AI columns as relQueries: each window of a column joins the one that is open, answers go to
//! the operator as they come, and what is dropped is cancelled. Must not know the protocol of the client.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use base::{ServiceClass, TokenCount};
use futures_util::future::BoxFuture;
use ir::Cell;
use serving::caller::Caller;
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::relquery_state::{AnswerSource, RelQueryKind, RelQueryState, RowProgress, Status};
use serving::submit::{self, Prepared, Resumed, submit};
use sql::runner::{AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, Tokens};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::services::constraints::Purpose;
use crate::services::prepare::{RequestContext, cells};
use crate::state::App;

/// A full queue is asked again after this time at most.
const RETRY_MAX: Duration = Duration::from_millis(250);

/// Tokens of a context that are kept for an instruction and an answer.
const AROUND_TOKENS: u64 = 256;
/// Characters of a prompt that texts are put together for, however long the context.
const PROMPT_CHARS_MAX: usize = 16_000;

/// Runs the rows of one caller.
pub struct Rows {
    app: Data<App>,
    caller: Caller,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Rows").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Rows {
    /// The rows of a caller.
    pub fn new(app: Data<App>, caller: Caller) -> Arc<Self> {
        Arc::new(Self { app, caller })
    }
}

/// A column that is open.
struct OpenColumn {
    app: Data<App>,
    caller: Caller,
    column: AiColumn,
    options: RunOptions,
    answers: UnboundedSender<RowAnswer>,
    /// One follower for each window; dropping them drops the windows' owners.
    followers: JoinSet<()>,
}

impl Runner for Rows {
    fn open(
        &self,
        column: &AiColumn,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Box<dyn Run> {
        let (app, caller) = (self.app.clone(), self.caller);
        Box::new(OpenColumn {
            app,
            caller,
            column: column.clone(),
            options,
            answers,
            followers: JoinSet::new(),
        })
    }

    fn prompt_chars_max(&self) -> usize {
        let model = &self.app.runtime.model;
        let tokens = model.context_max.0.min(model.kv_tokens()).saturating_sub(AROUND_TOKENS);
        // Seldom fewer than two characters a token, whatever the language.
        usize::try_from(tokens.max(64) * 2).unwrap_or(usize::MAX).min(PROMPT_CHARS_MAX)
    }

    fn estimate<'a>(
        &'a self,
        column: &'a AiColumn,
        rows: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        Box::pin(async move {
            let count = rows.len();
            let prepared = prepared(&self.app, self.caller, column, rows).await.map_err(refused)?;
            let items = prepared.parts.iter().flat_map(|part| &part.rows);
            let (prompt, output) = items.fold((0, 0), |(prompt, output), row| {
                (prompt + row.item.prompt.len() as u64, output + row.item.generation.output_max.0)
            });
            let known = submit::known_answers(&self.app.runtime, self.caller, prepared).await;
            let known = known.read().finished.len();
            let cost =
                self.app.runtime.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).cost;
            // Rows that are known cost nothing; of the others each prompt token is computed, which prefixes
            // that rows share make less.
            let share = (count - known.min(count)) as f64 / count.max(1) as f64;
            let prefill = cost.prefill_per_token.0 as f64 * prompt as f64;
            let decode = cost.decode_per_sequence.0 as f64 * output as f64;
            let seconds = Some((prefill + decode) * share / 1e9);
            Ok(Estimate { prompt: TokenCount(prompt), known, seconds, price: None })
        })
    }
}

impl Run for OpenColumn {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), RunError>> {
        Box::pin(async move {
            while self.followers.try_join_next().is_some() {}
            let (ids, cells): (Vec<u64>, Vec<Vec<Cell>>) =
                rows.into_iter().map(|row| (row.id, row.cells)).unzip();
            if self.options.cached_only {
                let prepared =
                    prepared(&self.app, self.caller, &self.column, cells).await.map_err(refused)?;
                let known = submit::known_answers(&self.app.runtime, self.caller, prepared).await;
                tell_known(&known, &ids, &self.answers);
                return Ok(());
            }
            let handle = self.submit(&cells).await?;
            self.followers.spawn(follow(handle, ids, self.answers.clone()));
            Ok(())
        })
    }
}

impl OpenColumn {
    /// Hands a window to the loop, waiting while its queue is full.
    async fn submit(&self, cells: &[Vec<Cell>]) -> Result<OwnerHandle, RunError> {
        loop {
            let rows = cells.to_vec();
            let prepared = prepared(&self.app, self.caller, &self.column, rows).await.map_err(refused)?;
            match submit(&self.app.runtime, self.caller, prepared, Resumed::default()).await {
                Ok(handle) => return Ok(handle),
                Err(RequestError::Overloaded { retry_after, .. }) => {
                    tokio::time::sleep(Duration::from_millis(retry_after.0).min(RETRY_MAX)).await;
                }
                Err(error) => return Err(refused(error)),
            }
        }
    }
}

/// Lowers rows of a column, off the thread: a window's prompts are tokenized.
async fn prepared(
    app: &Data<App>,
    caller: Caller,
    column: &AiColumn,
    rows: Vec<Vec<Cell>>,
) -> Result<Prepared, RequestError> {
    let (app, column) = (app.clone(), column.clone());
    let arrival = app.runtime.shared.clock.now();
    let lowered = tokio::task::spawn_blocking(move || {
        let context = RequestContext { app: &app, tenant: caller.tenant, purpose: Purpose::Run, arrival };
        let count = rows.len();
        let (part, failed) = cells::column(context, (column.shared, column.constraint), rows)?;
        Ok(Prepared {
            kind: RelQueryKind::RelQuery,
            route: "sql",
            class: ServiceClass::Dashboard,
            rows: count,
            failed,
            deadline: None,
            pin: None,
            parts: vec![part],
        })
    });
    lowered.await.map_err(serving::error::internal)?
}

fn refused(error: RequestError) -> RunError {
    RunError(error.to_string())
}

/// Tells what is known of a window.
fn tell_known(window: &RelQueryState, ids: &[u64], answers: &UnboundedSender<RowAnswer>) {
    let state = window.read();
    for (row, id) in state.rows.iter().zip(ids) {
        let (outcome, tokens, _) = outcome(&row.state, &row.text);
        // Whoever asked may be gone.
        let _ = answers.send(RowAnswer { id: *id, outcome, tokens, is_computed: false });
    }
}

/// Tells the answers of a window as its rows finish; owns it meanwhile.
async fn follow(handle: OwnerHandle, ids: Vec<u64>, answers: UnboundedSender<RowAnswer>) {
    let window = Arc::clone(handle.relquery());
    let mut version = window.follow_all();
    let mut told = 0;
    loop {
        let (finished, ended) = progress(&window, &ids, told);
        told += finished.len();
        for answer in finished {
            if answers.send(answer).is_err() {
                return;
            }
        }
        if let Some(status) = ended {
            let reason = match status {
                Status::Failed(error) => error.to_string(),
                _ => RequestError::Cancelled.to_string(),
            };
            tell_unfinished(&window, &ids, &reason, &answers);
            return;
        }
        if version.changed().await.is_err() {
            return;
        }
    }
}

/// Rows that finished after the first `told`, and how the window ended where it has.
fn progress(window: &RelQueryState, ids: &[u64], told: usize) -> (Vec<RowAnswer>, Option<Status>) {
    let state = window.read();
    let finished = state.finished[told..].iter().map(|index| {
        let row = &state.rows[*index as usize];
        let (outcome, tokens, is_computed) = outcome(&row.state, &row.text);
        RowAnswer { id: ids[*index as usize], outcome, tokens, is_computed }
    });
    (finished.collect(), state.is_over().then(|| state.status.clone()))
}

/// Rows of a window that ended without them.
fn tell_unfinished(window: &RelQueryState, ids: &[u64], reason: &str, answers: &UnboundedSender<RowAnswer>) {
    let state = window.read();
    for (row, id) in state.rows.iter().zip(ids) {
        if row.state == RowProgress::Pending {
            let outcome = Outcome::Failed(reason.to_owned());
            let answer = RowAnswer { id: *id, outcome, tokens: Tokens::default(), is_computed: false };
            let _ = answers.send(answer);
        }
    }
}

fn outcome(state: &RowProgress, text: &str) -> (Outcome, Tokens, bool) {
    match state {
        RowProgress::Pending => (Outcome::Unknown, Tokens::default(), false),
        RowProgress::Failed(error) => (Outcome::Failed(error.to_string()), Tokens::default(), false),
        RowProgress::Done { usage, source, .. } => {
            let tokens = Tokens { prompt: usage.prompt, cached: usage.cached, output: usage.output };
            (Outcome::Text(text.to_owned()), tokens, *source == AnswerSource::Model)
        }
    }
}
