//! Weights of eight-bit floats.

use std::sync::atomic::Ordering;

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::parallel::ShardedModel;
use engine::{Keep, Quantize};

use super::common::difference;
use super::{emulated, load, logits, on_cpu};

/// Models whose weights can be in eight bits, and on how many ranks.
pub(crate) fn for_fp8() -> impl Iterator<Item = (Synthetic, usize)> {
    let cases = [
        (Family::Llama, Dtype::F32, 1),
        (Family::Qwen2, Dtype::Bf16, 1),
        (Family::Mistral, Dtype::F16, 1),
        (Family::Qwen3, Dtype::F32, 2),
        (Family::Opt, Dtype::F32, 2),
        (Family::Falcon, Dtype::F32, 1),
    ];
    cases.into_iter().map(|(family, dtype, ranks)| {
        let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 88) };
        let is_opt = family == Family::Opt;
        (model.config.norm_first, model.config.final_norm) = (!is_opt, !is_opt);
        (model.config.intermediate, model.config.head_dim) = (64, 16);
        (model, ranks)
    })
}

pub(crate) const FP8: Keep = Keep { dtype: None, quantize: Some(Quantize::Fp8), kv: None };

/// Such floats have three bits behind their first: answers of so small a model are some hundredths apart.
pub(crate) fn check_fp8(model: &Synthetic, ranks: ShardedModel) {
    let (expected, found) = (logits(on_cpu(model), model.seed), logits(ranks, model.seed));
    let apart: Vec<f32> =
        found.iter().zip(&expected).map(|(found, expected)| difference(found, expected)).collect();
    let mean = apart.iter().sum::<f32>() / apart.len() as f32;
    assert!(mean > 1e-3 && mean < 0.1, "{:?}: {mean} {apart:?}", model.config.family);
}

#[test]
fn weights_in_eight_bits_answer_nearly_as_they_are() {
    for (model, count) in for_fp8() {
        let Some(gpus) = emulated::gpus(count) else { return };
        check_fp8(&model, load(&model, &gpus, FP8).expect("it fits"));
        assert!(gpus[0].replays.load(Ordering::SeqCst) > 0, "decode steps are recorded");
    }
}

#[test]
fn weights_that_cannot_be_in_eight_bits_are_refused_by_name() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut model = Synthetic::tiny(Family::Llama, 89);
    model.config.intermediate = 44;
    let error = load(&model, &gpus, FP8).map(drop).expect_err("44 is no multiple of 16").to_string();
    assert!(error.contains("down_proj` is 32 x 44") || error.contains("gate_proj` is 88 x 32"), "{error}");
}
