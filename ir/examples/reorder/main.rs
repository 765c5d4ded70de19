//! Solves a table and prints what its order is worth:
//!
//! ```text
//! cargo run --release -p ir --example reorder -- TABLE.csv [--rows N] [--columns N] [--shuffle SEED] [--ophr SPLITS]
//! cargo run --release -p ir --example reorder -- made --rows 15000 --columns 8
//! ```
//!
//! Lengths are characters. `cells` counts cells equal to those of the row before, as the solver does; `text`
//! counts leading characters of the row as a JSON object that some earlier row has too, as a prefix cache
//! without end would. Times are the median of five runs, OPHR's of one.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a stopwatch for people")]

mod made;

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Bound;
use std::time::Instant;

use ir::reorder::{
    Column, Dependencies, EarlyStop, FieldTable, Reordering, fixed_order, ggr, ophr, sort_rows, worth,
};

/// What the command line asks for.
struct Arguments {
    path: String,
    rows: Option<usize>,
    columns: Option<usize>,
    shuffle: Option<u64>,
    splits_max: Option<u64>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("the path of a CSV file is missing")?;
    let mut found = Arguments { path, rows: None, columns: None, shuffle: None, splits_max: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
        match word.as_str() {
            "--rows" => found.rows = Some(value.parse()?),
            "--columns" => found.columns = Some(value.parse()?),
            "--shuffle" => found.shuffle = Some(value.parse()?),
            "--ophr" => found.splits_max = Some(value.parse()?),
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    Ok(found)
}

/// The names of the fields, and per row its cells.
type Cells = (Vec<String>, Vec<Vec<String>>);

fn read(arguments: &Arguments) -> Result<Cells, Box<dyn Error>> {
    let mut reader = csv::Reader::from_path(&arguments.path)?;
    let take = |record: &csv::StringRecord| -> Vec<String> {
        record.iter().take(arguments.columns.unwrap_or(usize::MAX)).map(str::to_owned).collect()
    };
    let names = take(reader.headers()?);
    let mut rows = Vec::new();
    for record in reader.records() {
        rows.push(take(&record?));
    }
    if let Some(seed) = arguments.shuffle {
        made::shuffle(&mut rows, seed);
    }
    rows.truncate(arguments.rows.unwrap_or(usize::MAX));
    Ok((names, rows))
}

/// The share of characters that some earlier row begins with too.
fn text_hit_rate((names, rows): &Cells, order: &Reordering) -> f64 {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let (mut reused, mut total) = (0, 0);
    for (row, fields) in order.tuples() {
        let cell = |field: &u16| {
            let (name, cell) = (&names[usize::from(*field)], &rows[row as usize][usize::from(*field)]);
            format!("{}: {}", serde_json::json!(name), serde_json::json!(cell))
        };
        let text = format!("{{{}}}", fields.iter().map(cell).collect::<Vec<_>>().join(", "));
        // Of all earlier rows, a neighbour in sorted order shares most.
        let before = seen.range::<str, _>((Bound::Unbounded, Bound::Included(text.as_str()))).next_back();
        let behind = seen.range::<str, _>((Bound::Included(text.as_str()), Bound::Unbounded)).next();
        let shared = |other: &String| text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        reused += before.into_iter().chain(behind).map(shared).max().unwrap_or(0);
        total += text.chars().count();
        seen.insert(text);
    }
    reused as f64 / total as f64
}

fn report(name: &str, cells: &Cells, table: &FieldTable, order: &Reordering, seconds: f64) {
    let found = worth(table, order);
    println!(
        "{name:<16} {:>15} {:>7.2} {:>7.2} {:>9.1}",
        found.hit_count,
        100.0 * found.reused as f64 / found.total as f64,
        100.0 * text_hit_rate(cells, order),
        1_000.0 * seconds,
    );
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

fn median_of_five<T>(work: impl Fn() -> T) -> (T, f64) {
    let mut runs = [(); 5].map(|()| timed(&work));
    runs.sort_by(|(_, seconds), (_, others)| seconds.total_cmp(others));
    let [_, _, median, ..] = runs;
    median
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let cells = match arguments.path.as_str() {
        "made" => made::table(arguments.rows.unwrap_or(15_000), arguments.columns.unwrap_or(8)),
        _ => read(&arguments)?,
    };
    let column = |position: usize| {
        let column = cells.1.iter().map(|row| row[position].as_str());
        Column::intern(column, |cell| cell.chars().count() as u32)
    };
    let (table, interning) = timed(|| FieldTable::new((0..cells.0.len()).map(column).collect()));
    let table = table?;
    println!("{} rows, {} columns; interned in {:.1} ms", table.rows(), cells.0.len(), 1_000.0 * interning);
    let (dependencies, seconds) = median_of_five(|| Dependencies::discover(&table, 100_000_000));
    let number = dependencies.pairs().len();
    println!("{number} dependencies in {:.1} ms, all: {}", 1_000.0 * seconds, dependencies.is_complete());

    println!("{:<16} {:>15} {:>7} {:>7} {:>9}", "order", "PHC", "cells %", "text %", "ms");
    let (full, paper) = (EarlyStop::default(), EarlyStop::of_the_paper());
    let (original, seconds) = median_of_five(|| Reordering::original(&table));
    report("original", &cells, &table, &original, seconds);
    let (sorted, seconds) = median_of_five(|| sort_rows(&table));
    report("rows sorted", &cells, &table, &sorted, seconds);
    let (fixed, seconds) = median_of_five(|| fixed_order(&table));
    report("fixed fields", &cells, &table, &fixed, seconds);
    for (name, dependencies, stop) in [
        ("GGR", &dependencies, &full),
        ("GGR no FD", &Dependencies::none(), &full),
        ("GGR stops 4/2", &dependencies, &paper),
    ] {
        let (order, seconds) = median_of_five(|| ggr(&table, dependencies, stop));
        report(name, &cells, &table, &order, seconds);
    }
    if let Some(splits_max) = arguments.splits_max {
        let (order, seconds) = timed(|| ophr(&table, splits_max));
        match order {
            Ok(order) => report("OPHR", &cells, &table, &order, seconds),
            Err(reason) => println!("OPHR             {reason} ({:.1} s)", seconds),
        }
    }
    Ok(())
}
