//! What a server under `auto` reads in its replays as a trace goes on: at fixed instants, each candidate's mean over what
//! arrived in the ten minutes before, and what it would choose. All lengths are known, which a server's are not.
//!
//! ```text
//! cargo run --release -p sim --example auto_looks [SEED] [MACHINE] [RELQUERIES]
//! ```

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use scheduler::Policy;
use sim::auto::{Judge, choose};
use sim::regret::{Shape, machines, service_seconds, trace};
use sim::{Trace, Unwatched};

/// When it looks back, in seconds.
const LOOKS: [f64; 6] = [100.0, 140.0, 200.0, 300.0, 450.0, 600.0];
/// How far, in seconds.
const WINDOW: f64 = 600.0;
/// Hundredths of the time that the machine is busy.
const LOAD: u32 = 90;

/// What arrived within the window that ends at `now`.
fn window(trace: &Trace, now: f64) -> Trace {
    let came = trace.relqueries.iter().filter(|one| (now - WINDOW..=now).contains(&one.arrival));
    let mut relqueries: Vec<_> = came.cloned().collect();
    let from = relqueries.first().map_or(0.0, |first| first.arrival);
    relqueries.iter_mut().for_each(|one| one.arrival -= from);
    Trace { relqueries, templates: trace.templates.clone(), ..Trace::default() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seed = args.next().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let name = args.next().unwrap_or_else(|| "llama-125m f32, 2 cores".into());
    let relqueries = args.next().and_then(|count| count.parse().ok()).unwrap_or(100);
    let machine = machines().into_iter().find(|case| case.name == name).ok_or("no such machine")?;
    let trace = trace(Shape::One, LOAD, service_seconds(&machine.config)?, relqueries, seed);
    let judge = Judge::Engine(Box::new(machine.config));
    for now in LOOKS {
        match choose(window(&trace, now), Policy::MarginalWorkSlowAging, &judge, &mut Unwatched)? {
            Some(verdict) => println!("{now:>4.0} s: {verdict}"),
            None => println!("{now:>4.0} s: too few relQueries"),
        }
    }
    Ok(())
}
