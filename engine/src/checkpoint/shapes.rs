//! Which tensors a configuration asks for, and how large they are.

use crate::checkpoint::config::{ModelConfig, Norm, Position, RopeScaling};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::names::{bias, layer_names, model_names, weight};
use crate::checkpoint::weights::WeightSource;

/// Name and shape of every tensor that `config` asks for, in the order of use, one by one: a damaged
/// configuration may ask for more layers than there is memory for their names.
pub fn expected_tensors(config: &ModelConfig) -> impl Iterator<Item = (String, Vec<usize>)> {
    let names = model_names(config.family);
    let mut before = Tensors(Vec::new());
    before.weight(&names.embedding, &[config.vocab, config.embedding]);
    if let Position::Learned { offset } = config.position {
        before.weight(&names.positions, &[config.context_max + offset as usize, config.hidden]);
    }
    if let Position::Rotary { scaling: RopeScaling::Stored, .. } = config.position {
        before.weight(&names.rope_factors, &[config.head_dim / 2]);
    }
    if config.embedding != config.hidden {
        before.weight(&names.project_in, &[config.hidden, config.embedding]);
    }
    let mut behind = Tensors(Vec::new());
    if config.final_norm {
        behind.norm(config, &names.final_norm, config.hidden);
    }
    if config.embedding != config.hidden {
        behind.weight(&names.project_out, &[config.embedding, config.hidden]);
    }
    if !config.tied_head {
        behind.weight(&names.head, &[config.vocab, config.embedding]);
    }
    let layers = (0..config.layers).flat_map(|layer| {
        let mut tensors = Tensors(Vec::new());
        layer_tensors(config, layer, &mut tensors);
        tensors.0
    });
    before.0.into_iter().chain(layers).chain(behind.0)
}

/// The tensors of one layer.
fn layer_tensors(config: &ModelConfig, layer: usize, tensors: &mut Tensors) {
    let names = layer_names(config, layer);
    let (hidden, inner) = (config.hidden, config.intermediate);
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    tensors.norm(config, &names.attn_norm, hidden);
    tensors.linear(&names.q, queries, hidden, config.qkv_bias);
    tensors.linear(&names.k, keys, hidden, config.qkv_bias);
    tensors.linear(&names.v, keys, hidden, config.qkv_bias);
    if config.qk_norm {
        tensors.weight(&names.q_norm, &[config.head_dim]);
        tensors.weight(&names.k_norm, &[config.head_dim]);
    }
    tensors.linear(&names.o, hidden, queries, config.out_bias);
    if config.post_norms {
        tensors.norm(config, &names.attn_post_norm, hidden);
    }
    if names.mlp_norm != names.attn_norm {
        tensors.norm(config, &names.mlp_norm, hidden);
    }
    if config.post_norms {
        tensors.norm(config, &names.mlp_post_norm, hidden);
    }
    if let Some(gate) = names.gate.as_ref().filter(|_| config.mlp.is_gated()) {
        tensors.linear(gate, inner, hidden, config.mlp_bias);
    }
    tensors.linear(&names.up, inner, hidden, config.mlp_bias);
    tensors.linear(&names.down, hidden, inner, config.mlp_bias);
}

/// A list under construction.
struct Tensors(Vec<(String, Vec<usize>)>);

impl Tensors {
    fn weight(&mut self, module: &str, shape: &[usize]) {
        self.0.push((weight(module), shape.to_vec()));
    }

    fn linear(&mut self, module: &str, outputs: usize, inputs: usize, has_bias: bool) {
        self.weight(module, &[outputs, inputs]);
        if has_bias {
            self.0.push((bias(module), vec![outputs]));
        }
    }

    fn norm(&mut self, config: &ModelConfig, module: &str, width: usize) {
        self.weight(module, &[width]);
        if matches!(config.norm, Norm::Layer { .. }) && config.norm_bias {
            self.0.push((bias(module), vec![width]));
        }
    }
}

/// Number of weights of a model; a tied head counts once.
pub fn parameters(config: &ModelConfig) -> u64 {
    expected_tensors(config)
        .map(|(_, shape)| shape.iter().map(|extent| *extent as u64).product::<u64>())
        .sum()
}

/// Checks that `weights` holds every tensor that `config` asks for, in its shape.
pub fn check_tensors(config: &ModelConfig, weights: &dyn WeightSource) -> Result<(), CheckpointError> {
    for (name, expected) in expected_tensors(config) {
        let (_, found) = weights.layout(&name)?;
        if found != expected {
            return Err(CheckpointError::WrongShape { name, found, expected });
        }
    }
    Ok(())
}
