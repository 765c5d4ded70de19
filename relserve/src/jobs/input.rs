//! The table that comes in: a stream of rows with the names of its columns, whatever it is kept in.
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

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Failure;
use super::options::{Format, Options};

/// Rows read ahead.
const AHEAD: usize = 1_024;
/// Bytes of a file's ends that tell it from another of the same size.
const END_BYTES: u64 = 64 << 10;
/// Columns of a table.
const COLUMNS_MAX: usize = 10_000;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputRow {
    /// Its cells, in the order of the columns; of a bad row what could be read.
    pub(super) cells: Vec<Value>,
    /// Why it cannot be run.
    pub(super) bad: Option<String>,
    /// Bytes of the input read so far.
    pub(super) position: u64,
}

/// Rows, and then perhaps why there are no more.
pub(super) struct InputRows {
    rows: mpsc::Receiver<Result<InputRow, String>>,
    reader: JoinHandle<()>,
}

impl InputRows {
    /// The next row; `None` where the table has ended. A reader that did not come to the end is an error.
    pub(super) async fn next(&mut self) -> Option<Result<InputRow, String>> {
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
pub(super) struct Input {
    name: String,
    columns: Vec<String>,
    source: InputReader,
    /// Bytes of it, or rows, where known.
    pub(super) size: InputSize,
}

/// How much there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputSize {
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
    pub(super) async fn open(options: &Options) -> Result<Self, Failure> {
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
        match Format::of(&path)? {
            Format::Csv | Format::Tsv => {
                let delimiter = if Format::of(&path)? == Format::Tsv { b'\t' } else { b',' };
                let table = delimited::DelimitedTable::open(&path, delimiter, most)?;
                Self::new(
                    name.clone(),
                    table.columns.clone(),
                    InputReader::Delimited(Box::new(table)),
                    size,
                    options,
                )
            }
            Format::Jsonl => {
                let table = jsonl::JsonLines::open(&path, most, options.columns.as_deref())?;
                Self::new(
                    name.clone(),
                    table.columns.clone(),
                    InputReader::Jsonl(Box::new(table)),
                    size,
                    options,
                )
            }
            Format::Parquet => {
                let table = columnar::ColumnarTable::open(&path)?;
                let size = InputSize::Rows(table.rows);
                Self::new(
                    name.clone(),
                    table.columns.clone(),
                    InputReader::Columnar(Box::new(table)),
                    size,
                    options,
                )
            }
        }
    }

    fn new(
        name: String,
        columns: Vec<String>,
        source: InputReader,
        size: InputSize,
        options: &Options,
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

    /// The names of the columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What tells this table from another.
    pub(super) fn identity(&self) -> Result<String, Failure> {
        match &self.source {
            InputReader::Sql(table) => Ok(table.identity()),
            InputReader::Delimited(_) | InputReader::Jsonl(_) | InputReader::Columnar(_) => {
                Ok(identity_of(Path::new(&self.name))?)
            }
        }
    }

    /// Reads the rows, as fast as they are taken.
    pub(super) fn start(self) -> InputRows {
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
