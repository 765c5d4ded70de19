//! `relserve eval`: how good a model's answers are.

use std::path::PathBuf;

use clap::Subcommand;
use gateway::config::Config;

use super::{Failure, say};
use crate::eval;

#[derive(Debug, Subcommand)]
pub(crate) enum Eval {
    /// What keeping weights in fewer bits does: greedy agreement with weights in f32, and how far the
    /// distributions are.
    Quant {
        /// The folder [default: the built-in demo model].
        dir: Option<PathBuf>,
        /// A file of prompts, one a line [default: a small set of labelling prompts].
        #[arg(long)]
        prompts: Option<PathBuf>,
    },
    /// What computing spans and modules apart does: greedy agreement with undivided prompts, and how far the
    /// distributions are.
    Spans {
        /// The folder [default: the built-in demo model].
        dir: Option<PathBuf>,
        /// A file of prompts, JSON in each line: `{"query": ..}` as `/v1/query` takes it, or `{"schema": ..,
        /// "prompt": ..}` as `/v1/schemas` and `/v1/prompts` do [default: a small set].
        #[arg(long)]
        prompts: Option<PathBuf>,
    },
}

impl Eval {
    pub(crate) fn run(self, mut config: Config) -> Result<(), Failure> {
        match self {
            Self::Quant { dir, prompts } => {
                config.model.dir = dir.or(config.model.dir);
                let prompts = eval::prompts(prompts.as_deref())?;
                let lines = eval::measure(&config, &prompts)?;
                say!("{}", eval::text(prompts.len(), &lines));
            }
            Self::Spans { dir, prompts } => {
                config.model.dir = dir.or(config.model.dir);
                let items = eval::spans::items(prompts.as_deref())?;
                say!("{}", eval::spans::text(&eval::spans::measure(&config, &items)?));
            }
        }
        Ok(())
    }
}
