//! The solvers' promises: facts of the paper by name, and properties of any table.

mod facts;
mod oracle;
mod properties;

use super::table::{Column, FieldTable};

/// A table of words whose lengths are their characters.
fn table(rows: &[&[&str]]) -> FieldTable {
    table_with(rows, |word| word.chars().count() as u32)
}

fn table_with(rows: &[&[&str]], length: impl Fn(&str) -> u32) -> FieldTable {
    let columns = rows.first().map_or(0, |row| row.len());
    let column = |field: usize| Column::intern(rows.iter().map(|row| row[field]), |word| length(word));
    FieldTable::new((0..columns).map(column).collect()).expect("the rows have the same cells")
}
