//! A simulated server under `auto`: it stops now and then, looks back, and goes on by the policy that it
//! chose. Replays take none of its time, as those of a real one run where the processor is idle.

use std::collections::BTreeMap;

use base::{Nanos, RelQueryId, Time, TokenCount};
use scheduler::Event;

use super::{Judge, Switch, choose};
use crate::executor::SimExecutor;
use crate::replay::SimError;
use crate::replay_config::ReplayConfig;
use crate::trace::Trace;
use crate::watch::{Mark, Watcher};
use crate::world::World;

/// What has been seen of rows so far: their outputs, once they have ended.
#[derive(Default)]
struct EndedRows {
    events: usize,
    outputs: BTreeMap<(RelQueryId, u32), i64>,
}

impl EndedRows {
    fn read(&mut self, events: &[(Time, Event)]) {
        for (_, event) in &events[self.events..] {
            if let Event::RowDone { relquery, row, usage, .. } = event {
                let output = i64::try_from(usage.output.0).unwrap_or(i64::MAX);
                self.outputs.insert((*relquery, *row), output);
            }
        }
        self.events = events.len();
    }

    /// The part of a trace that arrived from `from` until now, with the lengths that are known.
    fn part(&self, trace: &Trace, (from, now): (Time, Time), most: TokenCount) -> Trace {
        let at = |seconds: f64| Time((seconds * 1e9).round() as u64);
        let came = trace.relqueries.iter().filter(|one| (from..=now).contains(&at(one.arrival)));
        let mut relqueries: Vec<_> = came.cloned().collect();
        for relquery in &mut relqueries {
            for (row, lengths) in (0..).zip(&mut relquery.rows) {
                lengths[2] = self.outputs.get(&(RelQueryId(relquery.rel_id), row)).copied().unwrap_or(0);
            }
        }
        let mut part = Trace { relqueries, templates: trace.templates.clone(), ..Trace::default() };
        part.keep_newest(most);
        part
    }
}

/// Runs a world to its end, choosing anew as often as the settings say; the changes.
pub fn run(
    world: &mut World<SimExecutor>,
    trace: &Trace,
    config: &ReplayConfig,
    watch: &mut dyn Watcher,
) -> Result<Vec<Switch>, SimError> {
    let settings = &config.scheduler.auto;
    let (every, window) = (Nanos::from(settings.every_ms), Nanos::from(settings.window_ms));
    let (mut switches, mut seen) = (Vec::new(), EndedRows::default());
    let mut next = Time(every.0);
    loop {
        world.run_until(next, watch).map_err(SimError::Broken)?;
        if world.is_stopped() || world.is_over() {
            return Ok(switches);
        }
        seen.read(world.events());
        let from = Time(next.0.saturating_sub(window.0));
        let replayed = seen.part(trace, (from, next), settings.tokens_max);
        let present = world.scheduler.config().policy;
        let cost = world.scheduler.cost();
        let judge = Judge::Engine(Box::new(ReplayConfig { cost, ..config.clone() }));
        let verdict = choose(replayed, present, &judge, &mut Nested(watch))?;
        if let Some(verdict) = verdict
            && verdict.chosen != present
            && world.scheduler.set_policy(verdict.chosen)
        {
            switches.push(Switch { at: Nanos(next.0), verdict });
        }
        next = next + every;
    }
}

/// The watcher of a run that may end its replays, and does not see their steps.
struct Nested<'a>(&'a mut dyn Watcher);

impl Watcher for Nested<'_> {
    fn mark(&mut self, _: Mark) {}

    fn is_over(&mut self) -> bool {
        self.0.is_over()
    }
}
