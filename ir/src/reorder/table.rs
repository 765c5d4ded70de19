//! What the solvers see of a table: interned values and their lengths, column by column.
//!
//! Values are numbers in order of first sight, so that counting is an index and no result depends on
//! hash order. A value's length is whatever unit the caller counts in: tokens of a tokenizer or
//! characters. This file must not know texts, tokenizers or prompts.

use std::collections::HashMap;
use std::hash::Hash;

/// One field of every row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Per row, the number of its value.
    pub(super) values: Vec<u32>,
    /// Per value, its length.
    lengths: Vec<u32>,
}

impl Column {
    /// Interns cells; `length_of` is asked once per distinct value. Equal cells are one value: an
    /// absent cell equals another absent cell if the caller's type says so.
    pub fn intern<T: Eq + Hash>(
        cells: impl IntoIterator<Item = T>,
        mut length_of: impl FnMut(&T) -> u32,
    ) -> Self {
        let mut seen: HashMap<T, u32> = HashMap::new();
        let mut column = Self::default();
        for cell in cells {
            let next = column.lengths.len() as u32;
            let value = match seen.get(&cell) {
                Some(value) => *value,
                None => {
                    column.lengths.push(length_of(&cell));
                    seen.insert(cell, next);
                    next
                }
            };
            column.values.push(value);
        }
        column
    }

    /// Interns cells whose lengths are asked for together: all distinct values, in order of first sight.
    pub fn measured<T: Eq + Hash + Copy>(
        cells: impl IntoIterator<Item = T>,
        lengths_of: impl FnOnce(&[T]) -> Vec<u32>,
    ) -> Self {
        let mut distinct = Vec::new();
        let mut column = Self::intern(cells, |cell| {
            distinct.push(*cell);
            0
        });
        column.lengths = lengths_of(&distinct);
        column.lengths.resize(distinct.len(), 0);
        column
    }

    /// How many distinct values it has.
    pub fn distinct(&self) -> usize {
        self.lengths.len()
    }

    /// A row's value.
    pub fn value(&self, row: u32) -> u32 {
        self.values[row as usize]
    }

    /// A row's length.
    pub fn length(&self, row: u32) -> u32 {
        self.lengths[self.value(row) as usize]
    }

    /// A value's length.
    pub(super) fn length_of(&self, value: u32) -> u32 {
        self.lengths[value as usize]
    }

    /// What one hit of a value is worth: its squared length (Eq. 2).
    pub(super) fn worth(&self, value: u32) -> u64 {
        let length = u64::from(self.lengths[value as usize]);
        length * length
    }
}

/// Why a table cannot be reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The columns do not have the same number of rows.
    #[error("column {column} has {rows} rows, the first has {expected}")]
    Ragged {
        /// The position of the column.
        column: usize,
        /// How many rows it has.
        rows: usize,
        /// How many the first column has.
        expected: usize,
    },
    /// More rows or columns than row and field numbers can name.
    #[error("{rows} rows and {columns} columns; at most {} and {} can be reordered", u32::MAX, u16::MAX)]
    TooLarge {
        /// How many rows there are.
        rows: usize,
        /// How many columns there are.
        columns: usize,
    },
}

/// A table of equally long columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTable {
    rows: u32,
    columns: Vec<Column>,
}

impl FieldTable {
    /// A table of these columns.
    pub fn new(columns: Vec<Column>) -> Result<Self, TableError> {
        let rows = columns.first().map_or(0, |column| column.values.len());
        let ragged = columns.iter().position(|column| column.values.len() != rows);
        if let Some(column) = ragged {
            return Err(TableError::Ragged { column, rows: columns[column].values.len(), expected: rows });
        }
        if columns.len() > usize::from(u16::MAX) || u32::try_from(rows).is_err() {
            return Err(TableError::TooLarge { rows, columns: columns.len() });
        }
        Ok(Self { rows: rows as u32, columns })
    }

    /// How many rows it has.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of every column.
    pub(super) fn fields(&self) -> std::ops::Range<u16> {
        0..self.columns.len() as u16
    }

    /// The column of a field.
    pub(super) fn column(&self, field: u16) -> &Column {
        &self.columns[usize::from(field)]
    }
}
