//! The CUDA twin without a GPU: its kernels run on the processor (cuda/emulated.cpp), everything else is the
//! code that runs on a GPU. It answers as the processor's own engine does.

mod common;
#[path = "cuda/emulated.rs"]
mod emulated;
#[path = "cuda/faults.rs"]
mod faults;
#[path = "cuda/fp8.rs"]
mod fp8;
#[path = "cuda/gated.rs"]
mod gated;
#[path = "common/guesses.rs"]
mod guesses;
#[path = "cuda/kernels.rs"]
mod kernels;
#[path = "cuda/kv.rs"]
mod kv;
#[path = "cuda/launches.rs"]
mod launches;
#[path = "cuda/on_card.rs"]
mod on_card;
#[path = "cuda/products.rs"]
mod products;
#[path = "cuda/q4.rs"]
mod q4;
#[path = "cuda/room.rs"]
mod room;
#[path = "cuda/said.rs"]
mod said;
#[path = "cuda/scores.rs"]
mod scores;
#[path = "cuda/split.rs"]
mod split;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::text::ByteText;
use base::{Bytes, ExecError, Executor as _, HostBlockId, MoveBack, MoveOut, Moves, Slot, TokenId};
use common::{Blocks, Row, difference, tokens};
use emulated::Emulated;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::device::cuda::{Gpu, GpuError};
use engine::executor::{LocalExecutor, PoolSettings};
use engine::parallel::{Ranks, ShardError, ShardedModel, StepError};
use engine::pool::PoolError;
use engine::{Keep, KvFormat};

const BLOCK: usize = 16;
const FAMILIES: [Family; 6] =
    [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3, Family::Opt, Family::Falcon];

/// Largest difference from the processor, in units of the largest logit: sums in another order.
const TOLERANCE: f32 = 2e-5;

/// The same where both round to bf16: a sum on the border of two numbers goes either way, by 2^-8 of itself. Beside f16 the GPU
/// alone rounds so, keys and values.
const ROUNDED_TOLERANCE: f32 = 3e-2;

fn on_cpu(model: &Synthetic) -> ShardedModel {
    let cpu = Arc::new(Cpu::with_isa(Some(2), common::widening()).expect("threads start"));
    ShardedModel::load(&model.config, &model.weights(), &[cpu], common::keep(common::widening()))
        .expect("the model is complete")
}

fn on_gpus(model: &Synthetic, gpus: &[Arc<Emulated>]) -> ShardedModel {
    load(model, gpus, Keep::default()).expect("the model divides and fits")
}

fn load(model: &Synthetic, gpus: &[Arc<Emulated>], keep: Keep) -> Result<ShardedModel, ShardError> {
    let cpu = |_| Arc::new(Cpu::new(Some(1)).expect("a thread starts"));
    let cpus: Vec<Arc<Cpu>> = gpus.iter().map(cpu).collect();
    let gpus: Vec<Arc<dyn Gpu>> = gpus.iter().map(|gpu| Arc::clone(gpu) as Arc<dyn Gpu>).collect();
    ShardedModel::load_on_gpus(&model.config, &model.weights(), (&gpus, &cpus), keep)
}

/// A model on some ranks, with a pool.
struct Running {
    ranks: Ranks,
}

impl Running {
    fn new(model: ShardedModel) -> Self {
        let shape = model.pool_shape(BLOCK as u32, Bytes(4 << 20)).expect("blocks fit");
        Self { ranks: Ranks::start(&model, shape).expect("the pool fits") }
    }

    /// Logits of what the slots sample; the highest of each row must be the first of its logits.
    fn compute(&mut self, slots: &[Slot]) -> Result<Vec<Vec<f32>>, StepError> {
        let hidden = self.ranks.forward(slots)?;
        let (rows, vocab) = (hidden.rows(), self.ranks.model().config().vocab);
        let logits = self.ranks.logits(&hidden, 0..rows)?;
        let wanted: Vec<usize> = (0..rows).map(|row| 1 + row % 3).collect();
        let end = vocab / 2;
        let highest = self.ranks.top_k(&hidden, &wanted, end)?;
        for ((row, wanted), found) in logits.chunks_exact(vocab).zip(&wanted).zip(&highest) {
            let mut order: Vec<usize> = (0..end).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
            let expected: Vec<(f32, u32)> =
                order[..*wanted].iter().map(|token| (row[*token], *token as u32)).collect();
            assert_eq!(found.kept().expect("all logits are numbers"), expected);
        }
        Ok(logits.chunks_exact(vocab).map(<[f32]>::to_vec).collect())
    }
}

/// Logits of [`common::shared_rows`].
fn logits(ranks: ShardedModel, seed: u64) -> Vec<Vec<f32>> {
    let (mut running, mut found) = (Running::new(ranks), Vec::new());
    common::shared_rows(seed, BLOCK, |slots| found.extend(running.compute(slots).expect("no rank fails")));
    found
}

fn compare(model: &Synthetic, found: &[Vec<f32>], expected: &[Vec<f32>], on: &str) {
    let tolerance = if model.dtype == Dtype::F32 { TOLERANCE } else { ROUNDED_TOLERANCE };
    assert_eq!(found.len(), expected.len());
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (apart, family) = (difference(found, expected), model.config.family);
        assert!(apart < tolerance, "{family:?} {:?} on {on}, row {row}: {apart}", model.dtype);
    }
}

/// Compares emulated GPUs with the processor.
fn check_logits(model: &Synthetic, ranks: usize) {
    let Some(gpus) = emulated::gpus(ranks) else { return };
    let (expected, found) = (logits(on_cpu(model), model.seed), logits(on_gpus(model, &gpus), model.seed));
    compare(model, &found, &expected, &format!("{ranks} GPUs"));
    assert!(gpus.iter().all(|gpu| gpu.replays.load(Ordering::SeqCst) > 0), "decode steps are recorded");
}

#[test]
fn logits_are_the_processors_in_every_family() {
    for family in FAMILIES {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            check_logits(&Synthetic { dtype, ..Synthetic::tiny(family, 71) }, 1);
        }
    }
}

#[test]
fn logits_are_the_processors_on_tensor_cores() {
    for (family, dim, dtype) in [
        (Family::Qwen2, 64, Dtype::Bf16),
        (Family::Llama, 128, Dtype::Bf16),
        (Family::Opt, 64, Dtype::F16),
        (Family::Llama, 128, Dtype::F16),
    ] {
        let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 72) };
        model.config.head_dim = dim;
        check_logits(&model, 1);
        let Some(gpus) = emulated::gpus(1) else { return };
        gpus[0].has_wgmma.store(true, Ordering::SeqCst);
        let found = logits(on_gpus(&model, &gpus), model.seed);
        compare(&model, &found, &logits(on_cpu(&model), model.seed), "warpgroups");
    }
}

#[test]
fn weights_are_kept_as_they_are_stored_unless_another_type_is_asked_for() {
    let types = [Dtype::F32, Dtype::Bf16, Dtype::F16];
    for (stored, dtype) in types.into_iter().flat_map(|stored| types.map(|dtype| (stored, dtype))) {
        let model = Synthetic { dtype: stored, ..Synthetic::tiny(Family::Llama, 78) };
        let Some(gpus) = emulated::gpus(1) else { return };
        assert_eq!(on_gpus(&model, &gpus).dtype(), stored);
        let told = load(&model, &gpus, Keep { dtype: Some(dtype), ..Keep::default() });
        assert_eq!(told.expect("it fits").dtype(), dtype);
    }
}

/// A prompt over many tiles of keys in two chunks, then decode steps of two rows that share most of it.
fn long_logits(ranks: ShardedModel, seed: u64) -> Vec<Vec<f32>> {
    let (mut running, mut blocks) = (Running::new(ranks), Blocks::default());
    let first = Row { cuts: vec![9], ..Row::new(1, tokens(seed, 403), 512, BLOCK, &mut blocks) };
    let second = [tokens(seed, 9 * BLOCK), tokens(seed + 1, 21)].concat();
    let mut rows = [first.clone(), Row::new(2, second, 256, BLOCK, &mut blocks).sharing(&first, 9)];
    let mut found = Vec::new();
    let mut compute = |slots: &[Slot]| found.extend(running.compute(slots).expect("no rank fails"));
    // The second step comes to positions whose angles the first had no need of, and is more than is recorded.
    compute(&[rows[0].slot(0..120)]);
    compute(&[rows[0].slot(120..403), rows[1].slot(144..165)]);
    for token in 0..2 {
        rows.iter_mut().for_each(|row| row.tokens.push(TokenId(7 * token + 3)));
        compute(&rows.iter().map(Row::decode).collect::<Vec<_>>());
    }
    found
}

/// A model of long contexts: [`long_logits`].
fn of_long_contexts(dtype: Dtype, head_dim: usize, window: Option<usize>) -> Synthetic {
    let mut model = Synthetic { dtype, ..Synthetic::tiny(Family::Mistral, 79) };
    (model.config.head_dim, model.config.context_max) = (head_dim, 512);
    model.config.sliding_window = window;
    model
}

#[test]
fn long_contexts_are_the_processors() {
    for (dtype, dim, window, has_wgmma) in [
        (Dtype::Bf16, 64, None, false),
        (Dtype::Bf16, 64, None, true),
        (Dtype::Bf16, 128, Some(100), false),
        (Dtype::Bf16, 128, Some(100), true),
        (Dtype::F16, 64, Some(100), false),
        (Dtype::F16, 128, None, true),
        (Dtype::F32, 16, None, false),
        (Dtype::F32, 16, Some(100), false),
    ] {
        let Some(gpus) = emulated::gpus(1) else { return };
        gpus[0].has_wgmma.store(has_wgmma, Ordering::SeqCst);
        let model = of_long_contexts(dtype, dim, window);
        let found = long_logits(on_gpus(&model, &gpus), model.seed);
        compare(&model, &found, &long_logits(on_cpu(&model), model.seed), "a long context");
    }
}

#[test]
fn logits_are_the_processors_on_two_and_four_gpus() {
    for family in FAMILIES {
        check_logits(&Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(family, 73) }, 2);
    }
    check_logits(&Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 73) }, 4);
}

#[test]
fn logits_are_the_processors_where_the_head_is_tied_the_window_slides_or_opt_projects() {
    let mut tied = Synthetic::tiny(Family::Qwen2, 74);
    tied.config.tied_head = true;
    check_logits(&tied, 1);
    let mut sliding = Synthetic::tiny(Family::Mistral, 75);
    sliding.config.sliding_window = Some(23);
    check_logits(&sliding, 1);
    let mut on_tensor_cores = Synthetic { dtype: Dtype::Bf16, ..sliding };
    on_tensor_cores.config.head_dim = 64;
    check_logits(&on_tensor_cores, 1);
    let mut projecting = Synthetic::tiny(Family::Opt, 76);
    projecting.config.embedding = 16;
    projecting.config.norm_first = false;
    projecting.config.final_norm = false;
    check_logits(&projecting, 1);
    check_logits(&projecting, 2);
    let mut odd = Synthetic::tiny(Family::Llama, 77);
    (odd.config.heads, odd.config.kv_heads, odd.config.head_dim) = (12, 12, 20);
    odd.config.intermediate = 44;
    check_logits(&odd, 1);
}

fn executor(ranks: ShardedModel) -> Result<LocalExecutor, PoolError> {
    let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(4 << 20) };
    LocalExecutor::new(ranks, Arc::new(ByteText), vec![ByteText::END], settings)
}

/// What a step took is known when it comes back, and that it was computed: one of which nothing is read as
/// well.
#[test]
fn a_step_that_samples_nothing_is_waited_for() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 80) };
    let Some(gpus) = emulated::gpus(2) else { return };
    let mut executor = executor(on_gpus(&model, &gpus)).expect("the pool fits");
    let row = Row::new(1, tokens(80, 40), 96, BLOCK, &mut Blocks::default());
    assert!(common::step(&mut executor, vec![row.slot(0..25)]).is_empty());
    for gpu in &gpus {
        let [calls, awaited] = [&gpu.calls, &gpu.awaited].map(|count| count.load(Ordering::SeqCst));
        assert!(calls > 10 && awaited == calls, "{awaited} of {calls} calls");
    }
}

/// One prefill step, then so many decode steps, on a bare GPU.
fn run(gpus: &[Arc<Emulated>], model: &Synthetic, steps: u32) -> Result<Vec<Vec<f32>>, StepError> {
    run_keeping(gpus, model, steps, Keep::default())
}

/// The same with weights, keys and values kept in a given way.
fn run_keeping(
    gpus: &[Arc<Emulated>],
    model: &Synthetic,
    steps: u32,
    keep: Keep,
) -> Result<Vec<Vec<f32>>, StepError> {
    let loaded = load(model, gpus, keep).expect("the model divides and fits");
    let (mut running, mut blocks) = (Running::new(loaded), Blocks::default());
    let mut row = Row::new(1, tokens(model.seed, 30), 96, BLOCK, &mut blocks);
    let mut found = running.compute(&[row.slot(0..30)])?;
    for token in 0..steps {
        row.tokens.push(TokenId(5 * token + 1));
        found.extend(running.compute(&[row.decode()])?);
    }
    Ok(found)
}

#[test]
fn a_replayed_step_gives_the_bits_of_a_launched_one() {
    let model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 82) };
    let (Some(recorded), Some(launched)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
    launched[0].records.store(false, Ordering::SeqCst);
    let found = [&recorded, &launched].map(|gpus| run(gpus, &model, 6).expect("nothing fails"));
    assert_eq!(found[0], found[1]);
    let replays = [&recorded, &launched].map(|gpus| gpus[0].replays.load(Ordering::SeqCst));
    assert_eq!(replays, [5, 0]);
}

#[test]
fn a_launch_that_fails_fails_the_step_on_all_ranks_and_none_waits() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 83) };
    let Some(sound) = emulated::gpus(2) else { return };
    run(&sound, &model, 2).expect("nothing fails");
    let loading = emulated::gpus(2).expect("there is a compiler");
    drop(Running::new(on_gpus(&model, &loading)));
    let [before, calls] = [&loading, &sound].map(|gpus| gpus[0].calls.load(Ordering::SeqCst));
    // At calls all over the steps, on either rank.
    for (number, at) in (before + 1..calls).step_by(((calls - before) / 12) as usize).enumerate() {
        let gpus = emulated::gpus(2).expect("there is a compiler");
        gpus[number % 2].fails_at.store(at, Ordering::SeqCst);
        match run(&gpus, &model, 2) {
            Err(StepError::Gpu(GpuError::Lost(reason))) => assert_eq!(reason, "a launch failed"),
            other => panic!("call {at}: {other:?}"),
        }
    }
}

#[test]
fn too_little_memory_is_said_and_given_back() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 84) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let room = || gpus[0].room.load(Ordering::SeqCst);
    let before = room();
    let ranks = on_gpus(&model, &gpus);
    gpus[0].room.store(1 << 20, Ordering::SeqCst);
    let error = executor(ranks).map(drop).expect_err("the pool does not fit").to_string();
    assert!(error.starts_with("the GPU has no ") && error.ends_with(" bytes left"), "{error}");
    let weights = before - (1 << 20);
    assert!(room() > 1 << 20 && room() < weights, "the weights are given back: {}", room());
}

#[test]
fn blocks_that_went_to_host_memory_come_back_as_they_were() {
    let model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 85) };
    let [q8, fp8] = [KvFormat::Q8, KvFormat::Fp8].map(|kv| Keep { kv: Some(kv), ..Keep::default() });
    for (count, keep) in [(1, Keep::default()), (2, Keep::default()), (1, q8), (1, fp8)] {
        let Some(gpus) = emulated::gpus(count) else { return };
        let mut running = Running::new(load(&model, &gpus, keep).expect("the model divides and fits"));
        let blocks = running.ranks.add_tier(Bytes(1 << 20)).expect("it fits");
        assert!(blocks >= 2);
        let mut ids = Blocks::default();
        let mut row = Row::new(1, tokens(85, 40), 64, BLOCK, &mut ids);
        let (taken, back) = (row.blocks[..2].to_vec(), ids.take(2));
        let mut other = Row::new(2, tokens(86, 32), 64, BLOCK, &mut ids);
        other.blocks[..2].copy_from_slice(&taken);
        running.compute(&[row.slot(0..40)]).expect("nothing fails");
        row.tokens.push(TokenId(3));
        let expected = running.compute(&[row.decode()]).expect("nothing fails");
        let out = [0, 1].map(|at| MoveOut { from: taken[at], to: HostBlockId(1 - at as u32) }).into();
        let moves = Moves { out, back: Vec::new() };
        running.ranks.move_blocks(&moves).expect("nothing fails");
        running.compute(&[other.slot(0..32)]).expect("nothing fails");
        assert_ne!(running.compute(&[row.decode()]).expect("nothing fails"), expected, "another row's keys");
        let back_again = [0, 1].map(|at| MoveBack { from: HostBlockId(1 - at as u32), to: back[at] }).into();
        let moves = Moves { out: Vec::new(), back: back_again };
        running.ranks.move_blocks(&moves).expect("nothing fails");
        row.blocks[..2].copy_from_slice(&back);
        assert_eq!(running.compute(&[row.decode()]).expect("nothing fails"), expected, "on {count} GPUs");
    }
}

#[test]
fn a_step_that_is_too_large_fails_alone_and_smaller_ones_go_on() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 87) };
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut executor = executor(on_gpus(&model, &gpus)).expect("the pool fits");
    let mut blocks = Blocks::default();
    let row = |id: u64, prompt: usize, blocks: &mut Blocks| {
        Row::new(id, tokens(id, prompt), prompt + 32, BLOCK, blocks)
    };
    let mut small = row(1, 20, &mut blocks);
    let large = row(2, 200, &mut blocks);
    let expected = {
        let mut rows = [small.clone()];
        let mut executor = self::executor(on_cpu(&model)).expect("the pool fits");
        let first = rows[0].slot(0..20);
        common::advance(&mut executor, &mut rows, vec![first]);
        common::decode_all(&mut executor, &mut rows, 6)
    };
    let first = small.slot(0..20);
    common::advance(&mut executor, std::slice::from_mut(&mut small), vec![first]);
    common::decode_all(&mut executor, std::slice::from_mut(&mut small), 3);
    let room = gpus[0].room.swap(100 << 10, Ordering::SeqCst);
    let failed = executor.step(&common::plan(vec![large.slot(0..200)]));
    assert!(
        matches!(&failed, Err(ExecError::Failed(reason)) if reason.ends_with("bytes left")),
        "{failed:?}"
    );
    gpus[0].room.fetch_add(room - (100 << 10), Ordering::SeqCst);
    assert_eq!(common::decode_all(&mut executor, std::slice::from_mut(&mut small), 6), expected);
    assert_eq!(
        common::step(&mut executor, vec![large.slot(0..200)]).len(),
        1,
        "with memory it can be computed"
    );
}
