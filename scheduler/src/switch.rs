//! Another policy for a scheduler, or a fleet, that is at work: what waits and what runs is put into the new
//! order, and nothing is lost or computed twice but prompts that were cut.

use base::{Nanos, RelQueryId};

use crate::policy::Policy;
use crate::tail::TailBound;
use crate::tenants::Tenants;
use crate::{Fleet, Scheduler};

impl Scheduler {
    /// Serves by this policy from the next step on. False while a step is in flight, or where the settings do
    /// not allow the policy: nothing changes then.
    ///
    /// Every relQuery gets its priority anew, and a tenant's share begins anew. A policy that takes prompts
    /// whole finds none half computed: such rows wait again, and what they computed is in the prefix cache.
    pub fn set_policy(&mut self, policy: Policy) -> bool {
        if self.steps.flight.is_some() {
            return false;
        }
        let policy = policy.resolved(&self.estimates.cost);
        if policy == self.config.policy {
            return true;
        }
        let config = crate::SchedulerConfig { policy, ..self.config.clone() };
        if config.validate().is_err() {
            return false;
        }
        if !policy.cuts_prompts() {
            for (id, index, _) in self.partial_prefills().into_iter().rev() {
                self.take_back(id, index);
                self.telemetry.counters.preemptions += 1;
            }
        }
        self.config = config;
        self.reorder();
        true
    }

    /// Builds all that the policy orders from nothing.
    fn reorder(&mut self) {
        self.queues.waiting.clear();
        self.queues.running.clear();
        self.queues.tenants = Tenants::default();
        self.estimates.tail = TailBound::default();
        let shares = self.config.is_fair();
        for (id, relquery) in &mut self.relqueries {
            (relquery.waiting_key, relquery.running_key) = (None, None);
            relquery.is_promoted = false;
            relquery.priority = None;
            relquery.waiting_work = Nanos(0);
            self.timers.set(*id, None);
            if shares {
                self.queues.tenants.join(relquery.tenant, relquery.weight);
            }
        }
        let ids: Vec<RelQueryId> = self.relqueries.keys().copied().collect();
        // Nothing has arrived.
        let arrived = self.estimates.arrived;
        for id in ids {
            self.on_arrival(id);
            self.update_priority(id);
        }
        self.estimates.arrived = arrived;
    }
}

impl Fleet {
    /// Sends rows in the order of this policy from now on. What is at a replica stays there.
    pub fn set_policy(&mut self, policy: Policy) {
        let policy = policy.resolved(&self.cost);
        if policy == self.scheduler.policy {
            return;
        }
        self.scheduler.policy = policy;
        self.tail = TailBound::default();
        let ids: Vec<RelQueryId> = self.queries.keys().copied().collect();
        for id in ids {
            if let Some(query) = self.queries.get_mut(&id) {
                query.is_promoted = false;
                query.priced_rows = 0;
            }
            self.set_timer(id);
            self.place(id);
        }
    }
}
