//! `relserve restore`: makes a data folder of what `relserve backup` wrote.

use std::path::PathBuf;

use clap::Args;
use gateway::config::Config;
use indicatif::BinaryBytes;
use serving::clock::Clock;

use super::{Failure, say, tell};
use crate::backup::DATABASE;
use crate::backup::place::Place;
use crate::backup::unpack::Archive;

/// How `relserve restore` is told of what; `--data-dir` names the folder.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The archive that `relserve backup` wrote.
    archive: PathBuf,
    /// Restores where the folder is not empty too; what is there is kept under another name.
    #[arg(long)]
    replace: bool,
}

/// Checks the archive and the folder, unpacks beside it, and puts all in place at once.
pub(crate) fn run(asked: &RestoreArgs, config: &Config) -> Result<(), Failure> {
    let folder = std::path::absolute(&config.store.data_dir)?;
    let mut archive = Archive::open(&asked.archive)?;
    let place = Place::at(&folder, asked.replace)?;
    let staging = place.staging()?;
    archive.unpack(staging.path())?;
    let kept = place.put(staging, Clock::start().unix_ms())?;
    let manifest = &archive.manifest;
    let (files, bytes) = (manifest.members.len(), BinaryBytes(manifest.bytes()));
    say!(
        "restored: {} (files: {files}, {bytes}; written by RelServe {})",
        folder.display(),
        manifest.program
    );
    if let Some(kept) = kept {
        say!("what was there is in {}", kept.display());
    }
    let database = folder.join(DATABASE);
    match (manifest.schema, &config.store.database) {
        (None, _) => tell!(
            "the archive holds no database, but what lay beside one: `pg_restore --no-owner --dbname=URL FILE` puts \
             back what `pg_dump` copied"
        ),
        (Some(_), Some(_)) => tell!(
            "the database is in {}; the configuration names another (--database or store.database)",
            database.display()
        ),
        (Some(_), None) => {}
    }
    Ok(())
}
