//! Independent references: candle-transformers, and for OPT, which it lacks, plain loops in double precision.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::{llama, mistral, qwen2, qwen3};
use engine::checkpoint::WeightSource;
use engine::checkpoint::config::{Family, ModelConfig, Norm, Position, RopeScaling};
use engine::checkpoint::weights::MapWeights;

/// Logits of the last of `tokens`, by another implementation, in single precision or better.
pub(crate) fn logits(config: &ModelConfig, weights: &MapWeights, tokens: &[u32]) -> Vec<f32> {
    match config.family {
        Family::Opt => opt(config, weights, tokens),
        _ => candle(config, weights, tokens).expect("candle runs the model"),
    }
}

fn builder(weights: &MapWeights) -> candle_core::Result<VarBuilder<'static>> {
    let mut tensors = HashMap::new();
    for name in weights.names() {
        let raw = weights.tensor(&name).expect("it is listed");
        tensors.insert(name, Tensor::from_vec(raw.to_f32(), raw.shape.clone(), &Device::Cpu)?);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))
}

fn candle(c: &ModelConfig, weights: &MapWeights, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
    let vb = builder(weights)?;
    let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
    let (Norm::Rms { epsilon }, &Position::Rotary { theta, scaling }) = (c.norm, &c.position) else {
        panic!("candle's families are rotary with RMS norms");
    };
    let logits = match c.family {
        Family::Llama => {
            let config = llama_config(c, f64::from(epsilon), theta, scaling);
            let mut cache = llama::Cache::new(false, DType::F32, &config, &Device::Cpu)?;
            llama::Llama::load(vb, &config)?.forward(&input, 0, &mut cache)?
        }
        Family::Mistral => {
            let config = mistral::Config {
                vocab_size: c.vocab,
                hidden_size: c.hidden,
                intermediate_size: c.intermediate,
                num_hidden_layers: c.layers,
                num_attention_heads: c.heads,
                head_dim: Some(c.head_dim),
                num_key_value_heads: c.kv_heads,
                hidden_act: Activation::Silu,
                max_position_embeddings: c.context_max,
                rms_norm_eps: f64::from(epsilon),
                rope_theta: f64::from(theta),
                // candle lets a query see one token more than Hugging Face's definition does.
                sliding_window: c.sliding_window.map(|window| window - 1),
                use_flash_attn: false,
            };
            mistral::Model::new(&config, vb)?.forward(&input, 0)?
        }
        Family::Qwen2 => {
            let config = qwen2::Config {
                vocab_size: c.vocab,
                hidden_size: c.hidden,
                intermediate_size: c.intermediate,
                num_hidden_layers: c.layers,
                num_attention_heads: c.heads,
                num_key_value_heads: c.kv_heads,
                max_position_embeddings: c.context_max,
                sliding_window: c.context_max,
                max_window_layers: c.layers,
                tie_word_embeddings: c.tied_head,
                rope_theta: f64::from(theta),
                rms_norm_eps: f64::from(epsilon),
                use_sliding_window: false,
                hidden_act: Activation::Silu,
            };
            qwen2::ModelForCausalLM::new(&config, vb)?.forward(&input, 0)?
        }
        Family::Qwen3 => {
            let config = qwen3::Config {
                vocab_size: c.vocab,
                hidden_size: c.hidden,
                intermediate_size: c.intermediate,
                num_hidden_layers: c.layers,
                num_attention_heads: c.heads,
                head_dim: c.head_dim,
                attention_bias: c.qkv_bias,
                num_key_value_heads: c.kv_heads,
                max_position_embeddings: c.context_max,
                sliding_window: None,
                max_window_layers: c.layers,
                tie_word_embeddings: c.tied_head,
                rope_theta: f64::from(theta),
                rms_norm_eps: f64::from(epsilon),
                use_sliding_window: false,
                hidden_act: Activation::Silu,
            };
            qwen3::ModelForCausalLM::new(&config, vb)?.forward(&input, 0)?
        }
        other => unreachable!("{other:?} is not one of candle's"),
    };
    logits.flatten_all()?.to_vec1()
}

fn llama_config(c: &ModelConfig, epsilon: f64, theta: f32, scaling: RopeScaling) -> llama::Config {
    llama::Config {
        hidden_size: c.hidden,
        intermediate_size: c.intermediate,
        vocab_size: c.vocab,
        num_hidden_layers: c.layers,
        num_attention_heads: c.heads,
        num_key_value_heads: c.kv_heads,
        use_flash_attn: false,
        rms_norm_eps: epsilon,
        rope_theta: theta,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: match scaling {
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                Some(llama::Llama3RopeConfig {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position_embeddings: original_context as usize,
                    rope_type: llama::Llama3RopeType::Llama3,
                })
            }
            _ => None,
        },
        max_position_embeddings: c.context_max,
        tie_word_embeddings: c.tied_head,
    }
}

/// A matrix `[rows, columns]` in double precision.
struct Table {
    columns: usize,
    values: Vec<f64>,
}

struct Opt<'a> {
    weights: &'a MapWeights,
}

impl Opt<'_> {
    fn table(&self, name: &str) -> Table {
        let raw = self.weights.tensor(name).expect("the checkpoint has it");
        let columns = *raw.shape.last().expect("tensors have extents");
        Table { columns, values: raw.to_f32().into_iter().map(f64::from).collect() }
    }

    /// `weight x (+ bias)`
    fn linear(&self, module: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.table(&format!("{module}.weight"));
        let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        let mut y: Vec<f64> = weight.values.chunks(weight.columns).map(dot).collect();
        let bias = format!("{module}.bias");
        if self.weights.names().contains(&bias) {
            y.iter_mut().zip(self.table(&bias).values).for_each(|(y, bias)| *y += bias);
        }
        y
    }

    fn norm(&self, module: &str, x: &[f64]) -> Vec<f64> {
        let (weight, bias) = (self.table(&format!("{module}.weight")), self.table(&format!("{module}.bias")));
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let scaled = x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
        scaled.zip(&weight.values).zip(&bias.values).map(|((x, w), b)| x * w + b).collect()
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// OPT as in its paper and in Hugging Face's model: one token after another, keys and values in lists.
fn opt(c: &ModelConfig, weights: &MapWeights, tokens: &[u32]) -> Vec<f32> {
    let model = Opt { weights };
    let (embedding, positions) = (
        model.table("model.decoder.embed_tokens.weight"),
        model.table("model.decoder.embed_positions.weight"),
    );
    let row = |table: &Table, i: usize| table.values[i * table.columns..(i + 1) * table.columns].to_vec();
    let mut cache: Vec<Vec<(Vec<f64>, Vec<f64>)>> = vec![Vec::new(); c.layers];
    let mut x = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        x = row(&embedding, *token as usize);
        if c.embedding != c.hidden {
            x = model.linear("model.decoder.project_in", &x);
        }
        add(&mut x, &row(&positions, position + 2));
        for (layer, cache) in cache.iter_mut().enumerate() {
            let at = |part: &str| format!("model.decoder.layers.{layer}.{part}");
            let norm = |part: &str, x: &[f64]| model.norm(&at(part), x);
            let input = if c.norm_first { norm("self_attn_layer_norm", &x) } else { x.clone() };
            let project = |part: &str| model.linear(&at(part), &input);
            let q = project("self_attn.q_proj");
            cache.push((project("self_attn.k_proj"), project("self_attn.v_proj")));
            let mut attended = vec![0.0; c.hidden];
            for head in 0..c.heads {
                let part = head * c.head_dim..(head + 1) * c.head_dim;
                let score = |k: &[f64]| {
                    let dot: f64 = q[part.clone()].iter().zip(&k[part.clone()]).map(|(q, k)| q * k).sum();
                    (dot / (c.head_dim as f64).sqrt()).exp()
                };
                let total: f64 = cache.iter().map(|(k, _)| score(k)).sum();
                for (k, v) in cache.iter() {
                    let share = score(k) / total;
                    let weighted: Vec<f64> = v[part.clone()].iter().map(|v| v * share).collect();
                    add(&mut attended[part.clone()], &weighted);
                }
            }
            add(&mut x, &model.linear(&at("self_attn.out_proj"), &attended));
            if !c.norm_first {
                x = norm("self_attn_layer_norm", &x);
            }
            let input = if c.norm_first { norm("final_layer_norm", &x) } else { x.clone() };
            let inner: Vec<f64> = model.linear(&at("fc1"), &input).into_iter().map(|x| x.max(0.0)).collect();
            add(&mut x, &model.linear(&at("fc2"), &inner));
            if !c.norm_first {
                x = norm("final_layer_norm", &x);
            }
        }
    }
    if c.final_norm {
        x = model.norm("model.decoder.final_layer_norm", &x);
    }
    if c.embedding != c.hidden {
        x = model.linear("model.decoder.project_out", &x);
    }
    let dot = |row: &[f64]| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>() as f32;
    embedding.values.chunks(embedding.columns).map(dot).collect()
}
