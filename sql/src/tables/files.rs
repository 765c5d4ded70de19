//! Files that a tenant may read and that lie elsewhere than in its folder, such as those it uploaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::common::{DataFusionError, Result};
use futures_util::future::BoxFuture;

use super::format::TableFormat;
use super::listing::{Listing, ListingEntry, Place, Signature};
use super::name::folded;

/// First segment of paths of listed files.
pub(super) const FILES: &str = "files";

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// As the tenant named it: `reviews.csv` is the table `files.reviews`.
    pub name: String,
    /// Where it lies. The server vouches for it: no check of its place is made.
    pub path: PathBuf,
    /// `None`: as its name says.
    pub format: Option<TableFormat>,
}

/// Who has a tenant's files, where they lie elsewhere than on this machine.
pub trait FileOrigin: fmt::Debug + Send + Sync + 'static {
    /// The tenant's files of now. Those of `wanted` tables (of all, where there is none) can be read at their
    /// paths when this returns, the others may not be there yet.
    fn files<'a>(
        &'a self,
        wanted: Option<&'a BTreeSet<String>>,
    ) -> BoxFuture<'a, Result<Vec<ListedFile>, DataFusionError>>;
}

/// The files of a tenant; sessions see a new list from their next statement on.
#[derive(Debug, Default)]
pub struct Files {
    list: RwLock<BTreeMap<String, Listed>>,
    origin: Option<Arc<dyn FileOrigin>>,
}

/// The table of `files` that a file of this name is: the name without its ending, in lower case, with `_` for
/// what is neither letter nor digit, and before a digit at the start.
pub fn table_of(file_name: &str) -> String {
    folded(TableFormat::of(file_name).map_or(file_name, |(_, stem)| stem))
}

#[derive(Clone, Debug)]
enum Listed {
    File(ListedFile, TableFormat),
    /// Why it cannot be a table.
    Refused(String),
}

impl Files {
    /// These files.
    pub fn new(files: Vec<ListedFile>) -> Self {
        let list = Self::default();
        list.replace(files);
        list
    }

    /// The files that an origin has.
    pub fn of_origin(origin: Arc<dyn FileOrigin>) -> Self {
        Self { list: RwLock::default(), origin: Some(origin) }
    }

    /// Asks the origin, so that tables of these names (all tables, where there is none) can be read.
    pub(super) async fn refresh(&self, wanted: Option<&BTreeSet<String>>) -> Result<()> {
        if let Some(origin) = &self.origin {
            self.replace(origin.files(wanted).await?);
        }
        Ok(())
    }

    /// These files instead of those before.
    pub fn replace(&self, files: Vec<ListedFile>) {
        let mut tables: BTreeMap<String, Listed> = BTreeMap::new();
        for file in files {
            let named = TableFormat::of(&file.name);
            let table = table_of(&file.name);
            let listed = match (tables.get(&table), file.format.or(named.map(|(format, _)| format))) {
                (Some(_), _) => Listed::Refused(format!("several files have names that fold to `{table}`")),
                (None, Some(format)) => Listed::File(file, format),
                (None, None) => Listed::Refused(format!(
                    "`{}` ends in none of csv, tsv, parquet, jsonl, ndjson",
                    file.name
                )),
            };
            tables.insert(table, listed);
        }
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = tables;
    }

    /// Where the file of a table lies.
    pub(super) fn path(&self, table: &str) -> Option<PathBuf> {
        match self.list.read().unwrap_or_else(PoisonError::into_inner).get(table)? {
            Listed::File(file, _) => Some(file.path.clone()),
            Listed::Refused(_) => None,
        }
    }
}

impl Listing for Arc<Files> {
    fn tables(&self) -> Result<BTreeMap<String, ListingEntry>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let entry = |(table, listed): (&String, &Listed)| {
            let entry = match listed {
                Listed::Refused(reason) => ListingEntry::Refused(reason.clone()),
                Listed::File(file, format) => match Signature::of_file(&file.path) {
                    Ok(signature) => ListingEntry::Table {
                        place: Place {
                            segments: vec![FILES.into(), table.clone()],
                            format: *format,
                            parts: false,
                        },
                        signature,
                    },
                    Err(error) => {
                        ListingEntry::Refused(format!("`{}` cannot be read: {}", file.name, error.kind()))
                    }
                },
            };
            (table.clone(), entry)
        };
        Ok(list.iter().map(entry).collect())
    }
}
