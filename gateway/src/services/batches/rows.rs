//! The rows of a batch: read, put together by prefix, handed to the scheduler, recorded as they end.
//!
//! Reading, running and recording go on side by side. Bounds: the buffer's rows and bytes, and the rows that
//! are with the scheduler or not recorded yet. So a slow database holds rows back instead of filling memory,
//! and the executor never waits for the input to be read or sorted.

mod budget;
mod follow;
mod read;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use base::{ServiceClass, TokenId};
use budget::{most, split_within};
use follow::{EndedLine, To, follow};
pub(super) use follow::{LineUsage, failure};
use ir::bucket::Buffer;
use read::{LineReader, Portion};
use serving::account::BATCHES;
use serving::budgets::BudgetAmount;
use serving::caller::Caller;
use serving::error::RequestError;
use serving::intake::{PendingRow, TemplateRows};
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::{RelQueryKind, RelQueryState};
use serving::submit::{self, Prepared, Resumed};
use store::{TicketRow, UsageRow};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;

use super::Batch;
use super::lines::{LineError, ReadyLine};
use super::queue::QueueTicket;
use super::watch::{Stop, Watch};
use crate::models::ServedModel;
use crate::services::takes::TakeUp;
use crate::state::App;

/// Rows recorded in one write.
const ROWS_PER_WRITE: usize = 500;

/// A batch's rows on their way.
struct Flow<'a> {
    app: &'a Arc<App>,
    batch: &'a Batch,
    caller: Caller,
    buffer: Buffer<TokenId, ReadyLine>,
    /// Followers of rows that run; each ends with why it could not go on, if so.
    running: JoinSet<Option<RequestError>>,
    relqueries: Vec<(Arc<ServedModel>, Weak<RelQueryState>)>,
    ended: mpsc::Sender<EndedLine>,
    /// Rows with the scheduler, and those that came back and are not recorded.
    in_flight: usize,
    unwritten: Vec<EndedLine>,
    /// Set before this worker calls its rows off itself.
    is_stopping: Arc<AtomicBool>,
    /// What was used for lines that this worker calls off, which are not recorded.
    called_off: Arc<Mutex<Vec<LineUsage>>>,
    /// The scheduler's queue was full, or the tenant's budget is set aside for what runs: the next look tries again.
    is_held: bool,
    /// Who comes next waits until rows of this one are with the scheduler.
    ticket_in_line: &'a mut QueueTicket,
    /// Lines run one after the other, so that it is known which is under way when the server ends.
    is_one_by_one: bool,
    /// What else waits to be alone goes on once a line is recorded.
    alone: &'a mut Option<OwnedSemaphorePermit>,
    /// Reads on.
    reader: Option<LineReader>,
}

/// Runs all rows that are not recorded; how it stops, and what was used for lines that were called off with it, which is
/// recorded nowhere. An error of the store here means that nothing can be read at the start.
pub(super) async fn run(
    app: &Arc<App>,
    batch: &Batch,
    caller: Caller,
    (ticket_in_line, alone): (&mut QueueTicket, &mut Option<OwnedSemaphorePermit>),
) -> Result<(Stop, Vec<LineUsage>), store::Error> {
    let done = app.runtime.store.row_numbers(&batch.id).await?;
    let settings = &app.config.bulk;
    let is_one_by_one = batch.take_up(app) == TakeUp::Alone;
    let (ended, mut ends) = mpsc::channel(ROWS_PER_WRITE);
    let mut flow = Flow {
        app,
        batch,
        caller,
        buffer: Buffer::new(settings.bucket),
        running: JoinSet::new(),
        relqueries: Vec::new(),
        ended,
        in_flight: 0,
        unwritten: Vec::new(),
        is_stopping: Arc::default(),
        called_off: Arc::default(),
        is_held: false,
        ticket_in_line,
        is_one_by_one,
        alone,
        reader: Some(LineReader::new(batch, done, is_one_by_one)),
    };
    let stop = flow.follow_to_its_end(&mut ends).await;
    // A lost lease outweighs everything.
    let lost = flow.wind_down(&stop, &mut ends).await;
    let mut called_off = flow.called_off.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok((lost.unwrap_or(stop), std::mem::take(&mut *called_off)))
}

impl Flow<'_> {
    /// Until the last row, or until something stops it.
    async fn follow_to_its_end(&mut self, ends: &mut mpsc::Receiver<EndedLine>) -> Stop {
        let mut watch = Watch::new(self.app, self.batch);
        // The portion under way: a task, as one that is only polled here would keep the store's connection to
        // itself while rows are recorded, and a store has one connection where it is in memory.
        let mut reading = JoinSet::new();
        let mut got = Vec::new();
        loop {
            if let Some(reader) = self.next_reader() {
                reading.spawn(reader.read(self.app.clone()));
            }
            let is_read = reading.is_empty() && self.reader.is_none();
            if let Some(stop) = self.hand_out(is_read).await {
                return stop;
            }
            if self.in_flight > 0 || self.is_held {
                self.ticket_in_line.pass();
            }
            if is_read && self.buffer.is_empty() && self.in_flight == 0 && self.unwritten.is_empty() {
                return Stop::Done;
            }
            let has_room = !self.buffer.is_full() && self.unwritten.len() < ROWS_PER_WRITE;
            tokio::select! {
                count = ends.recv_many(&mut got, ROWS_PER_WRITE) => {
                    self.in_flight -= count;
                    self.unwritten.append(&mut got);
                    if let Err(stop) = self.write().await {
                        return stop;
                    }
                }
                Some(portion) = reading.join_next(), if has_room => {
                    if let Err(stop) = self.take(portion.unwrap_or_else(Portion::unreadable)).await {
                        return stop;
                    }
                }
                Some(follower) = self.running.join_next(), if !self.running.is_empty() => {
                    if !matches!(follower, Ok(None)) {
                        return Stop::Left;
                    }
                }
                () = watch.due() => {
                    if let Some(stop) = watch.look().await {
                        return stop;
                    }
                    self.is_held = false;
                    if let Err(stop) = self.write().await {
                        return stop;
                    }
                }
            }
        }
    }

    /// Takes in what was read, and the reader where there is more.
    async fn take(&mut self, portion: Portion) -> Result<(), Stop> {
        let Portion { lines, failed, reader, error } = portion;
        self.reader = reader;
        self.put_back(lines);
        self.unwritten.extend(failed.into_iter().map(EndedLine::from));
        self.write().await?;
        match error {
            Some(error) => Err(Stop::Invalid(vec![error])),
            None => Ok(()),
        }
    }

    /// The reader, where it may read on: one line after the other once the one before is recorded.
    fn next_reader(&mut self) -> Option<LineReader> {
        let is_idle = self.in_flight == 0 && self.unwritten.is_empty() && self.buffer.is_empty();
        if is_idle || !self.is_one_by_one { self.reader.take() } else { None }
    }

    /// Hands buckets to the scheduler while there is room.
    async fn hand_out(&mut self, is_read: bool) -> Option<Stop> {
        let limit = self.app.config.bulk.rows_in_flight_max;
        while !self.is_held {
            let room = limit.saturating_sub(self.in_flight + self.unwritten.len());
            let must = is_read || self.in_flight == 0;
            if room == 0 {
                return None;
            }
            let bucket = self.buffer.pop(room, must)?;
            for (model, lines) in by_model(bucket.rows) {
                if let Err(stop) = self.submit(&model, lines).await {
                    return Some(stop);
                }
            }
        }
        None
    }

    /// Submits lines of a bucket that one model runs: those that their tenant's budget has room for, as one relQuery.
    async fn submit(&mut self, model: &Arc<ServedModel>, lines: Vec<ReadyLine>) -> Result<(), Stop> {
        let (budgets, tenant) = (&self.app.runtime.shared.budgets, self.caller.tenant);
        let prices = model.runtime.shared.prices.dearest();
        let most = |line: &ReadyLine| most(line, prices);
        let (mut lines, mut others) = split_within(lines, most, |sum| budgets.fits_at_once(tenant, sum));
        if lines.is_empty() {
            // What can never run fails, alone.
            lines.extend(others.pop());
        }
        loop {
            self.put_back(others);
            // They are recorded with what they used.
            let recorded = Resumed { gets_ticket: true, ..Resumed::default() };
            match submit::submit(&model.runtime, self.caller, work(&lines), recorded).await {
                Err(RequestError::TenantBudget { .. }) => {
                    (lines, others) = split_within(lines, most, |sum| budgets.has_room(tenant, sum));
                    if lines.is_empty() {
                        let least = others.iter().map(most).min_by_key(|amount| amount.tokens);
                        return self.wait_for_budget(others, least.unwrap_or_default());
                    }
                }
                result => return self.submitted(model, lines, result).await,
            }
        }
    }

    /// No line has room: it may have once rows of this batch end, or else in another day or month.
    fn wait_for_budget(&mut self, lines: Vec<ReadyLine>, least: BudgetAmount) -> Result<(), Stop> {
        if self.in_flight == 0 {
            return Err(Stop::Paused(least));
        }
        self.is_held = true;
        self.put_back(lines);
        Ok(())
    }

    /// Puts lines into the buffer, which may have had them before.
    fn put_back(&mut self, lines: Vec<ReadyLine>) {
        for line in lines {
            let prompt = Arc::clone(&line.rows[0].item.prompt);
            self.buffer.push(prompt, line.bytes, line);
        }
    }

    /// Follows lines that run; others wait, or have failed.
    async fn submitted(
        &mut self,
        model: &Arc<ServedModel>,
        lines: Vec<ReadyLine>,
        result: Result<OwnerHandle, RequestError>,
    ) -> Result<(), Stop> {
        match result {
            Ok(handle) => {
                self.in_flight += lines.len();
                self.relqueries.retain(|(_, relquery)| relquery.strong_count() > 0);
                self.relqueries.push((Arc::clone(model), Arc::downgrade(handle.relquery())));
                let to = To {
                    batch: self.batch.clone(),
                    ended: self.ended.clone(),
                    is_stopping: Arc::clone(&self.is_stopping),
                    called_off: Arc::clone(&self.called_off),
                };
                self.running.spawn(follow(handle, lines, to));
                Ok(())
            }
            Err(RequestError::Overloaded { .. } | RequestError::Busy { .. }) => {
                self.is_held = true;
                self.put_back(lines);
                Ok(())
            }
            Err(RequestError::ShuttingDown | RequestError::Dead) => Err(Stop::Left),
            Err(error) => {
                let failed =
                    lines.iter().map(|line| failure(self.batch, (line.number, &line.custom_id), &error));
                self.unwritten.extend(failed.map(EndedLine::from));
                self.write().await
            }
        }
    }

    /// Records what has ended. While the database is away, rows wait, and no more are handed out.
    async fn write(&mut self) -> Result<(), Stop> {
        while !self.unwritten.is_empty() {
            let count = self.unwritten.len().min(ROWS_PER_WRITE);
            let (id, holder) = (&self.batch.id, &self.app.config.store.node);
            let rows: Vec<_> = self.unwritten[..count].iter().map(|line| self.with_usage(line)).collect();
            match self.app.runtime.store.append_rows_with_usage(id, holder, &rows).await {
                Ok(()) => {
                    drop(self.alone.take());
                    self.unwritten.drain(..count).filter_map(|line| line.used).for_each(LineUsage::recorded);
                }
                Err(store::Error::Missing(what)) => {
                    tracing::warn!(batch = id, "a batch has no {what} any more: it is another's to run");
                    self.unwritten.drain(..).filter_map(|line| line.used).for_each(LineUsage::left);
                    return Err(Stop::Left);
                }
                Err(error) => {
                    tracing::warn!(%error, batch = id, rows = self.unwritten.len(), "rows are not recorded yet");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A line and the sum that what it used belongs to.
    fn with_usage(&self, line: &EndedLine) -> (TicketRow, Option<UsageRow>) {
        let day = self.app.runtime.shared.unix_now().day();
        let usage = line.used.as_ref().map(|used| used.row(self.caller.tenant, day));
        (line.row.clone(), usage)
    }

    /// Calls off what still runs and records what has ended. Gives why that was not possible, if so.
    async fn wind_down(&mut self, stop: &Stop, ends: &mut mpsc::Receiver<EndedLine>) -> Option<Stop> {
        self.is_stopping.store(true, Ordering::Release);
        if !self.app.runtime.is_draining() {
            for (model, relquery) in &self.relqueries {
                if let Some(relquery) = relquery.upgrade() {
                    // Whoever goes on with the batch computes them again.
                    if *stop == Stop::Left {
                        relquery.run_again();
                    }
                    ownership::cancel(&model.runtime, &relquery);
                }
            }
        }
        let mut got = Vec::new();
        while !self.running.is_empty() {
            tokio::select! {
                _ = ends.recv_many(&mut got, ROWS_PER_WRITE) => self.unwritten.append(&mut got),
                _ = self.running.join_next() => {}
            }
        }
        while let Ok(row) = ends.try_recv() {
            self.unwritten.push(row);
        }
        let mut watch = Watch::new(self.app, self.batch);
        loop {
            match self.write().await {
                Err(stop) => return Some(stop),
                Ok(()) if self.unwritten.is_empty() => return None,
                Ok(()) if self.app.runtime.is_draining() => return Some(Stop::Left),
                Ok(()) => watch.due().await,
            }
        }
    }
}

/// Lines as one relQuery.
fn work(lines: &[ReadyLine]) -> Prepared {
    let mut rows: Vec<PendingRow> = Vec::with_capacity(lines.len());
    for row in lines.iter().flat_map(|line| &line.rows) {
        let mut row = row.clone();
        let place = rows.len() as u32;
        row.item.row = place;
        row.targets = vec![place];
        rows.push(row);
    }
    Prepared {
        kind: RelQueryKind::RelQuery,
        route: BATCHES,
        class: ServiceClass::Bulk,
        rows: rows.len(),
        failed: Vec::new(),
        answered: Vec::new(),
        deadline: None,
        pin: None,
        parts: vec![TemplateRows { open: None, label: None, rows }],
    }
}

/// Lines by the model that runs them, in the order of their first lines.
fn by_model(lines: Vec<ReadyLine>) -> Vec<(Arc<ServedModel>, Vec<ReadyLine>)> {
    let mut models: Vec<(Arc<ServedModel>, Vec<ReadyLine>)> = Vec::new();
    for line in lines {
        match models.iter_mut().find(|(model, _)| Arc::ptr_eq(model, &line.model)) {
            Some((_, own)) => own.push(line),
            None => models.push((Arc::clone(&line.model), vec![line])),
        }
    }
    models
}

/// An input that is not there any more.
fn gone() -> LineError {
    LineError::whole("input_file_gone", "the input file was deleted before all of it was read")
}
