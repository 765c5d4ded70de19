//! What a step on a GPU costs the processor: everything but the GPU's own work, which a device that does
//! nothing stands for.
//!
//! ```text
//! cargo bench -p engine --bench host
//! ```
//!
//! Decode steps and prompts of a model of Qwen2.5-7B's heads, layers and vocabulary (its matrices are narrow:
//! no processor reads them here), then the executor's whole step: sampling, constraints and text of 100 rows.
//! Limit: a step reads 15.2 GB of weights, 3.2 ms at the 4.8 TB/s of an H200's data sheet; a prompt's tokens
//! take 2 x 7.1e9 operations each, at 990 TFLOP/s of it. What the processor adds to these is time in which a
//! GPU waits.
#![expect(clippy::print_stdout, reason = "the times are the bench's result")]

mod common;

use std::any::Any;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::{
    BatchPlan, Bytes, Constraint, ConstraintCompiler as _, Executor as _, Generation, Moves, Slot, StepId,
    TokenId,
};
use common::{BLOCK, median, run, slot};
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::device::cuda::{Address, Gpu, GpuError, Graph, Grid, Linear};
use engine::executor::PoolSettings;
use engine::parallel::{Ranks, ShardedModel};
use engine::text::{DecodeState, TokenText};
use engine::{Keep, LocalExecutor};

/// Runs of each case; the median counts.
const RUNS: usize = 101;

/// Bytes that a step of the model reads, and operations of a token of a prompt.
const WEIGHTS: f64 = 15.2e9;
const OPERATIONS: f64 = 2.0 * 7.07e9;

/// What the data sheet of an H200 says, per second.
const READS: f64 = 4.8e12;
const MULTIPLIES: f64 = 990e12;

/// A device that takes everything and does nothing, but for copying what is written to it, as a driver does
/// into pinned memory.
#[derive(Default)]
struct Nothing {
    next: AtomicU64,
    pinned: Mutex<Vec<u8>>,
    written: AtomicU64,
    launches: AtomicU64,
    /// Highest logits that each row is asked for.
    most: AtomicU64,
}

/// What all rows draw.
const TOKEN: u32 = b'g' as u32;

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

    fn has_clusters(&self) -> bool {
        false
    }

    fn has_wgmma(&self) -> bool {
        true
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

    /// Every row is found to have the same token.
    fn read(&self, _: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        let most = self.most.load(Ordering::Relaxed) as usize;
        let ([one, half, token], sum) =
            ([1, 1.0_f32.to_bits(), TOKEN].map(u32::to_ne_bytes), 1.0_f64.to_ne_bytes());
        let row = [&one[..], &half, &sum, &half.repeat(most), &token.repeat(most)].concat();
        bytes.chunks_mut(row.len()).for_each(|to| to.copy_from_slice(&row[..to.len()]));
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
        if kernel == "logit_stats" {
            let most = args[48..52].try_into().map(u32::from_ne_bytes).expect("four bytes");
            self.most.store(u64::from(most), Ordering::Relaxed);
        }
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

    fn multiprocessors(&self) -> usize {
        132
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

/// A vocabulary of the model's size: bytes, then words of letters.
struct Words;

impl Words {
    fn word(token: TokenId) -> Option<Vec<u8>> {
        match u8::try_from(token.0) {
            Ok(byte) => Some(vec![byte]),
            Err(_) if token == END => None,
            Err(_) => {
                let mut rest = token.0 - 256;
                let mut word = vec![b' '];
                while rest > 0 {
                    word.push(b'a' + (rest % 26) as u8);
                    rest /= 26;
                }
                Some(word)
            }
        }
    }
}

const END: TokenId = TokenId(151_643);

impl TokenText for Words {
    fn push(&self, _: &mut DecodeState, token: TokenId) -> String {
        String::from_utf8_lossy(&Self::word(token).unwrap_or_default()).into_owned()
    }

    fn flush(&self, _: &mut DecodeState) -> String {
        String::new()
    }

    fn bytes(&self, token: TokenId) -> Option<Vec<u8>> {
        Self::word(token)
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn ids_end(&self) -> u32 {
        END.0 + 1
    }
}

type Failure = Box<dyn std::error::Error>;

/// Runs a step until its time is known, and prints it beside the least that the GPU's part takes.
fn case(
    device: &Nothing,
    (name, least): (String, f64),
    mut step: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    (0..3).try_for_each(|_| step())?;
    let read = || {
        [&device.written, &device.launches].map(|count| count.load(Ordering::Relaxed) as f64 / RUNS as f64)
    };
    let before = read();
    let times: Result<Vec<f64>, Failure> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            step()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect();
    let (after, seconds) = (read(), median(times?.into_iter()));
    println!(
        "{name:<40} {:8.3} ms {:10.1} {:10.0} {:10.1} %",
        1e3 * seconds,
        (after[0] - before[0]) / 1e3,
        after[1] - before[1],
        100.0 * seconds / least
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let device = Arc::new(Nothing::default());
    let gpu: Arc<dyn Gpu> = Arc::clone(&device) as Arc<dyn Gpu>;
    let mut source = Synthetic::qwen2_5_7b(Dtype::Bf16, 1);
    (source.config.hidden, source.config.embedding, source.config.intermediate) = (64, 64, 64);
    let (config, cpu) = (source.config.clone(), Arc::new(Cpu::new(None)?));
    let model = ShardedModel::load_on_gpus(&config, &source.weights(), (&[gpu], &[cpu]), Keep::default())?;
    let mut ranks = Ranks::start(&model, model.pool_shape(BLOCK as u32, Bytes(24 << 30))?)?;
    println!("{:<40}   processor   kB written   launches   of the GPU's least time", "");
    let mut computed = |name: String, slots: &[Slot], least: f64| {
        case(&device, (name, least), || {
            let hidden = ranks.forward(slots)?;
            let wanted = vec![1; hidden.rows()];
            black_box(ranks.top_k(&hidden, &wanted, config.vocab)?);
            Ok(())
        })
    };
    let step_least = WEIGHTS / READS;
    for (rows, context) in [(1, 512), (8, 512), (32, 512), (128, 512), (32, 4096)] {
        let mut next = 0;
        let slots: Vec<Slot> =
            (0..rows).map(|id| slot(id, 1, &[run(context, &mut next)], &mut next)).collect();
        computed(format!("decode {rows} rows of {context}"), &slots, step_least)?;
    }
    let mut next = 0;
    let shared = run(2000, &mut next);
    let together: Vec<Slot> =
        (0..100).map(|id| slot(id, 1, &[shared.clone(), run(64, &mut next)], &mut next)).collect();
    computed("decode 100 rows that share 2000".to_owned(), &together, step_least)?;
    for tokens in [512, 2048, 8192] {
        let least = (tokens as f64 * OPERATIONS / MULTIPLIES).max(step_least);
        computed(format!("prefill {tokens} tokens"), &[slot(0, tokens, &[], &mut 0)], least)?;
    }
    drop(ranks);
    let pool = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(24 << 30) };
    let mut executor = LocalExecutor::new(model, Arc::new(Words), vec![END], pool)?;
    let choice = Constraint::Choice(["good", "bad"].map(str::to_owned).to_vec());
    for (name, temperature, constraint) in [
        ("greedy", 0.0, None),
        ("drawn at 0.7", 0.7, None),
        ("the first token of a choice", 0.0, Some(choice)),
        ("the first token of a pattern", 0.0, Some(Constraint::Regex("g[a-z ]{3,40}".to_owned()))),
    ] {
        // Compiled once, as the gateway does.
        let compiled =
            constraint.as_ref().map(|constraint| executor.constraints().compile(constraint)).transpose()?;
        let compiled = compiled.unwrap_or_default();
        let generation = Arc::new(Generation { temperature, constraint, compiled, ..Generation::default() });
        let mut slots = together.clone();
        for slot in &mut slots {
            slot.sample.iter_mut().for_each(|spec| spec.generation = Arc::clone(&generation));
        }
        let retired = slots.iter().map(|slot| slot.request).collect();
        let plan = BatchPlan { step: StepId(1), moves: Moves::default(), slots, retired };
        case(&device, (format!("a whole step of these, {name}"), step_least), || {
            let outcome = executor.step(&plan)?;
            assert!(outcome.rows.iter().all(|row| row.result.is_ok()), "{:?}", outcome.rows[0]);
            Ok(())
        })?;
    }
    Ok(())
}
