//! The decoder's single operations: a product, a norm, a kernel over rows, and how much memory they take.

use super::tables::TABLES_BYTES;
use super::work::{Sizes, Work};
use super::{Extent, GpuDecoder, GpuLayer, GpuMemory, Norm, Weights};
use crate::device::cuda::{Address, Args, Buffer, Element, Factors, GpuError, Grid, Linear};
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

    /// What a block's first product reads: the normalised stream, or the stream itself where blocks normalise behind; as
    /// that product's weights are.
    pub(super) fn block_input(
        &self,
        (norm, weights): (&Norm, &Weights),
        work: &Work,
        (x, rows): (Address, usize),
    ) -> Result<Address, GpuError> {
        let normed = work.normed();
        match (self.config.norm_first, &weights.scales) {
            (true, None) => self.norm(norm, (x, normed), rows, self.element)?,
            (false, None) => self.round((x, normed), rows * self.config.hidden)?,
            (false, Some(_)) => return self.rounded_for(weights, work, (x, Element::F32), rows),
            (true, Some(_)) => {
                let bias = norm.bias.as_ref().map(Buffer::address);
                let to = [work.fp8(), work.row_scales()].map(Some);
                let args = Args::new([Some(x), Some(norm.weight.address()), bias].into_iter().chain(to))
                    .numbers(&[self.config.hidden])
                    .float(norm.epsilon);
                self.launch("norm_e4m3", None, Grid::rows(rows, 256), args)?;
                return Ok(work.fp8());
            }
        }
        Ok(normed)
    }

    /// Numbers as a product with these weights reads them.
    pub(super) fn rounded_for(
        &self,
        weights: &Weights,
        work: &Work,
        (x, element): (Address, Element),
        rows: usize,
    ) -> Result<Address, GpuError> {
        if weights.scales.is_none() {
            return Ok(x);
        }
        let args = Args::new([x, work.fp8(), work.row_scales()].map(Some)).numbers(&[weights.inputs]);
        self.launch("quantize", Some(element), Grid::rows(rows, 256), args)?;
        Ok(work.fp8())
    }

    /// The first product of a feed-forward block, activated: what the second one reads.
    pub(super) fn activated(
        &self,
        layer: &GpuLayer,
        work: &Work,
        input: Address,
        rows: usize,
    ) -> Result<Address, GpuError> {
        let width = layer.down.inputs;
        let is_gated = layer.up.outputs > width;
        let numbers = [width, usize::from(is_gated)];
        if let Some(scales) = &layer.up.scales {
            self.multiply_fp8(&layer.up, work, input, rows)?;
            let to = [work.fp8(), work.row_scales()].map(Some);
            let args = Args::new(self.sums(&layer.up, work, scales).into_iter().chain(to)).numbers(&numbers);
            self.launch("activate_e4m3", None, Grid::rows(rows, 1024), args)?;
            return Ok(work.fp8());
        }
        self.linear(&layer.up, work, (input, work.wide()), rows, (self.element, false))?;
        let args = Args::new([work.wide(), work.inner()].map(Some)).numbers(&numbers);
        self.launch("activate", Some(self.element), Grid::columns(rows, width), args)?;
        Ok(if is_gated { work.inner() } else { work.wide() })
    }

    /// Normalises the stream behind a block, where the model does.
    pub(super) fn block_output(&self, norm: &Norm, (x, rows): (Address, usize)) -> Result<(), GpuError> {
        if self.config.norm_first { Ok(()) } else { self.norm(norm, (x, x), rows, Element::F32) }
    }

    /// `x +=` the product of all ranks' inputs with their weights; rank 0 brings `x` itself into the sum.
    pub(super) fn add_product(
        &self,
        weights: &Weights,
        work: &Work,
        (input, x): (Address, Address),
        rows: usize,
    ) -> Result<(), GpuError> {
        self.linear(weights, work, (input, x), rows, (Element::F32, self.gpu.rank() == 0))?;
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

    /// A product with weights, by kernels of our own behind it where these are eight-bit floats.
    pub(super) fn linear(
        &self,
        weights: &Weights,
        work: &Work,
        (x, y): (Address, Address),
        rows: usize,
        (out, adds): (Element, bool),
    ) -> Result<(), GpuError> {
        if let Some(scales) = &weights.scales {
            self.multiply_fp8(weights, work, x, rows)?;
            let args = Args::new(self.sums(weights, work, scales).into_iter().chain([Some(y)]))
                .numbers(&[weights.outputs, usize::from(adds)]);
            return self.launch("scale", Some(out), Grid::columns(rows, weights.outputs), args);
        }
        self.gpu.linear(&Linear {
            rows,
            outputs: weights.outputs,
            inputs: weights.inputs,
            factors: Factors::Of(self.element),
            x,
            w: weights.matrix.address(),
            bias: weights.bias.as_ref().map(Buffer::address),
            y,
            out,
            adds,
        })
    }

    /// The sums of a product of eight-bit floats.
    fn multiply_fp8(
        &self,
        weights: &Weights,
        work: &Work,
        x: Address,
        rows: usize,
    ) -> Result<(), GpuError> {
        self.gpu.linear(&Linear {
            rows,
            outputs: weights.outputs,
            inputs: weights.inputs,
            factors: Factors::E4m3,
            x,
            w: weights.matrix.address(),
            bias: None,
            y: work.sums(),
            out: Element::F32,
            adds: false,
        })
    }

    /// Such sums, with all that makes them numbers.
    fn sums(&self, weights: &Weights, work: &Work, scales: &Buffer) -> [Option<Address>; 4] {
        let bias = weights.bias.as_ref().map(Buffer::address);
        [Some(work.sums()), Some(work.row_scales()), Some(scales.address()), bias]
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
        // The largest of an extent over what is multiplied in eight bits.
        let fp8 = |extent: fn(&Weights) -> usize| {
            let matrices = self.matrices().filter(|weights| weights.scales.is_some());
            matrices.map(extent).max().unwrap_or(0)
        };
        Sizes {
            tables: tables + TABLES_BYTES,
            x: tokens * config.hidden * single,
            normed: tokens * config.hidden * number,
            qkv: tokens * widest(|layer| layer.qkv.outputs) * number,
            attended: tokens * width * number,
            wide: tokens * widest(|layer| layer.up.outputs) * number,
            inner: tokens * widest(|layer| layer.down.inputs) * number,
            fp8: tokens * fp8(|weights| weights.inputs),
            row_scales: tokens * fp8(|_| size_of::<f32>()),
            sums: tokens * fp8(|weights| weights.outputs) * single,
            partials: partial_rows * config.heads * (config.head_dim + 2) * single,
            embedded: if projected { tokens * config.embedding * single } else { 0 },
            rounded: if projected { tokens * config.embedding.max(config.hidden) * number } else { 0 },
            last_x: sampled * config.hidden * single,
            last_attended: sampled * width * number,
            hidden: sampled * config.embedding.max(config.hidden) * number,
        }
    }
}
