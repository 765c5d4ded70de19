//! Databases whose tables a session can read.
//!
//! A source is connected once and shared by sessions. Its statements run in read-only transactions, get
//! predicates, columns and limits that mean the same to the database ([`filter`]), and give rows as fast as
//! they are read ([`scan`]).

mod column;
mod filter;
mod numeric;
mod postgres;
mod scan;
mod sqlite;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use tokio::sync::mpsc::Sender;

use self::column::{BatchBuilder, Kind, SourceColumn, Value};
use self::scan::{SourceTable, Statement};
use super::name::folded;

/// Connections to one source.
const CONNECTIONS_MAX: u32 = 8;
/// Columns of all tables of a source.
const COLUMNS_MAX: usize = 200_000;

/// Why a database could not be read, as it says.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    #[error("{0}")]
    Value(String),
    #[error("{0}")]
    Arrow(#[from] datafusion::arrow::error::ArrowError),
    #[error("more than {COLUMNS_MAX} columns in its tables")]
    TooManyColumns,
    /// Nobody reads the rows any more.
    #[error("nobody reads its rows")]
    Unread,
}

/// A table or a view of a database.
#[derive(Debug, PartialEq)]
struct Table {
    /// Its name in the database's statements.
    quoted: String,
    columns: Vec<SourceColumn>,
}

/// How a database writes statements.
trait SourceDialect: Send + Sync {
    /// A name in quotes.
    fn name(&self, name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    /// A column in a list of what is read.
    fn selected(&self, column: &SourceColumn) -> String;

    /// A truth value as a predicate.
    fn truth(&self, column: &SourceColumn) -> String;

    /// A column where it is compared as plans do, by bytes. `ordered`: with `<` and the like, not with `=`.
    fn operand(&self, column: &SourceColumn, ordered: bool) -> String;

    /// The place of the parameter of this number, from 1, which is compared with such a column.
    fn parameter(&self, number: usize, kind: Kind) -> String;

    /// The operator that means `LIKE`, which tells capitals apart, and its pattern. There is no escape.
    fn like(&self, pattern: &str) -> (&'static str, String);
}

/// A database.
#[async_trait]
trait Database: fmt::Debug + Send + Sync {
    fn dialect(&self) -> &dyn SourceDialect;

    /// Its tables by their names here.
    async fn tables(&self) -> Result<BTreeMap<String, Table>, SourceError>;

    /// Runs a statement in a read-only transaction and hands its rows over.
    async fn read(&self, statement: &Statement, rows: Rows) -> Result<(), SourceError>;
}

/// Where rows go.
struct Rows {
    columns: Arc<[SourceColumn]>,
    batch: BatchBuilder,
    batches: Sender<Result<RecordBatch>>,
}

impl Rows {
    /// Adds a cell of the row.
    fn push(&mut self, place: usize, value: Value) -> Result<(), SourceError> {
        self.batch.push(place, value).map_err(SourceError::Value)
    }

    /// Ends the row. Waits while enough batches wait to be read.
    async fn end_row(&mut self) -> Result<(), SourceError> {
        if self.batch.end_row() { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<(), SourceError> {
        match self.batch.take()? {
            Some(batch) => self.batches.send(Ok(batch)).await.map_err(|_| SourceError::Unread),
            None => Ok(()),
        }
    }
}

/// A source.
pub struct Source {
    name: String,
    database: Box<dyn Database>,
    tables: RwLock<BTreeMap<String, Arc<Table>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    /// Connects to a database: `postgres://user@host/database` or `sqlite:path`. `name` is the schema of its
    /// tables.
    ///
    /// # Errors
    /// Where the name needs quotes, the address is of another kind, or the database does not answer.
    pub async fn connect(name: &str, url: &str) -> Result<Arc<Self>> {
        if folded(name) != name {
            return exec_err!("source `{name}`: use letters, digits and `_`, no capitals");
        }
        let failed = |error: SourceError| exec_datafusion_err!("source `{name}`: {error}");
        let database: Box<dyn Database> = match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => {
                Box::new(postgres::Postgres::connect(url).await.map_err(failed)?)
            }
            Some(("sqlite", _)) => Box::new(sqlite::Sqlite::connect(url).await.map_err(failed)?),
            // The address is not shown: it may have a password.
            _ => return exec_err!("source `{name}`: its address must begin with postgres:// or sqlite:"),
        };
        let source = Arc::new(Self { name: name.to_owned(), database, tables: RwLock::default() });
        source.refresh().await?;
        Ok(source)
    }

    /// The schema's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> &dyn SourceDialect {
        self.database.dialect()
    }

    /// Reads the list of tables anew.
    pub async fn refresh(&self) -> Result<()> {
        let tables = self.database.tables().await;
        let tables = tables.map_err(|error| exec_datafusion_err!("source `{}`: {error}", self.name))?;
        let tables = tables.into_iter().map(|(name, table)| (name, Arc::new(table))).collect();
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = tables;
        Ok(())
    }

    fn known(&self, table: &str) -> Option<Arc<Table>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).get(table).cloned()
    }
}

/// A source's tables as a schema.
#[derive(Debug)]
pub(super) struct SourceSchema {
    source: Arc<Source>,
}

impl SourceSchema {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source }
    }
}

#[async_trait]
impl SchemaProvider for SourceSchema {
    fn table_names(&self) -> Vec<String> {
        self.source.tables.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let mut table = self.source.known(name);
        if table.is_none() {
            // It may be newer than the list.
            self.source.refresh().await?;
            table = self.source.known(name);
        }
        let provider =
            |table| Arc::new(SourceTable::new(Arc::clone(&self.source), table)) as Arc<dyn TableProvider>;
        Ok(table.map(provider))
    }

    fn register_table(
        &self,
        name: String,
        _: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        exec_err!("`{name}`: source `{}` is only read", self.source.name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.source.known(name).is_some()
    }
}
