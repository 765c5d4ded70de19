//! What goes wrong on a GPU and between several: memory that cannot be had, ranks that are slow or hang, recordings
//! whose memory moves, rows that only fill a recording up.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Bytes, ExecError, Executor as _, Slot, TokenId};
use engine::Keep;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::cuda::{CudaError, CudaRuntime, Gpu, GpuError, Grid};
use engine::parallel::Ranks;

use super::common::{self, Blocks, Row, tokens};
use super::emulated::{self, Emulated};
use super::on_card::{load_on_card, runtime};
use super::{BLOCK, Running, compare, load, logits, on_cpu, on_gpus, run};

fn model(seed: u64) -> Synthetic {
    Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, seed) }
}

/// Loads a model, takes a pool and a tier, and computes a few steps: the first error, in words.
fn whole(gpus: &[Arc<Emulated>], model: &Synthetic) -> Result<(), String> {
    let loaded = load(model, gpus, Keep::default()).map_err(|error| error.to_string())?;
    let shape = loaded.pool_shape(BLOCK as u32, Bytes(1 << 20)).map_err(|error| error.to_string())?;
    let ranks = Ranks::start(&loaded, shape).map_err(|error| error.to_string())?;
    let mut running = Running { ranks };
    running.ranks.add_tier(Bytes(1 << 20)).map_err(|error| error.to_string())?;
    let mut blocks = Blocks::default();
    for prompt in [20, 150] {
        let mut row = Row::new(1, tokens(model.seed, prompt), prompt + 4, BLOCK, &mut blocks);
        running.compute(&[row.slot(0..prompt)]).map_err(|error| error.to_string())?;
        row.tokens.push(TokenId(1));
        running.compute(&[row.decode()]).map_err(|error| error.to_string())?;
    }
    Ok(())
}

// Case 32.
#[test]
fn whichever_allocation_fails_is_said_and_all_memory_is_given_back() {
    let model = model(88);
    for number in 0..10_000 {
        let Some(gpus) = emulated::gpus(1) else { return };
        gpus[0].allocations.store(number, Ordering::SeqCst);
        let ended = whole(&gpus, &model);
        assert!(gpus[0].is_empty(), "allocation {number}: something is kept");
        match ended {
            Err(said) => assert!(said.contains("has no ") && said.ends_with(" bytes left"), "{said}"),
            // Weights, the pool, the tier, and the workspace twice.
            Ok(()) => return assert!(number > 20, "{number} allocations are few"),
        }
    }
    panic!("some allocation failed in each of 10,000 runs");
}

// Case 36.
#[test]
fn a_rank_that_is_always_the_last_is_waited_for_and_changes_no_bit() {
    let model = model(89);
    for slow in 0..2 {
        let (Some(usual), Some(gpus)) = (emulated::gpus(2), emulated::gpus(2)) else { return };
        gpus[slow].is_slow.store(true, Ordering::SeqCst);
        let found = [&usual, &gpus].map(|gpus| run(gpus, &model, 4).expect("nothing fails"));
        assert_eq!(found[0], found[1], "rank {slow} is slow");
    }
}

// Case 36.
#[test]
fn where_one_gpu_of_two_has_no_memory_for_a_step_that_fails_and_the_next_one_finds_the_device_lost() {
    let model = model(96);
    for short in 0..2 {
        let Some(gpus) = emulated::gpus(2) else { return };
        let mut executor = super::executor(on_gpus(&model, &gpus)).expect("the pool fits");
        let mut blocks = Blocks::default();
        let mut small = Row::new(1, tokens(1, 20), 52, BLOCK, &mut blocks);
        let large = Row::new(2, tokens(2, 200), 232, BLOCK, &mut blocks);
        assert_eq!(common::step(&mut executor, vec![small.slot(0..20)]).len(), 1);
        gpus[short].room.store(1 << 10, Ordering::SeqCst);
        let failed = executor.step(&common::plan(vec![large.slot(0..200)]));
        let is_short = matches!(&failed, Err(ExecError::Failed(reason)) if reason.ends_with("bytes left"));
        assert!(is_short, "rank {short}: {failed:?}");
        gpus[short].room.store(1 << 30, Ordering::SeqCst);
        small.tokens.push(TokenId(1));
        let next = executor.step(&common::plan(vec![small.decode()]));
        assert!(matches!(&next, Err(ExecError::Lost(_))), "rank {short}: {next:?}");
    }
}

// Case 36; the watchdog's own test shows that it ends what takes too long.
#[test]
fn a_rank_that_hangs_ends_with_the_others_when_they_are_aborted() {
    let model = model(90);
    for hangs in 0..2 {
        let Some(gpus) = emulated::gpus(2) else { return };
        gpus[hangs].hangs.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let step = scope.spawn(|| run(&gpus, &model, 1));
            while !gpus[hangs].is_hanging.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // As the watchdog does.
            gpus.iter().for_each(|gpu| gpu.abort());
            step.join().expect("no rank panics").expect_err("a sum has not met");
        });
    }
}

// Case 37.
#[test]
fn recordings_are_dropped_when_the_memory_that_they_name_moves() {
    let model = model(91);
    let (Some(recorded), Some(launched)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
    launched[0].records.store(false, Ordering::SeqCst);
    let found = [&recorded, &launched].map(|gpus| {
        let (mut running, mut blocks) = (Running::new(on_gpus(&model, gpus)), Blocks::default());
        let mut row = Row::new(1, tokens(91, 30), 64, BLOCK, &mut blocks);
        let mut found = running.compute(&[row.slot(0..30)]).expect("nothing fails");
        let mut decode = |running: &mut Running| {
            let mut said = Vec::new();
            for token in 0..3 {
                row.tokens.push(TokenId(5 * token + 1));
                said.extend(running.compute(&[row.decode()]).expect("nothing fails"));
            }
            said
        };
        found.extend(decode(&mut running));
        // Larger than any step before: its workspace lies elsewhere.
        let large = Row::new(2, tokens(92, 200), 208, BLOCK, &mut blocks);
        found.extend(running.compute(&[large.slot(0..200)]).expect("nothing fails"));
        found.extend(decode(&mut running));
        found
    });
    assert_eq!(found[0], found[1]);
    let replays = recorded[0].replays.load(Ordering::SeqCst);
    assert_eq!(replays, 4, "the first of three steps is recorded, and the first after the move");
}

// Case 37.
#[test]
fn rows_that_fill_a_recording_up_write_no_key_or_value() {
    const ROWS: u64 = 5;
    let model = model(93);
    let Some(gpus) = emulated::gpus(1) else { return };
    let loaded = on_gpus(&model, &gpus);
    let shape = loaded.pool_shape(BLOCK as u32, Bytes(4 << 20)).expect("blocks fit");
    let (mut running, mut blocks) = (Running::new(loaded), Blocks::default());
    // What a row that is none might write to.
    blocks.take(1);
    let mut rows: Vec<Row> =
        (1..=ROWS).map(|id| Row::new(id, tokens(id, 9 + id as usize), 32, BLOCK, &mut blocks)).collect();
    let prompts: Vec<Slot> = rows.iter().map(|row| row.slot(0..row.prompt)).collect();
    running.compute(&prompts).expect("nothing fails");
    // Five rows are recorded as eight. The first step is launched and recorded, the second replayed.
    for token in [3, 4] {
        rows.iter_mut().for_each(|row| row.tokens.push(TokenId(token)));
        let slots: Vec<Slot> = rows.iter().map(Row::decode).collect();
        let before = gpus[0].largest();
        running.compute(&slots).expect("nothing fails");
        let after = gpus[0].largest();
        let block = before.len() / shape.blocks;
        let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        let named: BTreeSet<u32> = slots.iter().flat_map(|slot| &slot.write_blocks).map(|id| id.0).collect();
        let written: BTreeSet<u32> = changed.iter().map(|at| (at / block) as u32).collect();
        assert_eq!(written, named, "blocks that are written, and those that rows name");
        // A token's keys and values in every layer, and no other's.
        assert!(changed.len() <= ROWS as usize * block / BLOCK, "{} of {block}", changed.len());
    }
    assert_eq!(gpus[0].replays.load(Ordering::SeqCst), 1);
}

/// Logits on a card, which must be the processor's.
fn check_card(model: &Synthetic, gpus: &[Arc<dyn Gpu>]) {
    let loaded = load_on_card(model, gpus, Keep::default());
    compare(model, &logits(loaded, model.seed), &logits(on_cpu(model), model.seed), "a card");
}

// Case 32, on a real card, where there is one.
#[test]
fn memory_that_is_short_on_a_card_is_said_and_it_goes_on() {
    let Some(cuda) = runtime() else { return };
    let gpus = cuda.open(&[0], false).expect("the GPU opens");
    let free = gpus[0].available().expect("it answers");
    let bytes = free + (1 << 30);
    assert_eq!(gpus[0].allocate(bytes), Err(GpuError::OutOfMemory { bytes }));
    check_card(&model(94), &gpus);
}

/// Set in the process that poisons its context.
const POISONS: &str = "RELSERVE_TEST_POISONS";

/// Reads an address that is nobody's; then nothing of the card can be used in this process.
fn poison(cuda: &Arc<CudaRuntime>) {
    let gpus = cuda.open(&[0], false).expect("the GPU opens");
    let kept = gpus[0].allocate(1 << 20).expect("it fits");
    // `round_f32` reads 64 numbers at address 8.
    let args: Vec<u8> = [8_u64, kept.0, 64].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let launched =
        gpus[0].launch("round_f32", Grid { blocks: [1, 1], threads: 64, shared: 0, cluster: 1 }, &args);
    let ended = launched.and_then(|()| gpus[0].read(kept, &mut [0; 4])).expect_err("it cannot be read");
    assert!(matches!(ended, GpuError::Lost(_)), "{ended}");
    let refused = gpus[0].allocate(4).expect_err("nothing of the context is trusted");
    assert!(refused.to_string().contains("lost before"), "{refused}");
    drop(gpus);
    let again = cuda.open(&[0], false).map(drop).expect_err("the driver takes nothing more of this process");
    eprintln!("opened again: {again}");
    assert!(matches!(again, CudaError::Failed(GpuError::Lost(_))), "{again}");
}

// Case 31, on a real card, where there is one.
#[test]
fn a_context_that_is_poisoned_on_a_card_is_lost_to_its_process_and_to_no_other() {
    let Some(cuda) = runtime() else { return };
    if std::env::var_os(POISONS).is_some() {
        return poison(&cuda);
    }
    let gpus = cuda.open(&[0], false).expect("the GPU opens");
    check_card(&model(95), &gpus);
    let name = std::thread::current().name().expect("tests have names").to_owned();
    let mut poisoned = Command::new(std::env::current_exe().expect("it is known"));
    let ended =
        poisoned.args([&name, "--exact", "--nocapture"]).env(POISONS, "1").output().expect("it starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("opened again"), "the test was run there");
    check_card(&model(95), &gpus);
}
