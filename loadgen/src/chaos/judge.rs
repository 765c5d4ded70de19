//! Whether an answer is one: every row once, each a label of its request. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use sse::events_of;

use super::request::{ChaosRequest, RequestKind};

/// What an answer is that is not wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JudgedAnswer {
    /// All rows, of which so many have an error in place of a label.
    Whole { failed: u64 },
    /// A promise of the rest.
    Ticket(String),
    /// It says that it failed, or the connection broke while it came.
    Broken(String),
}

/// Judges an answer of success.
pub(super) fn judge(request: &ChaosRequest, text: &str) -> Result<JudgedAnswer, String> {
    let is_stream = request.body()["stream"] == true;
    match request.kind {
        RequestKind::Chat { .. } => chat(request, is_stream, text),
        RequestKind::Sql | RequestKind::SqlTicket => statement(request, text),
        _ if is_stream => stream(request, text),
        _ => reply(request, &parsed(text)?),
    }
}

/// A reply in one piece of relQueries and cells, their tickets too.
pub(super) fn reply(request: &ChaosRequest, reply: &Value) -> Result<JudgedAnswer, String> {
    if let Some(ticket) = reply["ticket"].as_str() {
        return Ok(JudgedAnswer::Ticket(ticket.to_owned()));
    }
    let rows = reply["rows"].as_array().or_else(|| reply["cells"].as_array());
    let rows = rows.ok_or_else(|| format!("neither rows nor cells: {reply}"))?;
    match reply["status"].as_str() {
        Some("completed") => rows_of(request, rows.iter()),
        _ => Err(format!("it ended as {reply}")),
    }
}

fn stream(request: &ChaosRequest, text: &str) -> Result<JudgedAnswer, String> {
    let mut rows = Vec::new();
    for event in events_of(text)? {
        match event.event.as_str() {
            "row" | "cell" => rows.push(parsed(&event.data)?),
            "done" => return rows_of(request, rows.iter()),
            "error" => return Ok(JudgedAnswer::Broken(event.data)),
            _ => return Err(format!("an event `{}`: {}", event.event, event.data)),
        }
    }
    Err(format!("a stream ended without its last event, after {} rows", rows.len()))
}

/// Every row once.
fn rows_of<'a>(
    request: &ChaosRequest,
    rows: impl Iterator<Item = &'a Value>,
) -> Result<JudgedAnswer, String> {
    let mut seen = BTreeMap::new();
    let mut failed = 0;
    for (place, row) in rows.enumerate() {
        let index = row["index"].as_u64().unwrap_or(place as u64);
        let text = row["text"].as_str().or_else(|| row["value"].as_str());
        match text {
            _ if seen.insert(index, ()).is_some() || index >= request.rows => {
                return Err(format!("row {index} was not asked or came twice"));
            }
            Some(text) if is_label(request, text) => {}
            None if row["error"].is_object() => failed += 1,
            _ => return Err(format!("row {index} is none of {:?}: {row}", request.labels)),
        }
    }
    all(request, seen.len(), failed)
}

fn all(request: &ChaosRequest, seen: usize, failed: u64) -> Result<JudgedAnswer, String> {
    match seen as u64 == request.rows {
        true => Ok(JudgedAnswer::Whole { failed }),
        false => Err(format!("{seen} rows of {}", request.rows)),
    }
}

fn is_label(request: &ChaosRequest, text: &str) -> bool {
    request.labels.iter().any(|label| label == text)
}

fn chat(request: &ChaosRequest, is_stream: bool, text: &str) -> Result<JudgedAnswer, String> {
    if !is_stream {
        let reply = parsed(text)?;
        return match reply["choices"][0]["message"]["content"].as_str() {
            Some(answered) if is_label(request, answered) => Ok(JudgedAnswer::Whole { failed: 0 }),
            _ => Err(format!("none of {:?}: {reply}", request.labels)),
        };
    }
    let mut answered = String::new();
    for event in events_of(text)? {
        if event.data == "[DONE]" {
            return match is_label(request, &answered) {
                true => Ok(JudgedAnswer::Whole { failed: 0 }),
                false => Err(format!("none of {:?}: {answered:?}", request.labels)),
            };
        }
        let chunk = parsed(&event.data)?;
        if chunk["error"].is_object() {
            return Ok(JudgedAnswer::Broken(event.data));
        }
        answered += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
    }
    Err(format!("a chat without its end: {text}"))
}

/// Lines of a statement's result; `n` are their numbers.
fn statement(request: &ChaosRequest, text: &str) -> Result<JudgedAnswer, String> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line = parsed(line)?;
        if let Some(ticket) = line["ticket"].as_str() {
            return Ok(JudgedAnswer::Ticket(ticket.to_owned()));
        }
        if line["error"].is_object() {
            return Ok(JudgedAnswer::Broken(line.to_string()));
        }
        rows.push(line);
    }
    statement_rows(request, &rows, 0)
}

/// The rows of a statement, behind so many that were seen before.
pub(super) fn statement_rows(
    request: &ChaosRequest,
    rows: &[Value],
    before: u64,
) -> Result<JudgedAnswer, String> {
    let mut seen = BTreeMap::new();
    for row in rows {
        match (row["n"].as_u64(), row["label"].as_str()) {
            (Some(n), Some(label)) if n < request.rows && is_label(request, label) => {
                if seen.insert(n, ()).is_some() {
                    return Err(format!("row {n} came twice"));
                }
            }
            _ => return Err(format!("no row that was asked: {row}")),
        }
    }
    all(request, seen.len() + before as usize, 0)
}

/// What a batch's output has, or usage of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchOutput {
    pub(super) lines: u64,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl BatchOutput {
    /// Whether it may be what usage has of outputs: these, and what at most so many rows used that were called off.
    pub(super) fn is_of(self, exact: Self, called_off: u64) -> bool {
        match called_off {
            0 => self == exact,
            _ => {
                (exact.lines..=exact.lines + called_off).contains(&self.lines)
                    && self.prompt_tokens >= exact.prompt_tokens
                    && self.completion_tokens >= exact.completion_tokens
            }
        }
    }
}

/// Judges the lines of a batch's output: each of a request of its own. How many must be there the caller knows.
pub(super) fn output(request: &ChaosRequest, text: &str) -> Result<BatchOutput, String> {
    let (mut seen, mut sum) = (BTreeMap::new(), BatchOutput::default());
    for line in text.lines() {
        let line = parsed(line)?;
        let row = line["custom_id"].as_str().and_then(|id| id.strip_prefix("row ")?.parse::<u64>().ok());
        let body = &line["response"]["body"];
        match (row, body["choices"][0]["text"].as_str()) {
            (Some(row), Some(answered)) if row < request.rows && is_label(request, answered) => {
                if seen.insert(row, ()).is_some() {
                    return Err(format!("line {row} came twice"));
                }
            }
            _ => return Err(format!("no line that was asked: {line}")),
        }
        sum.lines += 1;
        sum.prompt_tokens += body["usage"]["prompt_tokens"].as_u64().unwrap_or_default();
        sum.completion_tokens += body["usage"]["completion_tokens"].as_u64().unwrap_or_default();
    }
    Ok(sum)
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(kind: RequestKind) -> ChaosRequest {
        let labels = ["mk1 yes", "mk1 no"].map(str::to_owned);
        ChaosRequest { kind, tenant: 0, gateway: 0, number: 1, rows: 2, labels }
    }

    fn row(index: u64, text: &str) -> Value {
        json!({"index": index, "text": text})
    }

    #[test]
    fn an_answer_has_every_row_once_and_nobody_elses_label() {
        let request = request(RequestKind::RelQuery { stream: false });
        let judged =
            |rows: &[Value]| judge(&request, &json!({"status": "completed", "rows": rows}).to_string());
        assert_eq!(judged(&[row(1, "mk1 yes"), row(0, "mk1 no")]), Ok(JudgedAnswer::Whole { failed: 0 }));
        let error = json!({"index": 1, "error": {"message": "no"}});
        assert_eq!(judged(&[row(0, "mk1 yes"), error]), Ok(JudgedAnswer::Whole { failed: 1 }));
        assert!(judged(&[row(0, "mk1 yes")]).is_err());
        assert!(judged(&[row(0, "mk1 yes"), row(0, "mk1 yes")]).is_err());
        assert!(judged(&[row(0, "mk1 yes"), row(2, "mk1 yes")]).is_err());
        assert!(judged(&[row(0, "mk1 yes"), row(1, "mk2 yes")]).is_err());
        let partial = json!({"status": "partial", "ticket": "rq-1", "rows": []}).to_string();
        assert_eq!(judge(&request, &partial), Ok(JudgedAnswer::Ticket("rq-1".into())));
    }

    #[test]
    fn a_stream_that_ends_well_has_its_last_event() {
        let request = request(RequestKind::RelQuery { stream: true });
        let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
        let rows = event("row", row(0, "mk1 yes")) + &event("row", row(1, "mk1 no"));
        let judged = |end: &str| judge(&request, &(rows.clone() + end));
        assert_eq!(judged(&event("done", json!({}))), Ok(JudgedAnswer::Whole { failed: 0 }));
        assert!(matches!(judged(&event("error", json!({}))), Ok(JudgedAnswer::Broken(_))));
        assert!(judged("").is_err());
        let chat = request_chat("mk1 no");
        assert_eq!(chat, Ok(JudgedAnswer::Whole { failed: 0 }));
        assert!(request_chat("mk1 n").is_err());
    }

    fn request_chat(answered: &str) -> Result<JudgedAnswer, String> {
        let chunk = json!({"choices": [{"delta": {"content": answered}}]});
        judge(&request(RequestKind::Chat { stream: true }), &format!("data: {chunk}\n\ndata: [DONE]\n\n"))
    }

    #[test]
    fn a_statement_ends_with_all_its_rows_a_ticket_or_an_error() {
        let request = request(RequestKind::Sql);
        let line = |n: u64| json!({"n": n, "label": "mk1 yes"}).to_string() + "\n";
        assert_eq!(judge(&request, &(line(1) + &line(0))), Ok(JudgedAnswer::Whole { failed: 0 }));
        assert!(judge(&request, &line(1)).is_err());
        assert!(judge(&request, &(line(1) + &line(1))).is_err());
        let partial = json!({"status": "partial", "ticket": "sq-1", "rows": 1}).to_string();
        assert_eq!(judge(&request, &(line(0) + &partial)), Ok(JudgedAnswer::Ticket("sq-1".into())));
        let rest = [json!({"n": 1, "label": "mk1 no"})];
        assert_eq!(statement_rows(&request, &rest, 1), Ok(JudgedAnswer::Whole { failed: 0 }));
        assert!(statement_rows(&request, &rest, 0).is_err());
    }

    #[test]
    fn the_output_of_a_batch_has_each_line_once_with_its_tokens() {
        let request = request(RequestKind::Batch { cancel: false });
        let line = |row: u64, answered: &str| {
            let usage = json!({"prompt_tokens": 3, "completion_tokens": 2});
            let body = json!({"choices": [{"text": answered}], "usage": usage});
            json!({"custom_id": format!("row {row}"), "response": {"body": body}}).to_string() + "\n"
        };
        let two = BatchOutput { lines: 2, prompt_tokens: 6, completion_tokens: 4 };
        let three = BatchOutput { lines: 3, prompt_tokens: 9, completion_tokens: 5 };
        assert!(two.is_of(two, 0) && three.is_of(two, 1), "a row that was called off may count");
        assert!(!three.is_of(two, 0) && !two.is_of(three, 1), "and none that is recorded may be missing");
        assert_eq!(output(&request, &(line(0, "mk1 yes") + &line(1, "mk1 no"))), Ok(two));
        for wrong in [line(0, "mk1 yes") + &line(0, "mk1 yes"), line(2, "mk1 yes"), line(0, "mk2 yes")] {
            assert!(output(&request, &wrong).is_err());
        }
    }
}
