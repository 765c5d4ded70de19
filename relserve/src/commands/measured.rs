//! The model that a command loads, and how: flags over the configuration.

use std::path::PathBuf;

use clap::Args;
use engine::{EngineConfig, KvFormat, Quantize};
use gateway::config::Config;

use crate::terminal::with_default;

/// The model of a measurement.
#[derive(Debug, Args)]
pub(crate) struct Measured {
    /// The folder or GGUF file [default: the built-in demo model].
    dir: Option<PathBuf>,
    #[command(flatten)]
    weights: Weights,
    #[command(flatten)]
    place: DeviceArgs,
}

/// Where a model runs.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Where the model runs.
    #[arg(
        long,
        help = with_default(
            "Where the model runs: auto, cpu, cuda:0, cuda:0,1 and so on", EngineConfig::default().device
        )
    )]
    device: Option<engine::Device>,
    /// Ranks that the model is cut into.
    #[arg(
        long,
        value_name = "RANKS",
        help = with_default(
            "Ranks that the model is cut into (tensor parallelism)", EngineConfig::default().tensor_parallel
        )
    )]
    tp: Option<usize>,
}

impl DeviceArgs {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.engine.tensor_parallel = self.tp.unwrap_or(config.engine.tensor_parallel);
        if let Some(device) = &self.device {
            config.engine.device.clone_from(device);
        }
    }
}

/// How a model's weights, keys and values are kept.
#[derive(Debug, Args)]
pub(crate) struct Weights {
    /// Keeps weights in fewer bits than they are stored: q8, eight-bit integers, on the processor; q8-wide, the
    /// same in larger groups, for a matrix unit (AMX); fp8, eight-bit floats, on GPUs; q4, four bits, on either
    /// [default: as they are stored].
    #[arg(long, value_parser = quantize)]
    quantize: Option<Quantize>,
    /// What keys and values of tokens are kept as: f32, bf16, q8, or, on GPUs, fp8 [default: bf16 where weights are
    /// bf16 or fewer bits, else f32].
    #[arg(long, value_parser = kv_format)]
    kv: Option<KvFormat>,
}

impl Weights {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.engine.quantize = self.quantize.or(config.engine.quantize);
        config.engine.kv = self.kv.or(config.engine.kv);
    }
}

impl Measured {
    /// The configuration with this model in it.
    pub(crate) fn apply(self, mut config: Config) -> Config {
        self.weights.apply(&mut config);
        self.place.apply(&mut config);
        config.model.dir = self.dir.or(config.model.dir);
        config
    }
}

fn quantize(name: &str) -> Result<Quantize, String> {
    let known = Quantize::ALL.map(Quantize::name);
    let found = Quantize::ALL.into_iter().find(|quantize| quantize.name() == name);
    found.ok_or_else(|| format!("must be one of {}", known.join(", ")))
}

fn kv_format(name: &str) -> Result<KvFormat, String> {
    let known = KvFormat::ALL.map(KvFormat::name);
    let found = KvFormat::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("must be one of {}", known.join(", ")))
}
