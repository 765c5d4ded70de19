//! Replays a trace under every policy and prints a table:
//! `cargo run -p sim --example replay -- TRACE.json [RESULTS.json]`, or with `paper` instead of a file, a
//! seeded workload in the paper's shape.

#![expect(clippy::print_stdout, reason = "a table is its purpose")]

use std::error::Error;

use scheduler::Policy;
use sim::{ReplayConfig, Shape, Trace, paper_like, replay, results};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().ok_or("usage: replay TRACE.json|paper [RESULTS.json]")?;
    let trace = match source.as_str() {
        "paper" => paper_like(7, Shape::default()),
        path => Trace::parse(&std::fs::read_to_string(path)?)?,
    };
    let config = ReplayConfig::default();
    let mut replays = Vec::new();
    println!(
        "{:16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "policy", "mean s", "p50", "p99", "waiting", "core", "tail"
    );
    for policy in Policy::ALL {
        let once = replay(&trace, policy, &config)?;
        let sum = &once.summary;
        println!(
            "{:16} {:8.3} {:8.3} {:8.3} {:8.3} {:8.3} {:8.3}",
            policy.name(),
            sum.mean,
            sum.p50,
            sum.p99,
            sum.waiting,
            sum.core,
            sum.tail
        );
        replays.push((policy.name().to_owned(), once));
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, serde_json::to_string_pretty(&results(&trace, &config, &replays))?)?;
    }
    Ok(())
}
