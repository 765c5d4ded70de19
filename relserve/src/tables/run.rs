//! Prompts through the real scheduler, over any executor: what the prefix cache supplied, and how long it
//! took.

use std::collections::BTreeMap;

use base::{Executor, Nanos, RelQueryId, ServiceClass, Submission, TenantId, Time, WorkItem};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig};

use super::TableError;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Tokens of prompts.
    pub prompt: u64,
    /// Of those, tokens that the prefix cache supplied.
    pub hit: u64,
    /// How long steps took.
    pub elapsed: Nanos,
    /// Output texts by row.
    pub outputs: BTreeMap<u32, String>,
}

impl Ran {
    /// The share of prompt tokens that the cache supplied (PHR).
    pub fn hit_rate(&self) -> f64 {
        self.hit as f64 / self.prompt.max(1) as f64
    }
}

/// Runs one table after the other; none finds what another left in the cache.
pub struct TableRunner<'a> {
    scheduler: Scheduler,
    executor: &'a mut dyn Executor,
    now: Time,
    next: u64,
}

impl<'a> TableRunner<'a> {
    /// At rest. Rows run first come, first served, which asks for no cost model.
    pub fn new(config: &SchedulerConfig, executor: &'a mut dyn Executor) -> Result<Self, TableError> {
        let config = SchedulerConfig {
            policy: Policy::Fcfs,
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            refit: false,
            ..config.clone()
        };
        Ok(Self { scheduler: Scheduler::new(config, CostModel::default())?, executor, now: Time(0), next: 1 })
    }

    /// Runs prompts in their order, as one relQuery.
    pub fn run(&mut self, items: Vec<WorkItem>) -> Result<Ran, TableError> {
        let (before, begun) = (self.scheduler.stats(), self.now);
        self.submit(items)?;
        let mut outputs: BTreeMap<u32, String> = BTreeMap::new();
        while let Some(plan) = self.scheduler.plan(self.now) {
            let outcome = self.executor.step(&plan)?;
            self.now = self.now + outcome.elapsed;
            for event in self.scheduler.apply(&outcome, self.now) {
                match event {
                    Event::Token { row, text, .. } => outputs.entry(row).or_default().push_str(&text),
                    Event::RowFailed { row, error, .. } => return Err(TableError::RowFailed { row, error }),
                    _ => {}
                }
            }
        }
        let stats = self.scheduler.stats();
        Ok(Ran {
            prompt: stats.prompt_tokens - before.prompt_tokens,
            hit: stats.prefix_hit_tokens - before.prefix_hit_tokens,
            elapsed: self.now.since(begun),
            outputs,
        })
    }

    fn submit(&mut self, items: Vec<WorkItem>) -> Result<(), TableError> {
        let id = self.next;
        self.next += 1;
        let submission = Submission {
            id: RelQueryId(id),
            tenant: TenantId(1),
            weight: 1_000,
            scope: u128::from(id),
            class: ServiceClass::Interactive,
            arrival: self.now,
            deadline: None,
            items,
        };
        Ok(self.scheduler.submit(submission)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Generation, Span, SpanKind, TokenCount, TokenId};
    use sim::SimExecutor;

    use super::*;

    fn item(row: u32) -> WorkItem {
        let prompt: Vec<TokenId> = (0..64).chain([100 + row]).map(TokenId).collect();
        let tokens = TokenCount(prompt.len() as u64);
        let generation = Generation { output_max: TokenCount(2), ..Generation::default() };
        WorkItem {
            row,
            prompt: prompt.into(),
            spans: [Span { kind: SpanKind::Template, tokens }].into(),
            sections: Arc::default(),
            generation: Arc::new(generation),
            seed: 0,
        }
    }

    #[test]
    fn rows_share_within_a_run_and_never_between_two() {
        let mut executor = SimExecutor::new(CostModel::default());
        let config = SchedulerConfig::default();
        let mut runner = TableRunner::new(&config, &mut executor).expect("it is valid");
        let mut run = || runner.run((0..5).map(item).collect()).expect("steps succeed");
        let first = run();
        assert_eq!((first.prompt, first.hit, first.outputs.len()), (5 * 65, 4 * 64, 5));
        assert_eq!(run(), first);
    }
}
