//! What each part of policy `marginal-work` gives, as a Markdown table:
//! `cargo run --release -p sim --example ablation`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use sim::Workload;
use sim::ablation::{measure, variants};

/// Traces per cell.
const SEEDS: u64 = 8;
/// Loads and what a mixed step hides, in thousandths.
const SETTINGS: [(f64, u64); 6] = [(0.6, 1_000), (1.0, 1_000), (0.6, 750), (1.0, 750), (0.6, 0), (1.0, 0)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("| mean s (x RelServe), p99 s |");
    for (rate, hide) in SETTINGS {
        print!(" {rate}/s, hide {} |", hide as f64 / 1_000.0);
    }
    println!("\n| --- |{}", " --- |".repeat(SETTINGS.len()));
    let variants = variants();
    let relserve = variants.iter().find(|variant| variant.name == "relserve").expect("it is listed");
    let workload = |rate| Workload { rate, ..Workload::default() };
    let base = SETTINGS.map(|(rate, hide)| measure(relserve, &workload(rate), hide, SEEDS));
    for variant in &variants {
        print!("| {} |", variant.name);
        for ((rate, hide), base) in SETTINGS.into_iter().zip(&base) {
            let base = base.as_ref().map_err(|error| error.to_string())?.mean;
            let got = measure(variant, &workload(rate), hide, SEEDS)?;
            print!(" {:.2} ({:.2}), {:.0} |", got.mean, base / got.mean, got.p99);
        }
        println!();
    }
    Ok(())
}
