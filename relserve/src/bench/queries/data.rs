//! The tables of the queries: CSV files of a folder, or made-up ones with columns of the paper's (appendix B),
//! whose values repeat as those of a join do.

use std::collections::BTreeSet;
use std::path::Path;

use ir::Cell;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

use super::Tables;
use crate::bench::BenchError;
use crate::tables::{FileTable, TableError};

/// Tables, and whether the file lies grouped by what it joins: it is shuffled then, so that "original" is the
/// order in which reviews came, as in the paper.
const FILES: [(&str, bool); 6] = [
    ("movies", true),
    ("products", true),
    ("bird", false),
    ("pdmx", false),
    ("beer", false),
    ("squad", false),
];

/// What was written for the queries.
#[derive(Debug, Default)]
pub(super) struct TablesWritten {
    /// Tables that are there.
    pub(super) tables: BTreeSet<&'static str>,
    /// The documents of the RAG queries' corpora.
    pub(super) contexts: Vec<String>,
    /// Words of all tables, the more common ones first come.
    pub(super) words: BTreeSet<String>,
}

/// Writes the first rows of each table into a folder.
pub(super) fn write(args: &Tables, folder: &Path) -> Result<TablesWritten, BenchError> {
    let mut written = TablesWritten::default();
    let mut random = StdRng::seed_from_u64(args.seed);
    for (name, is_grouped) in FILES {
        let read_max = if is_grouped || name == "squad" { usize::MAX } else { args.rows as usize };
        let table = match &args.data {
            None => Ok(made_up(name, args.rows, &mut random)),
            Some(data) => FileTable::read(&data.join(format!("{name}.csv")), read_max),
        };
        let mut table = match table {
            Ok(table) => table,
            // A table that is not at hand: its queries are left out.
            Err(TableError::File { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if name == "squad" {
            let contexts = table.select(&["context".to_owned()])?.rows.into_iter().flatten();
            let mut seen = BTreeSet::new();
            let texts = contexts.map(|cell| cell.text().into_owned());
            written.contexts = texts.filter(|text| !text.is_empty() && seen.insert(text.clone())).collect();
        }
        if is_grouped && args.data.is_some() {
            table.rows.shuffle(&mut StdRng::seed_from_u64(args.seed));
        }
        table.rows.truncate(args.rows as usize);
        save(&table, &folder.join(format!("{name}.jsonl")))?;
        written.tables.insert(name);
        if name == "squad" {
            // Claims are not at hand: a question with its answer stands for one.
            let texts = table.select(&["question".to_owned(), "answer".to_owned()])?.rows.into_iter();
            let claim =
                |cells: Vec<Cell>| vec![Cell::from(format!("{} {}", cells[0].text(), cells[1].text()))];
            let claims = FileTable { columns: vec!["claim".to_owned()], rows: texts.map(claim).collect() };
            save(&claims, &folder.join("fever.jsonl"))?;
            written.tables.insert("fever");
        }
    }
    let texts = written.contexts.iter().flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
    written.words = texts.filter(|word| word.is_ascii() && word.len() > 1).map(str::to_lowercase).collect();
    Ok(written)
}

/// As lines of JSON: any text comes back as it is.
fn save(table: &FileTable, path: &Path) -> Result<(), BenchError> {
    let value = |cell: &Cell| match cell {
        Cell::Null => Value::Null,
        cell => Value::from(cell.text()),
    };
    let row = |cells: &Vec<Cell>| {
        let entries = table.columns.iter().cloned().zip(cells.iter().map(value));
        format!("{}\n", Value::Object(entries.collect()))
    };
    std::fs::write(path, table.rows.iter().map(row).collect::<String>()).map_err(BenchError::file(path))
}

/// Words that values are made of.
const WORDS: [&str; 32] = [
    "quiet", "river", "bright", "story", "garden", "winter", "old", "music", "paper", "stone", "market",
    "green", "letter", "summer", "night", "bridge", "silver", "morning", "sharp", "gentle", "window",
    "yellow", "harbor", "fresh", "long", "plain", "honest", "second", "light", "corner", "travel", "simple",
];

/// How the values of a column come about.
enum ColumnValues {
    /// A text of so many words for each row.
    Own(usize),
    /// One of so many things, with so many words: rows about a thing have the same value in all such columns.
    OfThing(usize),
    /// One of these.
    OneOf(&'static [&'static str]),
}

use ColumnValues::{OfThing, OneOf, Own};

/// Rows about one thing on average.
const ROWS_PER_THING: u32 = 8;

/// A table with the columns of the paper's of this name; of PDMX' 57 columns some.
fn made_up(name: &str, rows: u32, random: &mut StdRng) -> FileTable {
    const YES_NO: &[&str] = &["true", "false"];
    let columns: Vec<(&str, ColumnValues)> = match name {
        "movies" => vec![
            ("review_content", Own(12)),
            ("movie_info", OfThing(30)),
            ("genres", OneOf(&["Drama", "Comedy", "Horror"])),
            ("rotten_tomatoes_link", OfThing(2)),
            ("review_type", OneOf(&["Fresh", "Rotten"])),
            ("top_critic", OneOf(YES_NO)),
        ],
        "products" => vec![
            ("id", Own(1)),
            ("text", Own(12)),
            ("description", OfThing(30)),
            ("product_title", OfThing(4)),
            ("rating", OneOf(&["1", "2", "3", "4", "5"])),
            ("verified_purchase", OneOf(YES_NO)),
        ],
        "bird" => vec![("Text", Own(12)), ("Body", OfThing(40)), ("PostId", OfThing(1))],
        "pdmx" => vec![
            ("title", Own(3)),
            ("composername", OfThing(2)),
            ("genre", OneOf(&["folk", "rock", "classical"])),
            ("hasannotations", OneOf(YES_NO)),
            ("haslyrics", OneOf(YES_NO)),
            ("isofficial", OneOf(YES_NO)),
            ("license", OneOf(&["CC0 1.0 Universal", "Public Domain Mark 1.0"])),
        ],
        "beer" => vec![
            ("review/profileName", Own(1)),
            ("beer/name", OfThing(3)),
            ("beer/style", OneOf(&["Pilsner", "Stout", "Pale Ale"])),
            ("review/taste", OneOf(&["6/10", "7/10", "8/10"])),
        ],
        _ => vec![("question", Own(8)), ("context", OfThing(24)), ("answer", Own(2))],
    };
    let things = (rows / ROWS_PER_THING).max(2);
    let thing = |words: usize, random: &mut StdRng| -> Vec<String> {
        (0..things).map(|number| format!("{} {number}", text(words, random))).collect()
    };
    let known: Vec<Vec<String>> = columns
        .iter()
        .map(|(_, values)| match values {
            OfThing(words) => thing(*words, random),
            Own(_) | OneOf(_) => Vec::new(),
        })
        .collect();
    let row = |number: u32| -> Vec<Cell> {
        let thing = random.random_range(0..things) as usize;
        let cell = |((_, values), known): (&(&str, ColumnValues), &Vec<String>)| match values {
            Own(words) => format!("{} {number}", text(*words, random)),
            OfThing(_) => known[thing].clone(),
            OneOf(values) => values.choose(random).map_or_else(String::new, |value| (*value).to_owned()),
        };
        columns.iter().zip(&known).map(cell).map(Cell::from).collect()
    };
    let rows = (0..rows).map(row).collect();
    FileTable { columns: columns.iter().map(|(name, _)| (*name).to_owned()).collect(), rows }
}

fn text(words: usize, random: &mut StdRng) -> String {
    let words = (0..words).filter_map(|_| WORDS.choose(random).copied());
    words.collect::<Vec<_>>().join(" ")
}
