//! `loadgen chaos`: faults of a seeded plan while several tenants send to gateways that are started for it.

use std::time::Duration;

use loadgen::Error;
use loadgen::chaos::{Chaos, Step, chaos};
use tokio::signal::unix::{SignalKind, signal};

use super::{files, print};
use crate::cli::ChaosArguments;

/// How long a step of the plan is where minutes are asked for.
const STEP: Duration = Duration::from_secs(2);
const STEPS_MAX: f64 = 50_000.0;

pub(super) async fn perform(arguments: ChaosArguments) -> Result<bool, Error> {
    let ChaosArguments { program, minutes, seed, clients, faults, dir, report } = arguments;
    let steps = (minutes * 60.0 / STEP.as_secs_f64()).clamp(1.0, STEPS_MAX) as u32;
    let asked = Chaos { program, seed, steps, step: Step::Span(STEP), clients, kinds: faults, dir };
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| Error::Client(error.to_string()))?;
    let outcome = tokio::select! {
        outcome = chaos(&asked) => outcome?,
        // What was started is killed as it is dropped.
        _ = tokio::signal::ctrl_c() => return Ok(false),
        _ = terminated.recv() => return Ok(false),
    };
    let Some(outcome) = outcome else {
        print("skipped: Postgres is not installed (package `postgresql`)\n");
        return Ok(false);
    };
    print(&outcome.text());
    if let Some(file) = report {
        files::write_json(&file, &outcome)?;
    }
    Ok(outcome.is_sound())
}
