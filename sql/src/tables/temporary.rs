//! `CREATE TEMPORARY TABLE`: tables of one session, in its schema `pg_temp`.
//!
//! Each is a hidden file in the tenant's folder that goes with the table or the session. Where a statement
//! names a table without a schema, a temporary one is meant before others.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, TableReference, exec_datafusion_err, exec_err, plan_err};
use datafusion::execution::context::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectName, ObjectNamePart, Visit, VisitMut, Visitor, VisitorMut,
};
use tempfile::TempPath;

use super::format::TableFormat;
use super::listing::{Place, TableReader};
use super::store;

/// The schema of temporary tables.
pub const TEMPORARY_SCHEMA: &str = "pg_temp";
/// Temporary tables of a session.
const TABLES_MAX: usize = 1_000;

/// A file that goes with its table, and the table.
type Held = (Arc<TempPath>, Arc<dyn TableProvider>);

/// A session's temporary tables.
#[derive(Debug)]
pub(super) struct TemporaryTables {
    reader: Arc<TableReader>,
    tables: RwLock<BTreeMap<String, Held>>,
}

impl TemporaryTables {
    pub(super) fn new(reader: Arc<TableReader>) -> Self {
        Self { reader, tables: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Held>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Held>> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a table.
    pub(super) fn path(&self, table: &str) -> Option<PathBuf> {
        self.read().get(table).map(|(path, _)| path.to_path_buf())
    }

    /// Refuses one table more than a session may have.
    pub(super) fn check_count(&self) -> Result<()> {
        match self.read().len() < TABLES_MAX {
            true => Ok(()),
            false => exec_err!("a session can have at most {TABLES_MAX} temporary tables"),
        }
    }

    /// Makes a file in the tenant's folder the table of this name. One that is there keeps its path, which
    /// prepared statements have.
    pub(super) async fn put(&self, table: &str, written: TempPath) -> Result<()> {
        let held = self.read().get(table).map(|(path, _)| Arc::clone(path));
        let path = match held {
            Some(path) => {
                let taken = written.persist(path.as_ref());
                taken.map_err(|error| exec_datafusion_err!("table {table}: {}", error.error.kind()))?;
                path
            }
            None => Arc::new(written),
        };
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else {
            return exec_err!("table {table}: its file has no name");
        };
        let segments = vec![store::FOLDER.into(), file.into()];
        let place = Place { segments, format: TableFormat::Parquet, parts: false };
        let opened = self.reader.open(&place).await?;
        self.write().insert(table.to_owned(), (path, opened));
        Ok(())
    }

    /// Whether there was such a table.
    pub(super) fn remove(&self, table: &str) -> bool {
        self.write().remove(table).is_some()
    }

    pub(super) fn rename(&self, table: &str, to: &str) -> Result<()> {
        let mut tables = self.write();
        if tables.contains_key(to) {
            return plan_err!("table {to} already exists");
        }
        let Some(held) = tables.remove(table) else { return plan_err!("table {table} does not exist") };
        tables.insert(to.to_owned(), held);
        Ok(())
    }
}

#[async_trait]
impl SchemaProvider for TemporaryTables {
    fn table_names(&self) -> Vec<String> {
        self.read().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.read().get(name).map(|(_, table)| Arc::clone(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.read().contains_key(name)
    }
}

/// The temporary tables of a session, where a name is in their schema.
pub(super) fn of(context: &SessionContext, name: &TableReference) -> Option<Arc<TemporaryTables>> {
    (name.schema() == Some(TEMPORARY_SCHEMA)).then(|| all(context)).flatten()
}

fn all(context: &SessionContext) -> Option<Arc<TemporaryTables>> {
    context.state_ref().read().config().get_extension::<TemporaryTables>()
}

/// Drops all temporary tables of a session.
pub fn discard(context: &SessionContext) {
    if let Some(tables) = all(context) {
        tables.write().clear();
    }
}

/// A table's name as a session means it: `pg_temp` is before other schemas where there is such a table.
pub fn resolved(context: &SessionContext, name: TableReference) -> TableReference {
    match name {
        TableReference::Bare { table } if all(context).is_some_and(|tables| tables.table_exist(&table)) => {
            TableReference::partial(TEMPORARY_SCHEMA, table)
        }
        name => name,
    }
}

/// Names the schema of temporary tables where a statement makes or means one.
pub(crate) fn resolve(context: &SessionContext, statement: &mut Statement) {
    let Some(tables) = all(context) else { return };
    match statement {
        Statement::Statement(statement) => {
            if let ast::Statement::CreateTable(create) = statement.as_mut()
                && create.temporary
            {
                create.temporary = false;
                create.on_commit = None;
                qualify(&mut create.name);
            }
            let names = tables.table_names();
            if names.is_empty() {
                return;
            }
            let mut shadowed = Shadowed(HashSet::new());
            let _ = Visit::visit(statement.as_ref(), &mut shadowed);
            let meant = names.into_iter().filter(|name| !shadowed.0.contains(name)).collect();
            if let ast::Statement::Drop { names, .. } = statement.as_mut() {
                names.iter_mut().for_each(|name| Qualify(&meant).name(name));
            } else {
                let _ = VisitMut::visit(statement.as_mut(), &mut Qualify(&meant));
            }
        }
        Statement::Explain(explain) => resolve(context, &mut explain.statement),
        _ => {}
    }
}

fn qualify(name: &mut ObjectName) {
    if name.0.len() == 1 {
        name.0.insert(0, ObjectNamePart::Identifier(Ident::new(TEMPORARY_SCHEMA)));
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Names that a statement gives to queries of its own (`WITH`) and to what it makes.
struct Shadowed(HashSet<String>);

impl Visitor for Shadowed {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let own = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(own.map(|own| folded(&own.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<()> {
        let made = match statement {
            ast::Statement::CreateTable(create) => &create.name,
            ast::Statement::CreateView(create) => &create.name,
            _ => return ControlFlow::Continue(()),
        };
        self.0.extend(made.0.last().and_then(ObjectNamePart::as_ident).map(folded));
        ControlFlow::Continue(())
    }
}

struct Qualify<'a>(&'a HashSet<String>);

impl Qualify<'_> {
    fn name(&self, name: &mut ObjectName) {
        if let [ObjectNamePart::Identifier(table)] = name.0.as_slice()
            && self.0.contains(&folded(table))
        {
            qualify(name);
        }
    }
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        self.name(name);
        ControlFlow::Continue(())
    }
}
