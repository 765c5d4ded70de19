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

/// What the rows of a line used that ran and have answers.
pub(super) struct LineUsage {
    /// That of their model.
    runtime: Arc<Runtime>,
    charges: Vec<RowCharge>,
}

impl LineUsage {
    /// As the store adds it to a sum of the day.
    pub(super) fn row(&self, tenant: TenantId, day: u64) -> UsageRow {
        let mut spent = Spent::default();
        self.charges.iter().for_each(|charge| spent += charge.spent);
        usage_writer::row_of((&self.runtime.model.name, day), Account { tenant, route: BATCHES }, &spent)
    }

    /// The line is in the store, with this.
    pub(super) fn recorded(self) {
        self.runtime.shared.recorded_charges(self.charges);
    }

    /// The line is another gateway's to record, or another start's.
    pub(super) fn left(self) {
        self.runtime.shared.leave_charges(self.charges);
    }
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
            let runtime = Arc::clone(handle.runtime());
            // Usage is that of answers.
            runtime.shared.leave_charges(failed);
            let used = (!charges.is_empty()).then_some(LineUsage { runtime, charges });
            let row = render(&batch, &lines[line], envelope, &rows);
            // Nobody takes it any more: it will run again.
            ended.send(EndedLine { row, used }).await.ok()?;
        }
        // Said before its own calls: what is called off without it, the owner has, by the relQuery's id.
        let is_worker_stopping = is_stopping.load(Ordering::Acquire);
        let of_rows = match &status {
            Status::Running => {
                version.changed().await.ok()?;
                continue;
            }
            Status::Completed => AnswerTokens::default(),
            Status::Cancelled => left_usage(&handle, &mut version).await,
            Status::Failed(_) => {
                // The server ends, or has lost its engine: whoever goes on with the batch computes them again.
                relquery.run_again();
                AnswerTokens::default()
            }
        };
        // Only now: until the loop has let it go, rows end that are in `of_rows`.
        let used = of_rows.plus(count_rest(&handle.runtime().shared, &relquery));
        add(&called_off, used);
        if status == Status::Cancelled && !is_worker_stopping {
            // These lines are over, the batch goes on.
            for (line, _) in lines.iter().zip(&left).filter(|(_, left)| **left > 0) {
                let row = failure(&batch, (line.number, &line.custom_id), &RequestError::Cancelled);
                ended.send(row.into()).await.ok()?;
            }
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

/// So much more was used for lines that are not recorded with it.
fn add(called_off: &Mutex<AnswerTokens>, used: AnswerTokens) {
    let mut called_off = called_off.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *called_off = called_off.plus(used);
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

/// Counts what rows used that have answers while others of their lines have none, and says it: no line is recorded with it.
/// What runs again elsewhere counts there.
fn count_rest(shared: &Shared, relquery: &RelQueryState) -> AnswerTokens {
    let (answered, failed, runs_again) = {
        let mut state = relquery.read();
        let all = 0..state.rows.len();
        let (answered, failed) = state.take_charges(all);
        (answered, failed, state.runs_again())
    };
    shared.leave_charges(failed);
    if runs_again {
        shared.leave_charges(answered);
        return AnswerTokens::default();
    }
    let mut used = Usage::default();
    answered.iter().for_each(|charge| used += charge.spent.usage);
    shared.count_charges(answered);
    used.into()
}

/// What the rows of a relQuery used that were called off, once the loop has let them go. A server that ends waits no longer
/// than a look for that: its loop may never come to it.
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
        if runs_again {
            return AnswerTokens::default();
        }
        tokio::select! {
            // The sender lives in the relQuery, so it cannot be gone.
            _ = version.changed() => {}
            () = tokio::time::sleep(LOOK) => {
                if runtime.is_draining() || runtime.shared.pulse.is_dead() {
                    return AnswerTokens::default();
                }
            }
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
