//! Keys and values in eight bits on GPUs, against the processor's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Cpu;
use engine::device::cuda::{Buffer, Gpu, Grid};
use engine::parallel::ShardedModel;
use engine::{Keep, KvFormat};

use super::common::{difference, widening};
use super::emulated::{self, Emulated};
use super::on_card::{load_on_card, runtime};
use super::{load, logits, long_logits, of_long_contexts, run_keeping};

const Q8: Keep = Keep { dtype: None, quantize: None, kv: Some(KvFormat::Q8) };

/// Largest difference from the processor with the same integers, in units of the largest logit: a number on the
/// border of two goes either way, by a 127th of its head's largest.
const TOLERANCE: f32 = 5e-3;

/// The same where the GPU rounds activations to bf16, and so meets borders everywhere.
const ROUNDED_TOLERANCE: f32 = 5e-2;

fn on_cpu(model: &Synthetic) -> ShardedModel {
    let cpu = Arc::new(Cpu::with_isa(Some(2), widening()).expect("threads start"));
    ShardedModel::load(&model.config, &model.weights(), &[cpu], Q8).expect("the model is complete")
}

fn on_gpus(model: &Synthetic, gpus: &[Arc<Emulated>]) -> ShardedModel {
    load(model, gpus, Q8).expect("the model divides and fits")
}

fn compare(model: &Synthetic, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    let tolerance = if model.dtype == Dtype::F32 { TOLERANCE } else { ROUNDED_TOLERANCE };
    assert_eq!(found.len(), expected.len());
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = difference(found, expected);
        let (family, dim) = (model.config.family, model.config.head_dim);
        assert!(apart < tolerance, "{family:?} {:?}, heads of {dim}, row {row}: {apart}", model.dtype);
    }
}

#[test]
fn logits_with_keys_and_values_in_eight_bits_are_the_processors() {
    for (family, dim, dtype, ranks) in [
        (Family::Llama, 8, Dtype::F32, 1),
        (Family::Opt, 20, Dtype::F32, 2),
        (Family::Qwen3, 16, Dtype::F16, 1),
        (Family::Qwen2, 64, Dtype::F32, 1),
        (Family::Qwen2, 64, Dtype::Bf16, 1),
        (Family::Llama, 128, Dtype::Bf16, 2),
        (Family::Opt, 64, Dtype::F16, 1),
        (Family::Mistral, 128, Dtype::F16, 1),
    ] {
        let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 101) };
        model.config.head_dim = dim;
        let Some(gpus) = emulated::gpus(ranks) else { return };
        // Where warpgroups multiply, tasks of many rows are not theirs: they would read integers as bf16.
        gpus.iter().for_each(|gpu| gpu.has_wgmma.store(true, Ordering::SeqCst));
        let loaded = on_gpus(&model, &gpus);
        assert_eq!(loaded.kv(), KvFormat::Q8);
        compare(&model, &logits(loaded, model.seed), &logits(on_cpu(&model), model.seed));
        assert!(gpus.iter().all(|gpu| gpu.replays.load(Ordering::SeqCst) > 0), "decode steps are recorded");
    }
}

#[test]
fn long_contexts_of_keys_and_values_in_eight_bits_are_the_processors() {
    for (dtype, dim, window) in [
        (Dtype::Bf16, 64, None),
        (Dtype::Bf16, 128, Some(100)),
        (Dtype::F16, 128, None),
        (Dtype::F32, 16, Some(100)),
    ] {
        let Some(gpus) = emulated::gpus(1) else { return };
        let model = of_long_contexts(dtype, dim, window);
        let found = long_logits(on_gpus(&model, &gpus), model.seed);
        compare(&model, &found, &long_logits(on_cpu(&model), model.seed));
    }
}

/// The same on a real card, where there is one.
#[test]
fn keys_and_values_in_eight_bits_on_a_card_are_the_processors() {
    let Some(cuda) = runtime() else { return };
    for (dtype, dim, window) in [
        (Dtype::Bf16, 64, Some(100)),
        (Dtype::Bf16, 128, None),
        (Dtype::F16, 128, None),
        (Dtype::F32, 16, None),
    ] {
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        let model = of_long_contexts(dtype, dim, window);
        let found = long_logits(load_on_card(&model, &gpus, Q8), model.seed);
        compare(&model, &found, &long_logits(on_cpu(&model), model.seed));
    }
}

#[test]
fn keys_and_values_in_eight_bits_are_others_than_those_of_the_weights_type() {
    let model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 102) };
    let (Some(own), Some(q8)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
    let own = logits(load(&model, &own, Keep::default()).expect("it fits"), model.seed);
    let q8 = logits(on_gpus(&model, &q8), model.seed);
    let apart = own.iter().zip(&q8).map(|(own, q8)| difference(own, q8)).fold(0.0_f32, f32::max);
    assert!(apart > 1e-4 && apart < 5e-2, "{apart}");
}

#[test]
fn a_replayed_step_with_keys_and_values_in_eight_bits_gives_the_bits_of_a_launched_one() {
    let mut model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 103) };
    model.config.head_dim = 64;
    let (Some(recorded), Some(launched)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
    launched[0].records.store(false, Ordering::SeqCst);
    let found = [&recorded, &launched].map(|gpus| run_keeping(gpus, &model, 6, Q8).expect("nothing fails"));
    assert_eq!(found[0], found[1]);
    let replays = [&recorded, &launched].map(|gpus| gpus[0].replays.load(Ordering::SeqCst));
    assert_eq!(replays, [5, 0]);
}

#[test]
fn what_no_kernel_keeps_beside_the_weights_is_refused_by_name() {
    let Some(gpus) = emulated::gpus(1) else { return };
    for (dtype, kv, own) in [
        (Dtype::F32, KvFormat::Bf16, "f32"),
        (Dtype::Bf16, KvFormat::F32, "bf16"),
        (Dtype::F16, KvFormat::F32, "bf16"),
    ] {
        let model = Synthetic { dtype, ..Synthetic::tiny(Family::Llama, 104) };
        let refused = load(&model, &gpus, Keep { kv: Some(kv), ..Keep::default() }).map(drop);
        let error = refused.expect_err("there is no such kernel").to_string();
        let kv = kv.name();
        assert_eq!(error, format!("is {kv}; beside these weights a GPU keeps {own} or q8"));
    }
}

/// What a head's keys and values are multiplied by: no two neighbours, in tokens or heads, are of one size.
fn size(token: usize, head: usize) -> f32 {
    [0.01, 1.0, 30.0, 0.2, 6.0][(3 * token + 2 * head) % 5]
}

/// A number between -1 and 1 that looks random, of a token's query, key or value of a head.
fn number(token: usize, part: usize, i: usize) -> f32 {
    let mixed = ((token * 3_000 + part * 300 + i) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Bytes of a kernel's arguments: addresses, then numbers.
fn args(addresses: &[u64], numbers: &[i32], last: f32) -> Vec<u8> {
    let mut bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_ne_bytes()).collect();
    bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    bytes.extend(last.to_ne_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Bytes of numbers as one element or another.
fn bytes_of(numbers: &[f32], is_single: bool) -> Vec<u8> {
    match is_single {
        true => numbers.iter().flat_map(|number| number.to_ne_bytes()).collect(),
        false => numbers.iter().flat_map(|number| half::bf16::from_f32(*number).to_ne_bytes()).collect(),
    }
}

fn numbers_of(bytes: &[u8], is_single: bool) -> Vec<f32> {
    match is_single {
        true => bytes.as_chunks::<4>().0.iter().map(|number| f32::from_ne_bytes(*number)).collect(),
        false => bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|number| half::bf16::from_ne_bytes(*number).to_f32())
            .collect(),
    }
}

const HEADS: usize = 2;
const BLOCK: usize = 6;
const TOKENS: usize = 150;

/// Queries of each head, then keys, then values, of each token.
fn activations(dim: usize, is_single: bool) -> Vec<f32> {
    let numbers = (0..TOKENS * 3 * HEADS).flat_map(|at| {
        let (token, part) = (at / (3 * HEADS), at % (3 * HEADS));
        let (kind, head) = (part / HEADS, part % HEADS);
        let by = if kind == 0 { 0.1 } else { size(token + kind, head) };
        (0..dim).map(move |i| by * number(token, part, i))
    });
    numbers.map(|x| if is_single { x } else { half::bf16::from_f32(x).to_f32() }).collect()
}

/// What the last token's query of a head reads.
fn attended(qkv: &[f32], dim: usize, head: usize) -> Vec<f32> {
    let of = |token: usize, kind: usize| &qkv[((token * 3 + kind) * HEADS + head) * dim..][..dim];
    let dot = |key: &[f32]| of(TOKENS - 1, 0).iter().zip(key).map(|(query, key)| query * key).sum::<f32>();
    let scores: Vec<f32> = (0..TOKENS).map(|token| dot(of(token, 1)) / (dim as f32).sqrt()).collect();
    let highest = scores.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
    let all: f32 = weights.iter().sum();
    let result = |i: usize| (0..TOKENS).map(|token| weights[token] * of(token, 2)[i] / all).sum();
    (0..dim).map(result).collect()
}

/// Each token and head is read under its own scale, that of its key and that of its value: sizes are some hundred
/// times apart, so that another one's would be seen at once.
#[test]
fn every_token_and_head_is_read_under_its_own_scales() {
    for (dim, name, is_single) in [(20, "", true), (64, "flat_64_", false), (128, "tall_128_", false)] {
        let Some(gpus) = emulated::gpus(1) else { return };
        let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
        let on_gpu = |bytes: &[u8]| Buffer::of(&gpu, bytes).expect("it fits");
        let ints = |numbers: &[i32]| on_gpu(&bytes_of_ints(numbers));
        let qkv = activations(dim, is_single);
        let blocks: Vec<i32> = (0..(TOKENS / BLOCK) as i32).map(|block| (block * 7 + 3) % 25).collect();
        let cells: Vec<i32> =
            (0..TOKENS).map(|token| blocks[token / BLOCK] * BLOCK as i32 + (token % BLOCK) as i32).collect();
        let layer = (HEADS * BLOCK * (dim + 2)).next_multiple_of(16);
        let pool = Buffer::new(&gpu, 25 * 2 * layer).expect("it fits");
        let last = TOKENS as i32 - 1;
        let task = ints(&[0, 0, 1, 0, TOKENS as i32]);
        let (part, row) = (ints(&[0, 0, TOKENS as i32, 0, 1, 0]), ints(&[last, last, last, 1]));
        let zeros = ints(&[0; TOKENS + 1]);
        let (cells, blocks, qkv_on_gpu) = (ints(&cells), ints(&blocks), on_gpu(&bytes_of(&qkv, is_single)));
        let out = Buffer::new(&gpu, 4 * TOKENS * HEADS * dim).expect("it fits");
        let at = |buffer: &Buffer| buffer.address().0;
        let arrays =
            [&zeros, &zeros, &zeros, &cells, &task, &task, &part, &row, &blocks, &zeros, &zeros, &zeros];
        let mut tables: Vec<u8> = arrays.iter().flat_map(|array| at(array).to_ne_bytes()).collect();
        tables.extend(bytes_of_ints(&[TOKENS as i32, 1, 1, 0]));
        let tables = on_gpu(&tables);
        let (keys, values) = (at(&pool), pool.address().at(layer).0);
        let heads = HEADS as i32;
        let shape = [heads, heads, dim as i32, 0, BLOCK as i32, 2 * layer as i32];
        let element = if is_single { "f32" } else { "bf16" };
        let written = args(&[at(&tables), at(&qkv_on_gpu), keys, values, 0, 0], &shape, 0.0);
        let warps = TOKENS * 2 * HEADS;
        let grid = Grid { blocks: [warps.div_ceil(4) as u32, 1], threads: 128, shared: 0 };
        gpu.launch(&format!("rotate_q8_{element}"), grid, &written).expect("it runs");
        let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
        let numbers = [&shape[..], &[0]].concat();
        let read = args(&[at(&tables), at(&qkv_on_gpu), keys, values, 0, at(&out)], &numbers, scale);
        let shared = if is_single { 4 * (48 * (dim + 1) + 32 * dim) } else { 2 * dim * (64 + 256) };
        let grid = Grid { blocks: [1, HEADS as u32], threads: 128, shared: shared as u32 };
        gpu.launch(&format!("attend_{name}q8_{element}"), grid, &read).expect("it runs");
        let mut found = vec![0; out.bytes() / if is_single { 1 } else { 2 }];
        gpu.read(out.address(), &mut found).expect("it is there");
        let found = numbers_of(&found, is_single);
        for head in 0..HEADS {
            let found = &found[((TOKENS - 1) * HEADS + head) * dim..][..dim];
            let apart = difference(found, &attended(&qkv, dim, head));
            assert!(apart < 0.05, "attend_{name}q8_{element}, head {head}: {apart}");
        }
    }
}

fn bytes_of_ints(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
