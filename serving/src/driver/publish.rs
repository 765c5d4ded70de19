//! What the loop shows of itself to those who look: queue and memory now and then, and all that waits to be
//! told; and what it keeps whether anybody looks or not.

use std::sync::Arc;

use base::{RelQueryId, Time};
use scheduler::snapshot::{RelQueryStatus, Start};

use super::Driver;
use crate::live::decision::{Contender, DecisionRecord};
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

    /// Keeps what the last step left, before its events end what it was about.
    pub(super) fn keep_report(&mut self) {
        let report = self.backend.take_report();
        if let Some(step) = report.timed {
            self.publisher.timed(step);
        }
        for Start { first, rival } in report.starts {
            let at = first.started.unwrap_or_default();
            let owner = self.flights.get(&first.id).and_then(|flight| flight.owner.as_ref());
            if let (Some(relquery), Some(breakdown)) = (owner, &first.breakdown) {
                relquery.trace.began(breakdown.parts);
            }
            let contender = |status: RelQueryStatus| Contender { name: self.name_of(status.id), status };
            let (first, rival) = (contender(first), rival.map(contender));
            self.publisher.decided(DecisionRecord { at, policy: self.backend.policy(), first, rival });
        }
    }

    /// How a relQuery of the scheduler is called outside.
    fn name_of(&self, id: RelQueryId) -> RelQueryName {
        match self.flights.get(&id) {
            Some(flight) => RelQueryName {
                route: flight.account.route,
                request: flight.owner.as_ref().map(|relquery| relquery.id),
                label: flight.label.as_ref().map(Arc::clone),
            },
            None => RelQueryName { route: "", request: None, label: None },
        }
    }

    fn snapshot(&self, at: Time) -> LiveSnapshot {
        let (stats, scheduler) = self.backend.snapshot(self.shared.live.settings().relqueries_max);
        let names = scheduler.relqueries.listed.iter().map(|status| self.name_of(status.id)).collect();
        LiveSnapshot { at, policy: self.backend.policy(), stats, scheduler, names }
    }
}
