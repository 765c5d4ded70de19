//! What constant bulk load does to interactive latency: `cargo run --release -p sim --example isolation`. The
//! same interactive trace alone and beside a bulk relQuery of 300 to 900 rows every 30 s, by
//! `marginal_work.bulk_share_permille`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use sim::isolation::{Isolation, measure};

fn main() -> Result<(), sim::SimError> {
    println!("| share | hide | relQuery/s | alone, s | beside bulk, s | ratio | bulk rows done beside it |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for share in [None, Some(100), Some(50), Some(20)] {
        for hide in [0, 1_000] {
            for rate in [0.2, 0.4, 0.6] {
                let Isolation { alone, beside, bulk } = measure(share, hide, rate, 4)?;
                let share = share.map_or("as others".to_owned(), |share| format!("{share} permille"));
                let (ratio, bulk) = (beside / alone, 100.0 * bulk);
                println!(
                    "| {share} | {hide} | {rate} | {alone:.2} | {beside:.2} | {ratio:.3} | {bulk:.0} % |"
                );
            }
        }
    }
    Ok(())
}
