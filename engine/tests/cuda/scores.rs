//! Prompts that GPUs score: their tokens are as likely as the processor's engine says, and what is drawn beside
//! them is what is drawn without.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{ExecError, Executor as _, PromptTargets, PromptToken, Slot, TokenId};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::executor::LocalExecutor;

use super::common::{Blocks, Row, plan, tokens};
use super::{BLOCK, emulated, executor, on_cpu, on_gpus};

/// More positions than have their logits in memory together.
const PROMPT: usize = 150;
const TOP: u32 = 3;

/// Largest difference of a logarithm from the processor's: sums in another order.
const TOLERANCE: f64 = 1e-3;

/// The same where both round to bf16.
const ROUNDED_TOLERANCE: f64 = 0.5;

/// The slot that computes these positions of a prompt and asks how likely what follows them is.
fn scoring(row: &Row, start: usize, end: usize) -> Slot {
    let targets = row.tokens[start + 1..(end + 1).min(row.prompt)].to_vec();
    Slot { prompt_targets: Some(PromptTargets { tokens: targets, top: TOP }), ..row.slot(start..end) }
}

/// What is told of two prompts, one of them in two chunks, and what they and a third, which stands between them,
/// draw. `scores`: whether they are scored.
fn run(mut executor: LocalExecutor, scores: bool) -> ([Vec<PromptToken>; 2], Vec<Vec<TokenId>>) {
    let mut blocks = Blocks::default();
    let long = Row::new(0, tokens(41, PROMPT), PROMPT + 8, BLOCK, &mut blocks);
    let short = Row::new(1, tokens(42, 70), 96, BLOCK, &mut blocks);
    let plain = Row::new(2, tokens(43, 21), 32, BLOCK, &mut blocks);
    let slot = |row: &Row, start: usize, end: usize| {
        if scores { scoring(row, start, end) } else { row.slot(start..end) }
    };
    let (mut told, mut drawn) = ([Vec::new(), Vec::new()], Vec::new());
    for slots in
        [vec![slot(&long, 0, 64)], vec![slot(&long, 64, PROMPT), plain.slot(0..21), slot(&short, 0, 70)]]
    {
        let outcome = executor.step(&plan(slots)).expect("the plan is sound");
        drawn.extend(outcome.rows.into_iter().map(|row| row.result.expect("logits are numbers").tokens));
        for prompt in outcome.prompts {
            told[prompt.request.0 as usize].extend_from_slice(&prompt.result.expect("logits are numbers"));
        }
    }
    (told, drawn)
}

/// What is told of prompts that are scored whole, two in a step and one behind a row that decodes, and what is drawn.
/// As many rows are kept of these steps as they have tokens, in another order.
fn run_whole(mut executor: LocalExecutor, scores: bool) -> ([Vec<PromptToken>; 3], Vec<Vec<TokenId>>) {
    let mut blocks = Blocks::default();
    let [one, other, third, mut plain] = [(0, 51, 37), (1, 52, 70), (2, 53, 33), (3, 54, 21)]
        .map(|(id, seed, prompt)| Row::new(id, tokens(seed, prompt), prompt + 8, BLOCK, &mut blocks));
    let whole = |row: &Row| {
        let end = row.tokens.len();
        if scores { scoring(row, 0, end) } else { row.slot(0..end) }
    };
    let (mut told, mut drawn) = (<[Vec<PromptToken>; 3]>::default(), Vec::new());
    let mut step = |slots: Vec<Slot>| {
        let outcome = executor.step(&plan(slots)).expect("the plan is sound");
        for prompt in outcome.prompts {
            told[prompt.request.0 as usize].extend_from_slice(&prompt.result.expect("logits are numbers"));
        }
        let rows = outcome.rows.into_iter().map(|row| row.result.expect("logits are numbers").tokens);
        let rows: Vec<Vec<TokenId>> = rows.collect();
        let first = rows[0][0];
        drawn.extend(rows);
        first
    };
    step(vec![whole(&one), whole(&other)]);
    let first = step(vec![plain.slot(0..21)]);
    plain.tokens.push(first);
    step(vec![plain.decode(), whole(&third)]);
    (told, drawn)
}

/// Checks that the same tokens are told, about as likely.
fn compare(found: &[PromptToken], expected: &[PromptToken], tolerance: f64, on: &str) {
    let ids = |told: &[PromptToken]| told.iter().map(|token| token.id).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected), "{on}");
    assert_eq!(found[0].likelihood, None, "{on}: nothing stands before it");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate().skip(1) {
        let [own, other] =
            [found, expected].map(|token| token.likelihood.as_ref().expect("something stands before it"));
        let is_near = |one: f64, other: f64| (one - other).abs() < tolerance;
        assert!(is_near(own.logprob, other.logprob), "{on}, token {at}: {own:?}, not {other:?}");
        assert_eq!(own.top.len(), TOP as usize, "{on}, token {at}");
        // Two that are as likely as each other may change places.
        for (own, other) in own.top.iter().zip(&other.top) {
            assert!(is_near(own.logprob, other.logprob), "{on}, token {at}: {own:?}, not {other:?}");
        }
        assert!(tolerance > TOLERANCE || own.rank.abs_diff(other.rank) <= 1, "{on}, token {at}: {own:?}");
    }
}

#[test]
fn prompts_are_as_likely_as_on_the_processor_on_one_gpu_and_on_several() {
    let llama = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 91) };
    let mut tied = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Qwen2, 92) };
    tied.config.tied_head = true;
    let mut projecting = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Opt, 93) };
    (projecting.config.embedding, projecting.config.norm_first) = (16, false);
    projecting.config.final_norm = false;
    let mut on_tensor_cores = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 94) };
    on_tensor_cores.config.head_dim = 64;
    for (model, ranks) in [
        (&llama, 1),
        (&llama, 2),
        (&llama, 4),
        (&tied, 1),
        (&projecting, 1),
        (&projecting, 2),
        (&on_tensor_cores, 1),
    ] {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let (expected, _) = run(executor(on_cpu(model)).expect("the pool fits"), true);
        let (found, drawn) = run(executor(on_gpus(model, &gpus)).expect("the pool fits"), true);
        let is_exact = model.dtype == Dtype::F32;
        let tolerance = if is_exact { TOLERANCE } else { ROUNDED_TOLERANCE };
        for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let on = format!("{:?} on {ranks} GPUs, prompt {number}", model.config.family);
            compare(found, expected, tolerance, &on);
        }
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let (none, plain) = run(executor(on_gpus(model, &gpus)).expect("the pool fits"), false);
        assert!(none.iter().all(Vec::is_empty), "nobody asked");
        assert_eq!(drawn, plain, "{ranks} GPUs: what is drawn does not change");
    }
}

/// What is told of prompts in one step after another.
fn told_of(executor: &mut LocalExecutor, steps: &[Vec<Slot>]) -> Vec<Arc<[PromptToken]>> {
    let mut told = Vec::new();
    for slots in steps {
        let outcome = executor.step(&plan(slots.clone())).expect("the plan is sound");
        told.extend(outcome.prompts.into_iter().map(|prompt| prompt.result.expect("logits are numbers")));
    }
    told
}

/// Checks what two executors tell of prompts in steps.
fn check_told(executors: [&mut LocalExecutor; 2], steps: &[Vec<Slot>], prompts: usize, on: &str) {
    let [found, expected] = executors.map(|executor| told_of(executor, steps));
    assert_eq!((found.len(), expected.len()), (prompts, prompts), "{on}");
    for (found, expected) in found.iter().zip(&expected) {
        compare(found, expected, TOLERANCE, on);
    }
}

#[test]
fn as_many_rows_as_a_step_has_are_kept_in_another_order() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 96) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut card = executor(on_gpus(&model, &gpus)).expect("the pool fits");
    let mut processor = executor(on_cpu(&model)).expect("the pool fits");
    let mut blocks = Blocks::default();
    let scored = Row::new(1, tokens(45, PROMPT), PROMPT + 8, BLOCK, &mut blocks);
    let mut other = Row::new(2, tokens(46, 20), 32, BLOCK, &mut blocks);
    other.tokens.push(TokenId(7));
    // The row that samples stands in front, and what is kept for scores comes before it.
    let steps = [vec![other.slot(0..20)], vec![other.decode(), scoring(&scored, 0, 60)]];
    check_told([&mut card, &mut processor], &steps, 1, "one GPU");
}

#[test]
fn products_of_many_rows_that_are_kept_are_of_whole_tiles() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 97) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut card = executor(on_gpus(&model, &gpus)).expect("the pool fits");
    let mut processor = executor(on_cpu(&model)).expect("the pool fits");
    gpus[0].product_rows();
    for (id, prompt, beside) in [(1, 121, 0), (4, 133, 13)] {
        let mut blocks = Blocks::default();
        let whole = Row::new(id, tokens(id, prompt), 144, BLOCK, &mut blocks);
        let part = Row::new(id + 1, tokens(id + 1, 200), 208, BLOCK, &mut blocks);
        let plain = Row::new(id + 2, tokens(id + 2, 20), 32, BLOCK, &mut blocks);
        // The first samples too: its last row stands behind those of the other.
        let mut slots = vec![scoring(&whole, 0, prompt), scoring(&part, 0, 150)];
        slots.extend((beside > 0).then(|| plain.slot(0..beside)));
        let on = format!("one GPU, a prompt of {prompt} tokens");
        check_told([&mut card, &mut processor], &[slots], 2, &on);
    }
    let many: Vec<usize> = gpus[0].product_rows().into_iter().filter(|rows| *rows > 256).collect();
    assert_eq!(many, [320], "each number of rows is planned once, and kept");
}

#[test]
fn rows_are_told_apart_where_as_many_are_kept_as_there_are_tokens() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 98) };
    for ranks in [1, 2] {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let (expected, on_processor) = run_whole(executor(on_cpu(&model)).expect("the pool fits"), true);
        let (found, drawn) = run_whole(executor(on_gpus(&model, &gpus)).expect("the pool fits"), true);
        for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
            compare(found, expected, TOLERANCE, &format!("{ranks} GPUs, prompt {number}"));
        }
        assert_eq!(drawn.len(), 5, "two prompts, the row's first token, its second and the third prompt");
        assert_eq!(drawn, on_processor, "{ranks} GPUs");
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let (_, plain) = run_whole(executor(on_gpus(&model, &gpus)).expect("the pool fits"), false);
        assert_eq!(drawn, plain, "{ranks} GPUs: what is drawn does not change");
    }
}

#[test]
fn a_prompt_that_a_card_has_no_memory_to_score_fails_its_step_and_loses_nothing() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 95) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut card = executor(on_gpus(&model, &gpus)).expect("the pool fits");
    let row = Row::new(1, tokens(44, PROMPT), PROMPT + 8, BLOCK, &mut Blocks::default());
    let step = plan(vec![scoring(&row, 0, 100)]);
    let mut failures = 0;
    let told = loop {
        // Each time one piece of memory more is there: the last that is missing is that of logits.
        gpus[0].allocations.store(1, Ordering::SeqCst);
        match card.step(&step) {
            Ok(mut outcome) => break outcome.prompts.remove(0).result.expect("logits are numbers"),
            Err(ExecError::Failed(_)) => failures += 1,
            Err(other) => panic!("{other:?} after {failures} failures"),
        }
    };
    assert!(failures > 2, "{failures} failures");
    let mut processor = executor(on_cpu(&model)).expect("the pool fits");
    let expected = processor.step(&step).expect("the plan is sound").prompts.remove(0).result;
    let expected: Arc<[PromptToken]> = expected.expect("logits are numbers");
    compare(&told, &expected, TOLERANCE, "a GPU that was short of memory");
}
