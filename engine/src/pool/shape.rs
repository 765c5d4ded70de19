//! The extents of a pool, and how much of it fits in how many bytes.

use base::Bytes;

use crate::checkpoint::ModelConfig;
use crate::device::cpu::{BytePair, LANES, Pair, SCORES_MAX, Stored};
use crate::settings::KvFormat;

/// Most positions of a block: a block's scores fill at most one row of an attention task's.
pub const BLOCK_TOKENS_MAX: u32 = SCORES_MAX as u32;

/// Extents of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// What keys and values are kept as.
    pub format: KvFormat,
    /// Decoder layers.
    pub layers: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Positions of a block.
    pub block_tokens: usize,
    /// Number of blocks.
    pub blocks: usize,
}

/// A pool that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Blocks of an unusable size.
    #[error("block_tokens must be between 1 and {BLOCK_TOKENS_MAX}, not {0}")]
    BlockTokens(u32),
    /// A GPU has no room for it.
    #[error("{0}")]
    Gpu(String),
    /// Not even one block fits.
    #[error("kv_bytes of {given} hold no block of {block} bytes")]
    TooSmall {
        /// What was given.
        given: u64,
        /// What one block takes.
        block: u64,
    },
    /// Not even one block fits in the tier that is asked for.
    #[error("host_kv_bytes of {given} hold no block of {block} bytes on each rank")]
    TierTooSmall {
        /// What one rank has of it.
        given: u64,
        /// What one block takes.
        block: u64,
    },
}

impl PoolShape {
    /// The pool for a model that fits in `bytes`.
    pub fn fit(
        config: &ModelConfig,
        format: KvFormat,
        block_tokens: u32,
        bytes: Bytes,
    ) -> Result<Self, PoolError> {
        if block_tokens == 0 || block_tokens > BLOCK_TOKENS_MAX {
            return Err(PoolError::BlockTokens(block_tokens));
        }
        let mut shape = Self {
            format,
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            block_tokens: block_tokens as usize,
            blocks: 1,
        };
        let block = shape.bytes().0;
        shape.blocks = usize::try_from(bytes.0 / block).unwrap_or(usize::MAX).min(u32::MAX as usize);
        match shape.blocks {
            0 => Err(PoolError::TooSmall { given: bytes.0, block }),
            _ => Ok(shape),
        }
    }

    /// What the whole pool takes.
    pub fn bytes(&self) -> Bytes {
        let bytes = match self.format {
            KvFormat::F32 => self.elements::<f32>() * size_of::<f32>(),
            KvFormat::Bf16 => self.elements::<Pair>() * size_of::<Pair>(),
            KvFormat::Q8 | KvFormat::Fp8 => self.elements::<BytePair>() * size_of::<BytePair>(),
        };
        Bytes(bytes as u64)
    }

    /// The same blocks, as many as fit in `bytes` of a host tier; none in none.
    pub fn tier(&self, bytes: Bytes) -> Result<Self, PoolError> {
        let block = Self { blocks: 1, ..*self }.bytes().0;
        let tokens_max = u32::MAX as usize / self.block_tokens;
        let blocks = usize::try_from(bytes.0 / block).unwrap_or(usize::MAX).min(tokens_max);
        match (blocks, bytes.0) {
            (0, 1..) => Err(PoolError::TierTooSmall { given: bytes.0, block }),
            _ => Ok(Self { blocks, ..*self }),
        }
    }

    /// Tokens of a block in whole vectors.
    #[inline]
    pub fn lanes(&self) -> usize {
        self.block_tokens.next_multiple_of(LANES)
    }

    /// A head's width in whole vectors.
    #[inline]
    pub fn head_lanes(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements, of so many numbers each, of keys in one block of one head.
    #[inline]
    pub(super) fn key_block(&self, numbers: usize) -> usize {
        self.head_dim.div_ceil(numbers) * self.lanes()
    }

    /// Elements of values in one block of one head.
    #[inline]
    pub(super) fn value_block(&self, numbers: usize) -> usize {
        self.block_tokens.div_ceil(numbers) * self.head_lanes()
    }

    /// Elements of one block of one head, scales included.
    #[inline]
    pub(super) fn head_block<E: Stored>(&self) -> usize {
        let scales = if E::IS_SCALED { 2 * self.lanes() } else { 0 };
        self.key_block(E::NUMBERS) + self.value_block(E::NUMBERS) + scales
    }

    /// Elements of the whole pool.
    pub(super) fn elements<E: Stored>(&self) -> usize {
        self.layers * self.blocks * self.kv_heads * self.head_block::<E>()
    }
}
