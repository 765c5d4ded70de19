//! What of a data folder belongs to a backup, and what does not: whatever a server fetches or copies anew, keys in clear
//! text, and files that are not RelServe's.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{DATABASE, TABLES};

/// Begin the names of files that a statement of SQL is writing.
const UNFINISHED: [&str; 2] = [".create-", ".define-"];

/// A file that goes into an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The member's name.
    pub(crate) path: String,
    pub(crate) file: PathBuf,
}

/// What of a data folder goes into an archive beside the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) files: Vec<Source>,
    /// What does not, and why.
    pub(crate) left_out: Vec<(PathBuf, &'static str)>,
}

impl Contents {
    /// Looks at a data folder; one that is not there has nothing.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let mut contents = Self::default();
        for name in names(folder)? {
            let path = folder.join(&name);
            if name == TABLES {
                contents.add(&path, TABLES)?;
            } else if !name.starts_with(DATABASE) {
                contents.left_out.push((path, reason(&name)));
            }
        }
        Ok(contents)
    }

    fn add(&mut self, path: &Path, member: &str) -> io::Result<()> {
        let kind = match std::fs::symlink_metadata(path) {
            Ok(metadata) => metadata.file_type(),
            // Dropped meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            for name in names(path)? {
                if !UNFINISHED.iter().any(|beginning| name.starts_with(beginning)) {
                    self.add(&path.join(&name), &format!("{member}/{name}"))?;
                }
            }
        } else if kind.is_file() {
            self.files.push(Source { path: member.to_owned(), file: path.to_owned() });
        } else {
            self.left_out.push((path.to_owned(), "a link, or no file"));
        }
        Ok(())
    }
}

/// Why what has this name in a data folder is in no backup.
fn reason(name: &str) -> &'static str {
    match name {
        "models" => "models are fetched anew",
        "sql-files" => "copies of uploaded files, which are in the database",
        "address" => "where a server listens, for as long as it runs",
        "usage-journal" => "usage of the last moments, which the server it is of writes to the database",
        "first-key" => "a key in clear text; the database has its hash, and it goes on working",
        _ => "not written by RelServe",
    }
}

/// The names in a folder, in order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name();
        let odd = |name| io::Error::new(ErrorKind::InvalidData, format!("the name {name:?} is not UTF-8"));
        name.into_string().map_err(odd)
    };
    let mut names: Vec<String> = entries.map(name).collect::<Result<_, _>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_belong_to_a_backup_and_what_is_made_anew_or_secret_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [
            "relserve.db",
            "relserve.db-wal",
            "relserve.db-node-relserve",
            "address",
            "first-key",
            "models/tiny/config.json",
            "operators.toml",
            "sql-files/1/file-1",
            "tables/1/.create-7",
            "tables/1/.definitions/view.sql",
            "tables/1/sales.csv",
            "tables/2/part/0.parquet",
            "usage-journal/0/lock",
        ];
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, file).expect("written");
        }
        std::os::unix::fs::symlink("sales.csv", folder.path().join("tables/1/same.csv")).expect("a link");
        let contents = Contents::of(folder.path()).expect("it is read");
        let members: Vec<&str> = contents.files.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(
            members,
            ["tables/1/.definitions/view.sql", "tables/1/sales.csv", "tables/2/part/0.parquet"]
        );
        let left_out: Vec<_> =
            contents.left_out.iter().map(|(path, _)| path.strip_prefix(folder.path())).collect();
        let expected = [
            "address",
            "first-key",
            "models",
            "operators.toml",
            "sql-files",
            "tables/1/same.csv",
            "usage-journal",
        ];
        assert_eq!(left_out, expected.map(|name| Ok(Path::new(name))));
        assert_eq!(Contents::of(&folder.path().join("none")).expect("it may be absent"), Contents::default());
    }
}
