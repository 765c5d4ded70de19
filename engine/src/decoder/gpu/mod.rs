//! The same transformer on a GPU: every operation is a kernel of [`crate::device::cuda`] or a product with weights.
//!
//! The residual stream is single precision throughout; what products read is kept as weights are. A step's tables
//! lie at one address, and each launch depends on the number of its rows alone, so that a decode step is recorded
//! once for all steps of about its size and replayed.

mod launches;
mod load;
mod survey;
mod tables;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use base::{Moves, Slot};

use crate::attention::plan::AttentionPlan;
use crate::checkpoint::ModelConfig;
use crate::checkpoint::config::{Norm as NormKind, Position};
use crate::device::Cpu;
use crate::device::cuda::{Address, Args, Buffer, Element, Gpu, GpuError, Graph, Grid, HostBuffer};
use crate::pool::PoolShape;
use crate::rope::{Angles, Rope};
pub use load::GpuLoadError;
pub use survey::{Pick, Survey, Wish};
use tables::{FLAT_ROWS, Heads, Step, TALL_ROWS};
use work::Work;

/// Decode steps of at most so many rows are recorded.
const RECORDED_ROWS_MAX: usize = 256;

/// Blocks of threads of a recorded step's attention for each multiprocessor: they take its tasks in turn, however many they are.
const RECORDED_BLOCKS: usize = 4;

/// Larger steps have multiples of so many rows.
const ROWS_TILE: usize = 64;

/// Positions whose angles are computed at the first step; whenever there are too few, twice as many.
const ANGLES_MIN: usize = 128;

/// A model, or a rank of one, whose weights are on a GPU.
pub struct GpuDecoder {
    config: ModelConfig,
    gpu: Arc<dyn Gpu>,
    /// For what is computed beside the GPU.
    cpu: Arc<Cpu>,
    element: Element,
    rope: Option<Rope>,
    embedding: Option<Buffer>,
    positions: Option<Buffer>,
    project_in: Option<Weights>,
    project_out: Option<Weights>,
    layers: Vec<GpuLayer>,
    final_norm: Option<Norm>,
    head: Weights,
}

/// One layer's weights.
struct GpuLayer {
    attn_norm: Norm,
    qkv: Weights,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    out: Weights,
    mlp_norm: Norm,
    /// Gates before what they gate, where the block is gated.
    up: Weights,
    down: Weights,
}

/// A matrix `[outputs, inputs]`, and what is added behind it.
struct Weights {
    matrix: Buffer,
    /// Of each output, where they are eight-bit floats.
    scales: Option<Buffer>,
    bias: Option<Buffer>,
    outputs: usize,
    inputs: usize,
}

/// Weights of a normalisation.
struct Norm {
    weight: Buffer,
    /// Only where means are taken off.
    bias: Option<Buffer>,
    epsilon: f32,
}

/// A rank's keys and values, and the memory of its steps.
pub struct GpuMemory {
    /// Recorded decode steps. Before all they have the addresses of, so that they are dropped first.
    graphs: HashMap<Recording, Option<Box<dyn Graph>>>,
    shape: PoolShape,
    /// `[blocks][layers][keys, values][kv_heads][block_tokens][head_dim]`: a block is one stretch, which moves as one.
    pool: Buffer,
    /// Where blocks of the pool move to that give way to others, where there is such a place; laid out as the pool is.
    tier: Option<HostBuffer>,
    work: Work,
    /// [`Angles`] of the positions that steps have come to, and of more.
    angles: Option<Buffer>,
    /// A step's tables on their way.
    written: Vec<u8>,
    /// The step that is launched next.
    prepared: Option<Prepared>,
    /// Steps so far.
    steps: u64,
    /// What the last one was, for ranks to compare.
    mark: u64,
}

impl GpuMemory {
    /// A mark of the last step: its number and all its tables. Ranks that computed the same have the same.
    pub fn mark(&self) -> u64 {
        self.mark
    }
}

/// What the kernels of a step are launched over.
#[derive(Clone, Copy)]
struct Extent {
    /// Rows of activations.
    tokens: usize,
    /// Rows that are sampled.
    sampled: usize,
    /// Blocks of threads for tasks of few rows, and of many.
    flat: usize,
    tall: usize,
    /// Whether any token's attention is made of several results.
    merges: bool,
}

/// A step whose tables are written.
#[derive(Clone, Copy)]
struct Prepared {
    extent: Extent,
    is_recorded: bool,
    /// Rows that it samples.
    sampled: usize,
}

/// What recorded steps are told apart by: their rows, and which of attention's kernels they launch.
type Recording = (usize, [bool; 3]);

impl GpuDecoder {
    /// Its configuration; a rank's own where it is one.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What computes beside the GPU.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.cpu
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.gpu
    }

    /// What weights, keys and values are kept as.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Bytes of weights that one step reads, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        self.matrices().map(|weights| weights.matrix.bytes()).sum()
    }

    /// Operations of a step's products: [`super::Decoder::step_operations`].
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        let size = |weights: &Weights| (weights.outputs * weights.inputs) as f64;
        let all: f64 = self.matrices().map(size).sum();
        2.0 * ((all - size(&self.head)) * tokens as f64 + size(&self.head) * sampled as f64)
    }

    fn matrices(&self) -> impl Iterator<Item = &Weights> {
        let layers = self.layers.iter().flat_map(|layer| [&layer.qkv, &layer.out, &layer.up, &layer.down]);
        layers.chain([&self.head])
    }

    /// A pool of `shape` and the memory of steps.
    pub fn memory(&self, shape: PoolShape) -> Result<GpuMemory, GpuError> {
        let bytes = shape.blocks * self.block_numbers(shape) * self.element.bytes();
        Ok(GpuMemory {
            shape,
            pool: Buffer::new(&self.gpu, bytes)?,
            tier: None,
            work: Work::default(),
            graphs: HashMap::new(),
            angles: None,
            written: Vec::new(),
            prepared: None,
            steps: 0,
            mark: 0,
        })
    }

    /// Numbers of a block's keys in one layer.
    fn layer_numbers(&self, shape: PoolShape) -> usize {
        shape.kv_heads * shape.block_tokens * shape.head_dim
    }

    /// Numbers of a block.
    fn block_numbers(&self, shape: PoolShape) -> usize {
        shape.layers * 2 * self.layer_numbers(shape)
    }

    /// Gives the pool a tier of so many blocks of pinned host memory.
    pub fn add_tier(&self, memory: &mut GpuMemory, blocks: usize) -> Result<(), GpuError> {
        let bytes = blocks * self.block_numbers(memory.shape) * self.element.bytes();
        memory.tier = Some(HostBuffer::new(&self.gpu, bytes)?);
        Ok(())
    }

    /// Moves blocks between pool and tier, which hold all that are named: first those that go, then those that return.
    pub fn move_blocks(&self, memory: &GpuMemory, moves: &Moves) -> Result<(), GpuError> {
        let Some(tier) = &memory.tier else { return Ok(()) };
        let bytes = self.block_numbers(memory.shape) * self.element.bytes();
        let at = |start: Address, block: u32| start.at(block as usize * bytes);
        let (pool, host) = (memory.pool.address(), tier.address());
        for one in &moves.out {
            self.gpu.copy_out(at(pool, one.from.0), at(host, one.to.0), bytes)?;
        }
        for one in &moves.back {
            self.gpu.copy_back(at(host, one.from.0), at(pool, one.to.0), bytes)?;
        }
        Ok(())
    }

    /// Computes `slots`, writing their keys and values to the pool, and keeps the hidden states of what they sample; gives
    /// back how many rows these are.
    ///
    /// The slots must have been checked against pool, vocabulary and context (the executor does).
    pub fn forward(&self, memory: &mut GpuMemory, slots: &[Slot]) -> Result<usize, GpuError> {
        self.prepare(memory, slots)?;
        self.launch_prepared(memory)
    }

    /// The first half of [`Self::forward`]: the step's tables, and memory for it. Of several ranks each must have come this far
    /// before one goes on: memory is given back when the device rests, which it never does while a rank is waited for.
    pub fn prepare(&self, memory: &mut GpuMemory, slots: &[Slot]) -> Result<(), GpuError> {
        let angles = self.reach_angles(memory, slots)?;
        let GpuMemory { shape, work, graphs, written, steps, mark, prepared, .. } = memory;
        let mut sampled = Vec::new();
        let mut token = 0;
        for slot in slots {
            token += slot.input.len();
            if slot.sample.is_some() {
                sampled.extend(token - 1 - slot.guesses as usize..token);
            }
        }
        let heads = Heads {
            block_tokens: shape.block_tokens,
            group: self.config.heads / self.config.kv_heads,
            window: self.config.sliding_window,
            on_tensor_cores: self.is_on_tensor_cores(*shape),
        };
        // Two on each multiprocessor, for each head of keys and values.
        let blocks = (2 * self.gpu.multiprocessors()).div_ceil(self.config.kv_heads);
        let plan = AttentionPlan::new(slots, shape.block_tokens, true, |parts| heads.cut(parts, blocks));
        let step = Step::new(slots, &sampled, &plan, heads);
        let is_recorded = token <= RECORDED_ROWS_MAX && sampled.len() == token;
        let extent = Extent {
            // In whole tiles of a product: each length is planned once, and there are few.
            tokens: if token > RECORDED_ROWS_MAX { token.next_multiple_of(ROWS_TILE) } else { token },
            sampled: sampled.len(),
            flat: step.flat.len(),
            tall: step.tall.len(),
            merges: step.partial_rows() > 0,
        };
        let extent = if is_recorded { self.recorded(extent) } else { extent };
        *steps += 1;
        *mark = if self.gpu.ranks() > 1 { step.mark(*steps) } else { *steps };
        let bytes = step.bytes(extent.tokens);
        let sizes = self.sizes(extent, step.partial_rows(), bytes);
        if !work.has_room(&sizes) {
            graphs.clear(); // they were recorded with addresses that are given back now
            work.fit(&self.gpu, &sizes)?;
        }
        let tables = work.tables();
        step.write((tables, angles), extent.tokens, written);
        self.gpu.write(tables, written)?;
        *prepared = Some(Prepared { extent, is_recorded, sampled: sampled.len() });
        Ok(())
    }

    /// The second half: what was prepared last is computed.
    pub fn launch_prepared(&self, memory: &mut GpuMemory) -> Result<usize, GpuError> {
        let prepared = memory.prepared.take().ok_or_else(|| GpuError::Lost("no step was prepared".into()))?;
        match prepared.is_recorded {
            true => self.run_recorded(memory, prepared.extent)?,
            false => self.run(memory, prepared.extent)?,
        }
        Ok(prepared.sampled)
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
    fn recorded(&self, extent: Extent) -> Extent {
        let rows = match extent.tokens {
            0..=4 => extent.tokens.next_power_of_two(),
            5..=32 => extent.tokens.next_multiple_of(4),
            33..=128 => extent.tokens.next_multiple_of(16),
            _ => extent.tokens.next_multiple_of(64),
        };
        let most = (RECORDED_BLOCKS * self.gpu.multiprocessors()).div_ceil(self.config.kv_heads);
        let blocks = |tasks: usize| if tasks > 0 { most } else { 0 };
        Extent {
            tokens: rows,
            sampled: rows,
            flat: blocks(extent.flat),
            tall: blocks(extent.tall),
            merges: extent.merges,
        }
    }

    /// Replays the step, which is recorded at its first time.
    fn run_recorded(&self, memory: &mut GpuMemory, extent: Extent) -> Result<(), GpuError> {
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
    fn run(&self, memory: &GpuMemory, extent: Extent) -> Result<(), GpuError> {
        self.embed(memory, extent)?;
        let work = &memory.work;
        for (number, layer) in self.layers.iter().enumerate() {
            let is_last = number + 1 == self.layers.len();
            self.write_keys_and_values(memory, (number, layer), extent)?;
            if is_last && extent.sampled == 0 {
                return Ok(()); // nothing reads what would come
            }
            self.attend(memory, number, extent)?;
            let (x, attended, rows) = match is_last {
                true => {
                    // Nothing reads the other tokens beyond their keys and values.
                    let (hidden, width) = (self.config.hidden, self.attention_width());
                    self.gather(memory, (work.x(), work.last_x()), (Element::F32, hidden), extent)?;
                    let attended = (work.attended(), work.last_attended());
                    self.gather(memory, attended, (self.element, width), extent)?;
                    (work.last_x(), work.last_attended(), extent.sampled)
                }
                false => (work.x(), work.attended(), extent.tokens),
            };
            self.finish_layer(layer, work, (x, attended), rows)?;
        }
        self.finish(work, extent.sampled)
    }

    /// The stream = embeddings, with learned positions.
    fn embed(&self, memory: &GpuMemory, extent: Extent) -> Result<(), GpuError> {
        let (work, config) = (&memory.work, &self.config);
        let table = self.embedding.as_ref().unwrap_or(&self.head.matrix).address();
        let out = if self.project_in.is_some() { work.embedded() } else { work.x() };
        let width = config.embedding;
        let args = Args::new([Some(work.tables()), Some(table), None, Some(out)]).numbers(&[
            width,
            self.gpu.rank() * config.vocab,
            config.vocab,
            0,
        ]);
        self.launch("embed", Some(self.element), Grid::rows(extent.tokens, 256), args)?;
        self.gpu.all_reduce(out, extent.tokens * width)?;
        if let Some(project) = &self.project_in {
            self.round((out, work.rounded()), extent.tokens * width)?;
            self.linear(project, work, (work.rounded(), work.x()), extent.tokens, (Element::F32, false))?;
        }
        if let (Some(table), Position::Learned { offset }) = (&self.positions, config.position) {
            let args = Args::new([Some(work.tables()), None, Some(table.address()), Some(work.x())])
                .numbers(&[config.hidden, 0, 0, offset as usize]);
            self.launch("add_positions", None, Grid::rows(extent.tokens, 256), args)?;
        }
        Ok(())
    }

    /// Queries, keys and values of all tokens; keys and values go to the pool before any attention, since slots may read what
    /// others of the step write.
    fn write_keys_and_values(
        &self,
        memory: &GpuMemory,
        (number, layer): (usize, &GpuLayer),
        extent: Extent,
    ) -> Result<(), GpuError> {
        let (work, config) = (&memory.work, &self.config);
        let input = self.block_input((&layer.attn_norm, &layer.qkv), work, (work.x(), extent.tokens))?;
        self.linear(&layer.qkv, work, (input, work.qkv()), extent.tokens, (self.element, false))?;
        let [keys, values] = self.pool_of(memory, number);
        let norm = |norm: &Option<Norm>| norm.as_ref().map(|norm| norm.weight.address());
        let addresses = [work.tables(), work.qkv(), keys, values].map(Some);
        let norms = [norm(&layer.q_norm), norm(&layer.k_norm)];
        let epsilon = layer.q_norm.as_ref().map_or(0.0, |norm| norm.epsilon);
        let args = Args::new(addresses.into_iter().chain(norms))
            .numbers(&[config.heads, config.kv_heads, config.head_dim, self.pairs()])
            .numbers(&[memory.shape.block_tokens, self.block_numbers(memory.shape)])
            .float(epsilon);
        let queries = if layer.q_norm.is_some() { config.heads } else { 0 };
        let warps = extent.tokens * (queries + 2 * config.kv_heads);
        self.launch("rotate", Some(self.element), Grid::rows(warps.div_ceil(4), 128), args)
    }

    /// Attention of all tokens: tasks of few rows, tasks of many, then the merge of those that read several parts.
    fn attend(&self, memory: &GpuMemory, number: usize, extent: Extent) -> Result<(), GpuError> {
        let (work, config) = (&memory.work, &self.config);
        let [keys, values] = self.pool_of(memory, number);
        let addresses = [work.tables(), work.qkv(), keys, values, work.partials(), work.attended()];
        let scale = std::f32::consts::LOG2_E / (config.head_dim as f32).sqrt();
        let args = Args::new(addresses.map(Some))
            .numbers(&[config.heads, config.kv_heads, config.head_dim, self.pairs()])
            .numbers(&[memory.shape.block_tokens, self.block_numbers(memory.shape)])
            .numbers(&[config.sliding_window.unwrap_or(0)])
            .float(scale);
        let dim = config.head_dim;
        let blocks = |tasks: usize| [tasks as u32, config.kv_heads as u32];
        if self.is_on_tensor_cores(memory.shape) {
            for (name, tasks, rows) in [("flat", extent.flat, FLAT_ROWS), ("tall", extent.tall, TALL_ROWS)] {
                let shared = ((rows + 4 * 64) * dim * self.element.bytes()) as u32;
                let grid = Grid { blocks: blocks(tasks), threads: 128, shared };
                if tasks > 0 {
                    self.launch(&format!("attend_{name}_{dim}"), None, grid, args.clone())?;
                }
            }
        } else {
            let shared = (((16 + 32) * (dim + 1) + 32 * dim) * size_of::<f32>()) as u32;
            let grid = Grid { blocks: blocks(extent.flat), threads: 128, shared };
            self.launch("attend", Some(self.element), grid, args.clone())?; // all tasks are of few rows
        }
        if !extent.merges {
            return Ok(());
        }
        let warps = extent.tokens * config.heads;
        self.launch("merge", Some(self.element), Grid::rows(warps.div_ceil(4), 128), args)
    }

    /// The rest of a layer: output projection, then the feed-forward block.
    fn finish_layer(
        &self,
        layer: &GpuLayer,
        work: &Work,
        (x, attended): (Address, Address),
        rows: usize,
    ) -> Result<(), GpuError> {
        let attended = self.rounded_for(&layer.out, work, (attended, self.element), rows)?;
        self.add_product(&layer.out, work, (attended, x), rows)?;
        self.block_output(&layer.attn_norm, (x, rows))?;
        let input = self.block_input((&layer.mlp_norm, &layer.up), work, (x, rows))?;
        let inner = self.activated(layer, work, input, rows)?;
        self.add_product(&layer.down, work, (inner, x), rows)?;
        self.block_output(&layer.mlp_norm, (x, rows))
    }

    /// Final normalisation and projection: the hidden states from which logits follow.
    fn finish(&self, work: &Work, rows: usize) -> Result<(), GpuError> {
        let to = if self.project_out.is_some() { work.rounded() } else { work.hidden() };
        match &self.final_norm {
            Some(norm) => self.norm(norm, (work.last_x(), to), rows, self.element)?,
            None => self.round((work.last_x(), to), rows * self.config.hidden)?,
        }
        match &self.project_out {
            Some(project) => self.linear(project, work, (to, work.hidden()), rows, (self.element, false)),
            None => Ok(()),
        }
    }
}

/// A normalisation's epsilon.
fn epsilon(kind: NormKind) -> f32 {
    match kind {
        NormKind::Rms { epsilon } | NormKind::Layer { epsilon } => epsilon,
    }
}
