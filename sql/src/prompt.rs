//! `prompt('.. {0} .. {1}', a, b)`: a text with numbered places for values.
//!
//! As the input of an AI function its places become fields of the relQuery's template, so that the engine
//! sees which parts rows share. Anywhere else it is a function that writes the text.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
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
            TemplatePart::Record => {}
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
    if template.has_record() {
        return plan_err!("prompt: `{{*}}` stands for no value; name places by number, {{0}} to {{9}}");
    }
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
                        TemplatePart::Record => {}
                    }
                }
            }
        }
    }
    out
}
