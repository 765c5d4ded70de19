//! A response that somebody waits for as events: what is new of it since the last look, at its reader's pace.

use base::TokenLogprob;
use serde_json::json;
use serving::error::RequestError;
use serving::relquery_state::RelQueryState;

use super::answer_copy::{AnswerCopy, logprobs_of, whole};
use super::item_events::{ItemEvents, ItemName};
use super::logprobs::ChatToken;
use super::reply::verdict;
use super::response_reply::{AnswerPart, ResponseEnvelope};
use super::token_places::TokenPlaces;

/// Turns states of one request into the events of its response.
#[derive(Debug)]
pub struct ResponseEvents {
    envelope: ResponseEnvelope,
    items: ItemEvents,
    answer: AnswerCopy,
    tokens: PendingTokens,
    /// Whether `store` says what became of it: asked for, it is kept or not only once it is over.
    is_store_settled: bool,
}

/// Tokens of an answer that come with the text that they are of.
#[derive(Debug, Default)]
struct PendingTokens {
    /// Of all tokens so far.
    places: TokenPlaces,
    /// How many were told.
    told: usize,
    /// Those behind them.
    pending: Vec<ChatToken>,
}

impl PendingTokens {
    /// How many tokens there are so far.
    fn known(&self) -> usize {
        self.told + self.pending.len()
    }

    fn extend(&mut self, tokens: &[TokenLogprob]) {
        for token in tokens.iter().map(ChatToken::from) {
            self.places.push(&token);
            self.pending.push(token);
        }
    }

    /// Those that begin in a text, which is the answer's beginning or all of it.
    fn take(&mut self, text: &str, is_all: bool) -> Vec<ChatToken> {
        let until = if is_all { self.known() } else { self.places.begun_before(text, text.len()) };
        let count = until.saturating_sub(self.told);
        self.told += count;
        self.pending.drain(..count).collect()
    }
}

impl ResponseEvents {
    /// For one request.
    pub fn new(envelope: ResponseEnvelope) -> Self {
        let (items, answer, tokens) = Default::default();
        let is_store_settled = !envelope.echo.store;
        Self { envelope, items, answer, tokens, is_store_settled }
    }

    /// Where the response is to be kept and is over, its identity and what is to be kept of its reply. It is asked
    /// for before each look.
    pub fn to_keep(&mut self, relquery: &RelQueryState) -> Option<(String, String)> {
        if self.is_store_settled {
            return None;
        }
        let whole = whole(&relquery.read())?;
        self.is_store_settled = true;
        self.envelope.to_keep(&whole)
    }

    /// The response turned out to be kept or not.
    pub fn kept(&mut self, is_kept: bool) {
        self.envelope.echo.store = is_kept;
    }

    /// What is new, as events; whether that was all. One that ended since it was last asked whether it is to be kept
    /// ([`Self::to_keep`]) ends at the next look: its end says whether it is.
    pub fn look(&mut self, relquery: &RelQueryState) -> (String, bool) {
        let mut out = String::new();
        if self.items.sequence == 0 {
            let begun = json!({"response": self.envelope.object("in_progress", Vec::new())});
            self.items.event(&mut out, "response.created", || begun.clone());
            self.items.event(&mut out, "response.in_progress", || begun);
        }
        let (verdict, added, tokens, whole) = {
            let state = relquery.read();
            let row = state.rows.first();
            let added = row.map_or_else(String::new, |row| self.answer.added(&row.text));
            let tokens = row.and_then(|row| row.logprobs.get(self.tokens.known()..)).map(<[_]>::to_vec);
            let whole = whole(&state).filter(|_| self.is_store_settled);
            (verdict(&state), added, tokens, whole)
        };
        self.tokens.extend(&tokens.unwrap_or_default());
        // A reply repeats its request: it is made once, at the end.
        let reply = match (verdict, whole) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(state)) => self.envelope.reply(&state).map(Some),
            (Ok(()), None) => Ok(None),
        };
        let status = reply.as_ref().ok().and_then(Option::as_ref).map(|reply| reply.status);
        self.answer.take(self.envelope.tools(), &added, status.is_some());
        self.tell(&mut out, relquery, status);
        match reply {
            Err(error) => {
                self.fail(&mut out, &error);
                (out, true)
            }
            Ok(Some(reply)) => {
                let name = format!("response.{}", reply.status);
                self.items.event(&mut out, &name, || json!({"response": reply}));
                (out, true)
            }
            Ok(None) => (out, false),
        }
    }

    /// What is new of the answer; `status`: how it ended, where it has.
    fn tell(&mut self, out: &mut String, relquery: &RelQueryState, status: Option<&'static str>) {
        let Self { envelope, items, answer, tokens, .. } = self;
        let answer = answer.read();
        let parts = AnswerPart::all(answer, status.is_some());
        let last = parts.len().saturating_sub(1);
        for (place, part) in parts.into_iter().enumerate().skip(items.closed) {
            let status = if place < last { Some("completed") } else { status };
            let added = items.unsent(part.text());
            if added.is_empty() && status.is_none() && items.is_open() {
                continue;
            }
            let id = envelope.item_id(part);
            let item = ItemName { id: &id, is_message: part.is_text() };
            items.open(out, item, || json!(envelope.item("in_progress", part, Vec::new())));
            if !added.is_empty() {
                let is_all = status.is_some() && answer.calls.is_empty();
                let told =
                    if part.has_tokens(answer) { tokens.take(part.text(), is_all) } else { Vec::new() };
                items.delta(out, item, (added, || json!(told)));
            }
            if let Some(status) = status {
                items.close(out, item, || {
                    let tokens = if part.is_text() { logprobs_of(relquery) } else { Vec::new() };
                    json!(envelope.item(status, part, envelope.part_logprobs(part, (answer, &tokens))))
                });
            }
        }
    }

    /// The last event of a response that failed.
    pub fn fail(&mut self, out: &mut String, error: &RequestError) {
        let failed = self.envelope.failed(error);
        self.items.event(out, "response.failed", || json!({"response": failed}));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use base::{End, Logprob, RelQueryId, TenantId, Time, TokenCount, ToolCallForm};
    use serde_json::Value;
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, RowProgress, Status, Usage};

    use super::*;
    use crate::wire::openai::tests::model;
    use crate::wire::openai::{CallReader, ResponseEcho};

    const ARRIVAL: Arrival = Arrival { unix_ms: 5_999, time: Time(0) };

    pub(crate) const SAID: &str = "I  look at once, ééééééééééééééééééééééé. <tool_call>{\"name\": \"find\", \
        \"arguments\": {\"text\": \"a b\"}}</tool_call> and \
        <tool_call>{\"name\": \"find\"}</tool_call> Done so.";

    pub(crate) fn envelope(relquery: &RelQueryState) -> ResponseEnvelope {
        let echo = ResponseEcho {
            instructions: None,
            max_output_tokens: None,
            metadata: json!({}),
            temperature: 0.0,
            top_p: 1.0,
            text: json!({}),
            top_logprobs: 0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            truncation: "disabled",
            reasoning: json!({}),
            service_tier: "default",
            max_tool_calls: None,
            user: None,
            safety_identifier: None,
            prompt_cache_key: None,
            tools: Vec::new(),
            tool_choice: json!("auto"),
            parallel_tool_calls: true,
            previous_response_id: None,
            store: false,
            background: false,
            has_logprobs: false,
        };
        ResponseEnvelope::new(relquery, &model(), echo)
    }

    /// A token that is this text, or a part of a character of it.
    pub(crate) fn token(bytes: &[u8]) -> TokenLogprob {
        let token = String::from_utf8_lossy(bytes).into_owned();
        let chosen = Logprob { id: None, token, logprob: -0.1, bytes: Some(bytes.to_vec()) };
        TokenLogprob { chosen, is_hidden: false, top: Vec::new() }
    }

    /// The texts of tokens that are told.
    pub(crate) fn texts(logprobs: &Value) -> Vec<&str> {
        let tokens = logprobs.as_array().expect("tokens").iter();
        tokens.map(|token| token["token"].as_str().expect("a text")).collect()
    }

    fn events(relquery: &RelQueryState) -> ResponseEvents {
        ResponseEvents::new(envelope(relquery))
    }

    /// Of an answer that may call tools.
    pub(crate) fn calling(relquery: &RelQueryState) -> ResponseEnvelope {
        let names = ["find".to_owned()].into();
        let form = ToolCallForm::Hermes;
        let (is_bare, is_named, is_legacy) = (false, false, false);
        let reader = CallReader { names, form, is_bare, is_named, is_parallel: true, is_legacy };
        envelope(relquery).calling(Some(Arc::new(reader)))
    }

    pub(crate) fn relquery() -> Arc<RelQueryState> {
        RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL)
    }

    pub(crate) fn read(text: &str) -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    pub(crate) fn done(end: End) -> RowProgress {
        let usage = Usage { prompt: TokenCount(7), output: TokenCount(3), ..Usage::default() };
        RowProgress::Done { end, usage, source: AnswerSource::Model }
    }

    #[test]
    fn a_response_is_told_in_openais_events_whatever_the_readers_pace() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut events = events(&relquery);
        let (first, _) = events.look(&relquery);
        relquery.token(0, "é", true, Time(1));
        let (second, _) = events.look(&relquery);
        assert_eq!(events.look(&relquery), (String::new(), false), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.settle(0, done(End::Stop), Time(3));
        let (third, is_over) = events.look(&relquery);
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
        let all = read(&cut.look(&relquery).0);
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
        let (text, is_over) = failing.look(&relquery);
        let all = read(&text);
        assert!(is_over && all.iter().any(|event| event["delta"] == "so far"));
        let last = all.last().expect("events");
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert!(last["response"]["error"]["message"].is_string(), "{last}");
    }

    #[test]
    fn an_end_is_told_once_it_is_known_whether_the_response_is_kept() {
        let relquery = relquery();
        let mut envelope = envelope(&relquery);
        envelope.echo.store = true;
        let mut events = ResponseEvents::new(envelope);
        relquery.token(0, "a", true, Time(1));
        assert_eq!(events.to_keep(&relquery), None, "it is not over");
        // It ends between being asked for and the look.
        relquery.settle(0, done(End::Stop), Time(2));
        let (text, is_over) = events.look(&relquery);
        assert!(
            !is_over && !text.contains("response.completed") && text.contains("output_text.delta"),
            "{text}"
        );
        let (id, reply) = events.to_keep(&relquery).expect("it is over");
        assert!(reply.contains("\"store\":true") && reply.contains(&id), "{reply}");
        events.kept(false);
        assert_eq!(events.to_keep(&relquery), None, "it was asked for once");
        let (text, is_over) = events.look(&relquery);
        let all = read(&text);
        let last = all.last().expect("events");
        assert_eq!((is_over, &last["response"]["store"]), (true, &json!(false)), "{text}");

        // One that failed is not kept, and ends at once.
        let relquery = self::relquery();
        let mut envelope = self::envelope(&relquery);
        envelope.echo.store = true;
        let mut failing = ResponseEvents::new(envelope);
        relquery.end(Status::Failed(RequestError::ShuttingDown), Time(2));
        assert!(failing.look(&relquery).1);
        assert_eq!(failing.to_keep(&relquery), None);
    }

    pub(crate) fn name(event: &Value) -> &str {
        event["type"].as_str().expect("a name").strip_prefix("response.").unwrap_or("error")
    }

    #[test]
    fn an_item_is_closed_before_the_next_is_opened() {
        let relquery = relquery();
        let mut events = ResponseEvents::new(calling(&relquery));
        let mut text = String::new();
        for character in SAID.chars() {
            relquery.token(0, &character.to_string(), false, Time(1));
            text.push_str(&events.look(&relquery).0);
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(&relquery).0);
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

    /// The events of an answer of these tokens, looked at behind each.
    fn told_with_tokens(relquery: &RelQueryState, mut events: ResponseEvents, said: &[&str]) -> Vec<Value> {
        let mut text = String::new();
        for &said in said {
            relquery.keep_logprobs(0, &[token(said.as_bytes())]);
            relquery.token(0, said, false, Time(1));
            text.push_str(&events.look(relquery).0);
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(relquery).0);
        read(&text)
    }

    #[test]
    fn log_probabilities_are_told_once_as_they_come_and_whole_at_the_end() {
        let relquery = relquery();
        let all = told_with_tokens(&relquery, events(&relquery), &["a", "b"]);
        let deltas = all.iter().filter(|event| event["type"] == "response.output_text.delta");
        let told: Vec<_> = deltas.map(|event| texts(&event["logprobs"])).collect();
        assert_eq!(told, [["a"], ["b"]]);
        let closed = all.iter().find(|event| event["type"] == "response.output_text.done");
        assert_eq!(texts(&closed.expect("it is closed")["logprobs"]), ["a", "b"]);
    }

    #[test]
    fn tokens_of_a_call_are_told_with_no_text() {
        let relquery = relquery();
        let said = ["Sure", " so", "<tool_call>", "{\"name\": \"find\"}", "</tool_call>", " Done"];
        let all = told_with_tokens(&relquery, ResponseEvents::new(calling(&relquery)), &said);
        let of = |name: &str| -> Vec<Vec<&str>> {
            let found = all.iter().filter(|event| event["type"] == name);
            found.map(|event| texts(&event["logprobs"])).collect()
        };
        let first: Vec<&str> = of("response.output_text.delta").concat();
        assert_eq!(first, ["Sure", " so"]);
        assert_eq!(of("response.output_text.done"), [vec!["Sure", " so"], vec![]]);
    }
}
