//! Formats of files, and how DataFusion reads them.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::config::TableOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use futures_util::Stream;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Rows from which the types of a text file's columns are inferred. Many: a type that a later row breaks
/// fails the query in its middle.
const INFER_ROWS_MAX: usize = 1_000_000;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableFormat {
    /// Values between commas, with a line of names first.
    Csv,
    /// The same with tabs.
    Tsv,
    Parquet,
    /// One JSON object a line.
    JsonLines,
}

impl TableFormat {
    /// The format that a file's name says, and the name without it.
    pub fn of(file_name: &str) -> Option<(Self, &str)> {
        let (stem, extension) = file_name.rsplit_once('.')?;
        let format = match extension.to_ascii_lowercase().as_str() {
            "csv" => Self::Csv,
            "tsv" => Self::Tsv,
            "parquet" => Self::Parquet,
            "jsonl" | "ndjson" => Self::JsonLines,
            _ => return None,
        };
        (!stem.is_empty()).then_some((format, stem))
    }

    /// What stands between the values of a text file.
    pub(super) fn delimiter(self) -> Option<u8> {
        match self {
            Self::Csv => Some(b','),
            Self::Tsv => Some(b'\t'),
            Self::JsonLines | Self::Parquet => None,
        }
    }

    /// DataFusion's reader.
    pub(super) fn reader(self, options: &TableOptions) -> Arc<dyn FileFormat> {
        // Texts of reviews and mails have lines; a file with such values cannot be split between readers.
        let separated = |delimiter| {
            CsvFormat::default()
                .with_options(options.csv.clone())
                .with_has_header(true)
                .with_newlines_in_values(true)
                .with_schema_infer_max_rec(INFER_ROWS_MAX)
                .with_delimiter(delimiter)
        };
        match self {
            Self::Csv => Arc::new(separated(b',')),
            Self::Tsv => Arc::new(separated(b'\t')),
            Self::JsonLines => Arc::new(
                JsonFormat::default()
                    .with_options(options.json.clone())
                    .with_schema_infer_max_rec(INFER_ROWS_MAX),
            ),
            Self::Parquet => {
                let mut options = options.parquet.clone();
                // A row's long texts are read only where its short columns pass the filter.
                options.global.pushdown_filters = true;
                options.global.reorder_filters = true;
                Arc::new(ParquetFormat::default().with_options(options).with_force_view_types(false))
            }
        }
    }
}

/// The columns of a text file with a line of names, and their types.
///
/// DataFusion would cut the file where lines end, and takes `\\` for an escape there, which it is not in CSV:
/// a text that ends with one, before lines in quotes, would break rows apart.
pub(super) async fn separated_schema(
    delimiter: u8,
    file: impl Stream<Item = std::io::Result<Bytes>> + Send + Unpin + 'static,
) -> Result<Schema> {
    let file = SyncIoBridge::new(StreamReader::new(file));
    let inferred = tokio::task::spawn_blocking(move || {
        let format = Format::default().with_header(true).with_delimiter(delimiter);
        format.infer_schema(file, Some(INFER_ROWS_MAX))
    });
    let (schema, _) = inferred.await.map_err(|error| exec_datafusion_err!("{error}"))??;
    Ok(schema)
}

/// The same columns in types that clients of Postgres have a word for: text is `Utf8`, bytes are `Binary`.
pub(super) fn plain(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new(fields))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let data_type = plain_type(field.data_type());
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::List(item) | DataType::LargeList(item) => DataType::List(plain_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ending_of_a_name_says_the_format() {
        assert_eq!(TableFormat::of("a.b.CSV"), Some((TableFormat::Csv, "a.b")));
        assert_eq!(TableFormat::of("a.ndjson"), Some((TableFormat::JsonLines, "a")));
        for other in [".csv", "csv", "a.xlsx", "a."] {
            assert_eq!(TableFormat::of(other), None, "{other}");
        }
    }

    #[test]
    fn text_of_any_make_is_plain_text() {
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
        let schema = Schema::new(vec![
            Field::new("a", dictionary, true),
            Field::new("b", DataType::List(item), true),
            Field::new("c", DataType::BinaryView, false),
        ]);
        let types: Vec<String> =
            plain(&schema).fields().iter().map(|field| field.data_type().to_string()).collect();
        assert_eq!(types, ["Utf8", "List(Utf8)", "Binary"]);
    }
}
