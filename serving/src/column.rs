//! A column of any length as one relQuery: rows come in windows, answers are taken as they come, and only the
//! rows that are under way are in memory. Must not know HTTP or wire shapes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{TenantId, TokenCount};
use tokio::sync::watch;

use crate::budgets::BudgetReservation;
use crate::caller::Caller;
use crate::error::RequestError;
use crate::intake::Job;
use crate::ownership::{self, OwnerHandle};
use crate::relquery_state::{AnswerRow, RelQueryKind, RelQueryState, RowCharge, Status, TakenRows};
use crate::runtime::Runtime;
use crate::submit::{self, Prepared};

/// Names of rows that have no answer yet, by their numbers in the relQuery, which are used again.
type RowNames = Mutex<HashMap<u32, u64>>;

fn lock(names: &RowNames) -> MutexGuard<'_, HashMap<u32, u64>> {
    names.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// RowReservation in the queue that is kept for rows; what is not used is given back.
pub struct RowReservation {
    runtime: Arc<Runtime>,
    tenant: TenantId,
    rows: u64,
}

impl RowReservation {
    fn submit(mut self, job: Job) {
        let reserved = std::mem::take(&mut self.rows);
        self.runtime.shared.submit_reserved(job, reserved);
    }
}

impl Drop for RowReservation {
    fn drop(&mut self) {
        if self.rows > 0 {
            self.runtime.shared.intake.finished(self.tenant, self.rows);
        }
    }
}

/// A column that takes rows. Dropping it ends the relQuery: completed where every row has its answer, else
/// called off.
pub struct OpenColumn {
    runtime: Arc<Runtime>,
    caller: Caller,
    handle: OwnerHandle,
    names: Arc<RowNames>,
    /// Whether the loop has had rows of it.
    is_placed: AtomicBool,
}

/// The answers of a column.
pub struct ColumnAnswers {
    relquery: Arc<RelQueryState>,
    names: Arc<RowNames>,
    version: watch::Receiver<u64>,
    /// Rows that were without an answer as the column ended, by their numbers.
    unanswered: HashMap<u32, u64>,
}

/// A call that a column has made and nobody takes the answer of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftCall {
    /// Its row.
    pub name: u64,
    /// What it put out, where that is known.
    pub output: Option<TokenCount>,
}

/// Answers of a column, by the names of their rows.
#[derive(Debug)]
pub struct ColumnRows {
    pub rows: Vec<(u64, AnswerRow)>,
    /// Rows that never will have one, for the column has ended: why. What was computed of them,
    /// [`ColumnAnswers::left_calls`] says.
    pub unanswered: Vec<(u64, RequestError)>,
    /// What those used that ran, where [`OpenColumn::withhold`] says so.
    pub charges: Vec<RowCharge>,
}

impl OpenColumn {
    /// Opens a relQuery without rows. No request is counted: a statement may have several columns.
    pub fn open(
        runtime: &Arc<Runtime>,
        caller: Caller,
        route: &'static str,
    ) -> Result<(Self, ColumnAnswers), RequestError> {
        submit::takes_work_of(runtime, caller)?;
        let id = runtime.shared.ids.next();
        let relquery = submit::new_relquery(runtime, caller, id, RelQueryKind::Column, 0);
        relquery.trace.comes_from(runtime.shared.traces.relquery());
        relquery.trace.came_by(route);
        runtime.registry.insert(&relquery);
        let names = Arc::<RowNames>::default();
        let version = relquery.follow_all();
        let answers = ColumnAnswers {
            relquery: Arc::clone(&relquery),
            names: Arc::clone(&names),
            version,
            unanswered: HashMap::new(),
        };
        let handle = OwnerHandle::new(runtime, relquery);
        let is_placed = AtomicBool::new(false);
        Ok((Self { runtime: Arc::clone(runtime), caller, handle, names, is_placed }, answers))
    }

    /// What rows use that end from now on is counted by whoever takes their answers; what nobody has taken when the column is
    /// dropped is counted as any other's.
    pub fn withhold(&self) {
        self.handle.relquery().withhold();
    }

    /// Rows whose answers nobody has taken when the column is dropped run again elsewhere, which counts them.
    pub fn run_again(&self) {
        self.handle.relquery().run_again();
    }

    /// Waits until the column holds at most `held_max` rows with `rows` more.
    pub async fn has_room(&self, rows: usize, held_max: usize) {
        let relquery = self.handle.relquery();
        let mut version = relquery.follow();
        let is_full = || {
            let state = relquery.read();
            !state.is_over() && state.held() > 0 && state.held() + rows > held_max
        };
        while is_full() {
            // The sender lives in the relQuery, so it cannot be gone.
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Keeps room in the queue for further rows.
    pub fn reserve(&self, rows: usize) -> Result<RowReservation, RequestError> {
        submit::takes_work(&self.runtime)?;
        let rows = rows as u64;
        let reserved = self.runtime.shared.intake.reserve(self.caller, rows);
        reserved.map_err(|full| submit::overloaded(&self.runtime, self.caller.tenant, full))?;
        Ok(RowReservation { runtime: Arc::clone(&self.runtime), tenant: self.caller.tenant, rows })
    }

    /// Hands over further rows, named as their answers are to be. `held`: what is set aside for them in their tenant's
    /// budget, by their places.
    pub async fn extend(
        &self,
        names: &[u64],
        mut prepared: Prepared,
        (room, held): (RowReservation, Option<Arc<BudgetReservation>>),
    ) -> Result<(), RequestError> {
        let relquery = self.handle.relquery();
        let numbers = {
            // Held over both, so that who fails the rows of an ended relQuery meets all of them.
            let mut known = lock(&self.names);
            let numbers = relquery.extend(names.len()).ok_or(RequestError::Cancelled)?;
            known.extend(numbers.iter().copied().zip(names.iter().copied()));
            numbers
        };
        let rows = prepared.parts.iter_mut().flat_map(|part| &mut part.rows);
        let targets = rows.flat_map(|row| &mut row.targets);
        let answered = prepared.answered.iter_mut().map(|(row, _)| row);
        for row in targets.chain(prepared.failed.iter_mut().map(|(row, _)| row)).chain(answered) {
            *row = numbers[*row as usize];
        }
        if let Some(held) = held {
            held.renumber(&numbers);
            // Before answers are looked up: a row that has one gives its part back.
            relquery.keep_reservation(held);
        }
        let job = submit::known(&self.runtime, self.caller, relquery, prepared).await;
        if let Err(error) = submit::set_aside(&self.runtime, &job, false) {
            let was_running = relquery.end(Status::Failed(error.clone()), self.runtime.shared.clock.now());
            // Rows that came in before would run on for nobody: who drops the column finds it over.
            if was_running && self.is_placed.load(Ordering::Relaxed) {
                self.runtime.shared.intake.leave(Arc::clone(relquery));
            }
            return Err(error);
        }
        // Whoever follows waits already, and the loop wakes nobody for rows that it does not run.
        relquery.notify();
        if job.rows() > 0 {
            self.is_placed.store(true, Ordering::Relaxed);
            room.submit(job);
            // Ended just now, it was left before these rows came in.
            if relquery.read().is_over() {
                self.runtime.shared.intake.leave(Arc::clone(relquery));
            }
        }
        Ok(())
    }
}

impl Drop for OpenColumn {
    fn drop(&mut self) {
        let (relquery, now) = (self.handle.relquery(), self.runtime.shared.clock.now());
        let (was_over, runs_again) = {
            let state = relquery.read();
            (state.is_over(), state.runs_again())
        };
        if runs_again {
            // What nobody has taken runs again too, as what is under way does.
            ownership::cede(&self.runtime, relquery);
        } else {
            self.runtime.shared.without_ticket(relquery);
        }
        if !relquery.close(now) {
            // The handle calls it off, unless it was over: then the loop may not know yet that no further rows come.
            if was_over {
                self.runtime.shared.intake.leave(Arc::clone(relquery));
            }
            return;
        }
        if self.is_placed.load(Ordering::Relaxed) {
            self.runtime.shared.intake.leave(Arc::clone(relquery));
        } else {
            self.runtime.shared.relquery_ended(relquery, &relquery.read());
        }
        // Its answers were taken: there is nothing to look up.
        self.runtime.registry.remove(relquery.id);
    }
}

impl ColumnAnswers {
    /// What is answered, and of an ended relQuery what never will be.
    fn take(&mut self) -> (ColumnRows, Status) {
        let TakenRows { rows: finished, charges, status } = self.relquery.take_finished();
        let mut names = lock(&self.names);
        let finished = finished.into_iter();
        let rows = finished.filter_map(|(number, row)| Some((names.remove(&number)?, row))).collect();
        let error = match &status {
            Status::Running | Status::Completed => None,
            Status::Cancelled => Some(RequestError::Cancelled),
            Status::Failed(error) => Some(error.clone()),
        };
        let mut unanswered = Vec::new();
        if let Some(error) = error {
            unanswered.extend(names.values().map(|name| (*name, error.clone())));
            self.unanswered.extend(names.drain());
        }
        (ColumnRows { rows, unanswered, charges }, status)
    }

    /// The next answers by the names of their rows. A relQuery that was ended early fails the rows that it
    /// leaves; then there are no more.
    pub async fn next(&mut self) -> Option<ColumnRows> {
        loop {
            let (answers, status) = self.take();
            let ColumnRows { rows, unanswered, charges } = &answers;
            if !rows.is_empty() || !unanswered.is_empty() || !charges.is_empty() {
                // Who waits for room has it now.
                self.relquery.notify();
                return Some(answers);
            }
            if status != Status::Running || self.version.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The calls that the column has made of rows without an answer. To be asked once there are no more answers; they are
    /// known when the loop has let the column go.
    pub async fn left_calls(mut self) -> Vec<LeftCall> {
        loop {
            let left = self.relquery.read().left_calls().map(|calls| self.named(calls));
            if let Some(left) = left {
                return left;
            }
            // The sender lives in the relQuery, so it cannot be gone.
            if self.version.changed().await.is_err() {
                return Vec::new();
            }
        }
    }

    fn named(&self, calls: &BTreeMap<u32, Option<TokenCount>>) -> Vec<LeftCall> {
        let call = |(row, output): (&u32, &Option<TokenCount>)| {
            Some(LeftCall { name: *self.unanswered.get(row)?, output: *output })
        };
        calls.iter().filter_map(call).collect()
    }
}
