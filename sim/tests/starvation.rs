//! Under policy `marginal-work` nothing is overtaken past its bound, however much arrives: the promise of
//! `scheduler::policy::marginal_work::age`, checked on every pair of relQueries of an overloaded machine.

use std::collections::BTreeMap;

use base::{Millis, Nanos, RelQueryId, Time};
use scheduler::policy::marginal_work::age::overtaken_until;
use scheduler::policy::marginal_work::work::{Capacity, Work, marginal_work};
use scheduler::{CostModel, Event, MarginalWorkConfig, Policy, Scheduler, SchedulerConfig};
use sim::{ReplayConfig, SimExecutor, Workload, World, generate};

/// The most work a relQuery can be: no row shares anything and all reach their limit.
fn most_work(cost: &CostModel, config: &SchedulerConfig, submission: &base::Submission) -> Nanos {
    let mut work = Work::default();
    for item in &submission.items {
        let (prompt, output) = (item.prompt.len() as u64, item.generation.output_max.0);
        work.prompt += prompt;
        work.output += output;
        work.held_output += u128::from(output) * u128::from(prompt + output);
    }
    let capacity = Capacity { kv_tokens: config.kv_tokens(), sequences: u64::from(config.sequences_max) };
    marginal_work(cost, &work, capacity).total()
}

/// How many pairs were in order only because of the bound, of how many that it speaks about.
fn check(half: Millis, rate: f64) -> (u64, u64) {
    let machine = ReplayConfig::default();
    let marginal_work =
        MarginalWorkConfig { age_half_ms: Some(half), age_half_works: 0, ..MarginalWorkConfig::default() };
    let config = SchedulerConfig { policy: Policy::MarginalWork, marginal_work, ..machine.scheduler };
    let trace = generate(&Workload { rate, relqueries: 150, seed: 2, ..Workload::default() });
    let lowered = trace.lower().expect("a trace");
    let mut executor = SimExecutor::new(machine.cost);
    for (seed, length) in lowered.lengths {
        executor.set_length(seed, length);
    }
    // A row that decodes one more token is the least work there is.
    let least = Nanos(machine.cost.decode_per_sequence.0);
    let mut bounds: BTreeMap<RelQueryId, (Time, Time)> = BTreeMap::new();
    let scheduler = Scheduler::new(config.clone(), machine.cost).expect("a valid configuration");
    let mut world = World::new(scheduler, executor);
    for submission in lowered.submissions {
        let until = overtaken_until(
            most_work(&machine.cost, &config, &submission),
            submission.arrival,
            least,
            Nanos::from(half),
        );
        bounds.insert(submission.id, (submission.arrival, until));
        world.submit(submission);
    }
    world.run_until_idle().expect("the scheduler keeps its promises");
    let mut started: BTreeMap<RelQueryId, Time> = BTreeMap::new();
    for (at, event) in world.events() {
        if let Event::Started { relquery, .. } = event {
            started.entry(*relquery).or_insert(*at);
        }
    }
    let (mut overtaken, mut bound) = (0, 0);
    for (id, (arrival, until)) in &bounds {
        for (other, (later, _)) in bounds.range(*id..).filter(|(_, (later, _))| later > arrival) {
            let is_before = started[other] < started[id];
            assert!(!is_before || later <= until, "{other} overtook {id} after its bound");
            overtaken += u64::from(is_before);
            bound += u64::from(later > until);
        }
    }
    (overtaken, bound)
}

#[test]
fn nothing_is_overtaken_by_what_arrives_after_its_bound() {
    let (overtaken, bound) = check(Millis(2_000), 4.0);
    assert!(overtaken > 100 && bound > 100, "{overtaken} overtook, {bound} might not: too easy");
    let (free, _) = check(Millis(200_000), 4.0);
    assert!(free > overtaken, "{free} overtook where age hardly counts, {overtaken} where it does");
}
