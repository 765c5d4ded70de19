//! Where a process has its journal: a folder within the data folder that no other process has meanwhile. Two processes may
//! share a data folder, with a database each; whoever starts takes over what those left that have ended.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// In the data folder.
const FOLDER: &str = "usage-journal";
/// Most processes that have their journals in one data folder at once.
const PROCESSES_MAX: usize = 64;
/// What a process holds locked for as long as the folder is its own.
const LOCK: &str = "lock";
/// Beside the folders of processes: files of another database's processes, which whoever starts looks at too. No process has
/// them to itself: who sends one that another has sent is told so by the store.
const FOREIGN: &str = "foreign";
/// Ends the name of a file that takes its place among the others once it is whole.
const DRAFT: &str = "draft";

/// The folder of this process's journal.
#[derive(Debug)]
pub struct JournalFolder {
    folder: PathBuf,
    foreign: PathBuf,
    /// Files of processes that have ended which the store has not taken, by writer and number.
    left: Mutex<Vec<PathBuf>>,
    lock: File,
}

impl JournalFolder {
    /// Takes the first folder within a data folder that no process has, and what was left in it and in others.
    ///
    /// # Errors
    /// None can be made, read or locked.
    pub fn open(data: &Path) -> io::Result<Self> {
        let mut own: Option<(PathBuf, File)> = None;
        for place in 0..PROCESSES_MAX {
            let folder = data.join(FOLDER).join(place.to_string());
            // Behind its own one a process only looks at those that are there.
            if own.is_some() && !folder.is_dir() {
                break;
            }
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let Some(lock) = locked(&folder)? else { continue };
            match &own {
                None => own = Some((folder, lock)),
                Some((own, _)) => {
                    for file in files(&folder)? {
                        let name = file.file_name().unwrap_or_default();
                        fs::rename(&file, own.join(name))?;
                    }
                }
            }
        }
        let Some((folder, lock)) = own else {
            return Err(io::Error::other(format!("{PROCESSES_MAX} processes have their journals there")));
        };
        let foreign = data.join(FOLDER).join(FOREIGN);
        let mut left = files(&folder)?;
        if foreign.is_dir() {
            left.extend(files(&foreign)?);
        }
        // A writer's files in the order of their numbers, wherever they are.
        left.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        Ok(Self { folder, foreign, left: Mutex::new(left), lock })
    }

    /// The file of a write.
    pub(super) fn path(&self, writer: &str, number: u64) -> PathBuf {
        // Names are in the order of numbers.
        self.folder.join(format!("{writer}-{number:020}"))
    }

    /// Where a writer's next file is written.
    pub(super) fn draft(&self, writer: &str) -> PathBuf {
        self.folder.join(format!("{writer}.{DRAFT}"))
    }

    fn lock_left(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files of processes that have ended which the store has not taken, by writer and number.
    pub fn left(&self) -> Vec<PathBuf> {
        self.lock_left().clone()
    }

    /// A file is not asked for again by this process, and stays.
    pub fn set_aside(&self, path: &Path) {
        self.lock_left().retain(|left| left != path);
    }

    /// A file is another database's: it is not asked for again by this process, and is where a server of that database finds
    /// it, though this process lives on.
    pub fn leave_to_others(&self, path: &Path) {
        self.set_aside(path);
        let Some(name) = path.file_name() else { return };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.foreign);
        if let Err(error) = made.and_then(|()| fs::rename(path, self.foreign.join(name))) {
            tracing::warn!(%error, path = %path.display(), "a file of another database stays in the journal of usage of this one");
        }
    }

    /// A file is not needed any more.
    pub fn remove_left(&self, path: &Path) {
        self.set_aside(path);
        remove(path);
    }

    /// Whoever starts next may have the folder. What is still counted here is lost.
    pub fn release(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the folder of the journal of usage stays locked until the process ends");
        }
    }
}

/// Removes a file. One that stays does no harm: the store knows that it has what it holds.
pub(super) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a file of the journal of usage was not removed");
        }
        _ => {}
    }
}

/// Takes a folder, unless another process has it. A file system without locks is an error: there a process would send to
/// the store what another one still counts.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The files that a process has left in its folder. A draft is not whole, and what it was to replace is there.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.ends_with(LOCK) {
            continue;
        }
        match path.extension().is_some_and(|extension| extension == DRAFT) {
            true => remove(&path),
            false => files.push(path),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of files, without their folders.
    fn names(folder: &JournalFolder) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        folder.left().into_iter().map(name).collect()
    }

    #[test]
    fn each_process_has_a_folder_of_its_own_and_takes_over_what_those_left_that_have_ended() {
        let data = tempfile::tempdir().unwrap();
        let first = JournalFolder::open(data.path()).unwrap();
        let second = JournalFolder::open(data.path()).unwrap();
        assert_ne!(first.folder, second.folder);
        for (folder, writer) in [(&first, "a"), (&second, "b"), (&second, "c")] {
            fs::write(folder.path(writer, 10), "x").unwrap();
            fs::write(folder.path(writer, 9), "x").unwrap();
            fs::write(folder.draft(writer), "x").unwrap();
        }
        second.release();
        let third = JournalFolder::open(data.path()).unwrap();
        let named = |writer: &str| [9, 10].map(|number| format!("{writer}-{number:020}"));
        assert_eq!(names(&third), [named("b"), named("c")].concat(), "the first lives");
        drop((first, third));
        let last = JournalFolder::open(data.path()).unwrap();
        assert_eq!(names(&last), [named("a"), named("b"), named("c")].concat());
        let left = last.left();
        last.remove_left(&left[0]);
        last.set_aside(&left[1]);
        assert_eq!(names(&last), [named("b"), named("c")].concat());
        assert!(!left[0].exists() && left[1].exists());
    }

    #[test]
    fn what_is_another_databases_is_found_while_who_found_it_first_lives() {
        let data = tempfile::tempdir().unwrap();
        let first = JournalFolder::open(data.path()).unwrap();
        for number in [9, 10] {
            fs::write(first.path("a", number), "x").unwrap();
        }
        drop(first);
        let second = JournalFolder::open(data.path()).unwrap();
        let named = [9, 10].map(|number| format!("a-{number:020}"));
        assert_eq!(names(&second), named);
        second.leave_to_others(&second.left()[0]);
        assert_eq!(names(&second), named[1..], "it came no further");
        let third = JournalFolder::open(data.path()).unwrap();
        assert_eq!(names(&third), named[..1]);
        third.leave_to_others(&third.left()[0]);
        drop((second, third));
        let last = JournalFolder::open(data.path()).unwrap();
        assert_eq!(names(&last), named, "in the order of their numbers, from two folders");
        last.remove_left(&last.left()[0]);
        assert_eq!(names(&last), named[1..]);
        assert!(fs::read_dir(&last.foreign).unwrap().next().is_none());
    }
}
