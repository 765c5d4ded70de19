//! The course of a batch: wait for room, check the input, run its rows, leave its files.

use std::sync::Arc;

use serving::account::BATCHES;
use serving::budgets::BudgetAmount;
use serving::caller::{Caller, WeightedTenant};
use store::{UsageKey, UsageRow, Used};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use super::lines::{Checker, LineError};
use super::queue::QueueTicket;
use super::watch::{Stop, Watch};
use super::{Batch, Summary, called_off, ends, finish, rows};
use crate::services::files::Lines;
use crate::services::takes::TakeUp;
use crate::state::App;

/// What a batch holds while it runs.
#[derive(Default)]
struct RunPermits<'a> {
    /// Room for one more to run.
    _room: Option<SemaphorePermit<'a>>,
    /// Of one with which servers have ended: nothing else of that kind runs here.
    alone: Option<OwnedSemaphorePermit>,
}

/// Runs a batch to its end, or to this server's.
pub(super) async fn run(app: &Arc<App>, mut batch: Batch, mut ticket_in_line: QueueTicket) {
    // Held to the end, files included: what finishes uses the store as much as what runs.
    let (permits, stop) = loop {
        let (mut permits, stop) = wait(app, &batch, &mut ticket_in_line).await;
        let stop = match stop {
            Some(stop) => stop,
            None => patient(app, &mut batch, (&mut ticket_in_line, &mut permits.alone)).await,
        };
        let Stop::Paused(least) = stop else { break (permits, stop) };
        // Batches of tenants that have tokens may run, and begin.
        drop(permits);
        ticket_in_line.pass();
        ends::give_back(app, &batch).await;
        if let Some(stop) = pause(app, &batch, least).await {
            break (RunPermits::default(), stop);
        }
    };
    if stop != Stop::Left {
        finish::finish(app, &mut batch, stop).await;
    }
    drop(permits);
}

/// Waits until the tenant's budget has room for so much: a new day or month begins, the limit is raised, or what was set
/// aside is free again.
async fn pause(app: &Arc<App>, batch: &Batch, least: BudgetAmount) -> Option<Stop> {
    tracing::info!(batch = batch.id, tokens = least.tokens, "a batch waits for its tenant's budget");
    let mut watch = Watch::new(app, batch);
    loop {
        watch.due().await;
        if let Some(stop) = watch.look().await {
            return Some(stop);
        }
        if app.runtime.shared.budgets.has_room(batch.tenant, least) {
            tracing::info!(batch = batch.id, "a batch goes on: its tenant's budget has room");
            return None;
        }
    }
}

/// Carries a batch out; again, while the database is away at its beginning.
async fn patient(
    app: &Arc<App>,
    batch: &mut Batch,
    (ticket_in_line, alone): (&mut QueueTicket, &mut Option<OwnedSemaphorePermit>),
) -> Stop {
    if let Some(stop) = ends::take_up(app, batch).await {
        return stop;
    }
    loop {
        match carry_out(app, batch, (&mut *ticket_in_line, &mut *alone)).await {
            Ok(stop) => return stop,
            Err(store::Error::Missing(what)) => {
                tracing::warn!(batch = batch.id, "a batch has no {what} any more: it is another's to run");
                return Stop::Left;
            }
            Err(error) => tracing::warn!(%error, batch = batch.id, "a batch does not begin yet"),
        }
        let mut watch = Watch::new(app, batch);
        // The first is due at once.
        watch.due().await;
        watch.due().await;
        if let Some(stop) = watch.look().await {
            return stop;
        }
    }
}

/// Waits until those before it have begun and there is room for one more batch to run. One with which servers have ended
/// waits until it is alone too, and keeps nobody waiting meanwhile: neither those behind it, nor who waits for the one of
/// both that it could have.
async fn wait<'a>(
    app: &'a Arc<App>,
    batch: &Batch,
    ticket_in_line: &mut QueueTicket,
) -> (RunPermits<'a>, Option<Stop>) {
    let mut watch = Watch::new(app, batch);
    let mut permits = std::pin::pin!(async {
        let is_alone = batch.take_up(app) == TakeUp::Alone;
        if is_alone {
            ticket_in_line.pass();
        }
        ticket_in_line.come().await;
        loop {
            let room = app.batches.running.acquire().await.ok();
            let alone = if is_alone { app.alone.try_permit() } else { None };
            if alone.is_some() == is_alone {
                return RunPermits { _room: room, alone };
            }
            drop(room);
            drop(app.alone.permit().await);
        }
    });
    loop {
        tokio::select! {
            biased;
            () = watch.due() => {
                if let Some(stop) = watch.look().await {
                    return (RunPermits::default(), Some(stop));
                }
            }
            permits = &mut permits => return (permits, None),
        }
    }
}

/// Checks and runs. After an error of the store it can be run again: what is recorded stays.
async fn carry_out(
    app: &Arc<App>,
    batch: &mut Batch,
    permits: (&mut QueueTicket, &mut Option<OwnedSemaphorePermit>),
) -> Result<Stop, store::Error> {
    if let TakeUp::Never { ends } = batch.take_up(app)
        && let Some(stop) = ends::give_up(app, batch, ends).await?
    {
        return Ok(stop);
    }
    if batch.summary.in_progress_at.is_none() {
        match check(app, batch).await? {
            Ok(checked) => batch.summary = begin(app, batch, checked).await?,
            Err(stop) => return Ok(stop),
        }
    }
    let tenants = app.runtime.store.tenants().await?;
    let tenant = tenants.iter().find(|tenant| tenant.id == batch.tenant);
    let member = tenant.map_or(WeightedTenant::usual(batch.tenant), WeightedTenant::of);
    let (stop, used) = rows::run(app, batch, Caller::of(member), permits).await?;
    Ok(called_off::keep(app, batch, stop, used).await)
}

/// An input that can be run.
struct CheckedInput {
    requests: u64,
    /// The model of the first line that names one.
    model: Option<String>,
}

/// Writes down that a batch begins, and counts it with that as one request, whatever is killed meanwhile. What is said of it
/// from now on.
async fn begin(app: &App, batch: &Batch, input: CheckedInput) -> Result<Summary, store::Error> {
    let now = app.runtime.shared.unix_now();
    let summary = Summary { total: input.requests, in_progress_at: Some(now), ..batch.summary.clone() };
    // A line whose model there is not fails, alone.
    let model = app.models.named_for(batch.tenant, input.model.as_deref());
    let model = model.unwrap_or(app.models.usual()).model().name.clone();
    let key = UsageKey { tenant: batch.tenant, day: now.day(), model, route: BATCHES.to_owned() };
    let usage = UsageRow { key, used: Used { requests: 1, ..Used::default() } };
    let text = serde_json::to_string(&summary).expect("a summary is plain data");
    app.runtime.store.begin_batch(&batch.id, &app.config.store.node, (&text, &usage)).await?;
    Ok(summary)
}

/// Goes through the whole input: what it has, or why it cannot be run.
async fn check(app: &Arc<App>, batch: &Batch) -> Result<Result<CheckedInput, Stop>, store::Error> {
    let watch = Watch::new(app, batch);
    let mut lines = Lines::of(&batch.request.input_file_id);
    let mut checker = Checker::default();
    while let Some(chunk) = lines.next(app).await? {
        if let Some(stop) = watch.look().await {
            return Ok(Err(stop));
        }
        let (endpoint, most) = (batch.request.endpoint.clone(), app.config.bulk.requests_max);
        let checked = tokio::task::spawn_blocking(move || {
            checker.check(&chunk, &endpoint, most);
            checker
        });
        match checked.await {
            Ok(back) => checker = back,
            Err(error) => {
                let message = format!("the input cannot be read: {error}");
                return Ok(Err(Stop::Invalid(vec![LineError::whole("unreadable", message)])));
            }
        }
    }
    let model = checker.model.take();
    Ok(checker.end().map(|requests| CheckedInput { requests, model }).map_err(Stop::Invalid))
}
