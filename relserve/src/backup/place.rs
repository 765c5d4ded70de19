//! The folder that a backup is restored to: whether it may be, and how what was unpacked gets there.
//!
//! What is restored is written beside the folder and becomes it by one rename. A folder that a file system is mounted on
//! cannot be renamed: there files are written in a folder within, and renamed out of it, the database last.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use store::Store;
use tempfile::TempDir;

use super::DATABASE;
use crate::terminal::Failure;

/// Where file systems keep what they found; not what anybody put there.
const OF_FILE_SYSTEM: &str = "lost+found";

/// A folder that a backup can be restored to.
pub(crate) struct Place {
    folder: PathBuf,
    /// What is in it.
    held: Vec<PathBuf>,
    is_mounted: bool,
}

impl Place {
    /// Looks at a folder. `replaces`: it may have something in it.
    ///
    /// # Errors
    /// One that is in use, whatever `replaces` says, or that is not empty.
    pub(crate) fn at(folder: &Path, replaces: bool) -> Result<Self, Failure> {
        let folder = std::path::absolute(folder)?;
        let shown = folder.display();
        if let Some(node) = Store::node_on(&folder.join(DATABASE))? {
            return Err(format!("{shown} is in use: the gateway `{node}` runs on it; stop it first").into());
        }
        let held = held(&folder).map_err(|error| format!("cannot look into {shown}: {error}"))?;
        if !held.is_empty() && !replaces {
            return Err(format!(
                "{shown} is not empty: name another folder by --data-dir, or say --replace, which keeps what is there \
                 under another name"
            )
            .into());
        }
        let is_mounted = is_mounted(&folder)?;
        Ok(Self { folder, held, is_mounted })
    }

    /// A folder on the same disk for what is to be put there; it goes with its value.
    pub(crate) fn staging(&self) -> Result<TempDir, Failure> {
        let folder = match self.is_mounted {
            true => &self.folder,
            false => self.folder.parent().unwrap_or(&self.folder),
        };
        let made = || {
            fs::create_dir_all(folder)?;
            tempfile::Builder::new().prefix(".restore-").tempdir_in(folder)
        };
        Ok(made().map_err(|error| format!("cannot make a folder in {}: {error}", folder.display()))?)
    }

    /// Puts what is in the staging folder in place. What was there before is kept; where.
    pub(crate) fn put(self, staging: TempDir, now_ms: u64) -> Result<Option<PathBuf>, Failure> {
        let shown = self.folder.display();
        let put = match self.is_mounted {
            true => self.put_within(&staging, now_ms),
            false => self.put_whole(&staging, now_ms),
        };
        let kept = put.map_err(|error| format!("cannot put the backup at {shown}: {error}"))?;
        if !self.is_mounted {
            // It has another name now.
            let _gone = staging.keep();
        }
        Ok(kept)
    }

    fn put_whole(&self, staging: &TempDir, now_ms: u64) -> io::Result<Option<PathBuf>> {
        let mut kept = None;
        if !self.held.is_empty() {
            let mut aside = self.folder.clone().into_os_string();
            aside.push(format!(".before-restore-{now_ms}"));
            fs::rename(&self.folder, &aside)?;
            kept = Some(PathBuf::from(aside));
        }
        if let Err(error) = fs::rename(staging.path(), &self.folder) {
            if let Some(kept) = &kept {
                fs::rename(kept, &self.folder)?;
            }
            return Err(error);
        }
        sync(self.folder.parent().unwrap_or(&self.folder))?;
        Ok(kept)
    }

    fn put_within(&self, staging: &TempDir, now_ms: u64) -> io::Result<Option<PathBuf>> {
        let mut moved: Vec<(PathBuf, PathBuf)> = Vec::new();
        let aside = self.folder.join(format!("before-restore-{now_ms}"));
        let put = self.move_within(staging.path(), &aside, &mut moved);
        if let Err(error) = put {
            for (from, to) in moved.into_iter().rev() {
                fs::rename(to, from)?;
            }
            return Err(error);
        }
        sync(&self.folder)?;
        Ok((!self.held.is_empty()).then_some(aside))
    }

    fn move_within(&self, from: &Path, aside: &Path, moved: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
        if !self.held.is_empty() {
            fs::create_dir(aside)?;
        }
        let mut staged = held(from)?;
        staged.sort_by_key(|path| path.ends_with(DATABASE));
        let held = self.held.iter().map(|path| (path.clone(), aside));
        for (path, folder) in held.chain(staged.into_iter().map(|path| (path, self.folder.as_path()))) {
            let Some(name) = path.file_name() else { continue };
            let target = folder.join(name);
            fs::rename(&path, &target)?;
            moved.push((path, target));
        }
        Ok(())
    }
}

/// What is in a folder; nothing where it is not there.
fn held(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    Ok(paths.into_iter().filter(|path| !path.ends_with(OF_FILE_SYSTEM)).collect())
}

/// Whether a file system begins at a folder.
fn is_mounted(folder: &Path) -> io::Result<bool> {
    let Some(parent) = folder.parent() else { return Ok(true) };
    match (fs::metadata(folder), fs::metadata(parent)) {
        (Ok(folder), Ok(parent)) => Ok(folder.dev() != parent.dev()),
        // One that is still to be made.
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(false),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Has the names in a folder survive a power failure.
fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let paths = held(folder).expect("it is read");
        let mut names: Vec<String> =
            paths.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        names.sort();
        names
    }

    /// A folder with one file in it, and a staging folder with two.
    fn prepared(place: &Place) -> TempDir {
        let staging = place.staging().expect("made");
        fs::create_dir(staging.path().join("tables")).expect("made");
        fs::write(staging.path().join(DATABASE), "new").expect("written");
        staging
    }

    #[test]
    fn what_was_there_is_kept_under_another_name_also_where_a_file_system_is_mounted() {
        for is_mounted in [false, true] {
            let outer = tempfile::tempdir().expect("a folder");
            let folder = outer.path().join("data");
            fs::create_dir(&folder).expect("made");
            fs::write(folder.join(DATABASE), "old").expect("written");
            fs::create_dir(folder.join(OF_FILE_SYSTEM)).expect("made");
            let refused = Place::at(&folder, false).err().expect("it is not empty").to_string();
            assert!(refused.contains("data is not empty") && refused.contains("--replace"), "{refused}");
            let place = Place { is_mounted, ..Place::at(&folder, true).expect("it may be replaced") };
            let staging = prepared(&place);
            let kept = place.put(staging, 7).expect("put").expect("kept");
            assert_eq!(fs::read_to_string(folder.join(DATABASE)).expect("there"), "new");
            assert_eq!(fs::read_to_string(kept.join(DATABASE)).expect("there"), "old");
            let expected: &[&str] = match is_mounted {
                true => &["before-restore-7", "relserve.db", "tables"],
                false => &["relserve.db", "tables"],
            };
            assert_eq!(names(&folder), expected, "and nothing of the staging folder");
        }
    }

    #[test]
    fn what_cannot_be_put_leaves_all_as_it_was() {
        for is_mounted in [false, true] {
            let outer = tempfile::tempdir().expect("a folder");
            let folder = outer.path().join("data");
            fs::create_dir(&folder).expect("made");
            let place = Place { is_mounted, ..Place::at(&folder, false).expect("it is empty") };
            let staging = prepared(&place);
            // Somebody else was faster.
            fs::create_dir_all(folder.join(DATABASE).join("x")).expect("made");
            assert!(place.put(staging, 7).is_err());
            assert_eq!(names(&folder), [DATABASE], "nothing of the backup");
            assert_eq!(names(outer.path()), ["data"]);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_made() {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("a/b");
        let place = Place::at(&folder, false).expect("it can be made");
        let staging = prepared(&place);
        assert_eq!(place.put(staging, 7).expect("put"), None);
        assert_eq!(names(&folder), [DATABASE, "tables"]);
        assert_eq!(names(folder.parent().expect("a")), ["b"]);
    }
}
