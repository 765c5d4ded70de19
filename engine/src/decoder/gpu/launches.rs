//! The decoder's single operations: a product, a norm, a kernel over rows.

use super::tables::{TALL_ROWS, WGMMA_ROWS};
use super::workspace::GpuWorkspace;
use super::{GpuDecoder, GpuMatrix, GpuMemory, GpuNorm};
use crate::checkpoint::Dtype;
use crate::checkpoint::config::Mlp;
use crate::decoder::layer::LayerWeights;
use crate::device::cuda::{
    Address, Args, Buffer, Element, FEW_ROWS, Factors, Gate, GpuError, Grid, KernelSet, Linear, Q4_ROWS,
    Scales, unpacking_blocks,
};
use crate::pool::PoolShape;
use crate::settings::{Keep, KvFormat, Quantize};

type Layer = LayerWeights<GpuMatrix, GpuNorm>;

/// Rows, at most, of products that may activate what they give, where it is gated: there are kernels for so many.
const GATED_ROWS: usize = FEW_ROWS[2].0;

/// Rows of numbers, one behind the other.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) x: Address,
    pub(super) rows: usize,
}

/// `y[rows, outputs] = x[rows, inputs] weights^T`, or that added to `y`.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) weights: &'a GpuMatrix,
    /// As the weights' product reads it: [`GpuDecoder::read_by`].
    pub(super) x: Address,
    pub(super) y: Address,
    pub(super) rows: usize,
    /// What `y` holds.
    pub(super) out: Element,
    pub(super) adds: bool,
}

/// The kernels that a model is run by whose weights are stored as `stored`.
pub fn kernel_set(stored: Dtype, keep: Keep) -> KernelSet {
    let kept = match keep.kv {
        Some(KvFormat::Q8) => Some("q8"),
        Some(KvFormat::Fp8) => Some("fp8"),
        Some(KvFormat::F32 | KvFormat::Bf16) | None => None,
    };
    let weights = match keep.quantize {
        Some(Quantize::Q4) => Some("q4"),
        Some(Quantize::Fp8) => Some("e4m3"),
        Some(Quantize::Q8 | Quantize::Q8Wide) | None => None, // which are refused
    };
    KernelSet { element: Element::of(keep.dtype.unwrap_or(stored)), kept, weights }
}

impl GpuDecoder {
    /// Where a layer's keys and values begin in the first block.
    pub(super) fn pool_of(&self, memory: &GpuMemory, layer: usize) -> [Address; 2] {
        let bytes = self.layer_bytes(memory.shape);
        [2 * layer, 2 * layer + 1].map(|number| memory.pool.address().at(number * bytes))
    }

    pub(super) fn attention_width(&self) -> usize {
        self.config.heads * self.config.head_dim
    }

    /// Pairs of a head that are rotated.
    pub(super) fn pairs(&self) -> usize {
        if self.rope.is_some() { self.config.head_dim / 2 } else { 0 }
    }

    /// Rows of queries that a task of many has, where there are kernels for tensor cores.
    pub(super) fn tall_rows(&self, shape: PoolShape) -> Option<usize> {
        self.is_on_tensor_cores(shape).then_some(if self.is_on_warpgroups() { WGMMA_ROWS } else { TALL_ROWS })
    }

    /// Whether tasks of many rows are multiplied by warpgroups. What these read must be bf16 when it is copied.
    pub(super) fn is_on_warpgroups(&self) -> bool {
        self.gpu.has_wgmma() && !matches!(self.kv, KvFormat::Q8 | KvFormat::Fp8)
    }

    /// What the names of kernels that read or write keys and values have before those of activations, where
    /// the two are not as the activations say.
    pub(super) fn kept_name(&self) -> &'static str {
        match self.kv {
            KvFormat::F32 | KvFormat::Bf16 => "",
            KvFormat::Q8 => "_q8",
            KvFormat::Fp8 => "_fp8",
        }
    }

    /// Whether there is a kernel for tensor cores.
    pub(super) fn is_on_tensor_cores(&self, shape: PoolShape) -> bool {
        self.element != Element::F32 && [64, 128].contains(&shape.head_dim)
    }

    /// Numbers as a product with these weights reads them: rounded where those are eight-bit floats.
    pub(super) fn read_by(
        &self,
        weights: &GpuMatrix,
        work: &GpuWorkspace,
        from: Stream,
        element: Element,
    ) -> Result<Address, GpuError> {
        if weights.scales.is_none() {
            return Ok(from.x);
        }
        let args = Args::new([from.x, work.fp8(), work.row_scales(), work.row_most()].map(Some))
            .numbers(&[weights.inputs]);
        // A long row is read once: its block has four of its numbers a thread.
        let threads = if weights.inputs < 2048 { 256 } else { 1024 };
        self.launch("quantize", Some(element), Grid::rows(from.rows, threads), args)?;
        Ok(work.fp8())
    }

    /// The first product of a feed-forward block, activated: what the second one reads.
    pub(super) fn activated(
        &self,
        layer: &Layer,
        work: &GpuWorkspace,
        input: Stream,
    ) -> Result<Address, GpuError> {
        let (width, Stream { x, rows }) = (layer.down.inputs, input);
        let is_gated = self.config.mlp.is_gated();
        // `Activation` of the kernels.
        let activation = match self.config.mlp {
            Mlp::PlainRelu => 0,
            Mlp::GatedSilu => 1,
            Mlp::PlainGelu => 2,
            Mlp::GatedGelu => 3,
        };
        let numbers = [width, activation];
        let is_one_kernel = is_gated && rows <= GATED_ROWS;
        if let Some(scales) = &layer.up.scales {
            if is_one_kernel {
                let gate = Gate { activation, wide: work.sums(), most: Some(work.row_most()) };
                let out = self.element;
                let product = Product { weights: &layer.up, x, y: work.inner(), rows, out, adds: false };
                self.multiply_gated(work, product, Some(gate))?;
            } else {
                self.multiply_fp8(&layer.up, work, input)?;
                let to = [work.inner(), work.row_most()].map(Some);
                let args = Args::activate_sums(self.sums(&layer.up, work, scales), to, numbers);
                self.launch("activate_sums", Some(self.element), Grid::columns(rows, width), args)?;
            }
            let addresses = [work.inner(), work.row_most(), work.fp8(), work.row_scales()];
            let args = Args::new(addresses.map(Some)).numbers(&[width]);
            self.launch("round_known", Some(self.element), Grid::columns(rows, width), args)?;
            return Ok(work.fp8());
        }
        let (y, out) = (work.wide(), self.element);
        if is_one_kernel && !layer.up.in_q4 {
            let gate = Gate { activation, wide: work.wide(), most: None };
            let product = Product { weights: &layer.up, x, y: work.inner(), rows, out, adds: false };
            self.multiply_gated(work, product, Some(gate))?;
            return Ok(work.inner());
        }
        self.multiply(work, Product { weights: &layer.up, x, y, rows, out, adds: false })?;
        let args = Args::new([work.wide(), work.inner()].map(Some)).numbers(&numbers);
        self.launch("activate", Some(self.element), Grid::columns(rows, width), args)?;
        Ok(if is_gated { work.inner() } else { work.wide() })
    }

    /// Normalises rows; gives back where they lie then.
    pub(super) fn normalise(
        &self,
        norm: &GpuNorm,
        from: Stream,
        to: Address,
        element: Element,
    ) -> Result<Address, GpuError> {
        let bias = norm.bias.as_ref().map(Buffer::address);
        let args = Args::new([Some(from.x), Some(norm.weight.address()), bias, Some(to)])
            .numbers(&[self.config.hidden])
            .float(norm.epsilon);
        self.launch("norm", Some(element), Grid::rows(from.rows, 256), args)?;
        Ok(to)
    }

    /// The same to eight-bit floats, in one kernel.
    pub(super) fn normalise_to_fp8(
        &self,
        norm: &GpuNorm,
        from: Stream,
        work: &GpuWorkspace,
    ) -> Result<Address, GpuError> {
        let bias = norm.bias.as_ref().map(Buffer::address);
        let to = [work.fp8(), work.row_scales(), work.row_most()].map(Some);
        let args = Args::new([Some(from.x), Some(norm.weight.address()), bias].into_iter().chain(to))
            .numbers(&[self.config.hidden])
            .float(norm.epsilon);
        self.launch("norm_e4m3", None, Grid::rows(from.rows, 256), args)?;
        Ok(work.fp8())
    }

    /// Rounds numbers to what weights are kept as; gives back where they lie then.
    pub(super) fn round(&self, (from, to): (Address, Address), count: usize) -> Result<Address, GpuError> {
        let args = Args::new([Some(from), Some(to)]).numbers(&[count]);
        let grid = Grid::rows(count.div_ceil(256).clamp(1, 1024), 256);
        self.launch("round", Some(self.element), grid, args)?;
        Ok(to)
    }

    /// A product with weights.
    pub(super) fn multiply(&self, work: &GpuWorkspace, product: Product<'_>) -> Result<(), GpuError> {
        self.multiply_gated(work, product, None)
    }

    /// The same, of whose outputs half may be gates.
    fn multiply_gated(
        &self,
        work: &GpuWorkspace,
        product: Product<'_>,
        gate: Option<Gate>,
    ) -> Result<(), GpuError> {
        let Product { weights, x, y, rows, out, adds } = product;
        let scales = weights.scales.as_ref().map(|scales| Scales {
            rows: work.row_scales(),
            outputs: scales.address(),
            sums: work.sums(),
        });
        let factors = match (&scales, weights.in_q4) {
            (Some(_), _) => Factors::E4m3,
            (None, false) => Factors::Of(self.element),
            (None, true) => Factors::Q4(self.element),
        };
        let stored = Linear {
            rows,
            outputs: weights.outputs,
            inputs: weights.inputs,
            factors,
            x,
            w: weights.matrix.address(),
            bias: weights.bias.as_ref().map(Buffer::address),
            y,
            out,
            adds,
            scales,
            gate,
        };
        let is_few = || rows <= Q4_ROWS || self.gpu.has_clusters() && stored.split().is_some();
        match factors {
            Factors::Q4(element) if element == Element::F32 || !is_few() => {
                let w = self.unpack(weights)?;
                self.gpu.linear(&Linear { factors: Factors::Of(element), w, ..stored })
            }
            Factors::Q4(_) | Factors::Of(_) | Factors::E4m3 => self.gpu.linear(&stored),
        }
    }

    /// Weights of four bits as numbers; where they lie until others are unpacked.
    fn unpack(&self, weights: &GpuMatrix) -> Result<Address, GpuError> {
        let GpuMatrix { outputs, inputs, .. } = *weights;
        let to = self.unpacked.as_ref().expect("there is room for every matrix of four bits").address();
        let args = Args::new([weights.matrix.address(), to].map(Some)).numbers(&[outputs, inputs]);
        let grid = Grid { blocks: unpacking_blocks(outputs, inputs), threads: 256, shared: 0, cluster: 1 };
        self.launch("unpack_q4", Some(self.element), grid, args)?;
        Ok(to)
    }

    /// The sums of a product of eight-bit floats.
    fn multiply_fp8(&self, weights: &GpuMatrix, work: &GpuWorkspace, input: Stream) -> Result<(), GpuError> {
        self.gpu.linear(&Linear {
            rows: input.rows,
            outputs: weights.outputs,
            inputs: weights.inputs,
            factors: Factors::E4m3,
            x: input.x,
            w: weights.matrix.address(),
            bias: None,
            y: work.sums(),
            out: Element::F32,
            adds: false,
            scales: None,
            gate: None,
        })
    }

    /// Such sums, with all that makes them numbers.
    fn sums(&self, weights: &GpuMatrix, work: &GpuWorkspace, scales: &Buffer) -> [Option<Address>; 4] {
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
}
