//! Tenants of tests: a folder each, and sessions over it.

use std::path::Path;
use std::sync::Arc;

use sql::Session;
use sql::tables::source::Source;
use sql::tables::{Files, Memory, MemoryLimits, TenantTables, TenantTablesOptions};

use crate::common::{Model, session};

/// A tenant.
pub(crate) struct Tenant {
    folder: tempfile::TempDir,
    tables: Arc<TenantTables>,
}

impl Tenant {
    /// One with these files in its folder.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, |_| {})
    }

    /// One with sources too.
    pub(crate) fn of_sources(sources: Vec<Arc<Source>>) -> Self {
        Self::with(&[], |options| options.sources = sources)
    }

    /// One with listed files too.
    pub(crate) fn of_files(listed: Arc<Files>) -> Self {
        Self::with(&[], |options| options.files = listed)
    }

    pub(crate) fn with(files: &[(&str, &str)], change: impl FnOnce(&mut TenantTablesOptions)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let mut options = TenantTablesOptions::of_folder(folder.path());
        change(&mut options);
        let memory = Memory::new(&MemoryLimits::default()).expect("memory");
        let tables = TenantTables::new(options, &memory).expect("tables");
        Self { folder, tables: Arc::new(tables) }
    }

    /// The same folder after a restart of the server.
    pub(crate) fn restarted(self) -> Self {
        let memory = Memory::new(&MemoryLimits::default()).expect("memory");
        let options = TenantTablesOptions::of_folder(self.folder.path());
        let tables = TenantTables::new(options, &memory).expect("tables");
        Self { folder: self.folder, tables: Arc::new(tables) }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Names in its folder, hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).expect("the folder is there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    pub(crate) async fn session(&self, model: &Arc<Model>) -> Session {
        let session = session(model, &[]).await;
        self.tables.install(session.context()).expect("installed");
        session.restore_views().await.expect("restored");
        session
    }

    /// A session that asks no model.
    pub(crate) async fn plain(&self) -> Session {
        self.session(&Model::words(&[])).await
    }
}
