//! Uploaded files as tables: copied out of the store when a statement names them, one copy on each gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::TenantId;
use futures_util::future::BoxFuture;
use serving::Runtime;
use serving::error::of_store;
use sql::DataFusionError;
use sql::tables::{FileOrigin, ListedFile, table_of};
use store::{FileInfo, Page};

use crate::config::Config;
use crate::services::encoded::content_of;

/// The purpose of files that are tables.
pub const PURPOSE: &str = "user_data";

/// The files of one tenant.
pub struct Uploads {
    runtime: Arc<Runtime>,
    tenant: TenantId,
    /// Where copies lie, by the files' identities.
    folder: PathBuf,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Uploads").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Where copies of all tenants' files lie.
fn copies(config: &Config) -> PathBuf {
    config.store.data_dir.join("sql-files")
}

impl Uploads {
    /// A tenant's files.
    pub fn of(runtime: &Arc<Runtime>, config: &Config, tenant: TenantId) -> Self {
        Self { runtime: Arc::clone(runtime), tenant, folder: copies(config).join(tenant.0.to_string()) }
    }

    /// The files that are tables, newest first.
    async fn found(&self) -> Result<Vec<FileInfo>, store::Error> {
        let now = self.runtime.shared.unix_now();
        // All: what `bulk.tenant_files_max` takes in is the bound.
        let page = Page { after: None, limit: u32::MAX };
        let found = self.runtime.store.files(self.tenant, Some(PURPOSE), (page, false), now).await?;
        self.prune(&found);
        Ok(found)
    }

    /// Deletes copies of files that are gone.
    fn prune(&self, found: &[FileInfo]) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_kept = found.iter().any(|file| name.to_str() == Some(&file.id));
            // A copy that is being made begins with a dot, and deletes itself.
            if !is_kept && !name.as_encoded_bytes().starts_with(b".") {
                remove(&entry.path());
            }
        }
    }

    /// Copies a file here, where it is not yet.
    async fn fetch(&self, file: &FileInfo) -> Result<(), DataFusionError> {
        let path = self.folder.join(&file.id);
        if path.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder)?;
        let mut copy = tempfile::Builder::new().prefix(".").tempfile_in(&self.folder)?;
        let mut chunk = 0;
        while let Some(text) =
            self.runtime.store.file_chunk(&file.id, chunk).await.map_err(|error| outside(of_store(error)))?
        {
            copy.write_all(&content_of(file.is_encoded, text).map_err(outside)?)?;
            chunk += 1;
        }
        copy.persist(path).map(drop).map_err(|error| error.error.into())
    }
}

impl FileOrigin for Uploads {
    fn files<'a>(
        &'a self,
        wanted: Option<&'a BTreeSet<String>>,
    ) -> BoxFuture<'a, Result<Vec<ListedFile>, DataFusionError>> {
        Box::pin(async move {
            let mut tables: BTreeMap<String, FileInfo> = BTreeMap::new();
            for file in self.found().await.map_err(|error| outside(of_store(error)))? {
                // The newest of a name is the table.
                tables.entry(table_of(&file.name)).or_insert(file);
            }
            for (table, file) in &tables {
                if wanted.is_none_or(|wanted| wanted.contains(table)) {
                    self.fetch(file).await?;
                }
            }
            let listed = tables.into_values().map(|file| ListedFile {
                path: self.folder.join(&file.id),
                name: file.name,
                format: None,
            });
            Ok(listed.collect())
        })
    }
}

fn outside(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the copy of a file that is gone was not deleted");
    }
}

/// Deletes the copy of a file that its tenant has deleted.
pub fn forget(config: &Config, tenant: TenantId, file: &str) {
    remove(&copies(config).join(tenant.0.to_string()).join(file));
}

/// Deletes the copies of all files that are gone.
pub async fn forget_gone(runtime: &Arc<Runtime>, config: &Config) {
    let Ok(folders) = std::fs::read_dir(copies(config)) else { return };
    for folder in folders.flatten() {
        let Some(tenant) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Err(error) = Uploads::of(runtime, config, TenantId(tenant)).found().await {
            tracing::warn!(%error, "copies of files that are gone were not looked for");
        }
    }
}
