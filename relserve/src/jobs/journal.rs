//! What a job has done: a folder beside the output that outlives the process.
//!
//! `job.json` says which job it is. `results.jsonl` has a line for each row that is over, in the order in
//! which they ended; a row counts once its line is on the disk. `index` says where each row's line is, 16
//! bytes a row; it is made anew from the results at each start. So memory stays the same however long the
//! table, and a kill costs at most the rows under way.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::Failure;
use super::layout::Layout;

/// Bytes of an entry of the index.
const ENTRY: u64 = 16;

/// A row that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct JournalRecord {
    /// Its number, from 1.
    pub(super) row: u64,
    pub(super) cells: Vec<Value>,
    /// Its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RowError>,
}

/// Why a row failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowError {
    /// For people.
    pub(super) message: String,
    /// For programs.
    pub(super) code: Option<String>,
}

/// Rows that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// With an answer.
    pub(super) done: u64,
    /// Without.
    pub(super) failed: u64,
}

/// What decides which job it is, part by part, so that it can be said what differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    input: String,
    request: Map<String, Value>,
    layout: Layout,
}

/// The fingerprint of a job.
pub(super) fn fingerprint(input: &str, request: &Map<String, Value>, layout: &Layout) -> Fingerprint {
    Fingerprint { input: input.to_owned(), request: request.clone(), layout: layout.clone() }
}

#[derive(Debug, Serialize, Deserialize)]
struct JobFile {
    job: Fingerprint,
    /// The output is whole, and no row failed: the results are not needed any more.
    finished: bool,
}

/// Where a row's line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct JournalSlot {
    /// One more than where it begins; 0: there is none.
    from: u64,
    bytes: u32,
    /// The low bit: it failed. The rest: a hash of its cells.
    mark: u32,
}

impl JournalSlot {
    fn parse(bytes: [u8; ENTRY as usize]) -> Self {
        let [from, rest] = [&bytes[..8], &bytes[8..]];
        Self {
            from: u64::from_le_bytes(from.try_into().expect("eight bytes")),
            bytes: u32::from_le_bytes(rest[..4].try_into().expect("four bytes")),
            mark: u32::from_le_bytes(rest[4..].try_into().expect("four bytes")),
        }
    }

    fn render(self) -> [u8; ENTRY as usize] {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.mark.to_le_bytes());
        bytes
    }
}

/// A hash of a row's cells, without its low bit.
fn mark(cells: &[Value]) -> u32 {
    let text = serde_json::to_vec(cells).expect("cells are plain data");
    let hash: [u8; 32] = Sha256::digest(&text).into();
    u32::from_le_bytes(hash[..4].try_into().expect("four bytes")) & !1
}

/// What the journal knows of a row of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalState {
    /// Nothing: it must run.
    New,
    /// It has its answer.
    Done,
    Failed,
    /// A row of this number is over, but it had other cells: the input is not what it was.
    Changed,
}

/// The journal of a job, held by this process alone.
pub(super) struct Journal {
    folder: PathBuf,
    job: Fingerprint,
    results: File,
    index: File,
    end: u64,
    counts: Counts,
    /// The last row that is over.
    last: u64,
    /// Held until the process ends, however it ends.
    _lock: File,
}

/// A journal, and how far its job is.
pub(super) enum Opened {
    /// It was made just now.
    New(Journal),
    /// Its job was begun.
    Begun(Journal),
    /// Its job is over.
    Finished,
}

impl Journal {
    /// Opens or makes the journal of a job; another job's is refused, unless it shall be forgotten.
    pub(super) fn open(folder: &Path, job: &Fingerprint, restart: bool) -> Result<Opened, Failure> {
        let at = |name: &str| folder.join(name);
        let cannot = |error: std::io::Error| format!("cannot write in {}: {error}", folder.display());
        let is_new = !at("lock").exists() && !at("job.json").exists();
        if is_new && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(format!(
                "{} is there already and no job's folder: name another output",
                folder.display()
            )
            .into());
        }
        fs::create_dir_all(folder).map_err(cannot)?;
        let lock = File::create(at("lock")).map_err(cannot)?;
        if lock.try_lock().is_err() {
            return Err(format!("another process works on the job in {}", folder.display()).into());
        }
        if restart {
            for name in ["job.json", "results.jsonl", "index"] {
                remove(&at(name)).map_err(cannot)?;
            }
        }
        let is_begun = match fs::read_to_string(at("job.json")) {
            Ok(text) => {
                let found: JobFile = serde_json::from_str(&text).map_err(|error| {
                    format!("{} is broken ({error}): use --restart", at("job.json").display())
                })?;
                // A job that was begun and has nothing to show is nobody's loss.
                let is_empty = fs::metadata(at("results.jsonl")).map_or(true, |results| results.len() == 0);
                let other = difference(&found.job, job);
                if let Some(part) = other.as_ref().filter(|_| !is_empty || found.finished) {
                    let folder = folder.display();
                    return Err(format!(
                        "{folder} holds another job, which is not over: {part} differs; use --restart to forget it"
                    )
                    .into());
                }
                if found.finished {
                    return Ok(Opened::Finished);
                }
                other.is_none()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(format!("cannot read {}: {error}", at("job.json").display()).into()),
        };
        if !is_begun {
            remove(&at("results.jsonl")).map_err(cannot)?;
            write_job(folder, job, false)?;
        }
        let both = |name: &str, fresh: bool| {
            OpenOptions::new().read(true).write(true).create(true).truncate(fresh).open(at(name))
        };
        let results = both("results.jsonl", false).map_err(cannot)?;
        let index = both("index", true).map_err(cannot)?;
        let (folder, counts) = (folder.to_owned(), Counts::default());
        let mut journal =
            Self { folder, job: job.clone(), results, index, end: 0, counts, last: 0, _lock: lock };
        journal.read_back()?;
        Ok(if is_begun { Opened::Begun(journal) } else { Opened::New(journal) })
    }

    /// Makes the index anew; a last line that is not whole is cut off.
    fn read_back(&mut self) -> Result<(), Failure> {
        let name = self.folder.join("results.jsonl");
        let mut reader = BufReader::new(File::open(&name)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if count == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let record: JournalRecord = serde_json::from_slice(&line).map_err(|error| {
                format!(
                    "{}: the line at byte {} is broken ({error}): use --restart",
                    name.display(),
                    self.end
                )
            })?;
            self.enter(&record, count as u64)?;
        }
        self.results.set_len(self.end)?;
        Ok(())
    }

    /// Enters a record that is in the results now; a row's last one counts.
    fn enter(&mut self, record: &JournalRecord, bytes: u64) -> Result<(), Failure> {
        let before = self.place(record.row)?;
        if before.from > 0 {
            let count = if before.mark & 1 == 1 { &mut self.counts.failed } else { &mut self.counts.done };
            *count -= 1;
        }
        let is_failed = record.error.is_some();
        let count = if is_failed { &mut self.counts.failed } else { &mut self.counts.done };
        *count += 1;
        let bytes_of = u32::try_from(bytes).map_err(|_| "a row has more than 4 GiB")?;
        let mark = mark(&record.cells) | u32::from(is_failed);
        let place = JournalSlot { from: self.end + 1, bytes: bytes_of, mark };
        self.index.write_all_at(&place.render(), record.row * ENTRY)?;
        self.end += bytes;
        self.last = self.last.max(record.row);
        Ok(())
    }

    fn place(&self, row: u64) -> std::io::Result<JournalSlot> {
        let mut bytes = [0; ENTRY as usize];
        match self.index.read_exact_at(&mut bytes, row * ENTRY) {
            Ok(()) => Ok(JournalSlot::parse(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(JournalSlot::default()),
            Err(error) => Err(error),
        }
    }

    /// What is known of a row of the input.
    pub(super) fn look(&self, row: u64, cells: &[Value]) -> std::io::Result<JournalState> {
        let place = self.place(row)?;
        Ok(match place {
            JournalSlot { from: 0, .. } => JournalState::New,
            JournalSlot { mark: found, .. } if found & !1 != mark(cells) => JournalState::Changed,
            JournalSlot { mark, .. } if mark & 1 == 1 => JournalState::Failed,
            JournalSlot { .. } => JournalState::Done,
        })
    }

    /// Writes rows down. When this returns, they are on the disk.
    pub(super) fn append(&mut self, records: &[JournalRecord]) -> Result<(), Failure> {
        let mut text = Vec::new();
        let mut ends = Vec::with_capacity(records.len());
        for record in records {
            let from = text.len();
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
            ends.push((text.len() - from) as u64);
        }
        let cannot =
            |error: std::io::Error| format!("cannot write the journal in {}: {error}", self.folder.display());
        self.results.write_all_at(&text, self.end).map_err(cannot)?;
        self.results.sync_data().map_err(cannot)?;
        for (record, bytes) in records.iter().zip(ends) {
            self.enter(record, bytes)?;
        }
        Ok(())
    }

    /// Rows that are over.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The records of all rows that are over, in the order of the input.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<JournalRecord, Failure>> {
        (1..=self.last).filter_map(|row| self.record(row).transpose())
    }

    fn record(&self, row: u64) -> Result<Option<JournalRecord>, Failure> {
        let place = self.place(row)?;
        let Some(from) = place.from.checked_sub(1) else { return Ok(None) };
        let mut line = vec![0; place.bytes as usize];
        self.results.read_exact_at(&mut line, from)?;
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// The output is whole: the journal is not needed any more.
    pub(super) fn finish(self) -> Result<(), Failure> {
        write_job(&self.folder, &self.job, true)?;
        let folder = self.folder.clone();
        drop(self);
        clean_up(&folder)
    }
}

/// Deletes what a finished job leaves; what says that it is finished goes last. The database's thread may delete what is its own
/// meanwhile.
pub(super) fn clean_up(folder: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.file_name() != "job.json") {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { remove(&path) };
        removed.map_err(|error| format!("cannot delete {}: {error}", path.display()))?;
    }
    fs::remove_dir_all(folder).map_err(|error| format!("cannot delete {}: {error}", folder.display()))?;
    Ok(())
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes `job.json`, whole or not at all.
fn write_job(folder: &Path, job: &Fingerprint, finished: bool) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&JobFile { job: job.clone(), finished })?;
    let (draft, path) = (folder.join("job.json.new"), folder.join("job.json"));
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, &path)?;
    Ok(())
}

/// The first part in which two jobs differ.
fn difference(found: &Fingerprint, asked: &Fingerprint) -> Option<String> {
    if found.input != asked.input {
        return Some("the input".into());
    }
    let names = found.request.keys().chain(asked.request.keys());
    let mut other = names.filter(|name| found.request.get(*name) != asked.request.get(*name));
    if let Some(name) = other.next() {
        return Some(format!("`{name}`"));
    }
    (found.layout != asked.layout).then(|| "the output's columns".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(template: &str) -> Fingerprint {
        let request = json!({ "template": template }).as_object().cloned().unwrap_or_default();
        fingerprint("10 bytes", &request, &Layout::default())
    }

    fn open(folder: &Path, template: &str, restart: bool) -> Result<(Journal, bool), String> {
        match Journal::open(folder, &job(template), restart).map_err(|error| error.to_string())? {
            Opened::New(journal) => Ok((journal, false)),
            Opened::Begun(journal) => Ok((journal, true)),
            Opened::Finished => Err("finished".into()),
        }
    }

    fn record(row: u64, text: Option<&str>) -> JournalRecord {
        let error = RowError { message: "bad".into(), code: None };
        let error = text.is_none().then_some(error);
        JournalRecord { row, cells: vec![json!(row)], text: text.map(str::to_owned), error }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_whole_ones_count_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("j");
        let (mut journal, _) = open(&folder, "t", false).expect("new");
        journal.append(&[record(3, Some("c")), record(1, None)]).expect("written");
        drop(journal);
        let path = folder.join("results.jsonl");
        let whole = fs::read(&path).expect("read");
        fs::write(&path, [&whole[..], br#"{"row":2,"cells":[2],"te"#].concat()).expect("torn");
        let (mut journal, begun) = open(&folder, "t", false).expect("begun");
        assert!(begun);
        assert_eq!(journal.counts(), Counts { done: 1, failed: 1 });
        let look = |journal: &Journal, row: u64| journal.look(row, &[json!(row)]).expect("looked");
        assert_eq!(
            [1, 2, 3, 4].map(|row| look(&journal, row)),
            [JournalState::Failed, JournalState::New, JournalState::Done, JournalState::New]
        );
        assert_eq!(journal.look(3, &[json!("other")]).expect("looked"), JournalState::Changed);
        journal.append(&[record(2, Some("b")), record(1, Some("a"))]).expect("written");
        assert_eq!(journal.counts(), Counts { done: 3, failed: 0 });
        let rows: Vec<_> =
            journal.records().map(|record| record.expect("whole").text.expect("done")).collect();
        assert_eq!(rows, ["a", "b", "c"], "in the order of the input, the last of each");
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("notes.txt"), "mine").expect("written");
        let error = open(dir.path(), "t", true).err().expect("refused");
        assert!(error.contains("no job's folder"), "{error}");
        assert!(dir.path().join("notes.txt").exists());
    }

    #[test]
    fn another_job_is_refused_and_says_what_differs() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut journal, _) = open(dir.path(), "t", false).expect("new");
        journal.append(&[record(1, Some("a"))]).expect("written");
        let error = open(dir.path(), "t", false).err().expect("held");
        assert!(error.contains("another process"), "{error}");
        drop(journal);
        let error = open(dir.path(), "u", false).err().expect("another job");
        assert!(error.contains("`template` differs"), "{error}");
        let (journal, begun) = open(dir.path(), "u", true).expect("forgotten");
        assert!(!begun);
        assert_eq!(journal.counts(), Counts::default());
    }
}
