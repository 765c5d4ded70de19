//! What calls give for the parameters of a function.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cell::Cell;

/// What a caller gives for one argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    Cell(Cell),
    List(Vec<Cell>),
    /// A range: rows of cells.
    Range(Vec<Vec<Cell>>),
}

impl Argument {
    /// The argument a JSON value stands for: a scalar, an array of scalars, or an array of those.
    /// `None` for anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        let cells = |values: &[Value]| values.iter().map(Cell::from_json).collect::<Option<Vec<_>>>();
        match value {
            Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_array) => {
                let rows = items.iter().filter_map(Value::as_array).map(|row| cells(row));
                Some(Self::Range(rows.collect::<Option<_>>()?))
            }
            Value::Array(items) => Some(Self::List(cells(items)?)),
            scalar => Some(Self::Cell(Cell::from_json(scalar)?)),
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Cell(Cell::Null))
    }
}

/// The arguments of a call, checked.
#[derive(Default)]
pub(super) struct Checked {
    /// Text of each argument given or defaulted.
    pub(super) texts: BTreeMap<String, String>,
    /// Items of the list argument.
    pub(super) items: Vec<String>,
    /// Names of the arguments that were given.
    pub(super) given: Vec<String>,
    /// What goes in and what comes out, of the pairs argument.
    pub(super) pairs: Vec<(String, String)>,
    /// Numbers by name.
    pub(super) numbers: BTreeMap<String, i64>,
}
