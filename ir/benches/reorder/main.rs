//! How long the solver takes on made tables of the sizes of the paper's Table 5:
//!
//! ```text
//! cargo bench -p ir --bench reorder
//! ```
//!
//! Medians of five runs on one thread. The limit of a solver that reads a table once is what summing its
//! cells takes, which is measured beside it. Real tables: `relserve reorder --input TABLE.csv`.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a stopwatch for people")]

mod made;

use std::hint::black_box;
use std::time::Instant;

use ir::reorder::{
    Column, Dependencies, EarlyStop, FieldTable, FixedSearch, best_fixed_order, best_order, fixed_order, ggr,
    worth,
};

/// Rows and columns: Movies, and PDMX, the slowest of the paper's tables.
const SIZES: [(usize, usize); 2] = [(15_000, 8), (10_000, 57)];

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, 1_000.0 * start.elapsed().as_secs_f64())
}

fn median_of_five<T>(work: impl Fn() -> T) -> (T, f64) {
    let mut runs = [(); 5].map(|()| timed(&work));
    runs.sort_by(|(_, ms), (_, others)| ms.total_cmp(others));
    let [_, _, median, ..] = runs;
    median
}

/// Every cell's length, once, column by column.
fn read_once(table: &FieldTable) -> u64 {
    let column = |column: &Column| (0..table.rows()).map(|row| u64::from(column.length(row))).sum::<u64>();
    table.columns().iter().map(column).sum()
}

fn main() {
    println!(
        "{:>7} {:>7} {:>14} {:>12} {:>9} {:>13} {:>15} {:>15} {:>8} {:>8} {:>8}",
        "rows",
        "fields",
        "read once, ms",
        "discovery",
        "GGR, ms",
        "fixed fields",
        "best fixed, ms",
        "best order, ms",
        "GGR %",
        "fixed %",
        "best %"
    );
    for (rows, columns) in SIZES {
        let (names, cells) = made::table(rows, columns);
        let column = |position: usize| {
            Column::intern(cells.iter().map(|row| row[position].as_str()), |cell| cell.len() as u32)
        };
        let table =
            FieldTable::new((0..names.len()).map(column).collect()).expect("rows have the same cells");
        let (_, reading) = median_of_five(|| black_box(read_once(black_box(&table))));
        let (dependencies, discovery) =
            median_of_five(|| Dependencies::discover(&table, Dependencies::CELLS_MAX));
        let (order, solving) = median_of_five(|| ggr(&table, &dependencies, &EarlyStop::default()));
        let (fixed, sorting) = median_of_five(|| fixed_order(&table));
        let (_, searching) = median_of_five(|| best_fixed_order(&table, &FixedSearch::default()));
        let (best, all) = median_of_five(|| best_order(&table, &dependencies, &EarlyStop::default()));
        let share = |order| {
            let found = worth(&table, order);
            100.0 * found.reused as f64 / found.total as f64
        };
        println!(
            "{rows:>7} {columns:>7} {reading:>14.2} {discovery:>12.2} {solving:>9.1} {sorting:>13.1} \
             {searching:>15.1} {all:>15.1} {:>8.1} {:>8.1} {:>8.1}",
            share(&order),
            share(&fixed),
            share(&best.order)
        );
    }
}
