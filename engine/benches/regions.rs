//! What it costs to spread work over threads and wait for them, as a share of a decode step of one row.
//!
//! ```text
//! cargo bench -p engine --bench regions --profile dev --config profile.dev.package.engine.debug-assertions=false
//! ```
//!
//! A region is one parallel loop; a layer of a one-row step has five (three of its products, both of the feed-forward
//! block's, and attention's tasks), the vocabulary one. Timed are regions that do nothing, back to back, and with a pause
//! between them that only the first thread computes through, as between two products. A number after `--` is how many
//! threads. Limit: a tenth of the step.
#![expect(clippy::print_stdout, reason = "the shares are the bench's result")]

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Bytes;
use common::{BLOCK, median, run, slot};
use engine::Keep;
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::decoder::{Decoder, LoadOptions, Workspace};
use engine::device::Cpu;
use engine::pool::{KvPool, PoolShape};
use rayon::prelude::*;

/// Regions of a layer, and behind the layers.
const REGIONS: (usize, usize) = (5, 1);

/// Tasks that a product makes for each thread, about.
const TASKS_PER_THREAD: usize = 4;

/// Repetitions of which the middle one counts.
const ROUNDS: usize = 25;

/// Regions of a repetition.
const REPEATED: usize = 200;

/// What lies between two products of a step.
const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_micros(20)];

/// Seconds of a region that does nothing, behind a pause.
fn region(cpu: &Cpu, pause: Duration) -> f64 {
    let tasks = cpu.threads() * TASKS_PER_THREAD;
    let round = |_| {
        cpu.run(|| {
            let mut seconds = 0.0;
            for _ in 0..REPEATED {
                let paused = Instant::now();
                while paused.elapsed() < pause {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                (0..tasks).into_par_iter().for_each(|task| {
                    black_box(task);
                });
                seconds += start.elapsed().as_secs_f64();
            }
            seconds / REPEATED as f64
        })
    };
    median((0..ROUNDS).map(round))
}

/// Seconds of a decode step of one row, its logits included.
fn step(cpu: &Arc<Cpu>, model: &Synthetic) -> f64 {
    let options = LoadOptions { cpu: Arc::clone(cpu), keep: Keep::default() };
    let decoder = Decoder::load(&model.config, &model.weights(), options).expect("the weights are complete");
    let shape =
        PoolShape::fit(&model.config, decoder.kv(), BLOCK as u32, Bytes(64 << 20)).expect("it is enough");
    let (mut pool, mut work, mut next) = (KvPool::new(shape), Workspace::default(), 0);
    let slots = [slot(0, 1, &[run(256, &mut next)], &mut next)];
    let round = |_| {
        let start = Instant::now();
        let hidden = decoder.forward(&mut pool, &slots, &mut work).expect("no other rank fails");
        let logits = decoder.logits(&hidden, &mut work).expect("no other rank fails");
        black_box(&logits);
        work.keep_logits(logits);
        start.elapsed().as_secs_f64()
    };
    median((0..ROUNDS).map(round))
}

fn main() {
    let threads = std::env::args().find_map(|arg| arg.parse().ok());
    let cpu = Arc::new(Cpu::new(threads).expect("threads start"));
    let model = Synthetic::llama_125m(Dtype::Bf16, 1);
    let step = step(&cpu, &model);
    let regions = REGIONS.0 * model.config.layers + REGIONS.1;
    println!("{:?}, {} threads: a step of one row {:.2} ms", cpu.isa(), cpu.threads(), 1e3 * step);
    for pause in PAUSES {
        let region = region(&cpu, pause);
        let share = 100.0 * region * regions as f64 / step;
        println!("{regions} regions of {:.2} us behind {pause:?}: {share:.1} % of it", 1e6 * region);
    }
}
