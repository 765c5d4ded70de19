//! The table that goes out: the input's columns with the answers behind them, in the order of the input.
//!
//! Written from the journal into a file beside the output, which takes the output's name once it is whole: who looks there
//! sees all rows or none.

mod columnar;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use ir::Template;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Failure;
use super::journal::{Journal, Record};
use super::options::{Format, Options};

/// Which columns go out, and which go into the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// The column of row numbers.
    pub(super) row: String,
    /// Columns that are kept, in the order of a record's cells.
    pub(super) kept: Vec<String>,
    /// The column of answers.
    pub(super) output: String,
    /// Columns that are sent: those that the template names, and where it has a record those that are kept.
    pub(super) sent: Vec<String>,
    /// Their places among the columns of the input.
    pub(super) fields: Vec<usize>,
    /// The place of the kept columns there.
    pub(super) places: Vec<usize>,
    /// The place of the row's id among the kept columns.
    pub(super) id: Option<usize>,
}

impl Layout {
    /// Checks the columns of a job.
    pub(super) fn new(options: &Options, columns: &[String], template: &Template) -> Result<Self, Failure> {
        let place = |name: &str| columns.iter().position(|column| column == name);
        let missing: Vec<&str> =
            template.fields().into_iter().filter(|field| place(field).is_none()).collect();
        if !missing.is_empty() {
            let (missing, known) = (missing.join(", "), columns.join(", "));
            return Err(format!("--template: there is no column {missing}; there are {known}").into());
        }
        let is_kept = |name: &String| {
            options.columns.as_ref().is_none_or(|wanted| wanted.contains(name))
                || options.id.as_ref() == Some(name)
        };
        let places: Vec<usize> = (0..columns.len()).filter(|place| is_kept(&columns[*place])).collect();
        let kept: Vec<String> = places.iter().map(|place| columns[*place].clone()).collect();
        let mut sent: Vec<String> = template.fields().into_iter().map(str::to_owned).collect();
        if template.has_record() {
            sent.extend(kept.iter().filter(|name| !template.fields().contains(&name.as_str())).cloned());
        }
        let fields = sent.iter().filter_map(|name| place(name)).collect();
        for (option, name) in [("row-column", &options.row_column), ("output-column", &options.output_column)]
        {
            if kept.contains(name) {
                return Err(
                    format!("the input has a column `{name}` already: choose another --{option}").into()
                );
            }
        }
        if options.row_column == options.output_column {
            return Err("--row-column and --output-column must differ".into());
        }
        let id = options.id.as_ref().and_then(|id| kept.iter().position(|column| column == id));
        let (row, output) = (options.row_column.clone(), options.output_column.clone());
        Ok(Self { row, kept, output, sent, fields, places, id })
    }

    /// A row's name: its id, or its number.
    fn id_of(&self, record: &Record) -> Value {
        self.id.and_then(|id| record.cells.get(id).cloned()).unwrap_or_else(|| json!(record.row))
    }
}

/// Where the output goes.
pub(super) struct Target {
    path: PathBuf,
    format: Format,
}

impl Target {
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

/// Writes a file that is seen once it is whole.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", draft.display());
    let mut file = BufWriter::new(File::create(&draft).map_err(cannot)?);
    write(&mut file)?;
    let file = file.into_inner().map_err(|error| cannot(error.into_error()))?;
    file.sync_all().map_err(cannot)?;
    fs::rename(&draft, path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(())
}

/// Writes the rows that have an answer.
pub(super) fn write(target: &Target, layout: &Layout, journal: &Journal) -> Result<(), Failure> {
    let done = || journal.records().filter(|record| !matches!(record, Ok(Record { error: Some(_), .. })));
    whole(&target.path, |file| match target.format {
        Format::Csv => delimited(file, b',', layout, done()),
        Format::Tsv => delimited(file, b'\t', layout, done()),
        Format::Jsonl => lines(file, layout, done()),
        Format::Parquet => columnar::write(file, layout, done),
    })
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
    layout: &Layout,
    records: impl Iterator<Item = Result<Record, Failure>>,
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
        writer.write_field(record.text.unwrap_or_default())?;
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()?;
    Ok(())
}

fn lines(
    file: &mut BufWriter<File>,
    layout: &Layout,
    records: impl Iterator<Item = Result<Record, Failure>>,
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
pub(super) fn write_errors(target: &Target, layout: &Layout, journal: &Journal) -> Result<PathBuf, Failure> {
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
                json!({ "row": record.row, "id": layout.id_of(&record), "cells": cells, "error": error });
            writeln!(file, "{line}")?;
        }
        Ok(())
    })?;
    Ok(path)
}

/// Deletes what a finished job leaves; what says that it is finished goes last.
pub(super) fn finish_cleanup(folder: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.file_name() != "job.json") {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| format!("cannot delete {}: {error}", path.display()))?;
    }
    fs::remove_dir_all(folder).map_err(|error| format!("cannot delete {}: {error}", folder.display()))?;
    Ok(())
}
