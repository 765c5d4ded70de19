//! The same on a real card, where there is one.

use std::sync::Arc;

use engine::Keep;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::device::cuda::{CudaRuntime, Gpu, device_count};
use engine::parallel::ShardedModel;

use super::fp8::{FP8, check_fp8, for_fp8};
use super::said::texts;
use super::{FAMILIES, compare, executor, logits, long_logits, of_long_contexts, on_cpu};

/// What opens real GPUs, where there are any.
pub(crate) fn runtime() -> Option<Arc<CudaRuntime>> {
    match device_count() {
        Ok(_) => Some(Arc::default()),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A model on real cards.
pub(crate) fn load_on_card(model: &Synthetic, gpus: &[Arc<dyn Gpu>], keep: Keep) -> ShardedModel {
    let cpus: Vec<Arc<Cpu>> =
        gpus.iter().map(|_| Arc::new(Cpu::new(Some(1)).expect("a thread starts"))).collect();
    ShardedModel::load_on_gpus(&model.config, &model.weights(), (gpus, &cpus), keep).expect("the model fits")
}

/// How many of the tokens that greedy rows would say next are the processor's; all of them in single precision.
fn compare_greedy(model: &Synthetic, found: &[Vec<f32>], expected: &[Vec<f32>]) -> usize {
    let highest = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("logits");
    let same =
        found.iter().zip(expected).filter(|(found, expected)| highest(found) == highest(expected)).count();
    let least = if model.dtype == Dtype::F32 { found.len() } else { found.len() * 9 / 10 };
    assert!(same >= least, "{:?} {:?}: {same} of {}", model.config.family, model.dtype, found.len());
    same
}

/// The same on a real card, where there is one: with and without NCCL.
#[test]
fn logits_on_a_card_are_the_processors_in_every_family() {
    let Some(cuda) = runtime() else { return };
    for with_nccl in [false, true] {
        for family in FAMILIES {
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 78) };
                model.config.head_dim = if family == Family::Mistral { 128 } else { 64 };
                let gpus = cuda.open(&[0], with_nccl).expect("the GPU opens");
                let found = logits(load_on_card(&model, &gpus, Keep::default()), model.seed);
                let expected = logits(on_cpu(&model), model.seed);
                compare(&model, &found, &expected, "a card");
                let same = compare_greedy(&model, &found, &expected);
                eprintln!(
                    "{family:?} {dtype:?}: {same} of {} greedy tokens are the processor's",
                    found.len()
                );
            }
        }
    }
}

#[test]
fn long_contexts_on_a_card_are_the_processors() {
    let Some(cuda) = runtime() else { return };
    for (dtype, dim, window) in [
        (Dtype::Bf16, 64, None),
        (Dtype::Bf16, 128, Some(100)),
        (Dtype::Bf16, 128, None),
        (Dtype::F16, 128, None),
    ] {
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        let model = of_long_contexts(dtype, dim, window);
        let found = long_logits(load_on_card(&model, &gpus, Keep::default()), model.seed);
        compare(&model, &found, &long_logits(on_cpu(&model), model.seed), "a card, a long context");
    }
}

/// The same kinds of rows on a real card, where there is one, of every family.
#[test]
fn rows_on_a_card_say_what_they_say_on_the_processor() {
    let Some(cuda) = runtime() else { return };
    for family in FAMILIES {
        let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(family, 81) };
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        let ranks = load_on_card(&model, &gpus, Keep::default());
        let found = texts(executor(ranks).expect("the pool fits"));
        assert_eq!(found, texts(executor(on_cpu(&model)).expect("the pool fits")), "{family:?}");
    }
}

#[test]
fn weights_in_eight_bits_on_a_card_answer_nearly_as_they_are() {
    let Some(cuda) = runtime() else { return };
    for (model, _) in for_fp8() {
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        check_fp8(&model, load_on_card(&model, &gpus, FP8));
    }
}
