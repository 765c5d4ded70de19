//! Ownership of a running relquery: while somebody waits for it, it runs.
//!
//! The first handle comes from [`crate::submit::submit`]; a repeated request joins it through its [`Owners`].
//! When the last handle is dropped (clients gone, handlers cancelled), what nobody else waits for is
//! cancelled; a ticket lets the work go on. Must not know HTTP or wire shapes.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::clock::Deadline;
use crate::relquery_state::{RelQueryState, State, Status};
use crate::runtime::Runtime;

/// Who decides about a relQuery's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ownership {
    /// Those who wait: with the last of them it ends.
    #[default]
    Owned,
    /// Nobody: it runs to its end by itself, or is over.
    Released,
    /// It was cancelled because nobody waited any more.
    Abandoned,
}

#[derive(Debug, Default)]
struct OwnerCount {
    waiting: usize,
    ownership: Ownership,
}

/// What the handles on one relQuery share.
#[derive(Debug, Default)]
pub struct Owners {
    readers: Mutex<OwnerCount>,
    /// One ticket per relQuery, however many deadlines pass at once.
    pub ticketing: tokio::sync::Mutex<()>,
}

impl Owners {
    fn readers(&self) -> MutexGuard<'_, OwnerCount> {
        self.readers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A further handle on the relQuery; `None` where the last reader's leaving has cancelled it.
    pub fn join(
        self: &Arc<Self>,
        runtime: &Arc<Runtime>,
        relquery: Arc<RelQueryState>,
    ) -> Option<OwnerHandle> {
        let mut readers = self.readers();
        if readers.ownership == Ownership::Abandoned {
            return None;
        }
        readers.waiting += 1;
        Some(OwnerHandle { runtime: Arc::clone(runtime), relquery, owners: Arc::clone(self) })
    }
}

/// A share in the ownership of a relQuery.
pub struct OwnerHandle {
    runtime: Arc<Runtime>,
    relquery: Arc<RelQueryState>,
    owners: Arc<Owners>,
}

impl OwnerHandle {
    /// The first handle on a relQuery.
    pub fn new(runtime: &Arc<Runtime>, relquery: Arc<RelQueryState>) -> Self {
        let owners = Owners {
            readers: Mutex::new(OwnerCount { waiting: 1, ownership: Ownership::Owned }),
            ..Owners::default()
        };
        Self { runtime: Arc::clone(runtime), relquery, owners: Arc::new(owners) }
    }

    /// A handle on a relQuery that has a ticket, and goes on or is over whoever waits.
    pub fn released(runtime: &Arc<Runtime>, relquery: Arc<RelQueryState>) -> Self {
        let handle = Self::new(runtime, relquery);
        handle.release();
        handle
    }

    /// The relQuery.
    pub fn relquery(&self) -> &Arc<RelQueryState> {
        &self.relquery
    }

    /// The runtime that runs it: that of its model.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// What all handles on the relQuery share.
    pub fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Waits until the relQuery is over and may be shown so, or `deadline` has passed. True: it is over.
    pub async fn wait(&self, deadline: Option<Deadline>) -> bool {
        let is_shown = |state: &State| *state.shown_status() != Status::Running;
        self.runtime.shared.clock.within(deadline, until(&self.relquery, is_shown)).await.is_ok()
    }

    /// Lets the work go on without its clients; the result is fetched by id.
    pub fn release(&self) -> Arc<RelQueryState> {
        self.owners.readers().ownership = Ownership::Released;
        Arc::clone(&self.relquery)
    }

    /// Whether the work goes on without its clients.
    pub fn is_released(&self) -> bool {
        self.owners.readers().ownership == Ownership::Released
    }

    /// The loop did not take it.
    pub fn refuse(self) {
        self.release();
        self.relquery.end(Status::Cancelled, self.runtime.shared.clock.now());
        self.runtime.registry.remove(self.relquery.id);
    }
}

impl Drop for OwnerHandle {
    fn drop(&mut self) {
        let mut readers = self.owners.readers();
        readers.waiting -= 1;
        if readers.waiting > 0 || readers.ownership != Ownership::Owned {
            return;
        }
        // Decided under the lock: who repeats the request now either kept it alive or begins anew.
        if cancel(&self.runtime, &self.relquery) {
            readers.ownership = Ownership::Abandoned;
            self.runtime.shared.metrics.requests.disconnects.inc();
        } else {
            readers.ownership = Ownership::Released;
            self.runtime.registry.ended(&self.relquery);
        }
    }
}

/// Ends a relQuery that still runs; its rows stop within two steps. False: it was over.
pub fn cancel(runtime: &Runtime, relquery: &Arc<RelQueryState>) -> bool {
    let was_running = relquery.end(Status::Cancelled, runtime.shared.clock.now());
    if was_running {
        runtime.shared.intake.leave(Arc::clone(relquery));
        runtime.registry.ended(relquery);
    }
    was_running
}

/// Ends a relQuery that another gateway goes on with, or another start: that runs the rows again that are not stored, and
/// counts them. Nobody called it off: should it come back, it is taken up anew.
pub fn cede(runtime: &Runtime, relquery: &Arc<RelQueryState>) {
    runtime.registry.remove(relquery.id);
    relquery.run_again();
    cancel(runtime, relquery);
    runtime.shared.lost_ticket(relquery);
}

/// Resolves when the relQuery is over.
pub async fn finished(relquery: &RelQueryState) {
    until(relquery, State::is_over).await;
}

async fn until(relquery: &RelQueryState, is_met: impl Fn(&State) -> bool) {
    let mut version = relquery.follow();
    while !is_met(&relquery.read()) {
        // The sender lives in the relQuery, so it cannot be gone.
        if version.changed().await.is_err() {
            return;
        }
    }
}
