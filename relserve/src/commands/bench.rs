//! `relserve bench`: speed as a fraction of what this machine can do.

use clap::Subcommand;
use gateway::config::Config;
use serving::clock::Clock;
use serving::load;

use super::measured::Measured;
use super::{Failure, say};
use crate::bench;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The engine on a model: prefill, decode and a whole relQuery. On an otherwise idle machine.
    Engine {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        choice: bench::Choice,
    },
    /// Time to the first token of prompts whose modules are cached, against a plain prefill of the same
    /// tokens. On an otherwise idle machine.
    Pml {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        sizes: bench::pml::Sizes,
    },
    /// Prompts that share prefixes, from a source, in four ways: naive batches, continuous, sorted, in prefix
    /// buckets. On an otherwise idle machine.
    Buckets {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        shape: bench::buckets::BucketsArgs,
    },
    /// The 16 queries of the GGR paper as SQL (sql/queries), by a server in this process: no prefix cache,
    /// the cache, and the cache with rows and fields reordered. On an otherwise idle machine.
    Queries {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        tables: bench::queries::Tables,
    },
    /// What SQL costs beside the same relQuery over HTTP, two dashboards beside a bulk refresh, and the order of
    /// AI conditions. On an otherwise idle machine.
    Sql {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        sizes: bench::sql::SqlSizes,
    },
    /// Time to the first token of span queries: documents that were seen before, and a judge of candidates.
    Spans {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        sizes: bench::spans::Sizes,
    },
    /// Steps of one relQuery with and without guessed tokens (`scheduler.speculation`).
    Speculation {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        rows: bench::speculation::SpeculationArgs,
    },
}

impl Bench {
    pub(crate) async fn run(self, config: Config) -> Result<(), Failure> {
        match self {
            Self::Engine { measured, choice } => engine(&measured.apply(config), &choice)?,
            Self::Pml { measured, sizes } => {
                say!("{}", bench::pml::measure(&measured.apply(config), &sizes)?);
            }
            Self::Buckets { measured, shape } => {
                bench::buckets::measure(&measured.apply(config), &shape, &mut |line| say!("{line}"))?;
            }
            Self::Queries { measured, tables } => {
                bench::queries::measure(&measured.apply(config), &tables, &mut |line| say!("{line}")).await?;
            }
            Self::Sql { measured, sizes } => {
                bench::sql::measure(&measured.apply(config), &sizes, &mut |line| say!("{line}")).await?;
            }
            Self::Spans { measured, sizes } => {
                bench::spans::measure(&measured.apply(config), &sizes, &mut |line| say!("{line}"))?;
            }
            Self::Speculation { measured, rows } => {
                say!("{}", bench::speculation::measure(&measured.apply(config), &rows)?);
            }
        }
        Ok(())
    }
}

fn engine(config: &Config, choice: &bench::Choice) -> Result<(), Failure> {
    let mut engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    say!("{}: {}", model.name, model.description);
    say!("{}", bench::measure(&mut engine, &config.scheduler, choice)?);
    // Two would want twice the memory.
    drop(engine);
    if let Some(line) = bench::first_row::measure(config, choice)? {
        say!("{line}");
    }
    Ok(())
}
