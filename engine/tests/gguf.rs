//! A model gives the same logits out of a GGUF file as out of the folder that the file was made of; what
//! blocks round away stays within a stated divergence.

mod common;

use std::borrow::Cow;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use base::{Role, TokenId, Tokenizer as _};
use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use candle_transformers::models::{quantized_llama, quantized_qwen2};
use common::{Bare, Blocks, Row, decoder, difference, keep, tokens};
use engine::checkpoint::config::{Family, LocalLayers, ModelConfig, Position, Residual, RopeScaling};
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::gguf::convert::Conversion;
use engine::checkpoint::gguf::{Gguf, GgufWeights, read_config};
use engine::checkpoint::shapes::check_tensors;
use engine::checkpoint::synthetic_text::{END_OF_TEXT, tokenizer_json};
use engine::checkpoint::weights::MapWeights;
use engine::checkpoint::{Dtype, Synthetic, Unfused, WeightSource};
use engine::checkpoint_reader::Checkpoint;
use engine::decoder::{Decoder, LoadOptions};
use engine::device::{Cpu, Isa};
use engine::{Keep, KvFormat, Quantize};

const FAMILIES: [Family; 4] = [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3];

/// A file with these weights.
fn file(config: &ModelConfig, weights: &dyn WeightSource, format: BlockFormat) -> Vec<u8> {
    let tokenizer = &tokenizer_json();
    let conversion =
        Conversion { config, weights, format, tokenizer, pre: "gpt-2", end: END_OF_TEXT, template: None };
    conversion.writer().expect("the weights are complete").finish()
}

/// A file's decoder, and the configuration that it states.
fn open(bytes: Vec<u8>) -> (Decoder, ModelConfig) {
    let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(bytes)).expect("a valid file");
    let config = read_config(&gguf).expect("a known shape");
    let weights = Unfused::stacked(GgufWeights::new(gguf, &config), &config);
    check_tensors(&config, &weights).expect("all tensors in their shapes");
    (load(&config, &weights), config)
}

fn load(config: &ModelConfig, weights: &dyn WeightSource) -> Decoder {
    load_keeping(keep(Isa::detect()), config, weights)
}

fn load_keeping(keep: Keep, config: &ModelConfig, weights: &dyn WeightSource) -> Decoder {
    let cpu = Arc::new(Cpu::with_isa(Some(2), Isa::detect()).expect("threads start"));
    Decoder::load(config, weights, LoadOptions { cpu, keep }).expect("the weights are complete")
}

/// Logits behind a prompt.
fn logits(decoder: Decoder, prompt: &[TokenId]) -> Vec<f32> {
    let row = Row::new(1, prompt.to_vec(), prompt.len(), 16, &mut Blocks::default());
    Bare::new(decoder, 16).logits(&[row.slot(0..prompt.len())]).remove(0)
}

/// Kullback-Leibler divergence of what is sampled from `found` rather than from `exact`, in nats.
fn divergence(exact: &[f32], found: &[f32]) -> f64 {
    let log_softmax = |logits: &[f32]| {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shifted: Vec<f64> = logits.iter().map(|x| f64::from(x - most)).collect();
        let sum = shifted.iter().map(|x| x.exp()).sum::<f64>().ln();
        shifted.into_iter().map(move |x| x - sum).collect::<Vec<f64>>()
    };
    let (exact, found) = (log_softmax(exact), log_softmax(found));
    exact.iter().zip(&found).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// Every family, and what differs within families.
fn variants() -> Vec<Synthetic> {
    let mut all: Vec<Synthetic> = FAMILIES.iter().map(|family| Synthetic::tiny(*family, 3)).collect();
    for family in FAMILIES {
        let mut model = Synthetic::tiny(family, 4);
        model.config.tied_head = true;
        model.config.position = Position::Rotary { theta: 5e5, scaling: RopeScaling::Linear { factor: 4.0 } };
        all.push(model);
    }
    let mut model = Synthetic::tiny(Family::Llama, 5);
    let config = &mut model.config;
    (config.qkv_bias, config.out_bias, config.mlp_bias, config.head_dim) = (true, true, true, 24);
    all.push(model);
    let mut model = Synthetic::tiny(Family::Mistral, 6);
    model.config.sliding_window = Some(11);
    all.push(model);
    for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 8.0 }] {
        let mut model = Synthetic::tiny(Family::Gemma3, 7);
        let config = &mut model.config;
        (config.layers, config.score_scale) = (7, Some(1.0 / (config.head_dim as f32).sqrt()));
        config.position = Position::Rotary { theta: 1e6, scaling };
        // In GGUF the sixth of six layers is global, whatever a folder may say.
        let is_local = vec![true, true, true, true, true, false, true];
        config.local_layers = Some(LocalLayers { is_local, theta: 500.0 });
        all.push(model);
    }
    let mut model = Synthetic::tiny(Family::Gemma2, 7);
    model.config.score_scale = Some(1.0 / (model.config.head_dim as f32).sqrt());
    all.push(model);
    for qkv_clip in [None, Some(1.5)] {
        let mut model = Synthetic::tiny(Family::Mpt, 8);
        model.config.qkv_clip = qkv_clip;
        all.push(model);
    }
    for (kv_heads, shares_norm) in [(1, true), (2, true), (2, false)] {
        let mut model = Synthetic::tiny(Family::Falcon, 9);
        (model.config.kv_heads, model.config.residual) = (kv_heads, Residual::Parallel { shares_norm });
        model.config.tied_head = shares_norm;
        all.push(model);
    }
    all
}

#[test]
fn a_file_has_the_configuration_and_the_exact_logits_of_its_folder() {
    for (dtype, format) in
        [(Dtype::F32, BlockFormat::F32), (Dtype::F16, BlockFormat::F16), (Dtype::Bf16, BlockFormat::Bf16)]
    {
        for variant in variants() {
            let model = Synthetic { dtype, ..variant };
            let weights = model.weights();
            let (found, config) = open(file(&model.config, &weights, format));
            // Mistral models call themselves llama in GGUF; nothing but tensor names hangs on it.
            let family = if model.config.family == Family::Mistral { Family::Llama } else { config.family };
            // Whoever writes such a file adds the 1 that a folder leaves out.
            let expected = ModelConfig { family, norm_above_one: false, ..model.config.clone() };
            assert_eq!(config, expected);
            let prompt = tokens(model.seed, 40);
            assert_eq!(logits(found, &prompt), logits(decoder(&model, &weights), &prompt), "{config:?}");
        }
    }
}

#[test]
fn a_file_has_the_logits_that_candle_reads_out_of_it() {
    for (family, seed) in [(Family::Llama, 7), (Family::Qwen2, 8)] {
        let model = Synthetic::tiny(family, seed);
        let bytes = file(&model.config, &model.weights(), BlockFormat::F32);
        let prompt = tokens(seed, 40);
        let ids: Vec<u32> = prompt.iter().map(|token| token.0).collect();
        let input = candle_core::Tensor::new(&ids[..], &Device::Cpu).and_then(|ids| ids.unsqueeze(0));
        let input = input.expect("a row of ids");
        let mut cursor = Cursor::new(&bytes);
        let content = Content::read(&mut cursor).expect("candle reads the file");
        let expected = match family {
            Family::Llama => {
                let model = quantized_llama::ModelWeights::from_gguf(content, &mut cursor, &Device::Cpu);
                model.expect("candle finds all it needs").forward(&input, 0)
            }
            _ => {
                let model = quantized_qwen2::ModelWeights::from_gguf(content, &mut cursor, &Device::Cpu);
                model.expect("candle finds all it needs").forward(&input, 0)
            }
        };
        let expected = expected.and_then(|logits| logits.flatten_all()?.to_vec1::<f32>()).expect("logits");
        let apart = difference(&logits(open(bytes).0, &prompt), &expected);
        assert!(apart < 1e-4, "{family:?}: {apart}");
    }
}

#[test]
fn stored_rotary_factors_give_the_logits_of_llama3_scaling() {
    let mut model = Synthetic::tiny(Family::Llama, 9);
    (model.config.hidden, model.config.embedding, model.config.head_dim) = (64, 64, 16);
    let (factor, low, high, original) = (8.0_f64, 1.0_f64, 4.0_f64, 32.0_f64);
    let scaling = RopeScaling::Llama3 {
        factor: factor as f32,
        low_freq_factor: low as f32,
        high_freq_factor: high as f32,
        original_context: original as u32,
    };
    model.config.position = Position::Rotary { theta: 10_000.0, scaling };
    let weights = model.weights();
    let prompt = tokens(1, 60);
    let expected = logits(decoder(&model, &weights), &prompt);
    // As llama.cpp's converter computes them, from wave lengths.
    let factors: Vec<f32> = (0..8)
        .map(|pair| {
            let wave = std::f64::consts::TAU * 10_000.0_f64.powf(f64::from(pair) / 8.0);
            if wave < original / high {
                1.0
            } else if wave > original / low {
                factor as f32
            } else {
                let smooth = (original / wave - low) / (high - low);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            }
        })
        .collect();
    let mut stored = weights.clone();
    stored.insert("model.rope_freqs.weight", Dtype::F32, &[8], &factors);
    model.config.position = Position::Rotary { theta: 10_000.0, scaling: RopeScaling::Stored };
    let (found, config) = open(file(&model.config, &stored, BlockFormat::F32));
    assert_eq!(config.position, model.config.position);
    assert!(difference(&logits(found, &prompt), &expected) < 1e-4);
    let plain = Position::Rotary { theta: 10_000.0, scaling: RopeScaling::None };
    let unscaled = Synthetic { config: ModelConfig { position: plain, ..model.config }, ..model };
    assert!(difference(&logits(decoder(&unscaled, &weights), &prompt), &expected) > 1e-2);
}

#[test]
fn blocks_are_multiplied_as_the_bf16_numbers_they_mean() {
    let mut model = Synthetic::tiny(Family::Llama, 10);
    let config = &mut model.config;
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (256, 256, 512, 64);
    let weights = model.weights();
    let prompts: Vec<Vec<TokenId>> = (0..16).map(|seed| tokens(seed, 30)).collect();
    let all_logits = |decoder: Decoder| -> Vec<Vec<f32>> {
        let mut bare = Bare::new(decoder, 16);
        let rows = prompts.iter().map(|prompt| Row::new(1, prompt.clone(), 30, 16, &mut Blocks::default()));
        rows.map(|row| bare.logits(&[row.slot(0..30)]).remove(0)).collect()
    };
    let exact_logits = all_logits(load(&model.config, &weights));
    // The largest error: half a step of the largest number that a block may hold, the rounding of its scales,
    // and that to bf16. The divergence is that of random weights, whose logits spread by 9: some hundred
    // times a trained model's, below.
    for (format, most_apart, most_nats) in [
        (BlockFormat::Q8_0, 0.5 / 127.0 + 0.005, 0.02),
        (BlockFormat::Q4_0, 1.0 / 8.0 + 0.005, 1.5),
        (BlockFormat::Q4K, 1.0 / 15.0 + 0.02, 1.5),
    ] {
        let bytes = file(&model.config, &weights, format);
        let gguf = Gguf::from_bytes("x", Cow::Owned(bytes.clone())).expect("a valid file");
        let source = GgufWeights::new(gguf, &model.config);
        let mut rounded = MapWeights::default();
        for name in weights.names() {
            let tensor = source.tensor(&name).expect("it is in the file");
            let dtype = if tensor.shape.len() == 2 { Dtype::Bf16 } else { Dtype::F32 };
            assert_eq!(source.layout(&name).expect("it is"), (dtype, tensor.shape.clone()), "{name}");
            let (values, exact) = (tensor.to_f32(), weights.tensor(&name).expect("it is").to_f32());
            let most = exact.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let apart = values.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart <= most_apart * most, "{format:?} {name}: {apart} of {most}");
            rounded.insert(&name, tensor.dtype, &tensor.shape, &values);
        }
        let found = all_logits(open(bytes).0);
        assert_eq!(found, all_logits(load(&model.config, &rounded)));
        let nats =
            exact_logits.iter().zip(&found).map(|(exact, found)| divergence(exact, found)).sum::<f64>();
        let nats = nats / prompts.len() as f64;
        println!("{}: {nats:.2e} nats", format.name());
        assert!(nats < most_nats, "{format:?}: {nats} nats");
    }
}

/// The numbers that a file's blocks mean, all in single precision but the embedding, which no product reads.
fn as_stored(source: &GgufWeights, format: BlockFormat) -> MapWeights {
    let mut exact = MapWeights::default();
    for name in source.names() {
        let tensor = source.tensor(&name).expect("it is in the file");
        let blocks = source.blocks(&name).expect("it is in the file");
        match blocks.filter(|_| name != "model.embed_tokens.weight") {
            Some(blocks) => {
                assert_eq!(blocks.format, format);
                let values: Vec<f32> = blocks.rows().flat_map(|row| format.to_f32(row)).collect();
                assert_ne!(values, tensor.to_f32(), "bf16 would have rounded them once more");
                exact.insert(&name, Dtype::F32, &tensor.shape, &values);
            }
            None => exact.insert(&name, tensor.dtype, &tensor.shape, &tensor.to_f32()),
        }
    }
    exact
}

#[test]
fn blocks_meet_the_kernels_of_their_bits_as_they_are_stored() {
    let mut model = Synthetic::tiny(Family::Llama, 12);
    let config = &mut model.config; // whose rows fill blocks of 256, and so groups of 32
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (256, 256, 512, 64);
    let (weights, prompt) = (model.weights(), tokens(3, 30));
    for (format, quantize) in [
        (BlockFormat::Q8_0, Quantize::Q8),
        (BlockFormat::Q8_0, Quantize::Q4), // nothing is rounded to fewer bits than it is stored in
        (BlockFormat::Q4_0, Quantize::Q4),
    ] {
        let bytes = file(&model.config, &weights, format);
        let gguf = Gguf::from_bytes("x", Cow::Owned(bytes)).expect("valid");
        let source = GgufWeights::new(gguf, &model.config);
        let logits_of = |weights: &dyn WeightSource, quantize| {
            let keep = Keep { quantize: Some(quantize), ..Keep::default() };
            logits(load_keeping(keep, &model.config, weights), &prompt)
        };
        let exact = as_stored(&source, format);
        let found = logits_of(&source, quantize);
        // The same numbers, rounded again where they are in eight bits: in groups of 128, so not quite the same.
        // In f32 they meet activations that are not rounded.
        let plain = logits(load_keeping(Keep::default(), &model.config, &exact), &prompt);
        let spread = plain.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let apart = found.iter().zip(&plain).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart <= 0.03 * spread, "{format:?} as {quantize:?}: {apart} of {spread}");
        let of_bf16 = logits(load_keeping(Keep::default(), &model.config, &weights), &prompt);
        let from_weights = found.iter().zip(&of_bf16).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if format == BlockFormat::Q4_0 {
            assert!(from_weights > 3.0 * apart, "the file's rounding is what differs: {from_weights}");
        }
    }
}

#[test]
fn blocks_of_eight_bits_are_not_rounded_again_but_to_wider_groups() {
    let mut model = Synthetic::tiny(Family::Llama, 12);
    let config = &mut model.config; // whose rows fill groups of 32, and no larger ones
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (96, 96, 160, 24);
    let (weights, prompt) = (model.weights(), tokens(3, 30));
    let bytes = file(&model.config, &weights, BlockFormat::Q8_0);
    let source = GgufWeights::new(Gguf::from_bytes("x", Cow::Owned(bytes)).expect("valid"), &model.config);
    let exact = as_stored(&source, BlockFormat::Q8_0);
    let found = |weights: &dyn WeightSource, quantize| {
        let keep = Keep { quantize: Some(quantize), ..Keep::default() };
        logits(load_keeping(keep, &model.config, weights), &prompt)
    };
    let as_they_are = found(&source, Quantize::Q8);
    assert_eq!(as_they_are, found(&exact, Quantize::Q8));
    // But to wider groups, where these are asked for: other numbers, nearly the same, and rounded once more, not twice.
    let wider = found(&source, Quantize::Q8Wide);
    assert_eq!(wider, found(&exact, Quantize::Q8Wide));
    let spread = as_they_are.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let apart = wider.iter().zip(&as_they_are).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart > 0.0 && apart < 0.1 * spread, "{apart} of {spread}");
}

#[test]
fn blocks_are_not_rounded_on_the_way_to_single_precision_or_to_integers() {
    for (family, format) in [
        (Family::Llama, BlockFormat::Q8_0),
        (Family::Llama, BlockFormat::Q4K),
        (Family::Falcon, BlockFormat::Q4_0), // whose queries, keys and values are one tensor
    ] {
        let mut model = Synthetic::tiny(family, 12);
        let config = &mut model.config; // whose rows fill blocks of 256
        (config.hidden, config.embedding, config.intermediate, config.head_dim) = (256, 256, 512, 64);
        let (prompt, bytes) = (tokens(3, 30), file(&model.config, &model.weights(), format));
        let gguf = Gguf::from_bytes("x", Cow::Owned(bytes)).expect("valid");
        let source = Unfused::stacked(GgufWeights::new(gguf, &model.config), &model.config);
        let (mut exact, mut rounded) = (MapWeights::default(), MapWeights::default());
        for name in source.names() {
            let tensor = source.tensor(&name).expect("it is in the file");
            let values = match source.blocks(&name).expect("it is in the file") {
                Some(blocks) => blocks.rows().flat_map(|row| format.to_f32(row)).collect(),
                None => tensor.to_f32(),
            };
            exact.insert(&name, Dtype::F32, &tensor.shape, &values);
            rounded.insert(&name, Dtype::F32, &tensor.shape, &tensor.to_f32());
        }
        let single = Keep { dtype: Some(Dtype::F32), quantize: None, kv: Some(KvFormat::F32) };
        let found = |weights: &dyn WeightSource, quantize| {
            logits(load_keeping(Keep { quantize, ..single }, &model.config, weights), &prompt)
        };
        let kept = found(&source, None);
        assert_eq!(kept, found(&exact, None), "{family:?} {format:?}");
        assert_ne!(kept, found(&rounded, None), "{family:?} {format:?}: bf16 is something else");
        // Where a file's own integers are not kept, what they mean is rounded once.
        let quantize = if format == BlockFormat::Q8_0 { Quantize::Q8Wide } else { Quantize::Q8 };
        let in_eight_bits = found(&source, Some(quantize));
        assert_eq!(in_eight_bits, found(&exact, Some(quantize)), "{family:?} {format:?}");
    }
}

/// Mean divergence of the demo model's next tokens behind real prompts, when its weights are stored as
/// blocks; greedy tokens that differ.
fn demo_divergence(format: BlockFormat) -> (f64, usize) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let folder = repository.join("models/demo");
    let demo = Checkpoint::folder(&folder, None).expect("the demo model opens");
    let answers = std::fs::read_to_string(folder.join("answers.json")).expect("it is shipped");
    let answers: serde_json::Value = serde_json::from_str(&answers).expect("JSON");
    let (mut exact, mut found) = (
        Bare::new(load(&demo.config, &demo.weights), 16),
        Bare::new(open(file(&demo.config, &demo.weights, format)).0, 16),
    );
    let (mut sum, mut other) = (0.0, 0);
    let prompts = answers.as_array().expect("a list");
    for pair in prompts {
        let frame = base::ChatTemplate::frame(&demo.text, &[Role::User]).expect("a frame");
        let prompt = demo.text.encode_framed(&frame, &[pair["prompt"].as_str().expect("a prompt")]);
        let row = Row::new(1, prompt, 512, 16, &mut Blocks::default());
        let slot = [row.slot(0..row.prompt)];
        let (exact, found) = (exact.logits(&slot).remove(0), found.logits(&slot).remove(0));
        sum += divergence(&exact, &found);
        let best = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        other += usize::from(best(&exact) != best(&found));
    }
    (sum / prompts.len() as f64, other)
}

#[test]
fn the_demo_model_keeps_its_answers_within_a_stated_divergence() {
    for (format, most) in [
        (BlockFormat::Bf16, 1e-9),
        (BlockFormat::F16, 1e-4),
        (BlockFormat::Q8_0, 1e-3),
        (BlockFormat::Q4_0, 0.1),
    ] {
        let (divergence, other) = demo_divergence(format);
        println!("{}: {divergence:.2e} nats, {other} other answers", format.name());
        assert!(divergence < most, "{format:?}: {divergence} nats");
    }
}
