//! A part of the table that GGR still has to order, and the counts of its values.

use super::table::FieldTable;

/// Rows that share the values of the fields in front of them, and the fields behind.
pub(super) struct SubTable {
    /// Rows of the table, in its order.
    pub(super) rows: Vec<u32>,
    /// Fields already placed: equal in all of the rows.
    pub(super) prefix: Vec<u16>,
    /// Fields to place, by number.
    pub(super) open: Vec<u16>,
    /// Fields in which no two of the rows are equal: they come last.
    pub(super) unique: Vec<u16>,
    /// How many of the prefix's fields were chosen by recursion.
    pub(super) depth: u32,
    /// Whether it is what was left when no further group was taken.
    pub(super) is_leaf: bool,
}

impl SubTable {
    pub(super) fn whole(table: &FieldTable) -> Self {
        let rows = (0..table.rows()).collect();
        let open = table.fields().collect();
        Self { rows, prefix: Vec::new(), open, unique: Vec::new(), depth: 0, is_leaf: false }
    }

    /// `T[R_v, cols \ c]`: rows that share a value of `field`.
    pub(super) fn group(&self, field: u16, rows: Vec<u32>) -> Self {
        let mut prefix = self.prefix.clone();
        prefix.push(field);
        let open = self.open.iter().copied().filter(|other| *other != field).collect();
        Self { rows, prefix, open, unique: self.unique.clone(), depth: self.depth + 1, is_leaf: false }
    }

    /// `T[rows \ R_v, cols]` after the last group.
    pub(super) fn rest(&self, taken: &[bool]) -> Self {
        let left = self.rows.iter().zip(taken).filter(|(_, taken)| !**taken);
        Self {
            rows: left.map(|(row, _)| *row).collect(),
            prefix: self.prefix.clone(),
            open: self.open.clone(),
            unique: self.unique.clone(),
            depth: self.depth,
            is_leaf: true,
        }
    }

    /// How many cells it has.
    pub(super) fn cells(&self) -> u64 {
        self.rows.len() as u64 * self.open.len() as u64
    }
}

/// How often each value stands in the sub-table at hand; all zero between sub-tables.
pub(super) struct Counts {
    /// Per field and value.
    counts: Vec<Vec<u32>>,
    /// Per field and value, a number for the function at work; all zero between its calls.
    names: Vec<Vec<u32>>,
}

impl Counts {
    pub(super) fn new(table: &FieldTable) -> Self {
        let zeros = || table.columns().iter().map(|column| vec![0; column.distinct()]).collect();
        Self { counts: zeros(), names: zeros() }
    }

    pub(super) fn count(&self, cell: (u16, u32)) -> u32 {
        self.counts[usize::from(cell.0)][cell.1 as usize]
    }

    /// Counts the open fields. Moves those with one value to the prefix (placing them first costs
    /// nothing and keeps them shared across all groups) and those without a repeated value to the end.
    /// Returns the hit count of the new prefix and, per field left open, its score.
    pub(super) fn simplify(&mut self, table: &FieldTable, sub: &mut SubTable) -> (u128, Vec<(u16, u128)>) {
        let (mut claimed, mut scores) = (0, Vec::with_capacity(sub.open.len()));
        let Some(first) = sub.rows.first().copied() else { return (0, scores) };
        for field in std::mem::take(&mut sub.open) {
            let column = table.column(field);
            let counts = &mut self.counts[usize::from(field)];
            let (mut score, mut distinct) = (0, 0);
            for row in &sub.rows {
                let value = column.value(*row);
                let count = &mut counts[value as usize];
                if *count > 0 {
                    score += u128::from(column.worth(value));
                } else {
                    distinct += 1;
                }
                *count += 1;
            }
            if distinct == 1 && sub.rows.len() > 1 {
                claimed += score;
                sub.prefix.push(field);
                counts[column.value(first) as usize] = 0;
            } else if distinct == sub.rows.len() {
                sub.unique.push(field);
                sub.rows.iter().for_each(|row| counts[column.value(*row) as usize] = 0);
            } else {
                sub.open.push(field);
                scores.push((field, score));
            }
        }
        (claimed, scores)
    }

    /// The values of these open fields that are repeated, field by field in order of first sight.
    pub(super) fn groups(&mut self, table: &FieldTable, sub: &SubTable, fields: &[u16]) -> Vec<ValueGroup> {
        let mut groups: Vec<ValueGroup> = Vec::new();
        for field in fields {
            let (counts, names) = (&self.counts[usize::from(*field)], &mut self.names[usize::from(*field)]);
            let first = groups.len();
            for (position, row) in sub.rows.iter().enumerate() {
                let value = table.column(*field).value(*row);
                if counts[value as usize] < 2 {
                    continue;
                }
                let name = &mut names[value as usize];
                if *name == 0 {
                    let members = Vec::with_capacity(counts[value as usize] as usize);
                    groups.push(ValueGroup { cell: (*field, value), members });
                    *name = groups.len() as u32;
                }
                groups[*name as usize - 1].members.push(position as u32);
            }
            groups[first..].iter().for_each(|group| names[group.cell.1 as usize] = 0);
        }
        groups
    }

    /// What these rows can hit together with others of the sub-table, and no more once they are apart: the
    /// worth of the values that they have and others too.
    pub(super) fn shared_with_others(&mut self, table: &FieldTable, rows: &[u32], fields: &[u16]) -> u128 {
        let mut shared = 0;
        for field in fields {
            let (column, counts) = (table.column(*field), &self.counts[usize::from(*field)]);
            let inside = &mut self.names[usize::from(*field)];
            rows.iter().for_each(|row| inside[column.value(*row) as usize] += 1);
            for value in rows.iter().map(|row| column.value(*row)) {
                let inside = std::mem::take(&mut inside[value as usize]);
                if inside > 0 && inside < counts[value as usize] {
                    shared += u128::from(column.worth(value));
                }
            }
        }
        shared
    }

    /// Takes a row's values of these fields out of the counts.
    pub(super) fn remove(&mut self, table: &FieldTable, row: u32, fields: &[u16]) {
        for field in fields {
            self.counts[usize::from(*field)][table.column(*field).value(row) as usize] -= 1;
        }
    }

    /// Forgets a sub-table.
    pub(super) fn clear(&mut self, table: &FieldTable, sub: &SubTable) {
        for field in &sub.open {
            let (column, counts) = (table.column(*field), &mut self.counts[usize::from(*field)]);
            sub.rows.iter().for_each(|row| counts[column.value(*row) as usize] = 0);
        }
    }
}

/// The rows of a sub-table that share a value.
pub(super) struct ValueGroup {
    /// The field, and the value's number in it.
    pub(super) cell: (u16, u32),
    /// Positions in the sub-table's rows, two or more.
    pub(super) members: Vec<u32>,
}
