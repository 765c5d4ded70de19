//! A request schedule and what it is worth: prefix hit count and prefix hit rate.
//!
//! The worth is always recomputed from the schedule alone, never taken from the solver that made it.

use super::table::FieldTable;

/// The list of tuples `L` (section 3.1): in which order rows run, and per row the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// Rows of the table in the order in which they run.
    pub(super) rows: Vec<u32>,
    /// Per position of `rows`, all fields of that row in prompt order.
    pub(super) fields: Vec<u16>,
    /// The prefix hit count that the solver counted while it built the list, a lower bound of [`worth`].
    pub(super) claimed: u128,
}

impl Reordering {
    /// The table as it stands.
    pub fn original(table: &FieldTable) -> Self {
        let mut order = Self::with_capacity(table);
        for row in 0..table.rows() {
            order.push(row, table.fields());
        }
        order
    }

    pub(super) fn with_capacity(table: &FieldTable) -> Self {
        let rows = table.rows() as usize;
        Self {
            rows: Vec::with_capacity(rows),
            fields: Vec::with_capacity(rows * table.columns().len()),
            claimed: 0,
        }
    }

    pub(super) fn push(&mut self, row: u32, fields: impl IntoIterator<Item = u16>) {
        self.rows.push(row);
        self.fields.extend(fields);
    }

    /// Rows of the table in the order in which they run.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Per row in running order: its number in the table, and its fields in prompt order.
    pub fn tuples(&self) -> impl Iterator<Item = (u32, &[u16])> {
        let columns = self.fields.len().checked_div(self.rows.len()).unwrap_or_default();
        let tuple = move |(position, row): (usize, &u32)| {
            (*row, &self.fields[position * columns..(position + 1) * columns])
        };
        self.rows.iter().enumerate().map(tuple)
    }

    /// The prefix hit count that the solver counted: [`worth`] is never less.
    pub fn claimed(&self) -> u128 {
        self.claimed
    }
}

/// What a schedule saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worth {
    /// Prefix hit count: squared lengths of the cells shared with the row before (Eq. 1-2).
    pub hit_count: u128,
    /// Length of those cells, not squared: what a prefix cache need not compute.
    pub reused: u64,
    /// Length of all cells. The prefix hit rate is `reused / total`.
    pub total: u64,
}

/// Recomputes what a schedule is worth (Eq. 1-2).
///
/// ```text
/// PHC(L) = sum over r of hit(L, r)
/// hit(L, r) = max over 0 <= c <= m of { sum over f <= c of len(L[r][f])^2  if all f <= c are equal in r - 1 }
/// ```
///
/// The printed index range `c < m` leaves out the last field; a duplicate row hits in all of its fields.
/// Cells are equal when field and value are: the prompt names the field.
pub fn worth(table: &FieldTable, order: &Reordering) -> Worth {
    let mut worth = Worth::default();
    let mut previous: Option<(u32, &[u16])> = None;
    for (row, fields) in order.tuples() {
        worth.total += fields.iter().map(|field| u64::from(table.column(*field).length(row))).sum::<u64>();
        if let Some((before, others)) = previous {
            for (field, other) in fields.iter().zip(others) {
                let column = table.column(*field);
                if field != other || column.value(row) != column.value(before) {
                    break;
                }
                worth.hit_count += u128::from(column.worth(column.value(row)));
                worth.reused += u64::from(column.length(row));
            }
        }
        previous = Some((row, fields));
    }
    worth
}
