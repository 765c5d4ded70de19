//! Copies of whole blocks between a pool and the tier behind it, which is a pool of the same shape with a
//! number of blocks of its own.
//!
//! Here both are memory of the host: the twin of a pool on a device and pinned host memory, on which the
//! tier's promises are proven.

use base::Moves;

use super::blocks::{KvPool, PoolMemory};
use super::shape::PoolShape;
use crate::device::cpu::Stored;

impl KvPool {
    /// Does a step's moves: all blocks that go out to the tier, then all that come back.
    pub(crate) fn move_blocks(&mut self, tier: &mut Self, moves: &Moves) {
        for moved in &moves.out {
            tier.copy_block(moved.to.0 as usize, self, moved.from.0 as usize);
        }
        for moved in &moves.back {
            self.copy_block(moved.to.0 as usize, tier, moved.from.0 as usize);
        }
    }

    /// Copies block `from` of another pool of this shape, in every layer.
    fn copy_block(&mut self, to: usize, source: &Self, from: usize) {
        if !source.positions.is_empty() {
            let block_tokens = self.shape.block_tokens;
            self.positions.resize(self.shape.blocks * block_tokens, 0);
            let positions = &source.positions[from * block_tokens..][..block_tokens];
            self.positions[to * block_tokens..][..block_tokens].copy_from_slice(positions);
        }
        let to = BlockIn { shape: self.shape, block: to };
        let from = BlockIn { shape: source.shape, block: from };
        match (&mut self.memory, &source.memory) {
            (PoolMemory::Singles(memory), PoolMemory::Singles(source)) => copy(memory, to, source, from),
            (PoolMemory::Pairs(memory), PoolMemory::Pairs(source)) => copy(memory, to, source, from),
            (PoolMemory::Bytes(memory), PoolMemory::Bytes(source)) => copy(memory, to, source, from),
            _ => unreachable!("a tier is of its pool's format"),
        }
    }
}

/// A block of a pool of this shape.
#[derive(Clone, Copy)]
struct BlockIn {
    shape: PoolShape,
    block: usize,
}

/// [`KvPool::copy_block`] in one kind of memory.
fn copy<E: Stored>(memory: &mut [E], to: BlockIn, source: &[E], from: BlockIn) {
    let size = to.shape.kv_heads * to.shape.head_block::<E>();
    for layer in 0..to.shape.layers {
        let start = |of: BlockIn| (layer * of.shape.blocks + of.block) * size;
        let (to, from) = (start(to), start(from));
        memory[to..to + size].copy_from_slice(&source[from..from + size]);
    }
}

#[cfg(test)]
mod tests {
    use base::{BlockId, Bytes, HostBlockId, MoveBack, MoveOut};

    use super::super::{Cell, LayerHead, PoolError, ReadMemory};
    use super::*;
    use crate::device::Isa;
    use crate::device::cpu::Pair;
    use crate::settings::KvFormat;

    const SHAPE: PoolShape =
        PoolShape { format: KvFormat::F32, layers: 2, kv_heads: 2, head_dim: 3, block_tokens: 5, blocks: 4 };

    /// Fills a block's first lane in a layer with numbers of its own.
    fn fill(pool: &mut KvPool, layer: usize, block: usize, number: f32) {
        pool.write(Isa::detect(), layer, &[Cell { block, lane: 0 }], |head, _, key, value| {
            key.fill(number + head as f32);
            value.fill(-number - head as f32);
        });
    }

    /// What a block holds in each layer and head, whatever its format.
    fn content(pool: &KvPool, block: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let at = LayerHead { layer, head };
            let mut memory = ReadMemory::default();
            match pool.shape.format {
                KvFormat::F32 => {
                    let kept = pool.read::<f32>(Isa::detect(), at, &[block], &mut memory);
                    all.extend(kept.keys[0].iter().chain(kept.values[0]));
                }
                KvFormat::Bf16 | KvFormat::Q8 | KvFormat::Fp8 => {
                    let kept = pool.read::<Pair>(Isa::detect(), at, &[block], &mut memory);
                    all.extend(kept.keys[0].iter().chain(kept.values[0]).flatten().map(|x| f32::from(*x)));
                    all.extend(kept.scales.iter().flatten().flat_map(|scales| scales.iter().copied()));
                }
            }
        }
        all
    }

    #[test]
    fn a_block_goes_out_another_takes_its_place_and_it_comes_back_as_it_was() {
        for format in KvFormat::ON_CPU {
            let shape = PoolShape { format, ..SHAPE };
            let mut pool = KvPool::new(shape);
            let mut tier = KvPool::new(PoolShape { blocks: 2, ..shape });
            for (layer, block) in [(0, 1), (1, 1), (0, 3), (1, 3)] {
                fill(&mut pool, layer, block, (10 * layer + block) as f32);
            }
            let (first, third) = (content(&pool, 1), content(&pool, 3));
            let out = |from, to| MoveOut { from: BlockId(from), to: HostBlockId(to) };
            let back = |from, to| MoveBack { from: HostBlockId(from), to: BlockId(to) };
            pool.move_blocks(&mut tier, &Moves { out: vec![out(1, 1)], back: Vec::new() });
            fill(&mut pool, 0, 1, 77.0);
            // Out before back: the block that leaves makes room for the one that returns.
            pool.move_blocks(&mut tier, &Moves { out: vec![out(3, 0)], back: vec![back(1, 3)] });
            assert_eq!((content(&pool, 3), content(&tier, 0)), (first, third.clone()), "{format:?}");
            pool.move_blocks(&mut tier, &Moves { out: Vec::new(), back: vec![back(0, 0)] });
            assert_eq!(content(&pool, 0), third, "{format:?}");
        }
    }

    #[test]
    fn the_positions_of_tokens_move_with_their_block() {
        let mut pool = KvPool::new(SHAPE);
        let mut tier = KvPool::new(PoolShape { blocks: 2, ..SHAPE });
        let positions = |pool: &KvPool, block| {
            let mut found = Vec::new();
            pool.positions(&[block], &mut found);
            found[..SHAPE.block_tokens].to_vec()
        };
        let cells = [Cell { block: 2, lane: 1 }, Cell { block: 2, lane: 4 }];
        pool.place(&cells, &[40, 41]);
        let out = MoveOut { from: BlockId(2), to: HostBlockId(1) };
        pool.move_blocks(&mut tier, &Moves { out: vec![out], back: Vec::new() });
        pool.place(&cells, &[7, 8]);
        let back = MoveBack { from: HostBlockId(1), to: BlockId(3) };
        pool.move_blocks(&mut tier, &Moves { out: Vec::new(), back: vec![back] });
        assert_eq!(positions(&pool, 3), [0.0, 40.0, 0.0, 0.0, 41.0]);
        assert_eq!(positions(&pool, 2), [0.0, 7.0, 0.0, 0.0, 8.0]);
    }

    #[test]
    fn a_tier_fills_the_bytes_it_is_given_and_refuses_too_few() {
        let block = PoolShape { blocks: 1, ..SHAPE }.bytes().0;
        let tier = |bytes| SHAPE.tier(Bytes(bytes)).map(|tier| tier.blocks);
        assert_eq!((tier(0), tier(block), tier(7 * block + block / 2)), (Ok(0), Ok(1), Ok(7)));
        assert_eq!(tier(block - 1), Err(PoolError::TierTooSmall { given: block - 1, block }));
    }
}
