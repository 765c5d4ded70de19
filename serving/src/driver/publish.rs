//! What the loop shows of itself to those who look: queue and memory now and then, and all that waits to be
//! told.

use super::Driver;
use crate::live::{LiveSnapshot, RelQueryName};

impl Driver {
    /// Puts what there is to tell where readers find it. Never waits, and does nothing where there is
    /// nothing.
    pub(super) fn publish_live(&mut self) {
        if self.shared.live.is_watched() {
            let now = self.shared.clock.now();
            if self.publisher.wants_snapshot(now, self.flights.is_empty()) {
                let snapshot = self.snapshot(now);
                self.publisher.snapshot_taken(snapshot);
            }
        }
        self.publisher.hand_over();
    }

    fn snapshot(&self, at: base::Time) -> LiveSnapshot {
        let (stats, scheduler) = self.backend.snapshot(self.shared.live.settings().relqueries_max);
        let name = |id| match self.flights.get(&id) {
            Some(flight) => RelQueryName {
                route: flight.account.route,
                request: flight.owner.as_ref().map(|relquery| relquery.id),
            },
            None => RelQueryName { route: "", request: None },
        };
        let names = scheduler.relqueries.listed.iter().map(|status| name(status.id)).collect();
        LiveSnapshot { at, policy: self.backend.policy(), stats, scheduler, names }
    }
}
