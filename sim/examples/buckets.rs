//! The published benchmark of Dynamic Prefix Bucketing in virtual time:
//! `cargo run --release -p sim --example buckets -- [--ablation] [key=value]..`; see `docs/BUCKETS.md`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use std::error::Error;

use base::{Millis, TokenCount};
use sim::fleet::{Bench, FleetOutcome, MethodKind};

fn main() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::default();
    let (mut ablation, mut sizes) = (false, vec![32, 64, 128]);
    let mut kinds = MethodKind::ALL.to_vec();
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            None if argument == "--ablation" => ablation = true,
            Some(("replicas", list)) => {
                sizes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            Some(("methods", list)) => {
                kinds.retain(|kind| list.split(',').any(|name| kind.name().contains(name)));
            }
            Some((key, value)) => set(&mut bench, key, value)?,
            None => return Err(format!("`{argument}` is not of the form key=value").into()),
        }
    }
    match ablation {
        true => prefixes(&bench, &sizes),
        false => table(&bench, &sizes, &kinds),
    }
}

fn set(bench: &mut Bench, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
    match key {
        "rows" => bench.rows = value.parse()?,
        "prefixes" => bench.prefixes = value.parse()?,
        "rows_per_second" => bench.rows_per_second = value.parse()?,
        "batch_rows" => bench.batch_rows = value.parse()?,
        "batch_gap_ms" => bench.batch_gap = Millis(value.parse()?),
        "in_flight" => bench.in_flight = value.parse()?,
        "queue" => bench.queue = value.parse()?,
        "compare_ns" => bench.compare_ns = value.parse()?,
        "flops_share" => bench.machine.flops_share = value.parse()?,
        "hide_permille" => bench.machine.hide_permille = value.parse()?,
        "buffer" => bench.buffer.rows_max = value.parse()?,
        "bucket_min" => bench.buffer.bucket_min = value.parse()?,
        "slack" => bench.fleet.load_slack_tokens = TokenCount(value.parse()?),
        "window" => bench.fleet.bulk_window = value.parse()?,
        "prefixes_max" => bench.fleet.prefixes_max = value.parse()?,
        "exact" => bench.exact = value.parse()?,
        "seed" => bench.seed = value.parse()?,
        _ => return Err(format!("`{key}` is no setting").into()),
    }
    Ok(())
}

/// All methods at all sizes.
fn table(bench: &Bench, sizes: &[usize], kinds: &[MethodKind]) -> Result<(), Box<dyn Error>> {
    println!(
        "| replicas | method | seconds | cache hits | of the sort's | first result, s | naive less | busy | scaling |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut smallest: Vec<(MethodKind, f64)> = Vec::new();
    for replicas in sizes {
        let bench = Bench { replicas: *replicas, ..bench.clone() };
        let mut outcomes: Vec<(MethodKind, FleetOutcome)> = Vec::new();
        for kind in kinds {
            outcomes.push((*kind, bench.run(*kind)?));
        }
        let of = |kind| outcomes.iter().find(|(other, _)| *other == kind).map(|(_, outcome)| *outcome);
        for (kind, outcome) in &outcomes {
            let seconds = outcome.total.as_seconds();
            let work = seconds * *replicas as f64;
            let scaling = match smallest.iter().find(|(other, _)| other == kind) {
                Some((_, least)) => least / work,
                None => {
                    smallest.push((*kind, work));
                    1.0
                }
            };
            let of_sort =
                of(MethodKind::Sorted).map_or(f64::NAN, |sort| outcome.hit_rate() / sort.hit_rate());
            let less =
                of(MethodKind::Naive).map_or(f64::NAN, |naive| 1.0 - seconds / naive.total.as_seconds());
            println!(
                "| {replicas} | {} | {seconds:.1} | {:.2} % | {:.1} % | {:.1} | {:.1} % | {:.1} % | {scaling:.3} |",
                kind.name(),
                100.0 * outcome.hit_rate(),
                100.0 * of_sort,
                outcome.first.as_seconds(),
                100.0 * less,
                100.0 * outcome.busy.as_seconds() / work,
            );
        }
    }
    Ok(())
}

/// Prefix buckets over the number of prefixes.
fn prefixes(bench: &Bench, sizes: &[usize]) -> Result<(), Box<dyn Error>> {
    println!("| replicas | prefixes | rows of each | seconds | cache hits |");
    println!("| --- | --- | --- | --- | --- |");
    for replicas in sizes {
        for prefixes in [64, 256, 512, 2_048, 8_192, 32_768] {
            let bench = Bench { replicas: *replicas, prefixes, ..bench.clone() };
            let outcome = bench.run(MethodKind::Buckets)?;
            println!(
                "| {replicas} | {prefixes} | {} | {:.1} | {:.2} % |",
                bench.rows / prefixes as usize,
                outcome.total.as_seconds(),
                100.0 * outcome.hit_rate(),
            );
        }
    }
    Ok(())
}
