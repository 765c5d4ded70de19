//! `marginal-work` is not more than a hundredth slower on average than the best of RelServe's own policies, on a part
//! of the table that `cargo run --release -p sim --example regret` prints: engines whose steps hide nothing,
//! where it has the least to gain, two tenants and bursts among them. Figures: `-- --nocapture`.

use sim::regret::{Regret, Shape, machines, service_seconds, trace};

const SEEDS: u64 = 1;

/// On the machine whose name begins so, the cells of these shapes: their geometric mean is at most `mean_max`, and
/// none is above 1.04, which is what traces of a hundred relQueries differ by.
fn check(name: &str, shapes: &[Shape], mean_max: f64) {
    let machines = machines();
    let machine = machines.iter().find(|machine| machine.name.starts_with(name)).expect("a machine");
    let service = service_seconds(&machine.config).expect("a replay");
    let (mut logs, mut cells) = (0.0, 0.0);
    for (shape, load) in shapes.iter().flat_map(|shape| [(*shape, 80), (*shape, 110)]) {
        let traces: Vec<_> = (0..SEEDS).map(|seed| trace(shape, load, service, 100, seed)).collect();
        let regret = Regret::of(&traces, &machine.config).expect("a replay");
        let mean = regret.mean();
        eprintln!("{}, {}, {load} %: mean {mean:.3}, p99 {:.2}", machine.name, shape.name(), regret.p99());
        assert!(mean <= 1.04, "{}, {}, {load} %: {mean:.3}", machine.name, shape.name());
        (logs, cells) = (logs + mean.ln(), cells + 1.0);
    }
    let mean = f64::exp(logs / cells);
    assert!(mean <= mean_max, "{}: {mean:.3}", machine.name);
}

#[test]
fn on_a_small_base_it_is_no_slower_than_relserve() {
    check("demo, 2 cores", &Shape::ALL, 1.01);
}

#[test]
fn where_a_token_takes_as_long_as_a_row_it_is_no_slower_either() {
    check("llama-125m f32", &[Shape::One, Shape::Bursts, Shape::Bulk], 1.01);
}

#[test]
fn with_a_base_of_some_rows_it_is_no_slower_either() {
    check("llama-125m bf16, AMX", &Shape::ALL, 1.01);
}

#[test]
fn with_a_base_of_many_rows_that_hides_nothing_it_is_faster() {
    check("opt-13b, tight KV, hide 0", &[Shape::One, Shape::Bursts, Shape::Bulk], 0.95);
    check("opt-13b, ample KV, hide 0", &[Shape::One, Shape::Bursts, Shape::Bulk], 1.0);
}

#[test]
fn two_tenants_of_one_class_cost_no_more_than_without_shares() {
    check("opt-13b, ample KV, hide 0", &[Shape::Peers], 1.01);
}
