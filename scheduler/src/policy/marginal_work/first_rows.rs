//! First rows early: a relQuery that has the machine for itself lets its first rows end before it prefills the
//! others, where that holds up its last row by no more than a small share of its time.
//!
//! A decode step of few rows costs its base whatever rides in it, and rows that decode early spare nobody a step: all it
//! costs is bases. So a relQuery may spend a share of the time it is expected to take on them, and no more: when that is
//! spent, or when someone else comes, it goes on as if nothing had been.
//!
//! The first rows decode alone where that fits. Where it does not, and steps may mix, the other rows' prompts ride in
//! their steps: few tokens a step, for as long as those take the first rows wait. Such a step costs less of a base, for
//! it hides prompts and the ordinary steps have fewer left to do. It is a step of few rows, which may hide what steps of
//! many do not.
//!
//! It is done by `marginal-work`, and under `auto` by whichever policy that names; by a published policy that is named
//! itself it is not. It decides by a relQuery's work and the fitted costs alone, whatever orders relQueries.

use base::{Nanos, RelQueryId, ServiceClass, TokenCount};

use crate::Scheduler;
use crate::admit::{Admission, Budget};
use crate::breakdown::PriorityParts;
use crate::choice::Choice;
use crate::cost::FEW_SEQUENCES;
use crate::decision::{HeadStartTrade, Reason};

use super::work::whole_prompt;

/// How far a relQuery is with its first rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FirstRows {
    /// None of its rows has run.
    #[default]
    Untried,
    /// They go first.
    Running(HeadStart),
    /// Its rows run as all others do.
    Over,
}

/// First rows that go first, for as long as there is something to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadStart {
    /// What there was to spend.
    allowed: Nanos,
    /// What is left of it.
    left: Nanos,
    /// Prompt tokens of other rows that ride in each of their steps; 0: they decode alone.
    beside: u64,
    /// How many rows of the relQuery have ended when they have.
    ended: u64,
}

/// Of how many rows one goes first: so few that they are seen early, so many that their decode steps are worth
/// their bases. Their prompts take as small a part of the time; rows whose own would take more are fewer.
const ONE_OF: usize = 10;
/// Their decodes, where prompts ride, take one of so many parts of the time: with their prompts less than a quarter.
const RIDE_ONE_OF: u64 = 8;

impl Scheduler {
    /// The step of a relQuery that is alone here, while its first rows go first; `None` where they do not.
    pub(crate) fn first_rows(&mut self) -> Option<Choice> {
        let share = self.config.marginal_work.first_rows_permille;
        if share == 0 || self.relqueries.len() != 1 || !self.shows_first_rows() {
            return None;
        }
        let (id, relquery) = self.relqueries.first_key_value()?;
        let (id, state, runs) = (*id, relquery.first_rows, !relquery.running.is_empty());
        if relquery.class == ServiceClass::Bulk || relquery.waiting_len() == 0 {
            return None;
        }
        match state {
            FirstRows::Running(head_start) if runs => self.decode_first_rows(id, head_start),
            // Those that decoded alone have ended: more may, of what is left.
            FirstRows::Running(HeadStart { allowed, left, .. }) => self.prefill_first_rows(id, allowed, left),
            FirstRows::Untried if !runs => {
                let left = u128::from(self.time_alone(id).0) * u128::from(share) / 1_000;
                let left = Nanos(u64::try_from(left).unwrap_or(u64::MAX));
                self.prefill_first_rows(id, left, left)
            }
            FirstRows::Untried | FirstRows::Over => None,
        }
    }

    /// Whether the policy in force lets first rows end early. What a relQuery's rows share, and when another one has
    /// come, is known under `auto` where it is fair.
    fn shows_first_rows(&self) -> bool {
        self.config.policy.shows_first_rows() || self.serves_auto && self.config.is_fair()
    }

    /// Nobody is alone here any longer.
    pub(super) fn end_first_rows(&mut self) {
        for relquery in self.relqueries.values_mut() {
            if let FirstRows::Running(_) = relquery.first_rows {
                relquery.first_rows = FirstRows::Over;
            }
        }
    }

    /// Prefills first rows, if there is enough left to spend for their steps too.
    fn prefill_first_rows(&mut self, id: RelQueryId, allowed: Nanos, left: Nanos) -> Option<Choice> {
        let alone = self.time_alone(id);
        let relquery = &self.relqueries[&id];
        let (waiting, ended) = (relquery.waiting_len(), relquery.finished.rows);
        // The first token comes with the prompt.
        let steps = self.expected(id).remaining(0, relquery.output_max).saturating_sub(1);
        let cost = self.estimates.cost;
        let bases = self.ride_cost(0).saturating_mul(steps);
        let can_be_alone = cost.prefill_base.0.saturating_add(bases) <= left.0;
        // Where few rows are told apart, what prompts hide behind more of them is another question.
        let most = if can_be_alone || cost.mixed_hidden_few.is_none() { u32::MAX } else { FEW_SEQUENCES };
        let rows = u32::try_from(waiting / ONE_OF).unwrap_or(u32::MAX).clamp(1, most);
        let budget = self.prefill_budget();
        let tokens = alone.0 / ONE_OF as u64 / cost.prefill_per_token.0.max(1);
        let admission = Admission::new(Budget {
            free_sequences: budget.free_sequences.min(rows),
            tokens: budget.tokens.min(tokens.max(1)),
            free_blocks: self.kv.ledger.available(),
            ..budget
        });
        let admission = self.offer_waiting(admission, &self.offers(true));
        if admission.rows.is_empty() {
            return None;
        }
        let beside = self.beside(alone, steps, u64::from(rows));
        let ride = (beside, self.full_base().saturating_sub(self.spared(admission.tokens)));
        let ways = [Some((0, cost.prefill_base.0)), self.rides().then_some(ride)];
        let fits = |(beside, prefill): &(u64, u64)| {
            prefill.saturating_add(self.ride_cost(*beside).saturating_mul(steps)) <= left.0
        };
        let way = ways.into_iter().flatten().find(fits).filter(|_| steps > 0 && waiting > 1);
        let Some((beside, prefill)) = way else {
            self.relqueries.get_mut(&id)?.first_rows = FirstRows::Over;
            return None;
        };
        let left = left.saturating_sub(Nanos(prefill));
        let ended = ended + admission.rows.len() as u64;
        self.go_first(id, HeadStart { allowed, left, beside, ended });
        Some(Choice { reason: Reason::FirstRows, prefill: admission.rows, decodes: false })
    }

    /// Keeps how far the first rows are, and says so.
    fn go_first(&mut self, id: RelQueryId, head_start: HeadStart) {
        let HeadStart { allowed, left, .. } = head_start;
        let trade = HeadStartTrade { allowed, spent: allowed.saturating_sub(left) };
        self.telemetry.decision.head_start = Some(trade);
        if let Some(relquery) = self.relqueries.get_mut(&id) {
            relquery.first_rows = FirstRows::Running(head_start);
        }
    }

    /// The first rows take a step, if there is enough to spend for it.
    fn decode_first_rows(&mut self, id: RelQueryId, head_start: HeadStart) -> Option<Choice> {
        let HeadStart { left, beside, ended, .. } = head_start;
        let is_over = self.relqueries[&id].finished.rows >= ended || beside > 0 && !self.rides();
        if is_over || self.ride_cost(beside) > left.0 {
            self.relqueries.get_mut(&id)?.first_rows = FirstRows::Over;
            return None;
        }
        let choice = match beside {
            0 => self.decode_because(Reason::FirstRows),
            _ => {
                let tokens = self.decode_tokens().saturating_add(beside).min(self.config.step_tokens_max.0);
                let choice = self.mixed(tokens, |scheduler| scheduler.offers(true));
                Choice { reason: Reason::FirstRows, ..choice }
            }
        };
        let tokens = choice.prefill.iter().map(|row| u64::from(row.take)).sum();
        let left = left.saturating_sub(Nanos(self.ride_cost(tokens)));
        self.go_first(id, HeadStart { left, ..head_start });
        Some(choice)
    }

    /// Whether prompts may ride in steps of few rows.
    fn rides(&self) -> bool {
        self.mixes(self.estimates.cost.mixing_few_saves())
    }

    /// Prompt tokens beside the decodes of so many rows with which so many steps take their part of the time; no less
    /// than ride free, and than a block.
    fn beside(&self, alone: Nanos, steps: u64, rows: u64) -> u64 {
        let cost = &self.estimates.cost;
        let per_token = i128::from(cost.prefill_per_token.0.max(1));
        let hidden = i128::from(cost.hidden_beside(rows));
        let step = i128::from(alone.0 / RIDE_ONE_OF / steps.max(1));
        let least = (hidden / per_token).max(self.config.block_tokens.into());
        let tokens = ((step - i128::from(cost.decode(rows).0) + hidden) / per_token).max(least);
        let most = self.config.step_tokens_max.0.saturating_sub(rows);
        u64::try_from(tokens).unwrap_or(u64::MAX).min(most)
    }

    /// What a step of the first rows in which so many prompt tokens ride costs: its base, less what it spares.
    fn ride_cost(&self, beside: u64) -> u64 {
        let base = self.estimates.cost.mixed_base(TokenCount(beside)).0;
        base.saturating_sub(self.spared(beside))
    }

    /// The base of a full step of the others' prompts, which goes beside decodes where many rows' steps mix.
    fn full_base(&self) -> u64 {
        let cost = &self.estimates.cost;
        match self.config.policy.cuts_prompts() && self.mixes(cost.mixing_saves()) {
            true => cost.mixed_base(self.config.step_tokens_max).0,
            false => cost.prefill_base.0,
        }
    }

    /// So many prompt tokens' part of the base of a full step, which they are no longer computed in.
    fn spared(&self, tokens: u64) -> u64 {
        let step = self.config.step_tokens_max;
        let part = u128::from(self.full_base()) * u128::from(tokens.min(step.0)) / u128::from(step.0.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The time that what is left of the relQuery takes alone, with rows as long as expected.
    fn time_alone(&mut self, id: RelQueryId) -> Nanos {
        let relquery = &self.relqueries[&id];
        let (breakdown, output_max) = (relquery.breakdown, relquery.output_max);
        let work = match breakdown.parts {
            PriorityParts::Work(work) => work,
            // An order by something else says less of it, and may count what rows share more than once.
            PriorityParts::Arrival | PriorityParts::Static { .. } | PriorityParts::Estimate(_)
                if !self.config.policy.shows_first_rows() =>
            {
                self.work_left(id)
            }
            _ => return breakdown.work(),
        };
        let steps = self.expected(id).remaining(0, output_max);
        let bases = self.estimates.cost.decode_base.0.saturating_mul(steps);
        let prompt = whole_prompt(&self.estimates.cost, &work);
        Nanos(prompt.0.saturating_add(work.output.0).saturating_add(bases))
    }
}
