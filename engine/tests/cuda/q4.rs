//! Weights of four bits: the kernels by themselves, and models against the processor with the very same numbers.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::TokenId;
use engine::checkpoint::config::Family;
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::gguf::{Gguf, GgufWeights};
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint::weights::MapWeights;
use engine::checkpoint::{Dtype, WeightSource};
use engine::device::Cpu;
use engine::device::cuda::{Buffer, Element, Factors, Gpu, Grid, Linear};
use engine::parallel::ShardedModel;
use engine::{Keep, Quantize};
use half::f16;

use super::common::{self, Blocks, Row, difference, tokens};
use super::emulated::{self, Emulated};
use super::on_card;
use super::{BLOCK, FAMILIES, Running, compare, load, logits, long_logits, of_long_contexts};

const Q4: Keep = Keep { dtype: None, quantize: Some(Quantize::Q4), kv: None };

/// Weights as groups of 32 inputs keep them: 15 steps from the least to the greatest, both ends in half precision.
fn rounded(weights: &[f32], inputs: usize) -> Vec<f32> {
    let group = |group: &[f32]| {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let [scale, minimum] = [(most - least) / 15.0, least].map(|end| f16::from_f32(end).to_f32());
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let number = |weight: &f32| ((weight - minimum) * inverse).round().clamp(0.0, 15.0);
        group.iter().map(|weight| number(weight) * scale + minimum).collect::<Vec<f32>>()
    };
    weights.chunks(inputs).flat_map(|row| row.chunks(32)).flat_map(group).collect()
}

/// Whether a tensor is a matrix of a layer.
fn is_of_layer(name: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && [".layers.", ".h."].iter().any(|part| name.contains(part))
}

/// A model's weights as they are kept in four bits, in single precision.
fn meant(model: &Synthetic) -> MapWeights {
    let (weights, mut meant) = (model.weights(), MapWeights::default());
    for name in weights.names() {
        let tensor = weights.tensor(&name).expect("it is there");
        let numbers = tensor.to_f32();
        let numbers = match is_of_layer(&name, &tensor.shape) {
            true => rounded(&numbers, tensor.shape[1]),
            false => numbers,
        };
        meant.insert(&name, Dtype::F32, &tensor.shape, &numbers);
    }
    meant
}

/// A model of these weights on the processor.
fn on_cpu(model: &Synthetic, weights: &dyn WeightSource, quantize: Option<Quantize>) -> ShardedModel {
    let cpu = Arc::new(Cpu::with_isa(Some(2), common::widening()).expect("threads start"));
    let keep = Keep { quantize, ..common::keep(common::widening()) };
    ShardedModel::load(&model.config, weights, &[cpu], keep).expect("the model is complete")
}

/// The same on a GPU.
fn on_gpu(model: &Synthetic, weights: &dyn WeightSource, gpu: &Arc<Emulated>, keep: Keep) -> ShardedModel {
    let gpus = [Arc::clone(gpu) as Arc<dyn Gpu>];
    let cpus = [Arc::new(Cpu::new(Some(1)).expect("a thread starts"))];
    ShardedModel::load_on_gpus(&model.config, weights, (&gpus, &cpus), keep).expect("it fits")
}

/// A small model whose groups two ranks share without cutting any.
fn model(family: Family, dtype: Dtype, intermediate: usize) -> Synthetic {
    let mut model = Synthetic { dtype, ..Synthetic::tiny(family, 61) };
    (model.config.head_dim, model.config.intermediate) = (16, intermediate);
    model
}

#[test]
fn logits_of_four_bits_are_the_processors_with_the_same_numbers() {
    let several = FAMILIES.map(|family| (family, Dtype::F32, 72, 1)); // the last group of `down` is a part of one
    let more = [
        (Family::Llama, Dtype::F32, 128, 2),
        (Family::Opt, Dtype::F32, 128, 2),
        (Family::Qwen2, Dtype::Bf16, 72, 1),
        (Family::Falcon, Dtype::Bf16, 72, 1),
        (Family::Opt, Dtype::F16, 72, 1),
    ];
    for (family, dtype, intermediate, ranks) in several.into_iter().chain(more) {
        let Some(gpus) = emulated::gpus(ranks) else { return };
        let model = model(family, dtype, intermediate);
        let found = logits(load(&model, &gpus, Q4).expect("it fits"), model.seed);
        let expected = logits(on_cpu(&model, &meant(&model), None), model.seed);
        compare(&model, &found, &expected, "four bits");
        assert!(gpus.iter().all(|gpu| gpu.replays.load(Ordering::SeqCst) > 0), "decode steps are recorded");
        // They are not the weights as they were.
        let plain = logits(on_cpu(&model, &model.weights(), None), model.seed);
        let apart = found.iter().zip(&plain).map(|(found, plain)| difference(found, plain));
        assert!(apart.sum::<f32>() / found.len() as f32 > 5e-3, "{family:?}");
    }
}

/// The processor rounds activations to eight bits to meet them, and keeps the vocabulary in eight.
#[test]
fn logits_of_four_bits_are_nearly_the_processors_of_four_bits() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let model = model(Family::Llama, Dtype::F32, 128);
    let found = logits(load(&model, &gpus, Q4).expect("it fits"), model.seed);
    let expected = logits(on_cpu(&model, &model.weights(), Some(Quantize::Q4)), model.seed);
    let apart = found.iter().zip(&expected).map(|(found, expected)| difference(found, expected));
    let mean = apart.sum::<f32>() / found.len() as f32;
    assert!(mean < 0.08, "{mean}");
}

#[test]
fn logits_of_four_bits_on_a_card_are_the_processors_with_the_same_numbers() {
    let Some(cuda) = on_card::runtime() else { return };
    for (family, dtype) in
        [(Family::Llama, Dtype::F32), (Family::Qwen2, Dtype::Bf16), (Family::Opt, Dtype::F16)]
    {
        let model = model(family, dtype, 72);
        let gpus = cuda.open(&[0], false).expect("the GPU opens");
        let found = logits(on_card::load_on_card(&model, &gpus, Q4), model.seed);
        compare(
            &model,
            &found,
            &logits(on_cpu(&model, &meant(&model), None), model.seed),
            "a card, four bits",
        );
    }
    let model = of_long_contexts(Dtype::Bf16, 64, None);
    let gpus = cuda.open(&[0], false).expect("the GPU opens");
    let found = long_logits(on_card::load_on_card(&model, &gpus, Q4), model.seed);
    compare(
        &model,
        &found,
        &long_logits(on_cpu(&model, &meant(&model), None), model.seed),
        "a card, unpacked",
    );
}

#[test]
fn long_prompts_read_weights_of_four_bits_that_are_unpacked() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let model = of_long_contexts(Dtype::Bf16, 64, None);
    let found = long_logits(load(&model, &gpus, Q4).expect("it fits"), model.seed);
    let expected = long_logits(on_cpu(&model, &meant(&model), None), model.seed);
    compare(&model, &found, &expected, "four bits, a long context");
}

#[test]
fn a_replayed_step_of_four_bits_gives_the_bits_of_a_launched_one() {
    let model = model(Family::Llama, Dtype::Bf16, 128);
    let found = [true, false].map(|records| {
        let gpus = emulated::gpus(1)?;
        gpus[0].records.store(records, Ordering::SeqCst);
        let mut running = Running::new(load(&model, &gpus, Q4).expect("it fits"));
        let mut row = Row::new(1, tokens(model.seed, 30), 96, BLOCK, &mut Blocks::default());
        let mut found = running.compute(&[row.slot(0..30)]).expect("nothing fails");
        for token in 0..4 {
            row.tokens.push(TokenId(5 * token + 1));
            found.extend(running.compute(&[row.decode()]).expect("nothing fails"));
        }
        assert_eq!(gpus[0].replays.load(Ordering::SeqCst) > 0, records);
        Some(found)
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn weights_take_five_bits_each_and_others_what_they_took() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut model = model(Family::Llama, Dtype::Bf16, 128);
    (model.config.hidden, model.config.embedding) = (64, 64);
    let bytes = |keep| load(&model, &gpus, keep).expect("it fits").step_bytes();
    let of_layer = 64 * (4 + 2 + 2) * 16 + 64 * 64 + 3 * 64 * 128;
    let head = model.config.vocab * 64 * 2;
    assert_eq!(bytes(Keep::default()), 2 * of_layer * 2 + head);
    assert_eq!(bytes(Q4), 2 * of_layer * 5 / 8 + head);
}

#[test]
fn blocks_of_four_bits_are_read_as_they_are_stored_and_others_as_they_were() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut model = Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 62) };
    let config = &mut model.config; // rows of whole blocks of 256
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (256, 256, 256, 64);
    let dtype = Some(Dtype::F32);
    // Scales and minima of Q4_K are rounded to half precision; the others are what they mean, in single precision.
    for (format, tolerance) in
        [(BlockFormat::Q4_0, 1e-4), (BlockFormat::Q4K, 5e-3), (BlockFormat::Q8_0, 1e-4)]
    {
        let bytes = model.gguf(format).expect("it is complete").finish();
        let gguf = Gguf::from_bytes("x", Cow::Owned(bytes)).expect("valid");
        let source = GgufWeights::new(gguf, &model.config);
        let mut stored = MapWeights::default();
        for name in source.names() {
            let tensor = source.exact(&name).expect("it is in the file");
            stored.insert(&name, Dtype::F32, &tensor.shape, &tensor.to_f32());
        }
        let q4 = on_gpu(&model, &source, &gpus[0], Keep { dtype, ..Q4 });
        let plain = on_gpu(&model, &source, &gpus[0], Keep { dtype, ..Keep::default() });
        let is_packed = q4.step_bytes() < plain.step_bytes();
        assert_eq!(is_packed, format != BlockFormat::Q8_0, "whoever stored more bits knew why");
        let expected = logits(on_cpu(&model, &stored, None), model.seed);
        for (found, expected) in logits(q4, model.seed).iter().zip(&expected) {
            let apart = difference(found, expected);
            assert!(apart < tolerance, "{format:?}: {apart}");
        }
    }
}

#[test]
fn rows_of_weights_that_are_no_whole_eights_are_refused_by_name() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let mut model = Synthetic::tiny(Family::Llama, 63);
    model.config.intermediate = 44;
    let error = load(&model, &gpus, Q4).map(drop).expect_err("44 is no multiple of 8").to_string();
    let module = "model.layers.0.mlp.down_proj";
    assert_eq!(error, format!("is q4, but `{module}` has 44 inputs, no multiple of 8"));
}

/// A matrix of four bits in tiles, and what it means: written by the layout that kernels/q4.cuh states.
pub(crate) fn tiles(outputs: usize, inputs: usize) -> (Vec<u8>, Vec<f32>) {
    let across = inputs.div_ceil(64);
    let mut packed = vec![0_u8; outputs.next_multiple_of(32) / 16 * across * 640];
    let mut weights = vec![0.0; outputs * inputs];
    for output in 0..outputs {
        for input in 0..inputs {
            let (group, within) = (input / 32, input % 32);
            let seed = output * 31 + group * 7;
            let scale = f16::from_f32(0.01 * (1 + seed % 40) as f32);
            let minimum = f16::from_f32(-0.002 * (seed % 90) as f32);
            let number = (output * 5 + input * 11 + input / 16) % 16;
            weights[output * inputs + input] = number as f32 * scale.to_f32() + minimum.to_f32();
            let tile = &mut packed[(output / 16 * across + input / 64) * 640..][..640];
            let word = 2 * (group % 2) + output % 16 / 8;
            let lane = output % 8 * 4 + within / 8;
            let bit = within % 8 / 2 * 4 + within % 2 * 16;
            tile[lane * 16 + word * 4 + bit / 8] |= (number << (bit % 8)) as u8;
            let ends = &mut tile[512 + output % 8 * 16 + word * 4..][..4];
            ends[..2].copy_from_slice(&scale.to_le_bytes());
            ends[2..].copy_from_slice(&minimum.to_le_bytes());
        }
    }
    (packed, weights)
}

/// Numbers in a kind, and what they are then.
pub(crate) fn kept(element: Element, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let one = |number: &f32| match element {
        Element::F32 => (number.to_le_bytes().to_vec(), *number),
        Element::Bf16 => {
            let half = half::bf16::from_f32(*number);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
        Element::F16 => {
            let half = f16::from_f32(*number);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
    };
    let (bytes, numbers): (Vec<Vec<u8>>, Vec<f32>) = numbers.iter().map(one).unzip();
    (bytes.concat(), numbers)
}

/// The numbers that bytes of a kind are.
pub(crate) fn read(gpu: &Arc<dyn Gpu>, buffer: &Buffer, element: Element, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * element.bytes()];
    gpu.read(buffer.address(), &mut bytes).expect("it is there");
    let number = |bytes: &[u8]| match (element, bytes) {
        (Element::F32, bytes) => f32::from_le_bytes(bytes.try_into().expect("four bytes")),
        (Element::Bf16, bytes) => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        (Element::F16, bytes) => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    };
    bytes.chunks_exact(element.bytes()).map(number).collect()
}

#[test]
fn products_of_four_bits_are_the_sums_over_their_inputs() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let buffer = |bytes: &[u8]| Buffer::of(&gpu, bytes).expect("it fits");
    let wave = |pace: f32, count: usize| -> Vec<f32> {
        (0..count).map(|at| 1.5 * ((at % 9_973) as f32 * pace).sin()).collect()
    };
    // A part of a group; of a tile; several rounds of each warp, the last of them of some lanes only; several pieces of a block.
    for (outputs, inputs) in [(16, 8), (50, 104), (33, 2_200), (160, 640)] {
        let (packed, w) = tiles(outputs, inputs);
        let w_buffer = buffer(&packed);
        for (element, rows) in [
            (Element::Bf16, 1),
            (Element::F16, 8),
            (Element::Bf16, 11),
            (Element::F16, 29),
            (Element::Bf16, 32),
        ] {
            for (out, adds) in [(Element::F32, true), (element, false)] {
                let (x_bytes, x) = kept(element, &wave(0.71, rows * inputs));
                let (bias_bytes, bias) = kept(out, &wave(2.3, outputs));
                let (before_bytes, before) = kept(out, &wave(1.3, rows * outputs));
                let [x_buffer, bias_buffer, y] =
                    [&x_bytes, &bias_bytes, &before_bytes].map(|bytes| buffer(bytes));
                let product = Linear {
                    rows,
                    outputs,
                    inputs,
                    factors: Factors::Q4(element),
                    x: x_buffer.address(),
                    w: w_buffer.address(),
                    bias: Some(bias_buffer.address()),
                    y: y.address(),
                    out,
                    adds,
                    scales: None,
                    gate: None,
                };
                gpu.linear(&product).expect("it runs");
                // Clusters of blocks multiply with what a matrix is unpacked to.
                let unpacked = product.split().map(|_| kept(element, &w).1);
                let w = unpacked.as_ref().unwrap_or(&w);
                for (at, found) in read(&gpu, &y, out, rows * outputs).into_iter().enumerate() {
                    let (row, output) = (at / outputs, at % outputs);
                    let pairs = x[row * inputs..][..inputs].iter().zip(&w[output * inputs..][..inputs]);
                    let pairs = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let size: f64 = pairs.clone().map(f64::abs).sum();
                    let expected = pairs.sum::<f64>()
                        + f64::from(bias[output])
                        + if adds { f64::from(before[at]) } else { 0.0 };
                    let least = match out {
                        Element::F32 => 0.0,
                        Element::Bf16 => expected.abs() / 250.0,
                        Element::F16 => expected.abs() / 2_000.0,
                    };
                    let bound = least + 1e-4 + 1e-4 * size;
                    let apart = (f64::from(found) - expected).abs();
                    assert!(
                        apart < bound,
                        "{element:?} {inputs} {rows} {out:?}, {at}: {found} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn four_bits_are_unpacked_to_what_they_mean() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    for (outputs, inputs) in [(16, 8), (50, 104), (33, 616)] {
        let (packed, w) = tiles(outputs, inputs);
        let from = Buffer::of(&gpu, &packed).expect("it fits");
        for (name, element) in [("f32", Element::F32), ("bf16", Element::Bf16), ("f16", Element::F16)] {
            let to = Buffer::new(&gpu, outputs * inputs * element.bytes()).expect("it fits");
            let addresses = [from.address().0, to.address().0].map(u64::to_ne_bytes);
            let numbers = [outputs as i32, inputs as i32].map(i32::to_ne_bytes);
            let args = [addresses.as_flattened(), numbers.as_flattened()].concat();
            let blocks = [outputs.div_ceil(16) as u32, inputs.div_ceil(512) as u32];
            let grid = Grid { blocks, threads: 256, shared: 0, cluster: 1 };
            gpu.launch(&format!("unpack_q4_{name}"), grid, &args).expect("it runs");
            assert_eq!(read(&gpu, &to, element, outputs * inputs), kept(element, &w).1, "{name}");
        }
    }
}
