//! Constrained rows through the executor, on the shipped demo model: answers keep to their form, end early,
//! and leave their neighbours alone.

mod common;

use std::path::Path;
use std::sync::Arc;

use base::{
    ChatTemplate as _, Constraint, Generation, Role, RowError, Sampled, Slot, TokenCount, TokenId,
    Tokenizer as _,
};
use common::{Blocks, Row, step};
use engine::{Engine, EngineConfig, load_dir};

fn demo() -> Engine {
    let config = EngineConfig { threads: Some(2), ..EngineConfig::default() };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    load_dir(&folder, &config, &Arc::default()).expect("the demo model loads")
}

/// A greedy row that asks the model to classify a text.
fn row(engine: &Engine, id: u64, text: &str, constraint: Option<Constraint>, blocks: &mut Blocks) -> Row {
    let content =
        format!("Classify the text. Answer with one of these labels: positive, negative.\n\nText: {text}");
    let frame = engine.text.frame(&[Role::User]).expect("the template takes a user's turn");
    let prompt: Vec<TokenId> = engine.text.encode_framed(&frame, &[&content]);
    let generation = Generation { output_max: TokenCount(60), constraint, ..Generation::default() };
    let block = engine.info.block_tokens as usize;
    Row { generation: Arc::new(generation), ..Row::new(id, prompt, 240, block, blocks) }
}

fn choice(texts: &[&str]) -> Option<Constraint> {
    Some(Constraint::Choice(texts.iter().map(|text| (*text).to_owned()).collect()))
}

/// What became of a row: the tokens that each step gave it and its text, or why it failed.
type Outcome = Result<(Vec<Vec<TokenId>>, String), RowError>;

/// Runs rows together to their ends.
fn run(engine: &mut Engine, rows: &mut [Row]) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = vec![Ok((Vec::new(), String::new())); rows.len()];
    let mut live: Vec<usize> = (0..rows.len()).collect();
    let mut computed = vec![0; rows.len()];
    while !live.is_empty() {
        let slots: Vec<Slot> = live.iter().map(|at| rows[*at].rest(computed[*at])).collect();
        live.iter().for_each(|at| computed[*at] = rows[*at].tokens.len());
        let results = step(&mut engine.executor, slots);
        let mut next = Vec::new();
        for (at, result) in live.into_iter().zip(results) {
            match result {
                Err(error) => outcomes[at] = Err(error),
                Ok(Sampled { tokens: drawn, text, end, .. }) => {
                    rows[at].tokens.extend(&drawn);
                    if let Ok((tokens, written)) = &mut outcomes[at] {
                        tokens.push(drawn);
                        written.push_str(&text);
                    }
                    if end.is_none() {
                        next.push(at);
                    }
                }
            }
        }
        live = next;
    }
    outcomes
}

#[test]
fn a_label_costs_one_prefill_and_no_decode_step() {
    let mut engine = demo();
    let mut blocks = Blocks::default();
    let labels = || choice(&["positive", "negative"]);
    let mut rows = [
        row(&engine, 1, "a wonderful film, I loved it", labels(), &mut blocks),
        row(&engine, 2, "dull, boring and far too long", labels(), &mut blocks),
        row(
            &engine,
            3,
            "dull, boring and far too long",
            choice(&["certainly positive", "not positive"]),
            &mut blocks,
        ),
    ];
    let outcomes = run(&mut engine, &mut rows);
    let texts: Vec<&str> =
        outcomes.iter().map(|outcome| outcome.as_ref().expect("a label").1.as_str()).collect();
    assert_eq!(texts[..2], ["positive", "negative"]);
    assert!(["certainly positive", "not positive"].contains(&texts[2]), "{texts:?}");
    for outcome in outcomes {
        assert_eq!(outcome.expect("a label").0.len(), 1, "the first token decides; the rest is not computed");
    }
}

#[test]
fn constrained_rows_leave_the_others_their_tokens_and_fail_alone() {
    let mut engine = demo();
    let mut outcomes = |constraints: [Option<Constraint>; 2], id: u64| {
        let mut blocks = Blocks::default();
        let mut rows = [
            row(&engine, id, "a wonderful film, I loved it", None, &mut blocks),
            row(&engine, id + 1, "a wonderful film, I loved it", constraints[0].clone(), &mut blocks),
            row(&engine, id + 2, "dull, boring and far too long", constraints[1].clone(), &mut blocks),
            row(&engine, id + 3, "dull, boring and far too long", None, &mut blocks),
        ];
        run(&mut engine, &mut rows)
    };
    let free = outcomes([None, None], 1);
    let broken = Some(Constraint::Regex("(".into()));
    let mixed = outcomes([choice(&["negative", "negative, mostly"]), broken], 11);
    assert_eq!((&free[0], &free[3]), (&mixed[0], &mixed[3]));
    let text = &mixed[1].as_ref().expect("a label").1;
    assert!(["negative", "negative, mostly"].contains(&text.as_str()), "{text}");
    assert!(
        matches!(&mixed[2], Err(RowError::Refused(reason)) if reason.contains("constraint")),
        "{:?}",
        mixed[2]
    );
    assert_eq!(engine.executor.rows_kept(), 7, "a row that failed with its first token leaves nothing");
}

#[test]
fn json_parses_and_warm_rows_keep_to_their_form_too() {
    let mut engine = demo();
    let mut blocks = Blocks::default();
    let schema = r#"{"type":"object","properties":{"label":{"enum":["positive","negative"]},
        "score":{"type":"integer","minimum":-3,"maximum":3}},"required":["label","score"],"additionalProperties":false}"#;
    let forms = [
        Constraint::JsonSchema(schema.into()),
        Constraint::Integer { low: -20, high: 20 },
        Constraint::Regex("(yes|no), [a-z]{1,6}".into()),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for seed in 0..8 {
        for (number, form) in (0..).zip(&forms) {
            let mut row = row(&engine, seed * 8 + number, "not bad", Some(form.clone()), &mut blocks);
            // The last would never end by itself.
            let warm = Generation {
                temperature: 1.5,
                top_p: 0.98,
                ignore_end: seed == 7,
                ..(*row.generation).clone()
            };
            row.generation = Arc::new(warm);
            rows.push(row);
        }
    }
    let outcomes = run(&mut engine, &mut rows);
    for chunk in outcomes.chunks(3) {
        let texts: Vec<&str> =
            chunk.iter().map(|outcome| outcome.as_ref().expect("an answer").1.as_str()).collect();
        let value: serde_json::Value = serde_json::from_str(texts[0]).expect("JSON");
        assert!((-3..=3).contains(&value["score"].as_i64().expect("a number")), "{}", texts[0]);
        assert!((-20..=20).contains(&texts[1].parse::<i64>().expect("an integer")), "{}", texts[1]);
        let word = texts[2].strip_prefix("yes, ").or(texts[2].strip_prefix("no, ")).expect("yes or no");
        assert!(!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()), "{}", texts[2]);
    }
}

#[test]
fn a_column_of_json_takes_steps_for_what_is_free_and_none_for_what_is_forced() {
    let mut engine = demo();
    let mut blocks = Blocks::default();
    let schema = r#"{"type":"object","properties":{"overall_sentiment":{"enum":["positive","negative"]},
        "recommended_to_a_friend":{"enum":["yes","no"]}},"required":["overall_sentiment","recommended_to_a_friend"],
        "additionalProperties":false}"#;
    let texts = ["a wonderful film, I loved it", "dull, boring and far too long", "not bad", "never again"];
    let form = Constraint::JsonSchema(schema.into());
    let mut rows: Vec<Row> =
        (0..).zip(texts).map(|(id, text)| row(&engine, id, text, Some(form.clone()), &mut blocks)).collect();
    for outcome in run(&mut engine, &mut rows) {
        let (steps, text) = outcome.expect("an answer");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(
            ["yes", "no"].contains(&value["recommended_to_a_friend"].as_str().unwrap_or_default()),
            "{text}"
        );
        let tokens: usize = steps.iter().map(Vec::len).sum();
        // The brace, a label and an answer are decided; keys, quotes and the rest of a word are not.
        assert!(steps.len() <= 6, "{} steps for {tokens} tokens: {text}", steps.len());
        assert!(steps.len() * 3 <= tokens, "{} steps for {tokens} tokens: {text}", steps.len());
    }
}

#[test]
fn a_limit_or_a_stop_string_inside_a_forced_stretch_ends_the_row_there() {
    let mut engine = demo();
    let mut blocks = Blocks::default();
    let schema = r#"{"type":"object","properties":{"overall_sentiment":{"enum":["positive","negative"]}},
        "required":["overall_sentiment"],"additionalProperties":false}"#;
    let form = || Some(Constraint::JsonSchema(schema.into()));
    let short = |row: &Row, output_max, stop: &[&str]| {
        let stop = stop.iter().map(|text| (*text).to_owned()).collect();
        let generation = Generation { output_max: TokenCount(output_max), stop, ..(*row.generation).clone() };
        Arc::new(generation)
    };
    let mut rows: Vec<Row> = (0..3).map(|id| row(&engine, id, "not bad", form(), &mut blocks)).collect();
    rows[1].generation = short(&rows[1], 4, &[]);
    rows[2].generation = short(&rows[2], 60, &["_senti"]);
    let outcomes: Vec<_> =
        run(&mut engine, &mut rows).into_iter().map(|one| one.expect("an answer")).collect();
    let whole: Vec<TokenId> = outcomes[0].0.concat();
    assert!(whole.len() > 4);
    assert_eq!(outcomes[1].0.concat(), whole[..4], "exactly as many tokens as it may have");
    assert!(outcomes[0].1.starts_with(&outcomes[1].1), "{:?}", outcomes[1].1);
    assert_eq!(outcomes[2].1, r#"{"overall"#);
    let stopped = outcomes[2].0.concat();
    assert!(
        stopped.len() < whole.len() && whole.starts_with(&stopped),
        "what follows the stop is not counted"
    );
}

#[test]
fn the_probabilities_of_two_labels_are_one_together_whichever_is_drawn() {
    let mut engine = demo();
    let mut blocks = Blocks::default();
    let labels = ["positive", "negative"];
    let mut found = [None; 2];
    for seed in 0..200 {
        let mut one = row(&engine, seed, "a film, neither here nor there", choice(&labels), &mut blocks);
        let generation = Generation { temperature: 2.0, ..(*one.generation).clone() };
        (one.generation, one.seed) = (Arc::new(generation), seed);
        let mut text = String::new();
        let mut slot = one.rest(0);
        let probability = loop {
            let drawn = step(&mut engine.executor, vec![slot]).remove(0).expect("it keeps its constraint");
            text.push_str(&drawn.text);
            if drawn.end.is_some() {
                break drawn.probability;
            }
            let computed = one.tokens.len();
            one.tokens.extend(drawn.tokens);
            slot = one.rest(computed);
        };
        let label = labels.iter().position(|label| *label == text).expect("one of the labels");
        let probability = probability.expect("its answer is one of a list");
        let before = *found[label].get_or_insert(probability);
        // A space in front decides nothing: what follows it is known where it was drawn, and taken for the same
        // where it was not.
        assert!(
            (before - probability).abs() < 0.02,
            "{text}: {before} and {probability}, of the same prompt"
        );
        if let [Some(one), Some(other)] = found {
            assert!((one + other - 1.0f64).abs() < 0.02, "{one} and {other}");
            return;
        }
    }
    panic!("only one label in 200 draws: {found:?}");
}
