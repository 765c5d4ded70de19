//! Tables in Parquet files: columns with types, read row by row.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use super::{Failure, InputRow, Sender};

/// A table.
pub(super) struct ColumnarTable {
    name: String,
    reader: SerializedFileReader<File>,
    pub(super) columns: Vec<String>,
    pub(super) rows: u64,
}

impl ColumnarTable {
    /// Opens a file and reads what it says of itself.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let reader = SerializedFileReader::new(file).map_err(|error| format!("{name}: {error}"))?;
        let metadata = reader.metadata().file_metadata();
        let columns = metadata.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
        let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
        Ok(Self { name, reader, columns, rows })
    }

    /// Sends all rows.
    pub(super) fn send(self, sender: &Sender) {
        let Self { name, reader, columns, .. } = self;
        for (number, row) in (1_u64..).zip(reader) {
            let item = match row {
                Ok(row) => Ok(cells(row.into_columns(), columns.len())),
                Err(error) => Err(format!("{name}: row {number}: {error}")),
            };
            let is_last = item.is_err();
            // Nobody takes rows any more: the job has stopped.
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    }
}

/// A row's cells as JSON has them: numbers, truth values and texts; dates and the like as texts.
fn cells(columns: Vec<(String, Field)>, count: usize) -> InputRow {
    let mut bad = None;
    let mut cells: Vec<Value> = Vec::with_capacity(count);
    for (name, field) in columns {
        cells.push(match field {
            // Text that its writer did not mark as such.
            Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
                Ok(text) => text.into(),
                Err(_) => {
                    bad.get_or_insert(format!("`{name}` is neither text nor a number"));
                    Value::Null
                }
            },
            other => other.to_json_value(),
        });
    }
    cells.resize(count, Value::Null);
    InputRow { cells, bad, position: 0 }
}
