//! `CREATE EXTERNAL TABLE`: only of files in the tenant's folder.

use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::logical_expr::CreateExternalTable;
use futures_util::future::BoxFuture;

use super::store::{self, resolved};

/// What may stand after `STORED AS`, with DataFusion's name of the format.
pub(super) const FORMATS: [(&str, &str); 6] = [
    ("CSV", "CSV"),
    ("TSV", "CSV"),
    ("PARQUET", "PARQUET"),
    ("JSON", "JSON"),
    ("JSONL", "JSON"),
    ("NDJSON", "JSON"),
];

/// Makes the tables.
#[derive(Debug)]
pub(super) struct ExternalTables {
    /// The folder, without links.
    root: PathBuf,
    inner: ListingTableFactory,
}

impl ExternalTables {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, inner: ListingTableFactory::new() }
    }

    /// A location as the tenant writes it, as the address in the tenant's store.
    fn address(&self, location: &str) -> Result<String> {
        let path = match location.split_once("://") {
            Some((scheme, path)) if scheme.eq_ignore_ascii_case("file") => path,
            Some((scheme, _)) => {
                return plan_err!(
                    "LOCATION '{location}': only files in your folder can be read, not {scheme}://"
                );
            }
            None => location,
        };
        let path = FilePath::new(path);
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let mut segments = Vec::new();
        for component in relative.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => segments.extend(name.to_str()),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return plan_err!(
                        "LOCATION '{location}': must be a path in your folder, such as 'reviews.csv', \
                         without `..`"
                    );
                }
            }
        }
        let real = match resolved(&self.root, &self.root.join(relative)) {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return plan_err!("LOCATION '{location}': it leads out of your folder");
            }
            Err(error) => return plan_err!("LOCATION '{location}': {}", error.kind()),
        };
        let mut url = ListingTableUrl::parse("file:///")?.get_url().clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(store::FOLDER).extend(segments);
            if real.is_dir() {
                path.push("");
            }
        }
        Ok(url.into())
    }
}

/// The future is made elsewhere, as that of a plan is: see `planned` in `session.rs`.
impl TableProviderFactory for ExternalTables {
    fn create<'s, 'c, 't, 'f>(
        &'s self,
        state: &'c dyn Session,
        command: &'t CreateExternalTable,
    ) -> BoxFuture<'f, Result<Arc<dyn TableProvider>>>
    where
        's: 'f,
        'c: 'f,
        't: 'f,
        Self: 'f,
    {
        self.made(state, command)
    }
}

impl ExternalTables {
    fn made<'a>(
        &'a self,
        state: &'a dyn Session,
        command: &'a CreateExternalTable,
    ) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move { self.inner.create(state, &self.understood(command)?).await })
    }

    /// The command as DataFusion understands it.
    fn understood(&self, command: &CreateExternalTable) -> Result<CreateExternalTable> {
        let mut command = command.clone();
        let stored_as = command.file_type.to_ascii_uppercase();
        let Some((_, format)) = FORMATS.iter().find(|(name, _)| *name == stored_as) else {
            return plan_err!("STORED AS {stored_as}: not one of csv, tsv, parquet, jsonl, ndjson");
        };
        command.file_type = (*format).to_owned();
        let options = &mut command.options;
        if stored_as == "TSV" {
            options.entry("format.delimiter".into()).or_insert_with(|| "\t".into());
        }
        if *format == "CSV" {
            options.entry("format.newlines_in_values".into()).or_insert_with(|| "true".into());
        }
        command.locations =
            command.locations.iter().map(|location| self.address(location)).collect::<Result<_>>()?;
        Ok(command)
    }
}
