//! Tables of databases, read through `sqlx` as they come.

use std::str::FromStr as _;

use futures_util::StreamExt as _;
use serde_json::{Number, Value};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column as _, Executor as _, PgPool, Row as _, SqlSafeStr as _, SqlitePool, Statement as _,
    TypeInfo as _, ValueRef as _,
};

use super::jsonl::Pairs;
use super::{Failure, InputRow, Sender, TableArgs};

/// A table, or what a query gives.
pub(super) struct SqlTable {
    pool: Pool,
    /// The address without its password.
    shown: String,
    query: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: u64,
}

/// Where it is.
#[derive(Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Whether an input is a database.
pub(super) fn is_database(input: &str) -> bool {
    ["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| input.starts_with(scheme))
}

/// An address without what stands between its scheme and its host: a name and a password.
fn shown(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => address.to_owned(),
    }
}

/// A name inside double quotes.
fn quoted(name: &str) -> String {
    name.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
}

/// What to ask the database.
fn query_of(options: &TableArgs, shown: &str) -> Result<String, Failure> {
    match (&options.table, &options.query, &options.id) {
        (Some(table), _, Some(id)) => Ok(format!("SELECT * FROM {} ORDER BY {}", quoted(table), quoted(id))),
        (Some(_), _, None) => {
            Err("--table: needs --id, a column of unique values in whose order the rows are read".into())
        }
        (None, Some(query), _) => Ok(query.trim().trim_end_matches(';').to_owned()),
        (None, None, _) => Err(format!("{shown}: needs --table or --query").into()),
    }
}

/// Postgres has more types than can be read here; it writes each of them as JSON itself.
fn as_json(query: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("SELECT CAST(row_to_json(t) AS TEXT) FROM ({query}) AS t"))
}

impl Pool {
    /// Connects; reads alone.
    async fn open(address: &str) -> Result<Self, sqlx::Error> {
        if address.starts_with("sqlite:") {
            // A typing error must not leave an empty database behind.
            let options = SqliteConnectOptions::from_str(address)?.read_only(true);
            return Ok(Self::Sqlite(SqlitePool::connect_with(options).await?));
        }
        Ok(Self::Postgres(PgPool::connect(address).await?))
    }

    /// The names of a query's columns; none where that cannot be known, for want of a row.
    async fn columns(&self, query: &str) -> Result<Vec<String>, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => {
                let prepared = pool.prepare(AssertSqlSafe(query.to_owned()).into_sql_str()).await?;
                Ok(prepared.columns().iter().map(|column| column.name().to_owned()).collect())
            }
            Self::Postgres(pool) => {
                let first: Option<(String,)> = sqlx::query_as(as_json(query)).fetch_optional(pool).await?;
                let pairs = first.and_then(|(text,)| serde_json::from_str::<Pairs>(&text).ok());
                Ok(pairs
                    .map_or_else(Vec::new, |Pairs(pairs)| pairs.into_iter().map(|(name, _)| name).collect()))
            }
        }
    }

    async fn count(&self, query: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM ({query}) AS counted"));
        let (rows,): (i64,) = match self {
            Self::Sqlite(pool) => sqlx::query_as(sql).fetch_one(pool).await?,
            Self::Postgres(pool) => sqlx::query_as(sql).fetch_one(pool).await?,
        };
        Ok(u64::try_from(rows).unwrap_or(0))
    }
}

impl SqlTable {
    /// Connects, and asks for the columns and the number of rows.
    pub(super) async fn open(options: &TableArgs) -> Result<Self, Failure> {
        let shown = shown(&options.input);
        let query = query_of(options, &shown)?;
        let cannot = |error: sqlx::Error| format!("{shown}: {error}");
        let pool = Pool::open(&options.input).await.map_err(cannot)?;
        let columns = pool.columns(&query).await.map_err(cannot)?;
        if columns.is_empty() {
            return Err(format!("{shown}: the table has no rows").into());
        }
        let rows = pool.count(&query).await.map_err(cannot)?;
        Ok(Self { pool, shown, query, columns, rows })
    }

    /// What to call it in errors.
    pub(super) fn name(&self) -> String {
        self.shown.clone()
    }

    /// What tells it from another.
    pub(super) fn identity(&self) -> String {
        format!("{}: {}", self.shown, self.query)
    }

    /// Sends all rows.
    pub(super) async fn send(self, sender: &Sender) {
        let Self { pool, shown, query, columns, .. } = self;
        let mut rows = match &pool {
            Pool::Sqlite(pool) => {
                let rows = sqlx::query(AssertSqlSafe(query)).fetch(pool);
                rows.map(|row| row.map(|row| from_row(&row))).boxed()
            }
            Pool::Postgres(pool) => {
                let rows = sqlx::query_as::<_, (String,)>(as_json(&query)).fetch(pool);
                rows.map(|row| row.map(|(text,)| from_json(&text, columns.len()))).boxed()
            }
        };
        while let Some(row) = rows.next().await {
            let item = row.map_err(|error| format!("{shown}: {error}"));
            let is_last = item.is_err();
            // Nobody takes rows any more: the job has stopped.
            if sender.send(item).await.is_err() || is_last {
                return;
            }
        }
    }
}

/// A row that the database wrote as JSON.
fn from_json(text: &str, columns: usize) -> InputRow {
    match serde_json::from_str::<Pairs>(text) {
        Ok(Pairs(pairs)) => {
            let mut cells: Vec<Value> = pairs.into_iter().map(|(_, cell)| cell).collect();
            cells.resize(columns, Value::Null);
            InputRow { cells, bad: None, position: 0 }
        }
        Err(error) => {
            InputRow { cells: vec![Value::Null; columns], bad: Some(error.to_string()), position: 0 }
        }
    }
}

/// A row of SQLite, each cell of which has a type of its own.
fn from_row(row: &SqliteRow) -> InputRow {
    let mut bad = None;
    let cells = (0..row.len()).map(|place| {
        cell(row, place).unwrap_or_else(|reason| {
            bad.get_or_insert(format!("`{}` {reason}", row.column(place).name()));
            Value::Null
        })
    });
    let cells = cells.collect();
    InputRow { cells, bad, position: 0 }
}

fn cell(row: &SqliteRow, place: usize) -> Result<Value, String> {
    let wrong = |error: sqlx::Error| format!("cannot be read: {error}");
    let value = row.try_get_raw(place).map_err(wrong)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    match value.type_info().name() {
        "INTEGER" | "BOOLEAN" => row.try_get_unchecked::<i64, _>(place).map(Value::from).map_err(wrong),
        "REAL" | "NUMERIC" => {
            let number = row.try_get_unchecked::<f64, _>(place).map_err(wrong)?;
            Number::from_f64(number).map(Value::Number).ok_or_else(|| format!("is {number}"))
        }
        "BLOB" => Err("is of type BLOB, which is no text".into()),
        _ => row.try_get_unchecked::<String, _>(place).map(Value::String).map_err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password_and_names_are_quoted() {
        assert_eq!(shown("postgres://me:secret@host/shop"), "postgres://host/shop");
        assert_eq!(shown("sqlite:shop.db"), "sqlite:shop.db");
        assert_eq!(quoted("public.odd \" name"), "\"public\".\"odd \"\" name\"");
    }
}
