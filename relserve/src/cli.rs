//! The `relserve` command line: what may be said, the configuration it makes, and which command runs.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use gateway::config::Config;

use crate::commands::bench::Bench;
use crate::commands::eval::Eval;
use crate::commands::key::{self, Key};
use crate::commands::measured::Measured;
use crate::commands::model_info::ModelInfo;
use crate::commands::pull::Pull;
use crate::commands::serve::{self, Serve};
use crate::commands::{Failure, calibrate, config, open, say};
use crate::jobs;
use crate::reorder::Reorder;
use crate::simulate::Simulate;

/// A self-hosted backend for LLM spreadsheet functions and dashboard columns.
#[derive(Debug, Parser)]
#[command(name = "relserve", version)]
pub struct Cli {
    /// The configuration file (TOML).
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Where the server writes its files.
    #[arg(long, global = true)]
    data_dir: Option<PathBuf>,
    /// `sqlite://...` or `postgres://...`.
    #[arg(long, global = true)]
    database: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a model.
    Serve(Serve),
    /// Prints the configuration in force, every default included, as TOML.
    Config,
    /// API keys.
    #[command(subcommand)]
    Key(Key),
    /// Fetches a model from a hub into a folder.
    Pull(Pull),
    /// Runs a prompt template over every row of a table and writes the table with a column of answers.
    ///
    /// A job that was stopped or killed goes on when the same command is run again.
    Batch(Box<jobs::Options>),
    /// Replays a trace under several policies in virtual time.
    Sim(Box<Simulate>),
    /// Says which order of a table's rows and fields shares most, and what that saves.
    Reorder(Box<Reorder>),
    /// Says what a model folder or GGUF file holds.
    ModelInfo(ModelInfo),
    /// Measures a model on this machine: prefill, decode and mixed steps, the cost model they give, and how
    /// much of its prompts a mixed step hides.
    Calibrate(Measured),
    /// Measures speed as a fraction of what this machine can do.
    #[command(subcommand)]
    Bench(Bench),
    /// Measures how good a model's answers are.
    #[command(subcommand)]
    Eval(Eval),
}

impl Cli {
    /// The configuration: defaults, the file, then flags.
    pub fn configuration(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(folder) = &self.data_dir {
            config.store.data_dir.clone_from(folder);
        }
        if let Some(url) = &self.database {
            config.store.database = Some(url.clone());
        }
        if let Command::Serve(flags) = &self.command {
            flags.apply(&mut config);
        }
        config.validate()?;
        Ok(config)
    }

    /// Runs the command.
    pub async fn run(self) -> Result<(), Failure> {
        let config = self.configuration()?;
        match self.command {
            Command::Serve(_) => serve::run(config).await,
            Command::Config => config::print(config),
            Command::Key(key) => key::run(key, &open(&config).await?).await,
            Command::Pull(pull) => pull.run(&config),
            Command::Batch(options) => jobs::run(*options, config).await,
            Command::Sim(simulate) => {
                say!("{}", simulate.run()?);
                Ok(())
            }
            Command::Reorder(reorder) => {
                say!("{}", reorder.run(config)?);
                Ok(())
            }
            Command::ModelInfo(info) => info.run(config),
            Command::Calibrate(measured) => calibrate::run(measured, config),
            Command::Bench(bench) => bench.run(config).await,
            Command::Eval(eval) => eval.run(config),
        }
    }
}
