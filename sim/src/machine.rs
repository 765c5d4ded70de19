//! Machines: the cost models and memories that traces are replayed on, those of the paper (RelServe,
//! Table 3) and fitted ones, measured here and read from a file.
//!
//! The paper prints no constants. Those of OPT-13B are the reference traces'; they reproduce its
//! published service durations within some 10 %. The other two are **estimates**: see [`Roofline`].

use base::{Nanos, TokenCount};
use scheduler::{CostModel, SchedulerConfig};
use serde::{Deserialize, Serialize};

use crate::replay::ReplayConfig;

/// A model on its GPUs, as the paper has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Machine {
    /// OPT-13B (multi-head attention) on one A100-40GB: the constants of the reference traces.
    Opt13b,
    /// Qwen2.5-32B (grouped-query attention) on two: an estimate.
    Qwen32b,
    /// Llama2-70B (grouped-query attention) on four: an estimate.
    Llama70b,
}

impl Machine {
    /// All, in the order of the paper.
    pub const ALL: [Self; 3] = [Self::Opt13b, Self::Qwen32b, Self::Llama70b];

    /// The model's name, for figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opt13b => "OPT-13B",
            Self::Qwen32b => "Qwen2.5-32B",
            Self::Llama70b => "Llama2-70B",
        }
    }

    /// Its name in commands.
    pub fn id(self) -> &'static str {
        match self {
            Self::Opt13b => "opt-13b-a100",
            Self::Qwen32b => "qwen2.5-32b-2xa100",
            Self::Llama70b => "llama2-70b-4xa100",
        }
    }

    /// Six loads in hundredths of a relQuery per second, from light to well above what the machine can
    /// do: 1.0/s for OPT-13B, as in the paper, and as much overload for the others.
    pub fn loads(self) -> [u32; 6] {
        match self {
            Self::Opt13b | Self::Qwen32b => [50, 60, 70, 80, 90, 100],
            Self::Llama70b => [20, 30, 45, 60, 75, 90],
        }
    }

    /// What its constants are derived from; for OPT-13B, what its known ones are compared with.
    pub fn roofline(self) -> Roofline {
        match self {
            Self::Opt13b => Roofline {
                gpus: 1,
                parameters: 12.85e9,
                weight_bytes: 25.7e9,
                layers: 40.0,
                hidden: 5_120.0,
                kv_width: 5_120.0,
            },
            Self::Qwen32b => Roofline {
                gpus: 2,
                parameters: 32.8e9,
                weight_bytes: 65.5e9,
                layers: 64.0,
                hidden: 5_120.0,
                kv_width: 8.0 * 128.0,
            },
            Self::Llama70b => Roofline {
                gpus: 4,
                parameters: 69.0e9,
                weight_bytes: 138.0e9,
                layers: 80.0,
                hidden: 8_192.0,
                kv_width: 8.0 * 128.0,
            },
        }
    }

    /// The machine for a replay, whose mixed steps hide `hide_permille` thousandths of `b_d - b_p`.
    pub fn config(self, hide_permille: u64) -> ReplayConfig {
        let reference = ReplayConfig::default();
        let config = match self {
            Self::Opt13b => reference,
            Self::Qwen32b | Self::Llama70b => {
                let roofline = self.roofline();
                let limits = reference.scheduler;
                let kv_blocks = roofline.kv_tokens() / limits.block_tokens;
                ReplayConfig {
                    scheduler: SchedulerConfig { kv_blocks, ..limits },
                    cost: roofline.cost(),
                    move_per_token: roofline.move_per_token(),
                }
            }
        };
        ReplayConfig { cost: config.cost.hiding(hide_permille), ..config }
    }
}

impl std::str::FromStr for Machine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::id).join(", ");
        let found = Self::ALL.into_iter().find(|machine| machine.id() == name);
        found.ok_or_else(|| format!("machine `{name}` is neither a file nor one of {known}"))
    }
}

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
    /// GPUs.
    pub gpus: u32,
    /// Parameters.
    pub parameters: f64,
    /// Their bytes.
    pub weight_bytes: f64,
    /// Layers.
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
/// Bytes/s between one GPU and its host's pinned memory: PCIe 4.0 x16, of which copies of blocks get four fifths.
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
        };
        cost.hiding(1_000)
    }

    /// A token's keys and values between the GPUs and their hosts: each GPU has its share, and a link of its own.
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

/// A machine that was measured, as its JSON file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// What it is: model, device, when.
    pub name: String,
    /// The fitted cost model.
    pub cost: CostModel,
    /// Positions of the KV pool.
    pub kv_tokens: u64,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Most prompt tokens of a prefill step.
    pub step_tokens_max: TokenCount,
    /// Tokens of a mixed step of `sarathi`.
    pub chunk_tokens: TokenCount,
    /// Most rows that hold KV at a time.
    pub sequences_max: u32,
    /// Thousandths of the pool that an admission leaves free.
    pub watermark_permille: u32,
    /// Whether generated tokens enter the prefix cache too.
    pub publish_generated: bool,
    /// Blocks of the host tier.
    #[serde(default)]
    pub host_kv_blocks: u32,
    /// What a token takes between pool and host tier; where it was not measured, nothing.
    #[serde(default)]
    pub move_per_token: Nanos,
}

/// A machine that cannot be replayed on.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Not the JSON expected.
    #[error("not a machine: {0}")]
    Json(#[from] serde_json::Error),
    /// A number that cannot be.
    #[error("machine `{name}`: {field} {reason}")]
    Invalid {
        /// The machine.
        name: String,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Fitted {
    /// A running scheduler's limits with the model fitted to its engine.
    pub fn of(name: String, limits: &SchedulerConfig, cost: CostModel) -> Self {
        Self {
            name,
            cost,
            kv_tokens: limits.kv_tokens(),
            block_tokens: limits.block_tokens,
            step_tokens_max: limits.step_tokens_max,
            chunk_tokens: limits.chunk_tokens,
            sequences_max: limits.sequences_max,
            watermark_permille: limits.watermark_permille,
            publish_generated: limits.publish_generated,
            host_kv_blocks: limits.host_kv_blocks,
            move_per_token: Nanos(0),
        }
    }

    /// Reads one.
    pub fn parse(json: &str) -> Result<Self, MachineError> {
        Ok(serde_json::from_str(json)?)
    }

    /// The machine for a replay.
    pub fn config(&self) -> Result<ReplayConfig, MachineError> {
        let invalid = |field, reason| MachineError::Invalid { name: self.name.clone(), field, reason };
        if self.block_tokens == 0 {
            return Err(invalid("block_tokens", "must be positive"));
        }
        let blocks = self.kv_tokens / u64::from(self.block_tokens);
        let scheduler = SchedulerConfig {
            kv_blocks: u32::try_from(blocks).map_err(|_| invalid("kv_tokens", "is more than 2^32 blocks"))?,
            host_kv_blocks: self.host_kv_blocks,
            block_tokens: self.block_tokens,
            step_tokens_max: self.step_tokens_max,
            chunk_tokens: self.chunk_tokens,
            sequences_max: self.sequences_max,
            watermark_permille: self.watermark_permille,
            publish_generated: self.publish_generated,
            ..ReplayConfig::default().scheduler
        };
        scheduler.validate().map_err(|error| invalid(error.field, error.reason))?;
        if self.cost.prefill(TokenCount(1)) == Nanos(0) || self.cost.decode(1) == Nanos(0) {
            return Err(invalid("cost", "has steps that take no time"));
        }
        Ok(ReplayConfig { scheduler, cost: self.cost, move_per_token: self.move_per_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_machine_is_that_of_the_reference_traces() {
        let (roofline, reference) = (Machine::Opt13b.config(1_000), ReplayConfig::default());
        assert_eq!(roofline.scheduler, reference.scheduler);
        assert_eq!(roofline.cost, reference.cost.hiding(1_000));
    }

    #[test]
    fn the_roofline_explains_the_constants_that_are_known() {
        let (roofline, known) = (Machine::Opt13b.roofline(), ReplayConfig::default());
        let close = |derived: u64, known: u64| derived.abs_diff(known) * 50 <= known;
        let cost = roofline.cost();
        assert!(close(cost.prefill_per_token.0, known.cost.prefill_per_token.0), "{cost:?}");
        assert!(close(cost.prefill_base.0, known.cost.prefill_base.0), "{cost:?}");
        assert!(close(cost.decode_per_sequence.0, known.cost.decode_per_sequence.0), "{cost:?}");
        assert!(close(cost.decode_base.0, known.cost.decode_base.0), "{cost:?}");
        assert!(
            close(u64::from(roofline.kv_tokens()), known.scheduler.kv_tokens()),
            "{}",
            roofline.kv_tokens()
        );
    }

    #[test]
    fn a_larger_model_takes_longer_and_every_machine_is_valid() {
        let micros = |machine: Machine| {
            let config = machine.config(0);
            let cost = config.cost;
            let spans =
                [cost.prefill_per_token, cost.prefill_base, cost.decode_per_sequence, cost.decode_base];
            assert_eq!(config.scheduler.validate(), Ok(()), "{}", machine.name());
            assert_eq!(machine.id().parse(), Ok(machine));
            (spans.map(|span| span.0 / 1_000), config.scheduler.kv_tokens())
        };
        // Estimates; here so that a change of an input shows.
        assert_eq!(micros(Machine::Opt13b), ([100, 10_000, 450, 25_000], 10_000));
        assert_eq!(micros(Machine::Qwen32b), ([135, 12_560, 329, 32_937], 21_858));
        assert_eq!(micros(Machine::Llama70b), ([156, 14_000, 321, 35_701], 18_951));
        assert!("a100".parse::<Machine>().is_err_and(|error| error.contains("llama2-70b-4xa100")));
    }

    #[test]
    fn a_fitted_machine_comes_back_from_its_file_as_it_was() {
        let limits = SchedulerConfig { refit: false, ..ReplayConfig::default().scheduler };
        let fitted = Fitted::of("a laptop".into(), &limits, CostModel::default());
        let json = serde_json::to_string(&fitted).expect("plain data");
        let read = Fitted::parse(&json).expect("what was written");
        let reference = ReplayConfig { move_per_token: Nanos(0), ..ReplayConfig::default() };
        assert_eq!(read.config().expect("a machine"), reference);
        let zero = Fitted { kv_tokens: 0, ..read.clone() };
        assert_eq!(
            zero.config().expect_err("no memory").to_string(),
            "machine `a laptop`: kv_blocks must be positive"
        );
        let free = Fitted {
            cost: CostModel { decode_base: Nanos(0), decode_per_sequence: Nanos(0), ..read.cost },
            ..read
        };
        assert!(free.config().is_err());
        assert!(matches!(Fitted::parse(r#"{"name": "x", "speed": 3}"#), Err(MachineError::Json(_))));
    }
}
