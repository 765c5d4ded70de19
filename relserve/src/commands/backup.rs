//! `relserve backup`: one archive of the database and of what lies beside it, also while servers run.

use std::path::PathBuf;

use base::Bytes;
use clap::Args;
use gateway::config::Config;
use indicatif::BinaryBytes;
use serving::clock::Clock;
use store::{Inspection, Store};

use super::{Failure, say, tell};
use crate::backup::contents::{Contents, Source};
use crate::backup::pack::pack;
use crate::backup::{DATABASE, Manifest};

/// How `relserve backup` is told where to.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The archive to write, which must not be there yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes the archive and says what is in it, and what is not.
pub(crate) async fn run(asked: BackupArgs, config: &Config) -> Result<(), Failure> {
    let out = std::path::absolute(&asked.out)?;
    if out.exists() {
        return Err(format!("{} is there already", out.display()).into());
    }
    let url = config.store.url();
    let found = Store::inspect(&url).await.map_err(|error| match Store::shown(&url) {
        Ok(shown) => format!("{shown}: {error}"),
        Err(_) => error.to_string(),
    })?;
    // Beside the archive: there is room for one of the two there, or for neither.
    let folder = out.parent().unwrap_or(&out);
    let copies = tempfile::Builder::new().prefix(".backup-").tempdir_in(folder);
    let copies = copies.map_err(|error| format!("cannot write into {}: {error}", folder.display()))?;
    let mut sources = Vec::new();
    let schema = match found.is_server {
        true => None,
        false => {
            let copy = copies.path().join(DATABASE);
            let schema = copy_of(&url, &found, &copy).await?;
            sources.push(Source { path: DATABASE.to_owned(), file: copy });
            Some(schema)
        }
    };
    let data = &config.store.data_dir;
    let contents = Contents::of(data)
        .map_err(|error| format!("cannot read the data folder {}: {error}", data.display()))?;
    sources.extend(contents.files);
    let now_ms = Clock::start().unix_ms();
    let manifest = pack(&out, Manifest::new(now_ms, schema), &sources)?;
    let (files, bytes) = (manifest.members.len(), Bytes(manifest.bytes()));
    say!("backup: {} (files: {files}, {})", out.display(), BinaryBytes(bytes.0));
    for (path, reason) in contents.left_out {
        tell!("not in it: {} ({reason})", path.display());
    }
    if let Some(folder) = &config.sql.folder {
        tell!("not in it: {} (sql.folder, which is copied as any folder is)", folder.display());
    }
    if found.is_server {
        tell!(
            "not in it: the database {}; while servers run, `pg_dump --format=custom --file=FILE URL` copies it, and \
             `pg_restore --no-owner --dbname=URL FILE` puts it into an empty one",
            found.shown
        );
    }
    Ok(())
}

/// Copies a SQLite file; the version of its schema.
async fn copy_of(url: &str, found: &Inspection, copy: &std::path::Path) -> Result<i64, Failure> {
    let shown = &found.shown;
    let none = || {
        format!("there is no database of RelServe at {shown}: name the server's by --data-dir or --database")
    };
    if found.file.is_none() || found.schema.is_none() {
        return Err(none().into());
    }
    Store::copy_file(url, copy).await.map_err(|error| format!("{shown}: {error}"))?;
    let copied = Store::inspect(&format!("sqlite://{}", copy.display())).await?;
    Ok(copied.schema.ok_or_else(none)?)
}
