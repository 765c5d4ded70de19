//! Sections of a prompt: one copy of an independent one's keys serves every position and every request.

mod common;

use std::sync::Arc;

use base::{BlockId, ExecError, Executor as _, Run, Slot, TokenCount, TokenId};
use common::{Bare, Blocks, Row, decoder, difference, executor, plan, tokens};
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;

const BLOCK: usize = 16;

/// A module of 21 tokens, and the slot that computes it from position `start` on, seeing nothing else.
fn module(id: u64, start: u32, blocks: &mut Blocks) -> (Slot, Arc<[BlockId]>) {
    let row = Row::new(id, tokens(3, 21), 32, BLOCK, blocks);
    let slot = Slot { start, sample: None, ..row.slot(0..21) };
    (slot, row.blocks.into())
}

fn run(blocks: &Arc<[BlockId]>, shift: u32) -> Run {
    Run { blocks: Arc::clone(blocks), tokens: TokenCount(21), shift }
}

/// A question of nine tokens at position `start` behind these runs.
fn question(id: u64, start: u32, context: Vec<Run>, blocks: &mut Blocks) -> Slot {
    let row = Row::new(id, tokens(4, 9), 16, BLOCK, blocks);
    Slot { start, context, ..row.slot(0..9) }
}

#[test]
fn a_shifted_module_gives_what_one_computed_in_place_gives() {
    for family in [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3] {
        let model = Synthetic::tiny(family, 31);
        let mut bare = Bare::new(decoder(&model, &model.weights()), BLOCK as u32);
        let mut blocks = Blocks::default();
        let (at_home, home) = module(1, 0, &mut blocks);
        let (in_place, place) = module(2, 40, &mut blocks);
        assert_eq!(bare.logits(&[at_home, in_place]).len(), 0, "nothing is sampled");
        // Positions 21 to 39 and 61 to 69 stay free.
        let shifted = question(3, 70, vec![run(&home, 0), run(&home, 40)], &mut blocks);
        let direct = question(4, 70, vec![run(&home, 0), run(&place, 0)], &mut blocks);
        let elsewhere = question(5, 70, vec![run(&home, 0), run(&home, 41)], &mut blocks);
        let logits = bare.logits(&[shifted, direct, elsewhere]);
        assert!(difference(&logits[0], &logits[1]) < 1e-4, "{family:?}");
        assert!(difference(&logits[0], &logits[2]) > 1e-3, "{family:?}: a position must matter");
    }
}

#[test]
fn requests_that_use_a_module_at_different_positions_answer_as_they_do_alone() {
    let model = Synthetic::tiny(Family::Llama, 32);
    let mut blocks = Blocks::default();
    let (encode, home) = module(1, 0, &mut blocks);
    let ask = |start: u32, shift: u32, blocks: &mut Blocks| {
        question(u64::from(start), start, vec![run(&home, shift)], blocks)
    };
    let slots = [ask(21, 0, &mut blocks), ask(60, 30, &mut blocks)];
    let mut answers: Vec<Vec<TokenId>> = Vec::new();
    for asked in [&slots[..1], &slots[1..], &slots[..]] {
        let mut executor = executor(&model, BLOCK as u32);
        executor.step(&plan(vec![encode.clone()])).expect("a sound plan");
        let outcome = executor.step(&plan(asked.to_vec())).expect("a sound plan");
        let tokens = outcome.rows.iter().map(|row| row.result.as_ref().expect("numbers").tokens[0]);
        answers.push(tokens.collect());
    }
    assert_eq!(answers[2], answers[..2].concat());
}

#[test]
fn learned_positions_take_a_module_where_it_was_computed_and_nowhere_else() {
    let model = Synthetic::tiny(Family::Opt, 33);
    let mut executor = executor(&model, BLOCK as u32);
    let mut blocks = Blocks::default();
    let (encode, place) = module(1, 30, &mut blocks);
    executor.step(&plan(vec![encode])).expect("a sound plan");
    let sound = question(2, 60, vec![run(&place, 0)], &mut blocks);
    assert_eq!(executor.step(&plan(vec![sound.clone()])).expect("a sound plan").rows.len(), 1);
    let shifted = Slot { context: vec![run(&place, 1)], ..sound };
    let refused = executor.step(&plan(vec![shifted]));
    assert!(matches!(refused, Err(ExecError::BadPlan(reason)) if reason.contains("cannot be shifted")));
}
