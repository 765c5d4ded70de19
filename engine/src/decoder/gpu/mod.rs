//! The transformer on a GPU: every operation is a kernel of [`crate::device::cuda`] or a product with
//! weights.
//!
//! The residual stream is single precision throughout; what products read is kept as weights are. A step's
//! tables lie at one address, and each launch depends on the number of its rows alone, so that a decode step
//! is recorded once for all steps of about its size and replayed.

mod extent;
mod fit;
mod launches;
mod layer;
mod load;
mod sampling;
mod sizes;
mod step;
mod tables;
mod workspace;

use std::collections::HashMap;
use std::sync::Arc;

use base::Moves;

use super::layer::LayerWeights;
use crate::checkpoint::config::Norm as NormKind;
use crate::checkpoint::{Dtype, ModelConfig};
use crate::device::cuda::{Address, Buffer, Element, Gpu, GpuError, Graph, HostBuffer};
use crate::parallel::Collective;
use crate::pool::PoolShape;
use crate::rope::Rope;
use crate::settings::KvFormat;
pub use fit::{GpuDemand, check_fit};
pub(crate) use fit::{STEP_ROWS, STEP_TOKENS, default_pool};
pub use launches::kernel_set;
pub use load::{GpuLoadError, refusal};
pub use sampling::{Draw, LogitPlace, LogitQueries, LogitStats, PlaceQuery, SampleQuery};
use step::Recording;
use workspace::GpuWorkspace;

/// What a layer's keys in a block, and its values, begin at a multiple of where scales lie behind them: copies of so many bytes read
/// them.
const KEPT_ALIGN: usize = 16;

/// A model, or a rank of one, whose weights are on a GPU.
pub struct GpuDecoder {
    config: ModelConfig,
    gpu: Arc<dyn Gpu>,
    /// The host's end of the group of ranks; sums of activations are the GPU's own.
    collective: Box<dyn Collective>,
    element: Element,
    kv: KvFormat,
    rope: Option<Rope>,
    embedding: Option<Buffer>,
    positions: Option<Buffer>,
    project_in: Option<GpuMatrix>,
    project_out: Option<GpuMatrix>,
    layers: Vec<LayerWeights<GpuMatrix, GpuNorm>>,
    final_norm: Option<GpuNorm>,
    head: GpuMatrix,
    /// Room for the largest matrix of four bits as it is unpacked, where there are such.
    unpacked: Option<Buffer>,
}

/// A matrix `[outputs, inputs]`, and what is added behind it.
struct GpuMatrix {
    matrix: Buffer,
    /// Of each output, where they are eight-bit floats.
    scales: Option<Buffer>,
    /// Whether they are of four bits ([`crate::device::cuda::pack_q4`]).
    in_q4: bool,
    bias: Option<Buffer>,
    outputs: usize,
    inputs: usize,
}

/// Weights of a normalisation.
struct GpuNorm {
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
    /// `[blocks][layers][keys, values][kv_heads][block_tokens][head_dim]`: a block is one stretch, which
    /// moves as one. Where numbers have scales, `[kv_heads][block_tokens]` of them lie behind a layer's keys in a
    /// block, and behind its values.
    pool: Buffer,
    /// Where blocks of the pool move to that give way to others, where there is such a place; laid out as the
    /// pool is.
    tier: Option<HostBuffer>,
    work: GpuWorkspace,
    /// Angles ([`crate::rope`]) of the positions that steps have come to, and of more.
    angles: Option<Buffer>,
    /// A step's tables on their way.
    written: Vec<u8>,
    /// Steps so far.
    steps: u64,
}

impl GpuDecoder {
    /// Its configuration; a rank's own where it is one.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What weights are kept as that are not in fewer bits.
    pub fn dtype(&self) -> Dtype {
        self.element.dtype()
    }

    /// What keys and values are kept as.
    pub fn kv(&self) -> KvFormat {
        self.kv
    }

    /// Bytes of weights that one step reads, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        self.matrices().map(|weights| weights.matrix.bytes()).sum()
    }

    /// Operations of a step's products: [`super::Decoder::step_operations`].
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        let size = |weights: &GpuMatrix| (weights.outputs * weights.inputs) as f64;
        let all: f64 = self.matrices().map(size).sum();
        2.0 * ((all - size(&self.head)) * tokens as f64 + size(&self.head) * sampled as f64)
    }

    fn matrices(&self) -> impl Iterator<Item = &GpuMatrix> {
        let layers = self.layers.iter().flat_map(LayerWeights::matrices);
        layers.chain([&self.head])
    }

    /// A pool of `shape` and the memory of steps.
    pub fn memory(&self, shape: PoolShape) -> Result<GpuMemory, GpuError> {
        let bytes = shape.blocks * self.block_bytes(shape);
        Ok(GpuMemory {
            shape,
            pool: Buffer::new(&self.gpu, bytes)?,
            tier: None,
            work: GpuWorkspace::default(),
            graphs: HashMap::new(),
            angles: None,
            written: Vec::new(),
            steps: 0,
        })
    }

    /// Bytes of a number among keys and values.
    fn kept_bytes(&self) -> usize {
        match self.kv {
            KvFormat::F32 => size_of::<f32>(),
            KvFormat::Bf16 => size_of::<half::bf16>(),
            KvFormat::Q8 | KvFormat::Fp8 => size_of::<u8>(),
        }
    }

    /// Bytes of a block's keys in one layer, or of its values, with the scales of those that have some.
    fn layer_bytes(&self, shape: PoolShape) -> usize {
        let rows = shape.kv_heads * shape.block_tokens;
        let numbers = rows * shape.head_dim * self.kept_bytes();
        match self.kv {
            KvFormat::F32 | KvFormat::Bf16 => numbers,
            KvFormat::Q8 | KvFormat::Fp8 => {
                // As `scales_behind` of the kernels finds them.
                let scales = numbers.next_multiple_of(size_of::<half::bf16>());
                (scales + rows * size_of::<half::bf16>()).next_multiple_of(KEPT_ALIGN)
            }
        }
    }

    /// Bytes of a block.
    fn block_bytes(&self, shape: PoolShape) -> usize {
        shape.layers * 2 * self.layer_bytes(shape)
    }

    /// Gives the pool a tier of so many blocks of pinned host memory.
    pub fn add_tier(&self, memory: &mut GpuMemory, blocks: usize) -> Result<(), GpuError> {
        let bytes = blocks * self.block_bytes(memory.shape);
        memory.tier = Some(HostBuffer::new(&self.gpu, bytes)?);
        Ok(())
    }

    /// Moves blocks between pool and tier, which hold all that are named: first those that go, then those
    /// that return.
    pub fn move_blocks(&self, memory: &GpuMemory, moves: &Moves) -> Result<(), GpuError> {
        let Some(tier) = &memory.tier else { return Ok(()) };
        let bytes = self.block_bytes(memory.shape);
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
}

/// A normalisation's epsilon.
fn epsilon(kind: NormKind) -> f32 {
    match kind {
        NormKind::Rms { epsilon } | NormKind::Layer { epsilon } => epsilon,
    }
}
