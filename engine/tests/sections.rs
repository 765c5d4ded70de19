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
    Run { skip: 0, blocks: Arc::clone(blocks), tokens: TokenCount(21), shift }
}

/// A question of nine tokens at position `start` behind these runs.
fn question(id: u64, start: u32, context: Vec<Run>, blocks: &mut Blocks) -> Slot {
    let row = Row::new(id, tokens(4, 9), 16, BLOCK, blocks);
    Slot { start, context, ..row.slot(0..9) }
}

#[test]
fn a_shifted_module_gives_what_one_computed_in_place_gives() {
    for family in [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3, Family::Mpt, Family::Falcon]
    {
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

/// A text of 30 tokens before the module, in blocks of its own.
fn before(blocks: &mut Blocks) -> (Slot, Run) {
    let row = Row::new(10, tokens(7, 30), 32, BLOCK, blocks);
    let run = Run { skip: 0, blocks: row.blocks.clone().into(), tokens: TokenCount(30), shift: 0 };
    (Slot { sample: None, ..row.slot(0..30) }, run)
}

/// The module's first `count` tokens computed again behind that text, as a slot and as a run.
fn repaired(id: u64, count: usize, before: &Run, blocks: &mut Blocks) -> (Slot, Run) {
    let row = Row::new(id, tokens(3, 21), 32, BLOCK, blocks);
    let slot = Slot { start: 30, sample: None, context: vec![before.clone()], ..row.slot(0..count) };
    let used = row.blocks[..count.div_ceil(BLOCK)].into();
    (slot, Run { skip: 0, blocks: used, tokens: TokenCount(count as u64), shift: 0 })
}

/// The module's tokens behind its first `count`.
fn rest(home: &Arc<[BlockId]>, count: usize) -> Run {
    let (first, skip) = (count / BLOCK, (count % BLOCK) as u32);
    Run { skip, blocks: home[first..].into(), tokens: TokenCount(21 - count as u64), shift: 30 }
}

#[test]
fn a_module_repaired_to_its_end_gives_what_the_undivided_prompt_gives() {
    for family in [Family::Llama, Family::Qwen3] {
        let model = Synthetic::tiny(family, 35);
        let mut bare = Bare::new(decoder(&model, &model.weights()), BLOCK as u32);
        let mut blocks = Blocks::default();
        let (encode, home) = module(1, 0, &mut blocks);
        let (text, before) = before(&mut blocks);
        let prompt = [tokens(7, 30), tokens(3, 21), tokens(4, 9)].concat();
        let undivided = Row::new(2, prompt, 60, BLOCK, &mut blocks).slot(0..60);
        let exact = bare.logits(&[undivided]).remove(0);
        // Nothing is repaired, and the module is read as it is.
        let mut slots = vec![encode, text];
        slots.push(question(3, 51, vec![before.clone(), run(&home, 30)], &mut blocks));
        for count in [1, 5, 16, 18, 20, 21] {
            let (again, first) = repaired(20 + count as u64, count, &before, &mut blocks);
            let context = match count {
                21 => vec![before.clone(), first],
                _ => vec![before.clone(), first, rest(&home, count)],
            };
            slots.extend([again, question(40 + count as u64, 51, context, &mut blocks)]);
        }
        let logits = bare.logits(&slots);
        let far: Vec<f32> = logits.iter().map(|logits| difference(logits, &exact)).collect();
        let [none, .., one_missing, all] = far[..] else { panic!("{far:?}") };
        assert!(none > 1e-3 && all < 1e-4, "{family:?}: {far:?}");
        assert!(all < one_missing && one_missing < none, "{family:?}: {far:?}");
    }
}

#[test]
fn what_one_row_repairs_leaves_the_module_and_its_other_readers_as_they_are() {
    let model = Synthetic::tiny(Family::Llama, 36);
    let mut bare = Bare::new(decoder(&model, &model.weights()), BLOCK as u32);
    let mut blocks = Blocks::default();
    let (encode, home) = module(1, 0, &mut blocks);
    let (text, before) = before(&mut blocks);
    bare.logits(&[encode, text]);
    let plain = question(2, 51, vec![before.clone(), run(&home, 30)], &mut blocks);
    let alone = bare.logits(std::slice::from_ref(&plain));
    let (again, first) = repaired(3, 5, &before, &mut blocks);
    let mended = question(4, 51, vec![before, first, rest(&home, 5)], &mut blocks);
    let beside = bare.logits(&[again.clone(), mended.clone(), plain.clone()]);
    assert!(difference(&beside[0], &beside[1]) > 1e-3, "a repair must matter");
    assert!(difference(&beside[1], &alone[0]) < 1e-4, "another batch is another order of sums");
    assert_eq!(bare.logits(&[plain]), alone, "the module's keys and values are the same bits");
    // So does the executor take it, and no run that lies beside its blocks.
    let mut executor = executor(&model, BLOCK as u32);
    executor.step(&plan(vec![again, mended.clone()])).expect("a sound plan");
    for skip in [BLOCK as u32, 0] {
        let mut wrong = mended.clone();
        wrong.context[2].skip = skip;
        let refused = executor.step(&plan(vec![wrong]));
        assert!(matches!(refused, Err(ExecError::BadPlan(reason)) if reason.contains("run")));
    }
}
