//! A journal on disk of usage that is not known to be in the store, so that a process's end, whatever it is, takes nothing
//! along that was told.
//!
//! Each write of usage has a file, named by its writer and number, which is begun with the first amount that the write
//! will have and removed once the store has the write. What a process leaves is sent by the next one under the names that
//! it has ([`crate::usage_replay`]): a write that had reached the store counts once. A file whose lines became many is written
//! anew with one for each sum, so it has at most a megabyte, or twice its sums.
//!
//! What is written is the system's at once, and on the disk later: a kill loses nothing, a loss of power the last
//! moments. A disk that fails or is slow fails no request: the journal rests, and what it has missed is written when it goes
//! on. Must not know where amounts come from.

mod folder;
mod pace;
mod segment;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use base::Time;
pub use folder::JournalFolder;
use folder::remove;
use pace::Pace;
use prometheus::IntCounter;
use segment::push_line;
pub use segment::{JournalEntry, LeftSegment, SegmentHead};

use crate::clock::Clock;

/// From so many bytes on a file is written anew, unless its sums alone are more than half of it.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;

/// The journal of one writer of usage.
#[derive(Debug)]
pub struct UsageJournal {
    folder: Arc<JournalFolder>,
    writer: String,
    /// The model's name.
    model: String,
    clock: Clock,
    failures: IntCounter,
    /// Files by the numbers of their writes: of one on its way to the store, and of the next.
    segments: BTreeMap<u64, Segment>,
    /// An empty draft for the next file. The file of a write that the store has becomes it, so that none has to be opened
    /// where a process may open no more.
    spare: Option<File>,
    pace: Pace,
    /// The last line, whose room is used again.
    text: Vec<u8>,
}

/// A file that is written.
#[derive(Debug)]
struct Segment {
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// Whether it has all of its write.
    is_whole: bool,
}

impl UsageJournal {
    /// An empty one of a writer, for usage of a model; `failures` counts writes that failed or took too long.
    pub fn new(
        folder: Arc<JournalFolder>,
        (writer, model): (String, String),
        clock: Clock,
        failures: IntCounter,
    ) -> Self {
        let (segments, spare, pace, text) = (BTreeMap::new(), None, Pace::default(), Vec::new());
        Self { folder, writer, model, clock, failures, segments, spare, pace, text }
    }

    /// Writes down one more amount of a write. `all`: what the write has with it.
    pub(crate) fn add(&mut self, number: u64, entry: &JournalEntry, all: impl Iterator<Item = JournalEntry>) {
        let began = self.clock.now();
        if self.pace.rests(began) {
            self.missed(number);
            return;
        }
        let has_room = |segment: &&mut Segment| segment.is_whole && segment.bytes < segment.bytes_max;
        let written = match self.segments.get_mut(&number).filter(has_room) {
            Some(segment) => segment.append(entry, &mut self.text),
            None => self.write_anew(number, all),
        };
        self.note(number, began, written);
    }

    /// Writes down what a write has, where that is not done.
    pub(crate) fn complete(&mut self, number: u64, all: impl Iterator<Item = JournalEntry>) {
        let began = self.clock.now();
        let is_whole = self.segments.get(&number).is_some_and(|segment| segment.is_whole);
        if !is_whole && !self.pace.rests(began) {
            let written = self.write_anew(number, all);
            self.note(number, began, written);
        }
    }

    /// Has a file ready for the write after the next one.
    pub(crate) fn prepare(&mut self) {
        if self.spare.is_none() && self.segments.len() < 2 && !self.pace.rests(self.clock.now()) {
            // Where there is none it is opened when it is needed, which says what is wrong.
            self.spare = self.draft().ok();
        }
    }

    /// The store has a write.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(Segment { file, .. }) = self.segments.remove(&number) else { return };
        let path = self.folder.path(&self.writer, number);
        if self.spare.is_none() {
            let emptied = std::fs::rename(&path, self.folder.draft(&self.writer));
            self.spare = emptied.and_then(|()| file.set_len(0)).is_ok().then_some(file);
        }
        remove(&path);
    }

    /// Opens an empty draft.
    fn draft(&self) -> io::Result<File> {
        let path = self.folder.draft(&self.writer);
        let file = File::options().append(true).create(true).mode(0o600).open(path)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Writes a file that takes the place of what there was of this write, once it is whole.
    fn write_anew(&mut self, number: u64, all: impl Iterator<Item = JournalEntry>) -> io::Result<()> {
        let mut text = Vec::new();
        let head = SegmentHead { writer: self.writer.clone(), number, model: self.model.clone() };
        push_line(&mut text, &head)?;
        for entry in all {
            push_line(&mut text, &entry)?;
        }
        let mut file = match self.spare.take() {
            Some(file) => file,
            None => self.draft()?,
        };
        file.write_all(&text)?;
        std::fs::rename(self.folder.draft(&self.writer), self.folder.path(&self.writer, number))?;
        let bytes = text.len() as u64;
        let bytes_max = SEGMENT_BYTES_MAX.max(2 * bytes);
        self.segments.insert(number, Segment { file, bytes, bytes_max, is_whole: true });
        Ok(())
    }

    fn missed(&mut self, number: u64) {
        self.segments.get_mut(&number).into_iter().for_each(|segment| segment.is_whole = false);
    }

    /// Something was to be written: rests where that failed, or took too long.
    fn note(&mut self, number: u64, began: Time, written: io::Result<()>) {
        let ended = self.clock.now();
        let reason = match written {
            Err(error) => {
                self.missed(number);
                error.to_string()
            }
            Ok(()) if self.pace.wrote(began, ended) => "writes take too long".to_owned(),
            Ok(()) => {
                if self.pace.has_recovered(ended) {
                    tracing::info!("the journal of usage is written again");
                }
                return;
            }
        };
        self.failures.inc();
        if self.pace.rest(ended) {
            tracing::warn!(
                %reason,
                "the journal of usage is not written: until it is, a kill loses usage that the database does not have"
            );
        }
    }
}

impl Segment {
    fn append(&mut self, entry: &JournalEntry, text: &mut Vec<u8>) -> io::Result<()> {
        text.clear();
        push_line(text, entry)?;
        // In one call: a kill comes before it or after it.
        self.file.write_all(text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::borrow::Cow;
    use std::path::{Path, PathBuf};

    use super::*;

    fn rows(rows: u64) -> JournalEntry {
        let (requests, prompt, cached, computed, output, cost) = (0, 0, 0, 0, 0, 0);
        let (tenant, day, route) = (1, 20_000, Cow::Borrowed("cells"));
        JournalEntry { tenant, day, route, requests, rows, prompt, cached, computed, output, cost }
    }

    fn journal(data: &Path) -> UsageJournal {
        let folder = Arc::new(JournalFolder::open(data).unwrap());
        let failures = IntCounter::new("failures", "of writes").unwrap();
        UsageJournal::new(folder, ("a".into(), "demo".into()), Clock::stopped(), failures)
    }

    /// What a kill would leave of the first journal in a data folder, by writer and number.
    pub(crate) fn on_disk(data: &Path) -> Vec<LeftSegment> {
        let entries = std::fs::read_dir(data.join("usage-journal/0")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| !path.ends_with("lock") && path.extension().is_none()).collect();
        paths.sort();
        let read = |path: &PathBuf| LeftSegment::parse(&std::fs::read(path).unwrap()).expect("a first line");
        paths.iter().map(read).collect()
    }

    /// Rows of each write of it, line by line.
    fn left(data: &Path) -> Vec<(u64, Vec<u64>)> {
        let rows_of = |left: LeftSegment| {
            assert_eq!((left.head.writer.as_str(), left.head.model.as_str()), ("a", "demo"));
            (left.head.number, left.entries.iter().map(|entry| entry.rows).collect::<Vec<u64>>())
        };
        on_disk(data).into_iter().map(rows_of).collect()
    }

    #[test]
    fn what_is_added_is_left_until_the_store_has_its_write() {
        let data = tempfile::tempdir().unwrap();
        let mut journal = journal(data.path());
        journal.add(1, &rows(3), [rows(3)].into_iter());
        journal.add(1, &rows(4), [rows(7)].into_iter());
        journal.complete(1, [rows(7)].into_iter());
        journal.add(2, &rows(5), [rows(5)].into_iter());
        let mode = |number| {
            let metadata = std::fs::metadata(journal.folder.path("a", number)).unwrap();
            std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
        };
        assert_eq!([mode(1), mode(2)], [0o600, 0o600]);
        assert_eq!(left(data.path()), [(1, vec![3, 4]), (2, vec![5])]);
        journal.remove(1);
        journal.remove(1);
        assert_eq!(left(data.path()), [(2, vec![5])]);
        assert!(journal.spare.is_some(), "the file of the first is used again");
        journal.add(3, &rows(6), [rows(6)].into_iter());
        journal.add(3, &rows(7), [rows(13)].into_iter());
        assert!(journal.spare.is_none());
        assert_eq!(left(data.path()), [(2, vec![5]), (3, vec![6, 7])]);
        journal.remove(2);
        journal.remove(3);
        assert!(left(data.path()).is_empty());
        journal.prepare();
        journal.folder.release();
        assert!(JournalFolder::open(data.path()).unwrap().left().is_empty(), "a draft is nothing");
    }

    #[test]
    fn a_file_of_many_lines_is_written_anew_with_its_sums_and_stays_small() {
        let data = tempfile::tempdir().unwrap();
        let mut journal = journal(data.path());
        let path = journal.folder.path("a", 1);
        const ADDED: u64 = 30_000;
        let mut was_anew = 0;
        let mut longest = 0;
        for added in 1..=ADDED {
            journal.add(1, &rows(1), [rows(added)].into_iter());
            let bytes = journal.segments[&1].bytes;
            was_anew += u64::from(bytes < longest);
            longest = bytes;
            assert!(bytes < SEGMENT_BYTES_MAX + 100, "{bytes}");
        }
        assert!(was_anew > 0);
        assert_eq!(std::fs::metadata(path).unwrap().len(), longest);
        let left = left(data.path());
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].1.iter().sum::<u64>(), ADDED);
    }

    #[test]
    fn what_could_not_be_written_is_written_when_that_is_possible_again() {
        let data = tempfile::tempdir().unwrap();
        let mut journal = journal(data.path());
        let folder = journal.folder.path("a", 1).parent().unwrap().to_owned();
        journal.add(1, &rows(3), [rows(3)].into_iter());
        // Whoever takes the folder away lets nothing be begun in it.
        let aside = folder.with_extension("aside");
        std::fs::rename(&folder, &aside).unwrap();
        journal.add(2, &rows(4), [rows(4)].into_iter());
        assert_eq!(journal.failures.get(), 1);
        journal.add(1, &rows(1), [rows(4)].into_iter());
        journal.add(2, &rows(1), [rows(5)].into_iter());
        assert_eq!(journal.failures.get(), 1, "it rests");
        std::fs::rename(&aside, &folder).unwrap();
        journal.pace = Pace::default();
        journal.complete(1, [rows(4)].into_iter());
        journal.add(2, &rows(1), [rows(6)].into_iter());
        assert_eq!(left(data.path()), [(1, vec![4]), (2, vec![6])]);
    }
}
