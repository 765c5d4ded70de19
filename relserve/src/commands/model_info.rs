//! `relserve model-info`: what a model folder or GGUF file holds.

use std::path::PathBuf;

use clap::Args;
use gateway::config::Config;
use serving::clock::Clock;
use serving::load;

use super::{Failure, say};

#[derive(Debug, Args)]
pub(crate) struct ModelInfo {
    /// The folder or file [default: the built-in demo model].
    dir: Option<PathBuf>,
}

impl ModelInfo {
    pub(crate) fn run(self, mut config: Config) -> Result<(), Failure> {
        config.model.dir = self.dir.or(config.model.dir);
        let model = load::model_of(&load::load(config.backend())?, config.backend(), Clock::start());
        say!("{}: {}", model.name, model.description);
        say!("context {}, vocabulary {}", model.context_max, model.vocab);
        say!("chat template: {}", if model.has_chat { "yes" } else { "no" });
        say!("KV pool: {} blocks of {} tokens", model.kv_blocks, model.block_tokens);
        say!("revision {:032x}", model.revision);
        Ok(())
    }
}
