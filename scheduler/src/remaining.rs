//! What is left of a relQuery: Eq. 11 and Algorithm 1 asked about the rows it has, for whichever policy needs
//! them.

use base::TokenCount;

use crate::cache_view::CacheView;
use crate::config::SchedulerConfig;
use crate::decompose::{Batches, Limits, Remaining, Running, decompose};
use crate::miss_ratio::{MissRatio, sample_positions};
use crate::paper_variant::DecompositionReading;
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
