//! Settings that Postgres' clients make and ask for: kept per connection, and mostly without an effect.
//!
//! Settings of ours (`relserve.*`) and of DataFusion (`datafusion.*`) are DataFusion's.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::{SqlError, code};
use crate::time_zone::time_zone;

/// The version of Postgres whose behaviour clients may expect.
pub(super) const SERVER_VERSION: &str = "16.6";
/// The same, as a number.
const SERVER_VERSION_NUM: &str = "160006";

/// Settings and their values at first.
const KNOWN: [(&str, &str); 66] = [
    ("application_name", ""),
    ("array_nulls", "on"),
    ("backslash_quote", "safe_encoding"),
    ("bytea_output", "hex"),
    ("check_function_bodies", "on"),
    ("client_connection_check_interval", "0"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("constraint_exclusion", "partition"),
    ("cursor_tuple_fraction", "0.1"),
    ("datestyle", "ISO, MDY"),
    ("deadlock_timeout", "1s"),
    ("default_tablespace", ""),
    ("default_toast_compression", "pglz"),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("enable_hashjoin", "on"),
    ("enable_indexscan", "on"),
    ("enable_mergejoin", "on"),
    ("enable_nestloop", "on"),
    ("enable_seqscan", "on"),
    ("enable_sort", "on"),
    ("escape_string_warning", "on"),
    ("extra_float_digits", "1"),
    ("force_parallel_mode", "off"),
    ("from_collapse_limit", "8"),
    ("geqo", "on"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "off"),
    ("jit", "off"),
    ("join_collapse_limit", "8"),
    ("lc_collate", "C.UTF-8"),
    ("lc_ctype", "C.UTF-8"),
    ("lc_messages", "C.UTF-8"),
    ("lc_monetary", "C.UTF-8"),
    ("lc_numeric", "C.UTF-8"),
    ("lc_time", "C.UTF-8"),
    ("lock_timeout", "0"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("max_parallel_workers_per_gather", "2"),
    ("password_encryption", "scram-sha-256"),
    ("quote_all_identifiers", "off"),
    ("role", "none"),
    ("row_security", "on"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", SERVER_VERSION),
    ("server_version_num", SERVER_VERSION_NUM),
    ("session_authorization", ""),
    ("session_replication_role", "origin"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("synchronize_seqscans", "on"),
    ("synchronous_commit", "on"),
    ("temp_tablespaces", ""),
    ("timezone", "UTC"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
    ("work_mem", "4MB"),
    ("xmloption", "content"),
];

/// Settings that clients may read and not change.
const FIXED: [&str; 12] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "lc_collate",
    "lc_ctype",
    "max_identifier_length",
    "max_index_keys",
    "server_encoding",
    "server_version",
    "server_version_num",
    "transaction_isolation",
    "transaction_read_only",
];

/// Settings that the client is told at the start and when they change, with the names in which it knows them.
const REPORTED: [(&str, &str); 13] = [
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// Characters of a setting's value at most.
const VALUE_CHARS_MAX: usize = 10_000;
/// Settings that a client makes up (`myapp.user`) at most.
const CUSTOM_MAX: usize = 100;

/// A connection's settings.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    values: BTreeMap<String, String>,
    /// What `RESET` returns to: the values at first and those of the startup message.
    initial: BTreeMap<String, String>,
}

impl Settings {
    /// The settings of a user who has set nothing.
    pub(super) fn new(user: &str) -> Self {
        let mut initial: BTreeMap<String, String> =
            KNOWN.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        initial.insert("session_authorization".to_owned(), user.to_owned());
        Self { values: initial.clone(), initial }
    }

    /// Makes the values of now those that `RESET` returns to.
    pub(super) fn keep_as_initial(&mut self) {
        self.initial = self.values.clone();
    }

    /// A setting's value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// Sets a value; with `None` the one at first.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        let name = name.to_ascii_lowercase();
        let is_custom = name.contains('.');
        if !is_custom && !self.initial.contains_key(&name) {
            return Err(unknown(&name));
        }
        if FIXED.contains(&name.as_str()) {
            return Err(SqlError::new(code::WRONG_STATE, format!("parameter \"{name}\" cannot be changed")));
        }
        let Some(value) = value.or_else(|| self.initial.get(&name).map(String::as_str)) else {
            self.values.remove(&name);
            return Ok(());
        };
        if value.chars().count() > VALUE_CHARS_MAX {
            return Err(SqlError::limit("length of a setting", VALUE_CHARS_MAX));
        }
        let value = checked(&name, value)?;
        if is_custom && !self.values.contains_key(&name) {
            let custom = self.values.keys().filter(|name| name.contains('.')).count();
            if custom >= CUSTOM_MAX {
                return Err(SqlError::limit("number of custom settings", CUSTOM_MAX));
            }
        }
        self.values.insert(name, value);
        Ok(())
    }

    /// Sets what only the server may: the state of the transaction.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Returns all to their values at first.
    pub(super) fn reset(&mut self) {
        self.values = self.initial.clone();
    }

    /// All names and values.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What the client is told, in the names in which it knows the settings.
    pub(super) fn reported(&self) -> Vec<(&'static str, String)> {
        let value = |name| self.get(name).unwrap_or_default().to_owned();
        REPORTED.iter().map(|(name, shown)| (*shown, value(*name))).collect()
    }

    /// How long a statement may take; `None`: as long as it takes.
    pub(super) fn statement_timeout(&self) -> Option<Duration> {
        let timeout = self.get("statement_timeout").and_then(duration)?;
        (!timeout.is_zero()).then_some(timeout)
    }

    /// The time zone, in a form that DataFusion reads.
    pub(super) fn time_zone(&self) -> String {
        self.get("timezone").and_then(time_zone).unwrap_or_else(|| "UTC".to_owned())
    }

    /// The schemas that names without one are looked for in.
    pub(super) fn search_path(&self) -> impl Iterator<Item = String> {
        let path = self.get("search_path").unwrap_or_default();
        path.split(',').map(|schema| schema.trim().trim_matches('"').to_owned())
    }
}

/// Whether Postgres knows a setting of this name, or a client may make it up.
pub(super) fn is_of_postgres(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !(name.starts_with("relserve.") || name.starts_with("datafusion."))
}

pub(super) fn unknown(name: &str) -> SqlError {
    SqlError::new(code::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// A value as it is kept, where it is one that the setting may have.
fn checked(name: &str, value: &str) -> Result<String, SqlError> {
    let invalid = || {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        SqlError::new(code::INVALID_PARAMETER_VALUE, message)
    };
    match name {
        "client_encoding" => match value.trim_matches('\'').to_ascii_uppercase().replace('-', "").as_str() {
            // asyncpg sends the quotes too.
            "UTF8" | "UNICODE" | "SQL_ASCII" => Ok("UTF8".to_owned()),
            _ => Err(invalid().with_hint("The server speaks UTF8 only.")),
        },
        "standard_conforming_strings" => match boolean(value) {
            Some(true) => Ok("on".to_owned()),
            _ => Err(invalid().with_hint("Backslashes are escapes in E'..' only.")),
        },
        "default_transaction_read_only" => match boolean(value) {
            Some(true) => Ok("on".to_owned()),
            Some(false) => Ok("off".to_owned()),
            None => Err(invalid()),
        },
        "timezone" => {
            let name = value.trim_matches(['"', '\'']);
            time_zone(name).map(|_| name.to_owned()).ok_or_else(invalid)
        }
        "statement_timeout" => duration(value).map(|_| value.to_owned()).ok_or_else(invalid),
        _ => Ok(value.to_owned()),
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" => Some(true),
        "off" | "false" | "no" | "0" | "f" => Some(false),
        _ => None,
    }
}

/// A span of time as Postgres writes it: milliseconds, or a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit_ms = match text[end..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit_ms / 1_000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_have_units() {
        let milliseconds = |text| duration(text).map(|span| span.as_millis());
        for (text, expected) in
            [("0", 0), ("250", 250), ("5s", 5_000), ("1 min", 60_000), ("1.5h", 5_400_000)]
        {
            assert_eq!(milliseconds(text), Some(expected), "{text}");
        }
        for text in ["", "s", "5 parsecs", "1e999", "-1"] {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }

    #[test]
    fn settings_are_set_reset_and_refused() {
        let mut settings = Settings::new("acme");
        settings.set("Extra_Float_Digits", Some("3")).unwrap();
        assert_eq!(settings.get("extra_float_digits"), Some("3"));
        settings.set("extra_float_digits", None).unwrap();
        assert_eq!(settings.get("extra_float_digits"), Some("1"));
        settings.set("myapp.user", Some("7")).unwrap();
        assert_eq!(settings.get("myapp.user"), Some("7"));
        let code = |result: Result<(), SqlError>| result.map_err(|error| error.code);
        assert_eq!(code(settings.set("no_such_thing", Some("1"))), Err(code::UNDEFINED_OBJECT));
        assert_eq!(code(settings.set("server_version", Some("9"))), Err(code::WRONG_STATE));
        assert_eq!(code(settings.set("client_encoding", Some("LATIN1"))), Err(code::INVALID_PARAMETER_VALUE));
    }
}
