//! Follows the relQuery of a bucket and renders each line of the batch as it ends.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::Money;
use serde_json::{Value, json};
use serving::account::{Account, BATCHES, Spent};
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::relquery_state::{AnswerRow, RowProgress, Status, Usage};
use store::TicketRow;
use tokio::sync::{mpsc, watch};

use crate::services::batches::finish::request_id;
use crate::services::batches::lines::ReadyLine;
use crate::services::batches::{AnswerTokens, Batch};
use crate::wire::openai::{Api, Envelope};

/// Time between two looks at whether the server ends.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines go that are over.
pub(super) struct To {
    pub(super) batch: Batch,
    pub(super) ended: mpsc::Sender<EndedLine>,
    /// The worker calls its rows off itself.
    pub(super) is_stopping: Arc<AtomicBool>,
    /// What was used for lines that are not recorded with it.
    pub(super) called_off: Arc<Mutex<AnswerTokens>>,
}

/// A line that is over, and what its rows used: both are recorded at once.
pub(super) struct EndedLine {
    pub(super) row: TicketRow,
    pub(super) used: Option<LineUsage>,
}

/// What the rows of a line used.
pub(super) struct LineUsage {
    /// The model's name.
    pub(super) model: String,
    pub(super) rows: u64,
    pub(super) usage: Usage,
    pub(super) cost: Money,
}

impl From<TicketRow> for EndedLine {
    fn from(row: TicketRow) -> Self {
        Self { row, used: None }
    }
}

/// Sends on every line as it ends. Gives why not all did, unless they were called off.
pub(super) async fn follow(handle: OwnerHandle, lines: Vec<ReadyLine>, to: To) -> Option<RequestError> {
    let To { batch, ended, is_stopping, called_off } = to;
    let relquery = handle.relquery().clone();
    let mut version = relquery.follow_all();
    let places = places(&lines);
    let mut left: Vec<usize> = places.iter().map(|(_, rows)| rows.len()).collect();
    // The line of each row of the relQuery.
    let line_of: Vec<usize> = places.iter().flat_map(|(line, rows)| rows.clone().map(|_| *line)).collect();
    let mut seen = 0;
    loop {
        version.mark_unchanged();
        let (over, status) = {
            let mut state = relquery.read();
            let mut over: Vec<(usize, Vec<AnswerRow>)> = Vec::new();
            for row in &state.finished[seen..] {
                let line = line_of[*row as usize];
                left[line] -= 1;
                if left[line] == 0 {
                    over.push((line, state.rows[places[line].1.clone()].to_vec()));
                }
            }
            seen = state.finished.len();
            // The reply of a line is all that tells how likely its prompts were.
            for row in over.iter().flat_map(|(line, _)| places[*line].1.clone()) {
                state.rows[row].prompt = Vec::new();
            }
            (over, state.status.clone())
        };
        for (line, rows) in over {
            let envelope = Envelope::new(lines[line].api, &relquery, &handle.runtime().model)
                .numbered(lines[line].number)
                .calling(lines[line].tools.clone())
                .telling_tokens(lines[line].prompts.clone())
                .telling_prompts(lines[line].prompt.clone())
                .stopping_at(Arc::clone(&lines[line].stops))
                .choosing(lines[line].best_of);
            // Nobody takes it any more: it will run again.
            let used = used(&rows, &handle.runtime().model.name);
            let row = render(&batch, &lines[line], envelope, &rows);
            ended.send(EndedLine { row, used }).await.ok()?;
        }
        if status == Status::Cancelled {
            let unended = places.iter().zip(&left).filter(|(_, left)| **left > 0);
            let ended_rows = count_rest(&handle, unended.map(|((_, rows), _)| rows.clone()));
            let used = ended_rows.plus(left_usage(&handle, &mut version).await);
            let mut called_off = called_off.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *called_off = called_off.plus(used);
        }
        let error = match status {
            Status::Running => {
                version.changed().await.ok()?;
                continue;
            }
            Status::Cancelled if !is_stopping.load(Ordering::Acquire) => {
                // Its owner has called the relQuery off by its id: these lines are over, the batch goes on.
                for (line, _) in lines.iter().zip(&left).filter(|(_, left)| **left > 0) {
                    let row = failure(&batch, (line.number, &line.custom_id), &RequestError::Cancelled);
                    ended.send(row.into()).await.ok()?;
                }
                None
            }
            Status::Completed | Status::Cancelled => None,
            Status::Failed(error) => Some(error),
        };
        // A relQuery of a batch is nobody's to fetch: it leaves no room to those that are.
        handle.release();
        handle.runtime().registry.remove(relquery.id);
        return error;
    }
}

/// Which rows of the relQuery are each line's.
fn places(lines: &[ReadyLine]) -> Vec<(usize, Range<usize>)> {
    let mut from = 0;
    let place = |(number, line): (usize, &ReadyLine)| {
        let rows = from..from + line.rows.len();
        from = rows.end;
        (number, rows)
    };
    lines.iter().enumerate().map(place).collect()
}

/// What rows used that ran to their ends, if any did.
fn used(rows: &[AnswerRow], model: &str) -> Option<LineUsage> {
    let mut used = LineUsage { model: model.to_owned(), rows: 0, usage: Usage::default(), cost: Money(0) };
    for row in rows {
        if let RowProgress::Done { usage, .. } = &row.state {
            used.rows += 1;
            used.usage += *usage;
            used.cost = used.cost.saturating_add(row.cost);
        }
    }
    (used.rows > 0).then_some(used)
}

/// Counts what rows used that ran to their ends while others of their lines were called off, and says it: no line is recorded
/// that counts them.
fn count_rest(handle: &OwnerHandle, unended: impl Iterator<Item = Range<usize>>) -> AnswerTokens {
    let (runtime, relquery) = (handle.runtime(), handle.relquery());
    let state = relquery.read();
    let mut all = AnswerTokens::default();
    if state.runs_again() {
        return all;
    }
    for own in unended {
        let Some(LineUsage { rows, usage, cost, .. }) = used(&state.rows[own], &runtime.model.name) else {
            continue;
        };
        let account = Account { tenant: relquery.tenant, route: BATCHES };
        runtime.shared.accounts.add(account, Spent { requests: 0, rows, usage, cost });
        all = all.plus(usage.into());
    }
    all
}

/// What the rows of a relQuery used that were called off, once the loop has let them go. It is asked again now and then: a
/// server that ends lets nothing go.
async fn left_usage(handle: &OwnerHandle, version: &mut watch::Receiver<u64>) -> AnswerTokens {
    let (runtime, relquery) = (handle.runtime(), handle.relquery());
    loop {
        version.mark_unchanged();
        let (left, runs_again) = {
            let state = relquery.read();
            (state.left_usage(), state.runs_again())
        };
        if let Some(usage) = left {
            return usage.into();
        }
        if runs_again || runtime.is_draining() || runtime.shared.pulse.is_dead() {
            return AnswerTokens::default();
        }
        tokio::select! {
            // The sender lives in the relQuery, so it cannot be gone.
            _ = version.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// A line that is over, as the output has it.
fn render(batch: &Batch, line: &ReadyLine, envelope: Envelope, rows: &[AnswerRow]) -> TicketRow {
    let failed = rows.iter().find_map(|row| match &row.state {
        RowProgress::Failed(error) => Some(error),
        RowProgress::Pending | RowProgress::Done { .. } => None,
    });
    if let Some(error) = failed {
        return failure(batch, (line.number, &line.custom_id), error);
    }
    let mut usage = Usage::default();
    for row in rows {
        if let RowProgress::Done { usage: spent, .. } = &row.state {
            usage += *spent;
        }
    }
    let body = match line.api {
        Api::Completion => json!(envelope.completion_of(rows, usage)),
        Api::Chat => json!(envelope.chat_of(rows, usage)),
    };
    let response = json!({ "status_code": 200, "request_id": envelope.id(), "body": body });
    row(batch, (line.number, &line.custom_id), response, false)
}

/// A line that failed, alone.
pub(in crate::services::batches) fn failure(
    batch: &Batch,
    line: (u32, &str),
    error: &RequestError,
) -> TicketRow {
    let status = crate::error::status(error).as_u16();
    let response = json!({ "status_code": status, "request_id": request_id(batch, line.0), "body": crate::error::body(error) });
    row(batch, line, response, true)
}

fn row(batch: &Batch, (number, custom_id): (u32, &str), response: Value, failed: bool) -> TicketRow {
    let result = json!({
        "id": request_id(batch, number), "custom_id": custom_id, "response": response, "error": null
    });
    TicketRow { row: number, result: result.to_string(), failed }
}
