//! Statements that make, change or drop something: which of them a tenant may run, and how.

use std::sync::Arc;

use datafusion::catalog::SchemaProvider as _;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    CreateMemoryTable, CreateView, DdlStatement, DmlStatement, DropTable, LogicalPlan, LogicalPlanBuilder,
    Statement, TableType, WriteOp,
};

use super::TenantTables;
use super::change;
use super::create::{self, NewTable};
use super::definitions::without_database;
use super::name::{folded, own};
use super::temporary;

/// Settings of DataFusion that a session may change. The others reach files, memory or what names mean.
const SETTINGS: [&str; 3] =
    ["datafusion.execution.time_zone", "datafusion.explain.", "datafusion.optimizer."];

/// Runs a statement that is done at once, or gives back the query that it is. Takes the place of
/// [`SessionContext::execute_logical_plan`], which would write and read wherever it is told to.
///
/// # Errors
/// Where the statement would write into a source, a file elsewhere or a setting of the server.
pub async fn execute(context: &SessionContext, plan: LogicalPlan, text: &str) -> Result<DataFrame> {
    check(&plan)?;
    let tables = context.state_ref().read().config().get_extension::<TenantTables>();
    match (plan, tables) {
        (LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(command)), Some(tables)) => {
            create_table(context, &tables, command)
        }
        (LogicalPlan::Ddl(DdlStatement::DropTable(command)), Some(tables)) => {
            drop_table(context, &tables, command).await
        }
        (LogicalPlan::Ddl(command @ DdlStatement::DropView(_)), Some(tables)) => {
            drop_defined(context, &tables, command).await
        }
        (
            LogicalPlan::Ddl(command @ (DdlStatement::CreateView(_) | DdlStatement::CreateExternalTable(_))),
            Some(tables),
        ) => define(context, &tables, command, text).await,
        (LogicalPlan::Dml(command), Some(tables)) => change::change(context, &tables, command).await,
        (LogicalPlan::Dml(command), None) => {
            plan_err!("`{}`: {} is not allowed, tables are only read", command.table_name, command.op)
        }
        // Without a folder, tables are the session's, in memory.
        (plan, _) => context.execute_logical_plan(plan).await,
    }
}

/// Refuses what may not be run, at any depth: `EXPLAIN ANALYZE` and `PREPARE` have statements in them.
fn check(plan: &LogicalPlan) -> Result<()> {
    if let LogicalPlan::Ddl(command) = plan {
        let what = match command {
            DdlStatement::CreateExternalTable(_)
            | DdlStatement::CreateMemoryTable(_)
            | DdlStatement::CreateView(_)
            | DdlStatement::DropTable(_)
            | DdlStatement::DropView(_) => None,
            DdlStatement::CreateCatalogSchema(_) | DdlStatement::CreateCatalog(_) => Some("CREATE SCHEMA"),
            DdlStatement::DropCatalogSchema(_) => Some("DROP SCHEMA"),
            DdlStatement::CreateIndex(_) => Some("CREATE INDEX"),
            DdlStatement::CreateFunction(_) | DdlStatement::DropFunction(_) => Some("CREATE FUNCTION"),
        };
        if let Some(what) = what {
            return plan_err!("{what} is not allowed: schemas and functions are the server's");
        }
    }
    let mut depth = 0;
    let checked = plan.apply_with_subqueries(|node| {
        let is_root = depth == 0;
        depth += 1;
        match node {
            LogicalPlan::Copy(_) => plan_err!("COPY to a file is not allowed; use COPY (..) TO STDOUT"),
            LogicalPlan::Dml(command) if !change::is_possible(&command.op) => {
                plan_err!("`{}`: {} is not allowed", command.table_name, command.op)
            }
            LogicalPlan::Dml(_) | LogicalPlan::Ddl(_) if !is_root => {
                plan_err!("a statement that makes or changes a table cannot be part of another")
            }
            LogicalPlan::Statement(Statement::SetVariable(set)) => setting(&set.variable),
            LogicalPlan::Statement(Statement::ResetVariable(reset)) => setting(&reset.variable),
            _ => Ok(TreeNodeRecursion::Continue),
        }
    });
    checked.map(|_| ())
}

fn setting(name: &str) -> Result<TreeNodeRecursion> {
    if name.starts_with("datafusion.") && !SETTINGS.iter().any(|allowed| name.starts_with(allowed)) {
        return plan_err!("SET {name} is not allowed: the server has set it");
    }
    Ok(TreeNodeRecursion::Continue)
}

/// The query that makes the table.
fn create_table(
    context: &SessionContext,
    tables: &TenantTables,
    command: CreateMemoryTable,
) -> Result<DataFrame> {
    let CreateMemoryTable { name, input, if_not_exists, or_replace, constraints, column_defaults, temporary } =
        command;
    if temporary {
        // What a session may make of these is resolved before it is planned.
        return plan_err!("CREATE TEMPORARY TABLE {name}: not supported here");
    }
    if !constraints.is_empty() || !column_defaults.is_empty() {
        return plan_err!("CREATE TABLE {name}: a table has no constraints and no defaults");
    }
    let session = temporary::of(context, &name);
    let Some(table) = session.as_ref().map(|_| name.table()).or_else(|| own(context, &name)) else {
        return plan_err!("CREATE TABLE {name}: tables can be made in your own schema only");
    };
    if folded(table) != table {
        return plan_err!("CREATE TABLE {name}: use letters, digits and `_`, no capitals");
    }
    let (file, exists) = match &session {
        Some(session) => {
            session.check_count()?;
            (session.path(table), session.path(table).is_some())
        }
        None => {
            let file = tables.public.folder.listing.file_of(table)?.map(|file| tables.root.join(file));
            let exists = file.is_some() || tables.public.table_exist(table);
            (file, exists)
        }
    };
    if exists && if_not_exists {
        return done(context);
    }
    let replaces = exists && or_replace;
    if replaces && !file.as_ref().is_some_and(|file| create::is_created(file)) {
        return plan_err!("CREATE OR REPLACE TABLE {name}: it was not made by CREATE TABLE");
    }
    if exists && !replaces {
        return plan_err!("CREATE TABLE {name}: it exists already");
    }
    for (place, field) in input.schema().fields().iter().enumerate() {
        if input.schema().fields()[..place].iter().any(|other| other.name() == field.name()) {
            return plan_err!("CREATE TABLE {name}: two columns have the name `{}`", field.name());
        }
    }
    let new = NewTable {
        schema: super::format::plain(input.schema().as_arrow()),
        folder: tables.root.clone(),
        name: table.to_owned(),
        replaces,
        bytes_max: tables.created_bytes_max,
        tenant_bytes_max: tables.tenant_created_bytes_max,
        keeps: None,
        removes_from: None,
        session,
        lock: None,
    };
    let target = provider_as_source(Arc::new(new));
    let insert = DmlStatement::new(name, target, WriteOp::Insert(InsertOp::Append), input);
    Ok(DataFrame::new(context.state(), LogicalPlan::Dml(insert)))
}

async fn drop_table(
    context: &SessionContext,
    tables: &TenantTables,
    command: DropTable,
) -> Result<DataFrame> {
    if let Some(session) = temporary::of(context, &command.name) {
        if !session.remove(command.name.table()) && !command.if_exists {
            return plan_err!("DROP TABLE {}: there is no such table", command.name);
        }
        return done(context);
    }
    let Some(table) = own(context, &command.name) else {
        return plan_err!("DROP TABLE {}: only tables of your own schema can be dropped", command.name);
    };
    if tables.public.is_defined(table) || tables.definitions.reason(table).is_some() {
        return drop_defined(context, tables, DdlStatement::DropTable(command)).await;
    }
    match tables.public.folder.listing.file_of(table)? {
        Some(file) => create::remove(&tables.root, &file)?,
        None if command.if_exists => {}
        None => return plan_err!("DROP TABLE {}: there is no such table", command.name),
    }
    done(context)
}

/// Makes a view or an external table, and writes down how, so that it outlives the server.
async fn define(
    context: &SessionContext,
    tables: &TenantTables,
    command: DdlStatement,
    text: &str,
) -> Result<DataFrame> {
    let (name, text) = match &command {
        DdlStatement::CreateView(CreateView { name, definition, input, .. }) => {
            if input.exists(|node| Ok(is_temporary(node)))? {
                return plan_err!(
                    "CREATE VIEW {name}: a view is every session's, and a temporary table is not"
                );
            }
            (name.clone(), definition.clone().unwrap_or_default())
        }
        DdlStatement::CreateExternalTable(command) => (command.name.clone(), text.to_owned()),
        _ => return context.execute_logical_plan(LogicalPlan::Ddl(command)).await,
    };
    let Some(table) = own(context, &name) else {
        return plan_err!("CREATE {name}: views and external tables can be made in your own schema only");
    };
    let database = context.state_ref().read().config_options().catalog.default_catalog.clone();
    let text = without_database(&text, &database)?;
    let _lock = tables.changes.lock(table).await;
    let before = tables.public.defined(table);
    let frame = context.execute_logical_plan(LogicalPlan::Ddl(command)).await?;
    let made = tables.public.defined(table);
    // `IF NOT EXISTS` leaves what is there.
    if before.as_ref().map(Arc::as_ptr) != made.as_ref().map(Arc::as_ptr) {
        tables.definitions.save(table, &text).inspect_err(|_| tables.public.put_back(table, before))?;
    }
    Ok(frame)
}

/// Whether a node reads a table of the session.
fn is_temporary(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.schema() == Some(temporary::TEMPORARY_SCHEMA))
}

/// Drops a view or an external table, and forgets how it is made.
async fn drop_defined(
    context: &SessionContext,
    tables: &TenantTables,
    command: DdlStatement,
) -> Result<DataFrame> {
    let (name, kind) = match &command {
        DdlStatement::DropView(command) => (&command.name, TableType::View),
        DdlStatement::DropTable(command) => (&command.name, TableType::Base),
        _ => return context.execute_logical_plan(LogicalPlan::Ddl(command)).await,
    };
    let Some(table) = own(context, name) else {
        return plan_err!("DROP {name}: only views of your own schema can be dropped");
    };
    let _lock = tables.changes.lock(table).await;
    let found = tables.public.defined(table);
    if found.as_ref().is_none_or(|found| found.table_type() == kind)
        && tables.definitions.remove(table)?
        && found.is_none()
    {
        return done(context);
    }
    context.execute_logical_plan(LogicalPlan::Ddl(command)).await
}

/// The answer of a statement that is done already.
fn done(context: &SessionContext) -> Result<DataFrame> {
    Ok(DataFrame::new(context.state(), LogicalPlanBuilder::empty(false).build()?))
}
