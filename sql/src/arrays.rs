//! Texts as arrays: `'{1,2}'::int[]`, which Postgres reads as its notation of arrays, and DataFusion as an
//! array of one text.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray as _, ListBuilder, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable as _, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

/// Puts a reader of the notation under each cast of a text to an array.
#[derive(Debug)]
pub(crate) struct TextToArray;

impl AnalyzerRule for TextToArray {
    fn name(&self) -> &str {
        "text_to_array"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let mut schema = DFSchema::empty();
            for input in node.inputs() {
                schema.merge(input.schema());
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let read = expr.transform_up(|expr| read(expr, &schema))?;
                Ok(read.update_data(|expr| name.restore(expr)))
            })
        })
        .map(|plan| plan.data)
    }
}

fn read(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Cast(Cast { expr: text, field }) = expr else { return Ok(Transformed::no(expr)) };
    let is_array = matches!(field.data_type(), DataType::List(_) | DataType::LargeList(_));
    let is_text =
        |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if !is_array || !is_text(&text.get_type(schema)?) {
        return Ok(Transformed::no(Expr::Cast(Cast { expr: text, field })));
    }
    let reader = ScalarUDF::from(ArrayOfText { signature: Signature::string(1, Volatility::Immutable) });
    Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(reader.call(vec![*text])), field })))
}

/// Reads arrays of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOfText {
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOfText {
    fn name(&self) -> &str {
        "array_of_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]);
        let texts = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = cast(&texts[0], &DataType::Utf8)?;
        let mut arrays = ListBuilder::new(StringBuilder::new());
        for text in texts.as_string::<i32>() {
            if let Some(text) = text {
                for item in items(text)? {
                    arrays.values().append_option(item);
                }
            }
            arrays.append(text.is_some());
        }
        let arrays = arrays.finish();
        Ok(if is_one {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&arrays, 0)?)
        } else {
            ColumnarValue::Array(Arc::new(arrays))
        })
    }
}

/// The items of `{a,"b, c",NULL}`.
fn items(text: &str) -> Result<Vec<Option<String>>> {
    let malformed = || exec_err!("malformed array literal: \"{text}\"");
    let Some(inside) = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
        return malformed();
    };
    let mut items = Vec::new();
    if inside.trim().is_empty() {
        return Ok(items);
    }
    let (mut item, mut is_quoted, mut was_quoted) = (String::new(), false, false);
    let mut letters = inside.chars();
    loop {
        let letter = letters.next();
        match letter {
            Some('\\') => item.extend(letters.next()),
            Some('"') => (is_quoted, was_quoted) = (!is_quoted, true),
            Some(letter) if is_quoted => item.push(letter),
            Some('{' | '}') => return exec_err!("arrays of arrays are not supported: \"{text}\""),
            Some(',') | None => {
                if is_quoted || (!was_quoted && item.trim().is_empty()) {
                    return malformed();
                }
                let whole = std::mem::take(&mut item);
                let is_null = !was_quoted && whole.trim().eq_ignore_ascii_case("null");
                let whole = if was_quoted { whole } else { whole.trim().to_owned() };
                items.push((!is_null).then_some(whole));
                was_quoted = false;
                if letter.is_none() {
                    return Ok(items);
                }
            }
            Some(letter) if was_quoted && letter.is_whitespace() => {}
            Some(letter) => item.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_of_arrays_is_read() {
        let texts =
            |items: &[Option<&str>]| items.iter().map(|item| item.map(str::to_owned)).collect::<Vec<_>>();
        for (text, expected) in [
            ("{}", texts(&[])),
            ("{1, 2}", texts(&[Some("1"), Some("2")])),
            (
                r#"{a,"b, \"c\"",NULL,"null",""}"#,
                texts(&[Some("a"), Some("b, \"c\""), None, Some("null"), Some("")]),
            ),
        ] {
            assert_eq!(items(text).unwrap(), expected, "{text}");
        }
        for text in ["", "1,2", "{a,,b}", "{\"a}", "{{1},{2}}"] {
            assert!(items(text).is_err(), "{text}");
        }
    }
}
