//! What a decode step launches: at one row each launch costs more than what most of its kernels do.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::TokenId;
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::decoder::kernel_set;
use engine::{Keep, KvFormat, Quantize};

use super::common::{Blocks, Row, tokens};
use super::emulated;
use super::{BLOCK, Running, load};

fn model(family: Family) -> Synthetic {
    let mut model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(family, 106) };
    (model.config.head_dim, model.config.intermediate) = (64, 64);
    model
}

/// What a replayed step of one row launches, without the kernel that puts parts of attention together.
fn decode(model: &Synthetic, keep: Keep) -> Option<BTreeMap<String, u64>> {
    let gpus = emulated::gpus(1)?;
    let mut running = Running::new(load(model, &gpus, keep).expect("it fits"));
    let mut row = Row::new(1, tokens(model.seed, 30), 96, BLOCK, &mut Blocks::default());
    running.compute(&[row.slot(0..30)]).expect("nothing fails");
    for token in [3, 5] {
        row.tokens.push(TokenId(token));
        gpus[0].launched();
        running.ranks.forward(&[row.decode()]).expect("nothing fails");
    }
    let mut launched = gpus[0].launched();
    launched.retain(|name, _| !name.starts_with("merge") && name != "a sum over ranks");
    Some(launched)
}

/// `once` launched once, and `each` so often in each layer.
fn expected(model: &Synthetic, once: &[(&str, u64)], each: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let layers = model.config.layers as u64;
    let mut all = BTreeMap::new();
    let each = each.iter().map(|(name, count)| (*name, layers * count));
    for (name, count) in once.iter().copied().chain(each) {
        *all.entry(name.to_owned()).or_default() += count;
    }
    all
}

#[test]
fn a_decode_step_launches_four_kernels_and_four_products_in_each_layer_and_copies_no_rows() {
    let model = model(Family::Llama);
    let Some(launched) = decode(&model, Keep::default()) else { return };
    let each = [
        ("norm_bf16", 2),
        ("rotate_bf16", 1), // turns keys and writes them and values to the pool
        ("attend_flat_64_bf16", 1),
        ("a product", 4), // that of gates and what they gate activates what it writes
    ];
    assert_eq!(launched, expected(&model, &[("embed_bf16", 1), ("norm_bf16", 1)], &each));
}

#[test]
fn a_decode_step_with_heads_that_are_normalised_launches_no_more() {
    let model = model(Family::Qwen3);
    let Some(launched) = decode(&model, Keep::default()) else { return };
    let counts = ["norm_bf16", "rotate_bf16"].map(|name| launched[name]);
    let layers = model.config.layers as u64;
    assert_eq!(counts, [2 * layers + 1, layers]);
}

#[test]
fn a_decode_step_of_eight_bit_floats_rounds_in_the_kernels_that_normalise_and_activate() {
    let model = model(Family::Llama);
    let fp8 = Keep { quantize: Some(Quantize::Fp8), ..Keep::default() };
    let Some(launched) = decode(&model, fp8) else { return };
    let each = [
        ("norm_e4m3", 2),
        ("rotate_bf16", 1),
        ("attend_flat_64_bf16", 1),
        ("quantize_bf16", 1),
        ("round_known_bf16", 1), // what the product of gates has activated
        ("a product", 4),
    ];
    assert_eq!(launched, expected(&model, &[("embed_bf16", 1), ("norm_bf16", 1)], &each));
}

/// What is compiled for a model at a server's start is what its steps launch.
#[test]
fn every_kernel_that_runs_is_of_the_set_that_is_compiled_for_the_model() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for (kv, quantize) in [
            (None, None),
            (Some(KvFormat::Q8), Some(Quantize::Q4)),
            (Some(KvFormat::Fp8), Some(Quantize::Fp8)),
        ] {
            for (family, has_wgmma) in [(Family::Llama, false), (Family::Opt, true)] {
                let Some(gpus) = emulated::gpus(1) else { return };
                gpus[0].has_wgmma.store(has_wgmma, Ordering::SeqCst);
                let model = Synthetic { dtype, ..model(family) };
                let keep = Keep { dtype: None, quantize, kv };
                let mut running = Running::new(load(&model, &gpus, keep).expect("it fits"));
                let mut row = Row::new(1, tokens(model.seed, 90), 128, BLOCK, &mut Blocks::default());
                running.compute(&[row.slot(0..90)]).expect("nothing fails");
                row.tokens.push(TokenId(3));
                running.compute(&[row.decode()]).expect("nothing fails");
                let (ran, set) = (gpus[0].ran(), kernel_set(dtype, keep));
                assert!(ran.iter().any(|name| name.starts_with("attend")), "{ran:?}");
                let missing: Vec<_> = ran.iter().filter(|name| !set.has(name)).collect();
                assert!(missing.is_empty(), "{set:?} lacks {missing:?}");
            }
        }
    }
}
