//! Products with weights out of memory: bytes of weights per second as a share of what reading reaches, and
//! operations per second as a share of what the instructions in use reach on registers.
//!
//! ```text
//! cargo bench -p engine --bench product --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! Names, or parts of them, after `--` choose kernels; a number chooses threads. Shapes of a decode step
//! (inputs x outputs) in every format; of each shape there are as many copies as no cache holds, taken in
//! turn (a batch of many rows takes but two). All kernels, and the plain reading that is their limit, run one
//! after another within a round, so that what else the machine does meets them alike, and of each run the
//! shortest counts.
#![expect(clippy::print_stdout, reason = "the table is the bench's result")]

use std::hint::black_box;
use std::time::Instant;

use engine::checkpoint::{Dtype, RawTensor};
use engine::device::{Cpu, Format, Isa, Limits, Matrix, Scratch};
use rayon::prelude::*;

/// Inputs and outputs of the products.
const SHAPES: [(usize, usize); 4] = [(896, 4864), (4864, 896), (768, 3072), (896, 151_936)];

/// Rows: decode steps, whose limit is reading, to prefills, whose limit is multiplying.
const ROWS: [usize; 8] = [1, 2, 4, 8, 16, 32, 100, 512];

/// From so many rows on, two matrices of a shape do.
const MANY_ROWS: usize = 32;

/// Most outputs that so many rows are multiplied with: of a vocabulary, only rows that sample are.
const MANY_ROWS_OUTPUTS: usize = 10_000;

/// Bytes of the copies of a shape: several times the last cache.
const SET_BYTES: usize = 160 << 20;

/// Bytes read at once by the plain reading: about those of a matrix.
const PIECE_BYTES: usize = 4 << 20;

/// Rounds, of which the best counts.
const ROUNDS: usize = 15;

/// Kernels that compete: where and how weights are kept.
struct Subject {
    name: &'static str,
    cpu: Cpu,
    format: Format,
    /// Operations per second of its instructions.
    limit: f64,
}

fn subjects() -> Vec<Subject> {
    let bf16 = Format::Plain(Dtype::Bf16);
    let all = [
        ("bf16 amx", Isa::Amx, bf16),
        ("bf16 pairs", Isa::Avx512Bf16, bf16),
        ("bf16 halves", Isa::Avx512Fp16, bf16),
        ("bf16 widened", Isa::Avx512, bf16),
        ("bf16 avx2", Isa::Avx2, bf16),
        ("bf16 neon", Isa::Neon, bf16),
        ("q8 amx", Isa::Amx, Format::Q8),
        ("q8-wide amx", Isa::Amx, Format::Q8Wide),
        ("q8 vnni", Isa::Avx512Vnni, Format::Q8),
        ("q8-wide vnni", Isa::Avx512Vnni, Format::Q8Wide),
        ("q8 256 bit", Isa::Avx512, Format::Q8),
        ("q8 avx2", Isa::Avx2, Format::Q8),
        ("q8 i8mm", Isa::NeonI8mm, Format::Q8),
        ("q8 dotprod", Isa::NeonDotprod, Format::Q8),
        ("q8 neon", Isa::Neon, Format::Q8),
        ("q4 vnni", Isa::Avx512Vnni, Format::Q4),
        ("q4 256 bit", Isa::Avx512, Format::Q4),
        ("q4 avx2", Isa::Avx2, Format::Q4),
        ("q4 i8mm", Isa::NeonI8mm, Format::Q4),
        ("q4 dotprod", Isa::NeonDotprod, Format::Q4),
        ("q4 neon", Isa::Neon, Format::Q4),
    ];
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let threads = words.iter().find_map(|word| word.parse().ok());
    let wanted: Vec<&String> = words.iter().filter(|word| word.parse::<usize>().is_err()).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(&**word));
    let all = all.into_iter().filter(|(name, isa, _)| isa.is_available() && is_wanted(name));
    all.map(|(name, isa, format)| {
        let cpu = Cpu::with_isa(threads, isa).expect("threads start");
        let limits = Limits::measure(&cpu);
        let limit = match format {
            Format::Q8 | Format::Q8Wide => limits.of_eight_bits(),
            Format::Q4 => limits.int8,
            Format::Plain(_) => limits.bf16,
        };
        Subject { name, cpu, format, limit: limit.unwrap_or(limits.single) }
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

/// The shortest time of each of some runs, added up, in seconds: one run is short, and so among several often
/// left alone by what else the machine does.
#[derive(Default)]
struct Best(Vec<f64>);

impl Best {
    fn run(&mut self, number: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        let seconds = start.elapsed().as_secs_f64();
        self.0.resize(self.0.len().max(number + 1), f64::INFINITY);
        self.0[number] = self.0[number].min(seconds);
    }

    fn seconds(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// Reads all of `memory` in pieces.
fn read(cpu: &Cpu, memory: &[u64], best: &mut Best) {
    let sum = |part: &[u64]| part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    for (number, piece) in memory.chunks(PIECE_BYTES / 8).enumerate() {
        let parts = piece.par_chunks(PIECE_BYTES / 64);
        let total = || parts.map(sum).reduce(|| 0, u64::wrapping_add);
        best.run(number, || {
            black_box(cpu.run(total));
        });
    }
}

/// A line of the table.
fn line(subjects: &[Subject], sets: &[Vec<Matrix>], memory: &[u64], rows: usize) {
    let (inputs, outputs) = (sets[0][0].inputs(), sets[0][0].outputs());
    let x: Vec<f32> = (0..rows * inputs).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    let (mut y, mut scratch) = (vec![0.0; rows * outputs], Scratch::default());
    let mut reading = Best::default();
    let mut products: Vec<Best> = subjects.iter().map(|_| Best::default()).collect();
    for _ in 0..ROUNDS {
        read(&subjects[0].cpu, memory, &mut reading);
        for ((subject, set), best) in subjects.iter().zip(sets).zip(&mut products) {
            for (number, matrix) in set.iter().enumerate().take(if rows < MANY_ROWS { set.len() } else { 2 })
            {
                best.run(number, || subject.cpu.run(|| subject.cpu.linear(&x, matrix, &mut y, &mut scratch)));
            }
        }
    }
    let limit = size_of_val(memory) as f64 / reading.seconds();
    print!("{inputs:>5} x {outputs:<6} {rows:>2} rows {:>4.1} GB/s", limit / 1e9);
    for ((subject, set), best) in subjects.iter().zip(sets).zip(&products) {
        let seconds = best.seconds() / best.0.len() as f64;
        let share = set[0].bytes() as f64 / seconds / limit * 100.0;
        let rate = 2.0 * (rows * inputs * outputs) as f64 / seconds / 1e9;
        let of_limit = rate * 1e11 / subject.limit;
        print!(" | {} {share:>3.0} % read {rate:>3.0} G {of_limit:>3.0} %", subject.name);
    }
    println!();
}

fn main() {
    let memory = vec![1u64; SET_BYTES / 8];
    let subjects = subjects();
    println!(
        "best of {ROUNDS} rounds: % of the plain reading of the same rounds; G operations/s, % of the registers' rate"
    );
    for shape in SHAPES {
        let sets: Vec<Vec<Matrix>> = subjects.iter().map(|subject| copies(subject, shape)).collect();
        for rows in ROWS.into_iter().filter(|rows| *rows < MANY_ROWS || shape.1 < MANY_ROWS_OUTPUTS) {
            line(&subjects, &sets, &memory, rows);
        }
    }
}
