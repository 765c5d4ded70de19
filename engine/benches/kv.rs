//! Steps with keys and values in f32, in bf16 and in eight bits, each a ratio to bf16.
//!
//! All formats take turns in one process, on one thread whose processor time is read, so that a round's
//! ratios hold whatever else the machine does meanwhile:
//!
//! ```text
//! cargo bench -p engine --bench kv --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! A number after `--` is how many rounds; the first one only warms up.
#![expect(clippy::print_stdout, reason = "the ratios are the bench's result")]

mod common;

use std::hint::black_box;
use std::sync::Arc;

use base::{Bytes, Slot};
use common::{BLOCK, median, processor, run, slot};
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::decoder::{Decoder, LoadOptions, Workspace};
use engine::device::Cpu;
use engine::pool::{Cell, KvPool, PoolShape};
use engine::{Keep, KvFormat};

/// Rounds of measurement where none are asked for.
const ROUNDS: usize = 15;

/// Batches by name.
fn cases() -> Vec<(&'static str, Vec<Slot>)> {
    let decode = |rows: usize, shared: usize, own: usize| {
        let mut next = 0;
        let template = (shared > 0).then(|| run(shared, &mut next));
        let one = |id| {
            let tail = run(own, &mut next);
            let runs: Vec<_> = template.iter().cloned().chain([tail]).collect();
            slot(id, 1, &runs, &mut next)
        };
        (0..rows).map(one).collect()
    };
    vec![
        ("decode 1 row, own 2048", decode(1, 0, 2048)),
        ("decode 8 rows, own 2048", decode(8, 0, 2048)),
        ("decode 32 rows, shared 128 + own 32", decode(32, 128, 32)),
        ("decode 100 rows, shared 128 + own 32", decode(100, 128, 32)),
        ("decode 32 rows, shared 2048 + own 32", decode(32, 2048, 32)),
        ("prefill 512", vec![slot(0, 512, &[], &mut 0)]),
        ("prefill 64 after 2048", vec![slot(0, 64, &[run(2048, &mut 0)], &mut 200)]),
    ]
}

/// A model with keys and values of one format.
struct Subject {
    decoder: Decoder,
    pool: KvPool,
    work: Workspace,
}

impl Subject {
    /// With numbers in every block, so that none of its memory is the system's one page of zeros.
    fn new(model: &Synthetic, kv: KvFormat) -> Self {
        let cpu = Arc::new(Cpu::new(Some(1)).expect("threads start"));
        let options = LoadOptions { cpu, keep: Keep { kv: Some(kv), ..Keep::default() } };
        let decoder =
            Decoder::load(&model.config, &model.weights(), options).expect("the weights are complete");
        let shape =
            PoolShape::fit(decoder.config(), kv, BLOCK as u32, Bytes(u64::MAX)).expect("it is enough");
        let shape = PoolShape { blocks: 1100, ..shape };
        let mut pool = KvPool::new(shape);
        let cell = |at: usize| Cell { block: at / BLOCK, lane: at % BLOCK };
        let cells: Vec<Cell> = (0..shape.blocks * BLOCK).map(cell).collect();
        for layer in 0..shape.layers {
            pool.write(decoder.cpu().isa(), layer, &cells, |head, token, key, value| {
                for (d, (key, value)) in key.iter_mut().zip(value).enumerate() {
                    *key = ((token * 31 + head * 7 + d) as f32).sin();
                    *value = ((token * 17 + head * 5 + d) as f32).cos();
                }
            });
        }
        Self { decoder, pool, work: Workspace::default() }
    }

    /// Seconds of a processor that a step takes.
    fn step(&mut self, slots: &[Slot]) -> f64 {
        let start = processor(self.decoder.cpu());
        let hidden =
            self.decoder.forward(&mut self.pool, slots, &mut self.work).expect("no other rank fails");
        let logits = self.decoder.logits(&hidden, &mut self.work).expect("no other rank fails");
        black_box(&logits);
        self.work.keep_logits(logits);
        processor(self.decoder.cpu()) - start
    }
}

fn main() {
    let rounds = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(ROUNDS);
    let model = Synthetic::llama_125m(Dtype::Bf16, 1);
    let mut subjects = KvFormat::ON_CPU.map(|kv| Subject::new(&model, kv));
    let names = KvFormat::ON_CPU.map(KvFormat::name);
    println!("{:?}, one thread", subjects[0].decoder.cpu().isa());
    let base = KvFormat::ON_CPU.iter().position(|kv| *kv == KvFormat::Bf16).expect("it is one of them");
    for (name, slots) in cases() {
        let round = |_| subjects.each_mut().map(|subject| subject.step(&slots));
        let found: Vec<_> = (0..=rounds).map(round).skip(1).collect();
        print!("{name:<40}");
        for (format, name) in names.iter().enumerate() {
            let ms = 1e3 * median(found.iter().map(|round| round[format]));
            let ratio = median(found.iter().map(|round| round[format] / round[base]));
            print!("{name:>6} {ms:7.2} ms {ratio:5.2}");
        }
        println!();
    }
}
