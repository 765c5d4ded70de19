//! What an error says to people: DataFusion's own words for where it arose are left out, on every protocol.

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;

/// What DataFusion and its parser write before a message to say which part of them it comes from. Words that tell the
/// reader something ("This feature is not implemented") are not among them.
const PREFIXES: [&str; 6] = [
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Schema error: ",
    "Arrow error: ",
    "sql parser error: ",
];

/// Why a statement has no result: its error's cause, without the names of rules that it passed.
pub fn reason(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::SQL(cause, _) => of_parser(cause),
        cause => without_prefixes(&cause.to_string()).to_owned(),
    }
}

/// What the parser says of a statement.
pub(crate) fn of_parser(error: &ParserError) -> String {
    match error {
        ParserError::RecursionLimitExceeded => "statement is nested too deeply".to_owned(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            format!("syntax error: {}", without_prefixes(message))
        }
    }
}

/// A message without traces of the stack and prefixes that say where it arose.
pub(crate) fn without_prefixes(message: &str) -> &str {
    let mut message = message.split("\n\nbacktrace:").next().unwrap_or(message).trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest;
    }
    message
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::error::ArrowError;

    use super::*;

    fn check(error: &DataFusionError, expected: &str) {
        assert_eq!(reason(error), expected);
    }

    #[test]
    fn an_error_says_why_and_not_where_in_datafusion_it_arose() {
        let plan = |text: &str| DataFusionError::Plan(text.to_owned());
        check(&plan("table 'shop.public.t' not found"), "table 'shop.public.t' not found");
        check(&plan("Execution error: it broke\n\nbacktrace: 0: deep inside"), "it broke");
        check(&plan("it broke").context("type_coercion"), "it broke");
        check(&DataFusionError::from(ArrowError::DivideByZero), "Divide by zero error");
        let nested = DataFusionError::External(Box::new(DataFusionError::Execution("it broke".to_owned())));
        check(&nested, "it broke");
        let wrong = ParserError::ParserError("Expected: a statement, found: SELEC".to_owned());
        check(&DataFusionError::from(wrong), "syntax error: Expected: a statement, found: SELEC");
        let unknown = DataFusionError::NotImplemented("MERGE".to_owned());
        check(&unknown, "This feature is not implemented: MERGE");
    }
}
