//! How much of a GPU keys and values take, and models that are too large for one, or that it has no kernels for.

use std::sync::atomic::Ordering;

use base::Bytes;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::parallel::Ranks;
use engine::{EngineConfig, Keep};

use super::common::{Blocks, Row, tokens};
use super::emulated;
use super::{BLOCK, FAMILIES, Running, load, on_cpu, on_gpus};

fn model() -> Synthetic {
    Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 96) }
}

/// More requests than have room.
fn for_many(kv_bytes: Option<u64>) -> EngineConfig {
    EngineConfig { kv_bytes: kv_bytes.map(Bytes), sequences_max: 100_000, ..EngineConfig::default() }
}

#[test]
fn a_pool_of_no_given_size_takes_nine_tenths_of_what_weights_leave_and_steps_run_in_the_rest() {
    let model = model();
    for (ranks, room) in [(1, 64 << 20), (2, 64 << 20), (1, 4 << 20)] {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let loaded = on_gpus(&model, &gpus);
        // The ranks' pools are of one size: the one with the least memory says which.
        gpus.iter()
            .rev()
            .zip([room, 2 * room])
            .for_each(|(gpu, room)| gpu.room.store(room, Ordering::SeqCst));
        let bytes = loaded.kv_bytes(&for_many(None)).expect("it fits");
        let all = ranks as u64 * room;
        if room == 4 << 20 {
            assert!(bytes.0 >= all / 2 && bytes.0 < all / 10 * 8, "steps need more than a tenth: {bytes:?}");
        } else {
            assert!(bytes.0 > all / 100 * 89 && bytes.0 <= all / 10 * 9, "{bytes:?} of {all}");
        }
        let shape = loaded.pool_shape(BLOCK as u32, bytes).expect("blocks fit");
        let mut running = Running { ranks: Ranks::start(&loaded, shape).expect("the pool fits") };
        let row = Row::new(1, tokens(96, 200), 256, BLOCK, &mut Blocks::default());
        running.compute(&[row.slot(0..200)]).expect("there is memory for it");
    }
}

#[test]
fn a_pool_of_a_given_size_has_it_where_it_is_there_and_no_more_than_requests_fill() {
    let model = model();
    let Some(gpus) = emulated::gpus(1) else { return };
    let loaded = on_gpus(&model, &gpus);
    gpus[0].room.store(64 << 20, Ordering::SeqCst);
    let bytes = |config: &EngineConfig| loaded.kv_bytes(config).expect("it fits").0;
    assert_eq!(bytes(&for_many(Some(1 << 20))), 1 << 20);
    assert_eq!(bytes(&for_many(Some(u64::MAX))), (64 << 20) / 10 * 9);
    let two = EngineConfig { sequences_max: 2, ..EngineConfig::default() };
    let blocks = loaded.pool_shape(two.block_tokens, Bytes(bytes(&two))).expect("it fits").blocks;
    assert!((32..=33).contains(&blocks), "two requests of 256 tokens are 32 blocks of 16, found {blocks}");
    let on_cpu = on_cpu(&model).kv_bytes(&for_many(None)).expect("it fits").0;
    assert!(on_cpu <= 1 << 30, "the processor's default is 1 GiB, not {on_cpu}");
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_what_it_takes_before_any_weight_is_read() {
    let model = model();
    for ranks in [1, 2] {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        gpus[ranks - 1].room.store(64 << 10, Ordering::SeqCst);
        let refused = load(&model, &gpus, Keep::default()).map(drop);
        let error = refused.expect_err("it is larger").to_string();
        assert!(error.starts_with("the model's weights take 0.00 GiB ("), "{error}");
        assert!(error.contains("keys and values of 256 tokens"), "{error}");
        assert!(error.ends_with("emulated has 0.00 GiB (65536 bytes) free"), "{error}");
        let is_untouched = gpus.iter().all(|gpu| gpu.is_empty() && gpu.calls.load(Ordering::SeqCst) == 0);
        assert!(is_untouched, "nothing was read of it");
    }
}

#[test]
fn what_weights_take_is_known_of_every_family() {
    for family in FAMILIES {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let model = Synthetic { dtype, ..Synthetic::tiny(family, 97) };
            let (Some(roomy), Some(gpus)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
            let room = || roomy[0].room.load(Ordering::SeqCst);
            let before = room();
            let loaded = on_gpus(&model, &roomy);
            let taken = before - room();
            drop(loaded);
            // Room for the weights alone is none for keys and values; a quarter more is.
            gpus[0].room.store(taken, Ordering::SeqCst);
            let refused = load(&model, &gpus, Keep::default()).map(drop);
            let error = refused.expect_err("nothing is left").to_string();
            assert!(error.starts_with("the model's weights take "), "{family:?} {dtype:?}: {error}");
            gpus[0].room.store(taken + taken / 4 + (256 << 10), Ordering::SeqCst);
            load(&model, &gpus, Keep::default()).map(drop).expect("it fits");
        }
    }
}

#[test]
fn a_model_that_no_kernel_of_a_gpu_computes_is_refused_by_what_it_has() {
    let Some(gpus) = emulated::gpus(1) else { return };
    for (family, what) in [
        (Family::Mpt, "scores that fall with distance (ALiBi)"),
        (Family::Gemma2, "local and global layers"),
        (Family::Gemma3, "local and global layers"),
    ] {
        let refused = load(&Synthetic::tiny(family, 90), &gpus, Keep::default()).map(drop);
        let error = refused.expect_err("it is refused").to_string();
        assert_eq!(error, format!("the model has {what}, which runs on the processor only"));
    }
}
