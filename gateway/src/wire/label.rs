//! What a request says it is for (`label`), and what its client calls itself. A label is cut to its bounds and never
//! refused for its length; a field of another name is refused as everywhere.

use std::sync::Arc;

use actix_web::http::header::{HeaderMap, USER_AGENT};
use serde_json::Value;
use serving::error::RequestError;
use serving::label::Label;

use crate::json::JsonFields;

/// Labels of one request.
pub const LABELS_MAX: usize = 256;

/// Takes the field `label` of a request.
pub fn label(fields: &mut JsonFields) -> Result<Option<Arc<Label>>, RequestError> {
    match fields.take("label") {
        Some(value) => read(fields.name("label"), value),
        None => Ok(None),
    }
}

/// Takes the field `labels` of a request whose parts name theirs by number.
pub fn labels(fields: &mut JsonFields) -> Result<Vec<Option<Arc<Label>>>, RequestError> {
    let values = fields.array("labels")?.unwrap_or_default();
    if values.len() > LABELS_MAX {
        return fields.bad("labels", format!("has more than {LABELS_MAX} labels"));
    }
    values.into_iter().enumerate().map(|(number, value)| read(format!("labels[{number}]"), value)).collect()
}

fn read(path: String, value: Value) -> Result<Option<Arc<Label>>, RequestError> {
    let mut fields = JsonFields::nested(path, value)?;
    let label = Label {
        workbook: fields.string("workbook")?,
        sheet: fields.string("sheet")?,
        column: fields.string("column")?,
        formula: fields.string("formula")?,
        ..Label::default()
    };
    fields.finish()?;
    Ok(label.bounded())
}

/// What a client calls itself: its `User-Agent` up to the first remark. Browsers all say the same.
pub fn of_client(headers: &HeaderMap) -> Option<Arc<Label>> {
    let agent = headers.get(USER_AGENT)?.to_str().ok()?;
    let name = agent.split('(').next().unwrap_or_default().trim();
    let is_browser = name.starts_with("Mozilla/");
    Label::of_client(if is_browser { "a browser" } else { name })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn fields(body: &Value) -> JsonFields {
        crate::json::object(body.to_string().as_bytes()).expect("an object")
    }

    #[test]
    fn a_label_is_read_field_by_field() {
        let mut request =
            fields(&json!({"label": {"workbook": "Reviews", "column": "C", "formula": "=AI.RATE(A2)"}}));
        let read = label(&mut request).expect("it is right").expect("it says something");
        assert_eq!(
            (read.workbook.as_deref(), read.column.as_deref(), &read.sheet),
            (Some("Reviews"), Some("C"), &None)
        );
        let bad = |body: Value| label(&mut fields(&body)).map_err(|error| error.to_string());
        assert!(bad(json!({"label": {"color": "red"}})).is_err_and(|error| error.contains("label.color")));
        assert!(bad(json!({"label": {"sheet": 3}})).is_err_and(|error| error.contains("`label.sheet`")));
        assert!(bad(json!({"label": "C"})).is_err_and(|error| error.contains("`label`")));
        assert_eq!(bad(json!({"label": {"sheet": " "}})), Ok(None), "what says nothing is nothing");
        let many = labels(&mut fields(&json!({"labels": vec![json!({}); LABELS_MAX + 1]})));
        assert!(many.is_err_and(|error| error.to_string().contains("256")));
        let second = labels(&mut fields(&json!({"labels": [{}, {"row": 1}]})));
        assert!(second.is_err_and(|error| error.to_string().contains("labels[1].row")));
    }

    #[test]
    fn a_client_is_called_by_its_product() {
        let name = |agent: &'static str| {
            let headers = [(USER_AGENT, HeaderValue::from_static(agent))].into_iter().collect();
            of_client(&headers).and_then(|label| label.client.clone())
        };
        assert_eq!(name("OpenAI/Python 1.55.0").as_deref(), Some("OpenAI/Python 1.55.0"));
        assert_eq!(name("cellm/0.5 (Windows; x64)").as_deref(), Some("cellm/0.5"));
        assert_eq!(name("Mozilla/5.0 (X11) Gecko").as_deref(), Some("a browser"));
        assert_eq!(name("(nothing)"), None);
        assert_eq!(of_client(&HeaderMap::new()), None);
    }
}
