//! The suite as `queries.toml` says it: tables, and queries of one or two stages over them.

use std::collections::BTreeMap;
use std::path::Path;

use ir::Cell;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use serde::Deserialize;

use super::retrieve::Nearest;
use crate::tables::{FileTable, TableError};

/// The queries, and what they are about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    /// Instructions in front of every prompt.
    pub(super) system: String,
    /// Tables by name.
    pub(super) table: BTreeMap<String, TableSource>,
    pub(super) query: Vec<SuiteQuery>,
}

/// Where a table comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableSource {
    /// A CSV file of the folder.
    pub(super) file: String,
    /// Whether its rows are shuffled before the first are taken.
    #[serde(default)]
    shuffle: bool,
    /// Texts that are put beside each row.
    retrieve: Option<Retrieve>,
}

/// Texts of a column that are most like what a row asks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retrieve {
    /// The columns that ask.
    query: Vec<String>,
    /// The column of all texts there are.
    text: String,
    /// Texts for each row.
    count: usize,
    /// What the query is called in prompts.
    query_name: String,
    /// What texts are called there, each with its number.
    text_name: String,
}

/// A query.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteQuery {
    /// What it is called.
    pub(super) name: String,
    /// Its type in the paper.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The table it is about.
    pub(super) table: String,
    /// Its invocations; every second row of one goes on to the next.
    pub(super) stage: Vec<Stage>,
}

/// One invocation of the model for each row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stage {
    /// Output tokens.
    pub(super) output: u64,
    /// What is asked.
    pub(super) prompt: String,
    /// The columns it is asked about; all without it.
    #[serde(default)]
    pub(super) fields: Vec<String>,
}

impl Suite {
    /// The suite that is built in.
    pub(super) fn built_in() -> Self {
        toml::from_str(include_str!("queries.toml")).expect("the suite is checked by a test")
    }
}

impl TableSource {
    /// The first rows of the table, as the queries see it.
    pub(super) fn read(&self, folder: &Path, rows: usize, seed: u64) -> Result<FileTable, TableError> {
        let path = folder.join(&self.file);
        let whole = self.shuffle || self.retrieve.is_some();
        let mut table = FileTable::read(&path, if whole { usize::MAX } else { rows })?;
        let nearest = match &self.retrieve {
            Some(retrieve) => {
                let texts = table.select(std::slice::from_ref(&retrieve.text))?;
                let texts = texts.rows.into_iter().flatten().map(|cell| cell.text().into_owned());
                Some((retrieve, Nearest::new(texts)))
            }
            None => None,
        };
        if self.shuffle {
            table.rows.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
        }
        table.rows.truncate(rows);
        match nearest {
            Some((retrieve, nearest)) => retrieve.beside(&table, &nearest),
            None => Ok(table),
        }
    }
}

impl Retrieve {
    /// The queries of a table, each with its texts.
    fn beside(&self, table: &FileTable, nearest: &Nearest) -> Result<FileTable, TableError> {
        let queries = table.select(&self.query)?.rows.into_iter().map(|cells| {
            let words: Vec<String> = cells.iter().map(|cell| cell.text().into_owned()).collect();
            words.join(" ")
        });
        let mut columns = vec![self.query_name.clone()];
        columns.extend((1..=self.count).map(|number| format!("{}{number}", self.text_name)));
        let rows = queries.map(|query| {
            let mut texts: Vec<Cell> = nearest.of(&query, self.count).into_iter().map(Cell::from).collect();
            texts.resize(self.count, Cell::Null);
            std::iter::once(Cell::from(query)).chain(texts).collect()
        });
        Ok(FileTable { columns, rows: rows.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_that_of_the_paper() {
        let suite = Suite::built_in();
        let count = |kind: &str| suite.query.iter().filter(|query| query.kind == kind).count();
        assert_eq!(["T1", "T2", "T3", "T4", "T5"].map(count), [5, 5, 2, 2, 2]);
        assert!(suite.query.iter().all(|query| suite.table.contains_key(&query.table)));
        assert!(suite.query.iter().all(|query| query.stage.len() == if query.kind == "T3" { 2 } else { 1 }));
    }

    #[test]
    fn questions_stand_beside_the_texts_that_are_most_like_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = "id,context,question,answer\n\
                    1,Lions live in grassland and hunt in groups.,Where do lions live?,grassland\n\
                    2,The river Rhine flows through Basel.,Which river flows through Basel?,the Rhine\n\
                    3,Lions live in grassland and hunt in groups.,How do lions hunt?,in groups\n";
        std::fs::write(folder.path().join("squad.csv"), file).expect("it can be written");
        let suite = Suite::built_in();
        let table = suite.table["squad"].read(folder.path(), 2, 1).expect("a table");
        assert_eq!(table.columns, ["question", "context1", "context2", "context3", "context4", "context5"]);
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.rows[0][1].text(), "Lions live in grassland and hunt in groups.");
        assert_eq!(table.rows[1][1].text(), "The river Rhine flows through Basel.");
        assert_eq!(table.rows[1][3], Cell::Null, "there are two different texts");
        let claims = suite.table["fever"].read(folder.path(), 9, 1).expect("a table");
        assert_eq!(claims.rows[0][0].text(), "Where do lions live? grassland");
    }
}
