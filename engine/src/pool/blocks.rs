//! The pool's memory, and how keys and values are written to it.

use rayon::prelude::*;

use super::shape::PoolShape;
use crate::device::Isa;
use crate::device::cpu::{BytePair, Packed, Pair, Stored};
use crate::settings::{KvFormat, NO_FP8_ON_CPU};

/// Keys and values (of a token and a head) that a task writes at least: less is not worth waking a thread
/// for.
const WRITES_PER_TASK: usize = 64;

/// The pool.
pub struct KvPool {
    pub(super) shape: PoolShape,
    pub(super) memory: PoolMemory,
    /// The position that each token was computed for: `[blocks][block_tokens]`. Empty until one is placed:
    /// only models whose scores fall with distance ask.
    pub(super) positions: Vec<u32>,
}

/// Its memory, in the element that the format is made of.
pub(super) enum PoolMemory {
    Singles(Packed<f32>),
    Pairs(Packed<Pair>),
    Bytes(Packed<BytePair>),
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
    /// Allocates the pool; the system hands out its pages as they are first written, or at [`Self::fault_in`].
    pub fn new(shape: PoolShape) -> Self {
        let memory = match shape.format {
            KvFormat::F32 => PoolMemory::Singles(Packed::zeros(shape.elements::<f32>())),
            KvFormat::Bf16 => PoolMemory::Pairs(Packed::zeros(shape.elements::<Pair>())),
            KvFormat::Q8 => PoolMemory::Bytes(Packed::zeros(shape.elements::<BytePair>())),
            KvFormat::Fp8 => unreachable!("{NO_FP8_ON_CPU}"), // a model is refused with it
        };
        Self { shape, memory, positions: Vec::new() }
    }

    /// Has the system hand out all its pages now, in parallel: a prefill into fresh memory waits for each page.
    pub(crate) fn fault_in(&mut self) {
        match &mut self.memory {
            PoolMemory::Singles(memory) => memory.fault_in(),
            PoolMemory::Pairs(memory) => memory.fault_in(),
            PoolMemory::Bytes(memory) => memory.fault_in(),
        }
    }

    /// How many of its pages the system has handed out, and how many there are; `None` where it does not say.
    #[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn pages(&self) -> Option<(usize, usize)> {
        match &self.memory {
            PoolMemory::Singles(memory) => memory.pages(),
            PoolMemory::Pairs(memory) => memory.pages(),
            PoolMemory::Bytes(memory) => memory.pages(),
        }
    }

    /// Its extents.
    #[inline]
    pub fn shape(&self) -> PoolShape {
        self.shape
    }

    /// Notes the positions that tokens are computed for; token `i` goes to `cells[i]`.
    pub(crate) fn place(&mut self, cells: &[Cell], positions: &[usize]) {
        let block_tokens = self.shape.block_tokens;
        self.positions.resize(self.shape.blocks * block_tokens, 0);
        for (cell, position) in cells.iter().zip(positions) {
            self.positions[cell.block * block_tokens + cell.lane] = *position as u32;
        }
    }

    /// The positions of the tokens of some blocks, each block's in as many lanes as its scores have; lanes
    /// without a token have any.
    pub(crate) fn positions(&self, blocks: &[usize], to: &mut Vec<f32>) {
        let (block_tokens, lanes) = (self.shape.block_tokens, self.shape.lanes());
        to.resize(blocks.len() * lanes, 0.0);
        for (block, to) in blocks.iter().zip(to.chunks_exact_mut(lanes)) {
            let from = &self.positions[block * block_tokens..][..block_tokens];
            to.iter_mut().zip(from).for_each(|(to, position)| *to = *position as f32);
        }
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
            PoolMemory::Singles(memory) => writer.write(memory, layer, cells, fill),
            PoolMemory::Pairs(memory) => writer.write(memory, layer, cells, fill),
            PoolMemory::Bytes(memory) => writer.write(memory, layer, cells, fill),
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
            || WriteScratch::new(shape),
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
struct WriteScratch<E> {
    key: Vec<f32>,
    value: Vec<f32>,
    narrow: Vec<E>,
}

impl<E: Stored> WriteScratch<E> {
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
