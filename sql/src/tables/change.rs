//! `INSERT`, `DELETE`, `TRUNCATE` and `ALTER TABLE .. RENAME TO`, of tables that `CREATE TABLE` made.
//!
//! A change writes the table anew beside the old one and takes its place when it is whole, so readers see one
//! or the other. It costs a pass over the table: these statements are there for tools that load and build
//! tables (dbt), not for a row at a time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::SchemaProvider as _;
use datafusion::common::{Result, TableReference, exec_datafusion_err, plan_err};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Filter, LogicalPlan, LogicalPlanBuilder, WriteOp};
use datafusion::prelude::{Expr, lit};
use tokio::sync::OwnedMutexGuard;

use super::TenantTables;
use super::create::{self, NewTable};
use super::definitions::sync_folder_of;
use super::name::{folded, own};
use super::temporary;

/// One lock for each table that is being changed.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Changes {
    /// Waits until no one else changes a table.
    pub(super) async fn lock(&self, table: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Who waits for a lock has a reference to it, as has who holds it.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(table.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Whether tables can be changed in this way.
pub(super) fn is_possible(op: &WriteOp) -> bool {
    matches!(op, WriteOp::Insert(InsertOp::Append) | WriteOp::Delete | WriteOp::Truncate)
}

/// The file of a table that may be changed.
fn file(tables: &TenantTables, what: &str, table: &str) -> Result<PathBuf> {
    if tables.public.is_defined(table) {
        return plan_err!("{what} `{table}`: it is a view or an external table");
    }
    match tables.public.folder.listing.file_of(table)? {
        Some(file) => Ok(tables.root.join(file)),
        None => plan_err!("{what} `{table}`: only tables that CREATE TABLE made can be changed"),
    }
}

/// The query that writes a table anew.
pub(super) async fn change(
    context: &SessionContext,
    tables: &TenantTables,
    command: DmlStatement,
) -> Result<DataFrame> {
    let DmlStatement { table_name: name, target, op, input, .. } = command;
    let what = op.to_string();
    let (path, lock, session) = match temporary::of(context, &name) {
        Some(session) => match session.path(name.table()) {
            Some(path) => (path, None, Some(session)),
            None => return plan_err!("table {name} does not exist"),
        },
        None => {
            let Some(table) = own(context, &name) else {
                return plan_err!("{what} `{name}`: only tables of your own schema can be changed");
            };
            let lock = tables.changes.lock(table).await;
            (file(tables, &what, table)?, Some(Arc::new(lock)), None)
        }
    };
    let Some(before) = create::rows_of_created(&path) else {
        return plan_err!("{what} `{name}`: it was not made by CREATE TABLE; your files are only read");
    };
    let is_insert = matches!(op, WriteOp::Insert(_));
    let new = NewTable {
        schema: super::format::plain(&target.schema()),
        folder: tables.root.clone(),
        name: name.table().to_owned(),
        replaces: true,
        bytes_max: tables.created_bytes_max,
        tenant_bytes_max: tables.tenant_created_bytes_max,
        keeps: is_insert.then_some(path),
        removes_from: (!is_insert).then_some(before),
        session,
        lock,
    };
    let input = match op {
        WriteOp::Insert(_) => input,
        WriteOp::Truncate => {
            let all = LogicalPlanBuilder::scan(name.clone(), target, None)?;
            Arc::new(all.filter(lit(false))?.build()?)
        }
        _ => Arc::new(kept(input)?),
    };
    let insert =
        DmlStatement::new(name, provider_as_source(Arc::new(new)), WriteOp::Insert(InsertOp::Append), input);
    Ok(DataFrame::new(context.state(), LogicalPlan::Dml(insert)))
}

/// The rows that are left where those of a plan are deleted.
fn kept(deleted: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let (condition, input) = match Arc::unwrap_or_clone(deleted) {
        LogicalPlan::Filter(filter) => (Expr::IsNotTrue(Box::new(filter.predicate)), filter.input),
        all => (lit(false), Arc::new(all)),
    };
    Ok(LogicalPlan::Filter(Filter::try_new(condition, input)?))
}

/// Gives a table, view or external table another name.
///
/// # Errors
/// Where there is no such table, the name is taken, or the table is a file that `CREATE TABLE` did not make.
pub async fn rename(context: &SessionContext, from: &TableReference, to: &str) -> Result<()> {
    let tables = context.state_ref().read().config().get_extension::<TenantTables>();
    let Some(tables) = tables else { return plan_err!("ALTER TABLE {from}: there is no folder of tables") };
    if folded(to) != to {
        return plan_err!("ALTER TABLE {from}: `{to}`: use letters, digits and `_`, no capitals");
    }
    if let Some(session) = temporary::of(context, from) {
        return session.rename(from.table(), to);
    }
    let Some(table) = own(context, from) else {
        return plan_err!("ALTER TABLE {from}: only tables of your own schema can be renamed");
    };
    if !tables.public.table_exist(table) {
        return plan_err!("table {table} does not exist");
    }
    if table == to {
        return plan_err!("table {to} already exists");
    }
    // In the order of their names, so that no two renames wait for each other.
    let (first, second) = if table < to { (table, to) } else { (to, table) };
    let _locks = (tables.changes.lock(first).await, tables.changes.lock(second).await);
    if tables.public.table_exist(to) {
        return plan_err!("table {to} already exists");
    }
    if tables.public.is_defined(table) {
        tables.definitions.rename(table, to)?;
        tables.public.rename_defined(table, to);
        return Ok(());
    }
    let path = file(&tables, "ALTER TABLE", table)?;
    if !create::is_created(&path) {
        return plan_err!("ALTER TABLE {from}: it was not made by CREATE TABLE; rename the file instead");
    }
    std::fs::rename(&path, tables.root.join(format!("{to}.parquet")))
        .and_then(|()| sync_folder_of(&path))
        .map_err(|error| exec_datafusion_err!("ALTER TABLE {from}: {}", error.kind()))
}
