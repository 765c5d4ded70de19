//! Whether a GPU can keep a model as it is asked to: looked at before any of its weights are read.

use super::load::{GpuLoadError, check_extents, kv_format, refusal, stacks};
use super::sizes::StepSizes;
use crate::checkpoint::names::{layer_names, model_names, weight};
use crate::checkpoint::shapes::expected_tensors;
use crate::checkpoint::{Dtype, ModelConfig};
use crate::device::cpu::LANES;
use crate::device::cuda::{Element, Gpu};
use crate::pool::PoolShape;
use crate::settings::{Keep, Quantize};

/// Tokens whose keys and values a GPU must have room for beside the weights: with fewer a server answers nobody.
const POOL_TOKENS_MIN: usize = 256;

/// Tokens of the largest step, and rows that it samples, that a GPU keeps memory for beside a pool of the default size; a larger one,
/// of one long prompt, may find that memory too.
pub(crate) const STEP_TOKENS: usize = 8_192;
pub(crate) const STEP_ROWS: usize = 256;

/// Bytes of a pool of the default size, of `available` ones beside weights: all that steps leave, but no more than nine tenths.
pub(crate) fn default_pool(available: u64, of_steps: u64) -> u64 {
    // A hundredth less than there may be: an executor that is made anew must find as much again.
    (available - of_steps.min(available / 2)).min(available / 10 * 9 / 100 * 99)
}

/// Bytes that a model, or a rank of one, takes of its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDemand {
    /// Weights, and most that is beside them while they are loaded.
    pub weights: u64,
    /// The largest step that memory is kept for.
    pub step: u64,
    /// The least that keys and values must have: those of [`Self::tokens_min`].
    pub kv_min: u64,
    pub tokens_min: usize,
    /// Keys and values of a token, with its part of what a block is filled up by.
    pub per_token: u64,
}

impl GpuDemand {
    /// What a model of this configuration takes, whose weights are stored as `stored`, with keys and values in blocks of
    /// `block_tokens`; fails where no GPU can keep it so.
    pub fn of(
        config: &ModelConfig,
        stored: Dtype,
        keep: Keep,
        block_tokens: usize,
    ) -> Result<Self, GpuLoadError> {
        if let Some(reason) = refusal(config) {
            return Err(GpuLoadError::Unsupported(reason));
        }
        if let Some(quantize) = keep.quantize {
            // All layers have the same extents.
            let names = layer_names(config, 0);
            stacks(config, &names).iter().try_for_each(|modules| check_extents(modules, quantize))?;
        }
        let element = Element::of(keep.dtype.unwrap_or(stored));
        let tokens_min = POOL_TOKENS_MIN.min(config.context_max);
        let block_tokens = block_tokens.max(1);
        let block = PoolShape {
            format: kv_format(element, keep.kv)?,
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            block_tokens,
            blocks: 1,
        };
        let block = block.bytes().0;
        let in_fp8 = keep.quantize == Some(Quantize::Fp8);
        let step = StepSizes { config, element, in_fp8 };
        Ok(Self {
            weights: weight_bytes(config, element, keep.quantize),
            step: step.step_memory(STEP_TOKENS.min(config.context_max), STEP_ROWS) as u64,
            kv_min: tokens_min.div_ceil(block_tokens) as u64 * block,
            tokens_min,
            per_token: block.div_ceil(block_tokens as u64),
        })
    }

    /// The least that must be free.
    pub fn least(&self) -> u64 {
        self.weights.saturating_add(self.kv_min)
    }

    /// A pool of the default size where `free` bytes are free before weights are loaded.
    pub fn pool(&self, free: u64) -> u64 {
        default_pool(free.saturating_sub(self.weights), self.step)
    }
}

/// Fails where `gpu` cannot keep a model, or a rank of one, of this configuration, whose weights are stored as
/// `stored`: for what it has, what is asked of it, or its size.
pub fn check_fit(config: &ModelConfig, stored: Dtype, keep: Keep, gpu: &dyn Gpu) -> Result<(), GpuLoadError> {
    // Weights are loaded for pools of any shape: blocks that are whole vectors take the least.
    let demand = GpuDemand::of(config, stored, keep, LANES)?;
    if keep.quantize == Some(Quantize::Fp8) && !gpu.has_e4m3() {
        let name = gpu.name();
        return Err(GpuLoadError::Quantize(format!("is fp8, which {name} (before 8.9) does not multiply")));
    }
    let (free, name) = (gpu.available()? as u64, gpu.name());
    if demand.least() <= free {
        return Ok(());
    }
    let size = |bytes: u64| format!("{:.2} GiB ({bytes} bytes)", bytes as f64 / f64::from(1 << 30));
    let (weights, pool, free) = (size(demand.weights), size(demand.kv_min), size(free));
    let tokens = demand.tokens_min;
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
    use crate::checkpoint::config::Family;
    use crate::settings::KvFormat;

    #[test]
    fn what_a_model_takes_follows_from_what_it_is_kept_as() {
        let config = Synthetic::qwen2_5_7b(Dtype::Bf16, 1).config;
        let of = |keep: Keep| GpuDemand::of(&config, Dtype::Bf16, keep, 16).expect("a GPU can keep it");
        let plain = of(Keep::default());
        assert_eq!(plain.tokens_min, 256);
        assert_eq!(plain.per_token, 2 * 28 * 4 * 128 * 2, "28 layers, 4 heads of 128 numbers");
        for kv in [KvFormat::Q8, KvFormat::Fp8] {
            let kept = of(Keep { kv: Some(kv), ..Keep::default() }).per_token;
            assert!(kept > plain.per_token / 2 && kept < plain.per_token / 100 * 52, "{kv:?}: {kept}");
        }
        let fp8 = of(Keep { quantize: Some(Quantize::Fp8), ..Keep::default() });
        assert!(fp8.weights < plain.weights / 10 * 6 && fp8.step > plain.step, "{fp8:?} {plain:?}");
        assert!((1 << 30..4 << 30).contains(&plain.step), "{plain:?}");
    }

    #[test]
    fn a_token_takes_its_part_of_a_block_of_whole_vectors() {
        let config = Synthetic::qwen2_5_7b(Dtype::Bf16, 1).config;
        let in_blocks = |block_tokens| {
            GpuDemand::of(&config, Dtype::Bf16, Keep::default(), block_tokens).expect("a GPU can keep it")
        };
        let whole = in_blocks(16);
        assert_eq!(in_blocks(64).per_token, whole.per_token);
        assert_eq!(in_blocks(64).kv_min, whole.kv_min);
        assert_eq!(in_blocks(48).kv_min, 6 * 48 * whole.per_token, "five blocks hold fewer than 256 tokens");
        // Keys of eight tokens lie in 16 lanes, values in rows of their own.
        assert_eq!(in_blocks(8).per_token, whole.per_token / 2 * 3);
        let one = in_blocks(1);
        assert!(one.per_token > 8 * whole.per_token && one.kv_min == 256 * one.per_token, "{one:?}");
    }

    #[test]
    fn a_pool_has_what_weights_and_steps_leave_of_a_gpu() {
        let demand = GpuDemand { weights: 60, step: 5, kv_min: 10, tokens_min: 2, per_token: 5 };
        assert_eq!(demand.least(), 70);
        assert_eq!(demand.pool(50), 0);
        let large = GpuDemand { weights: 10_000, ..demand };
        assert_eq!(large.pool(20_000), 8_910, "nine tenths, and a hundredth less");
        assert_eq!(GpuDemand { step: 4_000, ..large }.pool(20_000), 6_000);
        assert_eq!(GpuDemand { step: 40_000, ..large }.pool(20_000), 5_000, "half, whatever a step takes");
    }

    #[test]
    fn what_no_gpu_keeps_has_no_size() {
        let of = |family, keep: Keep| {
            let model = Synthetic::tiny(family, 1);
            GpuDemand::of(&model.config, Dtype::F32, keep, 16).map(drop).map_err(|error| error.to_string())
        };
        let q8 = Keep { quantize: Some(Quantize::Q8), ..Keep::default() };
        assert_eq!(of(Family::Llama, q8), Err("is q8, which no kernel of a GPU multiplies".to_owned()));
        let error = of(Family::Mpt, Keep::default()).expect_err("it has ALiBi");
        assert!(error.ends_with("which runs on the processor only"), "{error}");
        let bf16 = Keep { kv: Some(KvFormat::Bf16), ..Keep::default() };
        let error = of(Family::Llama, bf16).expect_err("keys and values are f32 then");
        assert_eq!(error, "is bf16; beside these weights a GPU keeps f32, q8 or fp8");
        assert_eq!(of(Family::Llama, Keep::default()), Ok(()));
    }

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
