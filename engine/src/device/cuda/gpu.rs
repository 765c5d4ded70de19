//! What a decoder asks of a GPU.

use std::borrow::Cow;
use std::sync::Arc;

use super::Args;
use crate::checkpoint::Dtype;

/// Why a GPU does not do as it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// Too little memory; nothing else is wrong.
    #[error("the GPU has no {bytes} bytes left")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// Another rank failed.
    #[error("another rank failed")]
    OtherRank,
    /// Everything else: a launch or a library failed, and what the context holds can no longer be trusted.
    #[error("the GPU failed: {0}")]
    Lost(String),
}

/// An address in a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub u64);

impl Address {
    /// What is so many bytes behind it.
    pub fn at(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// What numbers of weights, activations, keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Single precision.
    F32,
    /// The upper half of it.
    Bf16,
    /// Half precision of IEEE 754. Keys and values beside it are [`Self::Bf16`].
    F16,
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// What weights of a type are kept as.
    pub fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
        }
    }

    /// Weights that are kept as such.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }

    /// The end of its kernels' names.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// What a product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factors {
    /// Numbers as activations are kept.
    Of(Element),
    /// Eight bits, E4M3. Extents are multiples of 16; without scales there is no bias, and `y` is single precision.
    E4m3,
    /// Activations of this kind, of two bytes and of few rows, and weights of four bits (kernels/q4.cuh), by a kernel of our own. Inputs
    /// are whole eights; there are no scales beside those of the weights.
    Q4(Element),
}

impl Factors {
    /// Bytes of a factor of `x`.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Of(element) | Self::Q4(element) => element.bytes(),
            Self::E4m3 => 1,
        }
    }

    /// What names of their kernels have for them.
    pub(crate) fn name(self) -> Cow<'static, str> {
        match self {
            Self::Of(element) => element.suffix().into(),
            Self::E4m3 => "e4m3".into(),
            Self::Q4(element) => format!("q4_{}", element.suffix()).into(),
        }
    }

    /// The same of kernels that activate what they write as `out`, where there are some.
    pub(crate) fn gated_name(self, out: Element) -> Option<Cow<'static, str>> {
        match self {
            Self::Of(Element::Bf16 | Element::F16) => Some(self.name()),
            Self::E4m3 if out != Element::F32 => Some(format!("{}_{}", self.name(), out.suffix()).into()),
            Self::Of(Element::F32) | Self::E4m3 | Self::Q4(_) => None,
        }
    }
}

/// Rows, at most, and outputs of a piece of the kernels for few rows.
pub(crate) const FEW_ROWS: [(usize, usize); 3] = [(8, 16), (16, 32), (32, 32)];

/// The same where weights are of four bits (kernels/q4.cuh): sums of 32 rows and 32 outputs leave no registers for what unpacks them.
pub(crate) const FEW_ROWS_OF_Q4: [(usize, usize); 3] = [(8, 16), (16, 32), (32, 16)];

/// Units of weights that each warp of these kernels has in shared memory (kernels/product.cuh): where two blocks with so many lie on a
/// multiprocessor, and elsewhere.
pub(crate) const PRODUCT_DEPTH: usize = 3;
pub(crate) const SMALL_PRODUCT_DEPTH: usize = 2;

/// Bytes of shared memory of a block of eight warps that have so many.
pub(crate) fn product_ring(depth: usize) -> usize {
    depth * 8 * 4096
}

/// The blocks of these kernels: two for each multiprocessor, which lie there side by side but where its memory has room for one.
pub(crate) fn product_grid(pieces: usize, multiprocessors: usize) -> Grid {
    let blocks = pieces.min(2 * multiprocessors);
    Grid { shared: product_ring(PRODUCT_DEPTH) as u32, ..Grid::rows(blocks, 256) }
}

/// Rows of the recorded steps that have at least `rows`: few counts stand for all, so that few steps are recorded and few
/// products timed.
pub(crate) fn recorded_rows(rows: usize) -> usize {
    match rows {
        0..=4 => rows.next_power_of_two(),
        5..=32 => rows.next_multiple_of(4),
        33..=128 => rows.next_multiple_of(16),
        _ => rows.next_multiple_of(64),
    }
}

/// The extent of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, in two dimensions.
    pub blocks: [u32; 2],
    /// Threads of a block: whole warps.
    pub threads: u32,
    /// Bytes of shared memory of a block, beside what the kernel declares.
    pub shared: u32,
    /// Blocks that work together, those of a row of them: a cluster.
    pub cluster: u32,
}

impl Grid {
    /// `blocks` blocks of `threads` threads.
    pub(crate) fn rows(blocks: usize, threads: u32) -> Self {
        Self { blocks: [blocks as u32, 1], threads, shared: 0, cluster: 1 }
    }

    /// Blocks of 256 threads, four columns a thread.
    pub(crate) fn columns(rows: usize, width: usize) -> Self {
        Self { blocks: [rows as u32, width.div_ceil(4 * 256) as u32], ..Self::rows(rows, 256) }
    }
}

/// `y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T + bias`, or that added to `y`. Sums are single
/// precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Rows of `x` and `y`.
    pub rows: usize,
    /// Numbers of a row of `y`.
    pub outputs: usize,
    /// Numbers of a row of `x`.
    pub inputs: usize,
    /// What `x` and `w` hold.
    pub factors: Factors,
    /// Row by row.
    pub x: Address,
    /// Row by row.
    pub w: Address,
    /// `[outputs]` of `y`'s type; in single precision where there are scales.
    pub bias: Option<Address>,
    /// Row by row.
    pub y: Address,
    /// What `y` holds.
    pub out: Element,
    /// Whether `y` keeps what it has and gets the product added.
    pub adds: bool,
    /// What brings sums of eight-bit floats to scale, before the bias.
    pub scales: Option<Scales>,
    /// What the outputs become before they are written, where half of them are gates.
    pub gate: Option<Gate>,
}

/// Outputs of which the first half are gates of the others: `y[rows, outputs / 2]` is what is left. Such a product adds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    /// `Activation` of the kernels.
    pub activation: usize,
    /// `[rows, outputs]` of `y`'s type, for outputs on their way where there are no scales.
    pub wide: Address,
    /// `[rows]` bits of each row's largest number in single precision, which were 0, where there are scales.
    pub most: Option<Address>,
}

/// The scales of a product of eight-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scales {
    /// `[rows]` of `x`, single precision.
    pub rows: Address,
    /// `[outputs]` of `w`, single precision.
    pub outputs: Address,
    /// `[rows, outputs]` in single precision, for sums on their way.
    pub sums: Address,
}

impl Linear {
    /// What a product is without the kernel [`Self::behind`] it: the sums alone of one that has scales, and all outputs of
    /// one that has gates.
    pub fn bare(&self) -> Self {
        match (self.scales, self.gate) {
            (Some(Scales { sums, .. }), _) => {
                let bare = Self { bias: None, y: sums, out: Element::F32, adds: false, ..*self };
                Self { scales: None, gate: None, ..bare }
            }
            (None, Some(gate)) => Self { y: gate.wide, gate: None, ..*self },
            (None, None) => *self,
        }
    }

    /// The kernel of a product of few rows that activates as it writes, where there is one.
    pub fn gated(&self, multiprocessors: usize) -> Option<(String, Grid, Vec<u8>)> {
        let Self { rows, outputs, inputs, factors, x, w, bias, y, out, .. } = *self;
        let gate = self.gate?;
        let kind = factors.gated_name(out)?;
        let (most, block) = FEW_ROWS.into_iter().find(|(most, _)| rows <= *most)?;
        if !outputs.is_multiple_of(block) || !(inputs * factors.bytes()).is_multiple_of(16) {
            return None;
        }
        let scales = self.scales.map(|scales| [scales.rows, scales.outputs]);
        let [of_rows, of_outputs] = scales.map_or([None; 2], |scales| scales.map(Some));
        let args = Args::new([gate.most, Some(x), Some(w), bias, Some(y), of_rows, of_outputs]);
        let args = args.numbers(&[rows, outputs, inputs, 0, gate.activation]);
        let name = format!("product_gated_{kind}_{most}");
        Some((name, product_grid(outputs / block, multiprocessors), args.bytes()))
    }

    /// The kernel of a product with weights of four bits, which has few rows.
    pub fn four_bit(&self, multiprocessors: usize) -> Option<(String, Grid, Vec<u8>)> {
        let Self { rows, outputs, inputs, factors, x, w, bias, y, out, adds, .. } = *self;
        let Factors::Q4(_) = factors else { return None };
        let (most, block) = FEW_ROWS_OF_Q4.into_iter().find(|(most, _)| rows <= *most)?;
        let args = Args::new([Some(x), Some(w), bias, Some(y), None, None]).numbers(&[
            rows,
            outputs,
            inputs,
            usize::from(adds),
        ]);
        let name = format!("product_{}_{}_{most}", factors.name(), out.suffix());
        Some((name, product_grid(outputs.div_ceil(block), multiprocessors), args.bytes()))
    }

    /// The kernel behind a product that makes numbers of its sums, or activates them.
    pub fn behind(&self) -> Option<(String, Grid, Vec<u8>)> {
        if let Some(Gate { activation, wide, most }) = self.gate {
            let width = self.outputs / 2;
            let numbers = [width, activation];
            let (name, args) = match self.scales {
                Some(Scales { rows, outputs, sums }) => {
                    let of_sums = [Some(sums), Some(rows), Some(outputs), self.bias];
                    ("activate_sums", Args::activate_sums(of_sums, [Some(self.y), most], numbers))
                }
                None => ("activate", Args::new([wide, self.y].map(Some)).numbers(&numbers)),
            };
            let grid = Grid::columns(self.rows, width);
            return Some((format!("{name}_{}", self.out.suffix()), grid, args.bytes()));
        }
        let Scales { rows, outputs, sums } = self.scales?;
        let args = Args::new([Some(sums), Some(rows), Some(outputs), self.bias, Some(self.y)])
            .numbers(&[self.outputs, usize::from(self.adds)]);
        let grid = Grid::columns(self.rows, self.outputs);
        Some((format!("scale_{}", self.out.suffix()), grid, args.bytes()))
    }
}

/// Launches that were recorded, to be repeated by [`Gpu::replay`].
pub trait Graph: Send {
    /// For the driver that made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// One GPU and its stream of work, which is done in the order of calls. One thread at a time uses it.
///
/// A failed call may show in a later one: after [`GpuError::Lost`] nothing of it can be used but
/// [`Self::free`].
pub trait Gpu: Send + Sync {
    /// What it is called.
    fn name(&self) -> String;

    /// Whether it multiplies [`Factors::E4m3`].
    fn has_e4m3(&self) -> bool;

    /// Whether four warps multiply together (`wgmma`), which the kernels `attend_wgmma` need.
    fn has_wgmma(&self) -> bool;

    /// Whether the kernels of [`Linear::split`] run on it, which are made of clusters of blocks.
    fn has_clusters(&self) -> bool;

    /// How many blocks of threads it works at side by side, or a small multiple of that.
    fn multiprocessors(&self) -> usize;

    /// Bytes that could still be allocated.
    fn available(&self) -> Result<usize, GpuError>;

    /// Memory, all zero.
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Gives memory back, when the work that was asked for before is done.
    fn free(&self, address: Address);

    /// Writes `bytes` to its memory; they may be used again when this returns.
    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError>;

    /// Waits for all that was asked for, then reads its memory.
    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Host memory that it copies to and from by itself.
    fn allocate_host(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Gives host memory back, when the copies that use it are done.
    fn free_host(&self, address: Address);

    /// Copies to host memory of its own, in the order of its work: nobody may read it before a later
    /// [`Self::read`].
    fn copy_out(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError>;

    /// Copies from host memory of its own.
    fn copy_back(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError>;

    /// Copies inside its memory.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError>;

    /// Runs the kernel of this name; `args` is its struct, as it lies in memory. A grid of no blocks does nothing.
    fn launch(&self, kernel: &str, grid: Grid, args: &[u8]) -> Result<(), GpuError>;

    /// A product with weights; of no rows, it does nothing.
    fn linear(&self, product: &Linear) -> Result<(), GpuError>;

    /// `values` = the sum of all ranks' `values`, single precision, the same bits on every rank.
    fn all_reduce(&self, values: Address, count: usize) -> Result<(), GpuError>;

    /// This rank's number, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Ends whatever this rank or another waits for; for when a rank is lost. Any thread may call it.
    fn abort(&self);

    /// Records what `work` launches instead of running it. `None`: this driver cannot.
    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn Graph>>, GpuError>;

    /// Runs recorded launches.
    fn replay(&self, graph: &dyn Graph) -> Result<(), GpuError>;
}

/// Memory of a GPU that is given back when nobody has it any more.
pub struct Buffer {
    gpu: Arc<dyn Gpu>,
    address: Address,
    bytes: usize,
}

/// Host memory of a GPU that is given back when nobody has it any more.
pub struct HostBuffer {
    gpu: Arc<dyn Gpu>,
    address: Address,
}

impl HostBuffer {
    /// `bytes` bytes, with whatever was there.
    pub fn new(gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<Self, GpuError> {
        let address = gpu.allocate_host(bytes.max(1))?;
        Ok(Self { gpu: Arc::clone(gpu), address })
    }

    /// Where it begins.
    pub fn address(&self) -> Address {
        self.address
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        self.gpu.free_host(self.address);
    }
}

impl Buffer {
    /// `bytes` bytes, all zero.
    pub fn new(gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<Self, GpuError> {
        let address = gpu.allocate(bytes.max(1))?;
        Ok(Self { gpu: Arc::clone(gpu), address, bytes })
    }

    /// A copy of `bytes`.
    pub fn of(gpu: &Arc<dyn Gpu>, bytes: &[u8]) -> Result<Self, GpuError> {
        let buffer = Self::new(gpu, bytes.len())?;
        gpu.write(buffer.address, bytes)?;
        Ok(buffer)
    }

    /// Where it begins.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.gpu.free(self.address);
    }
}
