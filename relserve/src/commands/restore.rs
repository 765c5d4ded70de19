//! `relserve restore`: makes a data folder of what `relserve backup` wrote.

use std::path::{Path, PathBuf};

use clap::Args;
use gateway::config::Config;
use indicatif::BinaryBytes;
use serde_json::json;
use serving::clock::Clock;
use store::{Store, UnixMillis};

use super::{Failure, by_command, say, tell};
use crate::backup::place::Place;
use crate::backup::unpack::Archive;
use crate::backup::{DATABASE, Manifest};

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
pub(crate) async fn run(asked: &RestoreArgs, config: &Config) -> Result<(), Failure> {
    let folder = std::path::absolute(&config.store.data_dir)?;
    let mut archive = Archive::open(&asked.archive)?;
    let place = Place::at(&folder, asked.replace)?;
    let staging = place.staging()?;
    archive.unpack(staging.path())?;
    let manifest = &archive.manifest;
    let now = UnixMillis(Clock::start().unix_ms());
    if manifest.schema.is_some() {
        let database = staging.path().join(DATABASE);
        note(&database, (folder.as_path(), asked.archive.as_path()), manifest, now).await?;
    }
    let kept = place.put(staging, now.0)?;
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

/// Writes into the audit log of the database that it was restored: what is put in place has it, and what is not goes
/// with it. A database that is older than the log has none.
async fn note(
    database: &Path,
    (folder, archive): (&Path, &Path),
    manifest: &Manifest,
    now: UnixMillis,
) -> Result<(), Failure> {
    let subject = folder.display().to_string();
    let details = json!({
        "archive": archive.display().to_string(),
        "program": manifest.program,
        "created": manifest.created_ms / 1_000,
        "files": manifest.members.len(),
    })
    .to_string();
    let entry = by_command("restore", &subject, &details);
    let noted = Store::audit_in_file(database, entry, now).await;
    noted.map_err(|error| format!("the audit log of the backup cannot be written: {error}"))?;
    Ok(())
}
