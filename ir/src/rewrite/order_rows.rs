//! `order_rows`: rows that share leading field values become neighbours, so that the prefix they
//! share is computed once and is still cached when the next one runs.

use std::collections::HashMap;

use super::rule::Rule;
use super::tables::{on_tables, texts, used};
use crate::plan::{Plan, Table, TableRow};

pub(super) const RULE: Rule = Rule {
    name: "order_rows",
    stage: 3,
    condition: "answers return in input order, so the order of running is free",
    form: "map(t, [a1, b1, a2]) -> map(t, [a1, a2, b1])",
    apply: |plan, _| {
        let mut moved = 0;
        let plan = on_tables(plan, &mut |template, table| {
            let (table, changed) = order(template, table);
            moved += changed;
            table
        });
        let outcome =
            if moved > 0 { Ok(format!("{moved} rows moved")) } else { Err("already in order".into()) };
        (plan, outcome)
    },
};

/// Groups by the first field, inside a group by the second, and so on. Groups stand in the order of
/// their first row and rows keep their order, so that a table without repetition stays as it is.
fn order(template: &Plan, table: Table) -> (Table, usize) {
    // Where records have orders of their own, rows are in the order that goes with them.
    if table.rows.iter().any(|row| !row.record.is_empty()) {
        return (table, 0);
    }
    let (used, columns) = (used(template, &table), table.columns.len());
    let mut groups: HashMap<(usize, String), usize> = HashMap::new();
    let mut keyed: Vec<(Vec<usize>, usize, TableRow)> = Vec::with_capacity(table.rows.len());
    for (position, row) in table.rows.into_iter().enumerate() {
        // A group is named by its parent and its value; numbers grow in order of first sight, and 0 is
        // the root. A ragged row has a group of its own.
        let mut path = Vec::with_capacity(used.len());
        let mut parent = 0;
        for text in texts(&used, columns, &row).unwrap_or_default() {
            let next = groups.len() + 1;
            parent = *groups.entry((parent, text.into_owned())).or_insert(next);
            path.push(parent);
        }
        if path.is_empty() {
            path.push(usize::MAX);
        }
        keyed.push((path, position, row));
    }
    keyed.sort_by(|(path, position, _), (other, later, _)| path.cmp(other).then(position.cmp(later)));
    let moved = keyed.iter().enumerate().filter(|(now, (_, before, _))| now != before).count();
    let rows = keyed.into_iter().map(|(_, _, row)| row).collect();
    (Table { columns: table.columns, rows }, moved)
}
