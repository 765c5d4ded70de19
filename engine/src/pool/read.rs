//! Blocks of a head as products read them: as they lie in the pool, or widened from eight-bit integers.
//!
//! Widening a few blocks at a time costs one pass for all the queries that then meet them, and leaves one set
//! of kernels for bf16 however it is kept.

use super::blocks::{KvPool, PoolMemory};
use super::shape::PoolShape;
use crate::device::Isa;
use crate::device::cpu::{BytePair, LANES, Pair, SCORES_MAX, Stored, kept_scales, widen};

/// Most blocks that are read together: so many fill a row of scores.
const BLOCKS_MAX: usize = SCORES_MAX / LANES;

/// Bytes of a cache line: vectors that cross from one to the next take twice as long.
const CACHE_LINE: usize = 64;

/// A key-value head of a layer.
#[derive(Clone, Copy)]
pub(crate) struct LayerHead {
    pub(crate) layer: usize,
    pub(crate) head: usize,
}

/// An element that products read.
pub(crate) trait KvElement: Stored {
    /// Some blocks of a layer's head: at most as many as a row of scores has room for. The pool's format must
    /// be read as this element.
    fn read<'a>(
        pool: &'a KvPool,
        isa: Isa,
        head: LayerHead,
        blocks: &[usize],
        memory: &'a mut ReadMemory,
    ) -> Kept<'a, Self>;
}

/// Memory for blocks that are widened.
#[derive(Default)]
pub(crate) struct ReadMemory {
    pairs: Vec<Pair>,
    /// Of keys, then of values: one per lane of all blocks.
    scales: Vec<f32>,
}

/// Blocks that were read.
pub(crate) struct Kept<'a, E> {
    /// `[head_dim / numbers, lanes]` each.
    pub(crate) keys: [&'a [E]; BLOCKS_MAX],
    /// `[block_tokens / numbers, head_lanes]` each.
    pub(crate) values: [&'a [E]; BLOCKS_MAX],
    /// What a number of each lane's key, and one of its value, are worth, where they are not those numbers
    /// themselves.
    pub(crate) scales: Option<[&'a [f32]; 2]>,
}

impl KvElement for f32 {
    fn read<'a>(
        pool: &'a KvPool,
        _isa: Isa,
        head: LayerHead,
        blocks: &[usize],
        _memory: &'a mut ReadMemory,
    ) -> Kept<'a, Self> {
        match &pool.memory {
            PoolMemory::Singles(memory) => lying(memory, pool.shape, head, blocks),
            PoolMemory::Pairs(_) | PoolMemory::Bytes(_) => unreachable!("callers go by the pool's format"),
        }
    }
}

impl KvElement for Pair {
    fn read<'a>(
        pool: &'a KvPool,
        isa: Isa,
        head: LayerHead,
        blocks: &[usize],
        memory: &'a mut ReadMemory,
    ) -> Kept<'a, Self> {
        match &pool.memory {
            PoolMemory::Pairs(memory) => lying(memory, pool.shape, head, blocks),
            PoolMemory::Bytes(bytes) => memory.widen(isa, bytes, pool.shape, head, blocks),
            PoolMemory::Singles(_) => unreachable!("callers go by the pool's format"),
        }
    }
}

/// Blocks as they lie.
fn lying<'a, E: Stored>(memory: &'a [E], shape: PoolShape, head: LayerHead, blocks: &[usize]) -> Kept<'a, E> {
    let mut kept = Kept { keys: [&[]; BLOCKS_MAX], values: [&[]; BLOCKS_MAX], scales: None };
    for (number, block) in blocks.iter().enumerate() {
        let block = head_block(memory, shape, head, *block);
        (kept.keys[number], kept.values[number]) = block.split_at(shape.key_block(E::NUMBERS));
    }
    kept
}

/// All of one block of a layer's head.
fn head_block<E: Stored>(
    memory: &[E],
    shape: PoolShape,
    LayerHead { layer, head }: LayerHead,
    block: usize,
) -> &[E] {
    let size = shape.head_block::<E>();
    &memory[((layer * shape.blocks + block) * shape.kv_heads + head) * size..][..size]
}

impl ReadMemory {
    fn widen(
        &mut self,
        isa: Isa,
        bytes: &[BytePair],
        shape: PoolShape,
        head: LayerHead,
        blocks: &[usize],
    ) -> Kept<'_, Pair> {
        let (keys, lanes) = (shape.key_block(Pair::NUMBERS), shape.lanes());
        let numbers = shape.head_block::<Pair>();
        let size = blocks.len() * numbers;
        self.pairs.resize((size + CACHE_LINE).max(self.pairs.len()), Pair::ZERO);
        let first = self.pairs.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE);
        let pairs = &mut self.pairs[first..first + size];
        self.scales.resize(2 * SCORES_MAX, 0.0);
        let (of_keys, of_values) = self.scales.split_at_mut(SCORES_MAX);
        let scales = of_keys.chunks_exact_mut(lanes).zip(of_values.chunks_exact_mut(lanes));
        let places = pairs.chunks_exact_mut(numbers).zip(scales);
        for (block, (pairs, (of_keys, of_values))) in blocks.iter().zip(places) {
            let (integers, scales) = head_block(bytes, shape, head, *block).split_at(numbers);
            widen(isa, integers, pairs);
            kept_scales(isa, &scales[..lanes], of_keys);
            kept_scales(isa, &scales[lanes..], of_values);
        }
        let (of_keys, of_values) = self.scales.split_at(SCORES_MAX);
        let width = blocks.len() * lanes;
        let scales = Some([&of_keys[..width], &of_values[..width]]);
        let mut kept = Kept { keys: [&[]; BLOCKS_MAX], values: [&[]; BLOCKS_MAX], scales };
        for (number, pairs) in self.pairs[first..first + size].chunks_exact(numbers).enumerate() {
            (kept.keys[number], kept.values[number]) = pairs.split_at(keys);
        }
        kept
    }
}

impl KvPool {
    /// Some blocks of a layer's head; `memory` holds what has to be widened.
    #[inline]
    pub(crate) fn read<'a, E: KvElement>(
        &'a self,
        isa: Isa,
        head: LayerHead,
        blocks: &[usize],
        memory: &'a mut ReadMemory,
    ) -> Kept<'a, E> {
        E::read(self, isa, head, blocks, memory)
    }
}
