//! A tenant's folder: its files and sub-folders of Parquet parts are tables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::object_store::path::Path;

use super::format::TableFormat;
use super::listing::{Listing, ListingEntry, Place, Signature};
use super::name::folded;
use super::store::{self, resolved, walk};

/// Names in the folder itself.
const ENTRIES_MAX: usize = 10_000;

/// A folder.
#[derive(Debug)]
pub(super) struct Folder {
    /// Without links.
    root: PathBuf,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The table that a name in the folder is; `None`: none, such as a text of notes.
    fn entry(&self, file_name: &str) -> Option<(String, ListingEntry)> {
        let path = self.root.join(file_name);
        let named = TableFormat::of(file_name);
        let real = match resolved(&self.root, &path) {
            Ok(real) => real,
            Err(error) => {
                let (_, stem) = named?;
                return Some((folded(stem), ListingEntry::Refused(format!("`{file_name}`: {error}"))));
            }
        };
        let segments = vec![store::FOLDER.into(), file_name.into()];
        if real.is_dir() {
            let stem = named.map_or(file_name, |(_, stem)| stem);
            let (table, location) = (folded(stem), Path::parse(file_name).ok()?);
            let parts = match walk(&self.root, &real, &location) {
                Ok(parts) => parts,
                Err(error) => return Some((table, ListingEntry::Refused(error.to_string()))),
            };
            let parquet = parts.into_iter().filter(|part| part.location.extension() == Some("parquet"));
            let parts: Vec<_> = parquet
                .map(|part| (part.location.into(), part.size, Some(part.last_modified.into())))
                .collect();
            if parts.is_empty() {
                return None;
            }
            let place = Place { segments, format: TableFormat::Parquet, parts: true };
            return Some((table, ListingEntry::Table { place, signature: Signature::of_parts(parts) }));
        }
        let (format, stem) = named?;
        let entry = match Signature::of_file(&real) {
            Ok(signature) => {
                ListingEntry::Table { place: Place { segments, format, parts: false }, signature }
            }
            Err(error) => ListingEntry::Refused(format!("`{file_name}`: {}", error.kind())),
        };
        Some((folded(stem), entry))
    }

    /// The file that a table lies in: its name in the folder.
    pub(super) fn file_of(&self, table: &str) -> Result<Option<String>> {
        Ok(match self.tables()?.remove(table) {
            Some(ListingEntry::Table { place, .. }) if !place.parts => place.segments.into_iter().next_back(),
            _ => None,
        })
    }
}

impl Listing for Folder {
    fn tables(&self) -> Result<BTreeMap<String, ListingEntry>> {
        let unreadable =
            |error: std::io::Error| exec_datafusion_err!("your folder cannot be read: {}", error.kind());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            names.extend(name.into_string().ok().filter(|name| !name.starts_with('.')));
            if names.len() > ENTRIES_MAX {
                return exec_err!("your folder has more than {ENTRIES_MAX} files");
            }
        }
        names.sort();
        let mut tables: BTreeMap<String, (String, ListingEntry)> = BTreeMap::new();
        for name in names {
            let Some((table, entry)) = self.entry(&name) else { continue };
            let entry = match tables.remove(&table) {
                None => entry,
                Some((other, _)) => ListingEntry::Refused(format!(
                    "`{other}` and `{name}` would have the same name `{table}`; rename one of them"
                )),
            };
            tables.insert(table, (name, entry));
        }
        Ok(tables.into_iter().map(|(table, (_, entry))| (table, entry)).collect())
    }
}
