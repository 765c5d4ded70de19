//! Replays reference traces and compares with reference results:
//! `cargo run -p sim --example oracle -- DIR`, where DIR holds `NAME.json` and `NAME.expected.json`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::TokenCount;
use scheduler::{CostModel, DecompositionReading, DeltaReading, PaperVariant, Policy, PriorityReading};
use serde_json::Value;
use sim::report::reference_name;
use sim::{ReplayConfig, Trace, replay};

/// What the reference has results of, on a machine.
fn cases(machine: &ReplayConfig) -> Vec<(Policy, ReplayConfig)> {
    let hiding = |permille| ReplayConfig { cost: machine.cost.hiding(permille), ..machine.clone() };
    let usual = hiding(1_000);
    let reading = |paper_variant| {
        let mut config = usual.clone();
        config.scheduler.paper_variant = paper_variant;
        (Policy::RelServe, config)
    };
    let mut cases: Vec<(Policy, ReplayConfig)> =
        Policy::ALL.into_iter().map(|policy| (policy, usual.clone())).collect();
    cases.push((Policy::Sarathi, hiding(0)));
    cases.push((Policy::StaticPriorityWeak, usual.clone()));
    cases.push(reading(PaperVariant { delta: DeltaReading::AsPrinted, ..PaperVariant::default() }));
    cases.push(reading(PaperVariant {
        decomposition: DecompositionReading::AsPrinted,
        ..PaperVariant::default()
    }));
    cases.push(reading(PaperVariant { priorities: PriorityReading::Frozen, ..PaperVariant::default() }));
    let mut impatient = usual.clone();
    impatient.scheduler.unit_waiting_ms_max = Some(base::Millis(500));
    cases.push((Policy::RelServe, impatient));
    cases
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: oracle DIR")?;
    let mut names: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".expected.json"))
        .collect();
    names.sort();
    let mut is_equal = true;
    for expected in names {
        is_equal &= compare(&expected)?;
    }
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints one line per policy; says whether end times, summary and counts agree to a microsecond.
fn compare(expected: &Path) -> Result<bool, Box<dyn Error>> {
    let trace = PathBuf::from(expected.to_string_lossy().replace(".expected.json", ".json"));
    let trace = Trace::parse(&std::fs::read_to_string(trace)?)?;
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(expected)?)?;
    let config = config(&expected);
    let mut is_equal = true;
    for (policy, config) in cases(&config) {
        let name = reference_name(policy, &config);
        let Some(reference) = expected["policies"].get(&name) else { continue };
        let got = replay(&trace, policy, &config)?;
        let wanted: Vec<f64> =
            reference["t_done"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let worst = got.t_done.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let mean = reference["summary"]["mean"].as_f64().unwrap_or(f64::NAN);
        let verdict = if worst <= 1e-6 { "equal" } else { "DIFFERS" };
        println!(
            "{:10} {name:24} mean {:9.6} reference {mean:9.6}, worst end {worst:.6} s: {verdict}",
            trace.name, got.summary.mean
        );
        if worst > 1e-6 {
            first_difference(reference, &got);
        }
        for (name, ours) in
            [("counts", serde_json::to_value(got.counts)?), ("summary", serde_json::to_value(got.summary)?)]
        {
            is_equal &= is_close(name, &ours, &reference[name]);
        }
        is_equal &= worst <= 1e-6;
    }
    Ok(is_equal)
}

/// Whether all numbers of one object agree to a microsecond (the reference rounds).
fn is_close(name: &str, ours: &Value, reference: &Value) -> bool {
    let mut is_close = true;
    for (field, value) in ours.as_object().into_iter().flatten() {
        let (got, wanted) = (value.as_f64(), reference[field].as_f64());
        if !got.zip(wanted).is_some_and(|(got, wanted)| (got - wanted).abs() <= 2e-6) {
            println!("  {name}.{field}: {got:?}, reference {wanted:?}");
            is_close = false;
        }
    }
    is_close
}

fn config(expected: &Value) -> ReplayConfig {
    let nanos =
        |name: &str| base::Nanos((expected["cost"][name].as_f64().unwrap_or(0.0) * 1e9).round() as u64);
    let number = |name: &str| expected["cfg"][name].as_u64().unwrap_or(0);
    let mut config = ReplayConfig {
        cost: CostModel {
            prefill_per_token: nanos("a_p"),
            prefill_base: nanos("b_p"),
            decode_per_sequence: nanos("a_d"),
            decode_base: nanos("b_d"),
            ..CostModel::default()
        },
        ..ReplayConfig::default()
    };
    config.scheduler.kv_blocks = number("cap") as u32;
    config.scheduler.step_tokens_max = TokenCount(number("mnbt"));
    config.scheduler.sequences_max = number("mns") as u32;
    let watermark = expected["cfg"]["watermark"].as_f64().unwrap_or(0.0);
    config.scheduler.watermark_permille = (watermark * 1_000.0).round() as u32;
    config
}

/// Where the steps part, if the reference lists them.
fn first_difference(reference: &Value, got: &sim::Replay) {
    let Some(iterations) = reference["iterations"].as_array() else { return };
    for (i, (wanted, one)) in iterations.iter().zip(&got.iterations).enumerate() {
        let (uncached, decoding) = (wanted[2].as_u64(), wanted[3].as_u64());
        if (uncached, decoding) != (Some(one.uncached.0), Some(one.decoding)) {
            println!("  step {i}: reference {wanted}, ours {one:?}");
            return;
        }
    }
}
