//! What rows of all kinds say to their ends: what is drawn on a GPU, and what the processor draws from its logits.

use std::sync::Arc;

use base::{Constraint, Generation, LogitAdjustments, TokenCount, TokenId};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::executor::LocalExecutor;

use super::common::{self, Blocks, Row, tokens};
use super::guesses::{self, check};
use super::{BLOCK, emulated, executor, on_cpu, on_gpus};

/// What changes logits, which is done on the processor.
fn adjusted(temperature: f32) -> Generation {
    let adjustments = LogitAdjustments {
        logit_bias: vec![(TokenId(7), -100.0), (TokenId(65), 0.5)],
        repetition_penalty: 1.5,
        frequency_penalty: 0.25,
        presence_penalty: 0.5,
        min_p: 0.02,
        ..LogitAdjustments::default()
    };
    Generation { temperature, adjustments: Some(Box::new(adjustments)), ..Generation::default() }
}

/// A list of the only tokens, which the processor keeps to.
fn listed(temperature: f32) -> Generation {
    let allowed = Some([7, 65, 200].map(TokenId).to_vec());
    let adjustments = LogitAdjustments { allowed, ..LogitAdjustments::default() };
    Generation { temperature, adjustments: Some(Box::new(adjustments)), ..Generation::default() }
}

/// Rows of all kinds to their ends: what each says.
pub(crate) fn texts(mut executor: LocalExecutor) -> Vec<String> {
    let choice = Constraint::Choice(["good", "bad", "neither good nor bad"].map(Into::into).into());
    let generations = [
        Generation::default(),
        Generation { temperature: 0.9, top_k: Some(5), ..Generation::default() },
        Generation { constraint: Some(choice.clone()), ..Generation::default() },
        Generation {
            constraint: Some(choice.clone()),
            temperature: 1.2,
            top_k: Some(3),
            ..Generation::default()
        },
        Generation { constraint: Some(Constraint::Integer { low: -50, high: 999 }), ..Generation::default() },
        Generation { temperature: 0.9, top_p: 0.8, ..Generation::default() },
        Generation { temperature: 1.1, ..Generation::default() },
        // One over it is no number: what is drawn is the highest.
        Generation { temperature: 1e-39, ..Generation::default() },
        Generation { temperature: 1.1, top_k: Some(100), top_p: 0.9, ..Generation::default() },
        // More than a device is asked for: from logits.
        Generation { temperature: 1.1, top_k: Some(2_000), top_p: 0.9, ..Generation::default() },
        Generation { temperature: 2.0, constraint: Some(choice.clone()), ..Generation::default() },
        adjusted(0.0),
        adjusted(1.3),
        listed(0.0),
        listed(1.3),
        Generation { temperature: 2.0, top_p: 0.95, constraint: Some(choice), ..Generation::default() },
    ];
    let mut blocks = Blocks::default();
    let row = |(id, generation): (u64, Generation)| {
        let generation = Generation { output_max: TokenCount(24), ..generation };
        let row = Row::new(id, tokens(90 + id, 9 + 5 * id as usize), 112, BLOCK, &mut blocks);
        Row { generation: Arc::new(generation), ..row }
    };
    let mut rows: Vec<Row> = (0..).zip(generations).map(row).collect();
    let mut said = vec![String::new(); rows.len()];
    let mut live: Vec<usize> = (0..rows.len()).collect();
    let mut computed = vec![0; rows.len()];
    while !live.is_empty() {
        let slots = live.iter().map(|at| rows[*at].rest(computed[*at])).collect();
        live.iter().for_each(|at| computed[*at] = rows[*at].tokens.len());
        let results = common::step(&mut executor, slots);
        let mut next = Vec::new();
        for (at, result) in live.into_iter().zip(results) {
            let sampled = result.expect("logits are numbers");
            rows[at].tokens.extend(&sampled.tokens);
            said[at] += &sampled.text;
            if sampled.end.is_none() {
                next.push(at);
            }
        }
        live = next;
    }
    said
}

#[test]
fn rows_say_what_they_say_on_the_processor_drawn_among_what_their_constraints_allow() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Qwen2, 81) };
    let expected = texts(executor(on_cpu(&model)).expect("the pool fits"));
    assert!(["good", "bad", "neither good nor bad"].contains(&expected[2].as_str()), "{expected:?}");
    for ranks in [1, 2] {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let found = texts(executor(on_gpus(&model, &gpus)).expect("the pool fits"));
        assert_eq!(found, expected, "on {ranks} GPUs");
    }
}

#[test]
fn rows_say_the_same_through_guesses() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 82) };
    let form = Constraint::Regex("(yes|no)(, (yes|no)){6}".into());
    let mut blocks = Blocks::default();
    let row = |id: u64| {
        let warm = Generation { temperature: 0.9, ignore_end: true, ..Generation::default() };
        let generation = match id % 6 {
            5 => Generation { ignore_end: true, ..adjusted(0.9) },
            0 => Generation { ignore_end: true, ..Generation::default() },
            1 => Generation { top_k: Some(9), ..warm },
            2 => Generation { top_p: 0.9, ..warm },
            3 => warm,
            _ => Generation { constraint: Some(form.clone()), ..warm },
        };
        let row = Row::new(id, tokens(id, 5 + id as usize), 72, BLOCK, &mut blocks);
        Row { generation: Arc::new(Generation { output_max: TokenCount(30), ..generation }), ..row }
    };
    let rows: Vec<Row> = (1..=6).map(row).collect();
    for count in [1, 2] {
        let Some(gpus) = emulated::gpus(count) else { return };
        let load = || executor(on_gpus(&model, &gpus)).expect("the pool fits");
        let told = check(load, &rows, &format!("{count} GPUs"));
        let (expected, _) =
            guesses::run(&mut executor(on_cpu(&model)).expect("it fits"), rows.clone(), &|_, _| Vec::new());
        assert_eq!(told, expected, "on {count} GPUs");
    }
}

#[test]
fn a_step_of_more_rows_than_are_looked_at_together_samples_them_all() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 90) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut blocks = Blocks::default();
    let row = |id: u64| {
        let generation = Generation {
            temperature: (id % 2) as f32,
            output_max: TokenCount(8),
            ignore_end: true,
            ..Generation::default()
        };
        let row = Row::new(id, tokens(id, 4), 16, BLOCK, &mut blocks);
        Row { generation: Arc::new(generation), ..row }
    };
    let rows: Vec<Row> = (1..=40).map(row).collect();
    let (truth, _) =
        guesses::run(&mut executor(on_cpu(&model)).expect("it fits"), rows.clone(), &|_, _| Vec::new());
    let right = |row: usize, from: usize| truth[row].tokens[from..7].to_vec();
    let found = guesses::run(&mut executor(on_gpus(&model, &gpus)).expect("it fits"), rows, &right);
    assert_eq!(found, (truth.clone(), 1), "all in one step of 320 rows");
}
