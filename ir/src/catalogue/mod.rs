//! The catalogue of cell functions: one prompt template each, read from `ir/catalogue.toml`.
//!
//! A call binds to a template in which everything but one argument, the *row*, is filled in: calls
//! that differ in their row alone are rows of one relQuery. The catalogue knows nothing of HTTP or
//! of who calls.

mod answer;
mod argument;
mod bind;
mod examples;
mod form;
mod function;
mod reading;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use answer::{Answer, AnswerError, AnswerValue};
pub use argument::Argument;
pub use bind::{BoundCall, Guide, SharedCall};
use function::FunctionEntry;
pub use function::{AnswerKind, CallError, CatalogueError, Function, Parameter, ParameterKind};
pub use reading::of_row as constraint_of_row;

/// The catalogue this program was built with.
static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(|| {
    Catalogue::parse(include_str!("../../catalogue.toml")).expect("a test reads the same file")
});

/// The cell functions.
#[derive(Clone, Debug)]
pub struct Catalogue {
    functions: BTreeMap<String, Function>,
}

impl Catalogue {
    /// The catalogue this program was built with.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// Reads a catalogue file.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let entries: BTreeMap<String, FunctionEntry> =
            toml::from_str(text).map_err(|error| CatalogueError(error.to_string()))?;
        let functions = entries
            .into_iter()
            .map(|(name, entry)| Ok((name.clone(), Function::new(name, entry)?)))
            .collect::<Result<_, CatalogueError>>()?;
        Ok(Self { functions })
    }

    /// A function by its name, in any case.
    pub fn function(&self, name: &str) -> Result<&Function, CallError> {
        self.functions.get(&name.to_ascii_lowercase()).ok_or_else(|| {
            let known: Vec<&str> = self.functions.keys().map(String::as_str).collect();
            let name = name.chars().take(50).collect();
            CallError::UnknownFunction { name, known: known.join(", ") }
        })
    }

    /// All functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// Binds a call.
    pub fn bind(&self, function: &str, arguments: &[Argument]) -> Result<BoundCall, CallError> {
        self.function(function)?.bind(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalogue_has_every_function_of_the_sheet() {
        let names: Vec<&str> =
            Catalogue::built_in().functions().map(|function| function.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ask",
                "classify",
                "edit",
                "extract",
                "fill",
                "format",
                "list",
                "rate",
                "summarize",
                "tag",
                "translate"
            ]
        );
        assert_eq!(
            Catalogue::built_in().function("CLASSIFY").map(|function| function.answer),
            Ok(AnswerKind::Label)
        );
    }

    #[test]
    fn an_unknown_function_is_answered_with_the_known_ones() {
        let error = Catalogue::built_in().function("sum").expect_err("there is no sum");
        assert!(
            error.to_string().starts_with("unknown function `sum`; there are: ask, classify, "),
            "{error}"
        );
    }

    #[test]
    fn a_template_that_names_no_argument_is_refused() {
        let file = "[f]\nsummary = ''\narguments = [['a', 'text']]\ntemplate = '{b}'\noutput_max = 1\n";
        let error = Catalogue::parse(file).expect_err("b is no argument");
        assert_eq!(error.to_string(), "catalogue: f: the template names `b`, which is no argument");
    }
}
