//! A file of `[[replicas]]` entries that is read again when its content changes.
//!
//! It is read by its path each time and compared as a whole: a file that is replaced (as editors do), a link
//! that is pointed elsewhere (as Kubernetes does with config maps) and a network's file system are all
//! noticed, which no watcher of inodes promises.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::Findings;
use crate::config::{ReplicaSettings, expand};

/// Longest time until a text that is new is read again: it counts once two looks have read it, for a file that is
/// written in place is half there for a moment.
const SETTLE_MAX: Duration = Duration::from_millis(250);
/// Bytes of the file; more are not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file as it was read: the entries, or why there are none.
type FileContent = Result<Vec<ReplicaSettings>, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaFile {
    #[serde(default)]
    replicas: Vec<ReplicaSettings>,
}

/// The file, and how its references to the environment are looked up.
#[derive(Clone, Debug)]
pub(in crate::replicas) struct ReplicaFileReader {
    pub(in crate::replicas) path: PathBuf,
    pub(in crate::replicas) variable: fn(&str) -> Option<String>,
}

impl ReplicaFileReader {
    /// The file's text.
    pub(in crate::replicas) fn text(&self) -> Result<String, String> {
        let text =
            read(&self.path).map_err(|cause| format!("cannot read {}: {cause}", self.path.display()))?;
        match text.len() as u64 > FILE_BYTES_MAX {
            true => Err(format!("{} has more than {FILE_BYTES_MAX} bytes", self.path.display())),
            false => Ok(text),
        }
    }

    /// The entries of a text.
    pub(in crate::replicas) fn parse(&self, text: &str) -> FileContent {
        let refused = |error: toml::de::Error| format!("{}: {error}", self.path.display());
        let mut table: toml::Table = toml::from_str(text).map_err(refused)?;
        if !text.contains("${") {
            // From the text: its errors carry lines.
            return toml::from_str(text).map(|file: ReplicaFile| file.replicas).map_err(refused);
        }
        for (field, value) in &mut table {
            expand(field, value, &self.variable).map_err(|error| error.to_string())?;
        }
        table.try_into().map(|file: ReplicaFile| file.replicas).map_err(refused)
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// What looks at the file have read. Pure.
#[derive(Debug, Default)]
struct FileLooks {
    /// What was taken in last; none where that failed, which is then tried again.
    taken: Option<String>,
    /// What the last look read, where that is not what was taken in.
    pending: Option<String>,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileChange {
    /// What was taken in last.
    None,
    /// Something else, which may be half of what somebody is about to write.
    Unsettled,
    /// The same as at the look before, and not taken in.
    Settled,
}

impl FileLooks {
    /// A look has read this.
    fn judge(&mut self, text: &str) -> FileChange {
        if self.taken.as_deref() == Some(text) {
            self.pending = None;
            return FileChange::None;
        }
        if self.pending.as_deref() == Some(text) {
            return FileChange::Settled;
        }
        self.pending = Some(text.to_owned());
        FileChange::Unsettled
    }
}

/// Looks at the file for as long as the fleet lives; `read`: its text at the start.
pub(in crate::replicas) async fn follow(
    reader: ReplicaFileReader,
    every: Duration,
    read: String,
    findings: Findings,
) {
    let mut looks = FileLooks { taken: Some(read), pending: None };
    let mut pause = every;
    loop {
        tokio::time::sleep(pause).await;
        pause = every;
        let own = reader.clone();
        let text = match tokio::task::spawn_blocking(move || own.text()).await {
            Ok(text) => text,
            Err(error) => Err(error.to_string()),
        };
        let text = match text {
            Ok(text) => text,
            Err(reason) => {
                looks = FileLooks::default();
                findings.tell(Err(reason));
                continue;
            }
        };
        match looks.judge(&text) {
            FileChange::None => {}
            // A file that is emptied first and filled then is empty for as long as whoever fills it takes.
            FileChange::Unsettled if reader.parse(&text).is_ok_and(|found| found.is_empty()) => {}
            FileChange::Unsettled => pause = every.min(SETTLE_MAX),
            FileChange::Settled => looks.taken = take(&reader, text, &findings),
        }
    }
}

/// Tells what a text names. The text, if that was taken in.
fn take(reader: &ReplicaFileReader, text: String, findings: &Findings) -> Option<String> {
    let found = reader.parse(&text);
    let count = found.as_ref().map_or(0, Vec::len);
    let is_taken = findings.tell(found);
    if is_taken {
        tracing::info!(replicas = count, "the file of replicas is read anew");
    }
    is_taken.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<usize, &str>) {
        let variable = |name: &str| (name == "KEY").then(|| "k3y".to_owned());
        let reader = ReplicaFileReader { path: "r.toml".into(), variable };
        match (reader.parse(text), expected) {
            (Ok(found), Ok(count)) => assert_eq!(found.len(), count, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn a_file_has_entries_of_replicas_and_nothing_else() {
        check("", Ok(0));
        check(
            "[[replicas]]\nurl = \"http://a\"\n[[replicas]]\nurl = \"http://b\"\napi_key = \"${KEY}\"",
            Ok(2),
        );
        check("[[replicas]]\nurl = \"http://a\"\nrows = 3", Err("line 3"));
        check("[[replicas]]\napi_key = \"${NONE}\"", Err("the environment variable NONE"));
        check("[model]\nname = \"m\"", Err("model"));
        check("[[replicas", Err("r.toml"));
    }

    #[test]
    fn a_text_counts_when_two_looks_have_read_it_and_again_until_it_is_taken_in() {
        let mut looks = FileLooks { taken: Some("old".into()), pending: None };
        let half = ["old", "", "new", "new"].map(|text| looks.judge(text));
        assert_eq!(
            half,
            [FileChange::None, FileChange::Unsettled, FileChange::Unsettled, FileChange::Settled],
            "what was there for one look never counts"
        );
        assert_eq!(looks.judge("new"), FileChange::Settled, "it was refused: it is tried again");
        looks.taken = Some("new".into());
        let [same, emptied, filled] = ["new", "", "new"].map(|text| looks.judge(text));
        assert_eq!((same, emptied, filled), (FileChange::None, FileChange::Unsettled, FileChange::None));
        assert_eq!(looks.judge(""), FileChange::Unsettled, "two looks one after another");
    }

    #[test]
    fn a_file_that_is_too_long_or_away_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let reader = ReplicaFileReader { path: folder.path().join("r.toml"), variable: |_| None };
        assert!(reader.text().is_err_and(|error| error.contains("cannot read")));
        std::fs::write(&reader.path, "#".repeat(FILE_BYTES_MAX as usize)).expect("written");
        assert!(reader.text().is_ok());
        std::fs::write(&reader.path, "#".repeat(FILE_BYTES_MAX as usize + 1)).expect("written");
        assert!(reader.text().is_err_and(|error| error.contains("1048576 bytes")));
    }
}
