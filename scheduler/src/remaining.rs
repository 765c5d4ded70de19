//! What is left of a relQuery whose steps are planned here: Eq. 11, Algorithm 1 and marginal work asked about
//! the rows it has, for whichever policy needs them.

use base::{Nanos, Time, TokenCount};

use crate::cache_view::CacheView;
use crate::config::SchedulerConfig;
use crate::cost::CostModel;
use crate::decompose::{Batches, Limits, Remaining, Running, decompose};
use crate::miss_ratio::{MissRatio, sample_positions};
use crate::paper_variant::DecompositionReading;
use crate::policy::marginal_work::age::HalfLife;
use crate::policy::marginal_work::config::MarginalWorkConfig;
use crate::policy::marginal_work::lengths::{Expected, Lengths};
use crate::policy::marginal_work::work::{Capacity, Work};
use crate::policy::view::RelQueryView;
use crate::relquery::RelQuery;
use crate::row::RowState;

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
pub(crate) fn remaining_batches(relquery: &RelQuery, ratio: MissRatio, config: &SchedulerConfig) -> Batches {
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

/// A relQuery of a scheduler, as its policy sees it.
pub(crate) struct PlannedRelQuery<'a> {
    pub(crate) relquery: &'a mut RelQuery,
    pub(crate) cache: CacheView<'a>,
    pub(crate) config: &'a SchedulerConfig,
    pub(crate) cost: &'a CostModel,
    pub(crate) lengths: &'a Lengths,
    pub(crate) half_life: &'a HalfLife,
}

impl RelQueryView for PlannedRelQuery<'_> {
    fn cost(&self) -> &CostModel {
        self.cost
    }

    fn capacity(&self) -> Capacity {
        let sequences = u64::from(self.config.sequences_max);
        Capacity { kv_tokens: self.config.kv_tokens(), sequences }
    }

    fn settings(&self) -> &MarginalWorkConfig {
        &self.config.marginal_work
    }

    fn half_life(&self) -> Option<Nanos> {
        self.half_life.get(self.settings(), self.config.policy)
    }

    fn arrival(&self) -> Time {
        self.relquery.arrival
    }

    fn is_promoted(&self) -> bool {
        self.relquery.is_promoted
    }

    fn submitted(&self) -> (u64, u64) {
        (self.relquery.prompt_submitted, self.relquery.output_submitted)
    }

    fn miss_ratio(&mut self) -> MissRatio {
        miss_ratio(&self.cache, self.relquery, self.config.sample_rows as usize)
    }

    fn batches(&self, ratio: MissRatio) -> Batches {
        remaining_batches(self.relquery, ratio, self.config)
    }

    fn work(&mut self) -> Work {
        let expected = expected(self.relquery, &self.config.marginal_work, self.lengths);
        let exact = self.config.marginal_work.exact_sharing;
        let prompt = fresh_prompt(&self.cache, self.relquery, exact, self.config.sample_rows);
        remaining_work(self.relquery, prompt, expected)
    }
}

/// How long a row of a relQuery is expected to be.
pub(crate) fn expected(relquery: &RelQuery, settings: &MarginalWorkConfig, lengths: &Lengths) -> Expected {
    if settings.learned_lengths {
        Expected::of(relquery.output_max, relquery.finished, lengths.of(relquery.kind))
    } else {
        Expected::limit(relquery.output_max)
    }
}

/// Prompt tokens that the never admitted rows will compute.
fn fresh_prompt(view: &CacheView<'_>, relquery: &mut RelQuery, exact: bool, samples: u32) -> u64 {
    let scope = relquery.scope;
    let tokens = relquery.fresh_tokens();
    let total = tokens[tokens.len() - 1] - tokens[0];
    let novel = relquery.fresh_novel();
    if !exact || novel.len() < 2 {
        let ratio = miss_ratio(view, relquery, samples as usize);
        return (u128::from(total) * u128::from(ratio.missed()) / u128::from(ratio.total())) as u64;
    }
    // The cache is asked for the first one; it supplies the others with what they share with it.
    let (first, all) = (novel[1] - novel[0], novel[novel.len() - 1] - novel[0]);
    let index = relquery.fresh_head().expect("there is one");
    let uncached = view.uncached(scope, relquery.row_mut(index));
    all - first + u64::from(uncached).min(first)
}

/// The work that is left of a relQuery of which never admitted rows will compute `prompt` tokens.
fn remaining_work(relquery: &RelQuery, prompt: u64, expected: Expected) -> Work {
    let mut work = Work { prompt, ..Work::default() };
    let rows = relquery.fresh_len() as u64;
    let output = expected.remaining(0, relquery.output_max);
    work.output += rows * output;
    work.held_output += u128::from(output) * (u128::from(prompt) + u128::from(rows * output / 2));
    for index in relquery.requeued.iter().chain(&relquery.running) {
        let row = relquery.row(*index);
        let generated = row.generated.len() as u64;
        let output = expected.remaining(generated, row.output_max());
        // A waiting row has computed nothing.
        let missing = if row.is_running() { 0 } else { u64::from(row.missing()) };
        work.prompt += missing;
        work.output += output;
        work.held_output += u128::from(output) * u128::from(row.private_tokens() + generated + output / 2);
    }
    work
}
