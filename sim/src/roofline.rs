//! How fast a model is on A100s, from data sheets: cost model, memory and moves of keys and values. It must
//! not know which machines there are.

use base::Nanos;
use scheduler::CostModel;

/// A model in FP16 under tensor parallelism on A100-40GB, in the numbers that a roofline needs.
///
/// Data sheet: 312 TFLOP/s, 1555 GB/s, NVLink 300 GB/s each way. Efficiencies and overheads are those that
/// explain OPT-13B's constants, and are then held fixed:
///
/// ```text
/// a_p = 2 parameters / (gpus * 312e12 * 0.82)  +  all-reduce of one token
/// b_p = 10 ms                                  +  latency of the all-reduces
/// b_d = weights / (gpus * 1555e9 * 0.85)       +  5.6 ms of host  +  latency of the all-reduces
/// a_d = KV of 230 tokens / (gpus * 1555e9 * 0.85)  +  0.307 ms of host
/// cap = 0.75 * (gpus * (42.3 GB * 0.9 - 1.5 GB) - weights) / KV of a token
/// ```
///
/// An all-reduce comes twice a layer: `2 (gpus - 1) / gpus` times the hidden state over 0.6 of NVLink, and
/// 20 us of latency for two GPUs, 5 us more for each further pair. 1.5 GB are activations; three quarters
/// is what OPT-13B's 10,000 tokens leave of the rest (blocks half filled, values held twice).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    pub gpus: u32,
    pub parameters: f64,
    pub weight_bytes: f64,
    pub layers: f64,
    /// Numbers of a hidden state.
    pub hidden: f64,
    /// Numbers of a layer's keys of one token: fewer than `hidden` with grouped-query attention.
    pub kv_width: f64,
}

/// FLOP/s and bytes/s that a step gets out of one A100-40GB, bytes/s out of NVLink.
const FLOPS: f64 = 312e12 * 0.82;
const MEMORY: f64 = 1_555e9 * 0.85;
const NVLINK: f64 = 300e9 * 0.6;
/// Bytes/s between one GPU and its host's pinned memory: PCIe 4.0 x16, of which copies of blocks get four
/// fifths.
const PCIE: f64 = 31.5e9 * 0.8;
/// Seconds that do not depend on the model: a prefill step, a decode step, a row of a decode step.
const PREFILL_STEP: f64 = 10e-3;
const DECODE_STEP: f64 = 5.6e-3;
const DECODE_ROW: f64 = 0.307e-3;
/// Tokens of a row's context, on average over its decode steps (RelServe, Table 4).
const CONTEXT: f64 = 230.0;
/// Bytes of a GPU that an engine uses beside the weights, and the share of them that holds live KV.
const USABLE: f64 = 42.3e9 * 0.9 - 1.5e9;
const LIVE: f64 = 0.75;
/// Bytes of a number in FP16.
const FP16: f64 = 2.0;

impl Roofline {
    /// OPT-13B on one GPU: the model whose constants are known.
    pub const OPT_13B: Self = Self {
        gpus: 1,
        parameters: 12.85e9,
        weight_bytes: 25.7e9,
        layers: 40.0,
        hidden: 5_120.0,
        kv_width: 5_120.0,
    };

    /// Bytes of keys and values of one token.
    pub fn kv_bytes(&self) -> f64 {
        2.0 * self.layers * self.kv_width * FP16
    }

    /// The cost model; a mixed step hides as much as the roofline says.
    pub fn cost(&self) -> CostModel {
        let gpus = f64::from(self.gpus);
        let reduces = if self.gpus > 1 { 2.0 * self.layers } else { 0.0 };
        let latency = reduces * (20e-6 + 2.5e-6 * (gpus - 2.0));
        let reduced = reduces * self.hidden * FP16 * 2.0 * (gpus - 1.0) / gpus / NVLINK;
        let cost = CostModel {
            prefill_per_token: nanos(2.0 * self.parameters / (gpus * FLOPS) + reduced),
            prefill_base: nanos(PREFILL_STEP + latency),
            decode_per_sequence: nanos(CONTEXT * self.kv_bytes() / (gpus * MEMORY) + DECODE_ROW),
            decode_base: nanos(self.weight_bytes / (gpus * MEMORY) + DECODE_STEP + latency),
            mixed_hidden: 0,
            mixed_hidden_few: None,
        };
        cost.hiding(1_000)
    }

    /// A token's keys and values between the GPUs and their hosts: each GPU has its share, and a link of its
    /// own.
    pub fn move_per_token(&self) -> Nanos {
        nanos(self.kv_bytes() / (f64::from(self.gpus) * PCIE))
    }

    /// Tokens of KV memory.
    pub fn kv_tokens(&self) -> u32 {
        let left = f64::from(self.gpus) * USABLE - self.weight_bytes;
        (LIVE * left / self.kv_bytes()).max(0.0) as u32
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}
