//! The shipped demo model, through the engine: it answers as the independent NumPy forward pass does
//! (models/demo/answers.json), and labels the real reviews of examples/reviews.csv better than chance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{
    BatchPlan, BlockId, ChatTemplate as _, Executor as _, Generation, Moves, RequestId, Role, Run,
    SampleSpec, Slot, StepId, TokenCount, TokenId, Tokenizer as _,
};
use engine::{Engine, EngineConfig, load_dir};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

fn demo() -> Engine {
    let config = EngineConfig { threads: Some(2), ..EngineConfig::default() };
    load_dir(&repository().join("models/demo"), &config, &Arc::default()).expect("the demo model loads")
}

/// The prompt of one user message.
fn prompt(engine: &Engine, content: &str) -> Vec<TokenId> {
    let frame = engine.text.frame(&[Role::User]).expect("the template takes a user's turn");
    engine.text.encode_framed(&frame, &[content])
}

/// The greedy answer, one request alone in the pool.
fn answer(engine: &mut Engine, request: u64, content: &str) -> String {
    let mut tokens = prompt(engine, content);
    let block = engine.info.block_tokens as usize;
    let generation = Arc::new(Generation { output_max: TokenCount(24), ..Generation::default() });
    let blocks: Vec<BlockId> = (0..(tokens.len() + 24).div_ceil(block) as u32).map(BlockId).collect();
    let (mut done, mut text) = (0usize, String::new());
    for output_index in 0.. {
        let used = Run {
            skip: 0,
            blocks: blocks[..done.div_ceil(block)].into(),
            tokens: TokenCount(done as u64),
            shift: 0,
        };
        let slot = Slot {
            request: RequestId(request),
            start: done as u32,
            input: tokens[done..].to_vec(),
            guesses: 0,
            prompt_targets: None,
            context: if done == 0 { Vec::new() } else { vec![used] },
            write_blocks: blocks[done / block..tokens.len().div_ceil(block)].to_vec(),
            write_offset: (done % block) as u32,
            sample: Some(SampleSpec {
                generation: Arc::clone(&generation),
                seed: 0,
                output_index,
                already_generated: Vec::new(),
                prompt: None,
            }),
            is_prefill: output_index == 0,
        };
        let plan = BatchPlan {
            step: StepId(u64::from(output_index)),
            moves: Moves::default(),
            slots: vec![slot],
            retired: Vec::new(),
        };
        let outcome = engine.executor.step(&plan).expect("the plan is sound");
        let sampled = outcome.rows[0].result.clone().expect("logits are numbers");
        text += &sampled.text;
        if sampled.end.is_some() {
            break;
        }
        done = tokens.len();
        tokens.extend(sampled.tokens);
    }
    text
}

/// Rows of a CSV file whose quoted cells may hold commas and doubled quotes, but no line breaks.
fn csv(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            let cell = cells.last_mut().expect("there is a first cell");
            match character {
                '"' if is_quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                other => cell.push(other),
            }
        }
        cells
    };
    text.lines().map(row).collect()
}

#[test]
fn the_engine_answers_as_the_independent_forward_pass_does() {
    let text = std::fs::read_to_string(repository().join("models/demo/answers.json")).expect("it is shipped");
    let pairs: Vec<serde_json::Value> = serde_json::from_str(&text).expect("a list of pairs");
    assert!(pairs.len() >= 20);
    let mut engine = demo();
    for (request, pair) in pairs.iter().enumerate() {
        let content = pair["prompt"].as_str().expect("a prompt");
        assert_eq!(answer(&mut engine, request as u64, content), pair["answer"], "{content}");
    }
}

#[test]
fn the_demo_model_labels_real_reviews_better_than_the_majority_class() {
    let rows =
        csv(&std::fs::read_to_string(repository().join("examples/reviews.csv")).expect("it is shipped"));
    assert_eq!(rows[0], ["id", "review", "sentiment", "score"]);
    let rows = &rows[1..];
    assert_eq!(rows.len(), 50);
    let positive = rows.iter().filter(|row| row[2] == "positive").count();
    let majority = positive.max(rows.len() - positive);
    let mut engine = demo();
    let mut right = 0;
    for (request, row) in rows.iter().enumerate() {
        // The text of the cell function `classify` in ir/catalogue.toml.
        let content = format!(
            "Classify the text. Answer with one of these labels: positive, negative.\n\nText: {}",
            row[1]
        );
        right += usize::from(answer(&mut engine, request as u64, &content) == row[2]);
    }
    assert!(right > majority, "{right} of {} right, the majority class has {majority}", rows.len());
}
