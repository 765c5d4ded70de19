//! A table that comes in, for `batch` and `reorder`: how it is named, and a stream of its rows with the names
//! of its columns, whatever it is kept in.
//!
//! A bad row is an item like any other, with its place and what is wrong, so that it fails alone. What makes
//! the whole table unreadable is an error that names file, line and column.

mod columnar;
mod delimited;
mod jsonl;
mod sql;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

pub(crate) use crate::terminal::Failure;

/// A table to read. `sim` names its trace by `--input` too.
#[derive(Clone, Debug, Args)]
pub struct TableArgs {
    /// A .csv, .tsv, .jsonl or .parquet file, or a database: sqlite:PATH, postgres://...
    #[arg(long, value_name = "FILE|DATABASE")]
    pub input: String,
    /// The table of the database; without it --query says what to read.
    #[arg(long, conflicts_with = "query")]
    pub table: Option<String>,
    /// The query to the database; it must give its rows in the same order each time. Without it --table does.
    #[arg(long)]
    pub query: Option<String>,
    /// Columns to read, by name, with commas between them [default: all].
    #[arg(long, value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// The column that names a row where one failed [default: its number]; a database's table is read in its
    /// order.
    #[arg(long, value_name = "COLUMN")]
    pub id: Option<String>,
    /// Bytes of one row of the input; a longer one fails alone, or ends the command where its end cannot be
    /// found.
    #[arg(long, default_value_t = 16 << 20)]
    pub row_bytes_max: u64,
}

/// How a file holds a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Commas.
    Csv,
    /// Tabs.
    Tsv,
    /// An object a line.
    Jsonl,
    /// Columns.
    Parquet,
}

impl Format {
    /// The format of a file's name.
    pub(crate) fn of(path: &Path) -> Result<Self, String> {
        let name = path.extension().and_then(|name| name.to_str()).map(str::to_ascii_lowercase);
        match name.as_deref() {
            Some("csv") => Ok(Self::Csv),
            Some("tsv") => Ok(Self::Tsv),
            Some("jsonl" | "ndjson") => Ok(Self::Jsonl),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(format!("{}: must end in .csv, .tsv, .jsonl or .parquet", path.display())),
        }
    }
}

/// Rows read ahead.
const AHEAD: usize = 1_024;
/// Bytes of a file's ends that tell it from another of the same size.
const END_BYTES: u64 = 64 << 10;
/// Columns of a table.
const COLUMNS_MAX: usize = 10_000;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputRow {
    /// Its cells, in the order of the columns; of a bad row what could be read.
    pub(crate) cells: Vec<Value>,
    /// Why it cannot be run.
    pub(crate) bad: Option<String>,
    /// Bytes of the input read so far.
    pub(crate) position: u64,
}

/// Rows, and then perhaps why there are no more.
pub(crate) struct InputRows {
    rows: mpsc::Receiver<Result<InputRow, String>>,
    reader: JoinHandle<()>,
}

impl InputRows {
    /// The next row; `None` where the table has ended. A reader that did not come to the end is an error.
    pub(crate) async fn next(&mut self) -> Option<Result<InputRow, String>> {
        if let Some(row) = self.rows.recv().await {
            return Some(row);
        }
        let ended = (&mut self.reader).await;
        ended.err().map(|error| Err(format!("the input cannot be read: {error}")))
    }
}

/// Where rows come from.
type Sender = mpsc::Sender<Result<InputRow, String>>;

/// A table, opened.
pub(crate) struct Input {
    name: String,
    columns: Vec<String>,
    source: InputReader,
    /// Bytes of it, or rows, where known.
    pub(crate) size: InputSize,
}

/// How much there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputSize {
    Bytes(u64),
    Rows(u64),
}

enum InputReader {
    Delimited(Box<delimited::DelimitedTable>),
    Jsonl(Box<jsonl::JsonLines>),
    Columnar(Box<columnar::ColumnarTable>),
    Sql(sql::SqlTable),
}

impl Input {
    /// Opens a table and reads the names of its columns.
    pub(crate) async fn open(options: &TableArgs) -> Result<Self, Failure> {
        let name = &options.input;
        if sql::is_database(name) {
            let table = sql::SqlTable::open(options).await?;
            let size = InputSize::Rows(table.rows);
            return Self::new(table.name(), table.columns.clone(), InputReader::Sql(table), size, options);
        }
        if options.table.is_some() || options.query.is_some() {
            return Err("--table and --query are for databases: --input sqlite:PATH or postgres://...".into());
        }
        let path = PathBuf::from(name);
        let cannot = |error: std::io::Error| format!("cannot read {name}: {error}");
        let length = std::fs::metadata(&path).map_err(cannot)?;
        if length.is_dir() {
            return Err(format!("cannot read {name}: it is a directory").into());
        }
        let size = InputSize::Bytes(length.len());
        let most = options.row_bytes_max;
        let (columns, source, size) = match Format::of(&path)? {
            format @ (Format::Csv | Format::Tsv) => {
                let delimiter = if format == Format::Tsv { b'\t' } else { b',' };
                let table = delimited::DelimitedTable::open(&path, delimiter, most)?;
                (table.columns.clone(), InputReader::Delimited(Box::new(table)), size)
            }
            Format::Jsonl => {
                let table = jsonl::JsonLines::open(&path, most, options.columns.as_deref())?;
                (table.columns.clone(), InputReader::Jsonl(Box::new(table)), size)
            }
            Format::Parquet => {
                let table = columnar::ColumnarTable::open(&path)?;
                let size = InputSize::Rows(table.rows);
                (table.columns.clone(), InputReader::Columnar(Box::new(table)), size)
            }
        };
        Self::new(name.clone(), columns, source, size, options)
    }

    fn new(
        name: String,
        columns: Vec<String>,
        source: InputReader,
        size: InputSize,
        options: &TableArgs,
    ) -> Result<Self, Failure> {
        if columns.len() > COLUMNS_MAX {
            return Err(
                format!("{name}: has {} columns; at most {COLUMNS_MAX} are read", columns.len()).into()
            );
        }
        for (place, column) in columns.iter().enumerate() {
            if columns[..place].contains(column) {
                return Err(format!("{name}: the column `{column}` is there twice").into());
            }
        }
        let wanted = options.columns.iter().flatten().chain(&options.id);
        if let Some(missing) = wanted.into_iter().find(|wanted| !columns.contains(wanted)) {
            let known = columns.join(", ");
            return Err(format!("{name}: there is no column `{missing}`; there are {known}").into());
        }
        Ok(Self { name, columns, source, size })
    }

    /// What to call it in errors: its path, or its address without a password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The names of the columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What tells this table from another.
    pub(crate) fn identity(&self) -> Result<String, Failure> {
        match &self.source {
            InputReader::Sql(table) => Ok(table.identity()),
            InputReader::Delimited(_) | InputReader::Jsonl(_) | InputReader::Columnar(_) => {
                Ok(identity_of(Path::new(&self.name))?)
            }
        }
    }

    /// Reads the rows, as fast as they are taken.
    pub(crate) fn start(self) -> InputRows {
        let (sender, rows) = mpsc::channel(AHEAD);
        let reader = match self.source {
            InputReader::Delimited(table) => spawn_blocking(move || table.send(&sender)),
            InputReader::Jsonl(table) => spawn_blocking(move || table.send(&sender)),
            InputReader::Columnar(table) => spawn_blocking(move || table.send(&sender)),
            InputReader::Sql(table) => tokio::spawn(async move { table.send(&sender).await }),
        };
        InputRows { rows, reader }
    }
}

/// A file's size and a hash of its ends.
fn identity_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hash = Sha256::new();
    let mut end = Vec::new();
    for from in [0, size.saturating_sub(END_BYTES)] {
        file.seek(SeekFrom::Start(from))?;
        end.clear();
        (&file).take(END_BYTES).read_to_end(&mut end)?;
        hash.update(&end);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let digest: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{size} bytes, {digest}"))
}
