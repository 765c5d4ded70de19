//! Results as bytes: JSON lines, CSV or Arrow's stream format, batch by batch.

use std::str::FromStr;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::common::Result;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultFormat {
    /// One JSON object a row, one a line.
    #[default]
    JsonLines,
    /// A line of names, then the rows (RFC 4180).
    Csv,
    /// Arrow's IPC stream.
    Arrow,
}

impl FromStr for ResultFormat {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "jsonl" => Ok(Self::JsonLines),
            "csv" => Ok(Self::Csv),
            "arrow" => Ok(Self::Arrow),
            _ => Err("must be jsonl, csv or arrow"),
        }
    }
}

/// Writes a result piece by piece.
pub enum ResultWriter {
    JsonLines,
    /// Whether the names are still to be written.
    Csv(bool),
    Arrow(Box<StreamWriter<Vec<u8>>>),
}

impl ResultWriter {
    /// A writer of rows of this schema.
    pub fn new(format: ResultFormat, schema: &Schema) -> Result<Self> {
        Ok(match format {
            ResultFormat::JsonLines => Self::JsonLines,
            ResultFormat::Csv => Self::Csv(true),
            ResultFormat::Arrow => Self::Arrow(Box::new(StreamWriter::try_new(Vec::new(), schema)?)),
        })
    }

    /// The bytes of some rows.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::JsonLines => {
                let mut writer = LineDelimitedWriter::new(&mut bytes);
                writer.write(batch)?;
                writer.finish()?;
            }
            Self::Csv(has_names) => {
                let mut writer = csv::WriterBuilder::new().with_header(*has_names).build(&mut bytes);
                writer.write(batch)?;
                drop(writer);
                *has_names = false;
            }
            Self::Arrow(writer) => {
                writer.write(batch)?;
                bytes = std::mem::take(writer.get_mut());
            }
        }
        Ok(bytes)
    }

    /// The bytes that end the result.
    pub fn end(&mut self, schema: &Schema) -> Result<Vec<u8>> {
        match self {
            Self::JsonLines | Self::Csv(false) => Ok(Vec::new()),
            // No row came: the names are all there is.
            Self::Csv(true) => self.batch(&RecordBatch::new_empty(std::sync::Arc::new(schema.clone()))),
            Self::Arrow(writer) => {
                writer.finish()?;
                Ok(std::mem::take(writer.get_mut()))
            }
        }
    }
}
