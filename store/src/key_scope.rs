//! What a key may, where that is not all that its tenant may. The names are its owner's words; the store keeps them.

use crate::error::Error;

/// What a key may; all of it where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyScope {
    /// Whether it only looks: it changes nothing, and has nothing computed.
    pub is_read_only: bool,
    /// The groups of routes that it may use; `None`: all.
    pub routes: Option<Vec<String>>,
    /// The tables that its SQL may read; `None`: all.
    pub tables: Option<Vec<String>>,
}

impl KeyScope {
    /// All that a tenant may.
    pub const ALL: Self = Self { is_read_only: false, routes: None, tables: None };

    /// A scope of its columns.
    pub(crate) fn of_columns(
        read_only: i64,
        routes: Option<String>,
        tables: Option<String>,
    ) -> Result<Self, Error> {
        Ok(Self { is_read_only: read_only != 0, routes: names(routes)?, tables: names(tables)? })
    }

    /// Its lists as columns have them.
    pub(crate) fn lists(&self) -> [Option<String>; 2] {
        [&self.routes, &self.tables]
            .map(|names| names.as_ref().map(|names| serde_json::json!(names).to_string()))
    }
}

fn names(list: Option<String>) -> Result<Option<Vec<String>>, Error> {
    let broken =
        |error: serde_json::Error| Error::Broken { what: "scope of a key", reason: error.to_string() };
    list.map(|list| serde_json::from_str(&list)).transpose().map_err(broken)
}
