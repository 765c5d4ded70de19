//! What a tenant can read: files in its folder, files listed for it, and databases.
//!
//! [`TenantTables`] is made once for a tenant and installed into each of its sessions. Nothing else can be
//! read: the one store of a session's readers is the tenant's ([`store`]), `CREATE EXTERNAL TABLE` is checked
//! ([`external`]), and statements that write elsewhere are refused ([`statement`]). Memory of all tenants'
//! queries is bounded together ([`memory`]).

pub mod change;
mod create;
mod definitions;
mod external;
mod files;
mod folder;
mod format;
mod listing;
mod memory;
mod name;
mod schema;
pub mod source;
pub mod statement;
mod store;
pub mod temporary;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::SchemaProvider;
use datafusion::common::{Result, TableReference, exec_datafusion_err, exec_err};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::object_store::{
    DefaultObjectStoreRegistry, ObjectStoreRegistry as _, ObjectStoreUrl,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::sql::parser::Statement;

use self::change::Changes;
use self::definitions::{Definitions, Restoring};
use self::external::ExternalTables;
pub use self::files::{FileOrigin, Files, ListedFile, table_of};
use self::folder::Folder;
pub use self::format::TableFormat;
use self::listing::{FileSchema, TableReader};
pub use self::memory::{Memory, MemoryLimits};
use self::schema::TenantSchema;
use self::source::Source;
use self::store::TenantStore;
use self::temporary::{TEMPORARY_SCHEMA, TemporaryTables};

/// The schema of listed files.
pub const FILES_SCHEMA: &str = "files";
/// Bytes of Parquet footers that a tenant's readers remember.
const FOOTER_BYTES_MAX: usize = 16 << 20;
/// Schemas with lists of tables, where every table is opened.
const CATALOGUES: [&str; 2] = ["information_schema", "pg_catalog"];

/// A tenant's tables.
pub struct TenantTables {
    /// The folder, without links.
    root: PathBuf,
    /// Bytes of a file that `CREATE TABLE` makes.
    created_bytes_max: u64,
    /// Bytes of all files that it made.
    tenant_created_bytes_max: u64,
    runtime: Arc<RuntimeEnv>,
    public: Arc<TenantSchema>,
    files: Arc<FileSchema<Arc<Files>>>,
    sources: BTreeMap<String, Arc<Source>>,
    reader: Arc<TableReader>,
    changes: Changes,
    definitions: Arc<Definitions>,
}

impl fmt::Debug for TenantTables {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names: Vec<_> = self.sources.keys().collect();
        f.debug_struct("TenantTables").field("sources", &names).finish_non_exhaustive()
    }
}

/// What a tenant's tables are made of.
#[derive(Clone, Debug)]
pub struct TenantTablesOptions {
    /// The tenant's folder, which exists. Each CSV, TSV, Parquet and JSON lines file in it is a table of the
    /// session's default schema, and so is each sub-folder of Parquet files.
    pub folder: PathBuf,
    /// Other files, the schema `files`.
    pub files: Arc<Files>,
    /// Databases, each a schema of its name.
    pub sources: Vec<Arc<Source>>,
    /// Bytes of a file that one `CREATE TABLE` may make.
    pub created_bytes_max: u64,
    /// Bytes of all files of the folder that `CREATE TABLE` made.
    pub tenant_created_bytes_max: u64,
}

impl TenantTablesOptions {
    /// A folder alone, and files of at most 4 GiB made in it, of 16 GiB together.
    pub fn of_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            files: Arc::default(),
            sources: Vec::new(),
            created_bytes_max: 4 << 30,
            tenant_created_bytes_max: 16 << 30,
        }
    }
}

impl TenantTables {
    /// The tables of a tenant; an error where the folder cannot be read or a source's name is taken.
    pub fn new(options: TenantTablesOptions, memory: &Memory) -> Result<Self> {
        let TenantTablesOptions { folder, files, sources, created_bytes_max, tenant_created_bytes_max } =
            options;
        let root = folder
            .canonicalize()
            .map_err(|error| exec_datafusion_err!("a tenant's folder cannot be read: {}", error.kind()))?;
        definitions::remove_leftovers(&root);
        let runtime = Arc::new(runtime(TenantStore::new(root.clone(), Arc::clone(&files)), memory)?);
        let reader = SessionStateBuilder::new().with_runtime_env(Arc::clone(&runtime)).build();
        let reader = Arc::new(TableReader::new(reader));
        let definitions = Arc::new(Definitions::new(&root));
        let folder = FileSchema::new(Folder::new(root.clone()), Arc::clone(&reader));
        let public = TenantSchema::new(folder, Arc::clone(&definitions));
        let mut named = BTreeMap::new();
        for source in sources {
            let name = source.name().to_owned();
            let is_taken = [FILES_SCHEMA, TEMPORARY_SCHEMA, "public", "relserve"].contains(&name.as_str())
                || CATALOGUES.contains(&name.as_str());
            if is_taken || named.insert(name, Arc::clone(&source)).is_some() {
                return exec_err!("source `{}`: another schema has this name", source.name());
            }
        }
        Ok(Self {
            root,
            created_bytes_max,
            tenant_created_bytes_max,
            runtime,
            public: Arc::new(public),
            files: Arc::new(FileSchema::new(files, Arc::clone(&reader))),
            sources: named,
            reader,
            changes: Changes::default(),
            definitions,
        })
    }

    /// Makes these the tables of a session, and its files the only ones that the session can open.
    pub fn install(self: &Arc<Self>, context: &SessionContext) -> Result<()> {
        let state = context.state_ref();
        let mut state = state.write();
        *state = SessionStateBuilder::from(state.clone()).with_runtime_env(Arc::clone(&self.runtime)).build();
        let config = state.config_mut();
        config.set_extension(Arc::clone(self));
        let temporary = Arc::new(TemporaryTables::new(Arc::clone(&self.reader)));
        config.set_extension(Arc::clone(&temporary));
        config.options_mut().execution.parquet.schema_force_view_types = false;
        let factories = state.table_factories_mut();
        factories.clear();
        for (format, _) in external::FORMATS {
            factories.insert(format.to_owned(), Arc::new(ExternalTables::new(self.root.clone())));
        }
        let defaults = state.config_options().catalog.clone();
        let Some(catalog) = state.catalog_list().catalog(&defaults.default_catalog) else {
            return exec_err!("the session has no catalogue `{}`", defaults.default_catalog);
        };
        let public: Arc<dyn SchemaProvider> = Arc::clone(&self.public) as _;
        catalog.register_schema(&defaults.default_schema, public)?;
        catalog.register_schema(FILES_SCHEMA, Arc::clone(&self.files) as _)?;
        catalog.register_schema(TEMPORARY_SCHEMA, temporary)?;
        for (name, source) in &self.sources {
            catalog.register_schema(name, Arc::new(source::SourceSchema::new(Arc::clone(source))))?;
        }
        Ok(())
    }

    /// The statement that made a view.
    pub(crate) fn view(&self, name: &str) -> Option<String> {
        let is_view = match self.public.defined(name) {
            Some(table) => table.table_type() == TableType::View,
            // A file of this name goes first.
            None => self.definitions.reason(name).is_some() && !self.public.table_exist(name),
        };
        if is_view { self.definitions.text(name) } else { None }
    }

    /// Puts a view made anew in the place of what it was.
    pub(crate) fn put_view(&self, name: &str, view: ViewTable) {
        // Another session may have dropped it just now.
        if self.definitions.text(name).is_some() {
            self.definitions.mended(name);
            self.public.put_back(name, Some(Arc::new(view)));
        }
    }

    /// Views and external tables that are kept and not there; one session at a time makes them again.
    pub(crate) async fn restore(&self) -> Result<Restoring<'_>> {
        let turn = self.definitions.restoring.lock().await;
        let missing = self.definitions.missing(|name| self.public.is_defined(name))?;
        Ok(Restoring { definitions: &self.definitions, missing, _turn: turn })
    }

    /// Opens files that are new or changed, so that lists of tables have those that can be read.
    pub async fn refresh(&self) -> Result<()> {
        self.public.folder.refresh().await?;
        self.files.listing.refresh(None).await?;
        self.files.refresh().await
    }
}

/// Makes a statement see the tables of now, where it asks for lists of tables.
pub async fn refresh_for(context: &SessionContext, statement: &Statement) -> Result<()> {
    let state = context.state();
    let Some(tables) = state.config().get_extension::<TenantTables>() else { return Ok(()) };
    let asked = state.resolve_table_references(statement)?;
    let is_list = |table: &TableReference| match table.schema() {
        Some(schema) => CATALOGUES.contains(&schema),
        // `pg_class` is found without its schema.
        None => table.table().starts_with("pg_"),
    };
    if asked.iter().any(is_list) {
        return tables.refresh().await;
    }
    let default = state.config_options().catalog.default_schema.as_str();
    let is_file = |table: &&TableReference| table.schema().unwrap_or(default) == FILES_SCHEMA;
    let files: BTreeSet<String> =
        asked.iter().filter(is_file).map(|table| table.table().to_owned()).collect();
    if files.is_empty() {
        return Ok(());
    }
    tables.files.listing.refresh(Some(&files)).await
}

/// What a tenant's queries run in: its files, nobody else's caches, everybody's memory.
fn runtime(store: TenantStore, memory: &Memory) -> Result<RuntimeEnv> {
    let stores = DefaultObjectStoreRegistry::new();
    // In the place of the whole file system, which a new registry has.
    stores.register_store(ObjectStoreUrl::local_filesystem().as_ref(), Arc::new(store));
    // Caches know a file by its path in the store, so they cannot be shared by tenants. A cached list of a
    // folder's files would hide new ones.
    let caches = CacheManagerConfig::default()
        .with_list_files_cache_limit(0)
        .with_metadata_cache_limit(FOOTER_BYTES_MAX);
    let mut builder = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::clone(&memory.pool))
        .with_cache_manager(caches)
        .with_object_store_registry(Arc::new(stores));
    builder.disk_manager = Some(Arc::clone(&memory.disk));
    builder.disk_manager_builder = None;
    builder.build()
}
