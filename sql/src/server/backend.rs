//! A connection's state, and what its statements do with it.

mod cursors;
mod transaction;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::TableReference;
use datafusion::config::{ConfigOptions, ExtensionOptions as _};
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement, WriteOp};
use datafusion::sql::parser::Statement;
use futures_util::StreamExt as _;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::startup::ParameterStatus;
use tokio::io::AsyncWrite;
use transaction::Transaction;

use super::catalog;
use super::command::SessionCommand;
use super::copy::{self, CopyFormat};
use super::cursor::{Cursor, no_cursor};
use super::error::{SqlError, code};
use super::prepared::{Portal, Prepared};
use super::rows::{self, Columns, Rows};
use super::settings::Settings;
use super::split::split;
use super::transport::ServerOutput;
use super::{ConnectionLimits, names};
use crate::query::Query;
use crate::settings::AiSettings;
use crate::{Session, tables};

/// A connection's state.
pub(super) struct Backend {
    pub(super) session: Session,
    pub(super) limits: ConnectionLimits,
    pub(super) statements: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    pub(super) transaction: Transaction,
    pub(super) cursors: HashMap<String, Cursor>,
    settings: Arc<Mutex<Settings>>,
    /// What the client was told of the settings.
    reported: Vec<(&'static str, String)>,
    /// DataFusion's settings at first.
    options: ConfigOptions,
}

/// What running a statement comes to.
pub(super) enum Outcome {
    /// Rows, and the word that their count is told with.
    Rows {
        rows: Rows,
        word: &'static str,
    },
    /// Rows of a cursor, which goes back where it was taken from.
    Fetched {
        cursor: Cursor,
        rows_max: usize,
        name: String,
    },
    /// Rows of a `SCROLL` cursor, which keeps its place.
    Scrolled {
        rows: Rows,
        is_binary: bool,
    },
    Copied {
        rows: Rows,
        format: CopyFormat,
    },
    Done(String),
    /// Something was changed, by a query whose calls may have failed.
    Changed {
        tag: String,
        query: Arc<Query>,
    },
}

impl Drop for Backend {
    fn drop(&mut self) {
        catalog::release(self.session.context());
    }
}

impl Backend {
    pub(super) fn new(session: Session, settings: Arc<Mutex<Settings>>, limits: ConnectionLimits) -> Self {
        let options = session.context().state().config_options().as_ref().clone();
        Self {
            session,
            limits,
            statements: HashMap::new(),
            portals: HashMap::new(),
            transaction: Transaction::default(),
            cursors: HashMap::new(),
            settings,
            reported: Vec::new(),
            options,
        }
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tells the client of settings that have changed since it was told.
    pub(super) fn report<S: AsyncWrite>(&mut self, output: &mut ServerOutput<S>) -> Result<(), SqlError> {
        let reported = self.settings().reported();
        for (name, value) in &reported {
            if !self.reported.contains(&(name, value.clone())) {
                let status = ParameterStatus::new((*name).to_owned(), value.clone());
                output.put(PgWireBackendMessage::ParameterStatus(status))?;
            }
        }
        self.reported = reported;
        Ok(())
    }

    /// Runs a statement that is not DataFusion's, or plans and runs one that is.
    pub(super) async fn run(&mut self, command: &SessionCommand, text: &str) -> Result<Outcome, SqlError> {
        self.check_transaction(command)?;
        let done = |tag: &str| Ok(Outcome::Done(tag.to_owned()));
        match command {
            SessionCommand::Query(statement) => {
                let plan = self.plan(statement).await?;
                self.run_plan(plan, text, None, names::of(statement).as_deref()).await
            }
            SessionCommand::Copy { query, format } => {
                let rows = self.open(query, text).await?;
                Ok(Outcome::Copied { rows, format: format.clone() })
            }
            SessionCommand::Begin(modes) => self.begin(modes),
            SessionCommand::Commit => Ok(self.commit()),
            SessionCommand::Rollback => Ok(self.roll_back()),
            SessionCommand::Savepoint(name) => self.set_savepoint(name),
            SessionCommand::Release(name) => self.release(name),
            SessionCommand::RollbackTo(name) => self.roll_back_to(name),
            SessionCommand::SetTransaction { modes, is_session } => self.set_transaction(modes, *is_session),
            SessionCommand::Set { name, value, is_local } => self.set(name, value.as_deref(), *is_local),
            SessionCommand::ResetAll => Ok(self.reset_all()),
            SessionCommand::Show(name) => self.show(name),
            SessionCommand::ShowAll => self.show_all(),
            SessionCommand::DiscardAll => self.discard_all(),
            SessionCommand::Declare { name, is_held, is_binary, is_scroll, query, text } => {
                self.check_new_cursor(name, *is_held)?;
                let rows = self.open(query, text).await?;
                self.put_back(name.clone(), Cursor::new(rows, *is_held, *is_binary, *is_scroll));
                done("DECLARE CURSOR")
            }
            SessionCommand::Fetch { name, step } => self.fetch(name, *step).await,
            SessionCommand::Move { name, step } => self.go(name, *step).await,
            SessionCommand::Rename { table, to, may_miss } => self.rename(table, to, *may_miss).await,
            SessionCommand::CloseCursor(None) => {
                self.cursors.clear();
                done("CLOSE CURSOR ALL")
            }
            SessionCommand::CloseCursor(Some(name)) => match self.cursors.remove(name) {
                Some(_) => done("CLOSE CURSOR"),
                None => Err(no_cursor(name)),
            },
            SessionCommand::Deallocate(None) => {
                self.statements.clear();
                done("DEALLOCATE ALL")
            }
            SessionCommand::Deallocate(Some(name)) => self.deallocate(name).await,
            SessionCommand::Nothing(tag) => done(tag),
        }
    }

    /// Plans a statement that DataFusion runs.
    pub(super) async fn plan(&mut self, statement: &Statement) -> Result<LogicalPlan, SqlError> {
        // Planning thousands of columns takes long, and for nothing.
        rows::check_count(names::count(statement))?;
        Ok(self.session.plan(statement.clone()).await?)
    }

    /// Starts a plan; `columns` are those that the client was told of, if it was.
    pub(super) async fn run_plan(
        &mut self,
        plan: LogicalPlan,
        text: &str,
        columns: Option<Columns>,
        names: Option<&[String]>,
    ) -> Result<Outcome, SqlError> {
        check_files(&plan)?;
        self.session.set_application(self.settings().get("application_name").unwrap_or_default());
        if matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Dml(_)) {
            self.require_writable(&first_word(text))?;
        }
        match (tag(&plan), &plan) {
            (Some(tag), LogicalPlan::Dml(_)) => {
                let mut running = self.session.run(plan, text).await?;
                let mut count = 0;
                while let Some(batch) = running.stream.next().await {
                    count += counted(&batch?);
                }
                let is_counted = tag != "TRUNCATE TABLE";
                let tag = if is_counted { format!("{tag} {count}") } else { tag.to_owned() };
                Ok(Outcome::Changed { tag, query: running.query })
            }
            (Some(tag), _) => {
                let mut running = self.session.run(plan, text).await?;
                while let Some(batch) = running.stream.next().await {
                    batch?;
                }
                // `SET .. TO DEFAULT` resets too, and is told as it was written.
                let tag = if tag == "RESET" { first_word(text) } else { tag.to_owned() };
                Ok(Outcome::Changed { tag, query: running.query })
            }
            (None, _) => {
                let is_explain = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
                let word = if is_explain { "EXPLAIN" } else { "SELECT" };
                let running = self.session.run(plan, text).await?;
                Ok(Outcome::Rows { rows: Rows::of(running, columns, names)?, word })
            }
        }
    }

    async fn open(&mut self, query: &Statement, text: &str) -> Result<Rows, SqlError> {
        let plan = self.plan(query).await?;
        match self.run_plan(plan, text, None, names::of(query).as_deref()).await? {
            Outcome::Rows { rows, .. } => Ok(rows),
            _ => Err(SqlError::new(code::SYNTAX, "syntax error: a query is expected")),
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<Outcome, SqlError> {
        let is_in_transaction = self.transaction.status != TransactionStatus::Idle;
        // Outside of a transaction, what is local is over at once.
        if !is_local || is_in_transaction {
            self.settings().set(name, value)?;
        }
        if is_local && is_in_transaction {
            self.transaction.local.push(name.to_owned());
        }
        self.follow_settings();
        Ok(Outcome::Done("SET".to_owned()))
    }

    /// Makes DataFusion's settings what Postgres' say: the time zone, and the first schema of the search path
    /// that there is as the one where names without a schema are found.
    pub(super) fn follow_settings(&self) {
        let context = self.session.context();
        let state = context.state();
        let catalog = &state.config_options().catalog;
        let schemas = context.catalog(&catalog.default_catalog).map(|catalog| catalog.schema_names());
        let schemas = schemas.unwrap_or_default();
        let schema = self.settings().search_path().find(|schema| schemas.contains(schema));
        let schema = schema.unwrap_or_else(|| self.options.catalog.default_schema.clone());
        let time_zone = self.settings().time_zone();
        let state = context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        options.catalog.default_schema = schema;
        let time_zone = Some(time_zone);
        if options.execution.time_zone == time_zone {
            return;
        }
        options.execution.time_zone = time_zone;
        // Functions such as `now()` have the zone in them.
        let options = Arc::clone(state.config_options());
        let functions: Vec<_> = state.scalar_functions().values().cloned().collect();
        for function in functions.iter().filter_map(|function| function.inner().with_updated_config(&options))
        {
            // The one of the zone before is given back.
            let _ = state.register_udf(Arc::new(function));
        }
    }

    fn show(&self, name: &str) -> Result<Outcome, SqlError> {
        let value = match name.strip_prefix("relserve.") {
            Some(own) => self.own_setting(own),
            None => self.settings().get(name).map(str::to_owned),
        };
        let value = value.ok_or_else(|| super::settings::unknown(name))?;
        let batch = texts(&[(name, vec![Some(value)])])?;
        Ok(Outcome::Rows { rows: Rows::constant(batch)?, word: "SHOW" })
    }

    /// A setting of ours, which DataFusion sets and does not show.
    fn own_setting(&self, name: &str) -> Option<String> {
        let state = self.session.context().state();
        let settings = state.config_options().extensions.get::<AiSettings>()?;
        let entry = settings.entries().into_iter().find(|entry| entry.key == name)?;
        // Without a model the server's default one is asked; of the others the session decides.
        let unset = if name == "model" { "" } else { "auto" };
        Some(entry.value.unwrap_or_else(|| unset.to_owned()))
    }

    fn show_all(&self) -> Result<Outcome, SqlError> {
        let settings = self.settings();
        let of = |value: &str| Some(value.to_owned());
        let names = settings.all().map(|(name, _)| of(name)).collect::<Vec<_>>();
        let values = settings.all().map(|(_, value)| of(value)).collect();
        let descriptions = vec![of(""); names.len()];
        let batch = texts(&[("name", names), ("setting", values), ("description", descriptions)])?;
        Ok(Outcome::Rows { rows: Rows::constant(batch)?, word: "SHOW" })
    }

    fn reset_all(&self) -> Outcome {
        self.settings().reset();
        // The next who gets a connection of a pool is not to ask the model of the last.
        let usual = self.options.extensions.get::<AiSettings>().cloned().unwrap_or_default();
        let state = self.session.context().state_ref();
        state.write().config_mut().options_mut().extensions.insert(usual);
        self.follow_settings();
        Outcome::Done("RESET".to_owned())
    }

    fn discard_all(&mut self) -> Result<Outcome, SqlError> {
        if self.transaction.status != TransactionStatus::Idle {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(SqlError::new(code::ACTIVE_TRANSACTION, message));
        }
        self.cursors.clear();
        self.portals.clear();
        self.statements.clear();
        tables::temporary::discard(self.session.context());
        self.settings().reset();
        *self.session.context().state_ref().write().config_mut().options_mut() = self.options.clone();
        self.follow_settings();
        Ok(Outcome::Done("DISCARD ALL".to_owned()))
    }

    async fn rename(
        &mut self,
        table: &TableReference,
        to: &str,
        may_miss: bool,
    ) -> Result<Outcome, SqlError> {
        self.require_writable("ALTER TABLE")?;
        let context = self.session.context();
        let table = tables::temporary::resolved(context, table.clone());
        let renamed = tables::change::rename(context, &table, to).await.map_err(SqlError::from);
        match renamed {
            Err(error) if !(may_miss && error.code == code::UNDEFINED_TABLE) => Err(error),
            _ => Ok(Outcome::Done("ALTER TABLE".to_owned())),
        }
    }

    async fn deallocate(&mut self, name: &str) -> Result<Outcome, SqlError> {
        if self.statements.remove(name).is_none() {
            // It may be one of PREPARE, which DataFusion keeps.
            let name = TableReference::bare(name).to_quoted_string();
            let running = self.session.query(&format!("DEALLOCATE {name}")).await;
            running.map_err(|_| {
                SqlError::new(code::UNKNOWN_STATEMENT, format!("prepared statement {name} does not exist"))
            })?;
        }
        Ok(Outcome::Done("DEALLOCATE".to_owned()))
    }
}

/// Refuses one more of what there are `count` of already.
pub(super) fn limit(what: &str, count: usize, max: usize) -> Result<(), SqlError> {
    if count < max { Ok(()) } else { Err(SqlError::limit(what, max)) }
}

fn first_word(text: &str) -> String {
    // Behind the comments.
    let word = split(text).ok().and_then(|pieces| pieces.first()?.words.first().cloned());
    word.unwrap_or_default()
}

/// Refuses plans that write files of the server, wherever in the plan they do.
pub(super) fn check_files(plan: &LogicalPlan) -> Result<(), SqlError> {
    use datafusion::common::tree_node::TreeNode as _;
    if plan.exists(|plan| Ok(matches!(plan, LogicalPlan::Copy(_))))? { Err(copy::to_files()) } else { Ok(()) }
}

/// How a statement without rows is told to be done; `None` of one with rows.
pub(super) fn tag(plan: &LogicalPlan) -> Option<&'static str> {
    match plan {
        LogicalPlan::Ddl(ddl) => Some(match ddl {
            DdlStatement::CreateExternalTable(_) | DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
            DdlStatement::CreateView(_) => "CREATE VIEW",
            DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
            DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
            DdlStatement::CreateIndex(_) => "CREATE INDEX",
            DdlStatement::DropTable(_) => "DROP TABLE",
            DdlStatement::DropView(_) => "DROP VIEW",
            DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
            DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
            DdlStatement::DropFunction(_) => "DROP FUNCTION",
        }),
        LogicalPlan::Dml(dml) => Some(match &dml.op {
            WriteOp::Insert(_) => "INSERT 0",
            WriteOp::Delete => "DELETE",
            WriteOp::Update => "UPDATE",
            WriteOp::Ctas => "SELECT",
            WriteOp::Truncate => "TRUNCATE TABLE",
            _ => "OK",
        }),
        LogicalPlan::Statement(statement) => match statement {
            PlanStatement::SetVariable(_) => Some("SET"),
            PlanStatement::ResetVariable(_) => Some("RESET"),
            PlanStatement::Prepare(_) => Some("PREPARE"),
            PlanStatement::Deallocate(_) => Some("DEALLOCATE"),
            PlanStatement::Execute(_) => None,
            _ => Some("OK"),
        },
        _ => None,
    }
}

/// The count of rows that a change of a table gives as its one row.
fn counted(batch: &RecordBatch) -> u64 {
    use datafusion::arrow::array::AsArray as _;
    use datafusion::arrow::datatypes::UInt64Type;
    match batch.columns().first().and_then(|column| column.as_primitive_opt::<UInt64Type>()) {
        Some(counts) => counts.iter().flatten().sum(),
        None => 0,
    }
}

/// A batch of columns of text.
fn texts(columns: &[(&str, Vec<Option<String>>)]) -> Result<RecordBatch, SqlError> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, true)).collect();
    let arrays = columns.iter().map(|(_, values)| Arc::new(StringArray::from(values.clone())) as ArrayRef);
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect())?)
}
