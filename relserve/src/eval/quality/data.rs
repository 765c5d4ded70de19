//! The tables that tasks are made of: small ones that this program was built with, or files of a folder
//! (`NAME.csv`, `NAME.csv.gz`, or a folder `NAME` with one).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::bench::BenchError;
use crate::tables::FileTable;

/// Tables that tasks are made of.
pub(super) const TABLES: [&str; 4] = ["movies", "products", "beer", "squad"];

/// Written for this, with things and people that do not exist: no model was trained on them.
const BUILT_IN: [(&str, &str); 2] =
    [("products", include_str!("products.csv")), ("squad", include_str!("squad.csv"))];

/// Where tables come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskData<'a> {
    BuiltIn,
    Folder(&'a Path),
}

/// A table whose cells are text, empty where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextTable {
    /// Where it is from, for errors.
    pub(super) origin: String,
    columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl<'a> TaskData<'a> {
    /// The program's own tables, or a folder that has at least one.
    pub(super) fn open(folder: Option<&'a Path>) -> Result<Self, BenchError> {
        let Some(folder) = folder else { return Ok(Self::BuiltIn) };
        if !folder.is_dir() {
            return Err(BenchError::Case(format!("--data: there is no folder {}", folder.display())));
        }
        if !TABLES.iter().any(|name| file(folder, name).is_some()) {
            return Err(BenchError::Case(format!(
                "--data: {} has no table: none of {}, each NAME.csv, NAME.csv.gz or a folder NAME with one",
                folder.display(),
                TABLES.join(", ")
            )));
        }
        Ok(Self::Folder(folder))
    }

    /// The table of a name, if there is one.
    pub(super) fn table(self, name: &str) -> Result<Option<TextTable>, BenchError> {
        match self {
            Self::BuiltIn => {
                let found = BUILT_IN.iter().find(|(table, _)| *table == name);
                let origin = format!("the built-in table {name}");
                found.map(|(_, text)| TextTable::parse(origin, text.as_bytes())).transpose()
            }
            Self::Folder(folder) => {
                let Some(path) = file(folder, name) else { return Ok(None) };
                let opened = File::open(&path).map_err(BenchError::file(&path))?;
                let is_packed = path.extension().is_some_and(|ending| ending == "gz");
                let bytes: Box<dyn Read> = if is_packed {
                    Box::new(flate2::read::MultiGzDecoder::new(opened))
                } else {
                    Box::new(opened)
                };
                TextTable::parse(path.display().to_string(), bytes).map(Some)
            }
        }
    }
}

/// The file of a table: of several in its folder the largest.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    let direct = [".csv", ".csv.gz"].map(|ending| folder.join(format!("{name}{ending}")));
    if let Some(file) = direct.into_iter().find(|path| path.is_file()) {
        return Some(file);
    }
    let entries = std::fs::read_dir(folder.join(name)).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".csv") || name.ends_with(".csv.gz")
    };
    let size = |path: &PathBuf| (path.metadata().map_or(0, |about| about.len()), path.clone());
    paths.filter(is_table).max_by_key(size)
}

impl TextTable {
    fn parse(origin: String, input: impl Read) -> Result<Self, BenchError> {
        let table = FileTable::parse(input, usize::MAX);
        let FileTable { columns, rows } =
            table.map_err(|reason| BenchError::Case(format!("{origin}: {reason}")))?;
        let text = |row: Vec<ir::Cell>| row.iter().map(|cell| cell.text().trim().to_owned()).collect();
        Ok(Self { origin, columns, rows: rows.into_iter().map(text).collect() })
    }

    /// Places of columns that have to be there.
    pub(super) fn places<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], BenchError> {
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(names) {
            let found = self.columns.iter().position(|column| column == name);
            *place = found.ok_or_else(|| {
                let known = self.columns.join(", ");
                BenchError::Case(format!("{}: there is no column `{name}`; there are: {known}", self.origin))
            })?;
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_built_in_passages_hold_their_answers_and_reviews_are_of_both_kinds() {
        let squad = TaskData::BuiltIn.table("squad").expect("it is read").expect("it is there");
        let [context, answer] = squad.places(["context", "answer"]).expect("its columns");
        assert!(squad.rows.len() >= 30);
        for row in &squad.rows {
            assert!(!row[answer].is_empty() && row[context].contains(&row[answer]), "{row:?}");
        }
        let products = TaskData::BuiltIn.table("products").expect("it is read").expect("it is there");
        let [rating] = products.places(["rating"]).expect("its column");
        let praise = products.rows.iter().filter(|row| matches!(row[rating].as_str(), "4" | "5")).count();
        assert_eq!(2 * praise, products.rows.len());
        assert_eq!(TaskData::BuiltIn.table("beer").expect("no error"), None);
    }

    #[test]
    fn a_folder_has_files_plain_packed_or_in_folders_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, bytes).expect("it can be written");
        };
        write("movies.csv", b"a,b\n1,\" x \"\n");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"a\nlarger\nlarger still\n").expect("into memory");
        write("beer/large.csv.gz", &packed.finish().expect("into memory"));
        write("beer/small.csv", b"a\n1\n");
        write("beer/README.md", &[b'x'; 4_000]);
        let source = TaskData::open(Some(folder.path())).expect("it has tables");
        let table = |name| source.table(name).expect("it is read");
        assert_eq!(table("movies").expect("plain").rows, [["1", "x"]]);
        assert_eq!(table("beer").expect("packed").rows, [["larger"], ["larger still"]]);
        assert_eq!(table("squad"), None);
    }

    #[test]
    fn what_is_wrong_with_a_folder_or_a_table_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = || TaskData::open(Some(folder.path())).expect_err("it has none").to_string();
        assert!(refused().contains("has no table: none of movies, products, beer, squad"), "{}", refused());
        let missing = folder.path().join("none");
        let error = TaskData::open(Some(&missing)).expect_err("it is not there").to_string();
        assert!(error.starts_with("--data: there is no folder ") && error.ends_with("none"), "{error}");
        std::fs::write(folder.path().join("squad.csv"), "question\nWhy?\n").expect("it can be written");
        let source = TaskData::open(Some(folder.path())).expect("it has a table");
        let table = source.table("squad").expect("it is read").expect("it is there");
        let error = table.places(["question", "context"]).expect_err("one is missing").to_string();
        assert!(error.contains("squad.csv: there is no column `context`; there are: question"), "{error}");
        std::fs::write(folder.path().join("beer.csv.gz"), "not packed").expect("it can be written");
        let error = source.table("beer").expect_err("it is no such file").to_string();
        assert!(error.contains("beer.csv.gz: "), "{error}");
    }
}
