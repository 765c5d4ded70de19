//! Steps of models of 7 and 8 billion parameters on a GPU, with random weights, against that card's own
//! limits.
//!
//! ```text
//! cargo bench -p engine --bench cuda [-- [SHAPE] [FORMAT] [CASES]]
//! ```
//!
//! A shape is `qwen2.5-7b`, `llama-3-8b` or, where memory is short, `qwen2.5-0.5b`; a format `bf16`, `fp8`, `q4`, `kv-q8` or `kv-fp8`
//! (weights of bf16, keys and values in eight bits: integers, or floats); cases are `decode`, `prefill` or `shared`. What is not named is all of it, but for the
//! small shape.
//!
//! It prints, per case, the median time of a step and its fraction of the limit: decode against reading all
//! weights and the rows' keys and values once at the rate at which the card copies, prefill against its
//! operations at the rate of a large square product of bf16. Both rates are measured in the same run. Last, a
//! decode step of 100 rows that share 2,000 tokens: with the shared run read once, and with each row's run
//! apart.
#![expect(clippy::print_stdout, reason = "the fractions are the bench's result")]

mod common;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use base::{Bytes, Slot};
use common::{BLOCK, run, slot};
use engine::checkpoint::config::ModelConfig;
use engine::checkpoint::shapes::expected_tensors;
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint::{CheckpointError, Dtype, RawTensor, WeightSource};
use engine::device::Cpu;
use engine::device::cuda::{Buffer, CudaRuntime, Element, Factors, Gpu, GpuError, Linear};
use engine::parallel::{Ranks, ShardedModel, StepError};
use engine::{Keep, KvFormat, Quantize};

/// How weights are kept, or keys and values.
const FORMATS: [(&str, Option<Quantize>, Option<KvFormat>); 5] = [
    ("bf16", None, None),
    ("fp8", Some(Quantize::Fp8), None),
    ("q4", Some(Quantize::Q4), None),
    ("kv-q8", None, Some(KvFormat::Q8)),
    ("kv-fp8", None, Some(KvFormat::Fp8)),
];

/// Kinds of steps.
const CASES: [&str; 3] = ["decode", "prefill", "shared"];

/// Runs of each case; the median counts.
const RUNS: usize = 15;

/// Random weights by name: all of them are the beginning of one stretch of numbers.
struct Random {
    shapes: std::collections::BTreeMap<String, Vec<usize>>,
    numbers: Vec<u8>,
}

impl Random {
    fn new(config: &ModelConfig) -> Self {
        let mut state = 1_u64;
        let number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            half::bf16::from_f32(((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.04).to_le_bytes()
        };
        let shapes: std::collections::BTreeMap<_, _> = expected_tensors(config).collect();
        let largest = shapes.values().map(|shape| shape.iter().product::<usize>()).max().unwrap_or(0);
        let some: Vec<u8> = std::iter::repeat_with(number).take(1 << 20).flatten().collect();
        Self { shapes, numbers: some.repeat((2 * largest).div_ceil(some.len())) }
    }
}

impl WeightSource for Random {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        let (dtype, shape) = self.layout(name)?;
        let bytes = 2 * shape.iter().product::<usize>();
        Ok(RawTensor { dtype, shape, data: Cow::Borrowed(&self.numbers[..bytes]) })
    }

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        let missing = || CheckpointError::MissingTensor { name: name.to_owned() };
        Ok((Dtype::Bf16, self.shapes.get(name).ok_or_else(missing)?.clone()))
    }

    fn names(&self) -> Vec<String> {
        self.shapes.keys().cloned().collect()
    }
}

/// A model's published configuration.
fn shape(name: &str) -> Option<ModelConfig> {
    match name {
        "qwen2.5-7b" => Some(Synthetic::qwen2_5_7b(Dtype::Bf16, 1).config),
        "qwen2.5-0.5b" => Some(Synthetic::qwen2_5_05b(Dtype::Bf16, 1).config),
        "llama-3-8b" => Some(Synthetic::llama_3_8b(Dtype::Bf16, 1).config),
        _ => None,
    }
}

/// What the card can do at most, per second.
struct Limits {
    /// Bytes that it copies, read and written ones both counted.
    copy: f64,
    /// Operations of a large product of bf16, a multiplication and an addition counted as two.
    product: f64,
}

/// Seconds of the median of some runs, each waited for.
fn median(gpu: &dyn Gpu, mut run: impl FnMut() -> Result<(), GpuError>) -> Result<f64, GpuError> {
    let probe = gpu.allocate(4)?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        gpu.read(probe, &mut [0; 4])?;
        let start = Instant::now();
        run()?;
        gpu.read(probe, &mut [0; 4])?;
        times.push(start.elapsed().as_secs_f64());
    }
    gpu.free(probe);
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

impl Limits {
    fn measure(gpu: &Arc<dyn Gpu>) -> Result<Self, GpuError> {
        let bytes = 2 << 30;
        let (from, to) = (Buffer::new(gpu, bytes)?, Buffer::new(gpu, bytes)?);
        gpu.copy(from.address(), to.address(), bytes)?;
        let seconds = median(&**gpu, || gpu.copy(from.address(), to.address(), bytes))?;
        let copy = 2.0 * bytes as f64 / seconds;
        let n = 8192;
        let square = Linear {
            rows: n,
            outputs: n,
            inputs: n,
            factors: Factors::Of(Element::Bf16),
            x: from.address(),
            w: from.address().at(2 * n * n),
            bias: None,
            y: to.address(),
            out: Element::Bf16,
            adds: false,
            scales: None,
            gate: None,
        };
        gpu.linear(&square)?;
        let seconds = median(&**gpu, || gpu.linear(&square))?;
        Ok(Self { copy, product: 2.0 * (n as f64).powi(3) / seconds })
    }
}

/// Seconds of a step and the sampling of its rows' highest logits.
fn step(ranks: &mut Ranks, slots: &[Slot]) -> Result<f64, StepError> {
    let mut times = Vec::new();
    for run in 0..RUNS + 3 {
        let start = Instant::now();
        let hidden = ranks.forward(slots)?;
        let wanted = vec![1; hidden.rows()];
        ranks.top_k(&hidden, &wanted, ranks.model().config().vocab)?;
        if run >= 3 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    // Those of `all` that are named, or all.
    let named = |all: &[&'static str]| -> Vec<&'static str> {
        let some: Vec<_> = all.iter().copied().filter(|name| words.iter().any(|word| word == name)).collect();
        if some.is_empty() { all.to_vec() } else { some }
    };
    let (formats, cases) = (named(&FORMATS.map(|(name, ..)| name)), named(&CASES));
    let shapes: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !FORMATS.iter().any(|(name, ..)| name == word) && !CASES.contains(word))
        .collect();
    let shapes = if shapes.is_empty() { vec!["qwen2.5-7b", "llama-3-8b"] } else { shapes };
    let gpus = match Arc::new(CudaRuntime::default()).open(&[0], false) {
        Ok(gpus) => gpus,
        Err(error) => {
            println!("nothing is measured: {error}");
            return Ok(());
        }
    };
    let limits = Limits::measure(&gpus[0])?;
    println!(
        "{}: copies {:.0} GB/s, multiplies {:.0} TFLOP/s of bf16\n",
        gpus[0].name(),
        limits.copy / 1e9,
        limits.product / 1e12
    );
    for name in shapes {
        let config = shape(name).ok_or_else(|| format!("no shape {name}"))?;
        for (_, quantize, kv) in FORMATS.into_iter().filter(|(name, ..)| formats.contains(name)) {
            if quantize == Some(Quantize::Fp8) && !gpus[0].has_e4m3() {
                println!("{name} in fp8: this card does not multiply it\n");
                continue;
            }
            let keep = Keep { quantize, kv, ..Keep::default() };
            measure((name, &config), &gpus, (&limits, &cases), keep)?;
        }
    }
    Ok(())
}

/// Steps of one model, its weights kept in one way.
fn measure(
    (name, config): (&str, &ModelConfig),
    gpus: &[Arc<dyn Gpu>],
    (limits, cases): (&Limits, &[&str]),
    keep: Keep,
) -> Result<(), Box<dyn std::error::Error>> {
    let cpu = Arc::new(Cpu::new(None)?);
    let source = Random::new(config);
    let model = ShardedModel::load_on_gpus(config, &source, (gpus, &[cpu]), keep)?;
    assert_eq!(model.kv(), keep.kv.unwrap_or(KvFormat::Bf16));
    let shape = model.pool_shape(BLOCK as u32, Bytes(32 << 30))?;
    let token_bytes = shape.bytes().0 as f64 / (shape.blocks * BLOCK) as f64;
    let mut ranks = Ranks::start(&model, shape)?;
    let (kept, kv) = (keep.quantize.map_or("bf16", Quantize::name), model.kv().name());
    println!(
        "{name}, random weights, {kept}, keys and values {kv}: {:.2} GB read by a step",
        model.step_bytes() as f64 / 1e9
    );
    let decodes = [(1, 512), (8, 512), (32, 512), (128, 512), (32, 4096)];
    for (rows, context) in decodes.into_iter().filter(|_| cases.contains(&"decode")) {
        let mut blocks = 0;
        let slots: Vec<Slot> =
            (0..rows).map(|id| slot(id, 1, &[run(context, &mut blocks)], &mut blocks)).collect();
        let seconds = step(&mut ranks, &slots)?;
        let bytes = model.step_bytes() as f64 + token_bytes * (rows * context) as f64;
        println!(
            "  decode {rows:>3} rows of {context:>4} tokens: {:7.3} ms, {:3.0} % of the copy rate",
            1e3 * seconds,
            100.0 * bytes / seconds / limits.copy
        );
    }
    for tokens in [2048, 4096, 8192].into_iter().filter(|_| cases.contains(&"prefill")) {
        let slots = [slot(1, tokens, &[], &mut 0)];
        let seconds = step(&mut ranks, &slots)?;
        // Scores and values of all pairs of tokens that see each other.
        let attention =
            2.0 * (config.heads * config.head_dim * config.layers) as f64 * (tokens as f64).powi(2);
        let operations = model.step_operations(tokens, 1) + attention;
        println!(
            "  prefill {tokens:>4} tokens: {:7.2} ms, {:3.0} % of the product rate",
            1e3 * seconds,
            100.0 * operations / seconds / limits.product
        );
    }
    if !cases.contains(&"shared") {
        return Ok(());
    }
    let mut blocks = 0;
    let shared = run(2000, &mut blocks);
    let together: Vec<Slot> =
        (0..100).map(|id| slot(id, 1, std::slice::from_ref(&shared), &mut blocks)).collect();
    let apart: Vec<Slot> = (0..100).map(|id| slot(id, 1, &[run(2000, &mut blocks)], &mut blocks)).collect();
    let (with, without) = (step(&mut ranks, &together)?, step(&mut ranks, &apart)?);
    println!(
        "  100 rows on 2000 tokens: {:.3} ms where they share them, {:.3} ms where each has its own: {:.2} times\n",
        1e3 * with,
        1e3 * without,
        without / with
    );
    Ok(())
}
