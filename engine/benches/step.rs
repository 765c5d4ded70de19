//! Steps of a 125M-parameter Llama with random weights, against this machine's own limits.
//!
//! Build without the checks of pointers that a debug build makes at every step of a kernel, which halve its
//! speed:
//!
//! ```text
//! cargo bench -p engine --bench step --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! It prints, per case, the fraction of its limit: decode against reading all weights once at the measured
//! memory-read rate, prefill against its multiplications at the measured product rate (for weights that are
//! widened the `gemm` crate's f32 rate on a large square; for pairs of bf16 what the instruction reaches on
//! registers), whichever of the two takes longer. Each case runs on all kernels, one after another.
#![expect(clippy::print_stdout, reason = "the fractions are the bench's result")]

mod common;

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Bytes, Slot};
use common::{BLOCK, run, slot};
use criterion::{Criterion, criterion_group, criterion_main};
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::decoder::{Decoder, LoadOptions, Workspace};
use engine::device::{Cpu, Isa};
use engine::pool::{KvPool, PoolShape};
use engine::{Keep, KvFormat};
use rayon::prelude::*;

/// What the machine can do at most.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes per second.
    read: f64,
    /// Operations per second in single precision, a multiplication and an addition counted as two.
    product: f64,
    /// The same of pairs of bf16, where the machine multiplies them.
    pairs: Option<f64>,
}

/// The shortest of some runs, in seconds.
fn best(runs: usize, mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

impl Limits {
    fn measure(cpu: &Cpu) -> Self {
        let memory = vec![1u64; 64 << 20]; // far beyond any cache
        let sum = |chunk: &[u64]| chunk.iter().fold(0u64, |sum, x| sum.wrapping_add(*x));
        let seconds = cpu.run(|| {
            best(5, || {
                black_box(memory.par_chunks(1 << 20).map(sum).reduce(|| 0, u64::wrapping_add));
            })
        });
        let read = (memory.len() * 8) as f64 / seconds;
        let n = 1536;
        let (a, b, mut c) = (vec![1.0f32; n * n], vec![1.0f32; n * n], vec![0.0f32; n * n]);
        let parallelism = gemm::Parallelism::Rayon(cpu.threads());
        let step = n as isize;
        let seconds = cpu.run(|| {
            best(5, || {
                // SAFETY: three buffers of n * n elements, row-major.
                unsafe {
                    gemm::gemm(
                        n,
                        n,
                        n,
                        c.as_mut_ptr(),
                        1,
                        step,
                        false,
                        a.as_ptr(),
                        1,
                        step,
                        b.as_ptr(),
                        1,
                        step,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        parallelism,
                    );
                }
            })
        });
        black_box(&c);
        Self { read, product: 2.0 * (n * n * n) as f64 / seconds, pairs: pair_rate(cpu) }
    }
}

/// Operations per second of the instruction that multiplies pairs of bf16, all threads at it.
#[cfg(target_arch = "x86_64")]
fn pair_rate(cpu: &Cpu) -> Option<f64> {
    use std::arch::x86_64::*;

    const TIMES: usize = 2_000_000;
    /// Independent sums: more than the instruction's latency can leave idle.
    const SUMS: usize = 24;

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn multiply() {
        let ones = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0), _mm512_set1_ps(1.0));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    if !Isa::Avx512Bf16.is_available() {
        return None;
    }
    // SAFETY: the processor has the instructions.
    let seconds = cpu.run(|| best(5, || drop(rayon::broadcast(|_| unsafe { multiply() }))));
    Some((2 * 32 * SUMS * TIMES * cpu.threads()) as f64 / seconds)
}

/// Operations per second of the instruction that multiplies pairs of bf16: none here.
#[cfg(not(target_arch = "x86_64"))]
fn pair_rate(_cpu: &Cpu) -> Option<f64> {
    None
}

/// Batches by name: slots, and whether memory or products are the expected limit.
fn cases() -> Vec<(String, Vec<Slot>)> {
    let mut cases = Vec::new();
    for rows in [1, 4, 8, 16, 32] {
        let mut next = 0;
        let template = run(128, &mut next);
        let decode = |id| {
            let tail = run(32, &mut next);
            slot(id, 1, &[template.clone(), tail], &mut next)
        };
        cases.push((format!("decode {rows} rows, shared 128 + own 32"), (0..rows).map(decode).collect()));
    }
    for tokens in [64, 512] {
        cases.push((format!("prefill {tokens}"), vec![slot(0, tokens, &[], &mut 0)]));
    }
    let mut next = 0;
    let template = run(128, &mut next);
    let mut slots = vec![slot(0, 128, &[], &mut 0)];
    slots.extend((1..17).map(|id| slot(id, 24, std::slice::from_ref(&template), &mut next)));
    cases.push(("trie prefill, 16 rows of 24 on a new template of 128".into(), slots));
    cases
}

/// A model on some kernels.
struct Subject {
    name: String,
    decoder: Decoder,
    /// Operations per second that its products can reach, and of what.
    product: (f64, &'static str),
}

/// The kernels that are compared: f32 weights, then bf16 weights widened, then multiplied as they are, with
/// keys and values in f32 and in bf16.
fn subjects(limits: Limits) -> Vec<Subject> {
    let widening =
        Isa::available().filter(|isa| !isa.rounds_activations() && !isa.multiplies_halves()).last();
    let rounding = Isa::available().filter(|isa| isa.rounds_activations());
    let kernels = widening.into_iter().flat_map(|isa| [(Dtype::F32, isa, None), (Dtype::Bf16, isa, None)]);
    let subject = |(dtype, isa, kv): (Dtype, Isa, Option<KvFormat>)| {
        let cpu = Arc::new(Cpu::with_isa(None, isa).expect("threads start"));
        let model = Synthetic::llama_125m(dtype, 1);
        let options = LoadOptions { cpu, keep: Keep { kv, ..Keep::default() } };
        let decoder =
            Decoder::load(&model.config, &model.weights(), options).expect("the weights are complete");
        let product = match limits.pairs {
            Some(pairs) if isa.rounds_activations() => (pairs, "bf16 product"),
            _ => (limits.product, "f32 product"),
        };
        let name = format!("{} {isa:?} kv {}", dtype.name(), decoder.kv().name());
        Subject { name, decoder, product }
    };
    let kv = [Some(KvFormat::F32), None];
    kernels.chain(rounding.flat_map(|isa| kv.map(|kv| (Dtype::Bf16, isa, kv)))).map(subject).collect()
}

fn steps(criterion: &mut Criterion) {
    let cpu = Cpu::new(None).expect("threads start");
    let limits = Limits::measure(&cpu);
    println!(
        "{:?}, {} threads: reads {:.1} GB/s, f32 products {:.0} GFLOP/s",
        cpu.isa(),
        cpu.threads(),
        limits.read / 1e9,
        limits.product / 1e9,
    );
    if let Some(pairs) = limits.pairs {
        println!("products of bf16 pairs {:.0} GFLOP/s", pairs / 1e9);
    }
    let subjects = subjects(limits);
    let mut subjects: Vec<(Option<KvPool>, Subject)> =
        subjects.into_iter().map(|subject| (None, subject)).collect();
    let mut work = Workspace::default();
    for (name, slots) in cases() {
        for (pool, subject) in &mut subjects {
            let decoder = &subject.decoder;
            let fastest = Cell::new(Duration::MAX);
            criterion.bench_function(&format!("{}, {name}", subject.name), |bencher| {
                bencher.iter_custom(|iterations| {
                    let pool = pool.get_or_insert_with(|| written_pool(decoder, &mut work));
                    let start = Instant::now();
                    for _ in 0..iterations {
                        let one = Instant::now();
                        let hidden = decoder.forward(pool, &slots, &mut work).expect("no other rank fails");
                        black_box(decoder.logits(&hidden, &mut work).expect("no other rank fails"));
                        fastest.set(fastest.get().min(one.elapsed()));
                    }
                    start.elapsed()
                });
            });
            report(subject, limits, &slots, fastest.get());
        }
    }
}

/// A pool in which the blocks that cases read have been written: of memory that never was the system gives
/// one page of zeros for all, which the caches hold.
fn written_pool(decoder: &Decoder, work: &mut Workspace) -> KvPool {
    let shape = PoolShape::fit(decoder.config(), decoder.kv(), BLOCK as u32, Bytes(1 << 30));
    let mut pool = KvPool::new(shape.expect("a gigabyte holds blocks"));
    let written = slot(0, 112 * BLOCK, &[], &mut 0);
    black_box(decoder.forward(&mut pool, &[written], work).expect("no other rank fails"));
    pool
}

/// Prints how near a step comes to its limit.
fn report(subject: &Subject, limits: Limits, slots: &[Slot], fastest: Duration) {
    let c = subject.decoder.config();
    let (rate, word) = subject.product;
    let layer = 4 * c.hidden * c.hidden + 3 * c.hidden * c.intermediate;
    let tokens: usize = slots.iter().map(|slot| slot.input.len()).sum();
    let products = 2.0 * (tokens * layer * c.layers + slots.len() * c.hidden * c.vocab) as f64;
    let (reading, multiplying) = (subject.decoder.step_bytes() as f64 / limits.read, products / rate);
    let (limit, word) = if reading > multiplying { (reading, "memory-read") } else { (multiplying, word) };
    let seconds = fastest.as_secs_f64();
    println!(
        "    {:.2} ms for {tokens} tokens ({:.0} tokens/s): {:.0} % of the {word} limit of {:.2} ms",
        seconds * 1e3,
        tokens as f64 / seconds,
        100.0 * limit / seconds,
        limit * 1e3
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = steps
}
criterion_main!(benches);
