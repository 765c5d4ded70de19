//! The layers' operations as kernels and products: where each finds its numbers, and over how many rows.

use super::extent::StepExtent;
use super::launches::{Product, Stream};
use super::tables::{FLAT_ROWS, TALL_ROWS};
use super::workspace::GpuWorkspace;
use super::{GpuDecoder, GpuMatrix, GpuMemory, GpuNorm};
use crate::checkpoint::config::Position;
use crate::decoder::layer::{LayerOps, LayerWeights};
use crate::device::cuda::{Address, Args, Element, GpuError, Grid};

/// Warps of a block that merges parts of attention: `MERGING_WARPS` of the kernels.
const MERGING_WARPS: usize = 4;

/// Such blocks on a multiprocessor, up to which each has one token's head: by registers that many lie there.
const MERGING_BLOCKS: usize = 4;

/// The launches of a step whose tables are written.
pub(super) struct GpuStep<'a> {
    decoder: &'a GpuDecoder,
    memory: &'a GpuMemory,
    work: &'a GpuWorkspace,
    extent: StepExtent,
    /// The residual stream, single precision: of all tokens, in the end of those that sample.
    x: Stream,
    /// What attention gave for its rows.
    attended: Address,
    /// What the block's next product reads.
    input: Address,
}

impl<'a> GpuStep<'a> {
    pub(super) fn new(decoder: &'a GpuDecoder, memory: &'a GpuMemory, extent: StepExtent) -> Self {
        let work = &memory.work;
        let x = Stream { x: work.x(), rows: extent.tokens };
        Self { decoder, memory, work, extent, x, attended: work.attended(), input: work.normed() }
    }

    /// What `rotate` and the kernels of attention begin with, and the numbers that both read.
    fn attention_args(&self, addresses: impl IntoIterator<Item = Option<Address>>) -> Args {
        let config = &self.decoder.config;
        let block_numbers = self.decoder.block_bytes(self.memory.shape) / self.decoder.kept_bytes();
        Args::new(addresses)
            .numbers(&[config.heads, config.kv_heads, config.head_dim, self.decoder.pairs()])
            .numbers(&[self.memory.shape.block_tokens, block_numbers])
    }

    /// Rows of tokens that are kept, to a place of their own; what a step has more of them is the first token's.
    fn gather(&self, (from, to): (Address, Address), element: Element, width: usize) -> Result<(), GpuError> {
        let args = Args::new([self.work.tables(), from, to].map(Some)).numbers(&[width]);
        self.decoder.launch("gather", Some(element), Grid::rows(self.extent.sampled, 256), args)
    }

    /// `x +=` the product of all ranks' inputs with their weights; rank 0 brings `x` itself into the sum.
    fn add_product(&self, weights: &GpuMatrix, input: Address) -> Result<(), GpuError> {
        let Stream { x, rows } = self.x;
        let adds = self.decoder.gpu.rank() == 0;
        let product = Product { weights, x: input, y: x, rows, out: Element::F32, adds };
        self.decoder.multiply(self.work, product)?;
        self.decoder.gpu.all_reduce(x, rows * weights.outputs)
    }
}

impl LayerOps for GpuStep<'_> {
    type Matrix = GpuMatrix;
    type Norm = GpuNorm;
    /// They stay where they are.
    type Hidden = ();
    type Error = GpuError;

    fn embed(&mut self) -> Result<(), GpuError> {
        let Self { decoder, work, .. } = *self;
        let (config, tokens) = (&decoder.config, self.extent.tokens);
        let table = decoder.embedding.as_ref().unwrap_or(&decoder.head.matrix).address();
        let out = if decoder.project_in.is_some() { work.embedded() } else { work.x() };
        let width = config.embedding;
        let numbers = [width, decoder.gpu.rank() * config.vocab, config.vocab, 0];
        let args = Args::new([Some(work.tables()), Some(table), None, Some(out)]).numbers(&numbers);
        decoder.launch("embed", Some(decoder.element), Grid::rows(tokens, 256), args)?;
        decoder.gpu.all_reduce(out, tokens * width)?;
        if let Some(weights) = &decoder.project_in {
            decoder.round((out, work.rounded()), tokens * width)?;
            let (x, y, out) = (work.rounded(), work.x(), Element::F32);
            decoder.multiply(work, Product { weights, x, y, rows: tokens, out, adds: false })?;
        }
        if let (Some(table), Position::Learned { offset }) = (&decoder.positions, &config.position) {
            let args = Args::new([Some(work.tables()), None, Some(table.address()), Some(work.x())])
                .numbers(&[config.hidden, 0, 0, *offset as usize]);
            decoder.launch("add_positions", None, Grid::rows(tokens, 256), args)?;
        }
        Ok(())
    }

    fn block_input(&mut self, norm: Option<&GpuNorm>, weights: &GpuMatrix) -> Result<(), GpuError> {
        let Self { decoder, work, x, .. } = *self;
        self.input = match (norm, &weights.scales) {
            (Some(norm), None) => decoder.normalise(norm, x, work.normed(), decoder.element)?,
            (None, None) => decoder.round((x.x, work.normed()), x.rows * decoder.config.hidden)?,
            (None, Some(_)) => decoder.read_by(weights, work, x, Element::F32)?,
            (Some(norm), Some(_)) => decoder.normalise_to_fp8(norm, x, work)?,
        };
        Ok(())
    }

    fn project_qkv(&mut self, weights: &GpuMatrix) -> Result<(), GpuError> {
        let Self { decoder, work, input, .. } = *self;
        let (y, rows, out) = (work.qkv(), self.x.rows, decoder.element);
        decoder.multiply(work, Product { weights, x: input, y, rows, out, adds: false })
    }

    fn write_keys_and_values(
        &mut self,
        number: usize,
        layer: &LayerWeights<GpuMatrix, GpuNorm>,
    ) -> Result<(), GpuError> {
        let Self { decoder, work, .. } = *self;
        let config = &decoder.config;
        let [keys, values] = decoder.pool_of(self.memory, number);
        let norm = |norm: &Option<GpuNorm>| norm.as_ref().map(|norm| norm.weight.address());
        let addresses = [work.tables(), work.qkv(), keys, values].map(Some);
        let norms = [norm(&layer.q_norm), norm(&layer.k_norm)];
        let epsilon = layer.q_norm.as_ref().map_or(0.0, |norm| norm.epsilon);
        let args = self.attention_args(addresses.into_iter().chain(norms)).float(epsilon);
        let queries = if layer.q_norm.is_some() { config.heads } else { 0 };
        let warps = self.extent.tokens * (queries + 2 * config.kv_heads);
        let name = format!("rotate{}", decoder.kept_name());
        decoder.launch(&name, Some(decoder.element), Grid::rows(warps.div_ceil(4), 128), args)
    }

    /// Tasks of few rows, tasks of many, then the merge of those that read several parts.
    fn attend(&mut self, number: usize) -> Result<(), GpuError> {
        let Self { decoder, work, extent, .. } = *self;
        let config = &decoder.config;
        let [keys, values] = decoder.pool_of(self.memory, number);
        let addresses = [work.tables(), work.qkv(), keys, values, work.partials(), work.attended()];
        let scale = std::f32::consts::LOG2_E / (config.head_dim as f32).sqrt();
        let window = config.sliding_window.unwrap_or(0);
        let args = self.attention_args(addresses.map(Some)).numbers(&[window]).float(scale);
        let dim = config.head_dim;
        // Blocks take tasks in turn where a grid has no room for all.
        let blocks = |tasks: usize| [config.kv_heads as u32, tasks.min(usize::from(u16::MAX)) as u32];
        if decoder.is_on_tensor_cores(self.memory.shape) {
            // Queries, and two or four tiles of 64 keys and values; or one tile, and two of half its bytes.
            let bytes = |rows: usize| (rows * dim * decoder.element.bytes()) as u32;
            let tall = match decoder.is_on_warpgroups() {
                true => ("wgmma", extent.tall, 256, bytes(4 * 2 * 64) + 1024),
                false => ("tall", extent.tall, 128, bytes(TALL_ROWS + 2 * 2 * 64)),
            };
            for (name, tasks, threads, shared) in
                [("flat", extent.flat, 128, bytes(FLAT_ROWS + 2 * 2 * 64)), tall]
            {
                let grid = Grid { blocks: blocks(tasks), threads, shared, cluster: 1 };
                if tasks > 0 {
                    let name = format!("attend_{name}_{dim}{}", decoder.kept_name());
                    decoder.launch(&name, Some(decoder.element), grid, args.clone())?;
                }
            }
        } else {
            let shared = (((16 + 32) * (dim + 1) + 32 * dim) * size_of::<f32>()) as u32;
            let grid = Grid { blocks: blocks(extent.flat), threads: 128, shared, cluster: 1 };
            let name = format!("attend{}", decoder.kept_name());
            decoder.launch(&name, Some(decoder.element), grid, args.clone())?; // all tasks are of few rows
        }
        if !extent.merges {
            return Ok(());
        }
        // A block for each where the card has room for all side by side.
        let heads = extent.tokens * config.heads;
        let warps = if heads <= MERGING_BLOCKS * decoder.gpu.multiprocessors() { MERGING_WARPS } else { 1 };
        let grid = Grid::rows((heads * warps).div_ceil(MERGING_WARPS), 32 * MERGING_WARPS as u32);
        decoder.launch("merge", Some(decoder.element), grid, args.numbers(&[warps]))
    }

    fn keep_sampled(&mut self) -> Result<(), GpuError> {
        let Self { decoder, work, extent, .. } = *self;
        if extent.keeps_all {
            return Ok(()); // as in a decode step
        }
        self.gather((work.x(), work.last_x()), Element::F32, decoder.config.hidden)?;
        let width = decoder.attention_width();
        self.gather((work.attended(), work.last_attended()), decoder.element, width)?;
        self.x = Stream { x: work.last_x(), rows: self.extent.sampled };
        self.attended = work.last_attended();
        Ok(())
    }

    fn add_attended(&mut self, layer: &LayerWeights<GpuMatrix, GpuNorm>) -> Result<(), GpuError> {
        let out = &layer.out;
        let attended = Stream { x: self.attended, rows: self.x.rows };
        let input = self.decoder.read_by(out, self.work, attended, self.decoder.element)?;
        self.add_product(out, input)
    }

    fn project_up(&mut self, layer: &LayerWeights<GpuMatrix, GpuNorm>) -> Result<(), GpuError> {
        let input = Stream { x: self.input, rows: self.x.rows };
        self.input = self.decoder.activated(layer, self.work, input)?;
        Ok(())
    }

    fn add_inner(&mut self, layer: &LayerWeights<GpuMatrix, GpuNorm>) -> Result<(), GpuError> {
        self.add_product(&layer.down, self.input)
    }

    fn normalise_stream(&mut self, norm: &GpuNorm) -> Result<(), GpuError> {
        self.decoder.normalise(norm, self.x, self.x.x, Element::F32).map(drop)
    }

    fn finish(&mut self) -> Result<(), GpuError> {
        let Self { decoder, work, x, .. } = *self;
        let to = if decoder.project_out.is_some() { work.rounded() } else { work.hidden() };
        match &decoder.final_norm {
            Some(norm) => decoder.normalise(norm, x, to, decoder.element)?,
            None => decoder.round((x.x, to), x.rows * decoder.config.hidden)?,
        };
        let Some(weights) = &decoder.project_out else { return Ok(()) };
        let (y, rows, out) = (work.hidden(), x.rows, decoder.element);
        decoder.multiply(work, Product { weights, x: to, y, rows, out, adds: false })
    }
}
