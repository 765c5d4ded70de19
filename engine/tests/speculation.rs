//! Guessed tokens through the executor: right or wrong, the outputs are those without guesses, in fewer
//! steps.

mod common;
#[path = "common/guesses.rs"]
mod guesses;

use std::path::Path;
use std::sync::Arc;

use base::text::ByteText;
use base::{
    Bytes, ChatTemplate as _, Constraint, ConstraintCompiler as _, End, ExecError, Executor as _, Generation,
    LogitAdjustments, Role, Slot, TokenCount, TokenId, Tokenizer as _,
};
use common::{Blocks, Row, decoder, executor, executor_of, plan, step, tokens, with_unsound_token};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::executor::{LocalExecutor, PoolSettings};
use engine::parallel::ShardedModel;
use engine::{Engine, EngineConfig, Keep, load_dir};
use guesses::{check, guessing, run};

const BLOCK: usize = 8;

/// Rows of the tiny model under a generation each, by their numbers.
fn rows(count: u64, generation: &dyn Fn(u64) -> Generation) -> Vec<Row> {
    let mut blocks = Blocks::default();
    let row = |id: u64| {
        let row = Row::new(id, tokens(id, 5 + id as usize), 72, BLOCK, &mut blocks);
        Row { generation: Arc::new(generation(id)), ..row }
    };
    (1..=count).map(row).collect()
}

fn greedy(output_max: u64) -> Generation {
    Generation { output_max: TokenCount(output_max), ignore_end: true, ..Generation::default() }
}

#[test]
fn greedy_and_warm_rows_of_every_family_say_the_same_in_fewer_steps() {
    for family in [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3, Family::Opt] {
        let model = Synthetic::tiny(family, 31);
        // More positions than have their logits in memory together.
        let rows = rows(14, &|id| Generation { temperature: (id % 3) as f32, ..greedy(20 + id) });
        let told = check(|| executor(&model, BLOCK as u32), &rows, &format!("{family:?}"));
        assert!(told.iter().all(|told| told.end == Some(Ok(End::Length))), "{family:?}");
    }
}

#[test]
fn rows_end_at_stop_strings_stop_tokens_and_end_tokens_inside_a_guess() {
    let model = Synthetic::tiny(Family::Llama, 31);
    let warm = |output_max| Generation { temperature: 3.0, ..greedy(output_max) };
    let free = check(|| executor(&model, BLOCK as u32), &rows(6, &|_| warm(40)), "free");
    let stopped = |id: u64| {
        let told = &free[id as usize - 1];
        let texts: Vec<char> = told.text.chars().filter(|c| *c != '\u{fffd}').collect();
        match id {
            1..3 => Generation { stop: vec![texts[texts.len() / 2].to_string()], ..warm(40) },
            3..5 => Generation { stop_tokens: vec![told.tokens[20]], ..warm(40) },
            _ => Generation { ignore_end: false, ..warm(40) },
        }
    };
    let told = check(|| executor(&model, BLOCK as u32), &rows(6, &stopped), "stopped");
    for (told, free) in told[..4].iter().zip(&free) {
        assert!(matches!(told.end, Some(Ok(End::StopText(0) | End::StopToken(_)))), "{told:?}");
        assert!(told.tokens.len() < free.tokens.len() && free.text.starts_with(&told.text));
    }
    assert!(told.iter().all(|told| !told.tokens[..told.tokens.len() - 1].contains(&ByteText::END)));
}

#[test]
fn a_row_never_gets_more_tokens_than_its_output_may_take() {
    let model = Synthetic::tiny(Family::Llama, 31);
    let (truth, _) = run(&mut executor(&model, BLOCK as u32), rows(1, &|_| greedy(30)), &|_, _| Vec::new());
    for output_max in 1..8 {
        let all = |_: usize, from: usize| truth[0].tokens[from..from + 7].to_vec();
        let (told, steps) = run(&mut executor(&model, BLOCK as u32), rows(1, &|_| greedy(output_max)), &all);
        assert_eq!(told[0].tokens, truth[0].tokens[..output_max as usize]);
        assert_eq!((told[0].end.clone(), steps), (Some(Ok(End::Length)), 1), "prefills may guess too");
    }
}

#[test]
fn rows_on_two_ranks_say_the_same_in_fewer_steps() {
    let model = Synthetic::tiny(Family::Llama, 31);
    let ranks = || {
        let cpus: Vec<_> = (0..2).map(|_| Arc::new(Cpu::new(Some(1)).expect("threads start"))).collect();
        let ranks = ShardedModel::load(&model.config, &model.weights(), &cpus, Keep::default());
        let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(4 << 20) };
        let ranks = ranks.expect("the model divides");
        LocalExecutor::new(ranks, Arc::new(ByteText), vec![ByteText::END], settings).expect("the pool fits")
    };
    check(ranks, &rows(9, &|id| greedy(20 + id)), "two ranks");
    let form = Constraint::Grammar("start: \"id: \" /[0-9][0-9]/ \" of \" /[0-9]/\n".into());
    let compiled = ranks().constraints().compile(&form).expect("it compiles");
    let opening = compiled.opening().to_vec();
    assert_eq!(opening.len(), "id: ".len(), "a token is a byte");
    let held =
        |_: u64| Generation { constraint: Some(form.clone()), compiled: compiled.clone(), ..greedy(22) };
    let rows = rows(5, &held);
    let (plain, steps) = run(&mut ranks(), rows.clone(), &|_, _| Vec::new());
    let behind_prompt = |_: usize, from: usize| if from == 0 { opening.clone() } else { Vec::new() };
    assert_eq!(run(&mut ranks(), rows, &behind_prompt), (plain, steps - 1));
}

#[test]
fn a_wrong_guess_that_gives_no_numbers_harms_nobody() {
    let model = Synthetic::tiny(Family::Llama, 31);
    // No prompt has it, and no output.
    let unsound = TokenId(251);
    let weights = with_unsound_token(&model, unsound);
    let load = || executor_of(decoder(&model, &weights), BLOCK as u32);
    // What is forced may be guessed too, and is not computed where the guess is spoiled.
    let form = Constraint::Regex("[0-9]{2}, item [0-9]{2}, item [0-9]".into());
    let rows = rows(4, &|id| Generation { constraint: (id > 2).then(|| form.clone()), ..greedy(22) });
    let (plain, _) = run(&mut load(), rows.clone(), &|_, _| Vec::new());
    assert!(plain.iter().all(|told| told.tokens.len() > 18 && !told.tokens.contains(&unsound)), "{plain:?}");
    let wrong = |row: usize, from: usize| {
        let right = plain[row].tokens.iter().skip(from).take(from % 5).copied();
        right.chain([unsound, unsound]).collect()
    };
    assert_eq!(run(&mut load(), rows, &wrong).0, plain);
}

#[test]
fn guesses_that_stand_for_nothing_are_refused() {
    let mut executor = executor(&Synthetic::tiny(Family::Llama, 31), BLOCK as u32);
    let row = Row::new(1, tokens(1, 20), 40, BLOCK, &mut Blocks::default());
    let sound = guessing(&row, 12, &tokens(9, 3));
    for (slot, reason) in [
        (Slot { guesses: 11, ..sound.clone() }, "leave nothing of an input of 11"),
        (Slot { guesses: u32::MAX, ..sound.clone() }, "leave nothing"),
        (Slot { sample: None, ..sound.clone() }, "does not sample"),
    ] {
        match executor.step(&plan(vec![slot])) {
            Err(ExecError::BadPlan(found)) => assert!(found.contains(reason), "{found} for {reason}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
    assert!(step(&mut executor, vec![sound])[0].is_ok());
}

/// The demo model in single precision: in bf16 the rounding of another batch shape might tip a tie.
fn demo() -> Engine {
    let dtype = Some(Dtype::F32);
    let config = EngineConfig { threads: Some(2), dtype, ..EngineConfig::default() };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    load_dir(&folder, &config, &Arc::default()).expect("the demo model loads")
}

/// Rows of the demo model under these generations.
fn demo_rows(engine: &Engine, generations: impl IntoIterator<Item = Generation>) -> Vec<Row> {
    let mut blocks = Blocks::default();
    let row = |(id, generation): (u64, Generation)| {
        let frame = engine.text.frame(&[Role::User]).expect("the template takes a user's turn");
        let prompt = engine.text.encode_framed(&frame, &[&format!("Rate it. Text: not bad {id}")]);
        let row = Row::new(id, prompt, 240, engine.info.block_tokens as usize, &mut blocks);
        Row { generation: Arc::new(generation), ..row }
    };
    (0..).zip(generations).map(row).collect()
}

#[test]
fn constrained_rows_follow_their_form_through_guesses() {
    let engine = demo();
    let schema = r#"{"type":"object","properties":{"label":{"enum":["positive","negative"]},
        "score":{"type":"integer","minimum":-300,"maximum":300},"words":{"type":"array","items":{"enum":["dull","fine"]},
        "minItems":2,"maxItems":4}},"required":["label","score","words"],"additionalProperties":false}"#;
    let forms = [
        Constraint::JsonSchema(schema.into()),
        Constraint::Regex("(yes|no)(, (yes|no)){6}".into()),
        Constraint::Integer { low: -20_000_000, high: 20_000_000 },
    ];
    let generations = (0..).zip(forms.iter().cycle().take(9)).map(|(id, form)| Generation {
        output_max: TokenCount(60),
        constraint: Some(form.clone()),
        temperature: if id < 3 { 0.0 } else { 1.3 },
        ..Generation::default()
    });
    let rows = demo_rows(&engine, generations);
    let told = check(|| demo().executor, &rows, "constrained");
    assert!(told.iter().any(|told| told.text.starts_with("{\"label\"")), "{told:?}");
    assert!(told.iter().all(|told| told.end == Some(Ok(End::Stop))), "{told:?}");
}

#[test]
fn what_all_outputs_begin_with_is_not_drawn_and_changes_nothing() {
    let engine = demo();
    let lark = r#"start: "{\"label\": \"" ("positive" | "negative") "\", \"score\": " /[0-9]/ "}""#;
    let form = Constraint::Grammar(lark.into());
    let compiled = engine.executor.constraints().compile(&form).expect("it compiles");
    let opening = compiled.opening().to_vec();
    assert!(opening.len() > 2, "{opening:?}");
    let plain =
        Generation { output_max: TokenCount(40), constraint: Some(form), compiled, ..Generation::default() };
    let penalty = LogitAdjustments { frequency_penalty: 1.5, ..LogitAdjustments::default() };
    let generations = [
        plain.clone(),
        Generation { temperature: 1.3, ..plain.clone() },
        Generation { stop: vec!["abel".into()], ..plain.clone() },
        Generation { output_max: TokenCount(opening.len() as u64 + 1), ..plain.clone() },
        Generation { output_max: TokenCount(2), ..plain.clone() },
        Generation { adjustments: Some(Box::new(penalty)), ..plain.clone() },
        Generation { logprobs: Some(2), ..plain },
    ];
    let rows = demo_rows(&engine, generations);
    let (drawn, steps) = run(&mut demo().executor, rows.clone(), &|_, _| Vec::new());
    assert!(drawn[0].text.starts_with(r#"{"label": ""#), "{drawn:?}");
    assert!(drawn[2].text.len() < 5 && drawn[2].end == Some(Ok(End::StopText(0))), "{drawn:?}");
    let wrong = TokenId(opening[0].0 ^ 1);
    for (guesses, saved) in [
        (opening.clone(), 1),
        ([&opening[..], &[wrong]].concat(), 1),
        (opening[..2].to_vec(), 0),
        ([&opening[..2], &[wrong]].concat(), 0),
    ] {
        let behind_prompt = |_: usize, from: usize| if from == 0 { guesses.clone() } else { Vec::new() };
        let (told, fewer) = run(&mut demo().executor, rows.clone(), &behind_prompt);
        assert_eq!(told, drawn, "{guesses:?}");
        assert_eq!(fewer + saved, steps, "{guesses:?}");
    }
    let slot = guessing(&rows[6], 0, &opening);
    let sampled = step(&mut demo().executor, vec![slot]).remove(0).expect("it keeps its form");
    assert_eq!(sampled.logprobs.len(), sampled.tokens.len());
    let mut known = sampled.logprobs[..opening.len()].iter().flatten();
    assert!(known.all(|told| told.chosen.logprob == 0.0), "{sampled:?}");
}
