//! The paper's machines (RelServe, Table 3): the cost models and memories that its traces are replayed on.
//!
//! The paper prints no constants. Those of OPT-13B are the reference traces'; they reproduce its
//! published service durations within some 10 %. The other two are **estimates**: see [`Roofline`].

use scheduler::SchedulerConfig;

use crate::replay_config::ReplayConfig;
use crate::roofline::Roofline;

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
            Self::Opt13b => Roofline::OPT_13B,
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
}
