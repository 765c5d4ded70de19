//! Rows of a call, bound: labels, criteria and prompts are read once, as long as they stay the same from row to
//! row, and each row's own cells at every row.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use ir::Cell;

use super::CompiledCall;
use crate::cell;
use crate::function::{BoundColumn, BoundInput, RowCells};
use crate::program::AiCall;
use crate::query::{AnsweredBy, Query, QueryColumn};

/// A row of a call.
pub(super) enum BoundRow {
    /// An input is NULL, and so is the answer.
    Null,
    /// Why it cannot be asked.
    Failed(String),
    Row(QueryColumn, Vec<Cell>),
}

/// Binds the rows of one call.
#[derive(Debug, Default)]
pub(super) struct Binder {
    last: Option<LastBound>,
}

/// What the last row had in common with others.
#[derive(Debug)]
struct LastBound {
    rest: Vec<ScalarValue>,
    column: QueryColumn,
    cells: RowCells,
}

impl Binder {
    /// Binds a row that is wanted.
    pub(super) fn bind(
        &mut self,
        query: &Query,
        (call, own): (&AiCall, &CompiledCall),
        values: &CallArguments,
        at: usize,
    ) -> Result<BoundRow> {
        let mut cells = Vec::with_capacity(values.input.len());
        for (place, array) in values.input.iter().enumerate() {
            match cell::at(array, at)? {
                // In a record NULL is a value.
                Cell::Null if !own.prompt.as_ref().is_some_and(|prompt| prompt.is_of_record(place)) => {
                    return Ok(BoundRow::Null);
                }
                cell => cells.push(cell),
            }
        }
        if let Some(last) = &self.last
            && (own.has_constant_rest || values.rest(at)? == last.rest)
            && let Some(cells) = values.own_cells(&last.cells, cells)
        {
            return Ok(BoundRow::Row(last.column.clone(), cells));
        }
        let (input, rest) = values.at(own, at)?;
        let bound = match call.function.column(&input, &rest, &call.options) {
            Ok(BoundColumn { column, cells }) => {
                let embeds = call.function.is_embedding();
                let answered_by = if embeds { AnsweredBy::Embedder } else { AnsweredBy::Model };
                LastBound { rest, column: query.column(answered_by, column), cells }
            }
            Err(reason) => return Ok(BoundRow::Failed(reason)),
        };
        let cells = match &bound.cells {
            RowCells::Own(cells) => cells.clone(),
            RowCells::Data => values.cells(at)?,
            RowCells::Places(places) => picked(values.cells(at)?, places),
        };
        let column = bound.column.clone();
        self.last = Some(bound);
        Ok(BoundRow::Row(column, cells))
    }
}

/// The cells of a prompt's places; each has one of its own.
fn picked(mut cells: Vec<Cell>, places: &[usize]) -> Vec<Cell> {
    places.iter().map(|place| std::mem::replace(&mut cells[*place], Cell::Null)).collect()
}

/// The arguments of a call for some rows.
pub(super) struct CallArguments {
    input: Vec<Arc<dyn Array>>,
    rest: Vec<Arc<dyn Array>>,
    guard: Option<Arc<dyn Array>>,
}

impl CallArguments {
    pub(super) fn of(call: &CompiledCall, view: &RecordBatch) -> Result<Self> {
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(view)?.into_array(view.num_rows());
        Ok(Self {
            input: call.input.iter().map(evaluate).collect::<Result<_>>()?,
            rest: call.rest.iter().map(evaluate).collect::<Result<_>>()?,
            guard: call.guard.as_ref().map(evaluate).transpose()?,
        })
    }

    /// Whether anybody looks at the row's answer.
    pub(super) fn is_wanted(&self, at: usize) -> bool {
        self.guard.as_ref().is_none_or(|guard| !guard.is_null(at) && guard.as_boolean().value(at))
    }

    /// The arguments of a row.
    pub(super) fn at(&self, call: &CompiledCall, at: usize) -> Result<(BoundInput, Vec<ScalarValue>)> {
        let mut input = scalars(&self.input, at)?;
        let input = match &call.prompt {
            Some(template) => BoundInput::Prompt(template.clone(), input),
            None => BoundInput::Value(input.pop().unwrap_or(ScalarValue::Null)),
        };
        Ok((input, self.rest(at)?))
    }

    /// Its arguments after the data.
    pub(super) fn rest(&self, at: usize) -> Result<Vec<ScalarValue>> {
        scalars(&self.rest, at)
    }

    /// Its data.
    pub(super) fn cells(&self, at: usize) -> Result<Vec<Cell>> {
        self.input.iter().map(|array| cell::at(array, at)).collect()
    }

    /// A row's own cells, where they are read as those of the row before were. Lists and blank texts are
    /// looked at by the function: it may refuse them.
    fn own_cells(&self, cells: &RowCells, inputs: Vec<Cell>) -> Option<Vec<Cell>> {
        match cells {
            RowCells::Own(_) => None,
            RowCells::Places(places) => Some(picked(inputs, places)),
            RowCells::Data => {
                let is_list = self.input.iter().any(|array| is_list(array.data_type()));
                (!is_list && inputs.iter().all(|cell| !cell.is_blank())).then_some(inputs)
            }
        }
    }
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

fn scalars(arrays: &[Arc<dyn Array>], at: usize) -> Result<Vec<ScalarValue>> {
    arrays.iter().map(|array| ScalarValue::try_from_array(array, at)).collect()
}
