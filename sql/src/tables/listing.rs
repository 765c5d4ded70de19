//! Files as the tables of a schema: looked up at each query, read by DataFusion's own readers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err, plan_err};
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::context::SessionState;
use datafusion::object_store::ObjectStoreExt as _;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::format::{TableFormat, plain, separated_schema};
use crate::error_text::reason;

/// Where a table lies in the tenant's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segments: Vec<String>,
    pub(super) format: TableFormat,
    /// A folder of files, not a file.
    pub(super) parts: bool,
}

/// What changes when a table's files do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature(Vec<(String, u64, Option<SystemTime>)>);

impl Signature {
    pub(super) fn of_file(path: &FilePath) -> io::Result<Self> {
        let about = path.metadata()?;
        if !about.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self(vec![(String::new(), about.len(), about.modified().ok())]))
    }

    pub(super) fn of_parts(parts: Vec<(String, u64, Option<SystemTime>)>) -> Self {
        Self(parts)
    }
}

/// A name of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListingEntry {
    Table {
        place: Place,
        signature: Signature,
    },
    /// Why there is no table of this name.
    Refused(String),
}

/// A schema's files as they are now.
pub(super) trait Listing: fmt::Debug + Send + Sync + 'static {
    fn tables(&self) -> Result<BTreeMap<String, ListingEntry>>;
}

/// Makes tables of files.
pub(super) struct TableReader {
    /// Over the tenant's store; knows no tables. What holds it need not be proved to be sent with it: see `planned` in
    /// `session.rs`.
    state: Arc<dyn Session>,
}

impl fmt::Debug for TableReader {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("TableReader").finish_non_exhaustive()
    }
}

impl TableReader {
    pub(super) fn new(state: SessionState) -> Self {
        Self { state: Arc::new(state) }
    }

    /// A table with the types of its columns inferred.
    pub(super) fn open<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(self.opened(place))
    }

    async fn opened(&self, place: &Place) -> Result<Arc<dyn TableProvider>> {
        let mut url = ListingTableUrl::parse("file:///")?.get_url().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&place.segments);
            if place.parts {
                segments.push("");
            }
        }
        let mut url = ListingTableUrl::try_new(url, None)?;
        if place.parts {
            url = url.with_glob("*.parquet")?;
        }
        let format = place.format.reader(&self.state.default_table_options());
        let mut options = ListingOptions::new(format).with_file_extension("");
        if place.parts {
            let partitions = options.infer_partitions(self.state.as_ref(), &url).await?;
            let columns = partitions.into_iter().map(|name| (name, DataType::Utf8)).collect();
            options = options.with_table_partition_cols(columns);
        }
        let schema = match place.format.delimiter() {
            Some(delimiter) => {
                let store = self.state.runtime_env().object_store(&url)?;
                let file = store.get(url.prefix()).await?.into_stream().map_err(io::Error::other);
                plain(&separated_schema(delimiter, file.boxed()).await?)
            }
            None => plain(options.infer_schema(self.state.as_ref(), &url).await?.as_ref()),
        };
        if schema.fields().is_empty() {
            return plan_err!("it has no columns");
        }
        let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
        let statistics = self.state.runtime_env().cache_manager.get_file_statistic_cache();
        Ok(Arc::new(ListingTable::try_new(config)?.with_cache(statistics)))
    }
}

/// A table that was opened, or why it could not be.
type Opened = Result<Arc<dyn TableProvider>, String>;

/// A schema of files.
#[derive(Debug)]
pub(super) struct FileSchema<L> {
    pub(super) listing: L,
    reader: Arc<TableReader>,
    remembered: Mutex<HashMap<String, (Signature, Opened)>>,
}

impl<L: Listing> FileSchema<L> {
    pub(super) fn new(listing: L, reader: Arc<TableReader>) -> Self {
        Self { listing, reader, remembered: Mutex::default() }
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<String, (Signature, Opened)>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens what was not opened yet, so that [`SchemaProvider::table_names`] has only names of tables that
    /// can be read. Lists of tables are made of those, and one bad file must not spoil them.
    pub(super) async fn refresh(&self) -> Result<()> {
        let tables = self.listing.tables()?;
        self.remembered().retain(|name, _| tables.contains_key(name));
        for (name, entry) in &tables {
            // The reason is remembered, and told to whoever asks for this table.
            let _ = self.opened(name, entry).await;
        }
        Ok(())
    }

    async fn opened(&self, name: &str, entry: &ListingEntry) -> Opened {
        let (place, signature) = match entry {
            ListingEntry::Refused(reason) => return Err(reason.clone()),
            ListingEntry::Table { place, signature } => (place, signature),
        };
        if let Some((known, opened)) = self.remembered().get(name)
            && known == signature
        {
            return opened.clone();
        }
        let opened = self.reader.open(place).await.map_err(|error| reason(&error));
        self.remembered().insert(name.to_owned(), (signature.clone(), opened.clone()));
        opened
    }
}

#[async_trait]
impl<L: Listing> SchemaProvider for FileSchema<L> {
    fn table_names(&self) -> Vec<String> {
        // A folder that cannot be read has no tables; a query of one says why.
        let tables = self.listing.tables().unwrap_or_default();
        let remembered = self.remembered();
        let can_be_read = |(name, entry): &(String, ListingEntry)| match entry {
            ListingEntry::Refused(_) => false,
            ListingEntry::Table { signature, .. } => {
                !matches!(remembered.get(name), Some((known, Err(_))) if known == signature)
            }
        };
        tables.into_iter().filter(can_be_read).map(|(name, _)| name).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let mut tables = self.listing.tables()?;
        loop {
            let Some(entry) = tables.get(name) else { return Ok(None) };
            let opened = self.opened(name, entry).await;
            if opened.is_err() {
                // A file that was replaced while it was opened was read half old, half new.
                let now = self.listing.tables()?;
                if now.get(name) != Some(entry) {
                    tables = now;
                    continue;
                }
            }
            return opened.map(Some).map_err(|reason| exec_datafusion_err!("table `{name}`: {reason}"));
        }
    }

    fn register_table(
        &self,
        name: String,
        _: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        exec_err!("`{name}`: this schema has the files listed for you, and takes no other tables")
    }

    fn table_exist(&self, name: &str) -> bool {
        self.listing.tables().is_ok_and(|tables| tables.contains_key(name))
    }
}
