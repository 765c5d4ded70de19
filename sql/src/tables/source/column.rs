//! Columns of a database's tables: their types, and rows of them as Arrow batches.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder,
    Float64Builder, Int16Builder, Int32Builder, Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
    TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;

/// Bytes of text after which a batch is given on, however few rows it has.
const BATCH_BYTES: usize = 4 << 20;
/// The zone of instants: Arrow knows offsets without a table of zones.
const UTC: &str = "+00:00";

/// The type of a column, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// Digits, and how many of them stand after the point.
    Decimal(u8, i8),
    Text,
    Bytes,
    Date,
    /// Without a zone.
    Timestamp,
    /// With one.
    Instant,
}

impl Kind {
    /// Its type in plans.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal(digits, scale) => DataType::Decimal128(digits, scale),
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        }
    }
}

/// How the database's own comparison relates to that of plans, which is by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparability {
    /// The same.
    Plain,
    /// After a cast to text: of a type that plans do not know.
    AsText,
    /// Equal texts are equal bytes, in an order of a language.
    Collated,
    /// Not known to be the same: never asked for.
    Unknown,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceColumn {
    /// As the database has it.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) comparison: Comparability,
}

/// Columns as a schema. All may be NULL: what a database promises, its views do not.
pub(super) fn schema(columns: &[SourceColumn]) -> SchemaRef {
    let field = |column: &SourceColumn| Field::new(&column.name, column.kind.data_type(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// A cell, as a database gives it.
#[derive(Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Boolean(bool),
    /// Also days and microseconds since 1970.
    Integer(i64),
    Float(f64),
    /// In units of the column's scale.
    Decimal(i128),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

/// Arrays that grow.
enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
}

impl ColumnBuilder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Boolean => Self::Boolean(BooleanBuilder::new()),
            Kind::Int16 => Self::Int16(Int16Builder::new()),
            Kind::Int32 => Self::Int32(Int32Builder::new()),
            Kind::Int64 => Self::Int64(Int64Builder::new()),
            Kind::Float32 => Self::Float32(Float32Builder::new()),
            Kind::Float64 => Self::Float64(Float64Builder::new()),
            Kind::Decimal(..) => Self::Decimal(Decimal128Builder::new().with_data_type(kind.data_type())),
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Bytes => Self::Bytes(BinaryBuilder::new()),
            Kind::Date => Self::Date(Date32Builder::new()),
            Kind::Timestamp | Kind::Instant => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(kind.data_type()))
            }
        }
    }

    fn null(&mut self) {
        match self {
            Self::Boolean(array) => array.append_null(),
            Self::Int16(array) => array.append_null(),
            Self::Int32(array) => array.append_null(),
            Self::Int64(array) => array.append_null(),
            Self::Float32(array) => array.append_null(),
            Self::Float64(array) => array.append_null(),
            Self::Decimal(array) => array.append_null(),
            Self::Text(array) => array.append_null(),
            Self::Bytes(array) => array.append_null(),
            Self::Date(array) => array.append_null(),
            Self::Timestamp(array) => array.append_null(),
        }
    }

    /// Adds a value; gives its bytes, or back a value of another type.
    fn push<'a>(&mut self, value: Value<'a>) -> Result<usize, Value<'a>> {
        match (self, value) {
            (array, Value::Null) => array.null(),
            (Self::Boolean(array), Value::Boolean(value)) => array.append_value(value),
            (Self::Int64(array), Value::Integer(value)) => array.append_value(value),
            (Self::Timestamp(array), Value::Integer(value)) => array.append_value(value),
            (Self::Int16(array), Value::Integer(value)) => {
                array.append_value(i16::try_from(value).map_err(|_| Value::Integer(value))?);
            }
            (Self::Int32(array), Value::Integer(value)) => {
                array.append_value(i32::try_from(value).map_err(|_| Value::Integer(value))?);
            }
            (Self::Date(array), Value::Integer(value)) => {
                array.append_value(i32::try_from(value).map_err(|_| Value::Integer(value))?);
            }
            // Written as a `real`, which has fewer digits.
            (Self::Float32(array), Value::Float(value)) => array.append_value(value as f32),
            (Self::Float64(array), Value::Float(value)) => array.append_value(value),
            (Self::Decimal(array), Value::Decimal(value)) => array.append_value(value),
            (Self::Text(array), Value::Text(value)) => {
                array.append_value(&value);
                return Ok(value.len());
            }
            (Self::Bytes(array), Value::Bytes(value)) => {
                array.append_value(&value);
                return Ok(value.len());
            }
            (_, other) => return Err(other),
        }
        Ok(16)
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(array) => ArrayBuilder::finish(array),
            Self::Int16(array) => ArrayBuilder::finish(array),
            Self::Int32(array) => ArrayBuilder::finish(array),
            Self::Int64(array) => ArrayBuilder::finish(array),
            Self::Float32(array) => ArrayBuilder::finish(array),
            Self::Float64(array) => ArrayBuilder::finish(array),
            Self::Decimal(array) => ArrayBuilder::finish(array),
            Self::Text(array) => ArrayBuilder::finish(array),
            Self::Bytes(array) => ArrayBuilder::finish(array),
            Self::Date(array) => ArrayBuilder::finish(array),
            Self::Timestamp(array) => ArrayBuilder::finish(array),
        }
    }
}

/// A batch that grows row by row.
pub(super) struct BatchBuilder {
    columns: Arc<[SourceColumn]>,
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    bytes: usize,
    rows_max: usize,
}

impl BatchBuilder {
    pub(super) fn new(columns: Arc<[SourceColumn]>, schema: SchemaRef, rows_max: usize) -> Self {
        let builders = columns.iter().map(|column| ColumnBuilder::new(column.kind)).collect();
        Self { columns, schema, builders, rows: 0, bytes: 0, rows_max }
    }

    pub(super) fn columns(&self) -> Arc<[SourceColumn]> {
        Arc::clone(&self.columns)
    }

    /// Adds a row's cell; they come in the order of the columns.
    pub(super) fn push(&mut self, place: usize, value: Value) -> Result<(), String> {
        match self.builders[place].push(value) {
            Ok(bytes) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(value) => {
                let SourceColumn { name, kind, .. } = &self.columns[place];
                let shown: String = format!("{value:?}").chars().take(80).collect();
                Err(format!("column `{name}` is of type {}, a row of it has {shown}", kind.data_type()))
            }
        }
    }

    /// Ends a row. True where the batch should be given on.
    pub(super) fn end_row(&mut self) -> bool {
        self.rows += 1;
        self.rows >= self.rows_max || self.bytes >= BATCH_BYTES
    }

    /// The batch so far, unless it is empty.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options).map(Some)
    }
}
