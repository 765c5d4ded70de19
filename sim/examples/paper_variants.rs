//! What each reading of the paper is worth: means over six seeds of its workload (Rotten, 1.0 relQueries per
//! second) on the machine of the reference traces. `cargo run --release -p sim --example paper_variants`.

#![expect(clippy::print_stdout, reason = "a table is its purpose")]

use scheduler::{DecompositionReading, DeltaReading, PaperVariant, Policy, PriorityReading};
use sim::report::reference_name;
use sim::{Dataset, ReplayConfig, SimError, Trace, Workload, generate, replay};

/// Seeds of the workload.
const SEEDS: u64 = 6;
/// Mean arrivals per second.
const RATE: f64 = 1.0;

fn main() -> Result<(), SimError> {
    let traces: Vec<Trace> =
        (0..SEEDS).map(|seed| generate(&Workload::new(Dataset::Rotten, RATE, seed))).collect();
    let kept = PaperVariant::default();
    let sign = PaperVariant { delta: DeltaReading::AsPrinted, ..kept };
    let algorithm = PaperVariant { decomposition: DecompositionReading::AsPrinted, ..kept };
    let frozen = PaperVariant { priorities: PriorityReading::Frozen, ..kept };
    let all = PaperVariant { delta: DeltaReading::AsPrinted, ..algorithm };
    println!("{:44} {:>8} {:>8}", "reading", "mean s", "change");
    for policy in [Policy::RelServe, Policy::RelServePrefill, Policy::RelServeDecode] {
        let base = mean(&traces, policy, kept)?;
        for paper_variant in [kept, sign, algorithm, all, frozen] {
            // The ablations never compute Delta.
            if policy != Policy::RelServe && paper_variant.delta == DeltaReading::AsPrinted {
                continue;
            }
            let mut config = ReplayConfig::default();
            config.scheduler.paper_variant = paper_variant;
            let mean = mean(&traces, policy, paper_variant)?;
            let change = (mean / base - 1.0) * 100.0;
            println!("{:44} {mean:8.3} {change:+7.1}%", reference_name(policy, &config));
        }
    }
    Ok(())
}

fn mean(traces: &[Trace], policy: Policy, paper_variant: PaperVariant) -> Result<f64, SimError> {
    let mut config = ReplayConfig::default();
    config.scheduler.paper_variant = paper_variant;
    let mut sum = 0.0;
    for trace in traces {
        sum += replay(trace, policy, &config)?.summary.mean;
    }
    Ok(sum / traces.len() as f64)
}
