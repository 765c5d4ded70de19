//! Rows in groups that agree in some fields, and what one field more would hit in them.
//!
//! A row alone in its group can hit nothing, whatever field comes next, and is left out: partitions get
//! smaller from field to field.

use super::table::{Column, FieldTable};

/// Rows in groups of two or more that agree in the fields placed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Partition {
    /// Group by group, in each in the table's order.
    rows: Vec<u32>,
    /// Where each group ends.
    ends: Vec<u32>,
}

impl Partition {
    /// All rows of the table in one group: no field is placed.
    pub(super) fn whole(table: &FieldTable) -> Self {
        match table.rows() {
            0 | 1 => Self::default(),
            rows => Self { rows: (0..rows).collect(), ends: vec![rows] },
        }
    }

    /// How many rows have a neighbour that agrees.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    fn groups(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.rows[start as usize..*end as usize])
    }
}

/// What a field hits as the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldGain {
    /// The length of its cells that equal that of a row before in the group.
    pub(super) reused: u64,
    /// Whether a group has two values of it. A field without is said by those placed.
    pub(super) splits: bool,
}

/// Numbers per value for the function at work.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// The number of the group that showed the value last.
    seen: Vec<u32>,
    group: u32,
    /// Rows of the group with the value; all zero between calls.
    counts: Vec<u32>,
    /// Where the value's next row goes; `None`: it has no other row.
    places: Vec<Option<u32>>,
}

impl Scratch {
    pub(super) fn new(table: &FieldTable) -> Self {
        let values = table.columns().iter().map(Column::distinct).max().unwrap_or_default();
        Self { seen: vec![0; values], group: 0, counts: vec![0; values], places: vec![None; values] }
    }

    /// What `column` hits behind the fields of `partition`: in a group each value once less than it is there.
    pub(super) fn gain(&mut self, partition: &Partition, column: &Column) -> FieldGain {
        let mut gain = FieldGain::default();
        for group in partition.groups() {
            self.group = self.group.checked_add(1).unwrap_or_else(|| {
                self.seen.fill(0);
                1
            });
            let mut distinct = 0;
            for row in group {
                let value = column.value(*row);
                if std::mem::replace(&mut self.seen[value as usize], self.group) == self.group {
                    gain.reused += u64::from(column.length_of(value));
                } else {
                    distinct += 1;
                }
            }
            gain.splits |= distinct > 1;
        }
        gain
    }

    /// The groups that agree in `column` too.
    pub(super) fn refine(&mut self, partition: &Partition, column: &Column) -> Partition {
        let mut refined = Partition::default();
        let mut values = Vec::new();
        for group in partition.groups() {
            for value in group.iter().map(|row| column.value(*row)) {
                if self.counts[value as usize] == 0 {
                    values.push(value);
                }
                self.counts[value as usize] += 1;
            }
            let mut end = refined.rows.len() as u32;
            for value in values.drain(..) {
                let count = std::mem::take(&mut self.counts[value as usize]);
                self.places[value as usize] = (count > 1).then_some(end);
                if count > 1 {
                    end += count;
                    refined.ends.push(end);
                }
            }
            refined.rows.resize(end as usize, 0);
            for row in group {
                if let Some(place) = &mut self.places[column.value(*row) as usize] {
                    refined.rows[*place as usize] = *row;
                    *place += 1;
                }
            }
        }
        refined
    }
}
