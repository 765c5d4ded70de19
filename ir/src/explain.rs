//! `explain`: a plan as an indented tree with token estimates, and what each rule did to it.

use std::fmt::Write as _;

use crate::plan::{Plan, Table, TableRow};
use crate::rewrite::{Applied, RULES};

/// Bytes of text per token, for estimates only: about right for English under most tokenizers.
const BYTES_PER_TOKEN: usize = 4;

/// Most rows of a table that are shown.
const ROWS_SHOWN_MAX: usize = 8;

/// Explains a plan and the rewriting that led to it.
pub fn explain(plan: &Plan, log: &[Applied]) -> String {
    let mut out = String::new();
    tree(plan, None, 0, &mut out);
    out.push_str("rules\n");
    for applied in log {
        let stage = RULES.iter().find(|rule| rule.name == applied.rule).map_or(0, |rule| rule.stage);
        let (word, what) = match &applied.outcome {
            Ok(change) => ("applied", change),
            Err(reason) => ("skipped", reason),
        };
        line(&mut out, 1, &format!("{stage} {}: {word}, {what}", applied.rule));
    }
    out
}

/// Writes an indented line.
pub(crate) fn line(out: &mut String, depth: usize, text: &str) {
    writeln!(out, "{:indent$}{text}", "", indent = depth * 2).expect("a string takes all that is written");
}

/// About how many tokens so many bytes are.
pub(crate) fn estimate(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

fn tree(plan: &Plan, table: Option<&Table>, depth: usize, out: &mut String) {
    let mut below = table;
    let label = match plan {
        Plan::Text(text) => format!("text {text:?} ~{}", estimate(text.len())),
        Plan::Field(name) => match table.and_then(|table| mean_bytes(table, name)) {
            Some(bytes) => format!("field {name} ~{} a row", estimate(bytes)),
            None => format!("field {name}"),
        },
        Plan::Record(columns) => {
            let bytes: Option<usize> = table.map(|table| {
                columns.iter().filter_map(|name| Some(mean_bytes(table, name)? + name.len())).sum()
            });
            let each = bytes.map_or(String::new(), |bytes| format!(" ~{} a row", estimate(bytes)));
            format!("record {}{each}", columns.join(", "))
        }
        Plan::Message(role, _) => format!("message {}", role.name()),
        Plan::Seq(_) => "seq".into(),
        Plan::Plus(_) => "plus".into(),
        Plan::Cross(_) => "cross".into(),
        Plan::Generate { generation, .. } => {
            format!("generate output_max={} temperature={}", generation.output_max.0, generation.temperature)
        }
        Plan::Map { rows, .. } => {
            below = Some(rows);
            format!("map rows={} answers={}", rows.rows.len(), rows.answered())
        }
    };
    line(out, depth, &label);
    for child in plan.children() {
        tree(child, below, depth + 1, out);
    }
    if let Plan::Map { rows, .. } = plan {
        table_rows(rows, depth + 1, out);
    }
}

fn mean_bytes(table: &Table, name: &str) -> Option<usize> {
    let column = table.column(name)?;
    let lengths: Vec<usize> =
        table.rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| cell.text().len()).collect();
    lengths.iter().sum::<usize>().checked_div(lengths.len())
}

fn table_rows(table: &Table, depth: usize, out: &mut String) {
    for row in table.rows.iter().take(ROWS_SHOWN_MAX) {
        line(out, depth, &format!("row {}", row_label(row, &table.columns)));
    }
    if table.rows.len() > ROWS_SHOWN_MAX {
        line(out, depth, &format!("and {} rows more", table.rows.len() - ROWS_SHOWN_MAX));
    }
}

fn row_label(row: &TableRow, columns: &[String]) -> String {
    let cells: Vec<String> = row.cells.iter().map(|cell| format!("{:?}", cell.text())).collect();
    let inputs: Vec<String> = row.answers.iter().map(u32::to_string).collect();
    let record: Vec<&str> = row
        .record
        .iter()
        .filter_map(|column| columns.get(usize::from(*column)).map(String::as_str))
        .collect();
    let order = if record.is_empty() { String::new() } else { format!(" record {}", record.join(", ")) };
    format!("[{}] answers {}{order}", cells.join(", "), inputs.join(", "))
}
