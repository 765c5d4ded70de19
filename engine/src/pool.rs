//! The KV block pool: memory for keys and values, allocated once, addressed by block.
//!
//! Who holds which block is the scheduler's ledger; nothing here counts references. Layout, per layer and
//! key-value head (what one attention task reads lies together):
//!
//! ```text
//! keys    [blocks][head_dim][lanes]          transposed: a tile of scores has tokens in its lanes
//! values  [blocks][block_tokens][head_lanes]
//! ```
//!
//! `lanes` and `head_lanes` are `block_tokens` and `head_dim` rounded up to whole vectors; the rest stays zero.

use base::Bytes;
use rayon::prelude::*;

use crate::checkpoint::ModelConfig;
use crate::device::cpu::{LANES, SCORE_STRIDE};

/// What keys and values are kept as.
pub type KvElement = f32;

/// Most positions of a block: a block's scores fill at most one row of an attention tile.
pub const BLOCK_TOKENS_MAX: u32 = SCORE_STRIDE as u32;

/// Extents of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
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
    /// Not even one block fits.
    #[error("kv_bytes of {given} hold no block of {block} bytes")]
    TooSmall {
        /// What was given.
        given: u64,
        /// What one block takes.
        block: u64,
    },
}

/// The pool.
pub struct KvPool {
    shape: PoolShape,
    keys: Vec<KvElement>,
    values: Vec<KvElement>,
}

impl PoolShape {
    /// The pool for a model that fits in `bytes`.
    pub fn fit(config: &ModelConfig, block_tokens: u32, bytes: Bytes) -> Result<Self, PoolError> {
        if block_tokens == 0 || block_tokens > BLOCK_TOKENS_MAX {
            return Err(PoolError::BlockTokens(block_tokens));
        }
        let mut shape = Self {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            block_tokens: block_tokens as usize,
            blocks: 1,
        };
        let block = (shape.elements() * size_of::<KvElement>()) as u64;
        shape.blocks = usize::try_from(bytes.0 / block).unwrap_or(usize::MAX).min(u32::MAX as usize);
        match shape.blocks {
            0 => Err(PoolError::TooSmall { given: bytes.0, block }),
            _ => Ok(shape),
        }
    }

    /// Tokens of a block in whole vectors.
    pub fn lanes(&self) -> usize {
        self.block_tokens.next_multiple_of(LANES)
    }

    /// A head's width in whole vectors.
    pub fn head_lanes(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of keys in one block of one head.
    fn key_block(&self) -> usize {
        self.head_dim * self.lanes()
    }

    /// Elements of values in one block of one head.
    fn value_block(&self) -> usize {
        self.block_tokens * self.head_lanes()
    }

    /// Elements of the whole pool.
    fn elements(&self) -> usize {
        self.layers * self.kv_heads * self.blocks * (self.key_block() + self.value_block())
    }
}

/// A position in the pool: a block and a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The block's index.
    pub block: usize,
    /// Position in the block.
    pub lane: usize,
}

impl KvPool {
    /// Allocates the pool; the system hands out its pages as they are first written.
    pub fn new(shape: PoolShape) -> Self {
        let heads = shape.layers * shape.kv_heads * shape.blocks;
        Self {
            shape,
            keys: vec![KvElement::default(); heads * shape.key_block()],
            values: vec![KvElement::default(); heads * shape.value_block()],
        }
    }

    /// Its extents.
    pub fn shape(&self) -> PoolShape {
        self.shape
    }

    /// Keys `[head_dim, lanes]` and values `[block_tokens, head_lanes]` of one block of one head.
    pub fn block(&self, layer: usize, head: usize, block: usize) -> (&[KvElement], &[KvElement]) {
        let index = (layer * self.shape.kv_heads + head) * self.shape.blocks + block;
        let (key, value) = (self.shape.key_block(), self.shape.value_block());
        (&self.keys[index * key..][..key], &self.values[index * value..][..value])
    }

    /// Writes a layer's keys and values of some tokens, heads in parallel.
    ///
    /// `fill(head, token, key, value)` computes them; token `i` goes to `cells[i]`.
    pub fn write(
        &mut self,
        layer: usize,
        cells: &[Cell],
        fill: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        let shape = self.shape;
        let (key_head, value_head) = (shape.blocks * shape.key_block(), shape.blocks * shape.value_block());
        let first = layer * shape.kv_heads;
        let keys = self.keys[first * key_head..][..shape.kv_heads * key_head].par_chunks_exact_mut(key_head);
        let values =
            self.values[first * value_head..][..shape.kv_heads * value_head].par_chunks_exact_mut(value_head);
        let min_heads = 64_usize.div_ceil(cells.len().max(1)); // few tokens are not worth other threads
        keys.zip(values).enumerate().with_min_len(min_heads).for_each(|(head, (keys, values))| {
            let (mut key, mut value) = (vec![0.0; shape.head_dim], vec![0.0; shape.head_dim]);
            for (token, cell) in cells.iter().enumerate() {
                fill(head, token, &mut key, &mut value);
                let column = cell.block * shape.key_block() + cell.lane;
                for (d, x) in key.iter().enumerate() {
                    keys[column + d * shape.lanes()] = *x;
                }
                let row = cell.block * shape.value_block() + cell.lane * shape.head_lanes();
                values[row..row + shape.head_dim].copy_from_slice(&value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_cell_is_read_from_its_block() {
        let shape = PoolShape { layers: 2, kv_heads: 2, head_dim: 3, block_tokens: 5, blocks: 4 };
        let mut pool = KvPool::new(shape);
        let cells = [Cell { block: 3, lane: 4 }, Cell { block: 0, lane: 1 }];
        pool.write(1, &cells, |head, token, key, value| {
            for d in 0..3 {
                key[d] = (100 * head + 10 * token + d) as f32;
                value[d] = -key[d];
            }
        });
        for (token, cell) in cells.iter().enumerate() {
            for head in 0..2 {
                let (keys, values) = pool.block(1, head, cell.block);
                for d in 0..3 {
                    let expected = (100 * head + 10 * token + d) as f32;
                    assert_eq!(keys[d * shape.lanes() + cell.lane], expected);
                    assert_eq!(values[cell.lane * shape.head_lanes() + d], -expected);
                }
            }
        }
        assert!(pool.block(0, 0, 3).0.iter().all(|x| *x == 0.0));
    }

    #[test]
    fn a_shape_fills_the_bytes_it_is_given_and_refuses_too_few() {
        let config = crate::decoder::tests_config();
        let shape = PoolShape::fit(&config, 16, Bytes(1 << 20)).expect("a megabyte holds blocks");
        let bytes = shape.elements() * size_of::<KvElement>();
        let block = bytes / shape.blocks;
        assert!(bytes <= 1 << 20 && bytes + block > 1 << 20);
        assert_eq!(
            PoolShape::fit(&config, 16, Bytes(7)),
            Err(PoolError::TooSmall { given: 7, block: block as u64 })
        );
        assert_eq!(PoolShape::fit(&config, 0, Bytes(7)), Err(PoolError::BlockTokens(0)));
        assert_eq!(PoolShape::fit(&config, 129, Bytes(7)), Err(PoolError::BlockTokens(129)));
    }
}
