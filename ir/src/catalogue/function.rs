//! A cell function as the catalogue's file writes it, and why a call of one cannot be bound.

use std::collections::BTreeMap;

use base::TokenCount;
use serde::Deserialize;

use super::argument::Argument;
use crate::template::Template;

/// A cell function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name, as called.
    pub name: String,
    /// What it does, one line.
    pub summary: String,
    /// Its arguments, in call order, the optional ones last.
    pub parameters: Vec<Parameter>,
    /// Its prompt; fields name arguments.
    pub template: Template,
    /// Most output tokens.
    pub output_max: TokenCount,
    /// Most output tokens for each item asked for, where the caller says how many.
    pub output_max_per_item: Option<TokenCount>,
    /// How its answers are read.
    pub answer: AnswerKind,
    /// Calls with their answers, for models that take turns; those are shown that are most like a call.
    pub(super) examples: Vec<Example>,
    /// Most examples that are shown.
    pub(super) examples_max: usize,
    /// The prompt behind turns made of the call's own pairs, where it has such an argument.
    pub(super) pair_template: Option<Template>,
}

/// A call with its answer.
#[derive(Clone, Debug)]
pub(super) struct Example {
    pub(super) arguments: Vec<Argument>,
    pub(super) answer: String,
}

/// An argument a function takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    /// What may be given for it.
    pub kind: ParameterKind,
    /// Whether it may be left out.
    pub optional: bool,
    /// What stands in the prompt where it is left out.
    pub default: Option<String>,
}

/// What may be given for an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterKind {
    /// One cell.
    Text,
    /// Cells: a list, a range, or one cell with commas.
    List,
    /// Rows of two cells: what goes in, what comes out.
    Pairs,
    /// An integer.
    Number,
}

/// How an answer is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// As it is, without white space around it.
    #[default]
    Text,
    /// One of the labels given.
    Label,
    /// Items, one a line.
    Lines,
    /// An integer of the range given.
    Integer,
    /// A stretch of the row's text, or `none`.
    Excerpt,
    /// Some of the tags given, or any short ones, separated by commas.
    Tags,
    /// Text of the form that the target says.
    Format,
    /// Text of the form that the answers of the pairs have.
    Pair,
}

/// A call that cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No such function.
    #[error("unknown function `{name}`; there are: {known}")]
    UnknownFunction {
        name: String,
        /// The names there are.
        known: String,
    },
    /// More arguments than the function takes.
    #[error("{function}: takes at most {limit} arguments, got {found}")]
    TooManyArguments {
        function: String,
        /// Arguments given.
        found: usize,
        /// Arguments it takes.
        limit: usize,
    },
    /// An argument that is missing or does not fit.
    #[error("{function}: argument `{argument}` {reason}")]
    Argument {
        function: String,
        /// The argument's name.
        argument: String,
        /// What is wrong, with the limit.
        reason: String,
    },
}

/// A catalogue file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("catalogue: {0}")]
pub struct CatalogueError(pub(super) String);

/// A function as the file writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionEntry {
    summary: String,
    arguments: Vec<(String, ParameterKind)>,
    template: String,
    output_max: u64,
    output_max_per_item: Option<u64>,
    #[serde(default)]
    answer: AnswerKind,
    #[serde(default)]
    defaults: BTreeMap<String, String>,
    #[serde(default)]
    examples: Vec<ExampleEntry>,
    #[serde(default = "examples_max")]
    examples_max: usize,
    pair_template: Option<String>,
}

fn examples_max() -> usize {
    4
}

/// An example as the file writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleEntry {
    arguments: Vec<serde_json::Value>,
    answer: String,
}

impl Function {
    pub(super) fn new(name: String, entry: FunctionEntry) -> Result<Self, CatalogueError> {
        let fail = |what: String| CatalogueError(format!("{name}: {what}"));
        let template = Template::parse(&entry.template).map_err(|error| fail(error.to_string()))?;
        if template.has_record() {
            return Err(fail("its template has `{*}`, and arguments are no table".into()));
        }
        let parameters: Vec<Parameter> = entry
            .arguments
            .into_iter()
            .map(|(written, kind)| {
                let name = written.trim_end_matches('?').to_owned();
                let default = entry.defaults.get(&name).cloned();
                Parameter { optional: name.len() < written.len(), name, kind, default }
            })
            .collect();
        let is_named = |field: &&str| parameters.iter().any(|parameter| parameter.name == **field);
        if let Some(field) = template.fields().into_iter().find(|field| !is_named(field)) {
            return Err(fail(format!("the template names `{field}`, which is no argument")));
        }
        if !parameters.iter().is_sorted_by_key(|parameter| parameter.optional) {
            return Err(fail("optional arguments come last".into()));
        }
        let pair_template = entry.pair_template.as_deref().map(Template::parse).transpose();
        let pair_template = pair_template.map_err(|error| fail(error.to_string()))?;
        let example = |entry: ExampleEntry| {
            let arguments: Option<Vec<Argument>> = entry.arguments.iter().map(Argument::from_json).collect();
            Some(Example { arguments: arguments?, answer: entry.answer })
        };
        let examples = entry.examples.into_iter().map(example).collect::<Option<Vec<_>>>();
        let function = Self {
            examples: examples.ok_or_else(|| fail("an example has an argument that is no cell".into()))?,
            examples_max: entry.examples_max,
            pair_template,
            name: name.clone(),
            summary: entry.summary,
            parameters,
            template,
            output_max: TokenCount(entry.output_max),
            output_max_per_item: entry.output_max_per_item.map(TokenCount),
            answer: entry.answer,
        };
        // Found out now, not by who calls first.
        for number in 0..function.examples.len() {
            function
                .turn(number, Some((1, 5)))
                .map_err(|error| fail(format!("example {}: {error}", number + 1)))?;
        }
        Ok(function)
    }
}
