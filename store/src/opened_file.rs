//! The file that a SQLite database was opened in, told from every other one. SQLite goes on with a file that somebody has
//! deleted, and all that it writes there is lost when the process ends.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file that is open, and the path that it was found at.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    path: PathBuf,
    identity: FileIdentity,
    /// While it is held, the system gives the file's number to no other one.
    _held: Option<File>,
}

/// What tells a file from all others of a machine, whatever they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

impl OpenedFile {
    /// The file at a path.
    pub(crate) fn at(path: &Path) -> std::io::Result<Self> {
        let held = hold(path);
        let identity = FileIdentity::of(&std::fs::metadata(path)?);
        Ok(Self { path: path.to_owned(), identity, _held: held })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the very file still stands at its path; `None` where nobody can say, as without the right to look.
    pub(crate) fn is_there(&self) -> Option<bool> {
        match std::fs::metadata(&self.path) {
            Ok(found) => Some(FileIdentity::of(&found) == self.identity),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Some(false),
                _ => None,
            },
        }
    }
}

/// Holds a file without opening it to be read: to close one that was would end the locks that SQLite has of it.
#[cfg(target_os = "linux")]
fn hold(path: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn hold(_: &Path) -> Option<File> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_until_it_is_moved_or_another_has_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("data");
        std::fs::create_dir(&below).expect("made");
        let [path, aside] = ["a.db", "b.db"].map(|name| below.join(name));
        std::fs::write(&path, "one").expect("written");
        let file = OpenedFile::at(&path).expect("it is there");
        assert_eq!(file.is_there(), Some(true));
        std::fs::write(&path, "another content").expect("written");
        assert_eq!(file.is_there(), Some(true), "it is the same file");
        std::fs::rename(&path, &aside).expect("moved");
        assert_eq!(file.is_there(), Some(false));
        std::fs::copy(&aside, &path).expect("copied");
        assert_eq!(file.is_there(), Some(false), "a copy is another file");
        std::fs::rename(&aside, &path).expect("moved");
        assert_eq!(file.is_there(), Some(true));
        std::fs::remove_dir_all(&below).expect("deleted");
        assert_eq!(file.is_there(), Some(false), "with its folder");
        std::fs::write(&below, "").expect("written");
        assert_eq!(file.is_there(), Some(false), "a file where its folder was");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_new_file_gets_the_number_of_one_that_was_deleted_and_is_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.db");
        std::fs::write(&path, "one").expect("written");
        let file = OpenedFile::at(&path).expect("it is there");
        for _ in 0..100 {
            std::fs::remove_file(&path).expect("deleted");
            std::fs::write(&path, "two").expect("written");
            assert_eq!(file.is_there(), Some(false));
        }
    }
}
