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
    /// What computing spans and modules apart does, and computing some of their tokens again: greedy agreement
    /// with undivided prompts, how far the distributions are, and the time to the first token.
    Spans {
        /// The folder [default: the built-in demo model].
        dir: Option<PathBuf>,
        /// A file of prompts, JSON in each line: `{"query": ..}` as `/v1/query` takes it, or `{"schema": ..,
        /// "prompt": ..}` as `/v1/schemas` and `/v1/prompts` do [default: a small set].
        #[arg(long)]
        prompts: Option<PathBuf>,
        #[command(flatten)]
        args: eval::spans::SpansArgs,
    },
    /// What examples, forms and calibration do for the cell functions, against bare prompts: small tables of
    /// calls with known answers, by a server in this process.
    Functions {
        /// The folder or file of the model [default: the built-in demo model].
        dir: Option<PathBuf>,
        #[command(flatten)]
        args: eval::functions::FunctionsArgs,
    },
    /// What modules, spans, reordered fields, fewer bits, tokens guessed ahead and constraints do to answers of
    /// small real tasks: accuracy, F1 and agreement with plain prompts, with intervals, in one table.
    Quality {
        /// The folder or file of the model [default: the built-in demo model].
        #[arg(value_name = "MODEL")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        args: eval::quality::QualityArgs,
    },
}

impl Eval {
    pub(crate) async fn run(self, mut config: Config) -> Result<(), Failure> {
        match self {
            Self::Quant { dir, prompts } => {
                config.model.dir = dir.or(config.model.dir);
                let prompts = eval::prompts(prompts.as_deref())?;
                let table = eval::measure(&config, &prompts)?;
                say!("{}", eval::text(prompts.len(), &table));
                if !table.failed.is_empty() {
                    let all = table.lines.len() + table.failed.len();
                    return Err(format!("{} of {all} formats were not measured", table.failed.len()).into());
                }
            }
            Self::Spans { dir, prompts, args } => {
                config.model.dir = dir.or(config.model.dir);
                let items = eval::spans::items(prompts.as_deref())?;
                say!("{}", eval::spans::text(&eval::spans::measure(&config, &items, &args)?));
            }
            Self::Functions { dir, args } => {
                config.model.dir = dir.or(config.model.dir);
                eval::functions::measure(&config, &args, &mut |line| say!("{line}")).await?;
            }
            Self::Quality { dir, args } => {
                config.model.dir = dir.or(config.model.dir);
                eval::quality::measure(&config, &args, &mut |line| say!("{line}")).await?;
            }
        }
        Ok(())
    }
}
