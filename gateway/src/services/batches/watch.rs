//! Why a batch's worker may have to stop: asked about every second, and whenever somebody says so.

use std::sync::Arc;
use std::time::Duration;

use serving::budgets::BudgetAmount;
use store::TicketState;
use tokio::sync::watch::Receiver;
use tokio::time::{Interval, MissedTickBehavior};

use super::Batch;
use super::lines::LineError;
use crate::state::App;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// How a worker's course ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Every row is over.
    Done,
    /// Its owner has called it off.
    Cancelled,
    /// Its window has passed.
    Expired,
    /// The input cannot be run, or not any more.
    Invalid(Vec<LineError>),
    /// Servers end with it, and not with one line of it.
    GivenUp(LineError),
    /// Another gateway, or the next start, goes on: the server ends, or the lease is lost.
    Left,
    /// Its tenant's budget is spent: it goes on once it has room for so much.
    Paused(BudgetAmount),
}

/// Looks at a batch.
pub(super) struct Watch<'a> {
    app: &'a Arc<App>,
    batch: &'a Batch,
    looks: Interval,
    changes: Receiver<()>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(app: &'a Arc<App>, batch: &'a Batch) -> Self {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { app, batch, looks, changes: app.batches.look.subscribe() }
    }

    /// Resolves when it is time to look.
    pub(super) async fn due(&mut self) {
        tokio::select! {
            _ = self.looks.tick() => {}
            // Err: the sender is gone, and the server with it.
            _ = self.changes.changed() => {}
        }
    }

    /// Whether the worker must stop. A database that is away stops nobody: what is finished waits in memory.
    pub(super) async fn look(&self) -> Option<Stop> {
        let app = self.app;
        if app.runtime.is_draining() || app.runtime.shared.pulse.is_dead() {
            return Some(Stop::Left);
        }
        let now = app.runtime.shared.unix_now();
        let ticket = match app.runtime.store.ticket(self.batch.tenant, &self.batch.id, now).await {
            Ok(Some(ticket)) => ticket,
            Ok(None) => return Some(Stop::Left),
            Err(error) => {
                tracing::warn!(%error, batch = self.batch.id, "a batch cannot be looked at; it goes on");
                return None;
            }
        };
        if ticket.holder != app.config.store.node || ticket.state != TicketState::Running {
            return Some(Stop::Left);
        }
        if ticket.cancelling.is_some() {
            return Some(Stop::Cancelled);
        }
        (now >= self.batch.expires()).then_some(Stop::Expired)
    }
}
