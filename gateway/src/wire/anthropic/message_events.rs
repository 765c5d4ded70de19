//! A message as events of what is new since the last look: one block of content after the other. Only what is new is
//! copied while the loop waits.

use serde_json::{Map, Value, json};
use serving::error::RequestError;
use serving::relquery_state::RelQueryState;

use super::MessageError;
use super::message_reply::{ContentBlock, MessageEnvelope};
use crate::wire::openai::{AnswerCopy, ReadAnswer, ReadCall, verdict, whole};

/// Turns states of one request into the events of its message.
#[derive(Debug)]
pub struct MessageEvents {
    envelope: MessageEnvelope,
    answer: AnswerCopy,
    has_begun: bool,
    /// Blocks so far.
    blocks: usize,
    /// The block that goes on, the last one.
    open: Option<OpenBlock>,
    /// Bytes of text that were told.
    text_bytes: usize,
    /// Bytes of each call's arguments that were told.
    call_bytes: Vec<usize>,
}

/// What a block that goes on holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenBlock {
    Text,
    /// The call of this number.
    Call(usize),
}

impl MessageEvents {
    /// For one request.
    pub fn new(envelope: MessageEnvelope) -> Self {
        let (answer, call_bytes) = Default::default();
        Self { envelope, answer, has_begun: false, blocks: 0, open: None, text_bytes: 0, call_bytes }
    }

    /// What is new, as events; whether that was all.
    pub fn look(&mut self, relquery: &RelQueryState) -> (String, bool) {
        let mut out = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            event(&mut out, "message_start", json!({"message": self.envelope.begun()}));
        }
        let (verdict, added, whole) = {
            let state = relquery.read();
            let row = state.rows.first();
            let added = row.map_or_else(String::new, |row| self.answer.added(&row.text));
            (verdict(&state), added, whole(&state))
        };
        let reply = match (verdict, whole) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(state)) => self.envelope.reply(&state).map(Some),
            (Ok(()), None) => Ok(None),
        };
        let is_whole = matches!(reply, Ok(Some(_)));
        let mut answer = std::mem::take(&mut self.answer);
        answer.take(self.envelope.tools(), &added, is_whole);
        self.tell(&mut out, answer.read(), is_whole);
        self.answer = answer;
        match reply {
            Err(error) => {
                self.fail(&mut out, &error);
                (out, true)
            }
            Ok(Some(reply)) => {
                self.close(&mut out);
                let (delta, usage) = reply.end();
                event(&mut out, "message_delta", json!({"delta": delta, "usage": usage}));
                event(&mut out, "message_stop", json!({}));
                (out, true)
            }
            Ok(None) => (out, false),
        }
    }

    /// The last event of a message that failed.
    pub fn fail(&mut self, out: &mut String, error: &RequestError) {
        let body = MessageError::from(error.clone()).body();
        out.push_str(&format!("event: error\ndata: {}\n\n", json!(body)));
    }

    /// What is new of an answer. What is said behind a call waits for the end, when all calls are told.
    fn tell(&mut self, out: &mut String, answer: &ReadAnswer, is_whole: bool) {
        let is_first = answer.is_said_first && self.call_bytes.is_empty();
        if is_first {
            self.text(out, &answer.content);
        }
        for (number, call) in answer.calls.iter().enumerate() {
            self.call(out, number, call);
        }
        if !is_first && is_whole {
            self.text(out, &answer.content);
        }
    }

    /// What is new of the text.
    fn text(&mut self, out: &mut String, text: &str) {
        // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
        let added = text.get(self.text_bytes..).unwrap_or_default();
        if added.is_empty() {
            return;
        }
        self.text_bytes = text.len();
        if self.open != Some(OpenBlock::Text) {
            self.begin(out, OpenBlock::Text, &ContentBlock::Text { text: String::new() });
        }
        self.delta(out, json!({"type": "text_delta", "text": added}));
    }

    /// What is new of a call.
    fn call(&mut self, out: &mut String, number: usize, call: &ReadCall) {
        if self.call_bytes.len() == number {
            self.call_bytes.push(0);
            let begun = self.envelope.call(number, call, Value::Object(Map::new()));
            self.begin(out, OpenBlock::Call(number), &begun);
        }
        let Some(bytes) = self.call_bytes.get_mut(number) else { return };
        let added = call.arguments.get(*bytes..).unwrap_or_default();
        *bytes = call.arguments.len();
        if !added.is_empty() && self.open == Some(OpenBlock::Call(number)) {
            self.delta(out, json!({"type": "input_json_delta", "partial_json": added}));
        }
    }

    /// Begins a block, behind the one that goes on.
    fn begin(&mut self, out: &mut String, open: OpenBlock, block: &ContentBlock) {
        self.close(out);
        event(out, "content_block_start", json!({"index": self.blocks, "content_block": block}));
        self.open = Some(open);
        self.blocks += 1;
    }

    /// Ends the block that goes on.
    fn close(&mut self, out: &mut String) {
        if self.open.take().is_some() {
            event(out, "content_block_stop", json!({"index": self.blocks - 1}));
        }
    }

    fn delta(&mut self, out: &mut String, delta: Value) {
        event(out, "content_block_delta", json!({"index": self.blocks - 1, "delta": delta}));
    }
}

/// One event; its name stands in it too.
fn event(out: &mut String, name: &str, fields: Value) {
    let mut event = json!({"type": name});
    if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
        event.extend(fields);
    }
    out.push_str(&format!("event: {name}\ndata: {event}\n\n"));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, RelQueryId, TenantId, Time, TokenCount, ToolCallForm};
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, RowProgress, Status, Usage};

    use super::*;
    use crate::wire::openai::CallReader;
    use crate::wire::openai::tests::model;

    const ARRIVAL: Arrival = Arrival { unix_ms: 5_999, time: Time(0) };

    fn relquery() -> Arc<RelQueryState> {
        RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL)
    }

    fn events(relquery: &RelQueryState, tools: Option<CallReader>) -> MessageEvents {
        let envelope = MessageEnvelope::new(relquery, &model(), 7);
        MessageEvents::new(envelope.calling(tools.map(Arc::new)).stopping_at(["!".to_owned()].into()))
    }

    fn read(text: &str) -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    fn done(end: End) -> RowProgress {
        let usage =
            Usage { prompt: TokenCount(7), cached: TokenCount(4), output: TokenCount(3), ..Usage::default() };
        RowProgress::Done { end, usage, source: AnswerSource::Model }
    }

    #[test]
    fn text_is_told_in_one_block_whatever_the_readers_pace() {
        let relquery = relquery();
        let mut events = events(&relquery, None);
        let (first, _) = events.look(&relquery);
        relquery.token(0, "é", true, Time(1));
        let (second, _) = events.look(&relquery);
        assert_eq!(events.look(&relquery), (String::new(), false), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.settle(0, done(End::Length), Time(3));
        let (third, is_over) = events.look(&relquery);
        assert!(is_over);
        let all = read(&[first, second, third].concat());
        let names: Vec<&str> = all.iter().map(|event| event["type"].as_str().expect("a name")).collect();
        let expected = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(names, expected);
        assert_eq!(all[0]["message"]["usage"]["input_tokens"], 7);
        assert_eq!((&all[2]["delta"]["text"], &all[3]["delta"]["text"]), (&json!("é"), &json!("b")));
        assert_eq!(all[5]["delta"]["stop_reason"], "max_tokens");
        let usage = &all[5]["usage"];
        assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&json!(3), &json!(4)));
    }

    #[test]
    fn calls_are_blocks_behind_the_text_and_what_fails_says_why() {
        let reader = || CallReader {
            names: ["find".to_owned()].into(),
            form: ToolCallForm::Hermes,
            is_bare: false,
            is_named: false,
            is_parallel: true,
            is_legacy: false,
        };
        let written = "I look.\n<tool_call>{\"name\": \"find\", \"arguments\": {\"x\": \"a b\"}}</tool_call>";
        let relquery = relquery();
        let mut events = events(&relquery, Some(reader()));
        let mut all = String::new();
        for character in written.chars() {
            relquery.token(0, &character.to_string(), true, Time(1));
            all.push_str(&events.look(&relquery).0);
        }
        relquery.settle(0, done(End::StopText(0)), Time(3));
        all.push_str(&events.look(&relquery).0);
        let all = read(&all);
        let starts: Vec<&Value> = all.iter().filter(|event| event["type"] == "content_block_start").collect();
        let kinds: Vec<&Value> = starts.iter().map(|event| &event["content_block"]["type"]).collect();
        assert_eq!(kinds, [&json!("text"), &json!("tool_use")]);
        let arguments: String =
            all.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
        assert_eq!(serde_json::from_str::<Value>(&arguments).expect("JSON"), json!({"x": "a b"}));
        let end = all.iter().find(|event| event["type"] == "message_delta").expect("an end");
        assert_eq!(
            end["delta"],
            json!({"stop_reason": "tool_use", "stop_sequence": null}),
            "they are to be run"
        );
        let whole = json!(
            MessageEnvelope::new(&relquery, &model(), 7)
                .calling(Some(Arc::new(reader())))
                .reply(&relquery.read())
                .expect("it is over")
        );
        assert_eq!(whole["content"][0], json!({"type": "text", "text": "I look."}));
        assert_eq!(whole["content"][1]["input"], json!({"x": "a b"}));
        assert_eq!(whole["content"][1]["id"], starts[1]["content_block"]["id"]);

        let failing = RelQueryState::new(RelQueryId(2), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut events = self::events(&failing, None);
        failing.end(Status::Failed(RequestError::ShuttingDown), Time(2));
        let (text, is_over) = events.look(&failing);
        assert!(is_over);
        let last = read(&text).pop().expect("an event");
        assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
    }
}
