//! Greedy decode steps: logits written and then looked through, against the highest found in the product's
//! tiles.
//!
//! Both ways take turns in one process, on one thread whose processor time is read:
//!
//! ```text
//! cargo bench -p engine --bench vocabulary --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! The 125 M shape, or with `qwen` after `--` that of Qwen2.5-0.5B; a number is how many rounds.
#![expect(clippy::print_stdout, reason = "the ratios are the bench's result")]

mod common;

use std::hint::black_box;
use std::sync::Arc;

use base::{Bytes, Slot};
use common::{BLOCK, median, processor, run, slot};
use engine::Keep;
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::decoder::{Decoder, LoadOptions, Workspace};
use engine::device::Cpu;
use engine::pool::{KvPool, PoolShape};

/// Rounds of measurement where none are asked for.
const ROUNDS: usize = 15;

/// Rows whose logits are in memory together: the executor's own number.
const LOGIT_ROWS_MAX: usize = 64;

/// Logits looked through together: the compiler makes vectors of them.
const TOGETHER: usize = 64;

/// Decode of `rows` rows behind a template of 128 tokens and 32 of their own.
fn decode(rows: usize) -> Vec<Slot> {
    let mut next = 0;
    let template = run(128, &mut next);
    let one = |id| {
        let tail = run(32, &mut next);
        slot(id, 1, &[template.clone(), tail], &mut next)
    };
    (0..rows).map(one).collect()
}

/// The token of the highest logit, the lowest of equals, if all are numbers: what greedy sampling does with
/// written logits.
fn look_through(logits: &[f32]) -> Option<usize> {
    let (chunks, rest) = logits.as_chunks::<TOGETHER>();
    let mut highest = [f32::NEG_INFINITY; TOGETHER];
    let odd = |logits: &[f32]| logits.iter().fold(false, |odd, logit| odd | !logit.is_finite());
    if chunks.iter().any(|chunk| odd(chunk)) || odd(rest) {
        return None;
    }
    for chunk in chunks {
        for (high, logit) in highest.iter_mut().zip(chunk) {
            *high = if *logit > *high { *logit } else { *high };
        }
    }
    let max = highest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let has = |chunk: &[f32; TOGETHER]| chunk.iter().fold(false, |has, logit| has | (*logit == max));
    let from = chunks.iter().position(has).unwrap_or(chunks.len()) * TOGETHER;
    logits[from..].iter().position(|logit| *logit == max).map(|at| from + at)
}

/// Logits of a few rows at a time, and the token of each.
fn written(decoder: &Decoder, hidden: &[f32], work: &mut Workspace) -> Vec<Option<usize>> {
    let (width, vocab) = (decoder.config().embedding, decoder.config().vocab);
    let mut tokens = Vec::new();
    for hidden in hidden.chunks(LOGIT_ROWS_MAX * width) {
        let logits = decoder.logits(hidden, work).expect("no other rank fails");
        tokens.extend(decoder.cpu().run(|| logits.chunks_exact(vocab).map(look_through).collect::<Vec<_>>()));
        work.keep_logits(logits);
    }
    tokens
}

fn main() {
    let rounds = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(ROUNDS);
    let model = match std::env::args().any(|arg| arg == "qwen") {
        true => Synthetic::qwen2_5_05b(Dtype::Bf16, 1),
        false => Synthetic::llama_125m(Dtype::Bf16, 1),
    };
    let cpu = Arc::new(Cpu::new(Some(1)).expect("threads start"));
    let options = LoadOptions { cpu: Arc::clone(&cpu), keep: Keep::default() };
    let decoder = Decoder::load(&model.config, &model.weights(), options).expect("the weights are complete");
    let shape =
        PoolShape::fit(decoder.config(), decoder.kv(), BLOCK as u32, Bytes(u64::MAX)).expect("it is enough");
    let mut pool = KvPool::new(PoolShape { blocks: 400, ..shape });
    let mut work = Workspace::default();
    println!("{:?}, one thread, {} tokens", cpu.isa(), model.config.vocab);
    for rows in [1, 8, 32, 100] {
        let slots = decode(rows);
        let (wanted, end) = (vec![1; rows], model.config.vocab);
        let mut round = |_| {
            let start = processor(&cpu);
            let hidden = decoder.forward(&mut pool, &slots, &mut work).expect("no other rank fails");
            let computed = processor(&cpu);
            black_box(written(&decoder, &hidden, &mut work));
            let looked = processor(&cpu);
            black_box(decoder.top_k(&hidden, &wanted, end, &mut work).expect("no other rank fails"));
            [computed - start, looked - computed, processor(&cpu) - looked]
        };
        let found: Vec<_> = (0..=rounds).map(&mut round).skip(1).collect();
        let ms = |part: usize| 1e3 * median(found.iter().map(|round| round[part]));
        let step = median(found.iter().map(|[layers, one, other]| (layers + other) / (layers + one)));
        let vocabulary = median(found.iter().map(|[_, one, other]| other / one));
        println!(
            "decode {rows:>3} rows: layers {:7.2} ms, logits written {:7.2} ms, highest in tiles {:7.2} ms, \
             {vocabulary:.3} of it, {step:.3} of the step",
            ms(0),
            ms(1),
            ms(2),
        );
    }
}
