//! The decoder's single operations: a product, a norm, a kernel over rows, and how much memory they take.

use super::tables::TABLES_BYTES;
use super::work::{Sizes, Work};
use super::{Extent, GpuDecoder, GpuLayer, GpuMemory, Norm, Weights};
use crate::device::cuda::{Address, Args, Buffer, Element, GpuError, Grid, Linear};
use crate::pool::PoolShape;

impl GpuDecoder {
    /// Where a layer's keys and values begin in the first block.
    pub(super) fn pool_of(&self, memory: &GpuMemory, layer: usize) -> [Address; 2] {
        let bytes = self.layer_numbers(memory.shape) * self.element.bytes();
        [2 * layer, 2 * layer + 1].map(|number| memory.pool.address().at(number * bytes))
    }

    pub(super) fn attention_width(&self) -> usize {
        self.config.heads * self.config.head_dim
    }

    /// Pairs of a head that are rotated.
    pub(super) fn pairs(&self) -> usize {
        if self.rope.is_some() { self.config.head_dim / 2 } else { 0 }
    }

    /// Whether there is a kernel for tensor cores.
    pub(super) fn is_on_tensor_cores(&self, shape: PoolShape) -> bool {
        self.element == Element::Bf16 && [64, 128].contains(&shape.head_dim)
    }

    /// What a block reads: the normalised stream, or the stream itself, rounded, where blocks normalise behind.
    pub(super) fn block_input(
        &self,
        norm: &Norm,
        work: &Work,
        (x, rows): (Address, usize),
    ) -> Result<Address, GpuError> {
        let normed = work.normed();
        match self.config.norm_first {
            true => self.norm(norm, (x, normed), rows, self.element)?,
            false => self.round((x, normed), rows * self.config.hidden)?,
        }
        Ok(normed)
    }

    /// Normalises the stream behind a block, where the model does.
    pub(super) fn block_output(&self, norm: &Norm, (x, rows): (Address, usize)) -> Result<(), GpuError> {
        if self.config.norm_first { Ok(()) } else { self.norm(norm, (x, x), rows, Element::F32) }
    }

    /// `x +=` the product of all ranks' inputs with their weights; rank 0 brings `x` itself into the sum.
    pub(super) fn add_product(
        &self,
        weights: &Weights,
        (input, x): (Address, Address),
        rows: usize,
    ) -> Result<(), GpuError> {
        self.linear(weights, (input, x), rows, (Element::F32, self.gpu.rank() == 0))?;
        self.gpu.all_reduce(x, rows * weights.outputs)
    }

    pub(super) fn norm(
        &self,
        norm: &Norm,
        (x, out): (Address, Address),
        rows: usize,
        element: Element,
    ) -> Result<(), GpuError> {
        let bias = norm.bias.as_ref().map(Buffer::address);
        let args = Args::new([Some(x), Some(norm.weight.address()), bias, Some(out)])
            .numbers(&[self.config.hidden])
            .float(norm.epsilon);
        self.launch("norm", Some(element), Grid::rows(rows, 256), args)
    }

    /// Rounds numbers to what weights are kept as.
    pub(super) fn round(&self, (from, to): (Address, Address), count: usize) -> Result<(), GpuError> {
        let args = Args::new([Some(from), Some(to)]).numbers(&[count]);
        let grid = Grid::rows(count.div_ceil(256).clamp(1, 1024), 256);
        self.launch("round", Some(self.element), grid, args)
    }

    /// Rows of tokens that sample, to a place of their own.
    pub(super) fn gather(
        &self,
        memory: &GpuMemory,
        (from, to): (Address, Address),
        (element, width): (Element, usize),
        extent: Extent,
    ) -> Result<(), GpuError> {
        let args = Args::new([memory.work.tables(), from, to].map(Some)).numbers(&[width]);
        self.launch("gather", Some(element), Grid::rows(extent.sampled, 256), args)
    }

    pub(super) fn linear(
        &self,
        weights: &Weights,
        (x, y): (Address, Address),
        rows: usize,
        (out, adds): (Element, bool),
    ) -> Result<(), GpuError> {
        self.gpu.linear(&Linear {
            rows,
            outputs: weights.outputs,
            inputs: weights.inputs,
            element: self.element,
            x,
            w: weights.matrix.address(),
            bias: weights.bias.as_ref().map(Buffer::address),
            y,
            out,
            adds,
        })
    }

    /// Launches a kernel, the one for numbers of this kind where there are several.
    pub(super) fn launch(
        &self,
        name: &str,
        element: Option<Element>,
        grid: Grid,
        args: Args,
    ) -> Result<(), GpuError> {
        match element {
            Some(element) => self.gpu.launch(&format!("{name}_{}", element.suffix()), grid, &args.bytes()),
            None => self.gpu.launch(name, grid, &args.bytes()),
        }
    }

    /// Bytes of each piece of a step's memory.
    pub(super) fn sizes(&self, extent: Extent, partial_rows: usize, tables: usize) -> Sizes {
        let (config, single, number) = (&self.config, size_of::<f32>(), self.element.bytes());
        let (tokens, sampled) = (extent.tokens, extent.sampled);
        let width = self.attention_width();
        let widest = |pick: fn(&GpuLayer) -> usize| self.layers.iter().map(pick).max().unwrap_or(0);
        let projected = self.project_in.is_some();
        Sizes {
            tables: tables + TABLES_BYTES,
            x: tokens * config.hidden * single,
            normed: tokens * config.hidden * number,
            qkv: tokens * widest(|layer| layer.qkv.outputs) * number,
            attended: tokens * width * number,
            wide: tokens * widest(|layer| layer.up.outputs) * number,
            inner: tokens * widest(|layer| layer.down.inputs) * number,
            partials: partial_rows * config.heads * (config.head_dim + 2) * single,
            embedded: if projected { tokens * config.embedding * single } else { 0 },
            rounded: if projected { tokens * config.embedding.max(config.hidden) * number } else { 0 },
            last_x: sampled * config.hidden * single,
            last_attended: sampled * width * number,
            hidden: sampled * config.embedding.max(config.hidden) * number,
        }
    }
}
