//! What is compared with plain prompts: ways of putting the same rows to the model, and settings of the engine
//! under which plain prompts run.

use engine::{KvFormat, Quantize};
use gateway::config::Config;
use scheduler::Speculation;
use serde_json::Value;

use super::measures::Measure;
use super::tasks::{EvalTask, PromptShape};

/// A line of the table beside the others of its task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EvalVariant {
    pub(super) name: &'static str,
    pub(super) approach: Approach,
    pub(super) setting: EngineSetting,
}

/// How rows become prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Approach {
    /// Each token sees all before it, fields stand as in the file, answers are free.
    Plain,
    /// Documents are modules of a schema (PML).
    Modules(Repair),
    /// Documents are independent members of a `plus`.
    Spans(Repair),
    /// The record's entries stand in the order in which rows share most (`order: fields`).
    Reordered,
    /// Answers are held to the labels, or to words of the text.
    Constrained,
}

/// Whether the first tokens of modules and spans are computed again where they stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Repair {
    /// They are read as they were computed.
    Off,
    /// As many as the configuration says (`reuse.repair_tokens`).
    AsConfigured,
}

impl Repair {
    /// Says so in a request.
    pub(super) fn put(self, body: &mut Value) {
        if self == Self::Off {
            body["repair_tokens"] = 0.into();
        }
    }
}

/// What of the engine differs from the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EngineSetting {
    /// Nothing, but that no tokens are guessed ahead.
    AsConfigured,
    /// At most three rows at a time: what is equal in exact arithmetic is rounded otherwise.
    OtherBatches,
    /// Keys and values.
    Kv(KvFormat),
    /// Weights.
    Weights(Quantize),
    /// Tokens are guessed ahead.
    Speculation,
}

use Approach::{Constrained, Modules, Plain, Reordered, Spans};
use EngineSetting::{AsConfigured, Kv, OtherBatches, Weights};

const fn variant(name: &'static str, approach: Approach, setting: EngineSetting) -> EvalVariant {
    EvalVariant { name, approach, setting }
}

/// In the order of the table; those of one setting share a server.
pub(super) const VARIANTS: [EvalVariant; 12] = [
    variant("baseline", Plain, AsConfigured),
    variant("modules", Modules(Repair::Off), AsConfigured),
    variant("modules-repair", Modules(Repair::AsConfigured), AsConfigured),
    variant("spans", Spans(Repair::Off), AsConfigured),
    variant("spans-repair", Spans(Repair::AsConfigured), AsConfigured),
    variant("reordered", Reordered, AsConfigured),
    variant("constraints", Constrained, AsConfigured),
    variant("other-batches", Plain, OtherBatches),
    variant("kv-q8", Plain, Kv(KvFormat::Q8)),
    variant("q8", Plain, Weights(Quantize::Q8)),
    variant("q4", Plain, Weights(Quantize::Q4)),
    variant("speculation", Plain, EngineSetting::Speculation),
];

impl EvalVariant {
    /// Whether a task can be put so.
    pub(super) fn bears(&self, task: &EvalTask) -> bool {
        match self.approach {
            Plain => true,
            Modules(_) | Spans(_) => matches!(task.form, PromptShape::Documents { .. }),
            Reordered => matches!(task.form, PromptShape::Records { .. }),
            Constrained => matches!(task.measure, Measure::Label(_)) || task.form == PromptShape::Extract,
        }
    }
}

impl EngineSetting {
    /// The configuration with it.
    pub(super) fn configured(self, config: &Config) -> Config {
        let mut config = config.clone();
        config.scheduler.speculation = Speculation::Off;
        match self {
            AsConfigured => {}
            OtherBatches => config.scheduler.sequences_max = 3,
            Kv(format) => config.engine.kv = Some(format),
            Weights(format) => config.engine.quantize = Some(format),
            EngineSetting::Speculation => config.scheduler.speculation = Speculation::Auto,
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_what_they_name() {
        let config = Config::default();
        let of = |setting: EngineSetting| setting.configured(&config);
        let is_same = |one: &Config, other: &Config| {
            one.engine.kv == other.engine.kv && one.engine.quantize == other.engine.quantize
        };
        let plain = of(AsConfigured);
        assert_eq!(plain.scheduler.speculation, Speculation::Off);
        assert!(is_same(&plain, &config));
        assert_eq!(of(Kv(KvFormat::Q8)).engine.kv, Some(KvFormat::Q8));
        assert_eq!(of(Weights(Quantize::Q8)).engine.quantize, Some(Quantize::Q8));
        assert_eq!(of(EngineSetting::Speculation).scheduler.speculation, Speculation::Auto);
        assert_eq!(of(OtherBatches).scheduler.sequences_max, 3);
        assert_eq!(of(Weights(Quantize::Q4)).engine.quantize, Some(Quantize::Q4));
    }

    #[test]
    fn those_of_one_setting_are_neighbours() {
        let mut settings: Vec<EngineSetting> = VARIANTS.iter().map(|variant| variant.setting).collect();
        settings.dedup();
        let again = |at: usize| settings[at + 1..].contains(&settings[at]);
        assert!(!(0..settings.len()).any(again), "each has one server");
        assert_eq!(VARIANTS[0].name, "baseline");
    }
}
