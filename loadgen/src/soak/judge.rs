//! Whether an answer is one: all of its rows, once each, within what its constraint allows. Pure.

use serde_json::Value;

use super::request::{Promise, Request};
use sse::events_of;

/// What an answer says beside its rows.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judged {
    /// Where it was cut short: by what it can be asked for.
    pub(super) ticket: Option<String>,
}

/// Judges the body of a successful answer.
pub(super) fn judge(request: &Request, text: &str) -> Result<Judged, String> {
    let is_stream = request.body["stream"] == true;
    if request.path == "/v1/chat/completions" {
        return chat(is_stream, text).map(|()| Judged::default());
    }
    let (rows, reply) = if is_stream { streamed(text)? } else { whole(request, text)? };
    let mut seen = vec![false; request.rows];
    for (place, row) in rows.iter().enumerate() {
        // A whole reply of cells has them in order, and no numbers.
        let index = row["index"].as_u64().map_or(place, |index| index as usize);
        match seen.get_mut(index) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("row {index} was not asked or came twice: {row}")),
        }
        judge_row(&request.promise, row)?;
    }
    if let Some(ticket) = reply["ticket"].as_str() {
        return Ok(Judged { ticket: Some(ticket.to_owned()) });
    }
    match (reply["status"].as_str(), seen.iter().position(|seen| !seen)) {
        (Some("completed"), None) => Ok(Judged::default()),
        (Some("completed"), Some(missing)) => Err(format!("row {missing} never came")),
        _ => Err(format!("it ended as {reply}")),
    }
}

/// Rows and last event of a stream.
fn streamed(text: &str) -> Result<(Vec<Value>, Value), String> {
    let mut rows = Vec::new();
    for event in events_of(text)? {
        let data = serde_json::from_str(&event.data).map_err(|error| format!("{error}: {}", event.data))?;
        match event.event.as_str() {
            "row" | "cell" => rows.push(data),
            "done" => return Ok((rows, data)),
            _ => return Err(format!("event {}: {data}", event.event)),
        }
    }
    Err(format!("the stream ended without its last event, after {} rows", rows.len()))
}

/// Rows and all of a reply in one piece.
fn whole(request: &Request, text: &str) -> Result<(Vec<Value>, Value), String> {
    let mut reply: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
    let name = if request.path == "/v1/cells" { "cells" } else { "rows" };
    match reply[name].take() {
        Value::Array(rows) => Ok((rows, reply)),
        _ => Err(format!("no `{name}`: {reply}")),
    }
}

/// One row: an error of its own, still pending, or text that keeps its promise.
fn judge_row(promise: &Promise, row: &Value) -> Result<(), String> {
    if row["pending"] == true || row["error"].is_object() || !row["value"].is_null() {
        return Ok(());
    }
    let Some(text) = row["text"].as_str() else { return Err(format!("neither text nor error: {row}")) };
    if row["finish_reason"] != "stop" || keeps(promise, text) {
        return Ok(());
    }
    Err(format!("it does not keep {promise:?}: {text:?}"))
}

/// Whether a whole text is what was promised.
fn keeps(promise: &Promise, text: &str) -> bool {
    match promise {
        Promise::Text => true,
        Promise::OneOf(texts) => texts.contains(&text),
        Promise::Within(low, high) => {
            text.parse::<i64>().is_ok_and(|number| (*low..=*high).contains(&number))
        }
        Promise::Code => text.split_once('-').is_some_and(|(digits, letters)| {
            (1..=3).contains(&digits.len())
                && (1..=4).contains(&letters.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        }),
        Promise::Object => serde_json::from_str::<Value>(text).is_ok_and(|object| {
            let is_known =
                ["good", "bad", "neither", "goodness"].iter().any(|label| object["label"] == *label);
            is_known && object["score"].as_i64().is_some_and(|score| (1..=5).contains(&score))
        }),
    }
}

/// A chat's answer: its end is said.
fn chat(is_stream: bool, text: &str) -> Result<(), String> {
    let is_whole = if is_stream {
        text.trim_end().ends_with("data: [DONE]") && !text.contains("\"error\"")
    } else {
        let reply: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
        reply["choices"][0]["finish_reason"].is_string()
    };
    if is_whole { Ok(()) } else { Err(format!("a chat without its end: {text}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(promise: Promise, stream: bool) -> Request {
        Request { promise, rows: 2, body: json!({"stream": stream}), ..Request::probe() }
    }

    #[test]
    fn an_answer_has_every_row_once_and_keeps_its_promise() {
        let label = || Promise::OneOf(vec!["good", "bad"]);
        let row = |index: u64, text: &str| json!({"index": index, "text": text, "finish_reason": "stop"});
        let judged = |promise, rows: &[Value]| {
            let reply = json!({"status": "completed", "rows": rows}).to_string();
            judge(&request(promise, false), &reply).is_ok()
        };
        assert!(judged(label(), &[row(0, "good"), row(1, "bad")]));
        assert!(judged(label(), &[row(1, "bad"), json!({"index": 0, "error": {"message": "no"}})]));
        assert!(!judged(label(), &[row(0, "good"), row(1, "goo")]));
        assert!(!judged(label(), &[row(0, "good")]));
        assert!(!judged(label(), &[row(0, "good"), row(0, "good")]));
        assert!(!judged(label(), &[row(0, "good"), row(2, "good")]));
        let two = |promise, text| judged(promise, &[row(0, text), row(1, text)]);
        assert!(two(Promise::Within(-3, 9), "-3") && !two(Promise::Within(-3, 9), "10"));
        assert!(two(Promise::Code, "12-ab") && !two(Promise::Code, "1234-ab") && !two(Promise::Code, "1-A"));
        assert!(two(Promise::Object, r#"{"label":"good","score":5}"#));
        assert!(!two(Promise::Object, r#"{"label":"good","score":6}"#) && !two(Promise::Object, "{"));
    }

    #[test]
    fn a_stream_ends_with_its_last_event_and_a_reply_cut_short_has_a_ticket() {
        let row = |index| {
            format!("event: row\ndata: {{\"index\":{index},\"text\":\"a\",\"finish_reason\":\"stop\"}}\n\n")
        };
        let (first, second) = (row(0), row(1));
        let done = "event: done\ndata: {\"status\":\"completed\"}\n\n";
        let judged = |text: String| judge(&request(Promise::Text, true), &text);
        assert_eq!(judged(format!("{first}: waiting\n\n{second}{done}")), Ok(Judged::default()));
        assert!(judged(format!("{first}{second}")).is_err());
        assert!(judged(format!("{first}{done}")).is_err());
        assert!(judged(format!("{first}{second}event: error\ndata: {{}}\n\n")).is_err());
        let partial = json!({"status": "partial", "ticket": "rq-1", "rows": [{"index": 0, "pending": true}]});
        let judged = judge(&request(Promise::Text, false), &partial.to_string());
        assert_eq!(judged, Ok(Judged { ticket: Some("rq-1".into()) }));
    }
}
