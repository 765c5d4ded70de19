//! The host tier: a row whose blocks left the pool and came back answers as if they had stayed, in every
//! format and on any number of ranks; what contradicts the tier is refused.

mod common;

use std::sync::Arc;

use base::text::ByteText;
use base::{
    BatchPlan, BlockId, Bytes, ExecError, Executor as _, HostBlockId, MoveBack, MoveOut, Moves, TokenId,
};
use common::{Blocks, Row, decode_all, plan, tokens};
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::executor::{LocalExecutor, PoolSettings};
use engine::parallel::ShardedModel;
use engine::pool::PoolError;
use engine::{Keep, KvFormat};

const BLOCK: usize = 8;

/// An executor with a tier of so many bytes.
fn executor(kv: KvFormat, ranks: usize, tier: u64) -> Result<LocalExecutor, PoolError> {
    let model = Synthetic::tiny(Family::Llama, 31);
    let cpus: Vec<_> = (0..ranks).map(|_| Arc::new(Cpu::new(Some(1)).expect("threads start"))).collect();
    let keep = Keep { kv: Some(kv), ..Keep::default() };
    let ranks = ShardedModel::load(&model.config, &model.weights(), &cpus, keep).expect("the model divides");
    let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(1 << 20) };
    LocalExecutor::new(ranks, Arc::new(ByteText), vec![ByteText::END], settings)?.with_tier(Bytes(tier))
}

fn out(from: u32, to: u32) -> MoveOut {
    MoveOut { from: BlockId(from), to: HostBlockId(to) }
}

fn back(from: u32, to: u32) -> MoveBack {
    MoveBack { from: HostBlockId(from), to: BlockId(to) }
}

/// Runs one slot with moves before it, and appends what was sampled.
fn advance_after(executor: &mut LocalExecutor, row: &mut Row, computed: usize, moves: Moves) {
    let outcome = executor.step(&BatchPlan { moves, ..plan(vec![row.rest(computed)]) }).expect("it is sound");
    row.tokens.extend(&outcome.rows[0].result.as_ref().expect("numbers").tokens);
}

/// Outputs of a row and of the one that takes its place for a while, where `evicts` says so.
fn answers(executor: &mut LocalExecutor, evicts: bool) -> Vec<Vec<TokenId>> {
    let mut blocks = Blocks::default();
    let mut first = Row::new(1, tokens(1, 20), 40, BLOCK, &mut blocks);
    let mut second = Row::new(2, tokens(2, 15), 40, BLOCK, &mut blocks);
    advance_after(executor, &mut first, 0, Moves::default());
    if evicts {
        // The full blocks of the first go out; the second is written where they lay.
        let own = [first.blocks[0], first.blocks[1]];
        let moves = Moves { out: vec![out(own[0].0, 1), out(own[1].0, 0)], back: Vec::new() };
        second.blocks[..2].copy_from_slice(&own);
        advance_after(executor, &mut second, 0, moves);
        // They come back elsewhere, one of them to a block that leaves in the same step.
        let (spare, swapped) = (blocks.take(1)[0], second.blocks[4]);
        first.blocks[..2].copy_from_slice(&[spare, swapped]);
        let moves = Moves { out: vec![out(swapped.0, 2)], back: vec![back(1, spare.0), back(0, swapped.0)] };
        second.blocks[4] = blocks.take(1)[0];
        advance_after(executor, &mut first, 20, moves);
    } else {
        advance_after(executor, &mut second, 0, Moves::default());
        advance_after(executor, &mut first, 20, Moves::default());
    }
    decode_all(executor, &mut [first, second], 12)
}

#[test]
fn a_row_whose_blocks_left_and_came_back_answers_as_if_they_had_stayed() {
    for kv in KvFormat::ON_CPU {
        for ranks in [1, 2] {
            let executor = || executor(kv, ranks, 1 << 18).expect("the pool fits");
            let stayed = answers(&mut executor(), false);
            assert_eq!(answers(&mut executor(), true), stayed, "{kv:?} on {ranks} ranks");
        }
    }
}

#[test]
fn moves_that_contradict_the_tier_are_refused() {
    let refused = |out: Vec<MoveOut>, back: Vec<MoveBack>| {
        let mut executor = executor(KvFormat::F32, 1, 1 << 16).expect("the pool fits");
        assert!(executor.tier_blocks() > 4);
        let row = Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default());
        match executor.step(&BatchPlan { moves: Moves { out, back }, ..plan(vec![row.rest(0)]) }) {
            Err(ExecError::BadPlan(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(vec![out(9, 1_000_000)], vec![]).contains("not in the tier"));
    assert!(refused(vec![], vec![back(1_000_000, 9)]).contains("not in the tier"));
    assert!(refused(vec![out(u32::MAX, 0)], vec![]).contains("not in the pool"));
    assert!(refused(vec![], vec![back(0, u32::MAX)]).contains("not in the pool"));
    assert!(refused(vec![out(9, 0)], vec![back(0, 8)]).contains("moves twice"));
    assert!(refused(vec![out(9, 0), out(9, 1)], vec![]).contains("moves out twice"));
    assert!(refused(vec![], vec![back(0, 9), back(1, 9)]).contains("two blocks move back"));
    assert!(refused(vec![], vec![back(0, 1)]).contains("moves back and is written"));
}

#[test]
fn a_tier_is_of_all_ranks_together_and_holds_a_block_or_is_refused() {
    let blocks = |ranks, bytes| executor(KvFormat::F32, ranks, bytes).map(|executor| executor.tier_blocks());
    let whole = blocks(1, 1 << 16).expect("it holds blocks");
    assert_eq!((blocks(2, 1 << 16), blocks(1, 0)), (Ok(whole), Ok(0)), "each rank has half of each block");
    let error = blocks(1, 7).expect_err("no block fits").to_string();
    assert!(error.starts_with("host_kv_bytes of 7 hold no block of "), "{error}");
}
