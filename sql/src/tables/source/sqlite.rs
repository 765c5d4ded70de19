//! SQLite: its types, which are declared but not kept, its dialect, its rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr as _;

use async_trait::async_trait;
use datafusion::arrow::compute::kernels::cast_utils::Parser as _;
use datafusion::arrow::datatypes::{Date32Type, TimestampMicrosecondType};
use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Decode, Row as _, TypeInfo as _, ValueRef as _};

use super::column::{Comparability, Kind, SourceColumn, Value};
use super::filter::Parameter;
use super::scan::Statement;
use super::{COLUMNS_MAX, CONNECTIONS_MAX, Database, Rows, SourceDialect, SourceError, Table};

/// Rows that wait between SQLite's thread and ours.
const ROWS_AHEAD: usize = 1_024;

/// A SQLite database.
#[derive(Debug)]
pub(super) struct Sqlite {
    pool: SqlitePool,
}

impl Sqlite {
    pub(super) async fn connect(url: &str) -> Result<Self, SourceError> {
        let options = SqliteConnectOptions::from_str(url)?
            .read_only(true)
            .create_if_missing(false)
            .pragma("query_only", "on")
            .row_buffer_size(ROWS_AHEAD);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).connect_with(options).await?;
        Ok(Self { pool })
    }

    /// The columns of a table. Dates are declared but stored in many ways: the first one says which it is.
    async fn columns(&self, table: &str) -> Result<Vec<SourceColumn>, SourceError> {
        // Hidden columns of virtual tables are left out, generated ones are not.
        let rows =
            sqlx::query("SELECT name, type FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid")
                .bind(table)
                .fetch_all(&self.pool)
                .await?;
        let mut columns = Vec::with_capacity(rows.len());
        for row in rows {
            let (name, declared): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let (mut kind, mut comparison) = declared_type(&declared);
            if matches!(kind, Kind::Date | Kind::Timestamp) {
                let quoted = self.name(&name);
                let first =
                    format!("SELECT {quoted} FROM {} WHERE {quoted} IS NOT NULL LIMIT 1", self.name(table));
                let first = sqlx::query(AssertSqlSafe(first)).fetch_optional(&self.pool).await?;
                if let Some(first) = first {
                    (kind, comparison) = stored_type(&first, kind)?;
                }
            }
            columns.push(SourceColumn { name, kind, comparison });
        }
        Ok(columns)
    }
}

/// What a declared type says, by SQLite's rules and a few words more.
fn declared_type(declared: &str) -> (Kind, Comparability) {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["BOOL"]) {
        (Kind::Boolean, Comparability::Plain)
    } else if has(&["INT"]) {
        (Kind::Int64, Comparability::Plain)
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        (Kind::Text, Comparability::Plain)
    } else if has(&["BLOB"]) {
        (Kind::Bytes, Comparability::Plain)
    } else if has(&["REAL", "FLOA", "DOUB", "NUM", "DEC"]) {
        (Kind::Float64, Comparability::Plain)
    } else if has(&["DATETIME", "TIMESTAMP"]) {
        (Kind::Timestamp, Comparability::Unknown)
    } else if declared == "DATE" {
        (Kind::Date, Comparability::Unknown)
    } else {
        // An expression of a view, a JSON or a UUID: whatever it has, as text.
        (Kind::Text, Comparability::Unknown)
    }
}

/// The type of a column of dates whose first value is this.
fn stored_type(row: &SqliteRow, declared: Kind) -> Result<(Kind, Comparability), SourceError> {
    let raw = row.try_get_raw(0)?;
    Ok(match raw.type_info().name() {
        "INTEGER" => (Kind::Int64, Comparability::Plain),
        "REAL" => (Kind::Float64, Comparability::Plain),
        _ if value(row, 0, declared).is_ok_and(|value| matches!(value, Value::Integer(_))) => {
            (declared, Comparability::Unknown)
        }
        _ => (Kind::Text, Comparability::Unknown),
    })
}

impl SourceDialect for Sqlite {
    fn selected(&self, column: &SourceColumn) -> String {
        self.name(&column.name)
    }

    fn operand(&self, column: &SourceColumn, _: bool) -> String {
        let name = self.name(&column.name);
        // A column may be declared to know no capitals.
        if column.kind == Kind::Text { format!("{name} COLLATE BINARY") } else { name }
    }

    fn truth(&self, column: &SourceColumn) -> String {
        format!("({} <> 0)", self.name(&column.name))
    }

    fn parameter(&self, number: usize, _: Kind) -> String {
        format!("?{number}")
    }

    /// SQLite's own LIKE does not tell capitals apart; GLOB does.
    fn like(&self, pattern: &str) -> (&'static str, String) {
        let mut glob = String::with_capacity(pattern.len());
        for c in pattern.chars() {
            match c {
                '%' => glob.push('*'),
                '_' => glob.push('?'),
                '*' | '?' | '[' => glob.extend(['[', c, ']']),
                other => glob.push(other),
            }
        }
        ("GLOB", glob)
    }
}

#[async_trait]
impl Database for Sqlite {
    fn dialect(&self) -> &dyn SourceDialect {
        self
    }

    async fn tables(&self) -> Result<BTreeMap<String, Table>, SourceError> {
        let names = sqlx::query(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        )
        .fetch_all(&self.pool)
        .await?;
        let (mut tables, mut count) = (BTreeMap::new(), 0);
        for row in names {
            let name: String = row.try_get(0)?;
            // A view of tables that are gone is no table, and spoils no others.
            let Ok(columns) = self.columns(&name).await else { continue };
            count += columns.len();
            if count > COLUMNS_MAX {
                return Err(SourceError::TooManyColumns);
            }
            let quoted = self.name(&name);
            tables.insert(name, Table { quoted, columns });
        }
        Ok(tables)
    }

    async fn read(&self, statement: &Statement, mut rows: Rows) -> Result<(), SourceError> {
        // The connection cannot write at all.
        let mut transaction = self.pool.begin().await?;
        let mut query = sqlx::query(AssertSqlSafe(statement.text.clone())).persistent(false);
        for parameter in &statement.parameters {
            query = bind(query, parameter);
        }
        let mut stream = query.fetch(&mut *transaction);
        while let Some(row) = stream.try_next().await? {
            for place in 0..rows.columns.len() {
                let value = value(&row, place, rows.columns[place].kind)?;
                rows.push(place, value)?;
            }
            drop(row);
            rows.end_row().await?;
        }
        drop(stream);
        rows.send().await?;
        transaction.commit().await?;
        Ok(())
    }
}

type Db = sqlx::Sqlite;
type Query<'q> = sqlx::query::Query<'q, Db, SqliteArguments>;

fn bind<'q>(query: Query<'q>, parameter: &'q Parameter) -> Query<'q> {
    match parameter {
        Parameter::Boolean(value) => query.bind(i64::from(*value)),
        Parameter::Integer(value) => query.bind(*value),
        Parameter::Float(value) => query.bind(*value),
        Parameter::Text(value) => query.bind(value.as_str()),
        Parameter::Bytes(value) => query.bind(value.as_slice()),
    }
}

/// A cell as it is stored, read as the type that its column should have.
fn value(row: &SqliteRow, place: usize, kind: Kind) -> Result<Value<'static>, SourceError> {
    let raw = row.try_get_raw(place)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let stored = raw.type_info().name().to_owned();
    let decoded = match stored.as_str() {
        "INTEGER" => <i64 as Decode<Db>>::decode(raw).map(Value::Integer),
        "REAL" => <f64 as Decode<Db>>::decode(raw).map(Value::Float),
        "TEXT" => <String as Decode<Db>>::decode(raw).map(|text| Value::Text(text.into())),
        _ => <Vec<u8> as Decode<Db>>::decode(raw).map(|bytes| Value::Bytes(bytes.into())),
    };
    let value = decoded.map_err(sqlx::Error::Decode)?;
    Ok(match (kind, value) {
        (Kind::Boolean, Value::Integer(number @ (0 | 1))) => Value::Boolean(number == 1),
        (Kind::Float64, Value::Integer(number)) => Value::Float(number as f64),
        (Kind::Text, Value::Integer(number)) => Value::Text(number.to_string().into()),
        (Kind::Text, Value::Float(number)) => Value::Text(number.to_string().into()),
        (Kind::Text, Value::Bytes(bytes)) => match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Value::Text(text.into()),
            Err(error) => Value::Bytes(error.into_bytes().into()),
        },
        (Kind::Bytes, Value::Text(text)) => Value::Bytes(Cow::Owned(text.into_owned().into_bytes())),
        (Kind::Date, Value::Text(text)) => match Date32Type::parse(&text) {
            Some(days) => Value::Integer(days.into()),
            None => Value::Text(text),
        },
        (Kind::Timestamp, Value::Text(text)) => match TimestampMicrosecondType::parse(&text) {
            Some(micros) => Value::Integer(micros),
            None => Value::Text(text),
        },
        // A number in a column of dates has no unit.
        (Kind::Date | Kind::Timestamp, Value::Integer(number)) => Value::Text(number.to_string().into()),
        (_, value) => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_type_is_read_as_sqlite_does() {
        for (declared, kind) in [
            ("INTEGER", Kind::Int64),
            ("bigint", Kind::Int64),
            ("VARCHAR(20)", Kind::Text),
            ("DECIMAL(10,2)", Kind::Float64),
            ("BOOLEAN", Kind::Boolean),
            ("DATETIME", Kind::Timestamp),
            ("DATE", Kind::Date),
            ("", Kind::Text),
        ] {
            assert_eq!(declared_type(declared).0, kind, "{declared}");
        }
    }
}
