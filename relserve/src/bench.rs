//! `relserve bench engine`: what a model reaches on this machine, as fractions of what the machine can do.
//!
//! Made-up rows through the real scheduler and executor, one relQuery after another on an otherwise idle
//! machine. A step's limit is the longer of two: all weights read once at the measured memory rate, and its
//! products with weights at the measured rate of the instructions in use. Attention, norms and sampling are
//! on top of it.

pub mod buckets;
pub mod first_row;
pub(crate) mod first_token;
pub mod pml;
pub mod queries;
pub(crate) mod server;
pub mod spans;
pub mod speculation;
pub mod sql;

use std::fmt::Write;
use std::sync::Arc;

use base::{
    ExecError, Executor, Generation, Nanos, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId,
    Time, TokenCount, TokenId, WorkItem,
};
use engine::checkpoint::Dtype;
use engine::device::{Cpu, Isa, Limits};
use engine::{Engine, LocalExecutor, Quantize};
use scheduler::{ConfigError, CostModel, Refused, Scheduler, SchedulerConfig, Speculation};
use serving::clock::Clock;

/// The lengths of the relQuery: its template, and its rows' own tokens from..to.
const TEMPLATE: usize = 150;
const OWN: std::ops::Range<usize> = 60..100;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A step failed.
    #[error("a step failed: {0}")]
    Step(#[from] ExecError),
    /// No threads to measure the machine with.
    #[error("threads cannot be started: {0}")]
    Threads(#[from] std::io::Error),
    /// The scheduler's settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The scheduler does not take a case.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The model.
    #[error(transparent)]
    Backend(#[from] serving::load::LoadError),
    #[error(transparent)]
    Table(#[from] crate::tables::TableError),
    /// A prompt that cannot be measured.
    #[error("{0}")]
    Case(String),
    #[error(transparent)]
    Prompts(#[from] crate::eval::EvalError),
    /// The server that is measured does not start.
    #[error(transparent)]
    Start(#[from] gateway::app::StartError),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("a request failed: {0}")]
    Request(#[from] reqwest::Error),
}

impl BenchError {
    /// A file that cannot be written.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Case(format!("{}: {error}", path.display()))
    }
}

/// Rows of a case: a beginning that all share, own tokens each, and output tokens.
struct RowsCase {
    name: String,
    rows: usize,
    shared: usize,
    own: std::ops::Range<usize>,
    output: u64,
    /// Which steps are looked at.
    part: MeasuredSteps,
}

#[derive(Clone, Copy, PartialEq)]
enum MeasuredSteps {
    Prefill,
    Decode,
    Whole,
}

/// A step that was run.
struct Ran {
    tokens: usize,
    sampled: usize,
    is_decode: bool,
    elapsed: Nanos,
}

/// A model under measurement.
struct EngineBench<'a> {
    executor: &'a mut LocalExecutor,
    scheduler: Scheduler,
    limits: Limits,
    /// Operations per second of the products that this model's weights take.
    products: f64,
    clock: Clock,
    next: u64,
}

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// Only the cases whose names begin like this: `--only "decode, 100"` [default: all].
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// How often a case runs; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
}

/// The scheduler's settings for made-up rows on an engine.
fn measured(engine: &Engine, settings: &SchedulerConfig) -> SchedulerConfig {
    SchedulerConfig {
        kv_blocks: engine.info.kv_blocks,
        block_tokens: engine.info.block_tokens,
        refit: false,
        // They say nothing that could be guessed.
        speculation: Speculation::Off,
        ..settings.clone()
    }
}

/// Measures the machine and `engine` on it; the table.
pub fn measure(
    engine: &mut Engine,
    settings: &SchedulerConfig,
    choice: &Choice,
) -> Result<String, BenchError> {
    let model = engine.executor.model();
    let cpu = Cpu::with_isa(Some(model.threads()), model.cpu().isa())?;
    let limits = Limits::measure(&cpu);
    let products = products(&limits, cpu.isa(), engine.info.quantize, engine.info.dtype);
    let mut text = format!(
        "{:?}, {} threads: reads {:.1} GB/s, products {:.0} GFLOP/s in f32",
        cpu.isa(),
        cpu.threads(),
        limits.read / 1e9,
        limits.single / 1e9
    );
    if let Some(rate) = limits.bf16 {
        let numbers = if cpu.isa().multiplies_halves() { "half floats" } else { "bf16" };
        let _ = write!(text, ", {:.0} in {numbers}", rate / 1e9);
    }
    if let Some(rate) = limits.int8 {
        let _ = write!(text, ", {:.0} in int8", rate / 1e9);
    }
    if let Some(rate) = limits.int8_unit {
        let _ = write!(text, ", {:.0} in int8 on the matrix unit", rate / 1e9);
    }
    let config = measured(engine, settings);
    let context = engine.info.context_max.0 as usize;
    let room = (engine.info.kv_blocks * engine.info.block_tokens) as usize;
    let vocab = engine.info.vocab;
    let mut harness = EngineBench {
        scheduler: Scheduler::new(config, CostModel::default())?,
        executor: &mut engine.executor,
        limits,
        products,
        clock: Clock::start(),
        next: 0,
    };
    let _ = write!(text, "\n{:<44}{:>10}{:>12}{:>10}{:>10}\n", "", "ms", "tokens/s", "limit ms", "of limit");
    for case in cases().iter().filter(|case| case.name.starts_with(&choice.only)) {
        if !fits(case, context, room) {
            let _ = writeln!(text, "{:<44}  does not fit: context {context}, KV pool {room}", case.name);
            continue;
        }
        text += &harness.line(case, vocab, choice.rounds)?;
    }
    Ok(text)
}

/// Whether a context and a KV pool of so many tokens hold a case's rows, all at a time.
fn fits(case: &RowsCase, context: usize, room: usize) -> bool {
    let row = case.shared + case.own.end + case.output as usize;
    let all = case.shared + case.rows * (case.own.end + case.output as usize);
    row <= context && all <= room
}

/// Operations per second of the instructions that products take with weights that are kept so.
fn products(limits: &Limits, isa: Isa, quantize: Option<Quantize>, dtype: Dtype) -> f64 {
    let is_narrow = dtype == Dtype::Bf16 || dtype == Dtype::F16 && isa.multiplies_halves();
    let rate = match quantize {
        Some(Quantize::Q8 | Quantize::Q8Wide) => limits.of_eight_bits(),
        Some(Quantize::Q4) => limits.int8,
        Some(Quantize::Fp8) | None => limits.bf16.filter(|_| is_narrow),
    };
    rate.unwrap_or(limits.single)
}

fn cases() -> Vec<RowsCase> {
    let mut cases = Vec::new();
    for tokens in [16, 64, 256, 512, 1024] {
        let own = tokens..tokens + 1;
        let name = format!("prefill, {tokens} tokens");
        cases.push(RowsCase { name, rows: 1, shared: 0, own, output: 1, part: MeasuredSteps::Prefill });
    }
    for rows in [1, 4, 8, 16, 32, 100] {
        let name = format!("decode, {rows} rows, 128 shared + 32 own");
        cases.push(RowsCase { name, rows, shared: 128, own: 32..33, output: 9, part: MeasuredSteps::Decode });
    }
    let name = format!("relQuery, 50 rows, {TEMPLATE} + {}..{}, 10 out", OWN.start, OWN.end);
    cases.push(RowsCase {
        name,
        rows: 50,
        shared: TEMPLATE,
        own: OWN,
        output: 10,
        part: MeasuredSteps::Whole,
    });
    cases
}

impl EngineBench<'_> {
    /// A line of the table: the median round.
    fn line(&mut self, case: &RowsCase, vocab: u32, count: u64) -> Result<String, BenchError> {
        let mut rounds = Vec::new();
        for _ in 0..count {
            let begin = self.clock.now();
            let ran = self.run(case, vocab)?;
            let whole = (self.clock.now().0 - begin.0) as f64 / 1e9;
            let wanted = |step: &&Ran| match case.part {
                MeasuredSteps::Prefill => !step.is_decode,
                MeasuredSteps::Decode => step.is_decode,
                MeasuredSteps::Whole => true,
            };
            let steps: Vec<&Ran> = ran.iter().filter(wanted).collect();
            let count = if case.part == MeasuredSteps::Decode { steps.len().max(1) as f64 } else { 1.0 };
            let spent = steps.iter().map(|step| step.elapsed.0 as f64 / 1e9).sum::<f64>();
            let seconds = if case.part == MeasuredSteps::Whole { whole } else { spent };
            let limit = steps.iter().map(|step| self.limit(step)).sum::<f64>();
            let tokens: usize = steps.iter().map(|step| step.tokens).sum();
            rounds.push((seconds / count, tokens as f64 / seconds, limit / count, limit / seconds));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, rate, limit, share) = rounds[rounds.len() / 2];
        let (ms, limit_ms, percent) = (seconds * 1e3, limit * 1e3, share * 1e2);
        Ok(format!("{:<44}{ms:>10.2}{rate:>12.0}{limit_ms:>10.2}{percent:>8.0} %\n", case.name))
    }

    /// Seconds that a step takes at least.
    fn limit(&self, step: &Ran) -> f64 {
        let model = self.executor.model();
        let reading = model.step_bytes() as f64 / self.limits.read;
        reading.max(model.step_operations(step.tokens, step.sampled) / self.products)
    }

    /// Runs a case's rows as one relQuery that shares nothing with any before.
    fn run(&mut self, case: &RowsCase, vocab: u32) -> Result<Vec<Ran>, BenchError> {
        self.next += 1;
        let arrival = self.clock.now();
        self.scheduler.submit(submission(case, vocab, self.next, arrival))?;
        let mut ran = Vec::new();
        while let Some(plan) = self.scheduler.plan(self.clock.now()) {
            let outcome = self.executor.step(&plan)?;
            ran.push(Ran {
                tokens: plan.slots.iter().map(|slot| slot.input.len()).sum(),
                sampled: plan.slots.iter().filter(|slot| slot.sample.is_some()).count(),
                is_decode: plan.slots.iter().all(|slot| !slot.is_prefill),
                elapsed: outcome.elapsed,
            });
            self.scheduler.apply(&outcome, self.clock.now());
        }
        Ok(ran)
    }
}

/// The prompts of a case's rows: tokens that depend on place and row alone.
fn prompts(case: &RowsCase, vocab: u32) -> Vec<Vec<TokenId>> {
    let token = |row: usize, place: usize| {
        let mixed = (row as u64 * 1_000_003 + place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        TokenId(((mixed >> 33) % u64::from(vocab.max(1))) as u32)
    };
    let prompt = |row: usize| {
        let own = case.own.start + row * 7 % case.own.len().max(1);
        let shared = (0..case.shared).map(|place| token(0, place));
        shared.chain((0..own).map(|place| token(row + 1, place))).collect()
    };
    (0..case.rows).map(prompt).collect()
}

/// A case's rows, under a scope of its own.
fn submission(case: &RowsCase, vocab: u32, number: u64, arrival: Time) -> Submission {
    let generation =
        Generation { output_max: TokenCount(case.output), ignore_end: true, ..Default::default() };
    let generation = Arc::new(generation);
    let items = (0..).zip(prompts(case, vocab)).map(|(row, prompt)| {
        let own = prompt.len() - case.shared;
        let spans = [(SpanKind::Template, case.shared), (SpanKind::Field, own)];
        let spans = spans.into_iter().filter(|(_, tokens)| *tokens > 0);
        WorkItem {
            row,
            prompt: prompt.into(),
            spans: spans.map(|(kind, tokens)| Span { kind, tokens: TokenCount(tokens as u64) }).collect(),
            sections: Arc::default(),
            generation: Arc::clone(&generation),
            seed: 0,
        }
    });
    Submission {
        id: RelQueryId(number),
        tenant: TenantId(0),
        weight: 1_000,
        scope: u128::from(number),
        class: ServiceClass::Interactive,
        arrival,
        deadline: None,
        items: items.collect(),
    }
}

#[cfg(test)]
mod tests {
    use gateway::config::Config;

    use super::*;

    #[test]
    fn weights_have_the_limit_of_the_instructions_that_multiply_them() {
        let limits =
            Limits { read: 1.0, single: 2.0, bf16: Some(3.0), int8: Some(4.0), int8_unit: Some(5.0) };
        let isa = Isa::Avx512Bf16;
        let of = |quantize| products(&limits, isa, quantize, Dtype::Bf16);
        let found = [None, Some(Quantize::Q8), Some(Quantize::Q8Wide), Some(Quantize::Q4)].map(of);
        assert_eq!(found, [3.0, 5.0, 5.0, 4.0]);
        assert_eq!(products(&limits, isa, None, Dtype::F32), 2.0);
        let of_halves = [isa, Isa::Avx512Fp16].map(|isa| products(&limits, isa, None, Dtype::F16));
        assert_eq!(of_halves, [2.0, 3.0], "numbers of f16 are widened but where halves are multiplied");
    }

    #[test]
    fn every_case_of_the_demo_model_is_a_fraction_of_a_limit_or_does_not_fit() {
        let config = Config::default();
        let mut engine = serving::load::load(config.backend()).expect("the demo model loads");
        let text = measure(&mut engine, &config.scheduler, &Choice { only: String::new(), rounds: 3 })
            .expect("steps succeed");
        assert!(text.contains("GFLOP/s in f32"), "{text}");
        assert_eq!(text.lines().count(), 2 + cases().len(), "{text}");
        for line in text.lines().skip(2) {
            assert!(line.ends_with(" %") || line.contains("does not fit"), "{text}");
        }
    }
}
