//! The KV block pool: memory for keys and values, allocated once, addressed by block.
//!
//! Who holds which block is the scheduler's ledger; nothing here counts references. Layout, per layer, block
//! and key-value head (what one attention task reads lies together, and so does what one token writes):
//!
//! ```text
//! keys    [head_dim / numbers][lanes]              transposed: a tile of scores has tokens in its lanes
//! values  [block_tokens / numbers][head_lanes]
//! ```
//!
//! `numbers` is what one element holds: a pair of bf16 lies along the sum that it is read for, two dimensions
//! of a key, two tokens of a value. So does a pair of eight-bit integers, behind which the scales of keys
//! lie, then those of values, one per lane. `lanes` and `head_lanes` are `block_tokens` and `head_dim`
//! rounded up to whole vectors; the rest stays zero.

mod blocks;
mod read;
mod shape;
mod tier;

pub use blocks::{Cell, KvPool};
pub(crate) use read::{Kept, KvElement, LayerHead, ReadMemory};
pub use shape::{BLOCK_TOKENS_MAX, PoolError, PoolShape};

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::*;
    use crate::checkpoint::ModelConfig;
    use crate::device::Isa;
    use crate::device::cpu::Pair;
    use crate::settings::KvFormat;

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
        let [bf16, q8, fp8] = [KvFormat::Bf16, KvFormat::Q8, KvFormat::Fp8].map(|format| {
            PoolShape::fit(&wide, format, 16, Bytes(1 << 24)).expect("it holds blocks").blocks as f64
        });
        assert_eq!(fp8, q8, "floats of eight bits take what integers do");
        assert!((1.93..2.0).contains(&(q8 / bf16)), "eight bits take half of bf16, and scales: {bf16} {q8}");
        assert_eq!(fit(KvFormat::Bf16, 0, 7), Err(PoolError::BlockTokens(0)));
        assert_eq!(fit(KvFormat::Bf16, 129, 7), Err(PoolError::BlockTokens(129)));
    }
}
