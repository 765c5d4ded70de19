//! A step on a GPU: its tables are written, then its kernels are launched, or replayed where they were
//! recorded.

use base::Slot;

use super::extent::StepExtent;
use super::layer::GpuStep;
use super::tables::{StepTables, TaskShape};
use super::{GpuDecoder, GpuMemory};
use crate::attention::plan::AttentionPlan;
use crate::decoder::layer;
use crate::device::cuda::{Address, Buffer, GpuError, recorded_rows};
use crate::parallel::Broken;
use crate::rope::Angles;

/// Decode steps of at most so many rows are recorded.
const RECORDED_ROWS_MAX: usize = 256;

/// Blocks of threads of a recorded step's attention for each multiprocessor: they take its tasks in turn,
/// however many they are.
const RECORDED_BLOCKS: usize = 4;

/// Larger steps have multiples of so many rows.
const ROWS_TILE: usize = 64;

/// Positions whose angles are computed at the first step; whenever there are too few, twice as many.
const ANGLES_MIN: usize = 128;

/// A step whose tables are written.
#[derive(Clone, Copy)]
struct Prepared {
    extent: StepExtent,
    is_recorded: bool,
    /// Rows that it samples.
    sampled: usize,
    /// Its number and all its tables: ranks that compute the same have the same.
    mark: u64,
}

/// What recorded steps are told apart by: their rows, and which of attention's kernels they launch.
pub(super) type Recording = (usize, [bool; 3]);

impl GpuDecoder {
    /// Computes `slots`, writing their keys and values to the pool, and keeps the hidden states before all their
    /// targets and then those of what they sample; gives back how many rows these are.
    ///
    /// The slots must have been checked against pool, vocabulary and context (the executor does).
    pub fn forward(&self, memory: &mut GpuMemory, slots: &[Slot]) -> Result<usize, GpuError> {
        let prepared = self.prepare(memory, slots)?;
        self.meet(prepared.mark)?;
        match prepared.is_recorded {
            true => self.run_recorded(memory, prepared.extent)?,
            false => self.run(memory, prepared.extent)?,
        }
        Ok(prepared.sampled)
    }

    /// Of several ranks each must have come this far before one goes on: memory is given back when the device
    /// rests, which it never does while a rank is waited for. They compare what they are about to compute.
    fn meet(&self, mark: u64) -> Result<(), GpuError> {
        let ranks = self.collective.ranks();
        if ranks == 1 {
            return Ok(());
        }
        let own = [mark as u32, (mark >> 32) as u32];
        let mut all = vec![0.0; own.len() * ranks];
        let met = self.collective.all_gather(&own.map(f32::from_bits), &mut all);
        met.map_err(|Broken| GpuError::OtherRank)?;
        match all.as_chunks::<2>().0.iter().all(|other| other.map(f32::to_bits) == own) {
            true => Ok(()),
            false => Err(GpuError::Lost("the ranks prepare different steps".into())),
        }
    }

    /// Writes the step's tables, and has memory for it.
    fn prepare(&self, memory: &mut GpuMemory, slots: &[Slot]) -> Result<Prepared, GpuError> {
        let angles = self.reach_angles(memory, slots)?;
        let GpuMemory { shape, work, graphs, written, steps, .. } = memory;
        let (tokens, sampled) = flatten(slots);
        let tasks = TaskShape {
            block_tokens: shape.block_tokens,
            group: self.config.heads / self.config.kv_heads,
            window: self.config.sliding_window,
            tall_rows: self.tall_rows(*shape),
        };
        // Two on each multiprocessor, for each head of keys and values.
        let blocks = (2 * self.gpu.multiprocessors()).div_ceil(self.config.kv_heads);
        let plan = AttentionPlan::new(slots, shape.block_tokens, true, |parts| tasks.cut(parts, blocks));
        let step = StepTables::new(slots, &sampled, &plan, tasks);
        let scores = slots.iter().any(|slot| slot.prompt_targets.is_some());
        let is_recorded = tokens <= RECORDED_ROWS_MAX && sampled.len() == tokens && !scores;
        // In whole tiles of a product: each length is planned once, and there are few.
        let rows = if tokens > RECORDED_ROWS_MAX { tokens.next_multiple_of(ROWS_TILE) } else { tokens };
        let extent = StepExtent {
            tokens: rows,
            sampled: sampled.len(),
            in_order: sampled.iter().copied().eq(0..rows),
            flat: step.flat.len(),
            tall: step.tall.len(),
            merges: step.partial_rows() > 0,
        };
        let extent = if is_recorded { self.recorded(extent) } else { extent };
        *steps += 1;
        let mark = if self.collective.ranks() > 1 { step.mark(*steps) } else { *steps };
        let bytes = step.bytes(extent.tokens);
        let sizes = self.step_sizes().of(extent, step.partial_rows(), bytes);
        if !work.has_room(&sizes) {
            graphs.clear(); // they were recorded with addresses that are given back now
            work.fit(&self.gpu, &sizes)?;
        }
        let tables = work.tables();
        step.write((tables, angles), extent.tokens, written);
        self.gpu.write(tables, written)?;
        Ok(Prepared { extent, is_recorded, sampled: sampled.len(), mark })
    }

    /// Waits until what was launched is computed.
    pub fn wait(&self, memory: &GpuMemory) -> Result<(), GpuError> {
        self.gpu.read(memory.work.tables(), &mut [0; 4])
    }

    /// Has the angles of all positions of the slots on the GPU; where.
    fn reach_angles(&self, memory: &mut GpuMemory, slots: &[Slot]) -> Result<Address, GpuError> {
        let Some(rope) = &self.rope else { return Ok(Address(0)) };
        let end = slots.iter().map(|slot| slot.start as usize + slot.input.len()).max().unwrap_or(0);
        let bytes = |positions: usize| 2 * positions * self.pairs() * size_of::<f32>();
        if let Some(angles) = &memory.angles
            && angles.bytes() >= bytes(end)
        {
            return Ok(angles.address());
        }
        memory.angles = None; // first gives back what it has
        let positions = end.next_power_of_two().max(ANGLES_MIN).min(self.config.context_max.max(end));
        let mut angles = Angles::default();
        angles.reach(rope, positions);
        let numbers: Vec<u8> = angles.numbers().iter().flat_map(|number| number.to_ne_bytes()).collect();
        Ok(memory.angles.insert(Buffer::of(&self.gpu, &numbers)?).address())
    }

    /// The extent of all recorded steps of about so many rows, and of the same kernels.
    fn recorded(&self, extent: StepExtent) -> StepExtent {
        let rows = recorded_rows(extent.tokens);
        let most = (RECORDED_BLOCKS * self.gpu.multiprocessors()).div_ceil(self.config.kv_heads);
        let blocks = |tasks: usize| if tasks > 0 { most } else { 0 };
        StepExtent {
            tokens: rows,
            sampled: rows,
            in_order: true,
            flat: blocks(extent.flat),
            tall: blocks(extent.tall),
            merges: extent.merges,
        }
    }

    /// Replays the step, which is recorded at its first time.
    fn run_recorded(&self, memory: &mut GpuMemory, extent: StepExtent) -> Result<(), GpuError> {
        let recording = (extent.tokens, [extent.flat > 0, extent.tall > 0, extent.merges]);
        if !memory.graphs.contains_key(&recording) {
            // Once as it is: what a library sets up at the first use of a shape cannot be recorded.
            self.run(memory, extent)?;
            let graph = self.gpu.record(&mut || self.run(memory, extent))?;
            memory.graphs.insert(recording, graph);
            return Ok(());
        }
        match &memory.graphs[&recording] {
            Some(graph) => self.gpu.replay(&**graph),
            None => self.run(memory, extent),
        }
    }

    /// Launches a step whose tables are written.
    fn run(&self, memory: &GpuMemory, extent: StepExtent) -> Result<(), GpuError> {
        let mut step = GpuStep::new(self, memory, extent);
        layer::compute(&mut step, &self.layers, &self.config, extent.sampled > 0).map(drop)
    }
}

/// How many tokens a step has, and those whose hidden states are kept: before all targets, then those that sample.
fn flatten(slots: &[Slot]) -> (usize, Vec<usize>) {
    let (mut tokens, mut kept, mut sampled) = (0, Vec::new(), Vec::new());
    for slot in slots {
        if let Some(targets) = &slot.prompt_targets {
            kept.extend(tokens..tokens + targets.tokens.len());
        }
        tokens += slot.input.len();
        if slot.sample.is_some() {
            sampled.extend(tokens - 1 - slot.guesses as usize..tokens);
        }
    }
    kept.append(&mut sampled);
    (tokens, kept)
}
