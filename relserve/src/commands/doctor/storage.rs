//! What outlives the process: the database, and the disk that the data folder is on.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use base::Bytes;
use gateway::config::Config;
use indicatif::BinaryBytes;
use store::{Inspection, Store};

use super::{CheckStatus, Finding};

/// Below this a database cannot grow, and answers are not kept.
const DISK_MIN: Bytes = Bytes(64 << 20);
/// Below this a day of answers, or a model, may not fit.
const DISK_ENOUGH: Bytes = Bytes(1 << 30);
/// What names another database.
const NAMES_ANOTHER: &str = "name another by `--data-dir` or `--database`";

/// Looks at the database.
pub(super) async fn database(config: &Config) -> Finding {
    let url = config.store.url();
    let found = match Store::inspect(&url).await {
        Ok(found) => found,
        Err(error) => {
            let shown = Store::shown(&url).unwrap_or_else(|_| "store.database".to_owned());
            let remedy = match error {
                store::Error::Away(_) => format!("start the database, or {NAMES_ANOTHER}"),
                store::Error::DiskFull(_) => format!("make room on its disk, or {NAMES_ANOTHER}"),
                _ => NAMES_ANOTHER.to_owned(),
            };
            return Finding::failure("database", format!("{shown}: {error}"), remedy);
        }
    };
    let shown = &found.shown;
    if let Err(reason) = can_write(&found) {
        let remedy = format!("give this user the right to write there, or {NAMES_ANOTHER}");
        return Finding::failure("database", format!("{shown}: {reason}"), remedy);
    }
    Finding::ok(
        "database",
        match found.schema {
            None => format!("{shown} is not there yet; the first start makes it"),
            Some(_) if found.is_older() => format!("{shown} is there; the next start updates its tables"),
            Some(_) => format!("{shown} is there"),
        },
    )
}

/// Whether the file can be written, or made.
fn can_write(found: &Inspection) -> Result<(), String> {
    let Some(file) = &found.file else { return Ok(()) };
    let folder = existing(file.parent().unwrap_or(file));
    if file.exists() {
        let opened = OpenOptions::new().append(true).open(file);
        opened.map_err(|error| format!("cannot be written: {error}"))?;
    }
    // SQLite writes files beside its own.
    let made = tempfile::tempfile_in(&folder);
    made.map(drop).map_err(|error| format!("no file can be made in {}: {error}", folder.display()))
}

/// The folder itself, or the nearest one above it that is there.
fn existing(folder: &Path) -> PathBuf {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    whole.ancestors().find(|folder| folder.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Looks at the room that is left.
pub(super) fn disk(config: &Config) -> Finding {
    let folder = existing(&config.store.data_dir);
    let shown = folder.display();
    let found = match rustix::fs::statvfs(folder.as_path()) {
        Ok(found) => found,
        Err(error) => {
            let remedy = "name another folder by `--data-dir` or store.data_dir";
            return Finding::failure("disk", format!("{shown}: {error}"), remedy);
        }
    };
    let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
    let text = format!("{} are free for {shown}", BinaryBytes(free.0));
    let remedy = "delete what is not needed, or name another folder by `--data-dir` or store.data_dir";
    match enough(free) {
        CheckStatus::Ok => Finding::ok("disk", text),
        CheckStatus::Warning => Finding::warning("disk", text, remedy),
        CheckStatus::Failure => Finding::failure("disk", text, remedy),
    }
}

/// How so much room is.
fn enough(free: Bytes) -> CheckStatus {
    match free {
        free if free < DISK_MIN => CheckStatus::Failure,
        free if free < DISK_ENOUGH => CheckStatus::Warning,
        _ => CheckStatus::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_a_failure_and_a_nearly_full_one_a_warning() {
        let statuses = [0, 64 << 20, 1 << 30].map(|free| enough(Bytes(free)));
        assert_eq!(statuses, [CheckStatus::Failure, CheckStatus::Warning, CheckStatus::Ok]);
        assert_eq!(enough(Bytes((64 << 20) - 1)), CheckStatus::Failure);
    }

    #[test]
    fn the_nearest_folder_that_is_there_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(existing(&folder.path().join("a/b")), folder.path());
        assert_eq!(existing(folder.path()), folder.path());
    }
}
