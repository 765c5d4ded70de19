//! Attention over runs against attention computed directly, in double precision.

use base::{BlockId, RequestId, Run, Slot, TokenCount, TokenId};

use super::plan::AttentionPlan;
use super::{Heads, Layer, PARTIAL_BYTES_MAX};
use crate::checkpoint::config::RopeScaling;
use crate::device::{Cpu, Isa};
use crate::pool::{Cell, KvPool, PoolShape};
use crate::rope::{Angles, Rope};

const BLOCK: usize = 4;
const HEADS: Heads = Heads { queries: 4, kv: 2, dim: 12, window: None };
const WIDTH: usize = HEADS.queries * HEADS.dim;

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
    Run { blocks: blocks.iter().map(|block| BlockId(*block)).collect(), tokens: TokenCount(tokens), shift }
}

/// A slot of `count` tokens after `context`, written to `block` and those behind it from `offset` on.
fn slot(context: Vec<Run>, count: usize, block: u32, offset: u32) -> Slot {
    let start = context.iter().map(|run| run.tokens.0 as u32).sum();
    Slot {
        request: RequestId(u64::from(block)),
        start,
        input: vec![TokenId(0); count],
        guesses: 0,
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
    rope.push(position, &mut angles);
    angles.rotate(0, vector, |d, x| out[d] = x);
    out
}

/// Runs attention of `slots`: keys are written rotated at each run's own numbering.
fn attend(isa: Isa, slots: &[Slot], rope: &Rope, window: Option<usize>, is_stacked: bool) -> Vec<f32> {
    attend_in(PARTIAL_BYTES_MAX, isa, slots, rope, window, is_stacked).0
}

/// The same with this much memory for partial results; and how many of their bytes it used.
fn attend_in(
    partial_bytes_max: usize,
    isa: Isa,
    slots: &[Slot],
    rope: &Rope,
    window: Option<usize>,
    is_stacked: bool,
) -> (Vec<f32>, usize) {
    let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
    let mut pool = KvPool::new(PoolShape {
        layers: 1,
        kv_heads: HEADS.kv,
        head_dim: HEADS.dim,
        block_tokens: BLOCK,
        blocks: 64,
    });
    for slot in slots {
        let mut read_at = 0;
        let own =
            (cells(&slot.write_blocks, slot.write_offset as usize, slot.input.len()), 0, slot.start as usize);
        let mut stretches = vec![own];
        for run in &slot.context {
            stretches.push((cells(&run.blocks, 0, run.tokens.0 as usize), run.shift as usize, read_at));
            read_at += run.tokens.0 as usize;
        }
        for (cells, shift, read_at) in stretches {
            pool.write(0, &cells, |head, token, key, value| {
                key.copy_from_slice(&rotate(rope, read_at + token - shift, &vector(1, cells[token], head)));
                value.copy_from_slice(&vector(2, cells[token], head));
            });
        }
    }
    let tokens: usize = slots.iter().map(|slot| slot.input.len()).sum();
    let mut angles = Angles::default();
    for slot in slots {
        (0..slot.input.len()).for_each(|i| rope.push(slot.start as usize + i, &mut angles));
    }
    let plan = AttentionPlan::new(slots, BLOCK, Some(rope), &mut angles, is_stacked);
    let queries: Vec<f32> = (0..tokens * WIDTH).map(|i| noise(3, i)).collect();
    let layer = Layer {
        cpu: &cpu,
        heads: Heads { window, ..HEADS },
        pool: &pool,
        layer: 0,
        plan: &plan,
        angles: &angles,
        queries: &queries,
        query_stride: WIDTH,
        partial_bytes_max,
    };
    let (mut out, mut partials) = (vec![f32::NAN; tokens * WIDTH], Vec::new());
    layer.run(&mut out, &mut partials);
    (out, partials.len() * size_of::<f32>())
}

/// The same by definition: every key at the position where it is read.
fn direct(slots: &[Slot], rope: &Rope, window: Option<usize>) -> Vec<f32> {
    let mut out = Vec::new();
    let mut token = 0;
    for slot in slots {
        let mut keys: Vec<Cell> =
            slot.context.iter().flat_map(|run| cells(&run.blocks, 0, run.tokens.0 as usize)).collect();
        keys.extend(cells(&slot.write_blocks, slot.write_offset as usize, slot.input.len()));
        for i in 0..slot.input.len() {
            let position = slot.start as usize + i;
            let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
            for head in 0..HEADS.queries {
                let query: Vec<f32> =
                    (0..HEADS.dim).map(|d| noise(3, token * WIDTH + head * HEADS.dim + d)).collect();
                let query = rotate(rope, position, &query);
                let weight = |at: usize| {
                    let key = rotate(rope, at, &vector(1, keys[at], head / HEADS.group()));
                    let dot: f64 = query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    (dot / (HEADS.dim as f64).sqrt()).exp()
                };
                let weights: Vec<f64> = (first..=position).map(weight).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..HEADS.dim {
                    let value = |at: usize| f64::from(vector(2, keys[at], head / HEADS.group())[d]);
                    let sum: f64 = weights.iter().zip(first..).map(|(weight, at)| weight * value(at)).sum();
                    out.push((sum / total) as f32);
                }
            }
            token += 1;
        }
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

#[test]
fn attention_over_runs_equals_attention_by_definition_on_every_kernel() {
    for isa in Isa::available() {
        for rope in ropes() {
            let found = attend(isa, &slots(), &rope, None, true);
            assert!(apart(&found, &direct(&slots(), &rope, None)) < 1e-5, "{isa:?}");
        }
    }
}

#[test]
fn stacked_runs_give_what_each_slot_gives_by_itself() {
    let rope = &ropes()[0];
    let stacked = attend(Isa::detect(), &slots(), rope, None, true);
    assert!(apart(&stacked, &attend(Isa::detect(), &slots(), rope, None, false)) < 1e-6);
    let plan =
        |is_stacked| AttentionPlan::new(&slots(), BLOCK, Some(rope), &mut Angles::default(), is_stacked);
    let readers = |plan: &AttentionPlan| plan.parts.iter().map(|part| part.members.len()).max();
    assert_eq!((readers(&plan(true)), readers(&plan(false))), (Some(4), Some(1)));
}

#[test]
fn tiles_bound_the_memory_and_change_no_bit() {
    for isa in Isa::available() {
        for (rope, window) in ropes().iter().zip([None, Some(5), Some(13)]) {
            let mut slots = slots();
            slots.push(slot(vec![run(&[0, 1], 8, 0), run(&[50, 51], 6, 3)], 11, 44, 1));
            let in_bytes = |bytes| attend_in(bytes, isa, &slots, rope, window, true);
            let (whole, all) = in_bytes(usize::MAX);
            assert!(apart(&whole, &direct(&slots, rope, window)) < 1e-5);
            let most_parts = 3;
            let rows = AttentionPlan::new(&slots, BLOCK, Some(rope), &mut Angles::default(), true).rows();
            let row_bytes = all / rows;
            for rows_max in [0, 1, 3, 7, 20, rows - 1, rows] {
                let (tiled, bytes) = in_bytes(rows_max * row_bytes);
                assert!(bytes <= rows_max.max(most_parts) * row_bytes, "{bytes} bytes for {rows_max} rows");
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&tiled), bits(&whole), "{isa:?}, {rows_max} rows at once");
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
            let found = attend(Isa::detect(), &slots, &rope, None, true);
            assert!(apart(&found, &direct(&slots, &rope, None)) < 1e-5, "shift {shift}");
        }
    }
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
        let plan = AttentionPlan::new(&slots, BLOCK, Some(rope), &mut Angles::default(), true);
        let lengths: Vec<usize> = plan.parts.iter().map(|part| part.tokens).collect();
        assert_eq!(lengths, expected, "{name}");
        for window in [None, Some(3), Some(7)] {
            let found = attend(Isa::detect(), &slots, rope, window, true);
            assert!(apart(&found, &direct(&slots, rope, window)) < 1e-5, "{name}, window {window:?}");
        }
    }
}

#[test]
fn a_window_hides_what_lies_further_back() {
    let rope = &ropes()[0];
    for window in [1, 3, 8, 13, 100] {
        let found = attend(Isa::detect(), &slots(), rope, Some(window), true);
        assert!(apart(&found, &direct(&slots(), rope, Some(window))) < 1e-5, "window {window}");
    }
}

#[test]
fn long_runs_are_cut_without_changing_the_result() {
    let blocks: Vec<u32> = (0..40).collect();
    let small = [slot(vec![run(&blocks, 158, 0)], 2, 50, 0)];
    let rope = &ropes()[0];
    assert!(apart(&attend(Isa::detect(), &small, rope, None, true), &direct(&small, rope, None)) < 1e-5);
    let ids: Vec<u32> = (0..200).collect();
    let long = [slot(vec![run(&ids, 798, 0)], 1, 210, 0)];
    let plan = AttentionPlan::new(&long, BLOCK, Some(rope), &mut Angles::default(), true);
    let lengths: Vec<usize> = plan.parts.iter().map(|part| part.tokens).collect();
    assert_eq!(lengths, [512, 286, 1]);
    assert_eq!(plan.rows_of(0).map(|(part, _)| part.position).collect::<Vec<_>>(), [0, 512, 798]);
}
