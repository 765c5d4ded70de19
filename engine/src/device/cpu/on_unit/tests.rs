//! The products of attention on the unit, in software everywhere and in hardware where there is one, against
//! sums in double precision.

use half::bf16;

use super::super::kernels::amx::{self, Amx};
use super::super::kernels::emulated::Emulated;
use super::super::layout::strip::SCORES_MAX;
use super::super::strip::STRIP_ROWS;
use super::*;

/// Tokens of a block.
const TOKENS: usize = 16;

/// A number in -1..1 that depends on `index` alone, as bf16 has it.
fn noise(index: usize) -> bf16 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bf16::from_f32(((bits >> 40) as f32) / 8_388_608.0 - 1.0)
}

fn pairs(count: usize, seed: usize) -> Aligned<Pair> {
    let mut pairs = Aligned::zeros(count);
    pairs.iter_mut().enumerate().for_each(|(i, pair)| *pair = [2 * i, 2 * i + 1].map(|i| noise(i + seed)));
    pairs
}

/// Scores `[rows, SCORES_MAX]` of queries `[rows, dim / 2]` with blocks of keys.
fn scores<U: Unit + 'static>(rows: usize, dim: usize, blocks: &[&[Pair]]) -> Vec<f32> {
    let queries = pairs(STRIP_ROWS * dim / 2, 5);
    let mut scores = Aligned::zeros(STRIP_ROWS * SCORES_MAX);
    OnUnit::<U>::on_thread(&mut || {
        OnUnit::<U>::scores(
            Isa::Portable,
            rows,
            Strided { elements: &queries, stride: dim / 2 },
            KeyBlocks { blocks, lanes: TOKENS },
            StridedMut { elements: &mut scores, stride: SCORES_MAX },
        );
    });
    scores[..rows * SCORES_MAX].to_vec()
}

/// `[rows, dim + 2]`: what was there (1) and the weighed values of the lanes that are seen.
fn values<U: Unit + 'static>(
    rows: usize,
    dim: usize,
    blocks: &[&[Pair]],
    seen: &[(usize, usize)],
) -> Vec<f32> {
    let weights = pairs(STRIP_ROWS * SCORES_MAX / 2, 9);
    let mut out = vec![1.0; rows * (dim + 2)];
    let (mut ends, width) = (Aligned::EMPTY, dim);
    OnUnit::<U>::on_thread(&mut || {
        OnUnit::<U>::add_values(
            Isa::Portable,
            rows,
            Strided { elements: &weights, stride: SCORES_MAX / 2 },
            ValueBlocks { blocks, width, lanes: TOKENS, block_tokens: TOKENS, seen },
            &mut ends,
            StridedMut { elements: &mut out, stride: dim + 2 },
        );
    });
    out
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn scores_on_the_unit_equal_the_exact_sums_and_their_hardware_twins() {
    for (rows, dim, count) in [(1, 32, 1), (7, 64, 5), (16, 96, 8), (13, 128, 3)] {
        let memory = pairs(count * TOKENS * dim / 2, 77);
        let blocks: Vec<&[Pair]> = memory.chunks(TOKENS * dim / 2).collect();
        let found = scores::<Emulated>(rows, dim, &blocks);
        if amx::is_available() {
            assert_eq!(bits(&scores::<Amx>(rows, dim, &blocks)), bits(&found), "{rows} rows of {dim}");
        }
        let queries = pairs(STRIP_ROWS * dim / 2, 5);
        for (row, scores) in found.chunks(SCORES_MAX).enumerate() {
            for (token, score) in scores[..count * TOKENS].iter().enumerate() {
                let exact: f64 = (0..dim)
                    .map(|d| {
                        let query = queries[row * dim / 2 + d / 2][d % 2];
                        let key = blocks[token / TOKENS][d / 2 * TOKENS + token % TOKENS][d % 2];
                        f64::from(query.to_f32()) * f64::from(key.to_f32())
                    })
                    .sum();
                assert!((exact - f64::from(*score)).abs() < 1e-4, "row {row}, token {token}");
            }
        }
    }
}

#[test]
fn only_lanes_of_the_part_are_weighed_whatever_the_others_hold() {
    for (rows, dim, count) in [(1, 32, 1), (7, 64, 5), (16, 96, 8), (13, 128, 3)] {
        for (first, last) in [(0, TOKENS), (3, TOKENS), (0, 5), (3, 6), (4, 9)] {
            let mut memory = pairs(count * TOKENS / 2 * dim, 77);
            // The part begins in its first block and ends in its last.
            let mut seen = vec![(0, TOKENS); count];
            seen[0].0 = first;
            seen[count - 1].1 = last;
            if seen.iter().any(|(first, last)| first >= last) {
                continue;
            }
            let is_seen =
                |token: usize| (seen[token / TOKENS].0..seen[token / TOKENS].1).contains(&(token % TOKENS));
            for token in (0..count * TOKENS).filter(|token| !is_seen(*token)) {
                let row = &mut memory[token / 2 * dim..][..dim];
                row.iter_mut().for_each(|pair| pair[token % 2] = bf16::NAN);
            }
            let blocks: Vec<&[Pair]> = memory.chunks(TOKENS / 2 * dim).collect();
            let found = values::<Emulated>(rows, dim, &blocks, &seen);
            if amx::is_available() {
                let on_unit = values::<Amx>(rows, dim, &blocks, &seen);
                assert_eq!(bits(&on_unit), bits(&found), "{rows} rows of {dim}, {seen:?}");
            }
            let weights = pairs(STRIP_ROWS * SCORES_MAX / 2, 9);
            for (row, found) in found.chunks(dim + 2).enumerate() {
                assert_eq!(found[dim..], [1.0; 2], "what is behind a head is another's");
                for (d, found) in found[..dim].iter().enumerate() {
                    let term = |token: usize| {
                        let weight = weights[row * SCORES_MAX / 2 + token / 2][token % 2];
                        f64::from(weight.to_f32())
                            * f64::from(memory[token / 2 * dim + d][token % 2].to_f32())
                    };
                    let exact = 1.0 + (0..count * TOKENS).filter(|t| is_seen(*t)).map(term).sum::<f64>();
                    assert!((exact - f64::from(*found)).abs() < 1e-4, "{seen:?}, row {row}, number {d}");
                }
            }
        }
    }
}
