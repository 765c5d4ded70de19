//! What the bound on the longest latency, and that on the 99th percentile (MARGINAL-WORK.md, O13), cost and give on the
//! paper's machine, as a Markdown table: `cargo run --release -p sim --example tail [SEEDS]`. In front of a replica:
//! example `fleet_order`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use scheduler::Policy;
use sim::{ReplayConfig, SimError, Workload, generate, replay};

/// Hidden in a mixed step, ns: nothing, and all that can be.
const HIDDEN: [i64; 2] = [0, 20_000_000];

fn main() -> Result<(), SimError> {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(6);
    println!(
        "| rate /s | `tail_permille_max`, `late_permille_max` | hide 0: mean s, p99 s | hide 1: mean s, p99 s |"
    );
    println!("| ---: | --- | ---: | ---: |");
    for rate in [0.6, 1.0] {
        let traces: Vec<_> =
            (0..seeds).map(|seed| generate(&Workload { rate, seed, ..Workload::default() })).collect();
        let bounds = [0, 2_500, 2_000, 1_750, 1_500, 1_250, 1_000];
        let bounds = bounds.map(|tail| (tail, 0)).into_iter().chain([(1_500, 10), (1_250, 10), (1_000, 10)]);
        let bounded =
            bounds.map(|(tail, late)| (format!("{tail}, {late}"), Policy::MarginalWork, tail, late));
        for (name, policy, tail, late) in [("fcfs".to_owned(), Policy::Fcfs, 0, 0)].into_iter().chain(bounded)
        {
            print!("| {rate} | {name} |");
            for mixed_hidden in HIDDEN {
                let mut machine = ReplayConfig::default();
                machine.cost.mixed_hidden = mixed_hidden;
                machine.scheduler.marginal_work.tail_permille_max = tail;
                machine.scheduler.marginal_work.late_permille_max = late;
                let (mut mean, mut p99) = (0.0, 0.0);
                for trace in &traces {
                    let summary = replay(trace, policy, &machine)?.summary;
                    mean += summary.mean / seeds as f64;
                    p99 += summary.p99 / seeds as f64;
                }
                print!(" {mean:.2}, {p99:.0} |");
            }
            println!();
        }
    }
    Ok(())
}
