//! Tables: CSV files, gzipped or not, and one that is generated, so that a run needs no data.

use std::io::Read;
use std::path::Path;

use crate::Error;
use crate::random::SplitMix64;
use crate::scenario::TableSpec;

/// Rows of text cells under named columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Its name in the report.
    pub name: String,
    /// Column names, fit to stand in a template: letters, digits and underscores.
    pub columns: Vec<String>,
    /// The rows; each has as many cells as there are columns. Never empty.
    pub rows: Vec<Vec<String>>,
}

impl SourceTable {
    /// The table that a scenario describes.
    pub fn load(spec: &TableSpec, seed: u64) -> Result<Self, Error> {
        match &spec.path {
            None => Ok(generate(spec, seed)),
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|error| Error::file(path, error))?;
                if path.extension().is_some_and(|extension| extension == "gz") {
                    Self::read(spec, path, flate2::read::MultiGzDecoder::new(file))
                } else {
                    Self::read(spec, path, file)
                }
            }
        }
    }

    /// Reads CSV with a header.
    fn read(spec: &TableSpec, path: &Path, source: impl Read) -> Result<Self, Error> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(source);
        let header = reader.headers().map_err(|error| Error::file(path, error))?.clone();
        let wanted: Vec<usize> = if spec.columns.is_empty() {
            (0..header.len()).collect()
        } else {
            let find = |column: &String| {
                header.iter().position(|name| name == column).ok_or_else(|| Error::Scenario {
                    field: "tables.columns".into(),
                    reason: format!("`{}` has no column `{column}`", path.display()),
                })
            };
            spec.columns.iter().map(find).collect::<Result<_, _>>()?
        };
        let mut rows = Vec::new();
        for record in reader.records().take(spec.rows as usize) {
            let record = record.map_err(|error| Error::file(path, error))?;
            let cell = |&column: &usize| {
                record.get(column).unwrap_or_default().chars().take(spec.cell_chars_max).collect()
            };
            rows.push(wanted.iter().map(cell).collect());
        }
        if rows.is_empty() {
            return Err(Error::file(path, "the table has no rows"));
        }
        let columns = unique_names(wanted.iter().map(|&column| header.get(column).unwrap_or_default()));
        Ok(Self { name: spec.name.clone(), columns, rows })
    }
}

/// Names fit for a template: other characters become underscores, and no two are equal.
fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let mut name = if clean.is_empty() { "column".to_owned() } else { clean };
        while taken.contains(&name) {
            name.push('_');
        }
        taken.push(name);
    }
    taken
}

const SUBJECTS: [&str; 12] = [
    "film",
    "novel",
    "lager",
    "stout",
    "hotel",
    "keyboard",
    "magazine",
    "restaurant",
    "album",
    "camera",
    "lamp",
    "jacket",
];
const GOOD: [&str; 8] = [
    "a delight from start to finish",
    "worth every cent",
    "better than I had hoped",
    "made with evident care",
    "a quiet triumph",
    "exactly what was promised",
    "a gift I would give again",
    "bright, balanced and warm",
];
const BAD: [&str; 8] = [
    "a waste of an evening",
    "broken within a week",
    "far too expensive for what it is",
    "dull and careless",
    "not what the label says",
    "returned the next day",
    "thin, bitter and cold",
    "promising at first, then tiresome",
];
const ASIDES: [&str; 10] = [
    "My sister thought otherwise.",
    "It arrived late but well packed.",
    "The second half is stronger than the first.",
    "I have owned three of these over ten years.",
    "Others will find more in it than I did.",
    "The price has risen since last spring.",
    "There is little to add to what has been said.",
    "I read the other reviews only afterwards.",
    "It reminded me of an older and better one.",
    "The people who sold it were kind.",
];

/// Reviews of made-up things: one to eight sentences, so that rows differ in length as real ones do.
fn generate(spec: &TableSpec, seed: u64) -> SourceTable {
    let mut random = SplitMix64::new(seed, "generated table");
    let mut pick = |from: &[&'static str]| *random.pick(from).expect("the lists are not empty");
    let mut rows = Vec::new();
    for number in 0..spec.rows {
        let subject = pick(&SUBJECTS);
        let opinion = if pick(&["good", "bad"]) == "good" { pick(&GOOD) } else { pick(&BAD) };
        let mut review = format!("This {subject} is {opinion}.");
        while pick(&["on", "on", "on", "stop"]) == "on" && review.len() < 400 {
            review.push(' ');
            review.push_str(pick(&ASIDES));
        }
        let cut = |text: String| text.chars().take(spec.cell_chars_max).collect::<String>();
        rows.push(vec![cut(format!("{subject} no. {number}")), cut(review)]);
    }
    SourceTable { name: spec.name.clone(), columns: vec!["title".into(), "review".into()], rows }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const CSV: &str = "beer/name,review,review\n\"Ale, \"\"old\"\"\",good one,x\nStout,bad,y\nLager,fine,z\n";

    #[test]
    fn a_csv_file_is_read_plain_or_gzipped_with_the_columns_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let plain = dir.path().join("t.csv");
        std::fs::write(&plain, CSV).expect("written");
        let packed = dir.path().join("t.csv.gz");
        let mut gz = flate2::write::GzEncoder::new(
            std::fs::File::create(&packed).expect("made"),
            flate2::Compression::fast(),
        );
        gz.write_all(CSV.as_bytes()).expect("written");
        gz.finish().expect("written");

        for path in [plain, packed] {
            let spec =
                TableSpec { path: Some(path.clone()), rows: 2, cell_chars_max: 5, ..TableSpec::default() };
            let table = SourceTable::load(&spec, 1).expect("read");
            assert_eq!(table.columns, ["beer_name", "review", "review_"]);
            assert_eq!(table.rows, [["Ale, ", "good ", "x"], ["Stout", "bad", "y"]]);
            let one = SourceTable::load(&TableSpec { columns: vec!["review".into()], ..spec.clone() }, 1)
                .expect("read");
            assert_eq!(one.rows[1], ["bad"]);
            let error = SourceTable::load(&TableSpec { columns: vec!["taste".into()], ..spec }, 1)
                .expect_err("refused");
            assert!(error.to_string().contains("`taste`"), "{error}");
        }
    }

    #[test]
    fn a_generated_table_depends_on_the_seed_alone() {
        let spec = TableSpec { rows: 300, ..TableSpec::default() };
        let table = SourceTable::load(&spec, 4).expect("generated");
        assert_eq!(table, SourceTable::load(&spec, 4).expect("generated"));
        assert_ne!(table, SourceTable::load(&spec, 5).expect("generated"));
        let mut distinct: Vec<_> = table.rows.iter().map(|row| &row[0]).collect();
        distinct.dedup();
        assert_eq!((table.rows.len(), distinct.len()), (300, 300), "no row is another's copy");
        let lengths: Vec<usize> = table.rows.iter().map(|row| row[1].len()).collect();
        assert!(lengths.iter().max() > lengths.iter().min().map(|least| least * 4).as_ref(), "{lengths:?}");
    }
}
