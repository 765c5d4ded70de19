//! An executor goes on with a row that another one began: the same tokens, and of its text what is not out
//! yet.

mod common;

use std::path::Path;
use std::sync::Arc;

use base::{
    ChatTemplate as _, Constraint, ExecError, Executor as _, Generation, Role, TokenCount, TokenId,
    Tokenizer as _,
};
use common::{Blocks, Row, executor, plan, step, tokens};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::executor::LocalExecutor;
use engine::{Engine, EngineConfig, load_dir};

const BLOCK: usize = 8;

/// Runs a row to its end, from step `cut` on with a fresh executor. Its tokens, its text, and the steps.
fn run(
    fresh: &mut dyn FnMut() -> LocalExecutor,
    row: &Row,
    cut: Option<usize>,
) -> (Vec<TokenId>, String, usize) {
    let (mut executor, mut row) = (fresh(), row.clone());
    let (mut text, mut computed, mut steps) = (String::new(), 0, 0);
    loop {
        if cut == Some(steps) {
            (executor, computed) = (fresh(), 0);
        }
        let slot = row.rest(computed);
        computed = row.tokens.len();
        let sampled = step(&mut executor, vec![slot]).remove(0).expect("the row is sound");
        row.tokens.extend(&sampled.tokens);
        text += &sampled.text;
        steps += 1;
        if sampled.end.is_some() {
            return (row.tokens[row.prompt..].to_vec(), text, steps);
        }
    }
}

/// Wherever the first executor leaves off, the row ends as if nothing had happened.
fn check(fresh: &mut dyn FnMut() -> LocalExecutor, row: &Row, every: usize) {
    let (tokens, text, steps) = run(fresh, row, None);
    assert!(steps > 2, "{text:?} leaves nothing to go on with");
    for cut in (1..steps).step_by(every) {
        assert_eq!(run(fresh, row, Some(cut)), (tokens.clone(), text.clone(), steps), "cut at {cut}");
    }
}

#[test]
fn characters_and_stop_strings_in_the_middle_of_which_the_first_one_left_off_are_completed() {
    let model = Synthetic::tiny(Family::Llama, 31);
    let mut fresh = || executor(&model, BLOCK as u32);
    let mut row = Row::new(1, tokens(4, 11), 120, BLOCK, &mut Blocks::default());
    let warm = Generation {
        output_max: TokenCount(40),
        temperature: 3.0,
        ignore_end: true,
        ..Generation::default()
    };
    row.generation = Arc::new(warm.clone());
    check(&mut fresh, &row, 1);
    let (_, text, _) = run(&mut fresh, &row, None);
    let middle = text.chars().count() / 2;
    let found: String = text.chars().skip(middle).take(3).collect();
    let almost: String = text.chars().skip(middle / 2).take(3).chain("never".chars()).collect();
    row.generation = Arc::new(Generation { stop: vec![almost, found], ..warm });
    check(&mut fresh, &row, 1);
}

#[test]
fn a_constraint_is_followed_from_where_the_first_one_left_off() {
    let load = || -> Engine {
        let config = EngineConfig { threads: Some(1), dtype: Some(Dtype::F32), ..EngineConfig::default() };
        load_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo"), &config, &Arc::default())
            .expect("it loads")
    };
    let engine = load();
    let frame = engine.text.frame(&[Role::User]).expect("the template takes a user's turn");
    let prompt: Vec<TokenId> = engine.text.encode_framed(&frame, &["Rate the film: not bad"]);
    let block = engine.info.block_tokens as usize;
    let schema = r#"{"type":"object","properties":{"overall_sentiment":{"enum":["positive","negative"]},
        "score":{"type":"integer","minimum":-99,"maximum":99},"recommended":{"enum":["yes","no"]}},
        "required":["overall_sentiment","score","recommended"],"additionalProperties":false}"#;
    for form in [Constraint::JsonSchema(schema.into()), Constraint::Regex("(yes|no), [a-z]{4,9}".into())] {
        let generation =
            Generation { output_max: TokenCount(60), constraint: Some(form), ..Generation::default() };
        let blocks = &mut Blocks::default();
        let row = Row { generation: Arc::new(generation), ..Row::new(1, prompt.clone(), 240, block, blocks) };
        check(&mut || load().executor, &row, 2);
    }
}

#[test]
fn what_a_row_has_said_must_fit_its_place_and_the_vocabulary() {
    let model = Synthetic::tiny(Family::Llama, 31);
    for (said, reason) in [(vec![TokenId(1)], "1 tokens generated before output 0"), (vec![], "")] {
        let mut slot = Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default()).rest(0);
        slot.sample.as_mut().expect("it samples").already_generated = said;
        match executor(&model, BLOCK as u32).step(&plan(vec![slot])) {
            Err(ExecError::BadPlan(found)) => {
                assert!(!reason.is_empty() && found.contains(reason), "{found}")
            }
            other => assert!(reason.is_empty() && other.is_ok(), "{other:?}"),
        }
    }
    let mut slot = Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default()).rest(0);
    let sample = slot.sample.as_mut().expect("it samples");
    (sample.output_index, sample.already_generated) = (1, vec![TokenId(u32::MAX)]);
    let refused = executor(&model, BLOCK as u32).step(&plan(vec![slot]));
    assert!(
        matches!(refused, Err(ExecError::BadPlan(found)) if found.contains("generated before, is not in"))
    );
}
