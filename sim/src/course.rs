//! How each relQuery went: what every step gave it, beside its latency and its tokens. What reports draw.

use std::collections::{BTreeMap, BTreeSet};

use base::{Periods, RelQueryId, Submission, Time, TokenCount, WorkItem};
use scheduler::{Event, Usage};

use crate::record::Finished;

/// What one step gave a relQuery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gain {
    /// End of the step.
    pub at: Time,
    /// Prompt tokens of the rows that got their first token, cached ones included.
    pub prompt: TokenCount,
    /// Tokens sampled.
    pub output: TokenCount,
}

/// The course of one relQuery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// When it arrived.
    pub arrival: Time,
    /// Its latency in three parts.
    pub periods: Periods,
    /// Its tokens.
    pub usage: Usage,
    /// What it got, step by step.
    pub gains: Vec<Gain>,
}

impl Course {
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

    /// Prompt and output tokens it got by `at`.
    pub fn done_by(&self, at: Time) -> (TokenCount, TokenCount) {
        let done = self.gains.iter().take_while(|gain| gain.at <= at);
        done.fold((TokenCount(0), TokenCount(0)), |(prompt, output), gain| {
            (TokenCount(prompt.0 + gain.prompt.0), TokenCount(output.0 + gain.output.0))
        })
    }
}

/// Courses in the making: the lengths of prompts that have not been computed yet.
#[derive(Clone, Debug, Default)]
pub struct Courses {
    order: Vec<(RelQueryId, Time)>,
    prompts: BTreeMap<(RelQueryId, u32), u64>,
}

impl Courses {
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

    /// The courses, in the order of submission, of the relQueries that ended.
    pub fn follow(self, events: &[(Time, Event)], finished: &BTreeMap<RelQueryId, Finished>) -> Vec<Course> {
        let mut gains: BTreeMap<RelQueryId, Vec<Gain>> = BTreeMap::new();
        let mut begun = BTreeSet::new();
        for (at, event) in events {
            let Event::Token { relquery, row, .. } = event else { continue };
            let gains = gains.entry(*relquery).or_default();
            if gains.last().is_none_or(|last| last.at != *at) {
                gains.push(Gain { at: *at, ..Gain::default() });
            }
            let Some(last) = gains.last_mut() else { continue };
            last.output.0 += 1;
            if begun.insert((*relquery, *row)) {
                last.prompt.0 += self.prompts.get(&(*relquery, *row)).copied().unwrap_or_default();
            }
        }
        let course = |(id, arrival): (RelQueryId, Time)| {
            let finished = finished.get(&id)?;
            let gains = gains.remove(&id).unwrap_or_default();
            Some(Course { arrival, periods: finished.periods, usage: finished.usage, gains })
        };
        self.order.into_iter().filter_map(course).collect()
    }
}

#[cfg(test)]
mod tests {
    use scheduler::Policy;

    use crate::paper::{Workload, generate};
    use crate::replay::replay;
    use crate::replay_config::ReplayConfig;

    #[test]
    fn a_course_adds_up_to_the_prompts_the_outputs_and_the_latency() {
        let trace = generate(&Workload { seed: 3, relqueries: 12, rows: (1, 20), ..Workload::default() });
        let replay = replay(&trace, Policy::Fcfs, &ReplayConfig::default()).expect("a replay");
        assert_eq!(replay.courses.len(), 12);
        for (course, t_done) in replay.courses.iter().zip(&replay.t_done) {
            let (prompt, output) = course.done_by(course.ended());
            assert_eq!((prompt, output), (course.usage.prompt, course.usage.output));
            assert_eq!(course.ended().0 as f64 / 1e9, *t_done);
            assert_eq!(
                course.done_by(course.started()).0.0,
                0,
                "nothing is done when the first prefill starts"
            );
            let (prompt, output) = course.done_by(course.prefilled());
            assert_eq!(prompt, course.usage.prompt, "the last prefill ends the core");
            assert!(output.0 > 0);
        }
    }
}
