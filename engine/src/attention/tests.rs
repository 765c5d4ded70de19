//! Attention over runs against attention computed directly, in double precision.

use base::{BlockId, RequestId, Run, Slot, TokenCount, TokenId};

use super::plan::{AttentionPlan, Cut};
use super::{Falloff, Heads, Layer, PARTIAL_BYTES_MAX, Scores};
use crate::checkpoint::config::RopeScaling;
use crate::device::{Cpu, Isa};
use crate::pool::{Cell, KvPool, PoolShape};
use crate::rope::{Angles, Rope};
use crate::settings::KvFormat;

const BLOCK: usize = 4;
const HEADS: Heads = Heads { queries: 4, kv: 2, dim: 12, window: None };
const WIDTH: usize = HEADS.queries * HEADS.dim;

/// What most models make of scores; the root of 12 is 3.4641016.
pub(super) const PLAIN: Scores<'static> =
    Scores { scale: std::f32::consts::LOG2_E / 3.464_101_6, cap: None, falloff: None };

/// A number in -1..1 that depends on its arguments alone.
fn noise(kind: usize, index: usize) -> f32 {
    let bits = (kind as u64 * 1_000_003 + index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits ^ (bits >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as f32 / 8_388_608.0 - 1.0
}

/// The key or value vector of a cell, before rotation.
fn vector(kind: usize, cell: Cell, head: usize) -> Vec<f32> {
    (0..HEADS.dim)
        .map(|d| noise(kind, ((cell.block * BLOCK + cell.lane) * HEADS.kv + head) * HEADS.dim + d))
        .collect()
}

/// A run of `tokens` positions in these blocks.
fn run(blocks: &[u32], tokens: u64, shift: u32) -> Run {
    Run {
        skip: 0,
        blocks: blocks.iter().map(|block| BlockId(*block)).collect(),
        tokens: TokenCount(tokens),
        shift,
    }
}

/// A slot of `count` tokens after `context`, written to `block` and those behind it from `offset` on.
fn slot(context: Vec<Run>, count: usize, block: u32, offset: u32) -> Slot {
    let start = context.iter().map(|run| run.tokens.0 as u32).sum();
    Slot {
        request: RequestId(u64::from(block)),
        start,
        input: vec![TokenId(0); count],
        guesses: 0,
        prompt_targets: None,
        context,
        write_blocks: (block..block + 6).map(BlockId).collect(),
        write_offset: offset,
        sample: None,
        is_prefill: true,
    }
}

/// The cells of a run or of a slot's own input, in order.
fn cells(blocks: &[BlockId], first: usize, count: usize) -> Vec<Cell> {
    (first..first + count).map(|i| Cell { block: blocks[i / BLOCK].0 as usize, lane: i % BLOCK }).collect()
}

fn rotate(rope: &Rope, position: usize, vector: &[f32]) -> Vec<f32> {
    let (mut angles, mut out) = (Angles::default(), vec![0.0; vector.len()]);
    angles.reach(rope, position + 1);
    angles.rotate(position, vector, &mut out);
    out
}

/// How attention is computed: instructions, and what keys and values are kept as.
type Kernel = (Isa, KvFormat);

/// Every one that this machine has.
fn kernels() -> impl Iterator<Item = Kernel> {
    Isa::available().flat_map(|isa| KvFormat::ON_CPU.map(|format| (isa, format)))
}

/// The best one that rounds nothing.
fn exact() -> Kernel {
    (Isa::detect(), KvFormat::F32)
}

/// How far a kernel may be from exact attention over what is stored.
fn tolerance((isa, format): Kernel) -> f32 {
    match format {
        KvFormat::Bf16 | KvFormat::Q8 if isa.rounds_activations() => 1e-2, // of queries and weights, 2^-9 each
        KvFormat::Bf16 | KvFormat::Q8 | KvFormat::F32 | KvFormat::Fp8 => 1e-5,
    }
}

/// Runs attention of `slots`: keys are written rotated at each run's own numbering.
fn attend(kernel: Kernel, slots: &[Slot], rope: &Rope, window: Option<usize>, is_stacked: bool) -> Vec<f32> {
    attend_in(PARTIAL_BYTES_MAX, kernel, slots, (rope, PLAIN), window, is_stacked).0
}

/// A pool in which every cell that a step does not write holds no numbers.
fn pool((isa, format): Kernel) -> KvPool {
    let (layers, blocks) = (1, 64);
    let shape =
        PoolShape { format, layers, blocks, kv_heads: HEADS.kv, head_dim: HEADS.dim, block_tokens: BLOCK };
    let mut pool = KvPool::new(shape);
    let cells = |block| (0..BLOCK).map(move |lane| Cell { block, lane });
    let all: Vec<Cell> = (0..blocks).flat_map(cells).collect();
    pool.write(isa, 0, &all, |_, _, key, value| {
        key.fill(f32::NAN);
        value.fill(f32::NAN);
    });
    pool
}

/// The same with this much memory for partial results; and how many of their bytes it used.
fn attend_in(
    partial_bytes_max: usize,
    kernel: Kernel,
    slots: &[Slot],
    (rope, scores): (&Rope, Scores<'_>),
    window: Option<usize>,
    is_stacked: bool,
) -> (Vec<f32>, usize) {
    let plan = AttentionPlan::new(slots, BLOCK, is_stacked, |_| Cut::ON_PROCESSOR);
    attend_planned(partial_bytes_max, kernel, (slots, &plan), (rope, scores), window)
}

/// The same as it was planned.
fn attend_planned(
    partial_bytes_max: usize,
    kernel: Kernel,
    (slots, plan): (&[Slot], &AttentionPlan),
    (rope, scores): (&Rope, Scores<'_>),
    window: Option<usize>,
) -> (Vec<f32>, usize) {
    let cpu = Cpu::with_isa(Some(2), kernel.0).expect("threads start");
    let mut pool = pool(kernel);
    for slot in slots {
        for (cells, shift, read_at) in stretches(slot) {
            if scores.falloff.is_some() {
                let positions: Vec<usize> = (0..cells.len()).map(|token| read_at + token - shift).collect();
                pool.place(&cells, &positions);
            }
            pool.write(kernel.0, 0, &cells, |head, token, key, value| {
                key.copy_from_slice(&rotate(rope, read_at + token - shift, &vector(1, cells[token], head)));
                value.copy_from_slice(&vector(2, cells[token], head));
            });
        }
    }
    let tokens: usize = slots.iter().map(|slot| slot.input.len()).sum();
    let mut angles = Angles::default();
    for slot in slots {
        angles.reach(rope, slot.start as usize + slot.input.len());
    }
    let queries: Vec<f32> = (0..tokens * WIDTH).map(|i| noise(3, i)).collect();
    let layer = Layer {
        cpu: &cpu,
        heads: Heads { window, ..HEADS },
        scores,
        pool: &pool,
        layer: 0,
        plan,
        angles: &angles,
        queries: &queries,
        query_stride: WIDTH,
        partial_bytes_max,
    };
    let (mut out, mut partials) = (vec![f32::NAN; tokens * WIDTH], Vec::new());
    layer.run(&mut out, &mut partials);
    (out, partials.len() * size_of::<f32>())
}

/// What a slot reads, in order: cells, the shift they are read with, and the position of the first as it is
/// read.
fn stretches(slot: &Slot) -> Vec<(Vec<Cell>, usize, usize)> {
    let (mut stretches, mut read_at) = (Vec::new(), 0);
    for run in &slot.context {
        let cells = cells(&run.blocks, run.skip as usize, run.tokens.0 as usize);
        stretches.push((cells, run.shift as usize, read_at));
        read_at += run.tokens.0 as usize;
    }
    stretches.push((cells(&slot.write_blocks, slot.write_offset as usize, slot.input.len()), 0, read_at));
    stretches
}

/// The same by definition, in double precision over the keys and values as they are kept: every key turned on
/// from its run's numbering to the position where it is read.
fn direct(format: KvFormat, slots: &[Slot], rope: &Rope, window: Option<usize>) -> Vec<f32> {
    direct_of(format, slots, (rope, PLAIN), window)
}

/// The same with other scores.
fn direct_of(
    format: KvFormat,
    slots: &[Slot],
    (rope, scores): (&Rope, Scores<'_>),
    window: Option<usize>,
) -> Vec<f32> {
    let kept = |mut vector: Vec<f32>| {
        let rounded = |x: f32| half::bf16::from_f32(x).to_f32();
        match format {
            KvFormat::F32 => {}
            KvFormat::Fp8 => unreachable!("the processor keeps none"),
            KvFormat::Bf16 => vector.iter_mut().for_each(|x| *x = rounded(*x)),
            KvFormat::Q8 => {
                let scale = rounded(vector.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / 127.0);
                vector.iter_mut().for_each(|x| *x = (*x * (1.0 / scale)).round_ties_even() * scale);
            }
        }
        vector
    };
    let mut out = Vec::new();
    let mut token = 0;
    for slot in slots {
        let stretch = |(cells, shift, read_at): (Vec<Cell>, usize, usize)| {
            let cells = cells.into_iter().enumerate();
            cells.map(move |(i, cell)| (cell, read_at + i - shift, shift)).collect::<Vec<_>>()
        };
        let cells: Vec<(Cell, usize, usize)> = stretches(slot).into_iter().flat_map(stretch).collect();
        for (i, head) in (0..slot.input.len()).flat_map(|i| (0..HEADS.queries).map(move |head| (i, head))) {
            let position = slot.start as usize + i;
            let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
            let seen = &cells[first..=position];
            let at = (token + i) * WIDTH + head * HEADS.dim;
            let query: Vec<f32> = (at..at + HEADS.dim).map(|at| noise(3, at)).collect();
            let query = rotate(rope, position, &query);
            let weight = |(cell, own, shift): &(Cell, usize, usize)| {
                let key = kept(rotate(rope, *own, &vector(1, *cell, head / HEADS.group())));
                let key = rotate(rope, *shift, &key);
                let dot: f64 = query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                let mut score = dot * f64::from(scores.scale);
                if let Some(cap) = scores.cap.map(f64::from) {
                    score = cap * (score / cap).tanh();
                }
                score += scores.falloff.map_or(0.0, |falloff| {
                    let (slope, rounded) = (falloff.slopes[head], |x: f32| half::bf16::from_f32(x).to_f32());
                    // Where the key is read, or, rounded, where it was computed.
                    let bias = match falloff.is_rounded {
                        true => {
                            f64::from(rounded(slope * rounded(*own as f32)))
                                + f64::from(slope) * *shift as f64
                        }
                        false => f64::from(slope) * (own + shift) as f64,
                    };
                    f64::from(falloff.scale) * (bias - f64::from(slope) * position as f64)
                });
                score.exp2()
            };
            let weights: Vec<f64> = seen.iter().map(weight).collect();
            let total: f64 = weights.iter().sum();
            let values: Vec<Vec<f32>> =
                seen.iter().map(|(cell, ..)| kept(vector(2, *cell, head / HEADS.group()))).collect();
            for d in 0..HEADS.dim {
                let terms = weights.iter().zip(&values).map(|(weight, value)| weight * f64::from(value[d]));
                out.push((terms.sum::<f64>() / total) as f32);
            }
        }
        token += slot.input.len();
    }
    out
}

/// Slots that share runs, in every way the contract allows.
fn slots() -> Vec<Slot> {
    let template = || run(&[0, 1, 2], 12, 0);
    vec![
        slot(vec![template(), run(&[3, 4], 6, 0)], 1, 4, 2),
        slot(vec![template()], 7, 12, 0),
        slot(vec![template(), run(&[20], 3, 0)], 1, 20, 3),
        slot(vec![], 9, 28, 0),
        slot(vec![template()], 1, 36, 0),
    ]
}

/// The largest difference.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |worst, (a, b)| if (a - b).abs() <= worst { worst } else { (a - b).abs() })
}

fn ropes() -> [Rope; 3] {
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 16,
    };
    [RopeScaling::None, RopeScaling::Linear { factor: 4.0 }, llama3]
        .map(|scaling| Rope::new(HEADS.dim, 10_000.0, scaling))
}

/// Attention by `kernel` is attention by definition.
fn check(name: &str, kernel: Kernel, slots: &[Slot], rope: &Rope, window: Option<usize>) {
    let found = attend(kernel, slots, rope, window, true);
    let apart = apart(&found, &direct(kernel.1, slots, rope, window));
    assert!(apart < tolerance(kernel), "{name} on {kernel:?}, window {window:?}: {apart}");
}

#[test]
fn attention_over_runs_equals_attention_by_definition_on_every_kernel() {
    for kernel in kernels() {
        for rope in ropes() {
            check("slots", kernel, &slots(), &rope, None);
        }
    }
}

#[test]
fn a_run_may_begin_inside_a_block_that_others_read_whole() {
    let rope = &ropes()[0];
    let lengths = |plan: &AttentionPlan| -> (usize, usize) {
        let read = || plan.parts.iter().filter(|part| !part.is_causal);
        (read().count(), read().map(|part| part.tokens).sum())
    };
    for kernel in kernels() {
        for skip in 0..4 {
            // Eleven tokens in three blocks; read from the first on they stand `skip` positions further on.
            let tail = || Run { skip, ..run(&[3, 4, 5], u64::from(11 - skip), 2) };
            let all = run(&[3, 4, 5], 11, 2 + skip);
            let before = || run(&[0, 1, 2], 12, 0);
            let slots = [
                slot(vec![before(), tail()], 3, 12, 1),
                slot(vec![before(), tail(), run(&[20], 2, 0)], 1, 20, 2),
                slot(vec![before(), all], 1, 28, 0),
            ];
            check(&format!("skip {skip}"), kernel, &slots, rope, None);
            // Cut into pieces, of which the first begins there.
            let whole = AttentionPlan::new(&slots, BLOCK, true, |_| Cut::ON_PROCESSOR);
            let pieces = AttentionPlan::new(&slots, BLOCK, true, |_| Cut { tokens: BLOCK, rows_max: 32 });
            assert!(lengths(&pieces).0 > lengths(&whole).0 && lengths(&pieces).1 == lengths(&whole).1);
            let [whole, pieces] = [&whole, &pieces]
                .map(|plan| attend_planned(PARTIAL_BYTES_MAX, kernel, (&slots, plan), (rope, PLAIN), None).0);
            assert!(apart(&whole, &pieces) < 1e-5, "skip {skip} on {kernel:?}");
        }
    }
}

#[test]
fn stacked_runs_give_what_each_slot_gives_by_itself() {
    let rope = &ropes()[0];
    for kernel in kernels() {
        // Rounded weights too: how runs are cut moves no weight across a border of its last place.
        let stacked = attend(kernel, &slots(), rope, None, true);
        assert!(apart(&stacked, &attend(kernel, &slots(), rope, None, false)) < 1e-6, "{kernel:?}");
    }
    let plan = |is_stacked| AttentionPlan::new(&slots(), BLOCK, is_stacked, |_| Cut::ON_PROCESSOR);
    let readers = |plan: &AttentionPlan| plan.parts.iter().map(|part| part.members.len()).max();
    assert_eq!((readers(&plan(true)), readers(&plan(false))), (Some(4), Some(1)));
}

#[test]
fn tiles_bound_the_memory_and_change_no_bit() {
    for kernel in kernels() {
        for (rope, window) in ropes().iter().zip([None, Some(5), Some(13)]) {
            let mut slots = slots();
            slots.push(slot(vec![run(&[0, 1], 8, 0), run(&[50, 51], 6, 3)], 11, 44, 1));
            let in_bytes = |bytes| attend_in(bytes, kernel, &slots, (rope, PLAIN), window, true);
            let (whole, all) = in_bytes(usize::MAX);
            assert!(apart(&whole, &direct(kernel.1, &slots, rope, window)) < tolerance(kernel));
            let most_parts = 3;
            let rows = AttentionPlan::new(&slots, BLOCK, true, |_| Cut::ON_PROCESSOR).rows();
            let row_bytes = all / rows;
            for rows_max in [0, 1, 3, 7, 20, rows - 1, rows] {
                let (tiled, bytes) = in_bytes(rows_max * row_bytes);
                assert!(bytes <= rows_max.max(most_parts) * row_bytes, "{bytes} bytes for {rows_max} rows");
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&tiled), bits(&whole), "{kernel:?}, {rows_max} rows at once");
            }
        }
    }
}

#[test]
fn a_shifted_run_is_read_as_if_its_keys_had_been_computed_where_it_is_read() {
    // The second run's keys are rotated for positions 1.., 7.. or 5.. and read at 8..; two slots share it.
    for rope in ropes() {
        for shift in [7, 1, 3, 8] {
            let context = || vec![run(&[0, 1], 8, 0), run(&[2, 3], 7, shift)];
            let slots = [
                slot(context(), 6, 10, 0),
                slot(context(), 1, 20, 0),
                slot(vec![run(&[0, 1], 8, 0)], 2, 30, 0),
            ];
            for kernel in [exact(), (Isa::detect(), KvFormat::Bf16)] {
                check(&format!("shift {shift}"), kernel, &slots, &rope, None);
            }
        }
    }
}

#[test]
fn scores_fall_with_the_distance_at_which_a_key_is_read_wherever_it_was_computed() {
    let still = Rope::new(HEADS.dim, 10_000.0, RopeScaling::Linear { factor: f32::INFINITY });
    let slopes = [0.5, 0.125, 0.354, 1.25];
    let mut slots = slots();
    slots.push(slot(vec![run(&[0, 1], 8, 0), run(&[50, 51], 6, 3)], 11, 44, 1));
    slots.push(slot(vec![run(&[0, 1], 8, 0), run(&[40, 41], 5, 8)], 1, 60, 2));
    let of = |is_rounded| Some(Falloff { slopes: &slopes, scale: 0.75, is_rounded });
    for cap in [None, Some(1.5)] {
        for falloff in [None, of(false), of(true)] {
            let scores = Scores { cap, falloff, ..PLAIN };
            for kernel in kernels() {
                let found = attend_in(PARTIAL_BYTES_MAX, kernel, &slots, (&still, scores), None, true).0;
                let apart = apart(&found, &direct_of(kernel.1, &slots, (&still, scores), None));
                assert!(apart < tolerance(kernel), "{kernel:?}, {scores:?}: {apart}");
            }
        }
    }
    let plain = direct_of(KvFormat::F32, &slots, (&still, PLAIN), None);
    let biased = |is_rounded| {
        let scores = Scores { falloff: of(is_rounded), ..PLAIN };
        direct_of(KvFormat::F32, &slots, (&still, scores), None)
    };
    assert!(apart(&plain, &biased(false)) > 0.1, "distance must matter");
    assert!(apart(&biased(true), &biased(false)) > 1e-3, "and so must its rounding");
}

#[test]
fn a_run_of_its_own_right_before_a_slots_input_is_one_part_with_it() {
    let rope = &ropes()[0];
    let template = || run(&[0, 1, 2], 12, 0);
    let cases = [
        ("behind a part of a block", vec![slot(vec![run(&[3, 4], 6, 0)], 3, 4, 2)], vec![9]),
        ("behind whole blocks", vec![slot(vec![run(&[3, 4], 8, 0)], 5, 10, 0)], vec![13]),
        ("in another block", vec![slot(vec![run(&[3, 4], 6, 0)], 3, 10, 2)], vec![6, 3]),
        ("at another place", vec![slot(vec![run(&[3, 4], 6, 0)], 1, 4, 3)], vec![6, 1]),
        ("shifted", vec![slot(vec![run(&[7], 4, 0), run(&[3, 4], 6, 2)], 1, 4, 2)], vec![4, 6, 1]),
        (
            "read by two",
            vec![slot(vec![template()], 2, 12, 0), slot(vec![template(), run(&[20], 3, 0)], 1, 20, 3)],
            vec![12, 2, 4],
        ),
    ];
    for (name, slots, expected) in cases {
        let plan = AttentionPlan::new(&slots, BLOCK, true, |_| Cut::ON_PROCESSOR);
        let lengths: Vec<usize> = plan.parts.iter().map(|part| part.tokens).collect();
        assert_eq!(lengths, expected, "{name}");
        for window in [None, Some(3), Some(7)] {
            kernels().for_each(|kernel| check(name, kernel, &slots, rope, window));
        }
    }
}

#[test]
fn a_window_hides_what_lies_further_back() {
    let rope = &ropes()[0];
    for window in [1, 3, 8, 13, 100] {
        kernels().for_each(|kernel| check("slots", kernel, &slots(), rope, Some(window)));
    }
}

#[test]
fn long_runs_are_cut_without_changing_the_result() {
    let blocks: Vec<u32> = (0..40).collect();
    let small = [slot(vec![run(&blocks, 158, 0)], 2, 50, 0)];
    let rope = &ropes()[0];
    kernels().for_each(|kernel| check("a run of 40 blocks", kernel, &small, rope, None));
    let ids: Vec<u32> = (0..200).collect();
    let long = [slot(vec![run(&ids, 798, 0)], 1, 210, 0)];
    let plan = AttentionPlan::new(&long, BLOCK, true, |_| Cut::ON_PROCESSOR);
    let lengths: Vec<usize> = plan.parts.iter().map(|part| part.tokens).collect();
    assert_eq!(lengths, [512, 286, 1]);
    assert_eq!(plan.rows_of(0).map(|(part, _)| part.position).collect::<Vec<_>>(), [0, 512, 798]);
}
