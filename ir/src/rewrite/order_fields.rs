//! `order_fields`: rows, and the entries of each row's record, in the order in which neighbours share most
//! ([`best_order`] of [`crate::reorder`]). It changes prompts, so it runs only where the caller says
//! that the order of entries says nothing.

use std::collections::HashMap;

use super::rule::{Measure, Rule, RuleInput};
use super::tables::{Used, on_tables, used};
use crate::cell::Cell;
use crate::plan::{Plan, Table, TableRow};
use crate::reorder::{Column, Dependencies, Dependency, EarlyStop, FieldTable, best_order};
use crate::template::{Template, TemplatePart, record_name};

pub(super) const RULE: Rule = Rule {
    name: "order_fields",
    stage: 3,
    condition: "the caller says that a record's entries commute; answers return in input order",
    form: "map(t[record(a, b)], [r, s]) -> map(t[record], [s with b before a, r])",
    apply: |plan, input| {
        let (mut records, mut rows) = (0, 0);
        let plan = on_tables(plan, &mut |template, table| match record_of(template) {
            Some(columns) => {
                records += 1;
                let leading = used(template, &table).into_iter().take_while(|used| !used.in_record);
                let leading: Vec<Used> = leading.collect();
                let positions: Vec<usize> = columns.iter().filter_map(|name| table.column(name)).collect();
                let table = order(table, &leading, &positions, input);
                rows += table.rows.iter().filter(|row| !row.record.is_empty()).count();
                table
            }
            None => table,
        });
        let outcome = match (records, rows) {
            (0, _) => Err("the template has no record".into()),
            (_, 0) => Err("no row can be ordered".into()),
            (_, rows) => Ok(format!("{rows} rows ordered by what they share")),
        };
        (plan, outcome)
    },
};

/// The columns of the template's one record; `None` where it has none, or several that differ.
fn record_of(template: &Plan) -> Option<Vec<String>> {
    let mut records: Vec<&Vec<String>> = Vec::new();
    template.visit(&mut |plan| {
        if let Plan::Record(columns) = plan {
            records.push(columns);
        }
    });
    let (first, others) = records.split_first()?;
    others.iter().all(|other| other == first).then(|| first.to_vec())
}

/// The rows of a table and the entries of their records in the order in which neighbours share most, for a
/// template whose record is of all columns that it does not name. `dependencies` are groups of columns that
/// determine each other; those that the rows do not bear out are left out, and without any they are looked
/// for. A template without a record leaves the table as it is.
pub fn order_records(
    template: &Template,
    table: Table,
    dependencies: &[Vec<String>],
    measure: Measure<'_>,
) -> Table {
    if !template.has_record() {
        return table;
    }
    let before = template.parts().iter().take_while(|part| !matches!(part, TemplatePart::Record));
    let named = before.filter_map(|part| match part {
        TemplatePart::Field(name) => table.column(name).map(|column| Used { column, in_record: false }),
        TemplatePart::Text(_) | TemplatePart::Record => None,
    });
    let leading: Vec<Used> = named.collect();
    let is_entry = |column: &usize| !template.fields().contains(&table.columns[*column].as_str());
    let record: Vec<usize> = (0..table.columns.len()).filter(is_entry).collect();
    order(table, &leading, &record, RuleInput { measure, dependencies })
}

/// Rows that are equal up to the record stay together, in the order of the first of them; among them the best
/// order is looked for. Ragged rows, which fail anyway, come last.
fn order(table: Table, leading: &[Used], record: &[usize], input: RuleInput<'_>) -> Table {
    let width = table.columns.len();
    let mut group_of: HashMap<Vec<String>, usize> = HashMap::new();
    let mut groups: Vec<Vec<TableRow>> = Vec::new();
    let mut ragged = Vec::new();
    for row in table.rows {
        if row.cells.len() != width {
            ragged.push(row);
            continue;
        }
        let key = leading.iter().map(|used| used.text(&row).into_owned()).collect();
        let group = *group_of.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(row);
    }
    let names: Vec<&str> = record.iter().map(|column| table.columns[*column].as_str()).collect();
    let solve = |group: Vec<TableRow>| solve(group, record, &names, input);
    let mut rows: Vec<TableRow> = groups.into_iter().flat_map(solve).collect();
    rows.extend(ragged);
    Table { columns: table.columns, rows }
}

/// Orders the rows of a group and their records.
fn solve(group: Vec<TableRow>, record: &[usize], names: &[&str], input: RuleInput<'_>) -> Vec<TableRow> {
    let cells = |column: &usize| {
        let column = *column;
        group.iter().map(move |row| &row.cells[column])
    };
    let columns =
        record.iter().zip(names).map(|(column, name)| record_column(name, cells(column), input.measure));
    // A table that is too large for the solver runs as it is: its rows and fields have numbers of other
    // limits.
    let Ok(table) = FieldTable::new(columns.collect()) else { return group };
    let dependencies = dependencies(&table, names, input.dependencies);
    let reordering = best_order(&table, &dependencies, &EarlyStop::default()).order;
    let mut rows: Vec<Option<TableRow>> = group.into_iter().map(Some).collect();
    let place = |(row, fields): (u32, &[u16])| {
        let position = |field: &u16| u16::try_from(record[usize::from(*field)]).ok();
        let order = fields.iter().filter_map(position).collect();
        rows[row as usize].take().map(|row| TableRow { record: order, ..row })
    };
    reordering.tuples().filter_map(place).collect()
}

/// The declared dependencies that hold, or all that are found.
fn dependencies(table: &FieldTable, names: &[&str], declared: &[Vec<String>]) -> Dependencies {
    if declared.is_empty() {
        return Dependencies::discover(table, Dependencies::CELLS_MAX);
    }
    let field = |name: &String| u16::try_from(names.iter().position(|column| column == name)?).ok();
    let pairs = |group: &Vec<String>| Dependency::mutual(&group.iter().filter_map(field).collect::<Vec<_>>());
    Dependencies::verify(table, &declared.iter().flat_map(pairs).collect::<Vec<_>>()).0
}

/// A record's column as the solver sees it: the length of a value is that of its entry, each different one
/// measured once.
pub fn record_column<'a>(name: &str, cells: impl Iterator<Item = &'a Cell>, measure: Measure<'_>) -> Column {
    let name = record_name(name);
    let entry = |cell: &&Cell| format!("{name}{}, ", cell.json());
    Column::measured(cells, |cells| measure(&cells.iter().map(entry).collect::<Vec<_>>()))
}
