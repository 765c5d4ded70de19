//! The schema that names without a schema are of: the tenant's folder, views, and external tables.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_err};

use super::definitions::Definitions;
use super::folder::Folder;
use super::listing::FileSchema;

/// Views and external tables of a tenant.
const DEFINED_MAX: usize = 10_000;

/// The schema; all sessions of a tenant share it.
#[derive(Debug)]
pub(super) struct TenantSchema {
    pub(super) folder: FileSchema<Folder>,
    /// Views and external tables.
    defined: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    definitions: Arc<Definitions>,
}

impl TenantSchema {
    pub(super) fn new(folder: FileSchema<Folder>, definitions: Arc<Definitions>) -> Self {
        Self { folder, defined: RwLock::default(), definitions }
    }

    /// Whether it is a view or an external table.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.defined(name).is_some()
    }

    /// The view or external table of this name.
    pub(super) fn defined(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.defined.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Takes a definition back: what was there before is there again.
    pub(super) fn put_back(&self, name: &str, before: Option<Arc<dyn TableProvider>>) {
        let mut defined = self.defined.write().unwrap_or_else(PoisonError::into_inner);
        match before {
            Some(table) => defined.insert(name.to_owned(), table),
            None => defined.remove(name),
        };
    }

    /// Gives a view or an external table another name.
    pub(super) fn rename_defined(&self, from: &str, to: &str) {
        let mut defined = self.defined.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = defined.remove(from) {
            defined.insert(to.to_owned(), table);
        }
    }
}

#[async_trait]
impl SchemaProvider for TenantSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.folder.table_names();
        names.extend(self.defined.read().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.defined(name) {
            Some(table) => Ok(Some(table)),
            None => match (self.folder.table(name).await?, self.definitions.reason(name)) {
                (None, Some(reason)) => exec_err!("`{name}` cannot be made again: {reason}"),
                (table, _) => Ok(table),
            },
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.folder.table_exist(&name) {
            return exec_err!("`{name}` is a file in your folder");
        }
        let mut defined = self.defined.write().unwrap_or_else(PoisonError::into_inner);
        if defined.len() == DEFINED_MAX {
            return exec_err!("`{name}`: there are {DEFINED_MAX} views and external tables already");
        }
        Ok(defined.insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.defined.write().unwrap_or_else(PoisonError::into_inner).remove(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.is_defined(name) || self.folder.table_exist(name)
    }
}
