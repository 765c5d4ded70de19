//! What a session may read and do, where that is less than its tenant may: some tables alone, or looks alone.
//!
//! Held to by the names that a statement has, before it is planned: a view is read by its own name, whatever stands
//! below it, as in Postgres.

use std::fmt;

use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::execution::SessionState;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

/// What a session may; all of its tenant's where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionAccess {
    /// Whether it changes nothing, and has nothing computed: calls whose answers are not known are NULL.
    pub is_read_only: bool,
    /// Names of tables, those of other schemas behind their schema's; `None`: all.
    pub tables: Option<Vec<String>>,
}

/// What a session may not; the scope that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDenied(pub String);

impl fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "permission denied: this API key lacks the scope `{}`", self.0)
    }
}

impl std::error::Error for AccessDenied {}

impl AccessDenied {
    /// The denial that an error is, if it is one.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(cause) => cause.downcast_ref(),
            _ => None,
        }
    }
}

/// The scope of what changes tables.
const WRITE: &str = "write";
/// Schemas that say which tables there are, and nothing of what is in them. Tools ask them before all else.
const ABOUT_TABLES: [&str; 2] = ["information_schema", "pg_catalog"];

impl SessionAccess {
    /// Whether it may only read: a table that it made could be a file of another.
    pub(crate) fn only_reads(&self) -> bool {
        self.is_read_only || self.tables.is_some()
    }

    /// Refuses a statement that it may not run, as its names have been found.
    pub(crate) fn check(&self, context: &SessionContext, statement: &Statement) -> Result<()> {
        if self.only_reads() && !reads(statement) {
            return Err(denied(WRITE));
        }
        let Some(allowed) = &self.tables else { return Ok(()) };
        let state = context.state();
        for table in state.resolve_table_references(statement)? {
            let name = name_of(&state, &table);
            let is_about = name.split_once('.').is_some_and(|(schema, _)| ABOUT_TABLES.contains(&schema));
            if is_about || allowed.contains(&name) || is_function(context, &state, &table)? {
                continue;
            }
            return Err(denied(&format!("tables: {name}")));
        }
        Ok(())
    }

    /// Refuses a plan that writes: a query can hold `INTO`, or an `INSERT`.
    pub(crate) fn check_plan(&self, plan: &LogicalPlan) -> Result<()> {
        let writes = |plan: &LogicalPlan| {
            Ok(matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_)))
        };
        if self.only_reads() && plan.exists(writes)? { Err(denied(WRITE)) } else { Ok(()) }
    }
}

fn denied(scope: &str) -> DataFusionError {
    DataFusionError::External(Box::new(AccessDenied(scope.to_owned())))
}

/// Whether a statement reads tables, or is about the session alone.
fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => {
            matches!(**statement, ast::Statement::Query(_) | ast::Statement::Set(_))
                || matches!(**statement, ast::Statement::Reset(_) | ast::Statement::ShowVariable { .. })
        }
        Statement::Explain(explain) => reads(&explain.statement),
        Statement::Reset(_) => true,
        _ => false,
    }
}

/// A table's name as scopes have it: without a schema where it is of the tenant's own.
fn name_of(state: &SessionState, table: &TableReference) -> String {
    let defaults = &state.config_options().catalog;
    let catalog = table.catalog().filter(|catalog| *catalog != defaults.default_catalog);
    let is_own = catalog.is_none() && table.schema().is_none_or(|schema| schema == defaults.default_schema);
    let schema = table.schema().filter(|_| !is_own);
    catalog.into_iter().chain(schema).chain([table.table()]).collect::<Vec<_>>().join(".")
}

/// Whether a name is a table function's and no table's: `generate_series`.
fn is_function(context: &SessionContext, state: &SessionState, table: &TableReference) -> Result<bool> {
    let is_known = table.schema().is_none() && state.table_functions().contains_key(table.table());
    Ok(is_known && !context.table_exist(table.clone())?)
}
