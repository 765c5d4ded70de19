//! Whether a GPU can keep a model as it is asked to: looked at before any of its weights are read.

use super::load::{GpuLoadError, kv_format, refusal};
use crate::checkpoint::names::{model_names, weight};
use crate::checkpoint::shapes::expected_tensors;
use crate::checkpoint::{Dtype, ModelConfig};
use crate::device::cuda::{Element, Gpu};
use crate::pool::PoolShape;
use crate::settings::{Keep, Quantize};

/// Tokens whose keys and values a GPU must have room for beside the weights: with fewer a server answers nobody.
const POOL_TOKENS_MIN: usize = 256;

/// Fails where `gpu` cannot keep a model, or a rank of one, of this configuration, whose weights are stored as
/// `stored`: for what it has, what is asked of it, or its size.
pub fn check_fit(config: &ModelConfig, stored: Dtype, keep: Keep, gpu: &dyn Gpu) -> Result<(), GpuLoadError> {
    if let Some(reason) = refusal(config) {
        return Err(GpuLoadError::Unsupported(reason));
    }
    if keep.quantize == Some(Quantize::Fp8) && !gpu.has_e4m3() {
        let name = gpu.name();
        return Err(GpuLoadError::Quantize(format!("is fp8, which {name} (before 8.9) does not multiply")));
    }
    let element = Element::of(keep.dtype.unwrap_or(stored));
    let tokens = POOL_TOKENS_MIN.min(config.context_max);
    let pool = PoolShape {
        format: kv_format(element, keep.kv)?,
        layers: config.layers,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        block_tokens: tokens,
        blocks: 1,
    };
    let (weights, pool) = (weight_bytes(config, element, keep.quantize), pool.bytes().0);
    let (free, name) = (gpu.available()? as u64, gpu.name());
    if weights.saturating_add(pool) <= free {
        return Ok(());
    }
    let size = |bytes: u64| format!("{:.2} GiB ({bytes} bytes)", bytes as f64 / f64::from(1 << 30));
    let (weights, pool, free) = (size(weights), size(pool), size(free));
    Err(GpuLoadError::TooLarge(format!(
        "the model's weights take {weights} and keys and values of {tokens} tokens {pool}, and {name} has {free} free"
    )))
}

/// Bytes that weights take, and most that is beside them while they are loaded.
fn weight_bytes(config: &ModelConfig, element: Element, quantize: Option<Quantize>) -> u64 {
    let names = model_names(config.family);
    let positions = weight(&names.positions);
    let of_no_layer =
        [&names.embedding, &names.head, &names.project_in, &names.project_out].map(|name| weight(name));
    let (single, number) = (size_of::<f32>() as u64, element.bytes() as u64);
    // Of a matrix in eight bits, what it is made of is there too until it is made; of four bits one is unpacked at a time.
    let mut largest = 0;
    let all: u64 = expected_tensors(config)
        .map(|(name, shape)| {
            let numbers: u64 = shape.iter().map(|extent| *extent as u64).product();
            if shape.len() == 1 || name == positions {
                return numbers * single; // some biases take less
            }
            let Some(quantize) = quantize.filter(|_| !of_no_layer.contains(&name)) else {
                return numbers * number;
            };
            largest = numbers.max(largest);
            match quantize {
                Quantize::Fp8 | Quantize::Q8 | Quantize::Q8Wide => numbers + shape[0] as u64 * single,
                Quantize::Q4 => numbers * 5 / 8,
            }
        })
        .sum();
    // Gates lie in one matrix with what they are the gates of.
    all + 2 * largest * number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Synthetic;

    #[test]
    fn weights_take_what_their_type_does() {
        let config = Synthetic::qwen2_5_7b(Dtype::Bf16, 1).config;
        let bytes = |element, quantize| weight_bytes(&config, element, quantize) as f64 / 1e9;
        // 7.6 thousand million weights, of which 1.1 are the vocabulary's.
        assert!((15.2..15.3).contains(&bytes(Element::Bf16, None)), "{}", bytes(Element::Bf16, None));
        assert!((30.4..30.6).contains(&bytes(Element::F32, None)), "{}", bytes(Element::F32, None));
        assert!(
            (8.7..9.1).contains(&bytes(Element::Bf16, Some(Quantize::Fp8))),
            "{}",
            bytes(Element::Bf16, Some(Quantize::Fp8))
        );
        let four = bytes(Element::Bf16, Some(Quantize::Q4));
        assert!((6.4..6.9).contains(&four), "{four}");
    }
}
