//! A relQuery that is alone shows its first row early where that costs its last row at most two hundredths of its
//! time, and otherwise runs as if nothing had been set.

use sim::first_rows::{alone, measure};
use sim::regret::machines;

/// Times of the first and of the last row with it over those without it, on the machine whose name begins so.
fn with_over_without(name: &str, output: u64) -> (f64, f64) {
    let machines = machines();
    let machine = machines.iter().find(|machine| machine.name.starts_with(name)).expect("a machine");
    let trace = alone(50, output);
    let [off, on] = [0, 20].map(|permille| measure(&trace, &machine.config, permille).expect("a replay"));
    eprintln!("{name}, {output}: {off:?} without, {on:?} with");
    (on.first / off.first, on.last / off.last)
}

#[test]
fn where_prompts_take_nearly_all_of_the_time_the_first_row_is_early_and_the_last_hardly_later() {
    for name in ["demo, 2 cores", "llama-125m f32", "llama-125m bf16, 2 cores", "qwen-0.5b"] {
        let (first, last) = with_over_without(name, 10);
        assert!(first < 0.25, "{name}: first row {first:.3} times");
        assert!((0.99..=1.02).contains(&last), "{name}: last row {last:.4} times");
    }
}

#[test]
fn where_it_would_cost_more_nothing_changes() {
    for name in ["opt-13b, tight KV, hide 0", "opt-13b, ample KV, hide 1"] {
        assert_eq!(with_over_without(name, 30), (1.0, 1.0), "{name}");
    }
}
