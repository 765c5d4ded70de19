//! The rows that an operator holds: a batch of its input, what is answered of it, and how far each row is.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};

use super::Compiled;
use super::outer::Unmatched;

/// How far a row is.
#[derive(Clone, Debug, Default)]
pub(super) struct RowState {
    /// Whether it stays, once that is known.
    pub decided: Option<bool>,
    /// Conditions that hold, as bits.
    pub held: u64,
    /// The condition that is being decided, and the level of calls it is at.
    pub at: Option<(usize, usize)>,
    /// Answers it waits for.
    pub waiting: u32,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub batch: u64,
    pub row: u32,
    pub call: usize,
    /// The condition that is being decided.
    pub conjunct: usize,
}

/// A batch of the input.
#[derive(Debug)]
pub(super) struct Held {
    input: RecordBatch,
    slots: Vec<ArrayRef>,
    pub rows: Vec<RowState>,
    /// Answers by call and row.
    answers: Vec<Vec<Option<ScalarValue>>>,
    /// Rows that were let in.
    pub admitted: usize,
    emitted: usize,
}

impl Held {
    pub(super) fn new(input: RecordBatch, slots: Vec<ArrayRef>, calls: usize) -> Self {
        let rows = input.num_rows();
        Self {
            input,
            slots,
            rows: vec![RowState::default(); rows],
            answers: vec![vec![None; rows]; calls],
            admitted: 0,
            emitted: 0,
        }
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.admitted == self.rows.len()
    }

    pub(super) fn is_emitted(&self) -> bool {
        self.emitted == self.rows.len()
    }

    /// Whether the next row to give out is decided.
    pub(super) fn is_ready(&self) -> bool {
        self.rows.get(self.emitted).is_some_and(|row| row.decided.is_some())
    }

    pub(super) fn answer(&self, call: usize, row: u32) -> Option<&ScalarValue> {
        self.answers[call][row as usize].as_ref()
    }

    pub(super) fn set_answer(&mut self, call: usize, row: u32, value: ScalarValue) {
        self.answers[call][row as usize] = Some(value);
    }

    /// Rows as the program's expressions see them.
    pub(super) fn view(&self, compiled: &Compiled, rows: &[u32]) -> Result<RecordBatch> {
        let places = UInt32Array::from(rows.to_vec());
        let slots = self.slots.iter().map(|slot| Ok(take(slot, &places, None)?));
        let answers = (0..self.answers.len()).map(|call| self.column(compiled, call, rows));
        let columns = slots.chain(answers).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&compiled.schema), columns, &options)?)
    }

    /// A call's answers of rows; NULL where there is none.
    fn column(&self, compiled: &Compiled, call: usize, rows: &[u32]) -> Result<ArrayRef> {
        let output = compiled.program.calls[call].function.output();
        let answers = &self.answers[call];
        if rows.iter().all(|row| answers[*row as usize].is_none()) {
            return Ok(new_null_array(&output.data_type(), rows.len()));
        }
        let values = rows.iter().map(|row| answers[*row as usize].clone().unwrap_or_else(|| output.null()));
        ScalarValue::iter_to_array(values)
    }

    /// Rows decided since the last call, from the first on: those that stay, with answers where `schema` has
    /// columns for them. `most` bounds how many; rows of an outer join that go may come back later.
    pub(super) fn emit(
        &mut self,
        compiled: &Compiled,
        schema: &SchemaRef,
        most: usize,
        unmatched: Option<&mut Unmatched>,
    ) -> Result<Option<RecordBatch>> {
        let ready = self.rows[self.emitted..].iter().take_while(|row| row.decided.is_some()).count();
        if ready == 0 {
            return Ok(None);
        }
        let from = self.emitted;
        let mut left = most;
        let stays: Vec<bool> = self.rows[from..from + ready]
            .iter()
            .map(|row| {
                let stays = row.decided == Some(true) && left > 0;
                left -= usize::from(stays);
                stays
            })
            .collect();
        self.emitted += ready;
        let input = self.input.slice(from, ready);
        let mut columns = input.columns().to_vec();
        if schema.fields().len() > columns.len() {
            let rows: Vec<u32> = (from..from + ready).map(|row| row as u32).collect();
            for call in 0..self.answers.len() {
                columns.push(self.column(compiled, call, &rows)?);
                // Nobody asks for them again.
                self.answers[call][from..from + ready].fill(None);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(ready));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
        if let Some(unmatched) = unmatched {
            unmatched.decided(&batch, &stays)?;
        }
        if stays.iter().all(|stays| *stays) {
            return Ok(Some(batch));
        }
        Ok(Some(filter_record_batch(&batch, &BooleanArray::from(stays))?))
    }
}
