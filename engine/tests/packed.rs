//! Checkpoints of AWQ and GPTQ, whose four-bit integers this test packs itself, mean the weights that they were made of.

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use common::{Bare, Blocks, Row, difference, tokens};
use engine::checkpoint::config::Family;
use engine::checkpoint::shapes::expected_tensors;
use engine::checkpoint::synthetic_text::{tokenizer_config_json, tokenizer_json};
use engine::checkpoint::weights::MapWeights;
use engine::checkpoint::{
    CheckpointError, Dtype, PackedForm, PackedWeights, Safetensors, Synthetic, WeightSource,
};
use engine::checkpoint_reader::Checkpoint;
use engine::decoder::{Decoder, LoadOptions};
use engine::device::Cpu;
use engine::{Keep, ModelFiles, Quantize};
use half::f16;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

/// The outputs whose numbers a word of AWQ has, from its lowest bits on.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

const METHODS: [&str; 3] = ["awq", "gptq", "gptq_v2"];

/// A tensor of a file: name, type, shape, bytes.
type Stored = (String, safetensors::Dtype, Vec<usize>, Vec<u8>);

/// A matrix of four-bit integers.
struct Integers {
    outputs: usize,
    inputs: usize,
    group: usize,
    /// `[outputs][inputs]`
    numbers: Vec<u32>,
    /// `[outputs][groups]`
    zeros: Vec<u32>,
    scales: Vec<f16>,
}

impl Integers {
    /// Weights rounded, in groups from about their least to about their greatest.
    fn rounded(weights: &[f32], inputs: usize, group: usize) -> Self {
        let (mut numbers, mut zeros, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for group in weights.chunks(group) {
            let least = group.iter().copied().fold(0.0, f32::min);
            let most = group.iter().copied().fold(0.0, f32::max);
            let scale = f16::from_f32((most - least) / 15.0);
            let zero = (-least / scale.to_f32()).round().clamp(1.0, 15.0);
            let number = |weight: &f32| (weight / scale.to_f32() + zero).round().clamp(0.0, 15.0) as u32;
            numbers.extend(group.iter().map(number));
            zeros.push(zero as u32);
            scales.push(scale);
        }
        Self { outputs: weights.len() / inputs, inputs, group, numbers, zeros, scales }
    }

    fn groups(&self) -> usize {
        self.inputs / self.group
    }

    /// What they mean.
    fn weights(&self) -> Vec<f32> {
        let weight = |(at, number): (usize, &u32)| {
            let group = at / self.group;
            self.scales[group].to_f32() * (*number as f32 - self.zeros[group] as f32)
        };
        self.numbers.iter().enumerate().map(weight).collect()
    }

    /// The tensors of a module, as a method stores them.
    fn stored(&self, module: &str, method: &str) -> Vec<Stored> {
        let number = |output: usize, input: usize| self.numbers[output * self.inputs + input];
        let zero = |output: usize, group: usize| self.zeros[output * self.groups() + group];
        let word = |number: &dyn Fn(usize) -> u32| (0..8).fold(0, |word, at| word | number(at) << (4 * at));
        let (mut numbers, mut zeros) = (Vec::new(), Vec::new());
        let is_awq = method == "awq";
        let shape = if is_awq {
            for input in 0..self.inputs {
                for eight in (0..self.outputs).step_by(8) {
                    numbers.push(word(&|at| number(eight + AWQ_ORDER[at], input)));
                }
            }
            vec![self.inputs, self.outputs / 8]
        } else {
            for eight in (0..self.inputs).step_by(8) {
                for output in 0..self.outputs {
                    numbers.push(word(&|at| number(output, eight + at)));
                }
            }
            vec![self.inputs / 8, self.outputs]
        };
        for group in 0..self.groups() {
            for eight in (0..self.outputs).step_by(8) {
                zeros.push(match method {
                    "awq" => word(&|at| zero(eight + AWQ_ORDER[at], group)),
                    "gptq" => word(&|at| zero(eight + at, group) - 1),
                    _ => word(&|at| zero(eight + at, group)),
                });
            }
        }
        let of_group = |group| (0..self.outputs).map(move |output| output * self.groups() + group);
        let scales = (0..self.groups()).flat_map(of_group).flat_map(|at| self.scales[at].to_le_bytes());
        let bytes = |words: Vec<u32>| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let name = |part: &str| format!("{module}.{part}");
        let integers = safetensors::Dtype::I32;
        let mut all = vec![
            (name("qweight"), integers, shape, bytes(numbers)),
            (name("qzeros"), integers, vec![self.groups(), self.outputs / 8], bytes(zeros)),
            (name("scales"), safetensors::Dtype::F16, vec![self.groups(), self.outputs], scales.collect()),
        ];
        if !is_awq {
            let groups: Vec<u32> = (0..self.inputs).map(|input| (input / self.group) as u32).collect();
            all.push((name("g_idx"), integers, vec![self.inputs], bytes(groups)));
        }
        all
    }
}

/// A file of these tensors.
fn file(tensors: &[Stored]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("bytes fill the shape"))
    });
    safetensors::serialize(views, None).expect("it can be written")
}

/// What config.json says of a method.
fn description(method: &str, group: i64) -> Value {
    match method {
        "awq" => {
            json!({ "quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": true })
        }
        format => json!({
            "quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": false, "checkpoint_format": format,
        }),
    }
}

fn form(description: &Value) -> Result<Option<PackedForm>, CheckpointError> {
    PackedForm::read(&json!({ "quantization_config": description }).to_string())
}

fn open(tensors: &[Stored], method: &str, group: i64) -> PackedWeights {
    let source = Safetensors::from_bytes("weights", Cow::Owned(file(tensors))).expect("valid");
    let form = form(&description(method, group)).expect("it is known");
    PackedWeights::new(source, form).expect("nothing else is in it")
}

/// Weights about 0, each unlike its neighbours.
fn wave(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * at % 9_973) as f32 * 0.37).sin() * (1.0 + (at % 5) as f32)).collect()
}

#[test]
fn packed_integers_are_the_weights_that_they_were_made_of() {
    for method in METHODS {
        for (outputs, inputs, group) in [(16, 64, 32), (24, 256, 128), (8, 96, 96)] {
            let integers = Integers::rounded(&wave(outputs * inputs), inputs, group);
            let mut tensors = integers.stored("m.q_proj", method);
            tensors.push(("m.norm.scales".into(), safetensors::Dtype::F16, vec![1], vec![0, 0x3c]));
            let group = if group == inputs { -1 } else { group as i64 };
            let weights = open(&tensors, method, group);
            assert_eq!(weights.names(), ["m.norm.scales", "m.q_proj.weight"]);
            let (expected, name) = (integers.weights(), "m.q_proj.weight");
            assert_eq!(weights.layout(name).expect("it is there"), (Dtype::F16, vec![outputs, inputs]));
            let tensor = weights.tensor(name).expect("it is there");
            assert_eq!(tensor.shape, [outputs, inputs]);
            let rounded: Vec<f32> = expected.iter().map(|weight| f16::from_f32(*weight).to_f32()).collect();
            assert_eq!(tensor.to_f32(), rounded, "{method}");
            let exact = weights.exact(name).expect("it is there");
            assert_eq!((exact.dtype, exact.shape.clone()), (Dtype::F32, tensor.shape));
            assert_eq!(exact.to_f32(), expected, "{method}");
            let blocks = weights.blocks(name).expect("it is there").expect("it is packed");
            assert!(blocks.has_four_bits() && blocks.inputs == inputs && blocks.rows().count() == outputs);
            for (found, expected) in blocks.format.to_f32(&blocks.data).iter().zip(&expected) {
                // The minimum of the block is rounded to half precision.
                assert!((found - expected).abs() < 5e-3, "{method}: {found} for {expected}");
            }
            assert_eq!(weights.blocks("m.norm.scales").expect("it is there"), None);
        }
    }
}

/// A small model whose layers' matrices are packed: its weights as they then are, and its files.
fn packed_model(method: &str) -> (Synthetic, MapWeights, String, Vec<u8>) {
    let mut model = Synthetic { dtype: Dtype::F16, ..Synthetic::tiny(Family::Qwen2, 31) };
    let config = &mut model.config;
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (64, 64, 128, 16);
    let (weights, mut meant, mut tensors) = (model.weights(), MapWeights::default(), Vec::new());
    for (name, shape) in expected_tensors(&model.config) {
        let tensor = weights.tensor(&name).expect("it is there");
        match name.strip_suffix(".weight").filter(|_| name.contains("layers.") && shape.len() == 2) {
            Some(module) => {
                let integers = Integers::rounded(&tensor.to_f32(), shape[1], 64);
                meant.insert(&name, Dtype::F32, &shape, &integers.weights());
                tensors.extend(integers.stored(module, method));
            }
            None => {
                meant.insert(&name, Dtype::F32, &shape, &tensor.to_f32());
                tensors.push((name, safetensors::Dtype::F16, shape, tensor.data.into_owned()));
            }
        }
    }
    let mut config: Value = serde_json::from_str(&model.config_json()).expect("JSON");
    config["quantization_config"] = description(method, 64);
    (model, meant, config.to_string(), file(&tensors))
}

fn logits(model: &Synthetic, weights: &dyn WeightSource, keep: Keep) -> Vec<f32> {
    let cpu = Arc::new(Cpu::with_isa(Some(2), common::widening()).expect("threads start"));
    let decoder = Decoder::load(&model.config, weights, LoadOptions { cpu, keep }).expect("complete");
    let prompt = tokens(5, 30);
    let row = Row::new(1, prompt.clone(), prompt.len(), 16, &mut Blocks::default());
    Bare::new(decoder, 16).logits(&[row.slot(0..prompt.len())]).remove(0)
}

#[test]
fn a_packed_checkpoint_answers_as_its_weights_do() {
    for method in METHODS {
        let (model, meant, config, weights) = packed_model(method);
        let (tokenizer, tokenizer_config) = (tokenizer_json(), tokenizer_config_json());
        let files = ModelFiles {
            name: "packed",
            config: &config,
            tokenizer: &tokenizer,
            tokenizer_config: Some(&tokenizer_config),
            generation_config: None,
            chat_template: None,
            weights: Cow::Owned(weights),
        };
        let checkpoint = Checkpoint::bytes(files, None).expect("it opens");
        assert_eq!(checkpoint.config, model.config);
        let keep = common::keep(common::widening());
        let expected = logits(&model, &meant, keep);
        // As numbers, rounded to half precision.
        let apart = difference(&logits(&model, &checkpoint.weights, keep), &expected);
        assert!(apart < 5e-3, "{method}: {apart}");
        // As they are stored, with activations of eight bits; the same weights before they were packed are further away.
        let quantize = Some(Quantize::Q4);
        let apart = difference(&logits(&model, &checkpoint.weights, Keep { quantize, ..keep }), &expected);
        let unpacked = difference(&logits(&model, &model.weights(), keep), &expected);
        assert!(apart < 0.05 && unpacked > 1.5 * apart, "{method}: {apart}, {unpacked}");
    }
}

#[test]
fn what_is_packed_otherwise_is_refused_by_its_field() {
    let with = |method: &str, field: &str, value: Value| {
        let mut description = description(method, 128);
        description[field] = value;
        form(&description).expect_err("it is refused").to_string()
    };
    for (method, field, value) in [
        ("awq", "quant_method", json!("bitsandbytes")),
        ("awq", "quant_method", Value::Null),
        ("awq", "bits", json!(8)),
        ("gptq", "bits", Value::Null),
        ("awq", "version", json!("gemv")),
        ("awq", "zero_point", json!(false)),
        ("awq", "group_size", json!(48)),
        ("gptq", "group_size", Value::Null),
        ("gptq", "desc_act", json!(true)),
        ("gptq", "checkpoint_format", json!("marlin")),
        ("gptq", "dynamic", json!({ "-:.*": {} })),
    ] {
        let error = with(method, field, value);
        assert!(error.starts_with(&format!("config.json: field `quantization_config.{field}`: ")), "{error}");
    }
    assert_eq!(PackedForm::read("{}").expect("it is plain"), None);
}

#[test]
fn damaged_packed_tensors_are_refused_by_name() {
    let integers = Integers::rounded(&wave(16 * 64), 64, 32);
    let refused = |change: &dyn Fn(&mut Vec<Stored>), group| {
        let mut tensors = integers.stored("m", "gptq");
        change(&mut tensors);
        open(&tensors, "gptq", group).layout("m.weight").expect_err("it is refused").to_string()
    };
    assert!(refused(&|_| {}, 64).starts_with("m: has scales of shape [2, 16]"), "another group's size");
    assert!(refused(&|all| drop(all.remove(1)), 32).contains("`m.qzeros`"), "a part that is missing");
    let error = refused(&|all| all[0].1 = safetensors::Dtype::F32, 32);
    assert!(error.contains("type F32 is not I32"), "{error}");
    let error = refused(&|all| all[3].3.swap(0, 4 * 40), 32);
    assert!(error.contains("g_idx") && error.contains("desc_act"), "{error}");
}
