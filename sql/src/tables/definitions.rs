//! Views and external tables on disk: the statement that made each, so that a restart does not lose them.
//!
//! They lie in a hidden folder of the tenant's, one file each, and are made again when a session begins. One
//! that cannot be made (its table is gone, its database away) is tried again with each session, and says why
//! where a statement names it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::{Result, exec_datafusion_err};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{ObjectName, VisitMut as _, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tempfile::NamedTempFile;

use crate::error_text::reason;

/// In the tenant's folder.
const FOLDER: &str = ".definitions";
const ENDING: &str = ".sql";
/// Begin the names of files that are being written.
pub(super) const CREATED_PREFIX: &str = ".create-";
const DEFINED_PREFIX: &str = ".define-";
/// Time since the last write after which nobody writes a file any more.
const LEFTOVER_AGE: Duration = Duration::from_secs(3_600);

/// What a tenant has defined.
#[derive(Debug)]
pub(super) struct Definitions {
    folder: PathBuf,
    /// Those that could not be made again, and why.
    broken: Mutex<BTreeMap<String, String>>,
    /// Held while a session makes them again.
    pub(super) restoring: tokio::sync::Mutex<()>,
}

impl Definitions {
    pub(super) fn new(root: &Path) -> Self {
        let folder = root.join(FOLDER);
        Self { folder, broken: Mutex::default(), restoring: tokio::sync::Mutex::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{ENDING}", encoded(name)))
    }

    /// Writes down how a table is made; it is on disk when this returns.
    pub(super) fn save(&self, name: &str, text: &str) -> Result<()> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::Builder::new().prefix(DEFINED_PREFIX).tempfile_in(&self.folder)?;
            file.write_all(text.as_bytes())?;
            persist(file, &self.path(name), true)
        };
        write().map_err(|error| exec_datafusion_err!("`{name}` cannot be kept: {}", error.kind()))?;
        self.mended(name);
        Ok(())
    }

    /// Forgets a table; false where it was not kept.
    pub(super) fn remove(&self, name: &str) -> Result<bool> {
        self.mended(name);
        match fs::remove_file(self.path(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(exec_datafusion_err!("`{name}` cannot be forgotten: {}", error.kind())),
        }
    }

    /// Gives a table another name.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        match fs::rename(self.path(from), self.path(to)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(exec_datafusion_err!("`{from}` cannot be renamed: {}", error.kind()))
            }
            _ => Ok(()),
        }
    }

    /// The statement of one.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// The statements of those that are kept and not there, by name.
    pub(super) fn missing(&self, is_there: impl Fn(&str) -> bool) -> Result<BTreeMap<String, String>> {
        let read = || -> io::Result<BTreeMap<String, String>> {
            let mut found = BTreeMap::new();
            for entry in fs::read_dir(&self.folder)? {
                let path = entry?.path();
                let stem = path.file_name().and_then(|name| name.to_str()?.strip_suffix(ENDING));
                let Some(name) = stem.and_then(decoded).filter(|name| !is_there(name)) else { continue };
                // Another session may have dropped it just now.
                if let Ok(text) = fs::read_to_string(&path) {
                    found.insert(name, text);
                }
            }
            Ok(found)
        };
        match read() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            read => read.map_err(|error| exec_datafusion_err!("your views cannot be read: {}", error.kind())),
        }
    }

    fn broken(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a table cannot be made again.
    pub(super) fn fail(&self, name: &str, reason: String) {
        self.broken().insert(name.to_owned(), reason);
    }

    /// A table is as it should be.
    pub(super) fn mended(&self, name: &str) {
        self.broken().remove(name);
    }

    /// Why a table cannot be made again.
    pub(super) fn reason(&self, name: &str) -> Option<String> {
        self.broken().get(name).cloned()
    }
}

/// What a session makes again.
pub(crate) struct Restoring<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) missing: BTreeMap<String, String>,
    pub(super) _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Restoring<'_> {
    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        self.missing.len()
    }

    /// All that are left: names and statements.
    pub(crate) fn take(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.missing)
    }

    /// What became of one.
    pub(crate) fn tell(&mut self, name: String, text: String, made: Result<()>) {
        match made {
            Ok(()) => self.definitions.mended(&name),
            Err(error) => {
                self.definitions.fail(&name, reason(&error));
                self.missing.insert(name, text);
            }
        }
    }
}

/// Gives a file its name for good: neither it nor the name is lost with the power.
pub(super) fn persist(file: NamedTempFile, path: &Path, replaces: bool) -> io::Result<()> {
    file.as_file().sync_all()?;
    let named = if replaces { file.persist(path) } else { file.persist_noclobber(path) };
    named.map_err(|error| error.error)?;
    sync_folder_of(path)
}

/// Removes what a process that was killed left of tables it was making. What was written to lately may be
/// another server's that shares the folder.
pub(super) fn remove_leftovers(root: &Path) {
    for folder in [root.to_owned(), root.join(FOLDER)] {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_left = name
                .to_str()
                .is_some_and(|name| name.starts_with(CREATED_PREFIX) || name.starts_with(DEFINED_PREFIX));
            let age = entry.metadata().ok().and_then(|about| about.modified().ok()?.elapsed().ok());
            if is_left && age.is_some_and(|age| age > LEFTOVER_AGE) {
                // Whoever cannot remove it is no worse off than before.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Makes changes of names in a file's folder last.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// A statement without the name of the database, which is whatever a client connects to.
pub(super) fn without_database(text: &str, database: &str) -> Result<String> {
    let dialect = PostgreSqlDialect {};
    let mut statements = DFParser::parse_sql_with_dialect(text, &dialect)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(Statement::Statement(mut statement)), true) => {
            let _: ControlFlow<()> = statement.visit(&mut WithoutDatabase(database));
            Ok(statement.to_string())
        }
        _ => Ok(text.to_owned()),
    }
}

struct WithoutDatabase<'a>(&'a str);

impl VisitorMut for WithoutDatabase<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        let first = name.0.first().and_then(|part| part.as_ident());
        if name.0.len() == 3 && first.is_some_and(|first| first.value == self.0) {
            name.0.remove(0);
        }
        ControlFlow::Continue(())
    }
}

/// A name as a file's: all but letters, digits and `_` are escaped.
fn encoded(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_');
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// The name that a file stands for.
fn decoded(stem: &str) -> Option<String> {
    percent_decode_str(stem).decode_utf8().ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::{decoded, encoded, without_database};

    #[test]
    fn names_are_told_apart_and_none_leads_out_of_the_folder() {
        for name in ["reviews", "My View", "../x", "é%41", ""] {
            let file = encoded(name);
            assert!(!file.contains(['/', '.']), "{file}");
            assert_eq!(decoded(&file).as_deref(), Some(name));
        }
        assert_eq!(decoded("%ff"), None);
    }

    #[test]
    fn what_a_killed_server_left_is_removed_and_what_another_writes_is_not() {
        let root = tempfile::tempdir().expect("a folder");
        let long_ago = std::time::SystemTime::now() - 2 * super::LEFTOVER_AGE;
        for (name, is_old) in [(".create-a", true), (".create-b", false), ("old.csv", true)] {
            let file = std::fs::File::create(root.path().join(name)).expect("made");
            if is_old {
                file.set_modified(long_ago).expect("dated");
            }
        }
        super::remove_leftovers(root.path());
        let is_there = |name: &str| root.path().join(name).exists();
        assert_eq!([is_there(".create-a"), is_there(".create-b"), is_there("old.csv")], [false, true, true]);
    }

    #[test]
    fn a_statement_keeps_its_names_but_for_the_database() {
        let text =
            "CREATE VIEW v AS SELECT * FROM shop.public.a, other.b.c, (SELECT 1 FROM shop.public.d) AS e";
        let kept = without_database(text, "shop").expect("it can be read");
        let expected = "CREATE VIEW v AS SELECT * FROM public.a, other.b.c, (SELECT 1 FROM public.d) AS e";
        assert_eq!(kept, expected);
    }
}
