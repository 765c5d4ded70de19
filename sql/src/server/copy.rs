//! `COPY (query) TO STDOUT`: rows as text, CSV or Postgres' binary format.

use arrow_pg::encoder::Encoder;
use bytes::{BufMut as _, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Statement,
};
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyOutResponse};
use pgwire::types::ToSqlText;
use postgres_types::{IsNull, ToSql};
use tokio::io::AsyncWrite;

use super::error::{SqlError, Stop, code};
use super::rows::{self, Rows, Writer};
use super::transport::ServerOutput;

/// Rows that go out before the client is waited for, at most.
const BATCH_ROWS_MAX: usize = 1_024;

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyFormat {
    Text { delimiter: u8, null: String, has_header: bool },
    Csv(Csv),
    Binary,
}

/// CSV's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Csv {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    has_header: bool,
    force_quote: Vec<String>,
}

/// Reads a COPY statement: the text of the query whose rows are copied, and how they are written.
pub(super) fn plan(statement: Statement) -> Result<(String, CopyFormat), SqlError> {
    let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
        return Err(SqlError::new(code::SYNTAX, "syntax error: not a COPY statement"));
    };
    match target {
        CopyTarget::Stdout if to => {}
        CopyTarget::Stdin => {
            return Err(SqlError::new(code::FEATURE_NOT_SUPPORTED, "COPY FROM STDIN is not supported"));
        }
        _ => return Err(to_files()),
    }
    let query = match source {
        CopySource::Query(query) => query.to_string(),
        CopySource::Table { table_name, columns } if columns.is_empty() => {
            format!("SELECT * FROM {table_name}")
        }
        CopySource::Table { table_name, columns } => {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            format!("SELECT {} FROM {table_name}", columns.join(", "))
        }
    };
    Ok((query, format(options, legacy_options)?))
}

/// Why files of the server are not copied to or from.
pub(super) fn to_files() -> SqlError {
    SqlError::new(
        code::INSUFFICIENT_PRIVILEGE,
        "COPY to or from a file or program of the server is not allowed",
    )
    .with_hint("Use COPY (..) TO STDOUT; psql's \\copy writes its rows to a file of the client.")
}

/// Options, as far as they were given.
#[derive(Default)]
struct Given {
    format: Option<String>,
    delimiter: Option<char>,
    null: Option<String>,
    has_header: bool,
    quote: Option<char>,
    escape: Option<char>,
    force_quote: Vec<String>,
}

fn format(options: Vec<CopyOption>, legacy: Vec<CopyLegacyOption>) -> Result<CopyFormat, SqlError> {
    let mut given = Given::default();
    for option in options {
        match option {
            CopyOption::Format(name) => given.format = Some(name.value.to_ascii_lowercase()),
            CopyOption::Delimiter(delimiter) => given.delimiter = Some(delimiter),
            CopyOption::Null(null) => given.null = Some(null),
            CopyOption::Header(has_header) => given.has_header = has_header,
            CopyOption::Quote(quote) => given.quote = Some(quote),
            CopyOption::Escape(escape) => given.escape = Some(escape),
            CopyOption::ForceQuote(columns) => given.force_quote = names(columns),
            CopyOption::Freeze(_) => {}
            CopyOption::Encoding(name) if name.to_ascii_uppercase().replace('-', "") == "UTF8" => {}
            other => return Err(unsupported(&other.to_string())),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => given.format = Some("binary".to_owned()),
            CopyLegacyOption::Delimiter(delimiter) => given.delimiter = Some(delimiter),
            CopyLegacyOption::Null(null) => given.null = Some(null),
            CopyLegacyOption::Header => given.has_header = true,
            CopyLegacyOption::Csv(options) => given.csv(options)?,
            other => return Err(unsupported(&other.to_string())),
        }
    }
    given.resolve()
}

fn names(columns: Vec<datafusion::sql::sqlparser::ast::Ident>) -> Vec<String> {
    columns.into_iter().map(|column| column.value).collect()
}

fn unsupported(option: &str) -> SqlError {
    SqlError::new(code::FEATURE_NOT_SUPPORTED, format!("COPY option {option} is not supported"))
}

impl Given {
    fn csv(&mut self, options: Vec<CopyLegacyCsvOption>) -> Result<(), SqlError> {
        self.format = Some("csv".to_owned());
        for option in options {
            match option {
                CopyLegacyCsvOption::Header => self.has_header = true,
                CopyLegacyCsvOption::Quote(quote) => self.quote = Some(quote),
                CopyLegacyCsvOption::Escape(escape) => self.escape = Some(escape),
                CopyLegacyCsvOption::ForceQuote(columns) => self.force_quote = names(columns),
                other => return Err(unsupported(&other.to_string())),
            }
        }
        Ok(())
    }

    fn resolve(self) -> Result<CopyFormat, SqlError> {
        let byte = |name: &str, given: Option<char>, default: u8| match given {
            None => Ok(default),
            Some(given) if given.is_ascii() && !matches!(given, '\n' | '\r' | '\\') => Ok(given as u8),
            Some(_) => Err(SqlError::new(
                code::INVALID_PARAMETER_VALUE,
                format!("COPY {name} must be a single one-byte character"),
            )),
        };
        match self.format.as_deref().unwrap_or("text") {
            "text" => Ok(CopyFormat::Text {
                delimiter: byte("delimiter", self.delimiter, b'\t')?,
                null: self.null.unwrap_or_else(|| "\\N".to_owned()),
                has_header: self.has_header,
            }),
            "csv" => {
                let quote = byte("quote", self.quote, b'"')?;
                Ok(CopyFormat::Csv(Csv {
                    delimiter: byte("delimiter", self.delimiter, b',')?,
                    quote,
                    escape: match self.escape {
                        Some('\\') => b'\\',
                        escape => byte("escape", escape, quote)?,
                    },
                    null: self.null.unwrap_or_default(),
                    has_header: self.has_header,
                    force_quote: self.force_quote,
                }))
            }
            "binary" => Ok(CopyFormat::Binary),
            other => Err(SqlError::new(
                code::INVALID_PARAMETER_VALUE,
                format!("COPY format \"{other}\" not recognized"),
            )),
        }
    }
}

/// Writes all rows as COPY data, and says how many there were.
pub(super) async fn send<S: AsyncWrite>(
    rows: &mut Rows,
    format: &CopyFormat,
    output: &mut ServerOutput<S>,
) -> Result<usize, Stop> {
    let is_binary = matches!(format, CopyFormat::Binary);
    let fields = rows.columns.fields(&[i16::from(is_binary)])?;
    let count =
        i16::try_from(fields.len()).map_err(|_| SqlError::limit("number of columns", i16::MAX as usize))?;
    let response = CopyOutResponse::new(i8::from(is_binary), count, vec![i16::from(is_binary); fields.len()]);
    output.put(PgWireBackendMessage::CopyOutResponse(response))?;
    header(format, rows.columns.names(), &mut output.buffer)?;
    // As in Postgres, the signature and what follows it are one message: readers rely on it.
    let mut signature = SIGNATURE;
    let mut sent = 0;
    while let Some(batch) = rows.next(BATCH_ROWS_MAX).await? {
        for row in 0..batch.num_rows() {
            write_row(&batch, row, &fields, format, std::mem::take(&mut signature), &mut output.buffer)?;
            output.relieve().await?;
        }
        sent += batch.num_rows();
        output.flush().await?;
        tokio::task::yield_now().await;
    }
    if is_binary {
        message(&mut output.buffer, |buffer| {
            buffer.put_slice(signature);
            buffer.put_i16(-1);
            Ok(())
        })?;
    }
    output.put(PgWireBackendMessage::CopyDone(CopyDone::new()))?;
    Ok(sent)
}

/// Bytes before the first row of the binary format: its signature, flags, and the length of an extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Writes the names of the columns, where they are wanted.
fn header(format: &CopyFormat, names: &[String], buffer: &mut BytesMut) -> Result<(), SqlError> {
    match format {
        CopyFormat::Text { delimiter, has_header: true, .. } => message(buffer, |buffer| {
            for (index, name) in names.iter().enumerate() {
                if index > 0 {
                    buffer.put_u8(*delimiter);
                }
                escape(name.as_bytes(), *delimiter, buffer);
            }
            buffer.put_u8(b'\n');
            Ok(())
        }),
        CopyFormat::Csv(csv) if csv.has_header => message(buffer, |buffer| {
            for (index, name) in names.iter().enumerate() {
                if index > 0 {
                    buffer.put_u8(csv.delimiter);
                }
                csv.put(name.as_bytes(), false, buffer);
            }
            buffer.put_u8(b'\n');
            Ok(())
        }),
        _ => Ok(()),
    }
}

/// Writes a CopyData message around what `body` writes; nothing where that fails.
fn message(
    buffer: &mut BytesMut,
    body: impl FnOnce(&mut BytesMut) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let start = buffer.len();
    buffer.put_u8(b'd');
    buffer.put_i32(0);
    let length = body(buffer).and_then(|()| {
        i32::try_from(buffer.len() - start - 1)
            .map_err(|_| SqlError::limit("length of a row in bytes", i32::MAX as usize))
    });
    match length {
        Ok(length) => {
            buffer[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            buffer.truncate(start);
            Err(error)
        }
    }
}

fn write_row(
    batch: &RecordBatch,
    row: usize,
    fields: &[FieldInfo],
    format: &CopyFormat,
    signature: &[u8],
    buffer: &mut BytesMut,
) -> Result<(), SqlError> {
    message(buffer, |buffer| match format {
        CopyFormat::Binary => {
            buffer.put_slice(signature);
            buffer.put_i16(i16::try_from(fields.len()).unwrap_or(i16::MAX));
            rows::values(batch, row, fields, &mut Writer(buffer))
        }
        CopyFormat::Text { .. } | CopyFormat::Csv(_) => {
            let mut writer = TextWriter { buffer, format, column: 0, value: BytesMut::new() };
            rows::values(batch, row, fields, &mut writer)?;
            buffer.put_u8(b'\n');
            Ok(())
        }
    })
}

/// Writes values as text with delimiters between them.
struct TextWriter<'a> {
    buffer: &'a mut BytesMut,
    format: &'a CopyFormat,
    column: usize,
    value: BytesMut,
}

impl Encoder for TextWriter<'_> {
    type Item = ();

    fn encode_field<T>(&mut self, value: &T, field: &FieldInfo) -> PgWireResult<()>
    where
        T: ToSql + ToSqlText + Sized,
    {
        if field.format() != FieldFormat::Text {
            return Err(PgWireError::ApiError("text is wanted".into()));
        }
        self.value.clear();
        let is_null = value.to_sql_text(field.datatype(), &mut self.value, field.format_options())?;
        let is_null = matches!(is_null, IsNull::Yes);
        let is_first = self.column == 0;
        self.column += 1;
        match self.format {
            CopyFormat::Text { delimiter, null, .. } => {
                if !is_first {
                    self.buffer.put_u8(*delimiter);
                }
                if is_null {
                    self.buffer.put_slice(null.as_bytes());
                } else {
                    escape(&self.value, *delimiter, self.buffer);
                }
            }
            CopyFormat::Csv(csv) => {
                if !is_first {
                    self.buffer.put_u8(csv.delimiter);
                }
                if is_null {
                    self.buffer.put_slice(csv.null.as_bytes());
                } else {
                    let is_forced = csv.force_quote.iter().any(|name| name == field.name() || name == "*");
                    csv.put(&self.value, is_forced, self.buffer);
                }
            }
            CopyFormat::Binary => {}
        }
        Ok(())
    }

    fn take_row(&mut self) {}
}

/// Writes a value of the text format.
fn escape(value: &[u8], delimiter: u8, buffer: &mut BytesMut) {
    for &byte in value {
        let escaped = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0b => b'v',
            0x0c => b'f',
            byte if byte == delimiter => byte,
            byte => {
                buffer.put_u8(byte);
                continue;
            }
        };
        buffer.put_u8(b'\\');
        buffer.put_u8(escaped);
    }
}

impl Csv {
    /// Writes a value, in quotes where it would be read as something else without them.
    fn put(&self, value: &[u8], is_forced: bool, buffer: &mut BytesMut) {
        let special = [self.delimiter, self.quote, b'\n', b'\r'];
        let is_quoted = is_forced
            || value == self.null.as_bytes()
            || value == b"\\."
            || value.iter().any(|byte| special.contains(byte));
        if !is_quoted {
            buffer.put_slice(value);
            return;
        }
        buffer.put_u8(self.quote);
        for &byte in value {
            if byte == self.quote || byte == self.escape {
                buffer.put_u8(self.escape);
            }
            buffer.put_u8(byte);
        }
        buffer.put_u8(self.quote);
    }
}
