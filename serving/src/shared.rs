//! What the loop thread shares with the handlers. Must not know how the loop runs.

use std::sync::{Arc, Mutex};

use base::{PinId, RelQueryId};

use crate::account::Accounts;
use crate::clock::Clock;
use crate::health::Pulse;
use crate::intake::Intake;
use crate::live::Live;
use crate::live::auto::AutoState;
use crate::metrics::Metrics;
use crate::pins::Pin;
use crate::replicas::LeaseSignal;
use crate::results::Results;
use crate::view::View;

/// What the loop shares with the handlers.
pub struct Shared {
    /// The way in.
    pub intake: Intake,
    /// Health by progress.
    pub pulse: Pulse,
    pub clock: Clock,
    /// Every metric.
    pub metrics: Metrics,
    /// Finished cells, of all models: their keys hold the model's revision.
    pub results: Arc<Results>,
    /// Tokens used, by tenant and route.
    pub accounts: Accounts,
    /// What the scheduler last said of itself.
    pub view: Arc<Mutex<View>>,
    /// What the live view shows.
    pub live: Arc<Live>,
    /// What policy `auto` chose.
    pub auto: AutoState,
    /// Where other gateways use the replicas too: has leases of them renewed.
    pub leases: Option<Arc<LeaseSignal>>,
    /// What stands behind the names of servers in leases.
    pub(crate) lease_suffix: String,
    /// Makes identifiers.
    pub ids: Arc<Ids>,
}

/// Makes relQuery ids that are never used twice, restarts included: they count up from the start's wall time.
#[derive(Debug)]
pub struct Ids(std::sync::atomic::AtomicU64);

impl Ids {
    /// Ids of a process that started at this wall time.
    pub fn starting_at(unix_ms: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(unix_ms << 16))
    }

    /// The next id.
    pub fn next(&self) -> RelQueryId {
        RelQueryId(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

impl Shared {
    /// An empty pin, of which the loop hears when it is dropped.
    pub fn pin(self: &Arc<Self>) -> Arc<Pin> {
        let shared = Arc::clone(self);
        Pin::new(PinId(self.ids.next().0), self.clock, Box::new(move |pin| shared.intake.unpin(pin)))
    }
}
