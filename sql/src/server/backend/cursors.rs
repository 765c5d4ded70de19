//! The cursors of a connection.

use super::{Backend, Outcome, limit};
use crate::server::cursor::{Cursor, Step, no_cursor};
use crate::server::error::{SqlError, code};
use crate::server::rows::Columns;

impl Backend {
    pub(in crate::server) fn check_new_cursor(&self, name: &str, is_held: bool) -> Result<(), SqlError> {
        if !is_held {
            self.require_transaction("DECLARE CURSOR")?;
        }
        if self.cursors.contains_key(name) {
            return Err(SqlError::new(code::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        limit("number of cursors", self.cursors.len(), self.limits.cursors_max)
    }

    pub(in crate::server) async fn fetch(&mut self, name: &str, step: Step) -> Result<Outcome, SqlError> {
        // Taken out: should the client give up in the middle, the cursor's query ends with its rows.
        let mut cursor = self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
        if let Some(batch) = cursor.scroll(step).await? {
            let (rows, is_binary) = (cursor.rows.part(batch), cursor.is_binary);
            self.cursors.insert(name.to_owned(), cursor);
            return Ok(Outcome::Scrolled { rows, is_binary });
        }
        match Cursor::forward(step) {
            Ok(rows_max) => Ok(Outcome::Fetched { cursor, rows_max, name: name.to_owned() }),
            Err(error) => {
                self.cursors.insert(name.to_owned(), cursor);
                Err(error)
            }
        }
    }

    /// `MOVE`: a fetch whose rows are only counted.
    pub(in crate::server) async fn go(&mut self, name: &str, step: Step) -> Result<Outcome, SqlError> {
        let mut count = 0;
        match self.fetch(name, step).await? {
            Outcome::Scrolled { mut rows, .. } => {
                count = rows.next(usize::MAX).await?.map_or(0, |batch| batch.num_rows());
            }
            Outcome::Fetched { mut cursor, rows_max, name } => {
                while count < rows_max {
                    let Some(batch) = cursor.rows.next(rows_max - count).await? else { break };
                    count += batch.num_rows();
                }
                self.put_back(name, cursor);
            }
            _ => {}
        }
        Ok(Outcome::Done(format!("MOVE {count}")))
    }

    /// Puts a cursor back of which rows were fetched.
    pub(in crate::server) fn put_back(&mut self, name: String, cursor: Cursor) {
        self.cursors.insert(name, cursor);
    }

    /// The columns of a cursor.
    pub(in crate::server) fn cursor_columns(&self, name: &str) -> Option<Columns> {
        self.cursors.get(name).map(|cursor| cursor.rows.columns.clone())
    }
}
