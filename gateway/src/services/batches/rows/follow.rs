//! Follows the relQuery of a bucket and renders each line of the batch as it ends. What its rows used goes with it: both are
//! recorded at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::TenantId;
use serde_json::{Value, json};
use serving::Runtime;
use serving::account::{Account, BATCHES, Spent};
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::relquery_state::{AnswerRow, RelQueryState, RowCharge, RowProgress, State, Status, Usage};
use serving::shared::Shared;
use serving::usage_writer;
use store::{TicketRow, UsageRow};
use tokio::sync::{mpsc, watch};

use crate::services::batches::Batch;
use crate::services::batches::finish::request_id;
use crate::services::batches::lines::ReadyLine;
use crate::wire::openai::{Api, Envelope};
use crate::wire::usage::UsageReply;

/// Time between two looks at whether the server ends.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines go that are over.
pub(super) struct To {
    pub(super) batch: Batch,
    pub(super) ended: mpsc::Sender<EndedLine>,
    /// The worker calls its rows off itself.
    pub(super) is_stopping: Arc<AtomicBool>,
    /// What was used for lines that the worker calls off, which are not recorded.
    pub(super) called_off: Arc<Mutex<Vec<LineUsage>>>,
}

/// A line that is over, and what its rows used: both are recorded at once.
pub(super) struct EndedLine {
    pub(super) row: TicketRow,
    pub(super) used: Option<LineUsage>,
}

/// What the rows of a line, or of several, used that ran and have answers or were called off.
pub(in crate::services::batches) struct LineUsage {
    /// That of their model.
    runtime: Arc<Runtime>,
    charges: Vec<RowCharge>,
}

impl LineUsage {
    /// None where nothing was used.
    fn of(runtime: &Arc<Runtime>, charges: Vec<RowCharge>) -> Option<Self> {
        (!charges.is_empty()).then(|| Self { runtime: Arc::clone(runtime), charges })
    }

    /// Its tokens.
    pub(in crate::services::batches) fn tokens(&self) -> Usage {
        tokens(&self.charges)
    }

    /// As the store adds it to a sum of the day.
    pub(in crate::services::batches) fn row(&self, tenant: TenantId, day: u64) -> UsageRow {
        let mut spent = Spent::default();
        self.charges.iter().for_each(|charge| spent += charge.spent);
        usage_writer::row_of((&self.runtime.model.name, day), Account { tenant, route: BATCHES }, &spent)
    }

    /// It is in the store, with the line or with what is said of the batch.
    pub(in crate::services::batches) fn recorded(self) {
        self.runtime.shared.recorded_charges(self.charges);
    }

    /// The line is another gateway's to record, or another start's.
    pub(in crate::services::batches) fn left(self) {
        self.runtime.shared.leave_charges(self.charges);
    }

    /// Nothing is recorded with it, and nobody runs it again.
    pub(in crate::services::batches) fn counted(self) {
        self.runtime.shared.count_charges(self.charges);
    }
}

/// The tokens of charges.
fn tokens(charges: &[RowCharge]) -> Usage {
    let mut tokens = Usage::default();
    charges.iter().for_each(|charge| tokens += charge.spent.usage);
    tokens
}

impl From<TicketRow> for EndedLine {
    fn from(row: TicketRow) -> Self {
        Self { row, used: None }
    }
}

/// A line whose rows are all over.
struct OverLine {
    /// Its place among those of the relQuery.
    line: usize,
    rows: Vec<AnswerRow>,
    /// What those used that ran and have answers.
    charges: Vec<RowCharge>,
    /// What those used that failed.
    failed: Vec<RowCharge>,
}

impl OverLine {
    /// Takes it out of a relQuery where these rows are its own.
    fn take(state: &mut State, line: usize, own: Range<usize>) -> Self {
        let rows = state.rows[own.clone()].to_vec();
        // The reply of a line is all that tells how likely its prompts were.
        state.rows[own.clone()].iter_mut().for_each(|row| row.prompt = Vec::new());
        let (charges, failed) = state.take_charges(own);
        Self { line, rows, charges, failed }
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
            let mut over = Vec::new();
            for row in &state.finished[seen..] {
                let line = line_of[*row as usize];
                left[line] -= 1;
                if left[line] == 0 {
                    over.push(line);
                }
            }
            seen = state.finished.len();
            let take = |line: usize| OverLine::take(&mut state, line, places[line].1.clone());
            let over: Vec<OverLine> = over.into_iter().map(take).collect();
            (over, state.status.clone())
        };
        for OverLine { line, rows, charges, failed } in over {
            let envelope = Envelope::new(lines[line].api, &relquery, &handle.runtime().model)
                .numbered(lines[line].number)
                .calling(lines[line].tools.clone())
                .telling_tokens(lines[line].prompts.clone())
                .telling_prompts(lines[line].prompt.clone())
                .stopping_at(Arc::clone(&lines[line].stops))
                .choosing(lines[line].best_of);
            // Usage is that of answers.
            handle.runtime().shared.leave_charges(failed);
            let row = render(&batch, &lines[line], envelope, (&rows, tokens(&charges)));
            let used = LineUsage::of(handle.runtime(), charges);
            // Nobody takes it any more: it will run again.
            ended.send(EndedLine { row, used }).await.ok()?;
        }
        // Said before its own calls: what is called off without it, the owner has, by the relQuery's id.
        let is_worker_stopping = is_stopping.load(Ordering::Acquire);
        match &status {
            Status::Running => {
                version.changed().await.ok()?;
                continue;
            }
            Status::Completed => {}
            // Until the loop has let it go, rows end and are counted with it.
            Status::Cancelled => until_let_go(&handle, &mut version).await,
            // The server ends, or has lost its engine: whoever goes on with the batch computes them again.
            Status::Failed(_) => relquery.run_again(),
        }
        for ((line, own), _) in places.iter().zip(&left).filter(|(_, left)| **left > 0) {
            let charges = take_rest(&handle.runtime().shared, &relquery, own.clone());
            if status == Status::Cancelled && !is_worker_stopping {
                // These lines are over, the batch goes on.
                let (line, error) = (&lines[*line], RequestError::Cancelled);
                let row = failure_with(&batch, (line.number, &line.custom_id), &error, tokens(&charges));
                let used = LineUsage::of(handle.runtime(), charges);
                ended.send(EndedLine { row, used }).await.ok()?;
            } else if let Some(used) = LineUsage::of(handle.runtime(), charges) {
                called_off.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(used);
            }
        }
        if status == Status::Cancelled && !relquery.read().runs_again() {
            // What the loop may still let go, where this did not wait for it, is counted there.
            handle.runtime().shared.without_ticket(&relquery);
        }
        // A relQuery of a batch is nobody's to fetch: it leaves no room to those that are.
        handle.release();
        handle.runtime().registry.remove(relquery.id);
        return match status {
            Status::Failed(error) => Some(error),
            Status::Running | Status::Completed | Status::Cancelled => None,
        };
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

/// Takes what rows of a line used that have answers, or were called off, while the line has no end. What runs again elsewhere
/// counts there.
fn take_rest(shared: &Shared, relquery: &RelQueryState, own: Range<usize>) -> Vec<RowCharge> {
    let (used, failed, runs_again) = {
        let mut state = relquery.read();
        let (used, failed) = state.take_charges(own);
        (used, failed, state.runs_again())
    };
    shared.leave_charges(failed);
    if runs_again {
        shared.leave_charges(used);
        return Vec::new();
    }
    used
}

/// Waits until the loop has let go the rows of a relQuery that was called off: what they used is known then. A server that
/// ends waits no longer than a look for that: its loop may never come to it.
async fn until_let_go(handle: &OwnerHandle, version: &mut watch::Receiver<u64>) {
    let (runtime, relquery) = (handle.runtime(), handle.relquery());
    loop {
        version.mark_unchanged();
        let is_known = {
            let state = relquery.read();
            state.is_let_go() || state.runs_again()
        };
        if is_known {
            return;
        }
        tokio::select! {
            // The sender lives in the relQuery, so it cannot be gone.
            _ = version.changed() => {}
            () = tokio::time::sleep(LOOK) => {
                if runtime.is_draining() || runtime.shared.pulse.is_dead() {
                    return;
                }
            }
        }
    }
}

/// A line that is over, as the output has it. `used`: what is recorded with it.
fn render(
    batch: &Batch,
    line: &ReadyLine,
    envelope: Envelope,
    (rows, used): (&[AnswerRow], Usage),
) -> TicketRow {
    let failed = rows.iter().find_map(|row| match &row.state {
        RowProgress::Failed(error) => Some(error),
        RowProgress::Pending | RowProgress::Done { .. } => None,
    });
    if let Some(error) = failed {
        return failure_with(batch, (line.number, &line.custom_id), error, used);
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
    failure_with(batch, line, error, Usage::default())
}

/// The same of one for which something was used: its batch's usage is what its lines tell.
fn failure_with(batch: &Batch, line: (u32, &str), error: &RequestError, used: Usage) -> TicketRow {
    let status = crate::error::status(error).as_u16();
    let mut body = json!(crate::error::body(error));
    if used != Usage::default() {
        body["usage"] = json!(UsageReply::from(used));
    }
    let response = json!({ "status_code": status, "request_id": request_id(batch, line.0), "body": body });
    row(batch, line, response, true)
}

fn row(batch: &Batch, (number, custom_id): (u32, &str), response: Value, failed: bool) -> TicketRow {
    let result = json!({
        "id": request_id(batch, number), "custom_id": custom_id, "response": response, "error": null
    });
    TicketRow { row: number, result: result.to_string(), failed }
}
