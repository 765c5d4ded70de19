//! The table as a Parquet file. A column has the type of all its cells, or else is text.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::{Layout, text};
use crate::jobs::Failure;
use crate::jobs::journal::JournalRecord;

/// Rows, and about how many bytes, of a group: it is held in memory while it is written.
const GROUP: (usize, usize) = (10_000, 64 << 20);

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    /// No cell has said anything yet.
    Any,
    Bool,
    Int,
    Double,
    Text,
}

impl ColumnKind {
    /// The type that also holds this cell.
    fn with(self, cell: &Value) -> Self {
        let own = match cell {
            Value::Null => return self,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.as_i64().is_some() => Self::Int,
            Value::Number(_) => Self::Double,
            Value::String(_) | Value::Array(_) | Value::Object(_) => Self::Text,
        };
        match (self, own) {
            (Self::Any, own) => own,
            (kind, own) if kind == own => kind,
            (Self::Int, Self::Double) | (Self::Double, Self::Int) => Self::Double,
            _ => Self::Text,
        }
    }

    /// The column's place in the schema.
    fn field(self, name: &str) -> Result<TypePtr, Failure> {
        let (physical, logical) = match self {
            Self::Bool => (Physical::BOOLEAN, None),
            Self::Int => (Physical::INT64, None),
            Self::Double => (Physical::DOUBLE, None),
            Self::Any | Self::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        Ok(Arc::new(field.with_logical_type(logical).build()?))
    }
}

/// A record's cells, in the order of the output's columns.
fn cells(record: JournalRecord) -> Vec<Value> {
    let mut cells = Vec::with_capacity(record.cells.len() + 2);
    cells.push(record.row.into());
    cells.extend(record.cells);
    cells.push(record.text.map_or(Value::Null, Value::String));
    cells
}

/// Writes the table. The records are gone through twice: for the types of the columns, and to write them.
pub(super) fn write<R: Iterator<Item = Result<JournalRecord, Failure>>>(
    file: &mut (impl Write + Send),
    layout: &Layout,
    records: impl Fn() -> R,
) -> Result<(), Failure> {
    let names: Vec<&String> = [&layout.row].into_iter().chain(&layout.kept).chain([&layout.output]).collect();
    let mut kinds = vec![ColumnKind::Any; names.len()];
    for record in records() {
        for (kind, cell) in kinds.iter_mut().zip(cells(record?)) {
            *kind = kind.with(&cell);
        }
    }
    let fields: Result<Vec<TypePtr>, Failure> =
        kinds.iter().zip(&names).map(|(kind, name)| kind.field(name)).collect();
    let schema = Type::group_type_builder("table").with_fields(fields?).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let (mut group, mut bytes) = (Vec::new(), 0);
    for record in records() {
        let row = cells(record?);
        bytes += row.iter().map(|cell| cell.as_str().map_or(size_of::<Value>(), str::len)).sum::<usize>();
        group.push(row);
        if group.len() >= GROUP.0 || bytes >= GROUP.1 {
            write_group(&mut writer, &kinds, &group)?;
            group.clear();
            bytes = 0;
        }
    }
    if !group.is_empty() {
        write_group(&mut writer, &kinds, &group)?;
    }
    writer.close()?;
    Ok(())
}

fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    kinds: &[ColumnKind],
    rows: &[Vec<Value>],
) -> Result<(), Failure> {
    let mut group = writer.next_row_group()?;
    for (place, kind) in kinds.iter().enumerate() {
        let Some(mut column) = group.next_column()? else { break };
        let cells = rows.iter().map(|row| &row[place]);
        write_column(&mut column, *kind, cells)?;
        column.close()?;
    }
    group.close()?;
    Ok(())
}

fn write_column<'a>(
    column: &mut SerializedColumnWriter<'_>,
    kind: ColumnKind,
    cells: impl Iterator<Item = &'a Value> + Clone,
) -> Result<(), Failure> {
    // 1 where there is a value, 0 where there is none.
    let levels: Vec<i16> = cells.clone().map(|cell| i16::from(!cell.is_null())).collect();
    let cells = cells.filter(|cell| !cell.is_null());
    match kind {
        ColumnKind::Bool => {
            let values: Vec<bool> = cells.filter_map(Value::as_bool).collect();
            column.typed::<BoolType>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnKind::Int => {
            let values: Vec<i64> = cells.filter_map(Value::as_i64).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnKind::Double => {
            let values: Vec<f64> = cells.filter_map(Value::as_f64).collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnKind::Any | ColumnKind::Text => {
            let values: Vec<ByteArray> = cells.map(|cell| ByteArray::from(text(cell).into_bytes())).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
    }
    Ok(())
}
