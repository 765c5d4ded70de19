//! Results on their way out: batches of an open query, written as rows in the formats that the client asked
//! for.

use std::sync::Arc;

use arrow_pg::datatypes::arrow_schema_to_pg_fields;
use arrow_pg::encoder::{Encoder, encode_value};
use bytes::{BufMut as _, BytesMut};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use datafusion::arrow::compute::{can_cast_types, cast};
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SendableRecordBatchStream;
use futures_util::StreamExt as _;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{FieldDescription, RowDescription};
use pgwire::types::ToSqlText;
use postgres_types::{IsNull, ToSql, Type};
use tokio::io::AsyncWrite;

use super::error::{SqlError, Stop, code};
use super::names;
use super::transport::ServerOutput;
use crate::query::Query;
use crate::session::Running;

/// Columns of a result at most, as many as Postgres allows.
const COLUMNS_MAX: usize = 1_664;

/// Columns of a result as clients see them: names, and types that the protocol has.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    names: Vec<String>,
}

impl Columns {
    /// Columns of a plan or stream; `names` are what Postgres would call them, where that is known.
    pub(super) fn new(schema: &Schema, names: Option<&[String]>) -> Result<Self, SqlError> {
        let count = schema.fields().len();
        check_count(count)?;
        let fields = schema.fields().iter().map(|field| {
            let data_type = on_the_wire(field.data_type());
            Field::clone(field).with_data_type(data_type).with_nullable(true)
        });
        let own = || schema.fields().iter().map(|field| names::shown(field.name()).to_owned()).collect();
        let names = names.filter(|names| names.len() == count).map_or_else(own, <[String]>::to_vec);
        Ok(Self { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), names })
    }

    /// Columns without names of their own.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The columns in the formats of a `Bind`: none for all text, one for all, or one each.
    pub(super) fn fields(&self, formats: &[i16]) -> Result<Arc<Vec<FieldInfo>>, SqlError> {
        let format = match formats {
            [] => Format::UnifiedText,
            [one] => Format::from(*one),
            each if each.len() == self.len() => Format::Individual(each.to_vec()),
            each => {
                let message = format!(
                    "bind message has {} result formats but query has {} columns",
                    each.len(),
                    self.len()
                );
                return Err(SqlError::new(code::PROTOCOL_VIOLATION, message));
            }
        };
        let fields = arrow_schema_to_pg_fields(&self.schema, &format, None)?;
        let fields = fields.into_iter().zip(&self.names).map(|(field, name)| {
            let size = type_size(field.datatype());
            FieldInfo::new(name.clone(), None, None, field.datatype().clone(), field.format())
                .with_type_size(size)
        });
        Ok(Arc::new(fields.collect()))
    }

    /// Types, as they are sent.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The names, in order.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// A batch with exactly these columns.
    pub(super) fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        if batch.num_columns() != self.len() {
            let message = "cached plan must not change result type";
            return Err(SqlError::new(code::FEATURE_NOT_SUPPORTED, message));
        }
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| fit(column, field.data_type()));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        if columns.is_empty() {
            return Ok(batch.clone());
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Refuses results of more columns than Postgres allows.
pub(super) fn check_count(columns: usize) -> Result<(), SqlError> {
    if columns <= COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("target lists can have at most {COLUMNS_MAX} entries, this one has {columns}");
    Err(SqlError::new(code::TOO_MANY_COLUMNS, message))
}

/// Announces the columns of the rows that follow.
pub(super) fn describe(fields: &[FieldInfo]) -> PgWireBackendMessage {
    let fields = fields.iter().map(FieldDescription::from).collect();
    PgWireBackendMessage::RowDescription(RowDescription::new(fields))
}

/// Bytes of a type's values; negative where they vary (`pg_type.typlen`).
fn type_size(data_type: &Type) -> i16 {
    match *data_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID | Type::REGCLASS | Type::REGTYPE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => 8,
        Type::INTERVAL => 16,
        _ => -1,
    }
}

/// The type in which values of a type are sent: its own, or one that the protocol has.
fn on_the_wire(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Null => DataType::Utf8,
        DataType::Float16 => DataType::Float32,
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, values) => on_the_wire(values),
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Decimal256(..)
        | DataType::Map(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => DataType::Utf8,
        other => other.clone(),
    }
}

fn fit(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, SqlError> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    if can_cast_types(column.data_type(), data_type) {
        return Ok(cast(column, data_type)?);
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let mut texts = StringBuilder::new();
    for row in 0..column.len() {
        texts.append_option((!column.is_null(row)).then(|| formatter.value(row).to_string()));
    }
    Ok(Arc::new(texts.finish()))
}

/// A result that is open: its rows are computed as they are asked for. Dropping it ends its query.
pub(super) struct Rows {
    pub(super) columns: Columns,
    /// What has computed rows so far; none where the rows are constant.
    query: Option<Arc<Query>>,
    stream: Option<SendableRecordBatchStream>,
    rest: Option<RecordBatch>,
    /// Failed calls that the client was told of.
    reported_failed: u64,
    /// Answers that are not computed that the client was told of.
    reported_unknown: u64,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Rows").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Rows {
    /// Rows of a query; `columns` are those that the client was told, if it was.
    pub(super) fn of(
        running: Running,
        columns: Option<Columns>,
        names: Option<&[String]>,
    ) -> Result<Self, SqlError> {
        let columns = match columns {
            Some(columns) => columns,
            None => Columns::new(&running.stream.schema(), names)?,
        };
        Ok(Self {
            columns,
            query: Some(running.query),
            stream: Some(running.stream),
            rest: None,
            reported_failed: 0,
            reported_unknown: 0,
        })
    }

    /// Constant rows.
    pub(super) fn constant(batch: RecordBatch) -> Result<Self, SqlError> {
        let columns = Columns::new(&batch.schema(), None)?;
        Ok(Self {
            columns,
            query: None,
            stream: None,
            rest: Some(batch),
            reported_failed: 0,
            reported_unknown: 0,
        })
    }

    /// Some rows of these, read already.
    pub(super) fn part(&mut self, batch: RecordBatch) -> Self {
        let (reported_failed, reported_unknown) = (self.reported_failed, self.reported_unknown);
        let part = Self {
            columns: self.columns.clone(),
            query: self.query.clone(),
            stream: None,
            rest: Some(batch),
            reported_failed,
            reported_unknown,
        };
        // The part tells of them.
        self.newly_failed();
        self.newly_unknown();
        part
    }

    /// The next rows, at most `rows_max` and at least one; `None` behind the last.
    pub(super) async fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>, SqlError> {
        loop {
            if let Some(batch) = self.rest.take().filter(|batch| batch.num_rows() > 0) {
                let count = batch.num_rows().min(rows_max);
                if count < batch.num_rows() {
                    self.rest = Some(batch.slice(count, batch.num_rows() - count));
                }
                return Ok(Some(batch.slice(0, count)));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            match stream.next().await {
                Some(batch) => self.rest = Some(self.columns.fit(&batch?)?),
                None => {
                    self.stream = None;
                    return Ok(None);
                }
            }
        }
    }

    /// Calls that failed since this was asked the last time.
    pub(super) fn newly_failed(&mut self) -> u64 {
        let failed = self.query.as_ref().map_or(0, |query| query.progress.failed());
        failed - std::mem::replace(&mut self.reported_failed, failed)
    }
}

impl Rows {
    /// Answers that are not computed since this was asked the last time, and why they are not.
    pub(super) fn newly_unknown(&mut self) -> (u64, String) {
        let Some(query) = &self.query else { return (0, String::new()) };
        let unknown = query.progress.unknown();
        (unknown - std::mem::replace(&mut self.reported_unknown, unknown), why_unknown(query))
    }
}

/// Why answers of a query are not computed.
pub(super) fn why_unknown(query: &Query) -> String {
    match query.limits.scan {
        Some(tool) => {
            format!("this looks like a scan that {} makes by itself (sql.cached_only_scans)", tool.name())
        }
        None => "relserve.cached_only is on".to_owned(),
    }
}

/// Writes rows as they come, at most `rows_max`, and says how many there were. The client paces it: no more
/// is computed than it takes.
pub(super) async fn send<S: AsyncWrite>(
    rows: &mut Rows,
    fields: &[FieldInfo],
    rows_max: usize,
    output: &mut ServerOutput<S>,
) -> Result<usize, Stop> {
    let mut sent = 0;
    while sent < rows_max {
        let Some(batch) = rows.next(rows_max - sent).await? else { break };
        for row in 0..batch.num_rows() {
            write_row(&batch, row, fields, &mut output.buffer)?;
            output.relieve().await?;
        }
        sent += batch.num_rows();
        // The client sees what is known; what is not known may take long.
        output.flush().await?;
        tokio::task::yield_now().await;
    }
    Ok(sent)
}

/// Writes one row; nothing of it where a value cannot be written.
fn write_row(
    batch: &RecordBatch,
    row: usize,
    fields: &[FieldInfo],
    buffer: &mut BytesMut,
) -> Result<(), SqlError> {
    let start = buffer.len();
    buffer.put_u8(b'D');
    buffer.put_i32(0);
    buffer
        .put_i16(i16::try_from(fields.len()).map_err(|_| SqlError::limit("number of columns", COLUMNS_MAX))?);
    let mut writer = Writer(buffer);
    let written = values(batch, row, fields, &mut writer);
    let length = buffer.len() - start - 1;
    match (written, i32::try_from(length)) {
        (Ok(()), Ok(length)) => {
            buffer[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        (Ok(()), Err(_)) => {
            buffer.truncate(start);
            Err(SqlError::limit("length of a row in bytes", i32::MAX as usize))
        }
        (Err(error), _) => {
            buffer.truncate(start);
            Err(error)
        }
    }
}

/// Writes the values of one row, each with its length.
pub(super) fn values(
    batch: &RecordBatch,
    row: usize,
    fields: &[FieldInfo],
    writer: &mut impl Encoder<Item = ()>,
) -> Result<(), SqlError> {
    let schema = batch.schema_ref();
    for (index, field) in fields.iter().enumerate() {
        let column = batch.column(index);
        // Not every type's encoder looks whether a value is there.
        if column.is_null(row) {
            writer.encode_field(&None::<String>, field)?;
        } else {
            encode_value(writer, column, row, schema.field(index), field)?;
        }
    }
    Ok(())
}

/// Writes values in place: their length, then their bytes.
pub(super) struct Writer<'a>(pub(super) &'a mut BytesMut);

impl Encoder for Writer<'_> {
    type Item = ();

    fn encode_field<T>(&mut self, value: &T, field: &FieldInfo) -> PgWireResult<()>
    where
        T: ToSql + ToSqlText + Sized,
    {
        let start = self.0.len();
        self.0.put_i32(-1);
        let is_null = match field.format() {
            FieldFormat::Text => value.to_sql_text(field.datatype(), self.0, field.format_options())?,
            FieldFormat::Binary => value.to_sql(field.datatype(), self.0).map_err(PgWireError::ApiError)?,
        };
        if let IsNull::No = is_null {
            let length = i32::try_from(self.0.len() - start - 4)
                .map_err(|error| PgWireError::ApiError(error.into()))?;
            self.0[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    }

    fn take_row(&mut self) {}
}
