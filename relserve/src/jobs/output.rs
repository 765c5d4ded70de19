//! The table that goes out: the input's columns with the answers behind them, in the order of the input.
//!
//! Written from the journal into a file beside the output, which takes the output's name once it is whole:
//! who looks there sees all rows or none.

mod columnar;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use base::spreadsheet::marked;
use serde_json::{Map, Value, json};

use super::Failure;
use super::journal::{Journal, JournalRecord};
use super::layout::Layout;
use crate::input::Format;

/// Where the output goes.
pub(super) struct OutputFile {
    path: PathBuf,
    format: Format,
}

impl OutputFile {
    /// Checks that the output can be written.
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        let cannot = |reason: &str| format!("cannot write {}: {reason}", path.display());
        if path.is_dir() {
            return Err(cannot("it is a directory").into());
        }
        let format = Format::of(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(cannot("its folder does not exist").into());
        }
        Ok(Self { path: path.to_owned(), format })
    }

    /// A path beside the output: its name and another ending.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

/// Writes a file that is seen once it is whole. Where that fails nothing of it stays: it may be what fills the disk.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    let written = write_through(&draft, path, write);
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Writes a draft, and gives it its path.
fn write_through(
    draft: &Path,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", draft.display());
    let mut file = BufWriter::new(File::create(draft).map_err(cannot)?);
    write(&mut file)?;
    let file = file.into_inner().map_err(|error| cannot(error.into_error()))?;
    file.sync_all().map_err(cannot)?;
    fs::rename(draft, path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(())
}

/// Writes the rows that have an answer; `is_raw`: formulas among them too, as they are.
pub(super) fn write(
    target: &OutputFile,
    layout: &Layout,
    journal: &Journal,
    is_raw: bool,
) -> Result<(), Failure> {
    let done =
        || journal.records().filter(|record| !matches!(record, Ok(JournalRecord { error: Some(_), .. })));
    whole(&target.path, |file| match target.format {
        Format::Csv => delimited(file, b',', (layout, is_raw), done()),
        Format::Tsv => delimited(file, b'\t', (layout, is_raw), done()),
        Format::Jsonl => lines(file, layout, done()),
        Format::Parquet => columnar::write(file, layout, done),
    })
}

/// An answer as a cell of delimited text. Whoever wrote the rows may have had a part in what it says.
fn answer(text: Option<String>, is_raw: bool) -> String {
    let text = text.unwrap_or_default();
    if is_raw { text } else { marked(&text).into_owned() }
}

/// A cell as text: what it was, with null as the empty text.
fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn delimited(
    file: &mut BufWriter<File>,
    delimiter: u8,
    (layout, is_raw): (&Layout, bool),
    records: impl Iterator<Item = Result<JournalRecord, Failure>>,
) -> Result<(), Failure> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(file);
    let header = [&layout.row].into_iter().chain(&layout.kept).chain([&layout.output]);
    writer.write_record(header)?;
    for record in records {
        let record = record?;
        writer.write_field(record.row.to_string())?;
        for cell in &record.cells {
            writer.write_field(text(cell))?;
        }
        writer.write_field(answer(record.text, is_raw))?;
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()?;
    Ok(())
}

fn lines(
    file: &mut BufWriter<File>,
    layout: &Layout,
    records: impl Iterator<Item = Result<JournalRecord, Failure>>,
) -> Result<(), Failure> {
    // By hand: an object's keys stay in the order of the columns.
    for record in records {
        let record = record?;
        write!(file, "{{{}:{}", json!(layout.row), record.row)?;
        for (name, cell) in layout.kept.iter().zip(&record.cells) {
            write!(file, ",{}:{cell}", json!(name))?;
        }
        writeln!(file, ",{}:{}}}", json!(layout.output), json!(record.text))?;
    }
    Ok(())
}

/// Writes the rows that failed, one JSON object each, or deletes an older file of them where none did.
pub(super) fn write_errors(
    target: &OutputFile,
    layout: &Layout,
    journal: &Journal,
) -> Result<PathBuf, Failure> {
    let path = target.beside("errors.jsonl");
    if journal.counts().failed == 0 {
        let _ = fs::remove_file(&path);
        return Ok(path);
    }
    whole(&path, |file| {
        for record in journal.records() {
            let record = record?;
            let Some(error) = &record.error else { continue };
            let cells: Map<String, Value> =
                layout.kept.iter().cloned().zip(record.cells.iter().cloned()).collect();
            let error = json!({ "message": error.message, "code": error.code });
            let line =
                json!({ "row": record.row, "id": id_of(layout, &record), "cells": cells, "error": error });
            writeln!(file, "{line}")?;
        }
        Ok(())
    })?;
    Ok(path)
}
/// A row's id: what stands in its id's column, or else its number.
fn id_of(layout: &Layout, record: &JournalRecord) -> Value {
    layout.id.and_then(|id| record.cells.get(id).cloned()).unwrap_or_else(|| json!(record.row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_spreadsheet_would_compute_is_marked_as_text() {
        for formula in ["=1+1", "+49 30 1234", "-x", "@SUM(A1)", "\t=1", "\r=1", "- a list"] {
            assert_eq!(answer(Some(formula.into()), false), format!("'{formula}"));
            assert_eq!(answer(Some(formula.into()), true), formula);
        }
        for text in ["-5", "+3.2", "-1e9", "good", "'=1", " =1", ""] {
            assert_eq!(answer(Some(text.into()), false), text);
        }
        assert_eq!(answer(None, false), "");
    }

    #[test]
    fn an_output_that_cannot_be_written_leaves_the_one_before_and_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.csv");
        let write = |text: &'static str, ends: Result<(), Failure>| {
            whole(&path, |file| {
                file.write_all(text.as_bytes())?;
                ends
            })
        };
        write("whole", Ok(())).expect("written");
        write("half", Err("the disk is full".into())).expect_err("it fails");
        assert_eq!(fs::read_to_string(&path).expect("read"), "whole");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
