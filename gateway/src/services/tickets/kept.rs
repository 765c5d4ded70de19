//! What a ticket keeps of its request: of a running relQuery the columns that its template reads, of one that has ended
//! how many rows it had.

use ir::Template;
use serde_json::{Map, Value, json};
use serving::model::Model;
use serving::relquery_state::{RelQueryKind, RelQueryState};

use crate::json::JsonFields;

/// Stands in place of `rows` once the relQuery has ended.
const ENDED_ROWS: &str = "ended_rows";

/// The request without what its work does not need.
pub(super) fn needed(kind: &str, request: &[u8]) -> String {
    let whole = || String::from_utf8_lossy(request).into_owned();
    if kind != "relquery" {
        return whole();
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(request) else { return whole() };
    match keep_columns(&mut fields) {
        Some(()) => Value::Object(fields).to_string(),
        None => whole(),
    }
}

/// Drops cells of columns that the template does not name. `None` where all are needed, or where that is not known:
/// the request may be half changed then.
fn keep_columns(fields: &mut Map<String, Value>) -> Option<()> {
    let template = Template::parse(fields.get("template")?.as_str()?).ok()?;
    let names = template.fields();
    // A record has all columns, in an order that may hang on those that determine each other.
    if template.has_record() || names.is_empty() || fields.contains_key("dependencies") {
        return None;
    }
    let is_read = |name: &str| names.contains(&name);
    let mut places = None;
    if let Some(columns) = fields.get_mut("columns") {
        let columns = columns.as_array_mut()?;
        let kept = |(_, name): &(usize, &Value)| name.as_str().is_some_and(is_read);
        let found: Vec<usize> = columns.iter().enumerate().filter(kept).map(|(place, _)| place).collect();
        *columns = found.iter().map(|place| columns[*place].clone()).collect();
        places = Some(found);
    }
    for row in fields.get_mut("rows")?.as_array_mut()? {
        match (row, &places) {
            (Value::Object(cells), _) => cells.retain(|name, _| is_read(name)),
            (Value::Array(cells), Some(places)) => {
                *cells = places.iter().map(|place| cells.get(*place).cloned()).collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// What is left of the request of a relQuery that has ended; `None` where its answers cannot be shown without it.
pub(super) fn after_end(relquery: &RelQueryState, model: &Model) -> Option<String> {
    let rows = relquery.read().rows.len();
    let is_table = matches!(relquery.kind, RelQueryKind::RelQuery);
    is_table.then(|| json!({ "model": model.name, ENDED_ROWS: rows }).to_string())
}

/// How many rows a request had of which [`after_end`] is left.
pub(super) fn rows_after_end(fields: &JsonFields) -> Option<usize> {
    fields.count(ENDED_ROWS).and_then(|rows| usize::try_from(rows).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed_of(request: &Value) -> Value {
        serde_json::from_str(&needed("relquery", request.to_string().as_bytes())).expect("JSON")
    }

    #[test]
    fn only_columns_that_the_template_names_are_kept() {
        let list = json!({"template": "{b} {a}", "columns": ["x", "a", "y", "b"], "rows": [[1, 2, 3, 4], [5, 6, 7, 8]]});
        let kept = needed_of(&list);
        assert_eq!((&kept["columns"], &kept["rows"]), (&json!(["a", "b"]), &json!([[2, 4], [6, 8]])));
        let named =
            json!({"template": "{a}", "rows": [{"a": "1", "x": "2"}, {"x": "3", "a": "4"}], "seed": 7});
        assert_eq!(
            needed_of(&named),
            json!({"template": "{a}", "rows": [{"a": "1"}, {"a": "4"}], "seed": 7})
        );
    }

    #[test]
    fn what_may_need_more_is_kept_whole() {
        for template in ["{*}", "{a} {*}", "no field"] {
            let request = json!({"template": template, "columns": ["a", "x"], "rows": [["1", "2"]]});
            assert_eq!(needed_of(&request), request);
        }
        let ordered = json!({"template": "{a}", "columns": ["a", "x"], "rows": [["1", "2"]], "dependencies": [["a", "x"]]});
        assert_eq!(needed_of(&ordered), ordered);
        let nameless = json!({"template": "{a}", "rows": [["1"]]});
        assert_eq!(needed_of(&nameless), nameless);
        assert_eq!(needed("cells", b"{\"calls\": []}"), "{\"calls\": []}");
    }
}
