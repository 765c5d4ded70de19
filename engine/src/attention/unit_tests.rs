//! Attention whose products run on a matrix unit, in software everywhere and in hardware where there is one,
//! against the same in vectors of single precision.

use base::{BlockId, RequestId, Run, Slot, TokenCount, TokenId};

use super::plan::{AttentionPlan, Cut};
use super::*;
use crate::checkpoint::config::RopeScaling;
use crate::device::Cpu;
use crate::device::cpu::Emulated;
use crate::pool::{Cell, KvPool, PoolShape};
use crate::rope::{Angles, Rope};

const BLOCK: usize = 16;
const HEADS: Heads = Heads { queries: 6, kv: 2, dim: 64, window: None };
const WIDTH: usize = HEADS.queries * HEADS.dim;
const BLOCKS: usize = 64;

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

fn run(blocks: std::ops::Range<u32>, tokens: u64, shift: u32) -> Run {
    Run { skip: 0, blocks: blocks.map(BlockId).collect(), tokens: TokenCount(tokens), shift }
}

/// A slot of `count` tokens after `context`, written to the blocks from `block` on.
fn slot(context: Vec<Run>, count: usize, block: u32) -> Slot {
    Slot {
        request: RequestId(u64::from(block)),
        start: context.iter().map(|run| run.tokens.0 as u32).sum(),
        input: vec![TokenId(0); count],
        guesses: 0,
        prompt_targets: None,
        context,
        write_blocks: (block..block + 4).map(BlockId).collect(),
        write_offset: 5,
        sample: None,
        is_prefill: true,
    }
}

/// More rows than a task takes, runs that end inside a block, and one longer than a chunk of scores.
fn slots() -> Vec<Slot> {
    vec![
        slot(vec![run(0..3, 41, 0), run(3..4, 7, 0)], 1, 4),
        slot(vec![run(0..3, 41, 0)], 37, 8),
        slot(vec![], 53, 12),
        slot(vec![run(16..27, 170, 0)], 2, 28),
    ]
}

/// What attention of products `P` gives to slots whose tokens are numbered from `first` on; cells that no slot
/// has hold no numbers.
fn attended<P: Product<Right: KvElement>>(
    isa: Isa,
    slots: &[Slot],
    first: usize,
    window: Option<usize>,
) -> Vec<f32> {
    let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
    let shape = PoolShape {
        format: KvFormat::Bf16,
        layers: 1,
        kv_heads: HEADS.kv,
        head_dim: HEADS.dim,
        block_tokens: BLOCK,
        blocks: BLOCKS,
    };
    let mut pool = KvPool::new(shape);
    let all: Vec<Cell> =
        (0..BLOCKS * BLOCK).map(|cell| Cell { block: cell / BLOCK, lane: cell % BLOCK }).collect();
    pool.write(isa, 0, &all, |_, _, key, value| {
        key.fill(f32::NAN);
        value.fill(f32::NAN);
    });
    for slot in slots {
        let own = slot.write_offset as usize;
        let stretches = slot.context.iter().map(|run| (&run.blocks[..], 0, run.tokens.0 as usize));
        for (blocks, first, count) in stretches.chain([(&slot.write_blocks[..], own, slot.input.len())]) {
            let cells: Vec<Cell> = (first..first + count)
                .map(|at| Cell { block: blocks[at / BLOCK].0 as usize, lane: at % BLOCK })
                .collect();
            pool.write(isa, 0, &cells, |head, token, key, value| {
                let Cell { block, lane } = cells[token];
                let at = ((block * BLOCK + lane) * HEADS.kv + head) * HEADS.dim;
                key.iter_mut().enumerate().for_each(|(d, key)| *key = noise(at + d));
                value.iter_mut().enumerate().for_each(|(d, value)| *value = noise(at + d + 900_001));
            });
        }
    }
    let rope = Rope::new(HEADS.dim, 10_000.0, RopeScaling::None);
    let mut angles = Angles::default();
    for slot in slots {
        angles.reach(&rope, slot.start as usize + slot.input.len());
    }
    let tokens: usize = slots.iter().map(|slot| slot.input.len()).sum();
    let plan = AttentionPlan::new(slots, BLOCK, true, |_| Cut::ON_PROCESSOR);
    let queries: Vec<f32> = (0..tokens * WIDTH).map(|i| 3.0 * noise(first * WIDTH + i + 7)).collect();
    let layer = Layer {
        cpu: &cpu,
        heads: Heads { window, ..HEADS },
        scores: Scores {
            scale: std::f32::consts::LOG2_E / (HEADS.dim as f32).sqrt(),
            cap: None,
            falloff: None,
        },
        pool: &pool,
        layer: 0,
        plan: &plan,
        angles: &angles,
        queries: &queries,
        query_stride: WIDTH,
        partial_bytes_max: PARTIAL_BYTES_MAX,
    };
    let (mut out, mut partials) = (vec![f32::NAN; tokens * WIDTH], Vec::new());
    cpu.run(|| layer.run_as::<P>(&mut out, &mut partials));
    out
}

#[test]
fn attention_on_a_unit_equals_attention_in_single_precision() {
    for window in [None, Some(30)] {
        let exact = attended::<Widened>(Isa::Portable, &slots(), 0, window);
        let in_software = attended::<OnUnit<Emulated>>(Isa::Portable, &slots(), 0, window);
        // Queries and weights are rounded to bf16: 2^-9 each.
        let apart = |a: &[f32]| a.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(in_software.iter().all(|x| x.is_finite()), "{window:?}");
        assert!(apart(&in_software) < 2e-2, "{window:?}: {}", apart(&in_software));
        if Isa::Amx.is_available() {
            let on_unit = attended::<OnUnit<Amx>>(Isa::Amx, &slots(), 0, window);
            assert!(apart(&on_unit) < 2e-2, "{window:?}: {}", apart(&on_unit));
        }
    }
}

#[test]
fn a_slot_on_a_unit_gets_alone_what_it_gets_among_others() {
    let together = attended::<OnUnit<Emulated>>(Isa::Portable, &slots(), 0, None);
    let mut first = 0;
    for slot in slots() {
        let alone = attended::<OnUnit<Emulated>>(Isa::Portable, std::slice::from_ref(&slot), first, None);
        let own = &together[first * WIDTH..][..alone.len()];
        // Runs are cut otherwise, which changes the order of sums and nothing else.
        let apart = alone.iter().zip(own).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-5, "{:?}: {apart}", slot.request);
        first += slot.input.len();
    }
}
