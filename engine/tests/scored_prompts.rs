//! How likely the tokens of prompts are, held against logits that a decoder of the test's own computes token by token.

mod common;

use std::sync::Arc;

use base::text::ByteText;
use base::{
    Bytes, Constraint, ConstraintCompiler as _, ExecError, Executor as _, Generation, PromptTargets,
    PromptToken, RowError, Sampled, Slot, TokenId, Tokenizer as _,
};
use common::{
    Bare, Blocks, Row, decoder, decoder_on, executor_of, keep, log_softmax, plan, step, tokens, widening,
    with_unsound_token,
};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::executor::{LocalExecutor, PoolSettings};
use engine::parallel::ShardedModel;

const BLOCK: usize = 8;
/// More positions than have their logits in memory together.
const PROMPT: usize = 150;
const TOP: u32 = 3;

/// Other batch shapes add up in another order.
const TOLERANCE: f64 = 1e-3;

fn model() -> Synthetic {
    Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 31) }
}

fn load() -> LocalExecutor {
    let model = model();
    executor_of(decoder_on(widening(), &model, &model.weights()), BLOCK as u32)
}

fn load_on_two_ranks() -> LocalExecutor {
    let model = model();
    let cpu = |_| Arc::new(Cpu::with_isa(Some(1), widening()).expect("threads start"));
    let cpus: Vec<Arc<Cpu>> = (0..2).map(cpu).collect();
    let ranks = ShardedModel::load(&model.config, &model.weights(), &cpus, keep(widening()));
    let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(4 << 20) };
    let ranks = ranks.expect("the model divides");
    LocalExecutor::new(ranks, Arc::new(ByteText), vec![ByteText::END], settings).expect("the pool fits")
}

/// The slot that computes these positions of a prompt and asks how likely what follows them is.
fn scoring(row: &Row, start: usize, end: usize) -> Slot {
    let targets = row.tokens[start + 1..(end + 1).min(row.prompt)].to_vec();
    Slot { prompt_targets: Some(PromptTargets { tokens: targets, top: TOP }), ..row.slot(start..end) }
}

/// What is told of a prompt that is computed in chunks with these ends, the last beside another row; and what both
/// rows draw.
fn scored(
    mut executor: LocalExecutor,
    (row, other): (&Row, &Row),
    ends: &[usize],
) -> (Vec<PromptToken>, Vec<Result<Sampled, RowError>>) {
    let (mut told, mut drawn, mut start) = (Vec::new(), Vec::new(), 0);
    for end in ends {
        let mut slots = vec![scoring(row, start, *end)];
        if *end == row.prompt {
            slots.insert(0, other.slot(0..other.prompt));
        }
        let outcome = executor.step(&plan(slots)).expect("the plan is sound");
        drawn.extend(outcome.rows.into_iter().map(|row| row.result));
        for prompt in outcome.prompts {
            assert_eq!(prompt.request.0, row.id);
            told.extend_from_slice(&prompt.result.expect("logits are numbers"));
        }
        start = *end;
    }
    (told, drawn)
}

/// The logarithm of each token's probability behind each of a row's tokens, computed one by one.
fn exact(row: &Row) -> Vec<Vec<f64>> {
    let model = model();
    let mut bare = Bare::new(decoder_on(widening(), &model, &model.weights()), BLOCK as u32);
    let vocab = ByteText.vocab_size() as usize;
    let behind = |length: usize| {
        let row = Row { tokens: row.tokens[..length].to_vec(), prompt: 1, ..row.clone() };
        let logits = bare.logits(&[row.decode()]).remove(0);
        log_softmax(&logits[..vocab].iter().map(|logit| f64::from(*logit)).collect::<Vec<_>>())
    };
    (1..=row.tokens.len()).map(behind).collect()
}

#[test]
fn a_prompts_tokens_are_as_likely_as_the_model_says_one_by_one_however_it_is_cut() {
    let mut blocks = Blocks::default();
    let row = Row::new(1, tokens(3, PROMPT), PROMPT + 8, BLOCK, &mut blocks);
    let other = Row::new(2, tokens(5, 21), 32, BLOCK, &mut blocks);
    let plain = step(&mut load(), vec![other.slot(0..21), row.slot(0..PROMPT)]);
    let exact = exact(&row);
    for ends in [&[PROMPT][..], &[64, PROMPT], &[1, 7, 100, PROMPT - 1, PROMPT]] {
        let (told, drawn) = scored(load(), (&row, &other), ends);
        let tokens = |drawn: &[Result<Sampled, RowError>]| -> Vec<Vec<TokenId>> {
            drawn.iter().map(|drawn| drawn.as_ref().expect("logits are numbers").tokens.clone()).collect()
        };
        assert_eq!(tokens(&drawn), tokens(&plain), "{ends:?}: what is drawn does not change");
        assert_eq!(told.iter().map(|token| token.id).collect::<Vec<_>>(), row.tokens, "{ends:?}");
        assert_eq!(told[0].likelihood, None, "nothing stands before it");
        for (token, exact) in told[1..].iter().zip(&exact) {
            let found = token.likelihood.as_ref().expect("something stands before it");
            let own = exact[token.id.0 as usize];
            assert!((found.logprob - own).abs() < TOLERANCE, "{ends:?}: {found:?}, not {own}");
            assert_eq!(token.bytes, Some(vec![token.id.0 as u8]));
            let above = |bar: f64| 1 + exact.iter().filter(|other| **other > bar).count() as u32;
            let ranks = above(own + TOLERANCE)..=above(own - TOLERANCE);
            assert!(ranks.contains(&found.rank), "{ends:?}: rank {} of {ranks:?}", found.rank);
            let mut likely = exact.clone();
            likely.sort_by(|a, b| b.total_cmp(a));
            assert_eq!(found.top.len(), TOP as usize);
            for (told, expected) in found.top.iter().zip(likely) {
                assert!((told.logprob - expected).abs() < TOLERANCE, "{ends:?}: {told:?}, not {expected}");
                assert!((exact[told.id.0 as usize] - told.logprob).abs() < TOLERANCE, "{ends:?}: {told:?}");
            }
        }
    }
}

/// Checks that the same tokens are told, as likely.
fn check_alike(found: &[PromptToken], expected: &[PromptToken]) {
    let ids = |told: &[PromptToken]| told.iter().map(|token| token.id).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected));
    let own = |token: &PromptToken| token.likelihood.as_ref().expect("something stands before it").logprob;
    for (found, expected) in found[1..].iter().map(own).zip(expected[1..].iter().map(own)) {
        assert!((found - expected).abs() < TOLERANCE, "{found}, not {expected}");
    }
}

#[test]
fn two_ranks_score_a_prompt_as_one_does() {
    let mut blocks = Blocks::default();
    let row = Row::new(1, tokens(3, PROMPT), PROMPT + 8, BLOCK, &mut blocks);
    let other = Row::new(2, tokens(5, 21), 32, BLOCK, &mut blocks);
    let (expected, _) = scored(load(), (&row, &other), &[64, PROMPT]);
    let (found, _) = scored(load_on_two_ranks(), (&row, &other), &[64, PROMPT]);
    check_alike(&found, &expected);
}

#[test]
fn what_an_output_begins_with_changes_nothing_of_how_its_prompt_is_scored() {
    let form = Constraint::Grammar("start: \"id: \" /[0-9][0-9]/\n".into());
    let compiled = load().constraints().compile(&form).expect("it compiles");
    let opening = compiled.opening().to_vec();
    assert_eq!(opening.len(), "id: ".len(), "a token is a byte");
    let generation = Arc::new(Generation { constraint: Some(form), compiled, ..Generation::default() });
    let row = Row::new(1, tokens(3, PROMPT), PROMPT + 8, BLOCK, &mut Blocks::default());
    let row = Row { generation, ..row };
    let plain = scoring(&row, 0, PROMPT);
    let longer = Row { tokens: [&row.tokens[..], &opening].concat(), ..row.clone() };
    let whole = longer.slot(0..longer.tokens.len());
    let with_opening = Slot {
        input: whole.input,
        write_blocks: whole.write_blocks,
        guesses: opening.len() as u32,
        ..plain.clone()
    };
    let run = |slot: Slot| {
        let mut outcome = load().step(&plan(vec![slot])).expect("the plan is sound");
        let (told, drawn) = (outcome.prompts.remove(0).result, outcome.rows.remove(0).result);
        (told.expect("logits are numbers"), drawn.expect("logits are numbers").tokens)
    };
    let ((expected, _), (found, drawn)) = (run(plain), run(with_opening));
    check_alike(&found, &expected);
    assert!(drawn.starts_with(&opening) && drawn.len() > opening.len(), "{drawn:?}");
}

#[test]
fn targets_that_follow_nothing_are_refused() {
    let mut executor = load();
    let row = Row::new(1, tokens(1, 20), 24, BLOCK, &mut Blocks::default());
    let asking = |slot: Slot, tokens: Vec<TokenId>| {
        let prompt_targets = Some(PromptTargets { tokens, top: 0 });
        Slot { prompt_targets, ..slot }
    };
    for (slot, reason) in [
        (asking(row.slot(0..20), tokens(2, 20)), "20 targets follow 19 tokens"),
        (asking(row.slot(0..9), tokens(2, 10)), "10 targets follow 9 tokens"),
        (asking(row.slot(0..9), vec![TokenId(u32::MAX)]), "is not in the vocabulary"),
    ] {
        match executor.step(&plan(vec![slot])) {
            Err(ExecError::BadPlan(found)) => assert!(found.contains(reason), "{found} for {reason}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
}

#[test]
fn a_prompt_of_which_the_model_makes_no_numbers_fails_alone() {
    let model = model();
    let mut executor = executor_of(decoder(&model, &with_unsound_token(&model, TokenId(7))), BLOCK as u32);
    let mut blocks = Blocks::default();
    let good = Row::new(1, vec![TokenId(3); 20], 24, BLOCK, &mut blocks);
    let bad = Row::new(2, vec![TokenId(3), TokenId(7), TokenId(3), TokenId(3)], 8, BLOCK, &mut blocks);
    let outcome = executor.step(&plan(vec![scoring(&bad, 0, 3), scoring(&good, 0, 20)]));
    let prompts = outcome.expect("the plan is sound").prompts;
    assert_eq!(prompts[0].result, Err(RowError::NotANumber));
    let told = prompts[1].result.as_ref().expect("these are numbers");
    assert_eq!(told.len(), 20);
    assert!(told[1..].iter().all(|token| token.likelihood.is_some()));
}
