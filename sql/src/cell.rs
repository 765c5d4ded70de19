//! SQL values as cells of a prompt, and answers as SQL values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray as _, ListArray};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result, ScalarValue};
use ir::Cell;
use ir::catalogue::Argument;

/// The cell that a scalar stands for; its text is how Postgres clients see it.
pub(crate) fn of(value: &ScalarValue) -> Cell {
    if value.is_null() {
        return Cell::Null;
    }
    if let Some(Some(text)) = value.try_as_str() {
        return Cell::Text(text.to_owned());
    }
    match value {
        ScalarValue::Boolean(Some(flag)) => Cell::Bool(*flag),
        value if value.data_type().is_numeric() => Cell::Number(value.to_string()),
        value => Cell::Text(display(value)),
    }
}

/// The cell of an array's value; its text is not copied twice.
pub(crate) fn at(array: &dyn Array, place: usize) -> Result<Cell> {
    let text = match array.data_type() {
        _ if array.is_null(place) => return Ok(Cell::Null),
        DataType::Utf8 => array.as_string::<i32>().value(place),
        DataType::LargeUtf8 => array.as_string::<i64>().value(place),
        DataType::Utf8View => array.as_string_view().value(place),
        _ => return Ok(of(&ScalarValue::try_from_array(array, place)?)),
    };
    Ok(Cell::Text(text.to_owned()))
}

/// Dates, times and nested values as Arrow writes them: without the type around it.
fn display(value: &ScalarValue) -> String {
    let options = FormatOptions::default();
    let written = value.to_array().and_then(|array| {
        let formatter = ArrayFormatter::try_new(&array, &options)?;
        Ok(formatter.value(0).try_to_string()?)
    });
    written.unwrap_or_else(|_| value.to_string())
}

/// The argument of a cell function that a value stands for: a scalar, a list, or a list of lists.
pub(crate) fn argument(value: &ScalarValue) -> Argument {
    match items(value) {
        None => Argument::Cell(of(value)),
        Some(values) => {
            let rows: Option<Vec<Vec<Cell>>> = values
                .iter()
                .map(|value| items(value).map(|values| values.iter().map(of).collect()))
                .collect();
            match rows {
                Some(rows) if !rows.is_empty() => Argument::Range(rows),
                _ => Argument::List(values.iter().map(of).collect()),
            }
        }
    }
}

/// The items of a list; `None` of anything else.
pub(crate) fn items(value: &ScalarValue) -> Option<Vec<ScalarValue>> {
    let list = match value {
        ScalarValue::List(list) if !list.is_null(0) => list.value(0),
        ScalarValue::LargeList(list) if !list.is_null(0) => list.value(0),
        ScalarValue::FixedSizeList(list) if !list.is_null(0) => list.value(0),
        _ => return None,
    };
    (0..list.len()).map(|row| ScalarValue::try_from_array(&list, row).ok()).collect()
}

/// The type of a list of texts.
pub(crate) fn list_of_text() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// The type of a vector.
pub(crate) fn list_of_numbers() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float32, true)))
}

/// A vector as a list of numbers.
pub(crate) fn number_list(numbers: &[f32]) -> ScalarValue {
    let numbers = numbers.iter().copied().map(Some);
    ScalarValue::List(Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>([Some(numbers)])))
}

/// A list of texts.
pub(crate) fn text_list(texts: impl IntoIterator<Item = String>) -> ScalarValue {
    let values: Vec<ScalarValue> = texts.into_iter().map(ScalarValue::from).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8))
}

/// The labels that a value stands for. Drivers send a list as text, an array as Postgres writes it
/// (`{good,"not so good"}`), where the server does not say that it wants one.
pub(crate) fn labels(value: &ScalarValue) -> Argument {
    let text = value.try_as_str().flatten().map(str::trim);
    match text.and_then(|text| text.strip_prefix('{')?.strip_suffix('}')) {
        Some(items) => Argument::List(array_items(items).into_iter().map(Cell::from).collect()),
        None => argument(value),
    }
}

/// The items between the braces of an array's text.
fn array_items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let (mut is_quoted, mut letters) = (false, text.chars());
    while let Some(letter) = letters.next() {
        let item = items.last_mut().expect("there is one item at least");
        match letter {
            '\\' => item.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => items.push(String::new()),
            letter => item.push(letter),
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_as_text_is_its_labels() {
        let list = |items: &[&str]| Argument::List(items.iter().map(|item| Cell::from(*item)).collect());
        let read = |text: &str| labels(&ScalarValue::from(text));
        assert_eq!(read("{good,bad}"), list(&["good", "bad"]));
        assert_eq!(read(r#"{"not so good","a \"b\"",c}"#), list(&["not so good", "a \"b\"", "c"]));
        assert_eq!(read("good, bad"), Argument::Cell("good, bad".into()));
    }
}
