//! A table from a file, its rows and fields in one order or another, and what a prefix cache makes of that, for
//! `relserve reorder`; `relserve bench queries` reads its tables here too. Must not know HTTP.

mod price;
mod run;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{ChatTemplate, Generation, TokenCount, Tokenizer, WorkItem};
use ir::reorder::{FieldTable, Reordering};
use ir::rewrite::Measure;
use ir::{Cell, LowerOptions, Plan, Table, TableRow, Template};
pub use price::Price;
pub use run::{Ran, TableRunner};
use serde_json::Value;

use crate::input::{Failure, Input};

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot read {}: {error}", file.display())]
    File { file: PathBuf, error: std::io::Error },
    /// Its form.
    #[error("{}: {reason}", file.display())]
    Malformed {
        file: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A name that is no column's.
    #[error("there is no column `{name}`; there are: {known}")]
    UnknownColumn {
        name: String,
        /// The columns there are.
        known: String,
    },
    /// A table that the solver cannot number.
    #[error(transparent)]
    Size(#[from] ir::reorder::TableError),
    /// The template, or a row that makes no prompt.
    #[error(transparent)]
    Plan(#[from] ir::IrError),
    /// A row that makes no prompt.
    #[error("row {row} cannot be a prompt: {problem}")]
    Row {
        /// Its number in the file, from 1.
        row: usize,
        problem: ir::RowProblem,
    },
    /// A row that the model failed.
    #[error("row {row} failed: {error}")]
    RowFailed {
        /// Its number, from 0.
        row: u32,
        error: base::RowError,
    },
    /// The scheduler's configuration.
    #[error(transparent)]
    Config(#[from] scheduler::ConfigError),
    /// The scheduler's word against a row.
    #[error(transparent)]
    Refused(#[from] scheduler::Refused),
    #[error(transparent)]
    Step(#[from] base::ExecError),
}

/// A table as it lies in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTable {
    /// Names of its columns.
    pub columns: Vec<String>,
    /// Its rows: text, or NULL where a cell is empty.
    pub rows: Vec<Vec<Cell>>,
}

/// What a prompt is made of beside the record.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Instructions in front.
    pub system: Option<&'a str>,
    /// The template, with `{*}`.
    pub template: &'a Template,
    /// How it is answered.
    pub generation: &'a Generation,
}

impl FileTable {
    /// Reads a CSV file with a header, or at most `rows_max` rows of it; `-` is standard input.
    pub fn read(path: &Path, rows_max: usize) -> Result<Self, TableError> {
        let unread = |error| TableError::File { file: path.to_owned(), error };
        let input: Box<dyn Read> = match path.to_str() {
            Some("-") => Box::new(std::io::stdin().lock()),
            _ => Box::new(std::fs::File::open(path).map_err(unread)?),
        };
        Self::parse(input, rows_max).map_err(|reason| TableError::Malformed { file: path.to_owned(), reason })
    }

    /// The rows of a table, at most `rows_max`; a row that is not whole is an error.
    pub(crate) async fn of(input: Input, rows_max: usize) -> Result<Self, Failure> {
        let (name, columns) = (input.name().to_owned(), input.columns().to_vec());
        let mut rows = Vec::new();
        let mut read = input.start();
        while rows.len() < rows_max
            && let Some(row) = read.next().await
        {
            // What is wrong with the whole table names it already.
            let row = row?;
            if let Some(reason) = row.bad {
                return Err(format!("{name}: {reason}").into());
            }
            rows.push(row.cells.iter().map(cell).collect());
        }
        if rows.is_empty() { Err(format!("{name}: has no row").into()) } else { Ok(Self { columns, rows }) }
    }

    /// The same of what a file holds.
    pub(crate) fn parse(input: impl Read, rows_max: usize) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(input);
        let header = reader.headers().map_err(|error| error.to_string())?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        if columns.iter().all(|name| name.is_empty()) {
            return Err("has no header".into());
        }
        let cell = |text: &str| if text.is_empty() { Cell::Null } else { Cell::from(text) };
        let mut rows = Vec::new();
        for record in reader.records().take(rows_max) {
            rows.push(record.map_err(|error| error.to_string())?.iter().map(cell).collect());
        }
        if rows.is_empty() { Err("has no row".into()) } else { Ok(Self { columns, rows }) }
    }

    /// These columns of it, in this order.
    pub fn select(&self, names: &[String]) -> Result<Self, TableError> {
        let position = |name: &String| {
            let known = || self.columns.join(", ");
            let found = self.columns.iter().position(|column| column == name);
            found.ok_or_else(|| TableError::UnknownColumn { name: name.clone(), known: known() })
        };
        let positions: Vec<usize> = names.iter().map(position).collect::<Result<_, _>>()?;
        let rows = self.rows.iter().map(|row| positions.iter().map(|place| row[*place].clone()).collect());
        Ok(Self { columns: names.to_vec(), rows: rows.collect() })
    }

    /// Position of a column.
    pub fn column(&self, name: &str) -> Option<u16> {
        self.columns.iter().position(|column| column == name).and_then(|place| u16::try_from(place).ok())
    }

    /// The table as the solver sees it; `lengths` measures entries of records, each different one once.
    pub fn interned(&self, lengths: Measure<'_>) -> Result<FieldTable, TableError> {
        let column = |(position, name): (usize, &String)| {
            ir::record_column(name, self.rows.iter().map(|row| &row[position]), lengths)
        };
        Ok(FieldTable::new(self.columns.iter().enumerate().map(column).collect())?)
    }

    /// The prompts of rows and fields in this order. A row's number is that of its place in the file.
    pub fn prompts(
        &self,
        order: &Reordering,
        question: Question<'_>,
        text: (&dyn Tokenizer, Option<&dyn ChatTemplate>),
        context_max: TokenCount,
    ) -> Result<Vec<WorkItem>, TableError> {
        let row = |(row, fields): (u32, &[u16])| TableRow {
            cells: self.rows[row as usize].clone(),
            answers: vec![row],
            record: fields.to_vec(),
        };
        let table = Table { columns: self.columns.clone(), rows: order.tuples().map(row).collect() };
        let chat = text.1.is_some();
        let plan =
            Plan::relquery(question.template, question.system, chat, table, question.generation.clone())?;
        let options = LowerOptions { context_max, ..LowerOptions::default() };
        let lowered = ir::lower(&plan, text.0, text.1, &options)?;
        for (row, answer) in (1..).zip(lowered.answers) {
            answer.map_err(|problem| TableError::Row { row, problem })?;
        }
        Ok(lowered.items)
    }
}

/// A cell of a table; an empty text is none.
fn cell(value: &Value) -> Cell {
    match value {
        Value::String(text) if text.is_empty() => Cell::Null,
        other => Cell::from_json(other).unwrap_or_else(|| Cell::Text(other.to_string())),
    }
}

/// An answer of at most so many tokens, of which all are written.
pub fn answer_of(output: u64) -> Arc<Generation> {
    let output_max = TokenCount(output);
    Arc::new(Generation { output_max, ignore_end: true, ..Generation::default() })
}

#[cfg(test)]
mod tests {
    use base::text::ByteText;
    use ir::reorder::{Dependencies, EarlyStop, ggr};

    use super::*;

    const BEERS: &str = "id,name,style\n1,Pils,Lager\n2,\"a \"\"b\"\"\",\n3,Pils,Lager\n";

    #[test]
    fn a_file_is_read_and_asked_about_in_any_order() {
        let beers = FileTable::parse(BEERS.as_bytes(), 10).expect("a table");
        assert_eq!(beers.rows[1], [Cell::from("2"), Cell::from("a \"b\""), Cell::Null]);
        let table = beers.interned(&|texts| ByteText.count_stretches(texts)).expect("it is small");
        let order = ggr(&table, &Dependencies::discover(&table, 1_000), &EarlyStop::default());
        let template = Template::parse("Q {*}").expect("a template");
        let generation = answer_of(1);
        let question = Question { system: None, template: &template, generation: &generation };
        let items = beers.prompts(&order, question, (&ByteText, None), TokenCount(200)).expect("prompts");
        let text = |item: &WorkItem| Tokenizer::decode(&ByteText, &item.prompt);
        let expected = [
            (0, r#"Q {"name": "Pils", "style": "Lager", "id": "1"}"#),
            (2, r#"Q {"name": "Pils", "style": "Lager", "id": "3"}"#),
            (1, r#"Q {"id": "2", "name": "a \"b\"", "style": null}"#),
        ];
        let shown: Vec<(u32, String)> = items.iter().map(|item| (item.row, text(item))).collect();
        assert_eq!(shown, expected.map(|(row, text)| (row, text.to_owned())));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let parse = |text: &str| FileTable::parse(text.as_bytes(), 10).expect_err("it is wrong");
        assert!(parse("a,b\n1\n").contains("line: 2"), "{}", parse("a,b\n1\n"));
        assert_eq!(parse("a,b\n"), "has no row");
        assert_eq!(parse(""), "has no header");
        let beers = FileTable::parse(BEERS.as_bytes(), 10).expect("a table");
        let error = beers.select(&["beer".into()]).expect_err("there is no such column").to_string();
        assert_eq!(error, "there is no column `beer`; there are: id, name, style");
    }
}
