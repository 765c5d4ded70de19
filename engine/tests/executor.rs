//! The executor's promises: refusals, row errors, endings, and what it keeps.

mod common;

use std::sync::Arc;

use base::text::ByteText;
use base::{
    BlockId, Bytes, End, ExecError, Executor as _, Generation, RequestId, RowError, Sampled, Slot,
    TokenCount, TokenId, Tokenizer as _,
};
use common::{
    Blocks, Row, advance, decode_all, decoder, executor, executor_of, plan, step, tokens, with_unsound_token,
};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint::weights::MapWeights;
use engine::executor::{LocalExecutor, PoolSettings};

const BLOCK: usize = 8;

fn model() -> Synthetic {
    Synthetic::tiny(Family::Llama, 31)
}

/// A slot that is fine.
fn sound() -> Slot {
    Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default()).slot(12..20)
}

#[test]
fn a_plan_that_contradicts_the_executor_is_refused_with_its_reason() {
    let check = |change: &dyn Fn(&mut Slot), reason: &str| {
        let mut executor = executor(&model(), BLOCK as u32);
        let mut slot = sound();
        change(&mut slot);
        match executor.step(&plan(vec![slot])) {
            Err(ExecError::BadPlan(found)) => assert!(found.contains(reason), "{found} for {reason}"),
            other => panic!("{reason}: {other:?}"),
        }
    };
    check(&|slot| slot.input.clear(), "input is empty");
    check(&|slot| slot.input[3] = TokenId(u32::MAX), "not in the vocabulary");
    check(&|slot| slot.write_blocks[0] = BlockId(u32::MAX), "not in the pool");
    check(&|slot| slot.write_blocks.truncate(1), "do not fit");
    check(&|slot| slot.write_blocks.clear(), "do not fit");
    check(&|slot| slot.write_offset = u32::MAX, "beyond the first block");
    check(&|slot| slot.start = 11, "after a context of 12");
    check(&|slot| slot.start = u32::MAX, "it reaches position");
    check(&|slot| slot.context[0].blocks = [BlockId(u32::MAX), BlockId(1)].into(), "not in the pool");
    check(&|slot| slot.context[0].tokens = TokenCount(u64::MAX), "has 2 blocks");
    check(&|slot| slot.context[0].tokens = TokenCount(8), "has 2 blocks");
    check(&|slot| slot.context[0].tokens = TokenCount(0), "has 2 blocks");
    check(&|slot| slot.context[0].shift = 13, "is shifted by 13");
}

#[test]
fn slots_of_one_plan_may_not_collide() {
    let mut executor = executor(&model(), BLOCK as u32);
    let refused = |executor: &mut LocalExecutor, slots| match executor.step(&plan(slots)) {
        Err(ExecError::BadPlan(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(&mut executor, vec![]).contains("no slots"));
    assert!(refused(&mut executor, vec![sound(), sound()]).contains("samples in two slots"));
    let other = Slot { request: RequestId(2), ..sound() };
    assert!(refused(&mut executor, vec![sound(), other]).contains("written twice"));
}

#[test]
fn learned_positions_refuse_a_shift() {
    let mut executor = executor(&Synthetic::tiny(Family::Opt, 3), BLOCK as u32);
    let mut row = Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default());
    row.cuts = vec![1];
    let mut slot = row.slot(16..20);
    slot.context[1].shift = 2;
    assert!(
        matches!(executor.step(&plan(vec![slot])), Err(ExecError::BadPlan(reason)) if reason.contains("learned"))
    );
}

#[test]
fn logits_that_are_not_numbers_fail_their_row_alone() {
    let model = model();
    let weights = with_unsound_token(&model, TokenId(7));
    let mut executor = executor_of(decoder(&model, &weights), BLOCK as u32);
    let mut blocks = Blocks::default();
    let good = Row::new(1, vec![TokenId(3); 20], 40, BLOCK, &mut blocks);
    let bad = Row::new(2, vec![TokenId(3), TokenId(7), TokenId(3)], 40, BLOCK, &mut blocks);
    let also_good = Row::new(3, vec![TokenId(3); 20], 40, BLOCK, &mut blocks);
    let slots = [&good, &bad, &also_good].map(|row| row.slot(0..row.prompt)).to_vec();
    let results = step(&mut executor, slots);
    assert_eq!(results[1], Err(RowError::NotANumber));
    assert!(results[0].is_ok() && results[0] == results[2]);
    // Blocks that held what is not a number serve the next row as if they were fresh.
    let again = Row { id: 4, blocks: bad.blocks.clone(), ..good.clone() };
    assert_eq!(step(&mut executor, vec![again.slot(0..20)])[0], results[0]);
}

#[test]
fn neighbours_of_a_row_without_numbers_get_what_they_get_beside_a_sound_one() {
    let model = model();
    let beside = |weights: &MapWeights| {
        let mut executor = executor_of(decoder(&model, weights), BLOCK as u32);
        let mut blocks = Blocks::default();
        let prompts = [vec![TokenId(3); 20], vec![TokenId(3), TokenId(7), TokenId(3)], vec![TokenId(5); 13]];
        let mut slots = Vec::new();
        for (prompt, id) in prompts.into_iter().zip(1..) {
            let row = Row::new(id, prompt, 40, BLOCK, &mut blocks);
            slots.push(row.slot(0..row.prompt));
        }
        step(&mut executor, slots)
    };
    let sound = beside(&model.weights());
    let unsound = beside(&with_unsound_token(&model, TokenId(7)));
    assert!(sound.iter().all(Result::is_ok), "{sound:?}");
    assert_eq!(unsound[1], Err(RowError::NotANumber));
    assert_eq!((&unsound[0], &unsound[2]), (&sound[0], &sound[2]), "the same step, the same tokens");
}

/// Greedy output of one row under `generation`, step by step to its end.
fn generate(generation: Generation) -> (Vec<Sampled>, String) {
    let mut executor = executor(&model(), BLOCK as u32);
    let mut row = Row::new(1, tokens(4, 11), 120, BLOCK, &mut Blocks::default());
    row.generation = Arc::new(generation);
    let mut sampled: Vec<Sampled> = Vec::new();
    while sampled.last().is_none_or(|last| last.end.is_none()) {
        let from = if sampled.is_empty() { 0 } else { row.tokens.len() - 1 };
        let one = step(&mut executor, vec![row.slot(from..row.tokens.len())])
            .remove(0)
            .expect("logits are numbers");
        row.tokens.extend(&one.tokens);
        sampled.push(one);
    }
    let text = sampled.iter().map(|one| one.text.as_str()).collect();
    (sampled, text)
}

/// Draws that are printable now and then: a warm row with a seed.
fn warm() -> Generation {
    Generation { output_max: TokenCount(40), temperature: 3.0, ignore_end: true, ..Generation::default() }
}

#[test]
fn a_row_ends_at_its_limit_with_all_its_text() {
    let (sampled, text) = generate(warm());
    assert_eq!(sampled.len(), 40);
    assert_eq!(sampled.last().and_then(|last| last.end), Some(End::Length));
    let bytes: Vec<u8> = sampled.iter().filter_map(|one| u8::try_from(one.tokens[0].0).ok()).collect();
    assert_eq!(text, String::from_utf8_lossy(&bytes));
}

#[test]
fn a_stop_string_ends_the_row_and_is_not_output() {
    let (sampled, text) = generate(warm());
    // Two neighbouring characters of the free output, from its middle.
    let middle: Vec<char> = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let stop: String = middle.into_iter().collect();
    let (stopped, short) = generate(Generation { stop: vec!["never".into(), stop.clone()], ..warm() });
    assert_eq!(stopped.last().and_then(|last| last.end), Some(End::StopText(1)));
    assert_eq!(short, text[..text.find(&stop).expect("it was cut out of the text")]);
    assert!(stopped.len() < sampled.len());
}

#[test]
fn text_held_back_for_a_stop_string_is_released_at_the_limit() {
    let (_, text) = generate(warm());
    let last = text.chars().last().expect("forty tokens give text");
    let (sampled, held) = generate(Generation { stop: vec![format!("{last}never")], ..warm() });
    assert_eq!((sampled.len(), held), (40, text));
}

#[test]
fn stop_tokens_and_end_tokens_end_the_row_without_text() {
    let (sampled, _) = generate(warm());
    let token = sampled[5].tokens[0];
    let first = sampled.iter().position(|one| one.tokens == [token]).expect("it is there");
    let (stopped, _) = generate(Generation { stop_tokens: vec![token], ..warm() });
    assert_eq!(
        (stopped.len(), stopped[first].end, stopped[first].tokens[0]),
        (first + 1, Some(End::StopToken(token)), token)
    );

    // The same token as the model's own end token.
    let run = |ignore_end| {
        let model = model();
        let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(4 << 20) };
        let decoder = decoder(&model, &model.weights());
        let mut executor =
            LocalExecutor::new(decoder, Arc::new(ByteText), vec![token], settings).expect("the pool fits");
        let mut row = Row::new(1, tokens(4, 11), 120, BLOCK, &mut Blocks::default());
        row.generation = Arc::new(Generation { ignore_end, ..warm() });
        let mut rows = [row];
        for _ in 0..=first {
            let from = if rows[0].tokens.len() == rows[0].prompt { 0 } else { rows[0].tokens.len() - 1 };
            let slot = rows[0].slot(from..rows[0].tokens.len());
            let one = step(&mut executor, vec![slot]).remove(0).expect("logits are numbers");
            rows[0].tokens.extend(&one.tokens);
            if one.end.is_some() {
                return Some((one.end, one.text));
            }
        }
        None
    };
    assert_eq!(run(false).map(|(end, _)| end), Some(Some(End::Stop)));
    assert_eq!(run(true), None);
}

#[test]
fn ids_that_only_pad_the_vocabulary_are_never_sampled() {
    assert!(model().config.vocab as u32 > ByteText.vocab_size() + 40, "a fifth of the vocabulary is padding");
    let hot = Generation { temperature: 1e6, ignore_end: true, ..warm() };
    let (sampled, _) = generate(hot);
    assert_eq!(sampled.len(), 40);
    assert!(sampled.iter().all(|one| one.tokens[0].0 < ByteText.vocab_size()));
}

#[test]
fn a_row_that_is_computed_again_draws_the_same_tokens() {
    let run = |is_preempted: bool| {
        let mut executor = executor(&model(), BLOCK as u32);
        let mut blocks = Blocks::default();
        let mut row = Row::new(9, tokens(4, 11), 120, BLOCK, &mut blocks);
        row.generation = Arc::new(warm());
        let mut rows = [row];
        let first = rows[0].slot(0..11);
        advance(&mut executor, &mut rows, vec![first]);
        decode_all(&mut executor, &mut rows, 5);
        if is_preempted {
            rows[0].blocks = blocks.take(15);
            let again = rows[0].slot(0..rows[0].tokens.len());
            advance(&mut executor, &mut rows, vec![again]);
        }
        decode_all(&mut executor, &mut rows, 12)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_retired_request_leaves_nothing_behind() {
    let mut executor = executor(&model(), BLOCK as u32);
    let mut blocks = Blocks::default();
    let rows: Vec<Row> = (0..3).map(|id| Row::new(id, tokens(id, 9), 20, BLOCK, &mut blocks)).collect();
    step(&mut executor, rows.iter().map(|row| row.slot(0..9)).collect());
    assert_eq!(executor.rows_kept(), 3);
    let mut next = plan(vec![Row::new(7, tokens(1, 4), 20, BLOCK, &mut blocks).slot(0..4)]);
    next.retired = vec![RequestId(0), RequestId(2), RequestId(2), RequestId(99)];
    executor.step(&next).expect("the plan is sound");
    assert_eq!(executor.rows_kept(), 2);
}

#[test]
fn a_row_draws_the_same_tokens_whether_or_not_logits_are_written() {
    let model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Qwen2, 37) };
    let ways = [
        Generation::default(),
        Generation { temperature: 1.3, top_k: Some(1), ..Generation::default() },
        Generation { temperature: 1.3, top_k: Some(5), ..Generation::default() },
        Generation { temperature: 2.0, top_k: Some(64), top_p: 0.8, ..Generation::default() },
    ];
    let run = |is_beside_one_that_needs_all: bool| {
        let (mut executor, mut blocks) = (executor(&model, BLOCK as u32), Blocks::default());
        let mut rows: Vec<Row> = Vec::new();
        for (id, generation) in ways.iter().enumerate() {
            let mut row = Row::new(id as u64, tokens(5, 12), 40, BLOCK, &mut blocks);
            row.generation = Arc::new(Generation { ignore_end: true, ..generation.clone() });
            rows.push(row);
        }
        if is_beside_one_that_needs_all {
            let mut row = Row::new(9, tokens(6, 9), 40, BLOCK, &mut blocks);
            row.generation = Arc::new(Generation { ignore_end: true, ..warm() });
            rows.push(row);
        }
        let slots = rows.iter().map(|row| row.slot(0..row.prompt)).collect();
        advance(&mut executor, &mut rows, slots);
        decode_all(&mut executor, &mut rows, 16)
    };
    let (alone, beside) = (run(false), run(true));
    assert_eq!(alone[..], beside[..ways.len()]);
    assert_eq!(alone[0], alone[1], "one of one is the likeliest");
    assert_ne!(alone[0], alone[2], "tokens are drawn");
}
