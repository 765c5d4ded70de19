//! The step of policy `marginal-work`: everything that runs decodes, prompts ride along.

use base::{RelQueryId, ServiceClass};

use crate::Scheduler;
use crate::admit::{Admission, Budget, RejectReason};
use crate::choice::{Choice, Offer};
use crate::decision::Reason;
use crate::policy::marginal_work::Steps;
use crate::policy::marginal_work::joins::{Joining, Left, tokens_max};
use crate::priority::RelQueryKey;

/// Thousandths of `b_d - b_p` hidden in a mixed step below which whether a row joins is derived (`joins`); from there
/// on, where prompts that wait ride free, which the derivation does not follow far enough, it is weighed.
const DERIVED_BELOW: u64 = 500;

impl Scheduler {
    /// Decides the step.
    pub(crate) fn marginal_step(&mut self) -> Choice {
        let mixes = self.mixes(self.estimates.cost.mixing_saves());
        if self.config.marginal_work.evict_lower_class || self.bulk_part().is_some() {
            self.evict_lower_class();
        }
        match mixes {
            true => self.mixed(self.config.step_tokens_max.0, |scheduler| scheduler.ranked(true)),
            false => self.two_phase(&self.ranked(false)),
        }
    }

    /// Whether steps mix of which a mixed one saves so much.
    pub(super) fn mixes(&self, saves: i64) -> bool {
        match self.config.marginal_work.steps {
            Steps::Adaptive => saves >= 0,
            Steps::Mixed => true,
            Steps::TwoPhase => false,
        }
    }

    /// Rows of a lower class give their memory up until those of the first waiting relQuery fit that a
    /// step can take: twice as many each time, for an offer of all rows costs more than a spared row.
    fn evict_lower_class(&mut self) {
        let Some(front) = self.queues.waiting.first().copied() else { return };
        let all = self.config.marginal_work.evict_lower_class;
        let gives_way = |last: &RelQueryKey| all || last.class == ServiceClass::Bulk;
        let is_lower = |last: &&RelQueryKey| last.class > front.class && gives_way(last);
        let mut rows = 1;
        while self.queues.running.last().as_ref().is_some_and(is_lower) {
            let budget = self.prefill_budget();
            let free_blocks = budget.free_blocks.saturating_sub(self.decode_need());
            let admission = self.admission(true, Budget { free_blocks, cuts: true, ..budget });
            if !matches!(admission.rejected, Some(RejectReason::Blocks | RejectReason::Sequences)) {
                return;
            }
            for _ in 0..rows {
                let Some(last) = self.queues.running.last().filter(is_lower) else { return };
                self.preempt(last.id);
            }
            rows *= 2;
        }
    }

    /// Prefills across relQueries, else decodes. While memory is what limits it, a small prefill is not
    /// worth a step: rows that end meanwhile make room for a larger one.
    fn two_phase(&mut self, offers: &[Offer]) -> Choice {
        // Rows cut by a mixed step before, when mixing paid.
        let partials = self.cut_prompts();
        if !partials.is_empty() {
            return Choice { reason: Reason::PrefillFirst, prefill: partials, decodes: false };
        }
        let admission = self.offer_waiting(Admission::new(self.prefill_budget()), offers);
        let is_small = admission.tokens < self.config.marginal_work.prefill_tokens_min.0;
        if admission.rows.is_empty()
            || (is_small && admission.rejected == Some(RejectReason::Blocks) && self.queues.running_rows > 0)
        {
            return self.decode_all();
        }
        Choice { reason: Reason::PrefillFirst, prefill: admission.rows, decodes: false }
    }

    /// Waiting relQueries in the order they are offered, as many as a step can take rows of, each with the most
    /// tokens one of its rows may compute beyond what rides free.
    fn ranked(&self, mixes: bool) -> Vec<Offer> {
        let most = self.free_sequences() as usize;
        if most == 0 {
            return Vec::new();
        }
        let keys = self.first_waiting(most);
        let running: Vec<RelQueryKey> = self.queues.running.iter().copied().collect();
        let gain = self.config.marginal_work.gain;
        let hide =
            self.estimates.cost.hide_permille().filter(|_| mixes).unwrap_or(0).clamp(0, 1_000).unsigned_abs();
        let derived = hide < DERIVED_BELOW;
        let before =
            if gain.is_some() && derived { self.left_before(&running) } else { vec![Left::default()] };
        let mut offered = Left::default();
        let bulk = self.bulk_part();
        let mut behind =
            if bulk.is_some() { self.higher_waiting() } else { self.queues.waiting.len() as u64 };
        let mut rows = 0;
        let mut offers = Vec::with_capacity(keys.len());
        for (number, key) in keys.into_iter().enumerate() {
            if rows >= most {
                break;
            }
            let relquery = &self.relqueries[&key.id];
            rows += relquery.waiting_len();
            if bulk.is_some() && key.class == ServiceClass::Bulk {
                // Its part of the step is small enough not to be weighed; a step of its own it does not get.
                offers.extend(mixes.then_some(Offer { id: key.id, row_tokens_max: Some(0) }));
                continue;
            }
            behind = behind.saturating_sub(1);
            let place = running.partition_point(|other| *other < key);
            let ahead = before.get(place).map_or(offered, |left| left.and(offered));
            let ahead_count = (place + number) as u64;
            let row_tokens_max = gain.filter(|_| ahead_count > 0).map(|gain| {
                let is_lower = running.first().is_some_and(|first| key.class > first.class);
                let divisor = if is_lower { u64::from(gain.lower_class.max(1)) } else { 1 };
                if derived {
                    let joining = self.joining(key.id, behind, hide);
                    return tokens_max(&self.estimates.cost, &ahead, &joining, 1_000 / divisor);
                }
                let weight = u64::from(gain.bare) * (1_000 - hide) + u64::from(gain.hidden) * hide;
                self.weighed(key.id, weight / divisor, ahead_count, behind + 1)
            });
            offers.push(Offer { id: key.id, row_tokens_max });
            if gain.is_some() && derived {
                offered = offered.and(self.waiting_left(key.id));
            }
        }
        offers
    }

    /// What is left of the rows that run of the first 0, 1, 2, .. of these relQueries.
    fn left_before(&self, running: &[RelQueryKey]) -> Vec<Left> {
        let mut all = Left::default();
        let mut before = vec![all];
        for key in running {
            let relquery = &self.relqueries[&key.id];
            let expected = self.expected(key.id);
            let mut left = Left { relqueries: 1, ..Left::default() };
            for index in &relquery.running {
                let row = relquery.row(*index);
                let generated = row.generated.len() as u64;
                let output = expected.remaining(generated, row.output_max());
                left.rows += 1;
                left.output += output;
                left.steps = left.steps.max(row.output_max().saturating_sub(generated));
            }
            all = all.and(left);
            before.push(all);
        }
        before
    }

    /// What is left of the waiting rows of a relQuery; one that runs too is counted there.
    fn waiting_left(&self, id: RelQueryId) -> Left {
        let relquery = &self.relqueries[&id];
        let output = self.expected(id).remaining(0, relquery.output_max);
        let rows = relquery.waiting_len() as u64;
        Left {
            relqueries: u64::from(relquery.running.is_empty()),
            rows,
            output: rows * output,
            steps: relquery.output_max,
        }
    }

    /// A waiting relQuery as [`tokens_max`] sees it; `behind` others wait after it.
    fn joining(&self, id: RelQueryId, behind: u64, hidden_permille: u64) -> Joining {
        let relquery = &self.relqueries[&id];
        let Left { rows, output, steps, .. } = self.waiting_left(id);
        let output = output.checked_div(rows).unwrap_or(0);
        let held = relquery.fresh_tokens_mean() + output;
        let fit = (self.config.kv_tokens() / held.max(1)).clamp(1, u64::from(self.config.sequences_max));
        // While the machine is busy as many will still come as have come since it was: of these too some go behind.
        let all = self.relqueries.len().max(1) as u64;
        let later = self.estimates.arrived * (behind + 1) / all;
        Joining { rows: rows.min(fit), beside: 0, output, steps, behind: behind + later, hidden_permille }
    }

    /// The same where prompts hide, by weights that were chosen:
    ///
    /// ```text
    /// gain * behind * b_d * k / N  >  ahead * (a_p * u + a_d * k)
    /// ```
    ///
    /// `k` output tokens expected of it; `ahead` relQueries that come before it and run or are offered
    /// too, `behind` relQueries that wait and do not, itself included. `N`: rows that share its steps in
    /// any case, those that run or those of its own relQuery; where either is many, joining saves little.
    fn weighed(&self, id: RelQueryId, gain_permille: u64, ahead: u64, behind: u64) -> u64 {
        let relquery = &self.relqueries[&id];
        let output = self.expected(id).remaining(0, relquery.output_max);
        let sharing =
            if self.bulk_part().is_some() { self.higher_rows() } else { self.queues.running_rows.into() };
        let rows = u128::from(sharing).max(relquery.fresh_len() as u128).max(1);
        let base = u128::from(self.estimates.cost.decode_base.0) * u128::from(output);
        let gained = u128::from(gain_permille) * u128::from(behind) * base / rows / 1_000;
        let lost =
            u128::from(ahead) * u128::from(self.estimates.cost.decode_per_sequence.0) * u128::from(output);
        let per_token = u128::from(ahead) * u128::from(self.estimates.cost.prefill_per_token.0.max(1));
        u64::try_from(gained.saturating_sub(lost) / per_token).unwrap_or(u64::MAX)
    }
}
