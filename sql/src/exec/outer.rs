//! The rows of an outer join that are left without a partner: known when the last pair is decided, and given
//! back then, with NULLs for the other side.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use datafusion::arrow::compute::{interleave_record_batch, take_record_batch};
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::{JoinType, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::node::OuterJoin;

/// Rows that are given back together.
const BATCH_ROWS: usize = 8_192;

/// Rows that have no partner yet.
#[derive(Debug)]
pub(super) struct Unmatched {
    schema: SchemaRef,
    sides: Vec<PreservedSide>,
    memory: MemoryReservation,
    /// What is still to be given, once the last pair is decided.
    rest: Option<VecDeque<RecordBatch>>,
}

/// A side whose rows are given back.
#[derive(Debug)]
struct PreservedSide {
    /// The column that numbers its rows.
    marker: usize,
    columns: Range<usize>,
    /// By number: where the row is kept until it has a partner.
    rows: Vec<PartnerState>,
    kept: Vec<RecordBatch>,
}

/// What is known of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartnerState {
    Never,
    /// In this batch of those kept, at this row.
    Alone(u32, u32),
    WithPartner,
}

impl Unmatched {
    /// Nothing is decided yet; `schema` is that of the pairs.
    pub(super) fn new(outer: &OuterJoin, schema: SchemaRef, pool: &Arc<dyn MemoryPool>) -> Result<Self> {
        let place = |marker: &String| -> Result<usize> { Ok(schema.index_of(marker)?) };
        let [left, right] = [place(&outer.markers[0])?, place(&outer.markers[1])?];
        let side = |marker, columns| PreservedSide { marker, columns, rows: Vec::new(), kept: Vec::new() };
        let of_left = || side(left, 0..left + 1);
        let of_right = || side(right, left + 1..schema.fields().len());
        let sides = match outer.join_type {
            JoinType::Left => vec![of_left()],
            JoinType::Right => vec![of_right()],
            JoinType::Full => vec![of_left(), of_right()],
            other => return internal_err!("a {other} join gives no rows back"),
        };
        let memory = MemoryConsumer::new("AiOuterJoin").register(pool);
        Ok(Self { schema, sides, memory, rest: None })
    }

    /// Pairs that are decided: whether each holds.
    pub(super) fn decided(&mut self, pairs: &RecordBatch, holds: &[bool]) -> Result<()> {
        for side in &mut self.sides {
            let bytes = side.decided(pairs, holds)?;
            self.memory.try_grow(bytes)?;
        }
        Ok(())
    }

    /// Rows without a partner; all pairs are decided.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.rest.is_none() {
            let mut rest = VecDeque::new();
            for side in &self.sides {
                side.alone(&self.schema, &mut rest)?;
            }
            self.rest = Some(rest);
        }
        Ok(self.rest.as_mut().and_then(VecDeque::pop_front))
    }
}

impl PreservedSide {
    /// Notes the rows of pairs. Gives the bytes that it keeps more.
    fn decided(&mut self, pairs: &RecordBatch, holds: &[bool]) -> Result<usize> {
        let numbers = pairs.column(self.marker).as_primitive::<UInt64Type>();
        let batch = self.kept.len() as u32;
        let mut fresh: Vec<u32> = Vec::new();
        let before = self.rows.capacity();
        for (row, (number, holds)) in numbers.iter().zip(holds).enumerate() {
            let Some(number) = number.and_then(|number| usize::try_from(number).ok()) else { continue };
            if self.rows.len() <= number {
                self.rows.resize(number + 1, PartnerState::Never);
            }
            let seen = &mut self.rows[number];
            match (*seen, holds) {
                (_, true) => *seen = PartnerState::WithPartner,
                (PartnerState::Never, false) => {
                    *seen = PartnerState::Alone(batch, fresh.len() as u32);
                    fresh.push(row as u32);
                }
                _ => {}
            }
        }
        let mut bytes = (self.rows.capacity() - before) * size_of::<PartnerState>();
        if !fresh.is_empty() {
            let own: Vec<usize> = self.columns.clone().collect();
            let kept = take_record_batch(&pairs.project(&own)?, &UInt32Array::from(fresh))?;
            bytes += kept.get_array_memory_size();
            self.kept.push(kept);
        }
        Ok(bytes)
    }

    /// The rows that are alone, in their order.
    fn alone(&self, schema: &SchemaRef, out: &mut VecDeque<RecordBatch>) -> Result<()> {
        let places: Vec<(usize, usize)> = self
            .rows
            .iter()
            .filter_map(|seen| match seen {
                PartnerState::Alone(batch, row) => Some((*batch as usize, *row as usize)),
                _ => None,
            })
            .collect();
        let kept: Vec<&RecordBatch> = self.kept.iter().collect();
        for places in places.chunks(BATCH_ROWS) {
            let own = interleave_record_batch(&kept, places)?;
            let column = |place: usize| {
                if self.columns.contains(&place) {
                    return Arc::clone(own.column(place - self.columns.start));
                }
                new_null_array(schema.field(place).data_type(), places.len())
            };
            let columns = (0..schema.fields().len()).map(column).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
            out.push_back(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?);
        }
        Ok(())
    }
}
