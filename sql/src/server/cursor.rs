//! Cursors of `DECLARE`: which rows `FETCH` and `MOVE` mean, and the rows that a `SCROLL` cursor keeps to go
//! back to.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::error::{SqlError, code};
use super::rows::Rows;

/// Bytes of rows that a `SCROLL` cursor keeps.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Which rows are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many of the next rows, or all of them; none: the row that the cursor is at.
    Forward(Option<usize>),
    /// So many of those before, the last first.
    Backward(Option<usize>),
    /// One row: the first is 1, the last -1.
    Absolute(i64),
    /// One row, so many behind the one that the cursor is at.
    Relative(i64),
}

/// Reads `FETCH` or `MOVE`: the step, and the cursor's name.
pub(super) fn parse(text: &str) -> Result<(Step, String), SqlError> {
    let syntax = || SqlError::new(code::SYNTAX, "syntax error: FETCH [direction] [FROM] cursor is expected");
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().map_err(|_| syntax())?;
    let mut words = Vec::new();
    for token in tokens {
        match token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::Word(word) if word.quote_style.is_some() => words.push((word.value, true)),
            Token::Word(word) => words.push((word.value.to_lowercase(), false)),
            Token::Number(number, _) => words.push((number, false)),
            Token::Minus => words.push(("-".to_owned(), false)),
            Token::Plus => {}
            _ => return Err(syntax()),
        }
    }
    let Some(((name, _), rest)) = words.split_last() else { return Err(syntax()) };
    let mut rest: Vec<&str> = rest.iter().skip(1).map(|(word, _)| word.as_str()).collect();
    if matches!(rest.last(), Some(&("from" | "in"))) {
        rest.pop();
    }
    let signed = |words: &[&str]| {
        let number = words.concat().parse::<i64>();
        number.map_err(|_| syntax())
    };
    let step = match rest.as_slice() {
        [] | ["next" | "forward"] => Step::Forward(Some(1)),
        ["prior" | "backward"] => Step::Backward(Some(1)),
        ["first"] => Step::Absolute(1),
        ["last"] => Step::Absolute(-1),
        ["all"] | ["forward", "all"] => Step::Forward(None),
        ["backward", "all"] => Step::Backward(None),
        ["absolute", number @ ..] => Step::Absolute(signed(number)?),
        ["relative", number @ ..] => Step::Relative(signed(number)?),
        ["backward", number @ ..] => forward(signed(number)?.saturating_neg()),
        ["forward", number @ ..] | number => forward(signed(number)?),
    };
    Ok((step, name.clone()))
}

fn forward(count: i64) -> Step {
    let rows = Some(usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
    if count < 0 { Step::Backward(rows) } else { Step::Forward(rows) }
}

/// A cursor.
pub(super) struct Cursor {
    pub(super) rows: Rows,
    pub(super) is_held: bool,
    pub(super) is_binary: bool,
    /// What a `SCROLL` cursor has read.
    scroll: Option<Scroll>,
}

pub(super) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(code::INVALID_CURSOR, format!("cursor \"{name}\" does not exist"))
}

/// Rows of a `SCROLL` cursor that were read, and where it is.
#[derive(Debug, Default)]
struct Scroll {
    read: Vec<RecordBatch>,
    count: usize,
    bytes: usize,
    /// 0 before the first row, one more than there are behind the last.
    position: usize,
}

impl Cursor {
    pub(super) fn new(rows: Rows, is_held: bool, is_binary: bool, is_scroll: bool) -> Self {
        Self { rows, is_held, is_binary, scroll: is_scroll.then(Scroll::default) }
    }

    /// How many rows a step asks of a cursor that goes forward only.
    pub(super) fn forward(step: Step) -> Result<usize, SqlError> {
        match step {
            Step::Forward(Some(0)) => Err(only_forward()),
            Step::Forward(count) => Ok(count.unwrap_or(usize::MAX)),
            Step::Relative(1) => Ok(1),
            _ => Err(only_forward()),
        }
    }

    /// Moves a `SCROLL` cursor, and gives the rows that the step means; `None` of another cursor.
    pub(super) async fn scroll(&mut self, step: Step) -> Result<Option<RecordBatch>, SqlError> {
        let Some(scroll) = &mut self.scroll else { return Ok(None) };
        let wanted = match step {
            Step::Forward(Some(count)) => scroll.position.saturating_add(count),
            Step::Absolute(row) if row >= 0 => usize::try_from(row).unwrap_or(usize::MAX),
            Step::Relative(by) => scroll.position.saturating_add_signed(isize::try_from(by).unwrap_or(0)),
            Step::Backward(_) => 0,
            Step::Forward(None) | Step::Absolute(_) => usize::MAX,
        };
        scroll.read_to(wanted, &mut self.rows).await?;
        let rows = scroll.step(step);
        let schema = self.rows.columns.schema();
        let parts: Vec<RecordBatch> = rows.into_iter().filter_map(|row| scroll.row(row)).collect();
        Ok(Some(concat_batches(schema, &parts)?))
    }
}

impl Scroll {
    async fn read_to(&mut self, row: usize, rows: &mut Rows) -> Result<(), SqlError> {
        while self.count < row {
            let Some(batch) = rows.next(usize::MAX).await? else { break };
            self.count += batch.num_rows();
            self.bytes += batch.get_array_memory_size();
            if self.bytes > KEPT_BYTES_MAX {
                return Err(SqlError::limit("bytes that a SCROLL cursor keeps", KEPT_BYTES_MAX));
            }
            self.read.push(batch);
        }
        Ok(())
    }

    /// The rows that a step means, from 1 on, where all that it may mean are read; the cursor is at its end
    /// then.
    fn step(&mut self, step: Step) -> Vec<usize> {
        let (at, end) = (self.position, self.count + 1);
        let to = |row: usize| (row.min(end), if (1..end).contains(&row) { vec![row] } else { Vec::new() });
        let (position, rows) = match step {
            Step::Forward(Some(0)) | Step::Backward(Some(0)) => to(at),
            Step::Forward(count) => {
                let last = at.saturating_add(count.unwrap_or(usize::MAX)).min(end);
                (last, (at + 1..=last.min(self.count)).collect())
            }
            Step::Backward(count) => {
                let first = at.saturating_sub(count.unwrap_or(usize::MAX));
                (first, (first.max(1)..at.min(end)).rev().collect())
            }
            Step::Absolute(row) if row < 0 => {
                to(end.saturating_sub(usize::try_from(row.unsigned_abs()).unwrap_or(usize::MAX)))
            }
            Step::Absolute(row) => to(usize::try_from(row).unwrap_or(usize::MAX)),
            Step::Relative(by) => to(at.saturating_add_signed(isize::try_from(by).unwrap_or(0))),
        };
        self.position = position;
        rows
    }

    fn row(&self, row: usize) -> Option<RecordBatch> {
        let mut before = 0;
        for batch in &self.read {
            if row <= before + batch.num_rows() {
                return Some(batch.slice(row.checked_sub(before + 1)?, 1));
            }
            before += batch.num_rows();
        }
        None
    }
}

fn only_forward() -> SqlError {
    SqlError::new(code::WRONG_STATE, "cursor can only scan forward")
        .with_hint("Declare it with SCROLL option to enable backward scan.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_those_of_postgres() {
        for (text, step) in [
            ("FETCH c", Step::Forward(Some(1))),
            ("FETCH FORWARD FROM c", Step::Forward(Some(1))),
            ("FETCH 5 FROM c", Step::Forward(Some(5))),
            ("FETCH FORWARD ALL IN c", Step::Forward(None)),
            ("MOVE -2 FROM c", Step::Backward(Some(2))),
            ("FETCH BACKWARD 3 c", Step::Backward(Some(3))),
            ("FETCH PRIOR c", Step::Backward(Some(1))),
            ("FETCH LAST FROM c", Step::Absolute(-1)),
            ("MOVE ABSOLUTE 0 IN c", Step::Absolute(0)),
            ("FETCH RELATIVE -1 FROM c", Step::Relative(-1)),
        ] {
            assert_eq!(parse(text), Ok((step, "c".to_owned())), "{text}");
        }
        assert_eq!(parse("FETCH ALL FROM \"My cursor\"").map(|(_, name)| name), Ok("My cursor".to_owned()));
        assert!(parse("FETCH sideways FROM c").is_err());
    }

    #[test]
    fn a_scroll_cursor_goes_back_and_forth() {
        let mut scroll = Scroll { count: 3, ..Scroll::default() };
        for (step, rows, position) in [
            (Step::Forward(Some(2)), vec![1, 2], 2),
            (Step::Backward(Some(1)), vec![1], 1),
            (Step::Forward(None), vec![2, 3], 4),
            (Step::Forward(Some(1)), vec![], 4),
            (Step::Backward(None), vec![3, 2, 1], 0),
            (Step::Absolute(-1), vec![3], 3),
            (Step::Relative(-2), vec![1], 1),
            (Step::Forward(Some(0)), vec![1], 1),
            (Step::Absolute(0), vec![], 0),
            (Step::Absolute(9), vec![], 4),
        ] {
            assert_eq!((scroll.step(step), scroll.position), (rows, position), "{step:?}");
        }
    }
}
