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

/// Looks at the file for as long as the fleet lives; `read`: its text at the start.
pub(in crate::replicas) async fn follow(
    reader: ReplicaFileReader,
    every: Duration,
    read: String,
    findings: Findings,
) {
    // What was taken in last; none where the last look failed, which is then tried again.
    let mut taken = Some(read);
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let own = reader.clone();
        let text = match tokio::task::spawn_blocking(move || own.text()).await {
            Ok(text) => text,
            Err(error) => Err(error.to_string()),
        };
        let found = match text {
            Ok(text) if taken.as_ref() == Some(&text) => continue,
            Ok(text) => reader.parse(&text).map(|found| (text, found)),
            Err(reason) => Err(reason),
        };
        taken = match found {
            Ok((text, found)) => {
                let count = found.len();
                let is_taken = findings.tell(Ok(found));
                if is_taken {
                    tracing::info!(replicas = count, "the file of replicas is read anew");
                }
                is_taken.then_some(text)
            }
            Err(reason) => {
                findings.tell(Err(reason));
                None
            }
        };
    }
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
