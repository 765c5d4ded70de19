//! Results as bytes: JSON lines, CSV or Arrow's stream format, batch by batch.

use std::str::FromStr;
use std::sync::Arc;

use base::spreadsheet::marked;
use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, LargeStringArray, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::common::Result;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultFormat {
    /// One JSON object a row, one a line.
    #[default]
    JsonLines,
    /// A line of names, then the rows (RFC 4180). Texts that a spreadsheet would compute are marked as text.
    Csv,
    /// The same with all texts as they are.
    RawCsv,
    /// Arrow's IPC stream.
    Arrow,
}

impl FromStr for ResultFormat {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "jsonl" => Ok(Self::JsonLines),
            "csv" => Ok(Self::Csv),
            "csv_raw" => Ok(Self::RawCsv),
            "arrow" => Ok(Self::Arrow),
            _ => Err("must be jsonl, csv, csv_raw or arrow"),
        }
    }
}

/// Writes a result piece by piece.
pub enum ResultWriter {
    JsonLines,
    Csv {
        /// Whether texts are written as they are.
        is_raw: bool,
        /// Whether the names are still to be written.
        has_names: bool,
    },
    Arrow(Box<StreamWriter<Vec<u8>>>),
}

impl ResultWriter {
    /// A writer of rows of this schema.
    pub fn new(format: ResultFormat, schema: &Schema) -> Result<Self> {
        Ok(match format {
            ResultFormat::JsonLines => Self::JsonLines,
            ResultFormat::Csv => Self::Csv { is_raw: false, has_names: true },
            ResultFormat::RawCsv => Self::Csv { is_raw: true, has_names: true },
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
            Self::Csv { is_raw, has_names } => {
                let mut writer = csv::WriterBuilder::new().with_header(*has_names).build(&mut bytes);
                match is_raw {
                    true => writer.write(batch)?,
                    false => writer.write(&with_marks(batch)?)?,
                }
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
            Self::JsonLines | Self::Csv { has_names: false, .. } => Ok(Vec::new()),
            // No row came: the names are all there is.
            Self::Csv { has_names: true, .. } => {
                self.batch(&RecordBatch::new_empty(Arc::new(schema.clone())))
            }
            Self::Arrow(writer) => {
                writer.finish()?;
                Ok(std::mem::take(writer.get_mut()))
            }
        }
    }
}

/// Rows whose texts, names of columns among them, no spreadsheet computes: whoever wrote a table may have had a part in
/// both.
fn with_marks(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let column = if is_text(column.data_type()) { marked_texts(column)? } else { Arc::clone(column) };
        fields.push(Field::new(marked(field.name()), column.data_type().clone(), true));
        columns.push(column);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)?)
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

fn marked_texts(column: &ArrayRef) -> Result<ArrayRef> {
    let plain = cast(column, &DataType::LargeUtf8)?;
    let texts = plain.as_string::<i64>().iter();
    Ok(Arc::new(texts.map(|text| text.map(marked)).collect::<LargeStringArray>()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DictionaryArray, Int64Array, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    /// Two rows of every kind of text, and of numbers.
    fn batch() -> RecordBatch {
        let texts = [Some("=HYPERLINK(\"http://x\")"), None];
        let columns: [(&str, ArrayRef); 5] = [
            ("=name", Arc::new(StringArray::from(texts.to_vec()))),
            ("large", Arc::new(LargeStringArray::from(texts.to_vec()))),
            ("view", Arc::new(StringViewArray::from(texts.to_vec()))),
            ("words", Arc::new(DictionaryArray::<Int32Type>::from_iter(texts))),
            ("number", Arc::new(Int64Array::from(vec![-5, 7]))),
        ];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    }

    fn written(format: ResultFormat, batch: &RecordBatch) -> String {
        let mut writer = ResultWriter::new(format, &batch.schema()).expect("it begins");
        let mut bytes = writer.batch(batch).expect("rows");
        bytes.extend(writer.end(&batch.schema()).expect("the end"));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn csv_has_no_text_that_a_spreadsheet_computes_unless_it_is_asked_for() {
        let batch = batch();
        let cell = |mark: &str| format!("\"{mark}=HYPERLINK(\"\"http://x\"\")\"");
        let expected = |mark: &str| {
            let texts = [(); 4].map(|()| cell(mark)).join(",");
            format!("{mark}=name,large,view,words,number\n{texts},-5\n,,,,7\n")
        };
        assert_eq!(written(ResultFormat::Csv, &batch), expected("'"));
        assert_eq!(written(ResultFormat::RawCsv, &batch), expected(""));
        let empty = RecordBatch::new_empty(batch.schema());
        assert_eq!(written(ResultFormat::Csv, &empty), "'=name,large,view,words,number\n");
        assert!(
            written(ResultFormat::JsonLines, &batch).contains("\"=name\":\"=HYPERLINK"),
            "a string is one"
        );
    }
}
