//! The dynamic priority updater (RelServe, section 4.2): gives relQueries new priorities, and puts them where they then
//! belong. A policy says when (`on_plan`) and which (`priority`); Eq. 11 and Algorithm 1 are asked about what is held
//! here, for whichever policy needs them.

use base::{Nanos, RelQueryId, StepId, TokenCount};

use crate::Scheduler;
use crate::admit::{Admitted, CacheView};
use crate::config::SchedulerConfig;
use crate::decision::Truncated;
use crate::decompose::{Limits, Remaining, Running, decompose};
use crate::explain::Touched;
use crate::miss_ratio::{MissRatio, sample_positions};
use crate::paper_variant::DecompositionReading;
use crate::priority::RelQueryKey;
use crate::relquery::RelQuery;
use crate::row::RowState;

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
        if !self.relqueries.contains_key(&id) {
            return;
        }
        let (priority, breakdown) = (self.config.policy.rules().priority)(self, id);
        if let Some(relquery) = self.relqueries.get_mut(&id) {
            relquery.priority = Some(priority.0);
            relquery.breakdown = breakdown;
            relquery.priced_for = StepId(self.steps.next_step);
        }
        self.place(id);
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
        let key = RelQueryKey::new(self.config.policy, relquery.class, priority, relquery.arrival, id);
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
        if self.config.policy.shares_by_tenant() && old != relquery.waiting_key {
            self.queues.tenants.place(tenant, old, relquery.waiting_key);
        }
    }
}

/// Eq. 11 over waiting rows: a running row has no prompt left to miss (DESIGN 9).
pub(crate) fn miss_ratio(view: &CacheView<'_>, relquery: &mut RelQuery, samples: usize) -> MissRatio {
    let scope = relquery.scope;
    let positions = sample_positions(relquery.waiting_len(), samples);
    let counts = positions.filter_map(|position| {
        let index = relquery.waiting_at(position)?;
        let row = relquery.row_mut(index);
        let uncached = view.uncached(scope, row);
        Some((TokenCount(u64::from(uncached)), TokenCount(u64::from(row.total()))))
    });
    MissRatio::of(counts)
}

/// Algorithm 1 for what is left of a relQuery.
pub(crate) fn remaining_batches(
    relquery: &RelQuery,
    ratio: MissRatio,
    config: &SchedulerConfig,
) -> crate::decompose::Batches {
    let mut running = Running::default();
    for index in &relquery.running {
        let row = relquery.row(*index);
        if row.state == RowState::Running {
            let generated = row.generated.len() as u64;
            let steps = relquery.output_max.saturating_sub(generated);
            running.rows += 1;
            running.steps_max = running.steps_max.max(steps);
            running.steps_sum += steps;
            running.held += row.private_tokens() + generated;
        }
    }
    let requeued: Vec<(u64, u64)> = relquery
        .requeued
        .iter()
        .map(|index| relquery.row(*index))
        .map(|row| (u64::from(row.total()), row.generated.len() as u64))
        .collect();
    let remaining = Remaining {
        running,
        requeued: &requeued,
        fresh: relquery.fresh_tokens(),
        output_max: relquery.output_max,
    };
    let limits = Limits {
        kv_tokens: config.kv_tokens(),
        sequences: u64::from(config.sequences_max),
        step_tokens: config.step_tokens_max.0,
    };
    let reading = match config.policy.reads_the_paper() {
        true => config.paper_variant.decomposition,
        false => DecompositionReading::Corrected,
    };
    decompose(remaining, ratio, limits, reading)
}
