//! What a step on a GPU costs the processor: everything but the GPU's own work, which a device that does nothing stands for.
//!
//! ```text
//! cargo bench -p engine --bench host
//! ```
//!
//! Decode steps and prompts of a model of Qwen2.5-7B's heads and layers (its matrices are narrow: no processor reads them here).
//! Limit: a step reads 15.2 GB of weights, 3.2 ms at the 4.8 TB/s of an H200's data sheet; a prompt's tokens take 2 x 7.1e9
//! operations each, at 990 TFLOP/s of it. What the processor adds to these is time in which a GPU waits.
#![expect(clippy::print_stdout, reason = "the times are the bench's result")]

mod common;

use std::any::Any;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::{Bytes, Run, Slot};
use common::{BLOCK, median, run, slot};
use engine::Keep;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::{Family, Mlp, ModelConfig, Norm, Position, RopeScaling};
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::device::cuda::{Address, Gpu, GpuError, Graph, Grid, Linear};
use engine::parallel::Ranks;

/// Runs of each case; the median counts.
const RUNS: usize = 1001;

/// Bytes that a step of the model reads, and operations of a token of a prompt.
const WEIGHTS: f64 = 15.2e9;
const OPERATIONS: f64 = 2.0 * 7.07e9;

/// What the data sheet of an H200 says, per second.
const READS: f64 = 4.8e12;
const MULTIPLIES: f64 = 990e12;

/// A device that takes everything and does nothing, but for copying what is written to it, as a driver does into pinned memory.
#[derive(Default)]
struct Nothing {
    next: AtomicU64,
    pinned: Mutex<Vec<u8>>,
    written: AtomicU64,
    launches: AtomicU64,
}

struct Recorded;

impl Graph for Recorded {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Gpu for Nothing {
    fn name(&self) -> String {
        "nothing".to_owned()
    }

    fn has_e4m3(&self) -> bool {
        true
    }

    fn available(&self) -> Result<usize, GpuError> {
        Ok(64 << 30)
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        Ok(Address(self.next.fetch_add(bytes.next_multiple_of(256) as u64, Ordering::Relaxed)))
    }

    fn free(&self, _: Address) {}

    fn write(&self, _: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut pinned = self.pinned.lock().expect("no holder panics");
        pinned.clear();
        pinned.extend_from_slice(bytes);
        black_box(&mut *pinned);
        Ok(())
    }

    fn read(&self, _: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        bytes.fill(0);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, GpuError> {
        self.allocate(bytes)
    }

    fn free_host(&self, _: Address) {}

    fn copy_out(&self, _: Address, _: Address, _: usize) -> Result<(), GpuError> {
        Ok(())
    }

    fn copy_back(&self, _: Address, _: Address, _: usize) -> Result<(), GpuError> {
        Ok(())
    }

    fn copy(&self, _: Address, _: Address, _: usize) -> Result<(), GpuError> {
        Ok(())
    }

    fn launch(&self, kernel: &str, _: Grid, args: &[u8]) -> Result<(), GpuError> {
        black_box((kernel, args));
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn linear(&self, product: &Linear) -> Result<(), GpuError> {
        black_box(product);
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn all_reduce(&self, _: Address, _: usize) -> Result<(), GpuError> {
        Ok(())
    }

    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn abort(&self) {}

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn Graph>>, GpuError> {
        work()?;
        Ok(Some(Box::new(Recorded)))
    }

    fn replay(&self, _: &dyn Graph) -> Result<(), GpuError> {
        Ok(())
    }
}

fn config() -> ModelConfig {
    ModelConfig {
        family: Family::Qwen2,
        vocab: 1024,
        hidden: 64,
        embedding: 64,
        layers: 28,
        heads: 28,
        kv_heads: 4,
        head_dim: 128,
        intermediate: 64,
        norm: Norm::Rms { epsilon: 1e-6 },
        norm_first: true,
        final_norm: true,
        position: Position::Rotary { theta: 1e6, scaling: RopeScaling::None },
        mlp: Mlp::GatedSilu,
        qkv_bias: true,
        out_bias: false,
        mlp_bias: false,
        qk_norm: false,
        tied_head: false,
        context_max: 32_768,
        sliding_window: None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Nothing::default());
    let gpu: Arc<dyn Gpu> = Arc::clone(&device) as Arc<dyn Gpu>;
    let (config, cpu) = (config(), Arc::new(Cpu::new(Some(1))?));
    let source =
        Synthetic { config: config.clone(), dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Qwen2, 1) }
            .weights();
    let ranks = Ranks::load_on_gpus(&config, &source, (&[gpu], &[cpu]), Keep::default())?;
    let mut memory = ranks.memory(ranks.pool_shape(BLOCK as u32, Bytes(24 << 30))?)?;
    println!(
        "                                   processor   kB written   launches   of the GPU's least time"
    );
    let mut case = |name: String, slots: &[Slot], least: f64| -> Result<(), Box<dyn std::error::Error>> {
        let mut step = || -> Result<f64, Box<dyn std::error::Error>> {
            let start = Instant::now();
            let hidden = ranks.forward(&mut memory, slots)?;
            let wanted = vec![1; hidden.rows()];
            black_box(ranks.highest(&mut memory, &hidden, (&wanted, config.vocab))?);
            Ok(start.elapsed().as_secs_f64())
        };
        (0..3).try_for_each(|_| step().map(drop))?;
        let before = [&device.written, &device.launches].map(|count| count.load(Ordering::Relaxed));
        let times: Vec<f64> = (0..RUNS).map(|_| step()).collect::<Result<_, _>>()?;
        let counts = [&device.written, &device.launches].map(|count| count.load(Ordering::Relaxed));
        let [kilobytes, launches] = [0, 1].map(|i| (counts[i] - before[i]) as f64 / RUNS as f64);
        let seconds = median(times.into_iter());
        println!(
            "{name:<32} {:8.3} ms {:10.1} {launches:10.0} {:10.1} %",
            1e3 * seconds,
            kilobytes / 1e3,
            100.0 * seconds / least
        );
        Ok(())
    };
    let alone = |rows: usize, context: usize| -> Vec<Slot> {
        let mut next = 0;
        (0..rows).map(|id| slot(id, 1, &[run(context, &mut next)], &mut next)).collect()
    };
    for (rows, context) in [(1, 512), (8, 512), (32, 512), (128, 512), (32, 4096)] {
        let name = format!("decode {rows} rows of {context}");
        case(name, &alone(rows, context), WEIGHTS / READS)?;
    }
    let mut next = 0;
    let shared = run(2000, &mut next);
    let behind = |id: usize, next: &mut u32| slot(id, 1, &[shared.clone(), run(64, next)], next);
    let together: Vec<Slot> = (0..100).map(|id| behind(id, &mut next)).collect();
    case("decode 100 rows that share 2000".to_owned(), &together, WEIGHTS / READS)?;
    for tokens in [512, 2048, 8192] {
        let slots = [slot(0, tokens, &[] as &[Run], &mut 0)];
        let least = (tokens as f64 * OPERATIONS / MULTIPLIES).max(WEIGHTS / READS);
        case(format!("prefill {tokens} tokens"), &slots, least)?;
    }
    Ok(())
}
