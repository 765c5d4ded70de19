//! The tables of a plan, and which of their cells stand in prompts.

use std::borrow::Cow;

use crate::plan::{Plan, Table, TableRow};

/// Applies `change` to every table below `plan`, together with the template over it.
pub(super) fn on_tables(plan: Plan, change: &mut dyn FnMut(&Plan, Table) -> Table) -> Plan {
    match plan.map_children(&mut |child| on_tables(child, change)) {
        Plan::Map { template, rows } => {
            let rows = change(&template, rows);
            Plan::Map { template, rows }
        }
        other => other,
    }
}

/// A column whose cells stand in prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) column: usize,
    pub(super) in_record: bool,
}

impl Used {
    /// What stands in the prompt of a row that has all its cells.
    pub(super) fn text<'a>(&self, row: &'a TableRow) -> Cow<'a, str> {
        let cell = &row.cells[self.column];
        if self.in_record { cell.json() } else { cell.text() }
    }
}

/// The columns that a template uses, in the order it uses them, each way once.
pub(super) fn used(template: &Plan, table: &Table) -> Vec<Used> {
    let mut found = Vec::new();
    let mut see = |name: &String, in_record| {
        let used = table.column(name).map(|column| Used { column, in_record });
        found.extend(used.filter(|used| !found.contains(used)));
    };
    template.visit(&mut |plan| match plan {
        Plan::Field(name) => see(name, false),
        Plan::Record(columns) => columns.iter().for_each(|name| see(name, true)),
        _ => {}
    });
    found
}

/// What stands in the prompt of one row; `None` for a ragged row.
pub(super) fn texts<'a>(used: &[Used], columns: usize, row: &'a TableRow) -> Option<Vec<Cow<'a, str>>> {
    (row.cells.len() == columns).then(|| used.iter().map(|used| used.text(row)).collect())
}
