//! When a relQuery of 50 rows that has the machine for itself shows its first and its last row, with and without
//! `first_rows_permille = 20`, as a Markdown table: `cargo run --release -p sim --example first_rows`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use sim::first_rows::{RowEnds, alone, measure, race};
use sim::regret::machines;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let traces = [("4", alone(50, 4)), ("10", alone(50, 10)), ("30", alone(50, 30)), ("10, race", race())];
    println!("| machine | output tokens | first row s | last s | first with | last with | last later by |");
    println!("| --- |{}", " ---: |".repeat(6));
    for machine in machines() {
        for (output, trace) in &traces {
            let off = measure(trace, &machine.config, 0)?;
            let RowEnds { first, last } = measure(trace, &machine.config, 20)?;
            let later = 100.0 * (last / off.last - 1.0);
            print!("| {} | {output} | {:.3} | {:.3} |", machine.name, off.first, off.last);
            println!(" {first:.3} | {last:.3} | {later:.1} % |");
        }
    }
    Ok(())
}
