//! The step of policy `ours`: everything that runs decodes, prompts ride along.

use base::RelQueryId;

use crate::Scheduler;
use crate::admit::{Admission, Admitted};
use crate::choose::{Choice, Offer};
use crate::decision::Reason;
use crate::ours::Steps;

impl Scheduler {
    /// Decides the step.
    pub(crate) fn ours(&mut self) -> Choice {
        let mixes = match self.config.ours.steps {
            Steps::Adaptive => self.cost.mixing_saves() >= 0,
            Steps::Mixed => true,
            Steps::TwoPhase => false,
        };
        let offers = self.ranked(mixes);
        if mixes { self.mixed(self.config.step_tokens_max.0, &offers) } else { self.two_phase(&offers) }
    }

    /// Prefills across relQueries, else decodes. While memory is what limits it, a small prefill is not
    /// worth a step: rows that end meanwhile make room for a larger one.
    fn two_phase(&mut self, offers: &[Offer]) -> Choice {
        // Rows cut by a mixed step before, when mixing paid.
        let halves = self.half_prefilled().into_iter();
        let halves: Vec<Admitted> =
            halves.map(|(relquery, index, take)| Admitted { relquery, index, take }).collect();
        if !halves.is_empty() {
            return Choice { reason: Reason::PrefillFirst, prefill: halves, decodes: false };
        }
        let admission = self.offer_waiting(Admission::new(self.prefill_budget()), offers);
        let is_small = admission.tokens < self.config.ours.prefill_tokens_min.0;
        if admission.rows.is_empty() || (is_small && admission.lacks_room && self.running_rows > 0) {
            return self.decode_all();
        }
        Choice { reason: Reason::PrefillFirst, prefill: admission.rows, decodes: false }
    }

    /// Waiting relQueries in the order they are offered, each with the most tokens one of its rows may
    /// compute beyond what rides free.
    fn ranked(&self, mixes: bool) -> Vec<Offer> {
        let is_oldest_turn = self
            .config
            .ours
            .oldest_every
            .is_some_and(|every| self.next_step.is_multiple_of(u64::from(every)));
        let oldest = self.by_age.first().map(|(_, id)| *id).filter(|_| is_oldest_turn);
        let mut running = self.running.iter().peekable();
        let (mut ahead, mut behind) = (0, self.waiting.len() as u64);
        let mut offers: Vec<Offer> = oldest.map(Offer::unlimited).into_iter().collect();
        for key in self.waiting.iter().take(self.config.sequences_max as usize) {
            while running.next_if(|other| *other < key).is_some() {
                ahead += 1;
            }
            if Some(key.id) != oldest {
                let gain = self.config.ours.gain.filter(|_| mixes && ahead > 0);
                let row_tokens_max = gain.map(|gain| self.worth(key.id, gain, ahead, behind));
                offers.push(Offer { id: key.id, row_tokens_max });
            }
            behind -= 1;
        }
        offers
    }

    /// Most prompt tokens for which a row that joins the batch is worth them:
    ///
    /// ```text
    /// gain * behind * b_d * k / N  >  ahead * (a_p * u + a_d * k)
    /// ```
    ///
    /// `k` output tokens expected of it, `N` rows of a full batch, `ahead` relQueries that run and come
    /// before it, `behind` relQueries that wait and do not, itself included.
    fn worth(&self, id: RelQueryId, gain: u32, ahead: u64, behind: u64) -> u64 {
        let output = self.expected(id).remaining(0, self.relqueries[&id].output_max);
        let rows = u128::from(self.running_rows.max(1));
        let base = u128::from(self.cost.decode_base.0) * u128::from(output);
        let gained = u128::from(gain) * u128::from(behind) * base / rows;
        let lost = u128::from(ahead) * u128::from(self.cost.decode_per_sequence.0) * u128::from(output);
        let per_token = u128::from(ahead) * u128::from(self.cost.prefill_per_token.0.max(1));
        u64::try_from(gained.saturating_sub(lost) / per_token).unwrap_or(u64::MAX)
    }
}
