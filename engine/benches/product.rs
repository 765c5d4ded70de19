//! Products of few rows with weights out of memory: bytes of weights per second, as a share of what reading reaches.
//!
//! ```text
//! cargo bench -p engine --bench product --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! Shapes of a decode step (inputs x outputs) in every format; each shape has as many copies as no cache holds, taken in
//! turn. Kernels of one format, the plain reading that is their limit among them, run one after another within a
//! round, and the median of their rounds' ratios counts: what else the machine does meets all of them alike.
#![expect(clippy::print_stdout, reason = "the table is the bench's result")]

use std::hint::black_box;
use std::time::Instant;

use engine::checkpoint::{Dtype, RawTensor};
use engine::device::{Cpu, Format, Isa, Limits, Matrix, Scratch};
use rayon::prelude::*;

/// Inputs and outputs of the products.
const SHAPES: [(usize, usize); 4] = [(896, 4864), (4864, 896), (768, 3072), (896, 151_936)];

/// Rows of decode steps; with the last, products are the limit instead.
const ROWS: [usize; 8] = [1, 2, 3, 4, 6, 8, 16, 64];

/// Bytes of the copies of a shape: several times the last cache.
const SET_BYTES: usize = 160 << 20;

/// Rounds, of which the best counts.
const ROUNDS: usize = 15;

/// Kernels that compete: where and how weights are kept.
struct Subject {
    name: &'static str,
    cpu: Cpu,
    format: Format,
}

fn subjects() -> Vec<Subject> {
    let bf16 = Format::Plain(Dtype::Bf16);
    let all = [
        ("bf16 pairs", Isa::Avx512Bf16, bf16),
        ("bf16 widened", Isa::Avx512, bf16),
        ("bf16 avx2", Isa::Avx2, bf16),
        ("q8 vnni", Isa::Avx512Vnni, Format::Q8),
        ("q8 256 bit", Isa::Avx512, Format::Q8),
        ("q8 avx2", Isa::Avx2, Format::Q8),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(&**word));
    let all = all.into_iter().filter(|(name, isa, _)| isa.is_available() && is_wanted(name));
    all.map(|(name, isa, format)| Subject {
        name,
        cpu: Cpu::with_isa(None, isa).expect("threads start"),
        format,
    })
    .collect()
}

/// Copies of one matrix, so many that no cache holds them.
fn copies(subject: &Subject, (inputs, outputs): (usize, usize)) -> Vec<Matrix> {
    let value = |i: usize| half::bf16::from_f32((i % 251) as f32 / 251.0 - 0.5).to_le_bytes();
    let data: Vec<u8> = (0..inputs * outputs).flat_map(value).collect();
    let pack = || {
        let tensor =
            RawTensor { dtype: Dtype::Bf16, shape: vec![outputs, inputs], data: data.as_slice().into() };
        subject.cpu.pack(&[tensor], None, Some(subject.format))
    };
    let first = pack();
    let count = (SET_BYTES / first.bytes()).clamp(1, 64);
    std::iter::once(first).chain((1..count).map(|_| pack())).collect()
}

/// Seconds of one call.
fn time(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn main() {
    let memory = vec![1u64; SET_BYTES / 8];
    let sum = |chunk: &[u64]| chunk.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let subjects = subjects();
    let limits = Limits::measure(&Cpu::new(None).expect("threads start"));
    println!("{limits:?}");
    println!("best of {ROUNDS} rounds: % of the plain reading of the same rounds, GFLOP/s");
    for shape in SHAPES {
        let sets: Vec<Vec<Matrix>> = subjects.iter().map(|subject| copies(subject, shape)).collect();
        for rows in ROWS {
            let x: Vec<f32> = (0..rows * shape.0).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
            let (mut y, mut scratch) = (vec![0.0; rows * shape.1], Scratch::default());
            let mut read = f64::INFINITY;
            let mut best = vec![f64::INFINITY; subjects.len()];
            for round in 0..ROUNDS {
                read = read.min(subjects[0].cpu.run(|| {
                    time(|| {
                        black_box(memory.par_chunks(1 << 17).map(sum).reduce(|| 0, u64::wrapping_add));
                    })
                }));
                for ((subject, set), best) in subjects.iter().zip(&sets).zip(&mut best) {
                    // Where products are the limit, few copies: a shorter run is less often disturbed.
                    let part = if rows < 16 { set.len() } else { 1 };
                    let set = set.iter().cycle().skip(round).take(part);
                    let seconds = subject.cpu.run(|| {
                        time(|| set.for_each(|matrix| subject.cpu.linear(&x, matrix, &mut y, &mut scratch)))
                    });
                    *best = best.min(seconds / part as f64);
                }
            }
            let read = SET_BYTES as f64 / read;
            print!("{:>5} x {:<6} {rows:>2} rows {:>4.1} GB/s", shape.0, shape.1, read / 1e9);
            for ((subject, set), best) in subjects.iter().zip(&sets).zip(best) {
                let share = set[0].bytes() as f64 / best / read * 100.0;
                let rate = 2.0 * (rows * shape.0 * shape.1) as f64 / best / 1e9;
                print!(" | {} {share:>3.0} % {rate:>3.0} G", subject.name);
            }
            println!();
        }
    }
}
