//! Postgres: its types, its dialect, its rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr as _;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, ValueRef as _};

use super::column::{Comparability, Kind, SourceColumn, Value};
use super::filter::Parameter;
use super::numeric::decimal;
use super::scan::Statement;
use super::{COLUMNS_MAX, CONNECTIONS_MAX, Database, Rows, SourceDialect, SourceError, Table};

/// Days, and microseconds, from 1970 to 2000, where Postgres counts from.
const DAYS_TO_2000: i64 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 * 86_400_000_000;
/// A `numeric(p, s)` says both in one number, above this one.
const MODIFIER_BASE: i32 = 4;
/// Digits of a decimal number in a plan.
const DIGITS_MAX: i32 = 38;

/// Tables that may be read, with their columns. One that is not found without its schema's name has it.
const TABLES: &str = "\
SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::text \
    ELSE n.nspname || '.' || c.relname END, \
  pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), \
  a.attname::text, a.atttypid::bigint, a.atttypmod, coalesce(l.collisdeterministic, true) \
FROM pg_catalog.pg_attribute a \
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped \
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
  AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT') \
ORDER BY n.nspname, c.relname, a.attnum";

/// A Postgres database.
#[derive(Debug)]
pub(super) struct Postgres {
    pool: PgPool,
}

impl Postgres {
    pub(super) async fn connect(url: &str) -> Result<Self, SourceError> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("relserve")
            .options([("default_transaction_read_only", "on")]);
        // A pool takes a refused connection for a database that starts up, and tries on.
        options.connect().await?.close().await?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).connect_lazy_with(options);
        Ok(Self { pool })
    }
}

/// A column of this type.
fn column(name: String, oid: i64, modifier: i32, is_deterministic: bool) -> SourceColumn {
    let text = if is_deterministic { Comparability::Collated } else { Comparability::AsText };
    let (kind, comparison) = match oid {
        16 => (Kind::Boolean, Comparability::Plain),
        17 => (Kind::Bytes, Comparability::Plain),
        20 => (Kind::Int64, Comparability::Plain),
        21 => (Kind::Int16, Comparability::Plain),
        23 => (Kind::Int32, Comparability::Plain),
        25 | 1043 => (Kind::Text, text),
        700 => (Kind::Float32, Comparability::Plain),
        701 => (Kind::Float64, Comparability::Plain),
        1082 => (Kind::Date, Comparability::Plain),
        1114 => (Kind::Timestamp, Comparability::Plain),
        1184 => (Kind::Instant, Comparability::Plain),
        1700 => match decimal_kind(modifier) {
            Some(kind) => (kind, Comparability::Plain),
            None => (Kind::Text, Comparability::AsText),
        },
        _ => (Kind::Text, Comparability::AsText),
    };
    SourceColumn { name, kind, comparison }
}

/// The type of a `numeric` with a bound that plans can keep.
fn decimal_kind(modifier: i32) -> Option<Kind> {
    let bounds = modifier.checked_sub(MODIFIER_BASE).filter(|bounds| *bounds >= 0)?;
    let (digits, scale) = (bounds >> 16, bounds & 0xFFFF);
    if !(1..=DIGITS_MAX).contains(&digits) || scale > digits {
        return None;
    }
    Some(Kind::Decimal(u8::try_from(digits).ok()?, i8::try_from(scale).ok()?))
}

impl SourceDialect for Postgres {
    fn selected(&self, column: &SourceColumn) -> String {
        let name = self.name(&column.name);
        if column.comparison == Comparability::AsText { format!("{name}::text") } else { name }
    }

    fn operand(&self, column: &SourceColumn, ordered: bool) -> String {
        let name = self.name(&column.name);
        match column.comparison {
            Comparability::AsText => format!("{name}::text COLLATE \"C\""),
            Comparability::Collated if ordered => format!("{name} COLLATE \"C\""),
            _ => name,
        }
    }

    fn truth(&self, column: &SourceColumn) -> String {
        self.name(&column.name)
    }

    fn parameter(&self, number: usize, kind: Kind) -> String {
        let cast = match kind {
            Kind::Boolean => "boolean",
            Kind::Int16 | Kind::Int32 | Kind::Int64 => "bigint",
            Kind::Float32 | Kind::Float64 => "double precision",
            Kind::Decimal(..) => "text::numeric",
            Kind::Text => "text",
            Kind::Bytes => "bytea",
            Kind::Date => "text::date",
            Kind::Timestamp => "text::timestamp",
            Kind::Instant => "text::timestamptz",
        };
        format!("${number}::{cast}")
    }

    fn like(&self, pattern: &str) -> (&'static str, String) {
        ("LIKE", pattern.to_owned())
    }
}

#[async_trait]
impl Database for Postgres {
    fn dialect(&self) -> &dyn SourceDialect {
        self
    }

    async fn tables(&self) -> Result<BTreeMap<String, Table>, SourceError> {
        let mut tables: BTreeMap<String, Table> = BTreeMap::new();
        let mut rows = sqlx::query(TABLES).fetch(&self.pool);
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            count += 1;
            if count > COLUMNS_MAX {
                return Err(SourceError::TooManyColumns);
            }
            let (name, quoted): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let column = column(row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
            let table = tables.entry(name).or_insert_with(|| Table { quoted, columns: Vec::new() });
            table.columns.push(column);
        }
        Ok(tables)
    }

    async fn read(&self, statement: &Statement, mut rows: Rows) -> Result<(), SourceError> {
        let mut unread = Unread(Some(self.pool.acquire().await?));
        let Some(connection) = unread.0.as_deref_mut() else { return Ok(()) };
        sqlx::raw_sql("BEGIN READ ONLY").execute(&mut *connection).await?;
        // A server that knows this setting then sees within a second that nobody waits for the rows.
        sqlx::query(
            "SELECT set_config(name, '1000', true) FROM pg_catalog.pg_settings \
             WHERE name = 'client_connection_check_interval'",
        )
        .execute(&mut *connection)
        .await?;
        let mut query = sqlx::query(AssertSqlSafe(statement.text.clone())).persistent(false);
        for parameter in &statement.parameters {
            query = bind(query, parameter);
        }
        let mut stream = query.fetch(&mut *connection);
        while let Some(row) = stream.try_next().await? {
            for place in 0..rows.columns.len() {
                let kind = rows.columns[place].kind;
                let value = value(&row, place, kind).map_err(|error| match error {
                    SourceError::Value(what) => {
                        SourceError::Value(format!("column `{}`: {what}", rows.columns[place].name))
                    }
                    other => other,
                })?;
                rows.push(place, value)?;
            }
            rows.end_row().await?;
        }
        drop(stream);
        rows.send().await?;
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        unread.0.take();
        Ok(())
    }
}

/// A connection with rows that nobody has read. It is closed when it is dropped: the next user of it would
/// have to read them all.
struct Unread(Option<PoolConnection<sqlx::Postgres>>);

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, PgArguments>;

fn bind<'q>(query: Query<'q>, parameter: &'q Parameter) -> Query<'q> {
    match parameter {
        Parameter::Boolean(value) => query.bind(*value),
        Parameter::Integer(value) => query.bind(*value),
        Parameter::Float(value) => query.bind(*value),
        Parameter::Text(value) => query.bind(value.as_str()),
        Parameter::Bytes(value) => query.bind(value.as_slice()),
    }
}

/// A cell, which comes in the binary form of its type.
fn value(row: &PgRow, place: usize, kind: Kind) -> Result<Value<'_>, SourceError> {
    let raw = row.try_get_raw(place)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let bytes = raw.as_bytes().map_err(sqlx::Error::Decode)?;
    let integer = || match bytes.len() {
        2 => bytes.try_into().ok().map(|bytes| i64::from(i16::from_be_bytes(bytes))),
        4 => bytes.try_into().ok().map(|bytes| i64::from(i32::from_be_bytes(bytes))),
        8 => bytes.try_into().ok().map(i64::from_be_bytes),
        _ => None,
    };
    let read = match kind {
        Kind::Boolean => bytes.first().map(|byte| Value::Boolean(*byte != 0)),
        Kind::Int16 | Kind::Int32 | Kind::Int64 => integer().map(Value::Integer),
        Kind::Float32 => bytes.try_into().ok().map(|bytes| Value::Float(f32::from_be_bytes(bytes).into())),
        Kind::Float64 => bytes.try_into().ok().map(|bytes| Value::Float(f64::from_be_bytes(bytes))),
        Kind::Decimal(_, scale) => decimal(bytes, scale).map(Value::Decimal),
        Kind::Text => std::str::from_utf8(bytes).ok().map(|text| Value::Text(Cow::Borrowed(text))),
        Kind::Bytes => Some(Value::Bytes(Cow::Borrowed(bytes))),
        Kind::Date => integer()
            .filter(|days| !is_infinite(*days, i32::MIN.into(), i32::MAX.into()))
            .map(|days| Value::Integer(days + DAYS_TO_2000)),
        Kind::Timestamp | Kind::Instant => integer()
            .filter(|micros| !is_infinite(*micros, i64::MIN, i64::MAX))
            .and_then(|micros| micros.checked_add(MICROS_TO_2000))
            .map(Value::Integer),
    };
    read.ok_or_else(|| {
        SourceError::Value(format!(
            "a row has a value that {} cannot have, such as infinity; a view of the database can \
             give it as text",
            kind.data_type()
        ))
    })
}

fn is_infinite(value: i64, least: i64, most: i64) -> bool {
    value == least || value == most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_is_a_decimal_where_its_digits_fit_and_a_text_elsewhere() {
        let modifier = |digits: i32, scale: i32| ((digits << 16) | scale) + MODIFIER_BASE;
        assert_eq!(decimal_kind(modifier(10, 2)), Some(Kind::Decimal(10, 2)));
        for other in [-1, modifier(39, 2), modifier(2, 3), modifier(5, 0x07FF)] {
            assert_eq!(decimal_kind(other), None, "{other}");
            assert_eq!(column("n".into(), 1700, other, true).kind, Kind::Text);
        }
    }
}
