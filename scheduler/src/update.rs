//! The dynamic priority updater (RelServe, section 4.2): gives relQueries new priorities, and puts them where
//! they then belong. A policy says when (`on_plan`) and which (`priority`): its file computes the number.

use base::{Nanos, RelQueryId, StepId};

use crate::Scheduler;
use crate::admit::Admitted;
use crate::breakdown::WorkTime;
use crate::cache_view::CacheView;
use crate::decision::Touched;
use crate::policy::marginal_work::work::marginal_work;
use crate::policy::view::RelQueryView as _;
use crate::priority::RelQueryKey;
use crate::remaining::PlannedRelQuery;
use crate::truncated::Truncated;

impl Scheduler {
    /// Gives each relQuery that runs its priority anew (Eq. 8). One whose rows all wait keeps its own
    /// (Eq. 12), which it got when it arrived.
    pub(crate) fn update_running(&mut self) {
        let running: Vec<RelQueryId> = self.queues.running.iter().map(|key| key.id).collect();
        for id in running {
            self.update_priority(id);
        }
    }

    /// Computes the priority of one relQuery and puts it where it belongs.
    pub(crate) fn update_priority(&mut self, id: RelQueryId) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let mut seen = PlannedRelQuery {
            cache: CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config),
            config: &self.config,
            cost: &self.estimates.cost,
            lengths: &self.estimates.lengths,
            half_life: &self.estimates.half_life,
            relquery,
        };
        let (priority, breakdown) = (self.config.policy.rules().priority)(&mut seen);
        let is_first = relquery.priority.replace(priority.0).is_none();
        // Under another policy it is new once more, and does not count twice.
        let counts = is_first && breakdown.is_aged && !relquery.is_counted;
        relquery.is_counted |= counts;
        relquery.breakdown = breakdown;
        relquery.priced_for = StepId(self.steps.next_step);
        if is_first {
            self.estimates.tail.arrived(relquery.class, breakdown.work(), &self.estimates.cost);
        }
        self.place(id);
        if counts {
            self.count_work(breakdown.work());
        }
    }

    /// The work that is left of a relQuery (O3), whatever its priority is made of.
    pub(crate) fn work_left(&mut self, id: RelQueryId) -> WorkTime {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return WorkTime::default() };
        let mut seen = PlannedRelQuery {
            cache: CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config),
            config: &self.config,
            cost: &self.estimates.cost,
            lengths: &self.estimates.lengths,
            half_life: &self.estimates.half_life,
            relquery,
        };
        let (work, capacity) = (seen.work(), seen.capacity());
        marginal_work(&self.estimates.cost, &work, capacity)
    }

    /// Remembers, for whoever asks why the step is what it is, what was looked at: the first waiting
    /// relQuery, those that are prefilled, those that run.
    pub(crate) fn note_touched(&mut self, prefill: &[Admitted]) {
        let (front, now) = (self.telemetry.decision.front.map(|key| key.id), self.telemetry.decision.now);
        let runs = |id: &RelQueryId| self.relqueries.get(id).is_some_and(|one| !one.running.is_empty());
        let groups = prefill.chunk_by(|a, b| a.relquery == b.relquery).map(|rows| rows[0].relquery);
        let prefilled = groups.filter(|id| Some(*id) != front && !runs(id));
        let running = self.queues.running.iter().map(|key| key.id).filter(|id| Some(*id) != front);
        let touched = Truncated::of(front.into_iter().chain(prefilled).chain(running), |id| {
            let relquery = self.relqueries.get(&id)?;
            Some(Touched {
                id,
                priority: Nanos(relquery.priority?),
                breakdown: relquery.breakdown,
                age: now.since(relquery.arrival),
                is_new: relquery.priced_for == StepId(self.steps.next_step),
                waits: relquery.waiting_len() > 0,
                runs: !relquery.running.is_empty(),
            })
        });
        self.telemetry.decision.touched = touched;
    }

    /// Puts the relQuery into the sets it belongs to, under the key it has now.
    pub(crate) fn place(&mut self, id: RelQueryId) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let priority = Nanos(relquery.priority.unwrap_or(0));
        let key = RelQueryKey::new(&self.config, relquery.class, priority, relquery.arrival, id);
        relquery.breakdown.is_late = self.estimates.tail.is_late(relquery.class, id);
        let key = key.late(relquery.breakdown.is_late);
        let (waits, runs) = (relquery.waiting_len() > 0, !relquery.running.is_empty());
        let tenant = relquery.tenant;
        let old = relquery.waiting_key;
        let places = [
            (&mut relquery.waiting_key, &mut self.queues.waiting, waits),
            (&mut relquery.running_key, &mut self.queues.running, runs),
        ];
        for (current, set, belongs) in places {
            let wanted = belongs.then_some(key);
            if *current != wanted {
                if let Some(old) = current.take() {
                    set.remove(&old);
                }
                if let Some(new) = wanted {
                    set.insert(new);
                }
                *current = wanted;
            }
        }
        if !self.config.is_fair() {
            return;
        }
        let work = if waits { self.queues.tenants.time_of(relquery.breakdown.work()) } else { Nanos(0) };
        let old_work = std::mem::replace(&mut relquery.waiting_work, work);
        if old != relquery.waiting_key {
            self.queues.tenants.place(tenant, old, relquery.waiting_key);
        }
        self.queues.tenants.wait_for(tenant, old_work, work);
    }
}
