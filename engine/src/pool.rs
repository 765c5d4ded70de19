//! The KV block pool: memory for keys and values, allocated once, addressed by block.
//!
//! Who holds which block is the scheduler's ledger; nothing here counts references. Layout, per layer, block and
//! key-value head (what one attention task reads lies together, and so does what one token writes):
//!
//! ```text
//! keys    [head_dim / numbers][lanes]              transposed: a tile of scores has tokens in its lanes
//! values  [block_tokens / numbers][head_lanes]
//! ```
//!
//! `numbers` is what one element holds: a pair of bf16 lies along the sum that it is read for, two dimensions of a key,
//! two tokens of a value. So does a pair of eight-bit integers, behind which the scales of keys lie, then those of
//! values, one per lane. `lanes` and `head_lanes` are `block_tokens` and `head_dim` rounded up to whole vectors; the
//! rest stays zero.

mod read;
mod tier;

use base::Bytes;
use rayon::prelude::*;

use crate::checkpoint::ModelConfig;
use crate::device::Isa;
use crate::device::cpu::{BytePair, LANES, Packed, Pair, SCORES_MAX, Stored};
use crate::settings::KvFormat;
pub(crate) use read::{Kept, KvElement, LayerHead, ReadMemory};

/// Most positions of a block: a block's scores fill at most one row of an attention task's.
pub const BLOCK_TOKENS_MAX: u32 = SCORES_MAX as u32;

/// Keys and values (of a token and a head) that a task writes at least: less is not worth waking a thread for.
const WRITES_PER_TASK: usize = 64;

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

/// The pool.
pub struct KvPool {
    shape: PoolShape,
    memory: Memory,
}

/// Its memory, in the element that the format is made of.
enum Memory {
    Singles(Packed<f32>),
    Pairs(Packed<Pair>),
    Bytes(Packed<BytePair>),
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
            KvFormat::Q8 => self.elements::<BytePair>() * size_of::<BytePair>(),
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
    fn key_block(&self, numbers: usize) -> usize {
        self.head_dim.div_ceil(numbers) * self.lanes()
    }

    /// Elements of values in one block of one head.
    #[inline]
    fn value_block(&self, numbers: usize) -> usize {
        self.block_tokens.div_ceil(numbers) * self.head_lanes()
    }

    /// Elements of one block of one head, scales included.
    #[inline]
    fn head_block<E: Stored>(&self) -> usize {
        let scales = if E::IS_SCALED { 2 * self.lanes() } else { 0 };
        self.key_block(E::NUMBERS) + self.value_block(E::NUMBERS) + scales
    }

    /// Elements of the whole pool.
    fn elements<E: Stored>(&self) -> usize {
        self.layers * self.blocks * self.kv_heads * self.head_block::<E>()
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
        let memory = match shape.format {
            KvFormat::F32 => Memory::Singles(Packed::zeros(shape.elements::<f32>())),
            KvFormat::Bf16 => Memory::Pairs(Packed::zeros(shape.elements::<Pair>())),
            KvFormat::Q8 => Memory::Bytes(Packed::zeros(shape.elements::<BytePair>())),
        };
        Self { shape, memory }
    }

    /// Its extents.
    #[inline]
    pub fn shape(&self) -> PoolShape {
        self.shape
    }

    /// Writes a layer's keys and values of some tokens, blocks in parallel.
    ///
    /// `fill(head, token, key, value)` computes them; token `i` goes to `cells[i]`.
    pub fn write(
        &mut self,
        isa: Isa,
        layer: usize,
        cells: &[Cell],
        fill: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        let writer = Writer { shape: self.shape, isa };
        match &mut self.memory {
            Memory::Singles(memory) => writer.write(memory, layer, cells, fill),
            Memory::Pairs(memory) => writer.write(memory, layer, cells, fill),
            Memory::Bytes(memory) => writer.write(memory, layer, cells, fill),
        }
    }
}

/// Where keys and values go, and the kernels that round them.
#[derive(Clone, Copy)]
struct Writer {
    shape: PoolShape,
    isa: Isa,
}

impl Writer {
    /// [`KvPool::write`] in one kind of memory.
    fn write<E: Stored>(
        self,
        memory: &mut [E],
        layer: usize,
        cells: &[Cell],
        fill: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        let Self { shape, .. } = self;
        let head_block = shape.head_block::<E>();
        let size = shape.kv_heads * head_block;
        let mut order: Vec<usize> = (0..cells.len()).collect();
        order.sort_by_key(|token| cells[*token].block); // mostly they are in order
        let mut rest = &mut memory[layer * shape.blocks * size..][..shape.blocks * size];
        let (mut blocks, mut passed) = (Vec::new(), 0);
        for tokens in order.chunk_by(|a, b| cells[*a].block == cells[*b].block) {
            let block = cells[tokens[0]].block;
            let (memory, after) = rest[(block - passed) * size..].split_at_mut(size);
            blocks.push((memory, tokens));
            (rest, passed) = (after, block + 1);
        }
        let writes_per_block = (cells.len() * shape.kv_heads).div_ceil(blocks.len().max(1));
        let blocks = blocks.into_par_iter().with_min_len(WRITES_PER_TASK.div_ceil(writes_per_block.max(1)));
        blocks.for_each_init(
            || Scratch::new(shape),
            |scratch, (memory, tokens)| {
                // Token by token: what is read then lies in order.
                for token in tokens {
                    for (head, memory) in memory.chunks_exact_mut(head_block).enumerate() {
                        fill(head, *token, &mut scratch.key, &mut scratch.value);
                        scratch.store(memory, self, cells[*token].lane);
                    }
                }
            },
        );
    }
}

/// A key and a value on their way to the pool.
struct Scratch<E> {
    key: Vec<f32>,
    value: Vec<f32>,
    narrow: Vec<E>,
}

impl<E: Stored> Scratch<E> {
    fn new(shape: PoolShape) -> Self {
        let (numbers, elements) = (vec![0.0; shape.head_dim], shape.head_dim.div_ceil(E::NUMBERS));
        Self { key: numbers.clone(), value: numbers, narrow: vec![E::ZERO; elements] }
    }

    /// Puts both in their places in a block of a head.
    fn store(&mut self, memory: &mut [E], Writer { shape, isa }: Writer, lane: usize) {
        let (keys, rest) = memory.split_at_mut(shape.key_block(E::NUMBERS));
        let (values, scales) = rest.split_at_mut(shape.value_block(E::NUMBERS));
        let of_key = E::narrow(isa, &self.key, &mut self.narrow);
        for (to, element) in keys[lane..].iter_mut().step_by(shape.lanes()).zip(&self.narrow) {
            *to = *element;
        }
        let of_value = E::narrow(isa, &self.value, &mut self.narrow);
        let row = lane / E::NUMBERS * shape.head_lanes();
        E::scatter(&self.narrow, lane % E::NUMBERS, &mut values[row..row + shape.head_dim]);
        if let (Some(of_key), Some(of_value)) = (of_key, of_value) {
            (scales[lane], scales[shape.lanes() + lane]) = (of_key, of_value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of small blocks after two tokens of its second layer were written.
    fn written(format: KvFormat, isa: Isa) -> (KvPool, [Cell; 2]) {
        let shape = PoolShape { format, layers: 2, kv_heads: 2, head_dim: 3, block_tokens: 5, blocks: 4 };
        let mut pool = KvPool::new(shape);
        let cells = [Cell { block: 3, lane: 4 }, Cell { block: 0, lane: 1 }];
        pool.write(isa, 1, &cells, |head, token, key, value| {
            for d in 0..3 {
                key[d] = number(head, token, d);
                value[d] = -key[d];
            }
        });
        (pool, cells)
    }

    /// Numbers that bf16 holds.
    fn number(head: usize, token: usize, d: usize) -> f32 {
        (100 * head + 10 * token + d) as f32
    }

    /// Reads a block of the second layer.
    fn read<'a, E: KvElement>(
        pool: &'a KvPool,
        isa: Isa,
        head: usize,
        block: usize,
        memory: &'a mut ReadMemory,
    ) -> Kept<'a, E> {
        pool.read(isa, LayerHead { layer: 1, head }, &[block], memory)
    }

    #[test]
    fn what_is_written_to_a_cell_is_read_from_its_block() {
        let (pool, cells) = written(KvFormat::F32, Isa::detect());
        let (lanes, head_lanes) = (pool.shape.lanes(), pool.shape.head_lanes());
        for (token, cell) in cells.iter().enumerate() {
            for head in 0..2 {
                let mut memory = ReadMemory::default();
                let kept = read::<f32>(&pool, Isa::detect(), head, cell.block, &mut memory);
                let (keys, values) = (kept.keys[0], kept.values[0]);
                assert!(kept.scales.is_none());
                for d in 0..3 {
                    assert_eq!(keys[d * lanes + cell.lane], number(head, token, d));
                    assert_eq!(values[cell.lane * head_lanes + d], -number(head, token, d));
                }
            }
        }
        let mut memory = ReadMemory::default();
        let first = pool.read::<f32>(Isa::detect(), LayerHead { layer: 0, head: 0 }, &[3], &mut memory);
        assert!(first.keys[0].iter().all(|x| *x == 0.0));
    }

    #[test]
    fn pairs_lie_along_the_sums_that_read_them_and_the_rest_is_zero() {
        for isa in Isa::available() {
            let (pool, cells) = written(KvFormat::Bf16, isa);
            let (lanes, head_lanes) = (pool.shape.lanes(), pool.shape.head_lanes());
            for (token, cell) in cells.iter().enumerate() {
                for head in 0..2 {
                    let mut memory = ReadMemory::default();
                    let kept = read::<Pair>(&pool, isa, head, cell.block, &mut memory);
                    let (keys, values) = (kept.keys[0], kept.values[0]);
                    let key = [0, 1].map(|pair| keys[pair * lanes + cell.lane].map(f32::from));
                    let expected = [0, 1, 2].map(|d| number(head, token, d));
                    assert_eq!(key.as_flattened(), [&expected[..], &[0.0]].concat());
                    for (d, expected) in expected.iter().enumerate() {
                        let pair = values[cell.lane / 2 * head_lanes + d];
                        assert_eq!(f32::from(pair[cell.lane % 2]), -expected);
                        assert_eq!(f32::from(pair[1 - cell.lane % 2]), 0.0, "nobody wrote beside it");
                    }
                }
            }
        }
    }

    #[test]
    fn integers_are_read_with_the_scale_of_their_token_and_head() {
        for isa in Isa::available() {
            let (pool, cells) = written(KvFormat::Q8, isa);
            let (lanes, head_lanes) = (pool.shape.lanes(), pool.shape.head_lanes());
            let mut memory = ReadMemory::default();
            for head in 0..2 {
                let blocks = cells.map(|cell| cell.block);
                let kept = pool.read::<Pair>(isa, LayerHead { layer: 1, head }, &blocks, &mut memory);
                let [of_keys, of_values] = kept.scales.expect("integers have scales");
                assert_eq!((of_keys.len(), of_values.len()), (2 * lanes, 2 * lanes));
                for (token, cell) in cells.iter().enumerate() {
                    let (keys, values) = (kept.keys[token], kept.values[token]);
                    let at = token * lanes + cell.lane;
                    for d in 0..3 {
                        let expected = number(head, token, d);
                        let key = f32::from(keys[d / 2 * lanes + cell.lane][d % 2]) * of_keys[at];
                        let value =
                            f32::from(values[cell.lane / 2 * head_lanes + d][cell.lane % 2]) * of_values[at];
                        let half_a_step = 0.51 * (100 * head + 10 * token + 2) as f32 / 127.0;
                        assert!((key - expected).abs() < half_a_step, "{key} for {expected}");
                        assert!((value + expected).abs() < half_a_step, "{value} for -{expected}");
                    }
                    let others = (0..lanes).filter(|lane| *lane != cell.lane);
                    assert!(others.map(|lane| of_keys[token * lanes + lane]).all(|scale| scale == 0.0));
                }
            }
        }
    }

    #[test]
    fn a_shape_fills_the_bytes_it_is_given_and_refuses_too_few() {
        let config = crate::decoder::tests_config();
        let fit = |format, tokens, bytes| PoolShape::fit(&config, format, tokens, Bytes(bytes));
        let blocks = KvFormat::ALL.map(|format| {
            let shape = fit(format, 16, 1 << 20).expect("a megabyte holds blocks");
            let (bytes, block) = (shape.bytes().0, shape.bytes().0 / shape.blocks as u64);
            assert!(bytes <= 1 << 20 && bytes + block > 1 << 20);
            assert_eq!(fit(format, 16, 7), Err(PoolError::TooSmall { given: 7, block }));
            shape.blocks
        });
        assert_eq!(blocks[0], blocks[1] / 2, "bf16 takes half");
        let wide = ModelConfig { head_dim: 64, ..config.clone() };
        let [bf16, q8] = [KvFormat::Bf16, KvFormat::Q8].map(|format| {
            PoolShape::fit(&wide, format, 16, Bytes(1 << 24)).expect("it holds blocks").blocks as f64
        });
        assert!((1.93..2.0).contains(&(q8 / bf16)), "eight bits take half of bf16, and scales: {bf16} {q8}");
        assert_eq!(fit(KvFormat::Bf16, 0, 7), Err(PoolError::BlockTokens(0)));
        assert_eq!(fit(KvFormat::Bf16, 129, 7), Err(PoolError::BlockTokens(129)));
    }
}
