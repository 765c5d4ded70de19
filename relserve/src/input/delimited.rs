//! Tables of delimited text (CSV, TSV): a header, then a record for each row.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::Value;

use super::{Failure, InputRow, Sender};

/// A table, behind its header.
pub(super) struct DelimitedTable {
    name: String,
    reader: Reader<Guard>,
    read: Arc<AtomicU64>,
    pub(super) columns: Vec<String>,
}

/// Ends a read of which one record would never end: a quote that is not closed makes the rest of a file one
/// cell.
struct Guard {
    file: File,
    /// Bytes since the last record; set to 0 by who reads records.
    read: Arc<AtomicU64>,
    most: u64,
    /// What is still to be read of [`END`], behind the file.
    end: &'static [u8],
}

/// A last record, added to every file. Where a quote is not closed it is part of a cell, which tells so: the reader
/// itself takes the end of a file for the end of a quote.
const END: &[u8] = b"\n\0end of the table\0";

/// Whether a cell holds the end of its file.
fn holds_end(cell: Option<&[u8]>) -> bool {
    cell.is_some_and(|cell| cell.ends_with(&END[1..]))
}

/// Bytes that the reader takes in at a time, whatever it needs.
const AHEAD: u64 = 64 << 10;

impl Read for Guard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read.load(Ordering::Relaxed) > self.most + AHEAD {
            let most = self.most;
            let reason = format!("a row of more than {most} bytes (--row-bytes-max); is a quote not closed?");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        let mut count = self.file.read(buffer)?;
        if count == 0 {
            count = self.end.read(buffer)?;
        }
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl DelimitedTable {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path, delimiter: u8, most: u64) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let read = Arc::new(AtomicU64::new(0));
        let mut reader = ReaderBuilder::new()
            .flexible(true)
            .delimiter(delimiter)
            .buffer_capacity(AHEAD as usize)
            .from_reader(Guard { file, read: Arc::clone(&read), most, end: END });
        let header = reader.byte_headers().map_err(|error| format!("{name}: line 1: {error}"))?.clone();
        let is_empty = header.len() == 1 && header.get(0) == Some(&END[1..]);
        if !is_empty && holds_end(header.iter().next_back()) {
            return Err(format!("{name}: line 1: a quote is not closed").into());
        }
        let mut columns = Vec::with_capacity(header.len());
        for (number, column) in (1..).zip(&header) {
            let column = std::str::from_utf8(column)
                .map_err(|_| format!("{name}: line 1: the name of column {number} is not UTF-8"))?;
            columns.push(column.trim_start_matches('\u{feff}').to_owned());
        }
        if is_empty || columns.is_empty() || columns == [""] {
            return Err(format!("{name}: is empty: its first line must name the columns").into());
        }
        Ok(Self { name, reader, read, columns })
    }

    /// Sends all rows.
    pub(super) fn send(mut self, sender: &Sender) {
        let mut record = ByteRecord::new();
        loop {
            self.read.store(0, Ordering::Relaxed);
            let item = match self.reader.read_byte_record(&mut record) {
                Ok(false) => return,
                Ok(true) if holds_end(record.iter().next_back()) => {
                    if record.len() == 1 && record.get(0) == Some(&END[1..]) {
                        return;
                    }
                    let line = record.position().map_or(0, csv::Position::line);
                    Err(format!("{}: line {line}: a quote is not closed", self.name))
                }
                Ok(true) => Ok(self.row(&record)),
                Err(error) => {
                    let line = self.reader.position().line();
                    Err(format!("{}: near line {line}: {error}", self.name))
                }
            };
            let is_last = item.is_err();
            // Nobody takes rows any more: the job has stopped.
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    }

    fn row(&self, record: &ByteRecord) -> InputRow {
        let line = record.position().map_or(0, csv::Position::line);
        let mut bad = None;
        if record.len() != self.columns.len() {
            let (cells, columns) = (record.len(), self.columns.len());
            bad = Some(format!("line {line}: has {cells} cells, the header has {columns}"));
        }
        let mut cells: Vec<Value> = Vec::with_capacity(self.columns.len());
        for (cell, column) in record.iter().zip(&self.columns) {
            match std::str::from_utf8(cell) {
                Ok(text) if text.contains('\0') => {
                    bad.get_or_insert(format!("line {line}: `{column}` holds a NUL character"));
                    cells.push(Value::Null);
                }
                Ok(text) => cells.push(text.into()),
                Err(_) => {
                    bad.get_or_insert(format!("line {line}: `{column}` is not UTF-8"));
                    cells.push(String::from_utf8_lossy(cell).into());
                }
            }
        }
        cells.resize(self.columns.len(), Value::Null);
        InputRow { cells, bad, position: self.reader.position().byte() }
    }
}
