//! Tables of JSON lines: an object for each row. The first names the columns, unless the caller does.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use gateway::json::BYTE_ORDER_MARK;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Failure, InputRow, Sender};

/// A table at its first line.
pub(super) struct JsonLines {
    name: String,
    reader: BufReader<File>,
    most: u64,
    line: u64,
    position: u64,
    pub(super) columns: Vec<String>,
    /// The first row, which was read for the names of the columns.
    first: Option<InputRow>,
}

/// The pairs of an object in their order.
pub(super) struct Pairs(pub(super) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = entries.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// What a line is.
enum JsonLine {
    Text(Vec<u8>),
    TooLong,
}

impl JsonLines {
    /// Opens a file and finds its columns.
    pub(super) fn open(path: &Path, most: u64, columns: Option<&[String]>) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let reader = BufReader::new(file);
        let mut table = Self { name, reader, most, line: 0, position: 0, columns: Vec::new(), first: None };
        if let Some(columns) = columns {
            table.columns = columns.to_vec();
            return Ok(table);
        }
        let line = table.next().map_err(|error| format!("cannot read {}: {error}", table.name))?;
        let wrong = |table: &Self, reason: &str| {
            format!(
                "{}: line {}: {reason}: its first line names the columns, or --columns does",
                table.name, table.line
            )
        };
        let pairs = match &line {
            None => return Err(format!("{}: is empty", table.name).into()),
            Some(JsonLine::TooLong) => return Err(wrong(&table, "is too long").into()),
            Some(JsonLine::Text(text)) => match serde_json::from_slice::<Pairs>(text) {
                Ok(Pairs(pairs)) => pairs,
                Err(error) => return Err(wrong(&table, &error.to_string()).into()),
            },
        };
        table.columns = pairs.into_iter().map(|(name, _)| name).collect();
        table.first = line.map(|line| table.row(line));
        Ok(table)
    }

    /// The next line that holds something.
    fn next(&mut self) -> std::io::Result<Option<JsonLine>> {
        loop {
            let mut text = Vec::new();
            self.line += 1;
            let count = (&mut self.reader).take(self.most).read_until(b'\n', &mut text)? as u64;
            self.position += count;
            if count == 0 {
                return Ok(None);
            }
            if self.position == count && text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len());
            }
            if count == self.most && text.last() != Some(&b'\n') {
                self.skip_line()?;
                return Ok(Some(JsonLine::TooLong));
            }
            if text.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Ok(Some(JsonLine::Text(text)));
            }
        }
    }

    /// Leaves out the rest of a line.
    fn skip_line(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let (count, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(place) => (place + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.reader.consume(count);
            self.position += count as u64;
            if is_end {
                return Ok(());
            }
        }
    }

    /// Sends all rows.
    pub(super) fn send(mut self, sender: &Sender) {
        if let Some(first) = self.first.take()
            && sender.blocking_send(Ok(first)).is_err()
        {
            return;
        }
        loop {
            let item = match self.next() {
                Ok(None) => return,
                Ok(Some(line)) => Ok(self.row(line)),
                Err(error) => Err(format!("cannot read {}: line {}: {error}", self.name, self.line)),
            };
            let is_last = item.is_err();
            // Nobody takes rows any more: the job has stopped.
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    }

    fn row(&self, line: JsonLine) -> InputRow {
        let mut cells = vec![Value::Null; self.columns.len()];
        let bad = match line {
            JsonLine::TooLong => Some(format!("has more than {} bytes (--row-bytes-max)", self.most)),
            JsonLine::Text(text) => match serde_json::from_slice::<Pairs>(&text) {
                Ok(Pairs(pairs)) => self.fill(&mut cells, pairs),
                Err(error) => Some(error.to_string()),
            },
        };
        let bad = bad.map(|reason| format!("line {}: {reason}", self.line));
        InputRow { cells, bad, position: self.position }
    }

    /// Puts an object's values into their cells. What is missing stays null; gives what is wrong.
    fn fill(&self, cells: &mut [Value], pairs: Vec<(String, Value)>) -> Option<String> {
        let mut seen = vec![false; cells.len()];
        let mut bad = None;
        for (name, value) in pairs {
            match self.columns.iter().position(|column| *column == name) {
                Some(place) if seen[place] => {
                    bad.get_or_insert(format!("`{name}` is there twice"));
                }
                Some(place) => {
                    seen[place] = true;
                    cells[place] = value;
                }
                None => {}
            }
        }
        bad
    }
}
