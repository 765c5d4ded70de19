//! A response as events: what is new of it since the last look, one item of its output after the other.
//!
//! One that somebody waits for is told at its reader's pace ([`ResponseEvents`]). One in the background is told to any
//! number of readers, who come again behind the last event that they have, after its end and after a restart too. So its
//! events and their numbers follow from its answer alone ([`BackgroundEvents`]): nothing of them is kept.

use serde_json::{Value, json};
use serving::error::RequestError;
use serving::relquery_state::{RowProgress, State};

use super::reply::verdict;
use super::response_reply::{AnswerPart, ResponseEnvelope, logprobs};
use super::tool_calls::ReadAnswer;
use crate::error;

/// Most bytes of one piece of a text in the background. Words are shorter; what has no words comes in such pieces.
const PIECE_BYTES_MAX: usize = 32;

/// Counts events, and tells items: each is closed before the next is opened.
#[derive(Debug, Default)]
struct ItemEvents {
    /// The number of the next event.
    sequence: u64,
    /// The last event that is left out: the reader has all up to it.
    after: Option<u64>,
    /// Items that were closed.
    closed: usize,
    /// Bytes that were told of the item behind those, once it is open.
    told: Option<usize>,
}

impl ItemEvents {
    fn event(&mut self, out: &mut String, name: &str, fields: Value) {
        let number = self.sequence;
        self.sequence += 1;
        if self.after.is_some_and(|after| number <= after) {
            return;
        }
        let mut event = json!({"type": name, "sequence_number": number});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        out.push_str(&format!("event: {name}\ndata: {event}\n\n"));
    }

    /// An event of the item that is open.
    fn item_event(&mut self, out: &mut String, (name, item): (&str, &Value), fields: Value) {
        let mut event = json!({"item_id": item["id"], "output_index": self.closed});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.event(out, name, event);
    }

    /// What is not told yet of the item that is open or next.
    fn unsent<'a>(&self, text: &'a str) -> &'a str {
        // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
        text.get(self.told.unwrap_or_default()..).unwrap_or_default()
    }

    fn open(&mut self, out: &mut String, item: &Value) {
        if self.told.is_some() {
            return;
        }
        self.told = Some(0);
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        if is_message(item) {
            begun["content"] = json!([]);
        } else {
            begun["arguments"] = "".into();
        }
        let fields = json!({"output_index": self.closed, "item": begun});
        self.event(out, "response.output_item.added", fields);
        if is_message(item) {
            let part = json!({"type": "output_text", "text": "", "annotations": []});
            let fields = json!({"content_index": 0, "part": part});
            self.item_event(out, ("response.content_part.added", item), fields);
        }
    }

    fn delta(&mut self, out: &mut String, item: &Value, (delta, logprobs): (&str, Value)) {
        self.told = Some(self.told.unwrap_or_default() + delta.len());
        if is_message(item) {
            let fields = json!({"content_index": 0, "delta": delta, "logprobs": logprobs});
            self.item_event(out, ("response.output_text.delta", item), fields);
        } else {
            let fields = json!({"delta": delta});
            self.item_event(out, ("response.function_call_arguments.delta", item), fields);
        }
    }

    fn close(&mut self, out: &mut String, item: &Value) {
        if is_message(item) {
            for part in item["content"].as_array().into_iter().flatten() {
                let logprobs = part.get("logprobs").cloned().unwrap_or_else(|| json!([]));
                let fields = json!({"content_index": 0, "text": part["text"], "logprobs": logprobs});
                self.item_event(out, ("response.output_text.done", item), fields);
                let fields = json!({"content_index": 0, "part": part});
                self.item_event(out, ("response.content_part.done", item), fields);
            }
        } else {
            let fields = json!({"name": item["name"], "arguments": item["arguments"]});
            self.item_event(out, ("response.function_call_arguments.done", item), fields);
        }
        let fields = json!({"output_index": self.closed, "item": item});
        self.event(out, "response.output_item.done", fields);
        self.closed += 1;
        self.told = None;
    }

    /// Tells an item in pieces that follow from its text alone, and closes it where that is all of it.
    fn tell_in_pieces(&mut self, out: &mut String, item: &Value, (text, is_whole): (&str, bool)) {
        self.open(out, item);
        loop {
            let rest = self.unsent(text);
            let last = (is_whole && !rest.is_empty()).then_some(rest.len());
            let Some(bytes) = piece(rest).or(last) else { break };
            self.delta(out, item, (&rest[..bytes], json!([])));
        }
        if is_whole {
            self.close(out, item);
        }
    }
}

fn is_message(item: &Value) -> bool {
    item["type"] == "message"
}

/// Bytes of the next piece of a text, where it is known to be whole whatever comes behind it: a word and the white space
/// before it.
fn piece(text: &str) -> Option<usize> {
    let mut is_begun = false;
    for (place, character) in text.char_indices() {
        let is_space = character.is_whitespace();
        if is_space && is_begun || place + character.len_utf8() > PIECE_BYTES_MAX {
            return Some(place);
        }
        is_begun |= !is_space;
    }
    None
}

/// Turns states of one request into the events of its response.
#[derive(Debug)]
pub struct ResponseEvents {
    envelope: ResponseEnvelope,
    items: ItemEvents,
    /// Tokens whose log probabilities were told.
    logprobs: usize,
}

impl ResponseEvents {
    /// For one request.
    pub fn new(envelope: ResponseEnvelope) -> Self {
        Self { envelope, items: ItemEvents::default(), logprobs: 0 }
    }

    /// Where the response is to be kept, its identity and what is to be kept of its reply.
    pub fn to_keep(&self, state: &State) -> Option<(String, String)> {
        self.envelope.to_keep(state)
    }

    /// The response turned out to be kept or not.
    pub fn kept(&mut self, is_kept: bool) {
        self.envelope.echo.store = is_kept;
    }

    /// What is new, as events; whether that was all.
    pub fn look(&mut self, state: &State) -> (String, bool) {
        let mut out = String::new();
        if self.items.sequence == 0 {
            let begun = json!({"response": self.envelope.object("in_progress", Vec::new())});
            self.items.event(&mut out, "response.created", begun.clone());
            self.items.event(&mut out, "response.in_progress", begun);
        }
        let text = state.rows.first().map_or("", |row| row.text.as_str());
        // A reply repeats its request: it is made once, at the end.
        let reply = match (state.is_over(), verdict(state)) {
            (_, Err(error)) => Err(error),
            (true, Ok(())) => self.envelope.reply(state).map(Some),
            (false, Ok(())) => Ok(None),
        };
        let status = reply.as_ref().ok().and_then(Option::as_ref).map(|reply| reply.status);
        let answer = self.envelope.read(text, status.is_some());
        self.tell(&mut out, &answer, (state, status));
        match reply {
            Err(error) => {
                self.fail(&mut out, &error);
                (out, true)
            }
            Ok(Some(reply)) => {
                let name = format!("response.{}", reply.status);
                self.items.event(&mut out, &name, json!({"response": reply}));
                (out, true)
            }
            Ok(None) => (out, false),
        }
    }

    /// What is new of an answer; `status`: how it ended, where it has.
    fn tell(
        &mut self,
        out: &mut String,
        answer: &ReadAnswer,
        (state, status): (&State, Option<&'static str>),
    ) {
        let parts = AnswerPart::all(answer, status.is_some());
        let last = parts.len().saturating_sub(1);
        for (place, part) in parts.into_iter().enumerate().skip(self.items.closed) {
            let status = if place < last { Some("completed") } else { status };
            let added = self.items.unsent(part.text());
            if added.is_empty() && status.is_none() && self.items.told.is_some() {
                continue;
            }
            let tokens = status.map(|_| self.envelope.part_logprobs(part, (answer, state)));
            let status_now = status.unwrap_or("in_progress");
            let item = json!(self.envelope.item(status_now, part, tokens.unwrap_or_default()));
            self.items.open(out, &item);
            if !added.is_empty() {
                let told = if part.is_text() { logprobs(state, self.logprobs) } else { Vec::new() };
                self.logprobs += told.len();
                self.items.delta(out, &item, (added, json!(told)));
            }
            if status.is_some() {
                self.items.close(out, &item);
            }
        }
    }

    /// The last event of a response that failed.
    pub fn fail(&mut self, out: &mut String, error: &RequestError) {
        let failed = self.envelope.failed(error);
        self.items.event(out, "response.failed", json!({"response": failed}));
    }
}

/// Tells a response in the background, from its beginning on or behind an event that its reader has.
#[derive(Debug)]
pub struct BackgroundEvents {
    /// Its first reply.
    begun: Value,
    items: ItemEvents,
}

impl BackgroundEvents {
    /// Of a response whose first reply this is.
    pub fn new(begun: Value, after: Option<u64>) -> Self {
        Self { begun, items: ItemEvents { after, ..ItemEvents::default() } }
    }

    /// What is known of one that does not run here.
    pub fn begun(&mut self) -> String {
        let mut out = String::new();
        if self.items.sequence == 0 {
            for name in ["response.created", "response.queued"] {
                self.items.event(&mut out, name, json!({"response": self.begun}));
            }
        }
        out
    }

    /// What is new of one that runs here. Its end is told as it is kept ([`Self::end`]).
    pub fn look(&mut self, envelope: &ResponseEnvelope, state: &State) -> String {
        let mut out = self.begun();
        let Some(row) = state.rows.first() else { return out };
        if row.start.is_none() && row.pieces == 0 && row.state == RowProgress::Pending {
            return out;
        }
        self.go_on(&mut out);
        let answer = envelope.read(&row.text, false);
        let parts = AnswerPart::all(&answer, false);
        let last = parts.len().saturating_sub(1);
        for (place, part) in parts.into_iter().enumerate().skip(self.items.closed) {
            let is_whole = place < last;
            let is_begun = !part.is_text() && self.items.told.is_none();
            if !is_whole && !is_begun && piece(self.items.unsent(part.text())).is_none() {
                continue;
            }
            let tokens = if is_whole { envelope.part_logprobs(part, (&answer, state)) } else { Vec::new() };
            let item = json!(envelope.item("completed", part, tokens));
            self.items.tell_in_pieces(&mut out, &item, (part.text(), is_whole));
        }
        out
    }

    /// What is left of one that is over and whose reply this is.
    pub fn end(&mut self, reply: &Value) -> String {
        let mut out = self.begun();
        let status = reply["status"].as_str().unwrap_or_default();
        if ["completed", "incomplete"].contains(&status) {
            self.go_on(&mut out);
            for item in reply["output"].as_array().into_iter().flatten().skip(self.items.closed) {
                let text = if is_message(item) { &item["content"][0]["text"] } else { &item["arguments"] };
                self.items.tell_in_pieces(&mut out, item, (text.as_str().unwrap_or_default(), true));
            }
        } else if let Some(after) = self.items.after {
            // What it had said was not kept: its end comes behind all that the reader has.
            self.items.sequence = self.items.sequence.max(after.saturating_add(1));
        }
        self.items.event(&mut out, &format!("response.{status}"), json!({"response": reply}));
        out
    }

    /// Why no more is told here. It has the number of the event before it: the next one is still to come.
    pub fn error(&self, error: &RequestError) -> String {
        let error = error::body(error).error;
        let event = json!({
            "type": "error", "sequence_number": self.items.sequence.saturating_sub(1),
            "code": error.code.unwrap_or(error.kind), "message": error.message, "param": error.param,
        });
        format!("event: error\ndata: {event}\n\n")
    }

    /// The model has begun with it.
    fn go_on(&mut self, out: &mut String) {
        if self.items.sequence == 2 {
            let mut begun = self.begun.clone();
            begun["status"] = "in_progress".into();
            self.items.event(out, "response.in_progress", json!({"response": begun}));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, RelQueryId, TenantId, Time, TokenCount, ToolCallForm};
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, RelQueryState, Status, Usage};

    use super::*;
    use crate::wire::openai::tests::model;
    use crate::wire::openai::{CallReader, ResponseEcho};

    const ARRIVAL: Arrival = Arrival { unix_ms: 5_999, time: Time(0) };

    const SAID: &str = "I  look at once, ééééééééééééééééééééééé. <tool_call>{\"name\": \"find\", \
        \"arguments\": {\"text\": \"a b\"}}</tool_call> and \
        <tool_call>{\"name\": \"find\"}</tool_call> Done so.";

    fn envelope(relquery: &RelQueryState) -> ResponseEnvelope {
        let echo = ResponseEcho {
            instructions: None,
            max_output_tokens: None,
            metadata: json!({}),
            temperature: 0.0,
            top_p: 1.0,
            text: json!({}),
            user: None,
            tools: Vec::new(),
            tool_choice: json!("auto"),
            parallel_tool_calls: true,
            previous_response_id: None,
            store: false,
            background: false,
        };
        ResponseEnvelope::new(relquery, &model(), echo)
    }

    fn events(relquery: &RelQueryState) -> ResponseEvents {
        ResponseEvents::new(envelope(relquery))
    }

    /// Of an answer that may call tools.
    fn calling(relquery: &RelQueryState) -> ResponseEnvelope {
        let names = ["find".to_owned()].into();
        let form = ToolCallForm::Hermes;
        let reader = CallReader { names, form, is_bare: false, is_named: false, is_parallel: true };
        envelope(relquery).calling(Some(Arc::new(reader)))
    }

    fn relquery() -> Arc<RelQueryState> {
        RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL)
    }

    fn read(text: &str) -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    fn done(end: End) -> RowProgress {
        let usage = Usage { prompt: TokenCount(7), output: TokenCount(3), ..Usage::default() };
        RowProgress::Done { end, usage, source: AnswerSource::Model }
    }

    #[test]
    fn a_response_is_told_in_openais_events_whatever_the_readers_pace() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut events = events(&relquery);
        let (first, _) = events.look(&relquery.read());
        relquery.token(0, "é", true, Time(1));
        let (second, _) = events.look(&relquery.read());
        assert_eq!(events.look(&relquery.read()), (String::new(), false), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.settle(0, done(End::Stop), Time(3));
        let (third, is_over) = events.look(&relquery.read());
        assert!(is_over);
        let all = read(&[first, second, third].concat());
        let names: Vec<&str> = all.iter().map(|event| event["type"].as_str().expect("a name")).collect();
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!(names, expected);
        let numbers: Vec<u64> =
            all.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        assert_eq!(
            (&all[4]["delta"], &all[5]["delta"], &all[6]["text"]),
            (&json!("é"), &json!("b"), &json!("éb"))
        );
        let response = &all[9]["response"];
        assert_eq!(response["output"][0]["content"][0]["text"], "éb");
        assert_eq!((&response["usage"]["total_tokens"], &response["created_at"]), (&json!(10), &json!(5)));
        assert_eq!(all[4]["item_id"], response["output"][0]["id"]);
    }

    #[test]
    fn what_is_cut_off_is_incomplete_and_what_fails_says_why() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut cut = events(&relquery);
        relquery.settle(0, done(End::Length), Time(3));
        let all = read(&cut.look(&relquery.read()).0);
        let last = all.last().expect("events");
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.incomplete"), &json!("incomplete"))
        );
        assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");

        let relquery = RelQueryState::new(RelQueryId(2), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut failing = events(&relquery);
        relquery.token(0, "so far", true, Time(1));
        relquery.end(Status::Failed(RequestError::ShuttingDown), Time(2));
        let (text, is_over) = failing.look(&relquery.read());
        let all = read(&text);
        assert!(is_over && all.iter().any(|event| event["delta"] == "so far"));
        let last = all.last().expect("events");
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert!(last["response"]["error"]["message"].is_string(), "{last}");
    }

    fn name(event: &Value) -> &str {
        event["type"].as_str().expect("a name").strip_prefix("response.").unwrap_or("error")
    }

    #[test]
    fn an_item_is_closed_before_the_next_is_opened() {
        let relquery = relquery();
        let mut events = ResponseEvents::new(calling(&relquery));
        let mut text = String::new();
        for character in SAID.chars() {
            relquery.token(0, &character.to_string(), false, Time(1));
            text.push_str(&events.look(&relquery.read()).0);
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(&relquery.read()).0);
        let all = read(&text);
        let mut names: Vec<&str> = all.iter().map(name).collect();
        names.dedup();
        let text = [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ];
        let call = ["function_call_arguments.delta", "function_call_arguments.done", "output_item.done"];
        let mut expected = vec!["created", "in_progress"];
        expected.extend(text);
        for _ in 0..2 {
            expected.push("output_item.added");
            expected.extend(call);
        }
        expected.extend(text);
        expected.push("completed");
        assert_eq!(names, expected);
        let closed: Vec<&Value> = all.iter().filter(|event| name(event) == "output_item.done").collect();
        let output = all.last().expect("events")["response"]["output"].as_array().expect("output");
        let closed: Vec<&Value> = closed.iter().map(|event| &event["item"]).collect();
        assert_eq!(closed, output.iter().collect::<Vec<_>>());
        let texts = [&output[0], &output[3]].map(|item| item["content"][0]["text"].as_str().expect("text"));
        assert_eq!(texts, ["I  look at once, ééééééééééééééééééééééé.", "and\nDone so."]);
        assert_ne!(output[0]["id"], output[3]["id"]);
        let calls = [&output[1], &output[2]].map(|item| item["arguments"].as_str().expect("arguments"));
        assert_eq!(calls, [r#"{"text": "a b"}"#, "{}"]);
    }

    /// The events of a response in the background, at this pace and from this event on, and its reply.
    fn told(pace: usize, after: Option<u64>) -> (Vec<Value>, Value) {
        let relquery = relquery();
        let envelope = calling(&relquery);
        let mut events = BackgroundEvents::new(json!(envelope.queued()), after);
        let mut text = events.look(&envelope, &relquery.read());
        assert_eq!(read(&text).len(), if after.is_none() { 2 } else { 0 }, "the model has not begun");
        for (place, character) in SAID.chars().enumerate() {
            relquery.token(0, &character.to_string(), place == 0, Time(1));
            if place % pace == 0 {
                text.push_str(&events.look(&envelope, &relquery.read()));
            }
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(&envelope, &relquery.read()));
        let reply = json!(envelope.reply(&relquery.read()).expect("an answer"));
        text.push_str(&events.end(&reply));
        (read(&text), reply)
    }

    #[test]
    fn events_in_the_background_are_the_same_at_any_pace_and_when_all_is_over() {
        let (all, reply) = told(1, None);
        let numbers: Vec<u64> =
            all.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect();
        assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
        assert_eq!(all[..3].iter().map(name).collect::<Vec<_>>(), ["created", "queued", "in_progress"]);
        assert_eq!(all.last().map(name), Some("completed"));
        let deltas = |place: usize| -> Vec<&str> {
            let of_item = all.iter().filter(|event| event["output_index"] == place);
            of_item.filter_map(|event| event["delta"].as_str()).collect()
        };
        // A word of more than 32 bytes is cut in front of the character that is too much.
        assert_eq!(deltas(0)[..5], ["I", "  look", " at", " once,", " ééééééééééééééé"]);
        assert_eq!(deltas(0).concat(), "I  look at once, ééééééééééééééééééééééé.");
        assert_eq!((deltas(1), deltas(2)), (vec![r#"{"text":"#, r#" "a"#, r#" b"}"#], vec!["{}"]));
        assert_eq!(deltas(3), ["and", "\nDone", " so."]);
        for pace in [2, 3, 7, 1_000] {
            assert_eq!(told(pace, None).0, all, "pace {pace}");
        }
        // From what is kept of it alone, and behind any event.
        let begun = all[0]["response"].clone();
        for after in (0..all.len()).map(Some).chain([None]) {
            let from = after.map_or(0, |after| after + 1);
            let after = after.map(|after| after as u64);
            let kept = BackgroundEvents::new(begun.clone(), after).end(&reply);
            assert_eq!(read(&kept), all[from..], "behind {after:?}");
            let (live, _) = told(3, after.filter(|after| *after > 2));
            assert_eq!(live.last(), all.last().filter(|_| from < all.len()), "behind {after:?}");
        }
    }

    #[test]
    fn what_ended_without_an_answer_ends_behind_what_its_reader_has() {
        let relquery = relquery();
        let begun = json!(envelope(&relquery).queued());
        let mut reply = begun.clone();
        reply["status"] = "cancelled".into();
        for (after, expected) in [(None, 2), (Some(1), 2), (Some(9), 10)] {
            let mut events = BackgroundEvents::new(begun.clone(), after);
            let all = read(&events.end(&reply));
            let last = all.last().expect("an end");
            let end = (&last["type"], &last["sequence_number"]);
            assert_eq!(end, (&json!("response.cancelled"), &json!(expected)));
            assert_eq!(last["response"], reply);
        }
        let mut events = BackgroundEvents::new(begun, None);
        events.look(&envelope(&relquery), &relquery.read());
        let error = &read(&events.error(&RequestError::ShuttingDown))[0];
        assert_eq!((&error["type"], &error["sequence_number"]), (&json!("error"), &json!(1)));
        assert!(error["message"].is_string() && error["code"].is_string(), "{error}");
    }
}
