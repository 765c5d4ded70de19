//! `prompt('.. {0} .. {1}', a, b)`: a text with numbered places for values; `{*}` is the record of all values
//! that no number names, as a JSON object of columns.
//!
//! As the input of an AI function its places become fields of the relQuery's template, so that the engine
//! sees which parts rows share. Anywhere else it is a function that writes the text.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, Result, ScalarValue, TableReference, exec_err, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ir::{Cell, Template, TemplatePart};

use crate::cell;

/// Its name in SQL.
pub const NAME: &str = "prompt";

/// The function itself.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Prompt {
    signature: Signature,
}

/// `prompt` for a session.
pub fn function() -> ScalarUDF {
    ScalarUDF::from(Prompt { signature: Signature::variadic_any(Volatility::Immutable) })
}

impl ScalarUDFImpl for Prompt {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|value| value.to_array(rows)).collect::<Result<_>>()?;
        let mut texts: Vec<Option<String>> = Vec::with_capacity(rows);
        for row in 0..rows {
            let values: Vec<ScalarValue> =
                arrays.iter().map(|array| ScalarValue::try_from_array(array, row)).collect::<Result<_>>()?;
            texts.push(written(&values)?);
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(texts))))
    }
}

/// The text with its places filled; NULL where a value is.
fn written(values: &[ScalarValue]) -> Result<Option<String>> {
    let Some((text, values)) = values.split_first() else { return plan_err!("prompt: needs a text") };
    let Some(Some(text)) = text.try_as_str() else { return Ok(None) };
    let template = parse(text, values.len())?;
    let mut out = String::new();
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => out.push_str(text),
            TemplatePart::Record => return exec_err!("prompt: `{{*}}` is for prompts of AI functions"),
            TemplatePart::Field(name) => {
                let Some(cell) = name.parse().ok().and_then(|place: usize| values.get(place)) else {
                    return exec_err!("prompt: has no value {{{name}}}");
                };
                match cell::of(cell) {
                    Cell::Null => return Ok(None),
                    cell => out.push_str(&cell.text()),
                }
            }
        }
    }
    Ok(Some(out))
}

/// Reads a prompt's text; places count from 0 and each has a value.
pub fn parse(text: &str, values: usize) -> Result<Template> {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => return plan_err!("prompt: {error}"),
    };
    for name in template.fields() {
        match name.parse::<usize>() {
            Ok(place) if place < values => {}
            Ok(_) => {
                return plan_err!("prompt: has a place {{{name}}} and {values} values (places count from 0)");
            }
            Err(_) => {
                return plan_err!("prompt: the place {{{name}}} must be a number; write {{{{ for a brace");
            }
        }
    }
    Ok(template)
}

/// A prompt's text, and the values that its record holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct PromptSource {
    pub text: String,
    /// Those of the values that `{*}` stands for, by their places and names; none without `{*}`.
    pub record: Vec<(usize, String)>,
}

/// The same, ready to be filled.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptTemplate {
    pub template: Template,
    /// As [`PromptSource::record`].
    pub record: Vec<(usize, String)>,
}

impl PromptTemplate {
    /// Whether a place has NULL. In a record NULL is a value.
    pub fn lacks_a_value(&self, values: &[ScalarValue]) -> bool {
        values.iter().enumerate().any(|(place, value)| value.is_null() && !self.is_of_record(place))
    }

    /// Whether a value is one of the record's.
    pub fn is_of_record(&self, place: usize) -> bool {
        self.record.iter().any(|(of_record, _)| *of_record == place)
    }
}

impl PromptSource {
    /// Checks a text against its values, which give the record's columns their names.
    pub fn of(text: &str, values: &[Expr]) -> Result<Self> {
        let template = parse(text, values.len())?;
        let mut record: Vec<(usize, String)> = Vec::new();
        if template.has_record() {
            let placed = template.fields();
            for (place, value) in values.iter().enumerate() {
                if placed.contains(&place.to_string().as_str()) {
                    continue;
                }
                let name = match value {
                    Expr::Column(column) => column.name.clone(),
                    value => value.human_display().to_string(),
                };
                if record.iter().any(|(_, known)| *known == name) || placed.contains(&name.as_str()) {
                    return plan_err!(
                        "prompt: `{{*}}` has two values with the name `{name}`; select one of them AS another \
                         name first"
                    );
                }
                record.push((place, name));
            }
            if record.is_empty() {
                return plan_err!(
                    "prompt: `{{*}}` stands for the values that no number names, and there is none"
                );
            }
        }
        Ok(Self { text: text.to_owned(), record })
    }

    /// Parses it.
    pub fn template(&self, values: usize) -> Result<PromptTemplate> {
        Ok(PromptTemplate { template: parse(&self.text, values)?, record: self.record.clone() })
    }
}

/// Puts the columns of a table in the place of `t.*` among the values of prompts.
pub fn expand(plan: LogicalPlan) -> Result<LogicalPlan> {
    let expanded = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(has_wildcard) {
            return Ok(Transformed::no(node));
        }
        let mut columns: Vec<Column> = Vec::new();
        for input in node.inputs() {
            columns.extend(input.schema().columns());
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expanded = expr.transform_up(|expr| Ok(Transformed::yes(with_columns(expr, &columns))))?;
            Ok(expanded.update_data(|expr| name.restore(expr)))
        })
    });
    expanded.map(|transformed| transformed.data)
}

fn has_wildcard(expr: &Expr) -> bool {
    expr.exists(|expr| {
        Ok(arguments(expr).is_some_and(|values| values.iter().any(|value| wildcard(value).is_some())))
    })
    .unwrap_or(false)
}

/// The table that a wildcard is of; of all tables, where it names none.
#[expect(deprecated, reason = "the planner has no other form for it")]
fn wildcard(expr: &Expr) -> Option<Option<&TableReference>> {
    match expr {
        Expr::Wildcard { qualifier, .. } => Some(qualifier.as_ref()),
        _ => None,
    }
}

fn with_columns(expr: Expr, columns: &[Column]) -> Expr {
    let Expr::ScalarFunction(mut call) = expr else { return expr };
    if call.func.name() == NAME {
        let values = std::mem::take(&mut call.args);
        for value in values {
            let Some(table) = wildcard(&value) else {
                call.args.push(value);
                continue;
            };
            let of_table = |column: &&Column| match (table, &column.relation) {
                (None, _) => true,
                (Some(table), Some(relation)) => relation.resolved_eq(table),
                (Some(_), None) => false,
            };
            call.args.extend(columns.iter().filter(of_table).cloned().map(Expr::Column));
        }
    }
    Expr::ScalarFunction(call)
}

/// The arguments of a call of `prompt`, where an expression is one.
pub fn arguments(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == NAME => Some(&call.args),
        Expr::Alias(alias) => arguments(&alias.expr),
        Expr::Cast(cast) => arguments(&cast.expr),
        _ => None,
    }
}

/// Puts a prompt in the place of the one field that a template has left.
pub fn splice(template: &Template, prompt: &Template) -> Template {
    let mut out = Template::default();
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => out.push_text(text),
            TemplatePart::Record => {}
            TemplatePart::Field(_) => {
                for part in prompt.parts() {
                    match part {
                        TemplatePart::Text(text) => out.push_text(text),
                        TemplatePart::Field(name) => out.push_field(name),
                        TemplatePart::Record => out.push_record(),
                    }
                }
            }
        }
    }
    out
}
