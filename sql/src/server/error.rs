//! Errors as Postgres clients know them: a SQLSTATE code and a message without DataFusion's internals.

use std::fmt;
use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;
use pgwire::error::{ErrorInfo, PgWireError};

use crate::access::AccessDenied;
use crate::budget::BudgetSpent;
use crate::error_text::{self, without_prefixes};
use crate::runner::RunError;

/// SQLSTATE codes (Appendix A of Postgres' manual) that this server gives.
pub(super) mod code {
    pub(crate) const WARNING: &str = "01000";
    pub(crate) const SUCCESS: &str = "00000";
    pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(crate) const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub(crate) const DATA_EXCEPTION: &str = "22000";
    pub(crate) const NUMERIC_OUT_OF_RANGE: &str = "22003";
    pub(crate) const DIVISION_BY_ZERO: &str = "22012";
    pub(crate) const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
    pub(crate) const INVALID_PARAMETER_VALUE: &str = "22023";
    pub(crate) const INVALID_TEXT: &str = "22P02";
    pub(crate) const ACTIVE_TRANSACTION: &str = "25001";
    pub(crate) const READ_ONLY: &str = "25006";
    pub(crate) const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub(crate) const IN_FAILED_TRANSACTION: &str = "25P02";
    pub(crate) const UNKNOWN_STATEMENT: &str = "26000";
    pub(crate) const INVALID_AUTHORIZATION: &str = "28000";
    pub(crate) const INVALID_PASSWORD: &str = "28P01";
    pub(crate) const INVALID_CURSOR: &str = "34000";
    pub(crate) const PLAN: &str = "42000";
    pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub(crate) const SYNTAX: &str = "42601";
    pub(crate) const AMBIGUOUS_COLUMN: &str = "42702";
    pub(crate) const UNDEFINED_COLUMN: &str = "42703";
    pub(crate) const UNDEFINED_OBJECT: &str = "42704";
    pub(crate) const DATATYPE_MISMATCH: &str = "42804";
    pub(crate) const UNDEFINED_FUNCTION: &str = "42883";
    pub(crate) const UNDEFINED_TABLE: &str = "42P01";
    pub(crate) const DUPLICATE_CURSOR: &str = "42P03";
    pub(crate) const DUPLICATE_STATEMENT: &str = "42P05";
    pub(crate) const DUPLICATE_TABLE: &str = "42P07";
    pub(crate) const OUT_OF_MEMORY: &str = "53200";
    pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
    pub(crate) const LIMIT_EXCEEDED: &str = "54000";
    pub(crate) const TOO_COMPLEX: &str = "54001";
    pub(crate) const TOO_MANY_COLUMNS: &str = "54011";
    pub(crate) const WRONG_STATE: &str = "55000";
    pub(crate) const QUERY_CANCELLED: &str = "57014";
    pub(crate) const SHUTDOWN: &str = "57P01";
    pub(crate) const IO: &str = "58030";
    pub(crate) const INTERNAL: &str = "XX000";
}

/// An error for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlError {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The connection ends with it.
    pub(super) is_fatal: bool,
}

impl SqlError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, is_fatal: false }
    }

    pub(super) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { is_fatal: true, ..Self::new(code, message) }
    }

    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A limit of this server that a request exceeds.
    pub(super) fn limit(what: &str, max: usize) -> Self {
        Self::new(code::LIMIT_EXCEEDED, format!("{what} exceeds the limit of {max}"))
    }

    /// A message that is not as the protocol wants it.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::fatal(code::PROTOCOL_VIOLATION, message)
    }

    /// The fields of an ErrorResponse.
    pub(super) fn info(self) -> ErrorInfo {
        let severity = if self.is_fatal { "FATAL" } else { "ERROR" };
        let mut info = ErrorInfo::new(severity.to_owned(), self.code.to_owned(), self.message);
        info.severity_nonlocalized = Some(severity.to_owned());
        info.hint = self.hint;
        info
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        of_datafusion(&error)
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        of_arrow(&error)
    }
}

/// Values that cannot be written or read in the protocol's formats.
impl From<PgWireError> for SqlError {
    fn from(error: PgWireError) -> Self {
        match error {
            PgWireError::UserError(info) if info.code == "22023" => {
                Self::new(code::INVALID_PARAMETER_VALUE, info.message)
            }
            PgWireError::UserError(info) => Self::new(code::DATA_EXCEPTION, info.message),
            PgWireError::FailedToParseParameter(cause) => {
                Self::new(code::INVALID_TEXT, format!("invalid parameter value: {cause}"))
            }
            other => Self::new(code::DATA_EXCEPTION, other.to_string()),
        }
    }
}

fn of_datafusion(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => of_datafusion(inner),
        DataFusionError::Shared(inner) => of_datafusion(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => of_datafusion(first),
            None => SqlError::new(code::INTERNAL, "unknown error"),
        },
        DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => of_datafusion(inner),
            None if inner.is::<AccessDenied>() => {
                SqlError::new(code::INSUFFICIENT_PRIVILEGE, inner.to_string())
            }
            None if inner.is::<RunError>() || inner.is::<BudgetSpent>() => {
                of_execution(&clean(&inner.to_string()))
            }
            None => SqlError::new(code::DATA_EXCEPTION, clean(&inner.to_string())),
        },
        DataFusionError::SQL(inner, _) => of_parser(inner),
        DataFusionError::SchemaError(inner, _) => of_schema(inner),
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        DataFusionError::Plan(message) => of_plan(&clean(message)),
        DataFusionError::NotImplemented(message) => {
            SqlError::new(code::FEATURE_NOT_SUPPORTED, clean(message))
        }
        DataFusionError::Configuration(message) => {
            SqlError::new(code::INVALID_PARAMETER_VALUE, clean(message))
        }
        DataFusionError::ResourcesExhausted(message) => SqlError::new(code::OUT_OF_MEMORY, clean(message)),
        DataFusionError::Execution(message) => of_execution(&clean(message)),
        DataFusionError::IoError(inner) => SqlError::new(code::IO, inner.to_string()),
        DataFusionError::Internal(message) => {
            SqlError::new(code::INTERNAL, first_line(&clean(message)).to_owned())
        }
        other => SqlError::new(code::DATA_EXCEPTION, clean(&other.message())),
    }
}

fn of_parser(error: &ParserError) -> SqlError {
    let code = match error {
        ParserError::RecursionLimitExceeded => code::TOO_COMPLEX,
        ParserError::TokenizerError(_) | ParserError::ParserError(_) => code::SYNTAX,
    };
    SqlError::new(code, without_catalogue(&error_text::of_parser(error)))
}

fn of_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names: Vec<&str> = valid_fields.iter().take(20).map(|column| column.name.as_str()).collect();
            let error = SqlError::new(
                code::UNDEFINED_COLUMN,
                format!("column \"{}\" does not exist", field.flat_name()),
            );
            if names.is_empty() { error } else { error.with_hint(format!("Columns: {}", names.join(", "))) }
        }
        SchemaError::AmbiguousReference { field } => {
            SqlError::new(code::AMBIGUOUS_COLUMN, format!("column reference \"{}\" is ambiguous", field.name))
        }
        other => SqlError::new(code::PLAN, clean(&other.to_string())),
    }
}

fn of_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(code::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => SqlError::new(code::NUMERIC_OUT_OF_RANGE, clean(message)),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            SqlError::new(code::INVALID_TEXT, clean(message))
        }
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => of_datafusion(inner),
            None => SqlError::new(code::DATA_EXCEPTION, clean(&inner.to_string())),
        },
        other => SqlError::new(code::DATA_EXCEPTION, clean(&other.to_string())),
    }
}

/// Errors of planning, which DataFusion tells apart by their texts only.
fn of_plan(message: &str) -> SqlError {
    let lower = message.to_ascii_lowercase();
    if let Some(name) = between(message, "table '", "' not found") {
        return SqlError::new(code::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", bare(name)));
    }
    if let Some(name) = between(message, "Invalid function '", "'") {
        let error = SqlError::new(code::UNDEFINED_FUNCTION, format!("function {name} does not exist"));
        return match between(message, "Did you mean '", "'") {
            Some(other) => error.with_hint(format!("Did you mean {other}?")),
            None => error,
        };
    }
    let code = if let Some(code) = of_objects(&lower) {
        code
    } else if lower.contains("no function matches") || lower.contains("table function") {
        code::UNDEFINED_FUNCTION
    } else if lower.contains("column") && lower.contains("not found") {
        code::UNDEFINED_COLUMN
    } else if lower.contains("cannot coerce") || lower.contains("cannot infer common") {
        code::DATATYPE_MISMATCH
    } else {
        code::PLAN
    };
    SqlError::new(code, message)
}

/// The code of what planning and execution say alike of objects.
fn of_objects(lower: &str) -> Option<&'static str> {
    let known: [(&str, &'static str); 4] = [
        ("already exists", code::DUPLICATE_TABLE),
        ("doesn't exist", code::UNDEFINED_TABLE),
        ("does not exist", code::UNDEFINED_TABLE),
        ("is not allowed", code::INSUFFICIENT_PRIVILEGE),
    ];
    known.iter().find(|(words, _)| lower.contains(words)).map(|(_, code)| *code)
}

fn of_execution(message: &str) -> SqlError {
    let lower = message.to_ascii_lowercase();
    let code = if let Some(code) = of_objects(&lower) {
        code
    } else if lower.contains("unrecognized configuration parameter") {
        code::UNDEFINED_OBJECT
    } else if lower.contains("max_tokens") || lower.contains("the next call may take") {
        code::LIMIT_EXCEEDED
    } else {
        code::DATA_EXCEPTION
    };
    SqlError::new(code, message)
}

/// A message in its own words, and with names as clients write them.
fn clean(message: &str) -> String {
    without_catalogue(without_prefixes(message))
}

/// Names as clients write them: `reviews`, not `shop.public.reviews`.
fn without_catalogue(message: &str) -> String {
    let mut parts = message.split(".public.");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
        shown.truncate(shown.trim_end_matches(is_of_name).len());
        shown.push_str(part);
    }
    shown
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or(message)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

/// A table's name as clients write it: without the catalogue, and without the schema that is searched anyway.
fn bare(name: &str) -> &str {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        [_, "public", table] => table,
        [_, schema, _] => &name[name.find(schema).unwrap_or(0)..],
        _ => name,
    }
}

/// How a request ends when it does not succeed.
#[derive(Debug)]
pub(super) enum Stop {
    /// The client is gone.
    Closed,
    /// An error that the client is told.
    Failed(SqlError),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl From<SqlError> for Stop {
    fn from(error: SqlError) -> Self {
        Self::Failed(error)
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: DataFusionError, code: &str, message: &str) {
        let error = SqlError::from(error);
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }

    #[test]
    fn errors_of_datafusion_have_the_codes_of_postgres() {
        check(
            DataFusionError::Plan("table 'datafusion.public.ghosts' not found".to_owned()),
            "42P01",
            "relation \"ghosts\" does not exist",
        );
        check(
            DataFusionError::Plan("table 'datafusion.relserve.ghosts' not found".to_owned()),
            "42P01",
            "relation \"relserve.ghosts\" does not exist",
        );
        check(
            DataFusionError::Plan("Invalid function 'foo'.\nDid you mean 'floor'?".to_owned()),
            "42883",
            "function foo does not exist",
        );
        check(ArrowError::DivideByZero.into(), "22012", "division by zero");
        let spent = "relserve.max_tokens is 5: the statement has computed 7 tokens, 0 are left, and the next call may take 1";
        check(DataFusionError::External(Box::new(BudgetSpent::of_session(5, 7))), "54000", spent);
        let refused = RunError::caused_by(BudgetSpent::of_session(5, 7));
        check(refused.into(), "54000", spent);
        check(RunError::new("it broke").into(), "22000", "it broke");
        check(
            DataFusionError::NotImplemented("MERGE\n\nbacktrace: 0: deep inside".to_owned()),
            "0A000",
            "MERGE",
        );
    }
}
