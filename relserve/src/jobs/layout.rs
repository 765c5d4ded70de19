//! Which columns of a job's table go out, and which go into the prompt.

use ir::Template;
use serde::{Deserialize, Serialize};

use super::Failure;
use super::options::Options;

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
            options.source.columns.as_ref().is_none_or(|wanted| wanted.contains(name))
                || options.source.id.as_ref() == Some(name)
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
        let id = options.source.id.as_ref().and_then(|id| kept.iter().position(|column| column == id));
        let (row, output) = (options.row_column.clone(), options.output_column.clone());
        Ok(Self { row, kept, output, sent, fields, places, id })
    }
}
