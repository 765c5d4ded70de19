//! Replays one seeded world with a trace of what happened and what was decided:
//! `cargo run -p sim --example seed -- SEED`, or a range `FIRST..LAST` for the failing seeds and the sums.

#![expect(clippy::print_stdout, reason = "a trace is its purpose")]

use std::error::Error;

use sim::chaos::{ChaosCounts, run_seed};

fn main() -> Result<(), Box<dyn Error>> {
    let which = std::env::args().nth(1).ok_or("usage: seed SEED | seed FIRST..LAST")?;
    let Some((first, last)) = which.split_once("..") else {
        let tally = run_seed(which.parse()?, Some(&mut |line: &str| println!("{line}")))?;
        println!("every promise held: {tally:?}");
        return Ok(());
    };
    let (mut sum, mut failed) = (ChaosCounts::default(), 0);
    for seed in first.parse::<u64>()?..last.parse()? {
        match run_seed(seed, None) {
            Ok(tally) => sum += tally,
            Err(wrong) => {
                println!("seed {seed}: {wrong}");
                failed += 1;
            }
        }
    }
    println!("{sum:?}");
    if failed == 0 { Ok(()) } else { Err(format!("{failed} seeds break a promise").into()) }
}
