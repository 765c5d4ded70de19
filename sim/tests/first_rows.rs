//! A relQuery that is alone shows its first row early where that costs its last row at most two hundredths of its
//! time, and otherwise runs as if nothing had been set.

use scheduler::{Policy, Steps};
use sim::ReplayConfig;
use sim::auto::{Judge, choose};
use sim::first_rows::{alone, measure, measure_under, race};
use sim::regret::machines;
use sim::trace::{Trace, TraceRelQuery};
use sim::watch::Unwatched;

/// Its prompts take many steps, and the bases of nine decode steps are more than two hundredths of the race's time.
const SMALL_STEPS: &str = "qwen-0.5b bf16, 512 a step";

/// The machine whose name begins so.
fn machine(name: &str) -> ReplayConfig {
    let machine = machines().into_iter().find(|machine| machine.name.starts_with(name));
    machine.expect("a machine").config
}

/// Times of the first row with it over the last one's without it, and of the last row over the same.
fn over_without(trace: &Trace, config: &ReplayConfig) -> (f64, f64) {
    let [off, on] = [0, 20].map(|permille| measure(trace, config, permille).expect("a replay"));
    eprintln!("{off:?} without, {on:?} with");
    (on.first / off.last, on.last / off.last)
}

#[test]
fn where_prompts_take_nearly_all_of_the_time_the_first_row_is_early_and_the_last_hardly_later() {
    for name in ["demo, 2 cores", "llama-125m f32", "llama-125m bf16, 2 cores", "qwen-0.5b"] {
        let (first, last) = over_without(&alone(50, 10), &machine(name));
        assert!(first < 0.25, "{name}: first row {first:.3} times");
        assert!((0.99..=1.02).contains(&last), "{name}: last row {last:.4} times");
    }
}

#[test]
fn where_the_first_rows_may_not_decode_alone_prompts_ride_in_their_steps() {
    let config = machine(SMALL_STEPS);
    let (first, last) = over_without(&race(), &config);
    assert!(first < 0.25, "first row at {first:.3} of the time");
    assert!((0.99..=1.02).contains(&last), "last row {last:.4} times");
    let mut apart = config.clone();
    apart.scheduler.marginal_work.steps = Steps::TwoPhase;
    let mut bare = config;
    bare.cost.mixed_hidden = 0;
    for config in [apart, bare.clone()] {
        let [off, on] = [0, 20].map(|permille| measure(&race(), &config, permille).expect("a replay"));
        assert_eq!(on, off, "where steps do not mix or hide nothing it would cost more");
    }
    bare.cost.mixed_hidden_few = Some(28_000_000);
    let (first, last) = over_without(&race(), &bare);
    assert!(first < 0.25, "beside few rows they hide: first row at {first:.3} of the time");
    assert!((0.99..=1.02).contains(&last), "last row {last:.4} times");
}

#[test]
fn where_it_would_cost_more_nothing_changes() {
    for name in ["opt-13b, tight KV, hide 0", "opt-13b, ample KV, hide 1"] {
        let [off, on] =
            [0, 20].map(|permille| measure(&alone(50, 30), &machine(name), permille).expect("a replay"));
        assert_eq!(on, off, "{name}");
    }
}

#[test]
fn what_a_relquery_gives_to_see_its_first_rows_is_not_held_against_its_policy() {
    // Twelve of them, each of which has the machine for itself.
    let one = alone(50, 10);
    let at = |number: u64| TraceRelQuery {
        rel_id: number,
        arrival: 1_000.0 * number as f64,
        ..one.relqueries[0].clone()
    };
    let trace = Trace { relqueries: (0..12).map(at).collect(), ..one.clone() };
    let config = machine("llama-125m f32");
    let [off, on] = [0, 20].map(|permille| measure(&one, &config, permille).expect("a replay"));
    assert!(on.last > 1.01 * off.last, "what it gives: {on:?} {off:?}");
    let judge = Judge::Engine(Box::new(config));
    let verdict = choose(trace, Policy::MarginalWork, &judge, &mut Unwatched).expect("a replay");
    let verdict = verdict.expect("relQueries enough");
    let mean = verdict.outcome(Policy::MarginalWork).expect("a candidate").mean;
    assert!(mean < 1.001 * off.last, "{verdict}");
    assert_eq!(verdict.chosen, Policy::MarginalWork);
}

#[test]
fn where_mixing_costs_beside_many_rows_prompts_ride_beside_few() {
    let mut config = machine(SMALL_STEPS);
    (config.cost.mixed_hidden, config.cost.mixed_hidden_few) = (-30_000_000, Some(28_000_000));
    let (first, last) = over_without(&race(), &config);
    assert!(first < 0.25, "first row at {first:.3} of the time");
    assert!((0.99..=1.02).contains(&last), "last row {last:.4} times");
}

#[test]
fn where_auto_names_a_published_policy_first_rows_are_early_all_the_same() {
    // Mixing costs more than it saves beside any rows: `auto` begins with `relserve`, and first rows decode alone.
    let mut config = machine("llama-125m f32");
    config.cost.mixed_hidden = -3_000_000;
    config.scheduler.fairness = Some(true);
    assert_eq!(Policy::Auto.resolved(&config.cost), Policy::RelServe);
    let trace = alone(50, 10);
    let under = |policy, permille| measure_under(policy, &trace, &config, permille).expect("a replay");
    let [off, on] = [0, 20].map(|permille| under(Policy::Auto, permille));
    assert!(on.first < 0.25 * off.last, "{on:?} with, {off:?} without");
    assert!((0.99..=1.02).contains(&(on.last / off.last)), "{on:?} with, {off:?} without");
    assert_eq!(under(Policy::RelServe, 20), off, "named itself it has none");
}
