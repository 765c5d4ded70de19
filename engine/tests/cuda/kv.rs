//! Keys and values in eight bits on GPUs: integers against the processor's, floats against what they are by definition.

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

const Q8: Keep = keeping(KvFormat::Q8);
const FP8: Keep = keeping(KvFormat::Fp8);

const fn keeping(kv: KvFormat) -> Keep {
    Keep { dtype: None, quantize: None, kv: Some(kv) }
}

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
    keep_on_gpus(model, gpus, Q8)
}

fn keep_on_gpus(model: &Synthetic, gpus: &[Arc<Emulated>], keep: Keep) -> ShardedModel {
    load(model, gpus, keep).expect("the model divides and fits")
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

/// The same of floats, against exact ones: no processor keeps them.
#[test]
fn keys_and_values_in_eight_bit_floats_on_a_card_answer_nearly_as_exact_ones() {
    let Some(cuda) = runtime() else { return };
    for (dtype, dim, window) in
        [(Dtype::Bf16, 64, Some(100)), (Dtype::Bf16, 128, None), (Dtype::F32, 16, None)]
    {
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        let model = of_long_contexts(dtype, dim, window);
        let found = long_logits(load_on_card(&model, &gpus, FP8), model.seed);
        check_fp8(&model, &found, &long_logits(load_on_card(&model, &gpus, Keep::default()), model.seed));
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

/// Such floats have three bits behind their first: no processor keeps them, and answers of so small a model are some
/// hundredths apart from those of exact keys and values.
fn check_fp8(model: &Synthetic, found: &[Vec<f32>], exact: &[Vec<f32>]) {
    assert_eq!(found.len(), exact.len());
    let apart: Vec<f32> = found.iter().zip(exact).map(|(found, exact)| difference(found, exact)).collect();
    let mean = apart.iter().sum::<f32>() / apart.len() as f32;
    let (family, dim) = (model.config.family, model.config.head_dim);
    assert!(mean > 1e-5 && mean < 0.2, "{family:?} {:?}, heads of {dim}: {mean} {apart:?}", model.dtype);
}

#[test]
fn keys_and_values_in_eight_bit_floats_answer_nearly_as_exact_ones() {
    for (family, dim, dtype, ranks) in [
        (Family::Llama, 8, Dtype::F32, 1),
        (Family::Qwen3, 16, Dtype::F32, 2),
        (Family::Qwen2, 64, Dtype::Bf16, 1),
        (Family::Opt, 64, Dtype::F16, 1),
        (Family::Llama, 128, Dtype::Bf16, 2),
        (Family::Mistral, 128, Dtype::F16, 1),
    ] {
        let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 105) };
        model.config.head_dim = dim;
        let (Some(gpus), Some(exact)) = (emulated::gpus(ranks), emulated::gpus(ranks)) else { return };
        gpus.iter().for_each(|gpu| gpu.has_wgmma.store(true, Ordering::SeqCst));
        let loaded = keep_on_gpus(&model, &gpus, FP8);
        assert_eq!(loaded.kv(), KvFormat::Fp8);
        let exact = logits(keep_on_gpus(&model, &exact, Keep::default()), model.seed);
        check_fp8(&model, &logits(loaded, model.seed), &exact);
        assert!(gpus.iter().all(|gpu| gpu.replays.load(Ordering::SeqCst) > 0), "decode steps are recorded");
    }
}

#[test]
fn long_contexts_of_keys_and_values_in_eight_bit_floats_answer_nearly_as_exact_ones() {
    for (dtype, dim, window) in
        [(Dtype::Bf16, 64, None), (Dtype::F16, 128, Some(100)), (Dtype::F32, 16, Some(100))]
    {
        let (Some(gpus), Some(exact)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
        let model = of_long_contexts(dtype, dim, window);
        let exact = long_logits(keep_on_gpus(&model, &exact, Keep::default()), model.seed);
        check_fp8(&model, &long_logits(keep_on_gpus(&model, &gpus, FP8), model.seed), &exact);
    }
}

#[test]
fn a_replayed_step_with_keys_and_values_in_eight_bits_gives_the_bits_of_a_launched_one() {
    let mut model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 103) };
    model.config.head_dim = 64;
    let (Some(recorded), Some(launched)) = (emulated::gpus(1), emulated::gpus(1)) else { return };
    launched[0].records.store(false, Ordering::SeqCst);
    for (keep, replayed) in [(Q8, 5), (FP8, 10)] {
        let run = |gpus: &[Arc<Emulated>]| run_keeping(gpus, &model, 6, keep).expect("nothing fails");
        assert_eq!(run(&recorded), run(&launched));
        let replays = [&recorded, &launched].map(|gpus| gpus[0].replays.load(Ordering::SeqCst));
        assert_eq!(replays, [replayed, 0]);
    }
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
        assert_eq!(error, format!("is {kv}; beside these weights a GPU keeps {own}, q8 or fp8"));
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

/// The numbers of one token and head as they are kept.
fn kept(kv: KvFormat, numbers: &[f32]) -> Vec<f32> {
    let most = numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let is_integer = kv == KvFormat::Q8;
    let scale = half::bf16::from_f32(most / if is_integer { 127.0 } else { 448.0 }).to_f32();
    let nearest = |x: f32| match is_integer {
        true => x.round_ties_even(),
        false => float8::F8E4M3::from_f32(x).to_f32(),
    };
    numbers.iter().map(|x| nearest(x * (1.0 / scale)) * scale).collect()
}

/// What the last token's query of a head reads of keys and values that are kept so; `None`: as they are.
fn attended(qkv: &[f32], (dim, head): (usize, usize), kv: Option<KvFormat>) -> Vec<f32> {
    let of = |token: usize, kind: usize| &qkv[((token * 3 + kind) * HEADS + head) * dim..][..dim];
    let all = |kind: usize| -> Vec<Vec<f32>> {
        let one = |token| kv.map_or_else(|| of(token, kind).to_vec(), |kv| kept(kv, of(token, kind)));
        (0..TOKENS).map(one).collect()
    };
    let (keys, values) = (all(1), all(2));
    let dot = |key: &[f32]| of(TOKENS - 1, 0).iter().zip(key).map(|(query, key)| query * key).sum::<f32>();
    let scores: Vec<f32> = keys.iter().map(|key| dot(key) / (dim as f32).sqrt()).collect();
    let highest = scores.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f32 = weights.iter().sum();
    let result = |i: usize| weights.iter().zip(&values).map(|(weight, value)| weight * value[i] / sum).sum();
    (0..dim).map(result).collect()
}

/// A kernel of attention: the width of a head, the beginning of its name, and whether activations are single precision.
type AttendKernel = (usize, &'static str, bool);

/// What the last token's query of each head reads on a GPU, of keys and values that the GPU has written.
fn attended_on_gpu(
    gpu: &Arc<dyn Gpu>,
    (dim, name, is_single): AttendKernel,
    kv: KvFormat,
    qkv: &[f32],
) -> Vec<Vec<f32>> {
    let on_gpu = |bytes: &[u8]| Buffer::of(gpu, bytes).expect("it fits");
    let ints = |numbers: &[i32]| on_gpu(&bytes_of_ints(numbers));
    let blocks: Vec<i32> = (0..(TOKENS / BLOCK) as i32).map(|block| (block * 7 + 3) % 25).collect();
    let cells: Vec<i32> =
        (0..TOKENS).map(|token| blocks[token / BLOCK] * BLOCK as i32 + (token % BLOCK) as i32).collect();
    let layer = (HEADS * BLOCK * (dim + 2)).next_multiple_of(16);
    let pool = Buffer::new(gpu, 25 * 2 * layer).expect("it fits");
    let last = TOKENS as i32 - 1;
    let task = ints(&[0, 0, 1, 0, TOKENS as i32]);
    let (part, row) = (ints(&[0, 0, TOKENS as i32, 0, 1, 0]), ints(&[last, last, last, 1]));
    let zeros = ints(&[0; TOKENS + 1]);
    let (cells, blocks, qkv) = (ints(&cells), ints(&blocks), on_gpu(&bytes_of(qkv, is_single)));
    let out = Buffer::new(gpu, 4 * TOKENS * HEADS * dim).expect("it fits");
    let at = |buffer: &Buffer| buffer.address().0;
    let arrays = [&zeros, &zeros, &zeros, &cells, &task, &task, &part, &row, &blocks, &zeros, &zeros, &zeros];
    let mut tables: Vec<u8> = arrays.iter().flat_map(|array| at(array).to_ne_bytes()).collect();
    tables.extend(bytes_of_ints(&[TOKENS as i32, 1, 1, 0]));
    let tables = on_gpu(&tables);
    let (keys, values) = (at(&pool), pool.address().at(layer).0);
    let heads = HEADS as i32;
    let shape = [heads, heads, dim as i32, 0, BLOCK as i32, 2 * layer as i32];
    let kernel = format!("{}_{}", kv.name(), if is_single { "f32" } else { "bf16" });
    let written = args(&[at(&tables), at(&qkv), keys, values, 0, 0], &shape, 0.0);
    let warps = TOKENS * 2 * HEADS;
    let grid = Grid { blocks: [warps.div_ceil(4) as u32, 1], threads: 128, shared: 0, cluster: 1 };
    gpu.launch(&format!("rotate_{kernel}"), grid, &written).expect("it runs");
    let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
    let numbers = [&shape[..], &[0]].concat();
    let read = args(&[at(&tables), at(&qkv), keys, values, 0, at(&out)], &numbers, scale);
    let shared = if is_single { 4 * (48 * (dim + 1) + 32 * dim) } else { 2 * dim * (64 + 256) };
    let grid = Grid { blocks: [HEADS as u32, 1], threads: 128, shared: shared as u32, cluster: 1 };
    gpu.launch(&format!("attend_{name}{kernel}"), grid, &read).expect("it runs");
    let mut found = vec![0; out.bytes() / if is_single { 1 } else { 2 }];
    gpu.read(out.address(), &mut found).expect("it is there");
    let found = numbers_of(&found, is_single);
    (0..HEADS).map(|head| found[((TOKENS - 1) * HEADS + head) * dim..][..dim].to_vec()).collect()
}

/// Each token and head is read under its own scale, that of its key and that of its value: sizes are some hundred
/// times apart, so that another one's would be seen at once.
#[test]
fn every_token_and_head_is_read_under_its_own_scales() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let kernels: [AttendKernel; 5] = [
        (20, "", true),
        (64, "flat_64_", false),
        (64, "tall_64_", false),
        (128, "flat_128_", false),
        (128, "tall_128_", false),
    ];
    for (kernel, kv) in kernels.into_iter().flat_map(|kernel| KEPT.map(|kv| (kernel, kv))) {
        let (dim, name, is_single) = kernel;
        let qkv = activations(dim, is_single);
        let found = attended_on_gpu(&gpu, kernel, kv, &qkv);
        for (head, found) in found.iter().enumerate() {
            let apart = difference(found, &attended(&qkv, (dim, head), Some(kv)));
            // On tensor cores queries and weights are rounded to bf16.
            let tolerance = if is_single { 1e-5 } else { 1e-2 };
            assert!(apart < tolerance, "attend_{name}{kv:?}, head {head}: {apart}");
        }
    }
}

const KEPT: [KvFormat; 2] = [KvFormat::Q8, KvFormat::Fp8];

/// Queries of zeros read the same values of all tokens as they are: every number of eight bits, under a scale of one.
#[test]
fn every_number_of_eight_bits_is_widened_to_itself() {
    const DIM: usize = 128;
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let float = |bits: usize| float8::F8E4M3::from_bits(bits as u8).to_f32();
    for (kv, name) in KEPT.into_iter().flat_map(|kv| ["flat_128_", "tall_128_"].map(|name| (kv, name))) {
        let number = |head: usize, i: usize| match (kv, head) {
            (KvFormat::Q8, 0) => i as f32 - 127.0,
            (KvFormat::Q8, _) => i as f32,
            // The last of them is none.
            (_, 0) => float(i.min(126)),
            (_, _) => -float(i.min(126)),
        };
        let of_part =
            |part: usize| (0..DIM).map(move |i| if part < HEADS { 0.0 } else { number(part % HEADS, i) });
        let qkv: Vec<f32> = (0..TOKENS * 3 * HEADS).flat_map(|at| of_part(at % (3 * HEADS))).collect();
        for (head, found) in attended_on_gpu(&gpu, (DIM, name, false), kv, &qkv).iter().enumerate() {
            let expected: Vec<f32> = (0..DIM).map(|i| number(head, i)).collect();
            assert_eq!(*found, expected, "{kv:?}, {name}, head {head}");
        }
    }
}

/// What speaks for either: integers are closer where no number is much larger than the others, and all that is small is
/// lost where one is.
#[test]
fn floats_keep_small_numbers_beside_a_large_one_and_integers_are_closer_without() {
    const DIM: usize = 20;
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let apart = |kv: KvFormat, has_large: bool| {
        let mut qkv = activations(DIM, true);
        for (at, vector) in qkv.chunks_exact_mut(DIM).enumerate() {
            if has_large {
                vector[0] = if at % (3 * HEADS) < HEADS { 0.0 } else { 900.0 };
            }
        }
        let found = attended_on_gpu(&gpu, (DIM, "", true), kv, &qkv);
        let one = |head: usize| difference(&found[head][1..], &attended(&qkv, (DIM, head), None)[1..]);
        (0..HEADS).map(one).fold(0.0_f32, f32::max)
    };
    let [q8, fp8] = KEPT.map(|kv| apart(kv, false));
    assert!(2.0 * q8 < fp8 && fp8 < 0.1, "{q8} {fp8}");
    let [q8, fp8] = KEPT.map(|kv| apart(kv, true));
    assert!(2.0 * fp8 < q8 && fp8 < 0.3, "{q8} {fp8}");
}

fn bytes_of_ints(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// A window may have passed all of a beginning that rows share. What is written of them then is that they saw nothing, and where it is
/// written is looked up after all warps have staged their rows: a second block runs them in the other order.
#[test]
fn tasks_of_many_rows_that_see_no_token_say_so_for_each_of_their_rows() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let buffer = |bytes: &[u8]| Buffer::of(&gpu, bytes).expect("it fits");
    let ints = |numbers: &[i32]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        buffer(&bytes)
    };
    let (rows, dim) = (128_usize, 64_usize);
    // Of the first and the last 64 rows; from the part's token 5 to token 5.
    let tasks = ints(&[0, 0, 64, 5, 5, 0, 64, 64, 5, 5]);
    let parts = ints(&[0, 0, 5, 0, 0, 0]);
    let readers = ints(&(0..rows as i32).flat_map(|row| [row, 0, 300, 0]).collect::<Vec<_>>());
    let blocks = ints(&[0]);
    // `Tables`: twelve addresses, then the numbers of tokens, of tasks of few and of many rows, and of rows that sample.
    let mut tables = [0_u64; 14];
    (tables[5], tables[6]) = (tasks.address().0, parts.address().0);
    (tables[7], tables[8]) = (readers.address().0, blocks.address().0);
    let mut bytes: Vec<u8> = tables[..12].iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend([rows as i32, 0, 2, 0].iter().flat_map(|number| number.to_ne_bytes()));
    let tables = buffer(&bytes);
    let (qkv, kept) = (buffer(&vec![0; 2 * rows * 3 * dim]), buffer(&vec![0; 1 << 16]));
    for kernel in ["attend_tall_64_bf16", "attend_tall_64_q8_bf16", "attend_tall_64_fp8_f16"] {
        let before: Vec<u8> =
            std::iter::repeat_n(7.0_f32.to_ne_bytes(), rows * (dim + 2)).flatten().collect();
        let (partials, out) = (buffer(&before), buffer(&vec![0; 2 * rows * dim]));
        let addresses =
            [&tables, &qkv, &kept, &kept, &partials, &out].map(|buffer| buffer.address().0.to_ne_bytes());
        // Heads, their width, pairs that turn, tokens of a block and its numbers, the window, then the scale.
        let numbers = [1, 1, dim as u32, 0, 16, 4096, 100, 1.0_f32.to_bits()].map(u32::to_ne_bytes);
        let args: Vec<u8> = addresses.concat().into_iter().chain(numbers.concat()).collect();
        let shared = ((64 + 2 * 2 * 64) * dim * 2) as u32;
        gpu.launch(kernel, Grid { blocks: [1, 2], threads: 128, shared, cluster: 1 }, &args)
            .expect("it runs");
        let mut bytes = vec![0; partials.bytes()];
        gpu.read(partials.address(), &mut bytes).expect("it is there");
        let found: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|number| f32::from_ne_bytes(*number)).collect();
        for (row, one) in found.chunks_exact(dim + 2).enumerate() {
            assert!(one[..dim].iter().all(|number| *number == 0.0), "{kernel}, row {row}: {:?}", &one[..4]);
            assert_eq!(one[dim..], [-1e30, 0.0], "{kernel}, row {row}");
        }
    }
}
