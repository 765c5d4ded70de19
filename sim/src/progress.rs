//! How each relQuery went: what every step gave it, beside its latency and its tokens. What reports draw.

use std::collections::{BTreeMap, BTreeSet};

use base::{Periods, RelQueryId, Submission, Time, TokenCount, WorkItem};
use scheduler::{Event, Usage};

use crate::record::Finished;

/// What one step gave a relQuery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressStep {
    /// End of the step.
    pub at: Time,
    /// Prompt tokens of the rows that got their first token, cached ones included.
    pub prompt: TokenCount,
    /// Tokens sampled.
    pub output: TokenCount,
    /// Rows that ended.
    pub rows: u64,
}

/// The progress of one relQuery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelQueryProgress {
    /// When it arrived.
    pub arrival: Time,
    /// Its latency in three parts.
    pub periods: Periods,
    /// Its tokens.
    pub usage: Usage,
    /// What it got, step by step.
    pub steps: Vec<ProgressStep>,
}

impl RelQueryProgress {
    /// Start of its first prefill.
    pub fn started(&self) -> Time {
        self.arrival + self.periods.waiting
    }

    /// End of its last prefill.
    pub fn prefilled(&self) -> Time {
        self.started() + self.periods.core
    }

    /// End of its last row.
    pub fn ended(&self) -> Time {
        self.arrival + self.periods.total()
    }

    /// End of its first row that ended by itself.
    pub fn first_row(&self) -> Option<Time> {
        self.steps.iter().find(|step| step.rows > 0).map(|step| step.at)
    }

    /// Prompt and output tokens it got by `at`.
    pub fn done_by(&self, at: Time) -> (TokenCount, TokenCount) {
        let done = self.steps.iter().take_while(|step| step.at <= at);
        done.fold((TokenCount(0), TokenCount(0)), |(prompt, output), step| {
            (TokenCount(prompt.0 + step.prompt.0), TokenCount(output.0 + step.output.0))
        })
    }
}

/// Progress in the making: the lengths of prompts that have not been computed yet.
#[derive(Clone, Debug, Default)]
pub struct ProgressTracker {
    order: Vec<(RelQueryId, Time)>,
    prompts: BTreeMap<(RelQueryId, u32), u64>,
}

impl ProgressTracker {
    /// Learns the lengths of what will be submitted.
    pub fn of(submissions: &[Submission]) -> Self {
        let rows = submissions.iter().flat_map(|submission| {
            submission.items.iter().map(|item| ((submission.id, item.row), item.prompt.len() as u64))
        });
        let order = submissions.iter().map(|submission| (submission.id, submission.arrival));
        Self { order: order.collect(), prompts: rows.collect() }
    }

    /// Learns of rows that come later, too.
    pub fn and<'a>(mut self, late: impl Iterator<Item = (RelQueryId, &'a [WorkItem])>) -> Self {
        for (id, items) in late {
            self.prompts.extend(items.iter().map(|item| ((id, item.row), item.prompt.len() as u64)));
        }
        self
    }

    /// The progress, in the order of submission, of the relQueries that ended.
    pub fn follow(
        self,
        events: &[(Time, Event)],
        finished: &BTreeMap<RelQueryId, Finished>,
    ) -> Vec<RelQueryProgress> {
        let mut steps: BTreeMap<RelQueryId, Vec<ProgressStep>> = BTreeMap::new();
        let mut begun = BTreeSet::new();
        for (at, event) in events {
            // The tokens of a step come before the ends of its rows.
            if let Event::RowDone { relquery, .. } = event {
                let last = steps.get_mut(relquery).and_then(|steps| steps.last_mut());
                last.into_iter().for_each(|step| step.rows += 1);
            }
            let Event::Token { relquery, row, .. } = event else { continue };
            let steps = steps.entry(*relquery).or_default();
            if steps.last().is_none_or(|last| last.at != *at) {
                steps.push(ProgressStep { at: *at, ..ProgressStep::default() });
            }
            let Some(last) = steps.last_mut() else { continue };
            last.output.0 += 1;
            if begun.insert((*relquery, *row)) {
                last.prompt.0 += self.prompts.get(&(*relquery, *row)).copied().unwrap_or_default();
            }
        }
        let progress = |(id, arrival): (RelQueryId, Time)| {
            let finished = finished.get(&id)?;
            let steps = steps.remove(&id).unwrap_or_default();
            Some(RelQueryProgress { arrival, periods: finished.periods, usage: finished.usage, steps })
        };
        self.order.into_iter().filter_map(progress).collect()
    }
}

#[cfg(test)]
mod tests {
    use scheduler::Policy;

    use crate::paper::{Workload, generate};
    use crate::replay::replay;
    use crate::replay_config::ReplayConfig;

    #[test]
    fn progress_adds_up_to_the_prompts_the_outputs_and_the_latency() {
        let trace = generate(&Workload { seed: 3, relqueries: 12, rows: (1, 20), ..Workload::default() });
        let replay = replay(&trace, Policy::Fcfs, &ReplayConfig::default()).expect("a replay");
        assert_eq!(replay.progress.len(), 12);
        for (progress, t_done) in replay.progress.iter().zip(&replay.t_done) {
            let (prompt, output) = progress.done_by(progress.ended());
            assert_eq!((prompt, output), (progress.usage.prompt, progress.usage.output));
            assert_eq!(progress.ended().0 as f64 / 1e9, *t_done);
            assert_eq!(
                progress.done_by(progress.started()).0.0,
                0,
                "nothing is done when the first prefill starts"
            );
            let (prompt, output) = progress.done_by(progress.prefilled());
            assert_eq!(prompt, progress.usage.prompt, "the last prefill ends the core");
            assert!(output.0 > 0);
            let first = progress.first_row().expect("rows end");
            assert!(progress.started() < first && first <= progress.ended());
        }
    }
}
