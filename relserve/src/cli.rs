//! The `relserve` command line: what may be said, the configuration it makes, and which command runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gateway::config::{Config, StoreConfig};

use crate::commands::backup::{self, BackupArgs};
use crate::commands::bench::Bench;
use crate::commands::doctor::{self, DoctorArgs};
use crate::commands::eval::Eval;
use crate::commands::key::{self, Key};
use crate::commands::measured::Measured;
use crate::commands::model_info::ModelInfo;
use crate::commands::pull::Pull;
use crate::commands::restore::{self, RestoreArgs};
use crate::commands::serve::{self, Serve};
use crate::commands::sign_in::{self, SignInArgs};
use crate::commands::{Failure, calibrate, config, say};
use crate::jobs;
use crate::reorder::Reorder;
use crate::simulate::Simulate;
use crate::terminal::with_default;

/// A self-hosted backend for LLM spreadsheet functions and dashboard columns.
#[derive(Debug, Parser)]
#[command(name = "relserve", version)]
pub struct Cli {
    #[command(flatten)]
    sources: ConfigSources,
    #[command(subcommand)]
    command: Command,
}

/// Where the configuration comes from, beside the flags of a command.
#[derive(Debug, Args)]
struct ConfigSources {
    /// The configuration file (TOML) [default: none; every setting has a default].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the server writes its files.
    #[arg(
        long,
        global = true,
        help = with_default(
            "Where the server writes its files", StoreConfig::default().data_dir.display()
        )
    )]
    data_dir: Option<PathBuf>,
    /// `sqlite://...` or `postgres://...` [default: the SQLite file relserve.db in the data folder].
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a model.
    Serve(Serve),
    /// Says whether `serve` with the same flags would find all that it needs: the model, GPU libraries and their
    /// memory, ports, the database and disk. Changes nothing; fails where the server would.
    Doctor(DoctorArgs),
    /// Prints the configuration in force, every default included, as TOML.
    Config,
    /// API keys.
    Key(Key),
    /// Prints a link that signs a browser in to the page, once.
    SignIn(SignInArgs),
    /// Copies the database and what lies beside it into one archive, also while servers run.
    ///
    /// The archive holds all that tenants stored and the hashes of keys, is not encrypted, and is readable by its owner
    /// alone. Models and the configuration are not in it.
    Backup(BackupArgs),
    /// Makes a data folder of an archive that `backup` wrote. Every digest is checked first; a folder that is not empty,
    /// or that a server runs on, is refused.
    Restore(RestoreArgs),
    /// Fetches a model from a hub into a folder; without a name, lists models that have one here.
    Pull(Pull),
    /// Runs a prompt template over every row of a table and writes the table with a column of answers.
    ///
    /// A job that was stopped or killed goes on when the same command is run again. Exits with 0 where all
    /// rows have answers, with 3 where some failed, with 1 where the job could not run.
    Batch(Box<jobs::Options>),
    /// Replays a trace under several policies in virtual time.
    Sim(Box<Simulate>),
    /// Says which order of a table's rows and fields shares most, and what that saves.
    ///
    /// `--input -` is CSV on standard input.
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

impl ConfigSources {
    /// Defaults, the file, then flags.
    fn read(&self, flags: Option<&Serve>) -> Result<Config, Failure> {
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
        if let Some(flags) = flags {
            flags.apply(&mut config);
        }
        config.validate()?;
        Ok(config)
    }
}

impl Cli {
    /// The configuration: defaults, the file, then flags.
    pub fn configuration(&self) -> Result<Config, Failure> {
        let flags = match &self.command {
            Command::Serve(flags) => Some(flags),
            Command::Doctor(args) => Some(args.serve()),
            _ => None,
        };
        self.sources.read(flags)
    }

    /// What is logged where nothing else is said: of a job that shows how far it is, what is wrong alone.
    pub fn log_level(&self) -> &'static str {
        match self.command {
            Command::Batch(_) => "warn",
            _ => "info",
        }
    }

    /// Runs the command; how the process is to exit.
    pub async fn run(self) -> Result<ExitCode, Failure> {
        let config = self.configuration();
        match (self.command, config) {
            // A configuration that is wrong is one of its findings.
            (Command::Doctor(args), config) => return Ok(doctor::run(&args, config).await),
            (_, Err(failure)) => return Err(failure),
            (Command::Serve(flags), Ok(config)) => {
                serve::run(&flags, config, || self.sources.read(Some(&flags))).await?;
            }
            (Command::Config, Ok(config)) => config::print(config)?,
            (Command::Key(key), Ok(config)) => key::run(key, &config).await?,
            (Command::SignIn(asked), Ok(config)) => sign_in::run(asked, &config).await?,
            (Command::Backup(asked), Ok(config)) => backup::run(asked, &config).await?,
            (Command::Restore(asked), Ok(config)) => restore::run(&asked, &config).await?,
            (Command::Pull(pull), Ok(config)) => pull.run(&config)?,
            (Command::Batch(options), Ok(config)) => return jobs::run(*options, config).await,
            (Command::Sim(simulate), Ok(_)) => say!("{}", simulate.run()?),
            (Command::Reorder(reorder), Ok(config)) => say!("{}", reorder.run(config).await?),
            (Command::ModelInfo(info), Ok(config)) => info.run(config)?,
            (Command::Calibrate(measured), Ok(config)) => calibrate::run(measured, config)?,
            (Command::Bench(bench), Ok(config)) => bench.run(config).await?,
            (Command::Eval(eval), Ok(config)) => eval.run(config).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
