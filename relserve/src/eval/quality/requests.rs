//! Tasks as requests of the product's own routes: `/v1/relqueries` for records, `/v1/query` for documents,
//! `/v1/schemas` and `/v1/prompts` for modules, `/v1/cells` for EXTRACT. All rows of a task are one request
//! where the route takes many; the result cache is off and every answer is greedy.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::measures::Measure;
use super::tasks::{EvalTask, PromptShape, TaskRow};
use super::variants::{Approach, EvalVariant, Repair};
use crate::bench::BenchError;
use crate::bench::server::BenchServer;

/// What the model said, or why it said nothing.
pub(super) type Answer = Result<String, String>;

/// Schemas and prompts under way: rows of a batch.
const PROMPTS_AT_ONCE: usize = 32;

/// Puts a task to the model; an answer for each row, or why the task cannot be put so.
pub(super) async fn answers(
    server: &BenchServer,
    task: &EvalTask,
    variant: &EvalVariant,
) -> Result<Vec<Answer>, BenchError> {
    let answers = match (&task.form, variant.approach) {
        (PromptShape::Documents { instruction }, Approach::Modules(repair)) => {
            modules(server, task, instruction, repair).await?
        }
        (PromptShape::Documents { instruction }, approach) => {
            let reply = post(server, "/v1/query", &span_queries(task, instruction, approach)).await?;
            entries(&reply["data"], task, |entry| {
                let last = entry["result"].as_array().and_then(|messages| messages.last());
                text_of(last.map_or(&Value::Null, |message| &message["content"]), entry)
            })?
        }
        (PromptShape::Records { columns, question }, approach) => {
            let body = relquery(task, columns, question, approach);
            let reply = post(server, "/v1/relqueries", &body).await?;
            entries(&reply["rows"], task, |row| text_of(&row["text"], row))?
        }
        (PromptShape::Extract, approach) => {
            let reply = post(server, "/v1/cells", &cells(task, approach)).await?;
            entries(&reply["cells"], task, |cell| text_of(&cell["value"], cell))?
        }
    };
    // Where no row has an answer, the task cannot be put so: 0 % would say something else.
    if answers.iter().any(Result::is_ok) {
        return Ok(answers);
    }
    let reason = answers.into_iter().find_map(Result::err);
    Err(BenchError::Case(reason.unwrap_or_else(|| "there is no row".into())))
}

async fn post(server: &BenchServer, path: &str, body: &Value) -> Result<Value, BenchError> {
    let reply = server.post(path, body).await?.lines.join("\n");
    serde_json::from_str(&reply).map_err(|error| BenchError::Case(format!("{path}: {error}")))
}

/// An answer for each entry of a reply.
fn entries(
    entries: &Value,
    task: &EvalTask,
    answer: impl Fn(&Value) -> Answer,
) -> Result<Vec<Answer>, BenchError> {
    match entries.as_array() {
        Some(entries) if entries.len() == task.rows.len() => Ok(entries.iter().map(answer).collect()),
        _ => Err(BenchError::Case(format!("{}: the reply has no answer for each row: {entries}", task.name))),
    }
}

fn text_of(value: &Value, entry: &Value) -> Answer {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(entry["error"]["message"].as_str().unwrap_or("there is no answer").to_owned()),
        other => Ok(other.to_string()),
    }
}

/// What answers are held to.
fn constraint(task: &EvalTask, approach: Approach) -> Option<Value> {
    match (&task.measure, approach) {
        (Measure::Label(labels), Approach::Constrained) => Some(json!({ "choice": labels })),
        _ => None,
    }
}

/// Texts of a template in which braces mean nothing.
fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn relquery(task: &EvalTask, columns: &[&str], question: &str, approach: Approach) -> Value {
    let rows: Vec<&Vec<String>> = task.rows.iter().map(|row| &row.cells).collect();
    let mut body = json!({
        "template": format!("{}\n\n{{*}}", literal(question)),
        "columns": columns, "rows": rows, "temperature": 0, "max_tokens": task.output_max, "cache": false,
        "order": if approach == Approach::Reordered { "fields" } else { "exact" },
    });
    if let Some(constraint) = constraint(task, approach) {
        body["constraint"] = constraint;
    }
    body
}

/// Bare prompts: what is compared is whether answers are held to the text.
fn cells(task: &EvalTask, approach: Approach) -> Value {
    let call = |row: &TaskRow| json!({ "function": "extract", "args": [row.cells[0], row.question] });
    let calls: Vec<Value> = task.rows.iter().map(call).collect();
    let constraints = approach == Approach::Constrained;
    let guidance = json!({ "constraints": constraints, "examples": false, "calibration": false });
    json!({ "calls": calls, "cache": false, "guidance": guidance })
}

/// Documents as spans, or in the same messages in order.
fn span_queries(task: &EvalTask, instruction: &str, approach: Approach) -> Value {
    let join = if matches!(approach, Approach::Spans(_)) { "plus" } else { "cross" };
    let query = |row: &TaskRow| {
        let documents: Vec<Value> = row.documents.iter().map(|text| json!({ "user": text })).collect();
        let mut generate = json!({ "temperature": 0, "max_tokens": task.output_max, "input": { "seq": [
            { "system": instruction }, { join: documents }, { "user": row.question },
        ] } });
        if let Some(constraint) = constraint(task, approach) {
            generate["constraint"] = constraint;
        }
        json!({ "g": generate })
    };
    let mut body = json!({ "queries": task.rows.iter().map(query).collect::<Vec<Value>>() });
    if let Approach::Spans(repair) = approach {
        repair.put(&mut body);
    }
    body
}

/// Documents as the modules of a schema, in each row's order: what is wanted is their answers, not what a
/// schema of many prompts saves.
async fn modules(
    server: &BenchServer,
    task: &EvalTask,
    instruction: &str,
    repair: Repair,
) -> Result<Vec<Answer>, BenchError> {
    let rows = task.rows.iter().enumerate();
    let asked = rows.map(|(number, row)| async move {
        let (schema, prompt) = pml(&format!("row-{number}"), row, instruction);
        post(server, "/v1/schemas", &json!({ "schema": schema })).await?;
        let mut body =
            json!({ "prompt": prompt, "temperature": 0, "max_tokens": task.output_max, "cache": false });
        repair.put(&mut body);
        post(server, "/v1/prompts", &body).await
    });
    let replies = stream::iter(asked).buffered(PROMPTS_AT_ONCE).map(|reply| match reply {
        Ok(reply) => Ok(text_of(&reply["choices"][0]["text"], &reply)),
        Err(BenchError::Case(reason)) => Ok(Err(reason)),
        Err(error) => Err(error),
    });
    replies.try_collect().await
}

/// A row's schema and prompt, with the same messages as its span query.
fn pml(name: &str, row: &TaskRow, instruction: &str) -> (String, String) {
    let (mut modules, mut imports) = (String::new(), String::new());
    for (number, text) in row.documents.iter().enumerate() {
        modules += &format!("<module name=\"d{number}\"><user>{}</user></module>", escaped(text));
        imports += &format!("<d{number}/>");
    }
    let instruction = escaped(instruction);
    let question = escaped(&row.question);
    (
        format!("<schema name=\"{name}\"><system>{instruction}</system>{modules}</schema>"),
        format!("<prompt schema=\"{name}\">{imports}<user>{question}</user></prompt>"),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::variants::VARIANTS;
    use super::*;

    fn task(form: PromptShape, measure: Measure) -> EvalTask {
        let row = TaskRow {
            cells: vec!["x {y}".into()],
            documents: vec!["a < b & c".into(), "d".into()],
            question: "Why?".into(),
            ..TaskRow::default()
        };
        EvalTask { name: "qa", form, measure, output_max: 4, rows: vec![row] }
    }

    #[test]
    fn braces_and_markup_of_texts_are_data() {
        let records = PromptShape::Records { columns: vec!["text"], question: "Is {it} good?".into() };
        let task = task(records, Measure::Label(vec!["yes".into(), "no".into()]));
        let body = relquery(&task, &["text"], "Is {it} good?", Approach::Reordered);
        assert_eq!(body["template"], "Is {{it}} good?\n\n{*}");
        assert_eq!((&body["order"], &body["constraint"]), (&json!("fields"), &Value::Null));
        let held = relquery(&task, &["text"], "?", Approach::Constrained);
        assert_eq!(
            (&held["order"], &held["constraint"]),
            (&json!("exact"), &json!({"choice": ["yes", "no"]}))
        );
        let (schema, prompt) = pml("s", &task.rows[0], "Answer.");
        ir::pml::Schema::parse(&schema).expect("it is one");
        ir::pml::PmlPrompt::parse(&prompt).expect("it is one");
        assert!(schema.contains("a &lt; b &amp; c"), "{schema}");
    }

    #[test]
    fn spans_are_repaired_only_where_the_variant_says_so() {
        let task = task(PromptShape::Documents { instruction: "Answer." }, Measure::Words);
        let body = |approach| span_queries(&task, "Answer.", approach);
        let documents = |body: &Value, join: &str| body["queries"][0]["g"]["input"]["seq"][1][join].clone();
        let plain = body(Approach::Plain);
        let bare = body(Approach::Spans(Repair::Off));
        let repaired = body(Approach::Spans(Repair::AsConfigured));
        assert_eq!((&bare["repair_tokens"], &repaired["repair_tokens"]), (&json!(0), &Value::Null));
        assert_eq!(documents(&plain, "cross"), documents(&bare, "plus"), "the same documents");
        assert!(plain["repair_tokens"].is_null() && bare["queries"] == repaired["queries"], "{plain}");
    }

    #[test]
    fn a_failed_row_is_an_error_and_a_reply_of_another_length_is_one_of_the_task() {
        let task = task(PromptShape::Extract, Measure::Words);
        let reply = json!([{ "error": { "message": "too long" } }]);
        let found = entries(&reply, &task, |cell| text_of(&cell["value"], cell)).expect("one each");
        assert_eq!(found, [Err("too long".to_owned())]);
        let error = entries(&json!([]), &task, |_| Ok(String::new())).expect_err("none").to_string();
        assert!(error.starts_with("qa: the reply has no answer for each row"), "{error}");
        assert!(VARIANTS.iter().any(|variant| variant.approach == Approach::Modules(Repair::Off)));
    }
}
