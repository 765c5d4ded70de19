//! What a step computes, as the kernels read it: `Tables` of kernels/prelude.cuh and what it points to.

use std::hash::{Hash, Hasher as _};

use base::Slot;
use siphasher::sip::SipHasher13;

use crate::attention::plan::{AttentionPlan, Cut, Part};
use crate::device::cuda::Address;

/// Rows of queries that a task of few rows has at most, and one of many.
pub(super) const FLAT_ROWS: usize = 16;
pub(super) const TALL_ROWS: usize = 64;
/// The same where warpgroups multiply.
pub(super) const WGMMA_ROWS: usize = 128;

/// Bytes of the struct itself: twelve addresses and four numbers, in whole pieces of [`ALIGN`].
pub(super) const TABLES_BYTES: usize = 112;

/// What every table begins at a multiple of.
const ALIGN: usize = 16;

/// Rows of queries over a stretch of a part, `Task` of the kernels: the part, the first row, how many, the
/// first token and the end of them.
pub(super) type Task = [i32; 5];

/// What decides how attention is cut into tasks.
#[derive(Clone, Copy)]
pub(super) struct TaskShape {
    /// Positions of a block.
    pub(super) block_tokens: usize,
    /// Query heads that share a head of keys and values.
    pub(super) group: usize,
    /// Most positions back that a query sees, itself included.
    pub(super) window: Option<usize>,
    /// Rows of queries of a task of many, where there are such.
    pub(super) tall_rows: Option<usize>,
}

/// Tokens of a piece are at least this many: what a piece costs beside its tokens is not worth less.
const PIECE_TOKENS_MIN: usize = 64;

impl TaskShape {
    /// Rows of queries of a part's tasks.
    fn task_rows(&self, rows: usize) -> usize {
        self.tall_rows.filter(|_| rows > FLAT_ROWS).unwrap_or(FLAT_ROWS)
    }

    /// Runs are cut so that no task has more than its share of the step's reading: a few rows of long
    /// contexts, or a run that all rows share, would keep a few multiprocessors busy, and all others waiting.
    /// `blocks`: tasks that they work at side by side.
    pub(super) fn cut(&self, parts: &[Part], blocks: usize) -> Cut {
        let tokens_of_tasks = |part: &Part| {
            let rows = part.rows * self.group;
            rows.div_ceil(self.task_rows(rows)) * part.tokens
        };
        let all: usize = parts.iter().map(tokens_of_tasks).sum();
        let tall = parts.iter().filter(|part| self.task_rows(part.rows * self.group) == WGMMA_ROWS);
        // A multiprocessor has room for one block of two warpgroups.
        let blocks =
            if 2 * tall.map(tokens_of_tasks).sum::<usize>() > all { blocks.div_ceil(2) } else { blocks };
        let share = all.div_ceil(blocks).next_multiple_of(64);
        Cut { tokens: share.max(PIECE_TOKENS_MIN), rows_max: usize::MAX }
    }
}

/// A step's tables, in host memory.
pub(super) struct StepTables {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    cells: Vec<i32>,
    pub(super) flat: Vec<Task>,
    pub(super) tall: Vec<Task>,
    /// Per part: first block, first lane, tokens, position, whether it is causal, first row.
    parts: Vec<[i32; 6]>,
    /// Per row of a part: token, angle, position, whether it reads nothing else.
    rows: Vec<[i32; 4]>,
    blocks: Vec<i32>,
    first_reading: Vec<i32>,
    readings: Vec<i32>,
    sampled: Vec<i32>,
}

impl StepTables {
    /// The tables of checked slots.
    pub(super) fn new(slots: &[Slot], sampled: &[usize], plan: &AttentionPlan, shape: TaskShape) -> Self {
        let TaskShape { block_tokens, group, window, .. } = shape;
        let int = |number: usize| i32::try_from(number).expect("a step's extents fit 31 bits");
        let mut step = Self {
            tokens: slots.iter().flat_map(|slot| &slot.input).map(|token| int(token.0 as usize)).collect(),
            positions: Vec::new(),
            cells: Vec::new(),
            flat: Vec::new(),
            tall: Vec::new(),
            parts: Vec::new(),
            rows: Vec::new(),
            blocks: Vec::new(),
            first_reading: vec![0],
            readings: Vec::new(),
            sampled: sampled.iter().map(|token| int(*token)).collect(),
        };
        for slot in slots {
            for i in 0..slot.input.len() {
                let at = slot.write_offset as usize + i;
                let block = slot.write_blocks[at / block_tokens].0 as usize;
                step.cells.push(int(block * block_tokens + at % block_tokens));
                step.positions.push(int(slot.start as usize + i));
            }
        }
        for (number, part) in plan.parts.iter().enumerate() {
            step.push_part(part);
            let rows = part.rows * group;
            let per_task = shape.task_rows(rows);
            let tasks = if per_task > FLAT_ROWS { &mut step.tall } else { &mut step.flat };
            for first in (0..rows).step_by(per_task) {
                let count = per_task.min(rows - first);
                let readers = &step.rows[part.first_row..][first / group..=(first + count - 1) / group];
                let (from, to) = seen(part, readers, window);
                tasks.push([number, first, count, from, to].map(int));
            }
        }
        // The longest first: what is begun last should not be what takes longest.
        for tasks in [&mut step.flat, &mut step.tall] {
            tasks.sort_by_key(|[.., from, to]| from - to);
        }
        for token in 0..step.tokens.len() {
            let before = step.readings.len();
            step.readings.extend(plan.rows_of(token).map(|(part, row)| int(part.first_row + row)));
            if let [only] = step.readings[before..] {
                step.rows[only as usize][3] = 1;
                step.readings.truncate(before);
            }
            step.first_reading.push(int(step.readings.len()));
        }
        step
    }

    /// A part and its rows.
    fn push_part(&mut self, part: &Part) {
        let int = |number: usize| number as i32;
        self.parts.push([
            int(self.blocks.len()),
            int(part.first_lane),
            int(part.tokens),
            int(part.position),
            i32::from(part.is_causal),
            int(part.first_row),
        ]);
        self.blocks.extend(part.blocks.iter().map(|block| int(*block)));
        for member in &part.members {
            let row = |i| [int(member.token + i), int(member.angle + i), int(member.position + i), 0];
            self.rows.extend((0..member.tokens).map(row));
        }
    }

    /// A mark of all of them, and of the step's number.
    pub(super) fn mark(&self, number: u64) -> u64 {
        let mut hasher = SipHasher13::new();
        number.hash(&mut hasher);
        let ints = [&self.tokens, &self.positions, &self.cells, &self.blocks, &self.readings, &self.sampled];
        ints.hash(&mut hasher);
        (&self.flat, &self.tall, &self.parts, &self.rows).hash(&mut hasher);
        hasher.finish()
    }

    /// Rows of partial results: none where each token reads one part.
    pub(super) fn partial_rows(&self) -> usize {
        if self.readings.is_empty() { 0 } else { self.rows.len() }
    }

    /// Bytes that [`Self::write`] gives for a step of `rows` rows, but for the struct's own.
    pub(super) fn bytes(&self, rows: usize) -> usize {
        let fill = |(numbers, fill): (&[i32], Option<i32>)| match fill {
            Some(_) => numbers.len().max(rows),
            None => numbers.len(),
        };
        self.arrays().into_iter().map(|array| (fill(array) * size_of::<i32>()).next_multiple_of(ALIGN)).sum()
    }

    /// The struct and, behind it, all it points to but the angles, as they lie at `address`; filled up to
    /// `rows` rows.
    pub(super) fn write(&self, (address, angles): (Address, Address), rows: usize, to: &mut Vec<u8>) {
        to.clear();
        to.resize(TABLES_BYTES + self.bytes(rows), 0);
        let (header, mut body) = to.split_at_mut(TABLES_BYTES);
        let mut fields = header.as_chunks_mut::<8>().0.iter_mut();
        let mut put = |bytes: [u8; 8]| *fields.next().expect("the struct has room") = bytes;
        put(angles.0.to_ne_bytes());
        let mut at = TABLES_BYTES;
        for (numbers, fill) in self.arrays() {
            put(address.at(at).0.to_ne_bytes());
            let count = fill.map_or(numbers.len(), |_| numbers.len().max(rows));
            let bytes = (count * size_of::<i32>()).next_multiple_of(ALIGN);
            let (own, behind) = body.split_at_mut(bytes);
            let (own, more) = own.as_chunks_mut::<4>().0.split_at_mut(numbers.len());
            own.iter_mut().zip(numbers).for_each(|(to, number)| *to = number.to_ne_bytes());
            more.fill(fill.unwrap_or(0).to_ne_bytes());
            (body, at) = (behind, at + bytes);
        }
        for [one, other] in [[self.tokens.len(), self.flat.len()], [self.tall.len(), self.sampled.len()]] {
            let mut both = [0; 8];
            both[..4].copy_from_slice(&(one as i32).to_ne_bytes());
            both[4..].copy_from_slice(&(other as i32).to_ne_bytes());
            put(both);
        }
    }

    /// What the struct points to, in its order behind the angles; of arrays that are filled up, with what.
    fn arrays(&self) -> [(&[i32], Option<i32>); 11] {
        [
            (&self.tokens, Some(0)),
            (&self.positions, Some(0)),
            (&self.cells, Some(-1)),
            (self.flat.as_flattened(), None),
            (self.tall.as_flattened(), None),
            (self.parts.as_flattened(), None),
            (self.rows.as_flattened(), None),
            (&self.blocks, None),
            (&self.first_reading, None),
            (&self.readings, None),
            (&self.sampled, None),
        ]
    }
}

/// The first and the end of a part's tokens that any of the rows sees.
fn seen(part: &Part, rows: &[[i32; 4]], window: Option<usize>) -> (usize, usize) {
    let positions = || rows.iter().map(|row| row[2] as usize);
    let (low, high) = (positions().min().unwrap_or(0), positions().max().unwrap_or(0));
    let to =
        if part.is_causal { part.tokens.min((high + 1).saturating_sub(part.position)) } else { part.tokens };
    let from = window.map_or(0, |window| (low + 1).saturating_sub(window + part.position));
    (from.min(to), to)
}
