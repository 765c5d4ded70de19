//! A response in the background as events, for any number of readers, who come again behind the last event that they
//! have, after its end and after a restart too. So its events and their numbers follow from its answer alone: nothing of
//! them is kept. An answer that was begun anew goes on where the one before it was, unless it says something else.

use serde::Serialize;
use serde_json::{Value, json};
use serving::error::{RequestError, internal};
use serving::relquery_state::RelQueryState;

use super::answer_copy::{AnswerCopy, is_waiting, logprobs_of};
use super::item_events::{EVENTS_BYTES_MAX, ItemEvents, ItemName, ItemText, piece};
use super::logprobs::ChatToken;
use super::response_reply::{AnswerPart, ResponseEnvelope};
use super::token_places::{PieceTokens, TokenPlaces};
use crate::error;

/// Tells a response in the background, from its beginning on or behind an event that its reader has.
#[derive(Debug)]
pub struct BackgroundEvents {
    /// Its first reply.
    begun: Value,
    items: ItemEvents,
    answer: AnswerCopy,
    /// The answer's tokens so far, where they are told, as they are told.
    tokens: Vec<Value>,
    places: TokenPlaces,
    /// Of the tokens of an item of the reply, by the item's place.
    kept_places: Option<(usize, TokenPlaces)>,
    /// What was told of an answer before this one, until this one is known to say the same.
    said_before: Option<Vec<SaidItem>>,
    /// Whether it does not.
    is_contradicted: bool,
}

/// What was told of an item.
#[derive(Debug)]
struct SaidItem {
    /// A message; otherwise a call.
    is_message: bool,
    text: String,
    /// Whether that was all of it.
    is_whole: bool,
}

/// How an answer agrees with what was told of one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// It says the same, and may go on.
    Same,
    /// So far it does.
    Behind,
    Other,
}

impl Agreement {
    /// Of the items of an answer so far, each a message or not, its text and whether that is whole. `is_all`: no more come.
    fn of<'a>(
        said: &[SaidItem],
        mut items: impl Iterator<Item = (bool, &'a str, bool)>,
        is_all: bool,
    ) -> Self {
        for said in said {
            let Some((is_message, text, is_whole)) = items.next() else {
                return if is_all { Self::Other } else { Self::Behind };
            };
            if is_message != said.is_message {
                return Self::Other;
            }
            let is_same =
                if said.is_whole { is_whole && text == said.text } else { text.starts_with(&said.text) };
            if !is_same {
                let may_become_same = !is_whole && said.text.starts_with(text);
                return if may_become_same { Self::Behind } else { Self::Other };
            }
        }
        Self::Same
    }
}

impl BackgroundEvents {
    /// Of a response whose first reply this is.
    pub fn new(begun: Value, after: Option<u64>) -> Self {
        let (answer, tokens, places) = Default::default();
        let (items, kept_places, said_before) = (ItemEvents::behind(after), None, None);
        Self { begun, items, answer, tokens, places, kept_places, said_before, is_contradicted: false }
    }

    /// What is known of one of whose answer nothing is.
    pub fn begun(&mut self) -> String {
        let mut out = String::new();
        if self.items.sequence == 0 {
            for name in ["response.created", "response.queued"] {
                self.items.event(&mut out, name, || json!({"response": self.begun}));
            }
        }
        out
    }

    /// Its answer may be begun anew: what is told next is read of another copy of it.
    pub fn run_anew(&mut self) {
        // Of one that has not caught up nothing was told.
        self.said_before = self.said_before.take().or_else(|| self.said());
        (self.answer, self.tokens, self.places) = Default::default();
    }

    /// Whether its answer was begun anew and says something else than was told: nothing of it is told.
    pub fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// What was told of its answer.
    fn said(&self) -> Option<Vec<SaidItem>> {
        let open = self.items.told();
        let items = self.items.closed + usize::from(open.is_some());
        let parts = AnswerPart::all(self.answer.read(), false).into_iter().take(items).enumerate();
        let said = parts.map(|(place, part)| {
            let is_whole = place < self.items.closed;
            let bytes = if is_whole { part.text().len() } else { open.unwrap_or_default() };
            let text = part.text().get(..bytes).unwrap_or_default().to_owned();
            SaidItem { is_message: part.is_text(), text, is_whole }
        });
        let said: Vec<SaidItem> = said.collect();
        (!said.is_empty()).then_some(said)
    }

    /// Whether more is told of an answer that agrees so with what was told of one before it.
    fn goes_on(&mut self, agreement: Agreement) -> bool {
        match agreement {
            Agreement::Same => self.said_before = None,
            Agreement::Behind => {}
            Agreement::Other => self.is_contradicted = true,
        }
        agreement == Agreement::Same
    }

    /// What is new of one that runs here, and whether it is over. Much is told by several calls: the last of them tells
    /// nothing. Its end is told as it is kept ([`Self::end`]).
    pub fn look(&mut self, envelope: &ResponseEnvelope, relquery: &RelQueryState) -> (String, bool) {
        let mut out = self.begun();
        let (is_waiting, is_over, added, tokens) = {
            let state = relquery.read();
            let Some(row) = state.rows.first() else { return (out, state.is_over()) };
            let tokens = row.logprobs.get(self.tokens.len()..).unwrap_or_default().to_vec();
            (is_waiting(row), state.is_over(), self.answer.added(&row.text), tokens)
        };
        if is_waiting {
            return (out, is_over);
        }
        self.go_on(&mut out);
        self.answer.take(envelope.tools(), &added, false);
        for token in tokens.iter().map(ChatToken::from) {
            let token = by_its_text(&token);
            self.places.push_kept(&token);
            self.tokens.push(token);
        }
        if let Some(said) = &self.said_before {
            let parts = AnswerPart::all(self.answer.read(), false);
            let last = parts.len().saturating_sub(1);
            let so_far = parts.iter().enumerate();
            let so_far = so_far.map(|(place, part)| (part.is_text(), part.text(), place < last));
            let agreement = Agreement::of(said, so_far, false);
            if !self.goes_on(agreement) {
                return (out, is_over);
            }
        }
        let Self { items, answer, tokens, places, .. } = self;
        let (answer, tokens, places) = (answer.read(), tokens.as_slice(), &*places);
        let parts = AnswerPart::all(answer, false);
        let last = parts.len().saturating_sub(1);
        for (place, part) in parts.into_iter().enumerate().skip(items.closed) {
            let is_whole = place < last;
            let is_begun = !part.is_text() && !items.is_open();
            if !is_whole && !is_begun && piece(items.unsent(part.text())).is_none() {
                continue;
            }
            let id = envelope.item_id(part);
            let item = ItemName { id: &id, is_message: part.is_text() };
            let made = || {
                let tokens = if is_whole && part.is_text() { logprobs_of(relquery) } else { Vec::new() };
                let logprobs = envelope.part_logprobs(part, (answer, &tokens));
                by_its_text(&envelope.item("completed", part, logprobs))
            };
            let own = PieceTokens { tokens, places, are_all: false };
            let is_told = envelope.echo.has_logprobs && part.has_tokens(answer);
            let said = ItemText { text: part.text(), is_whole, tokens: is_told.then_some(own) };
            if !items.tell_in_pieces(&mut out, item, said, made) {
                break;
            }
        }
        (out, is_over)
    }

    /// What is left of one that is over and whose reply this is, and whether that was all: much is told by several calls.
    pub fn end(&mut self, reply: &Value) -> (String, bool) {
        let mut out = self.begun();
        let status = reply["status"].as_str().unwrap_or_default();
        if ["completed", "incomplete"].contains(&status) {
            if let Some(said) = &self.said_before {
                let all = output_of(reply).map(|(_, is_message, text)| (is_message, text, true));
                let agreement = Agreement::of(said, all, true);
                if !self.goes_on(agreement) {
                    return (out, true);
                }
            }
            self.go_on(&mut out);
            for (item, is_message, text) in output_of(reply).skip(self.items.closed) {
                let name = ItemName { id: item["id"].as_str().unwrap_or_default(), is_message };
                let tokens = item["content"][0]["logprobs"].as_array().map(Vec::as_slice).unwrap_or_default();
                let Self { items, kept_places, .. } = &mut *self;
                let place = items.closed;
                let (_, places) = match kept_places.take().filter(|(of, _)| *of == place) {
                    Some(known) => kept_places.insert(known),
                    None => kept_places.insert((place, TokenPlaces::of_kept(tokens))),
                };
                let own = PieceTokens { tokens, places, are_all: true };
                let said = ItemText { text, is_whole: true, tokens: Some(own) };
                if !items.tell_in_pieces(&mut out, name, said, || item.clone()) {
                    return (out, false);
                }
            }
            if out.len() >= EVENTS_BYTES_MAX {
                return (out, false);
            }
        } else if let Some(after) = self.items.after {
            // What it had said was not kept: its end comes behind all that the reader has.
            self.items.sequence = self.items.sequence.max(after.saturating_add(1));
        }
        self.items.event(&mut out, &format!("response.{status}"), || json!({"response": reply}));
        (out, true)
    }

    /// Why no more is told here. It has the number of the event before it: the next one is still to come.
    pub fn error(&self, error: &RequestError) -> String {
        let error = error::body(error).error;
        // A reader that comes again names the last number that it has seen, which must not fall.
        let number = self.items.sequence.saturating_sub(1).max(self.items.after.unwrap_or(0));
        let event = json!({
            "type": "error", "sequence_number": number,
            "code": error.code.unwrap_or(error.kind), "message": error.message, "param": error.param,
        });
        format!("event: error\ndata: {event}\n\n")
    }

    /// The model has begun with it.
    fn go_on(&mut self, out: &mut String) {
        if self.items.sequence == 2 {
            self.items.event(out, "response.in_progress", || {
                let mut begun = self.begun.clone();
                begun["status"] = "in_progress".into();
                json!({"response": begun})
            });
        }
    }
}

/// The items of a reply: each with whether it is a message, and what it says.
fn output_of(reply: &Value) -> impl Iterator<Item = (&Value, bool, &str)> {
    reply["output"].as_array().into_iter().flatten().map(|item| {
        let is_message = item["type"] == "message";
        let text = if is_message { &item["content"][0]["text"] } else { &item["arguments"] };
        (item, is_message, text.as_str().unwrap_or_default())
    })
}

/// What is told as it is read of its text, as the reply will be that is kept: a number read of a text may have another
/// last digit.
fn by_its_text(told: &impl Serialize) -> Value {
    let text = serde_json::to_string(told).map_err(internal);
    text.and_then(|text| serde_json::from_str(&text).map_err(internal)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use base::{End, Time};

    use super::*;
    use crate::wire::openai::response_events::tests::{
        SAID, calling, done, envelope, name, read, relquery, texts, token,
    };

    fn numbers(events: &[Value]) -> Vec<u64> {
        events.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect()
    }

    /// What is left of one that is over.
    fn ended(events: &mut BackgroundEvents, reply: &Value) -> String {
        let mut text = String::new();
        loop {
            let (next, is_all) = events.end(reply);
            text.push_str(&next);
            if is_all {
                return text;
            }
            assert!(!next.is_empty(), "a call tells something");
        }
    }

    /// The events of a response in the background, at this pace and from this event on, and its reply.
    fn told(pace: usize, after: Option<u64>) -> (Vec<Value>, Value) {
        let relquery = relquery();
        let envelope = calling(&relquery);
        let mut events = BackgroundEvents::new(json!(envelope.queued()), after);
        let (mut text, _) = events.look(&envelope, &relquery);
        let told = after.map_or(2, |after| 1_u64.saturating_sub(after));
        assert_eq!(read(&text).len() as u64, told, "the model has not begun");
        for (place, character) in SAID.chars().enumerate() {
            relquery.token(0, &character.to_string(), place == 0, Time(1));
            if place % pace == 0 {
                text.push_str(&events.look(&envelope, &relquery).0);
            }
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(&envelope, &relquery).0);
        let reply = json!(envelope.reply(&relquery.read()).expect("an answer"));
        text.push_str(&ended(&mut events, &reply));
        (read(&text), reply)
    }

    #[test]
    fn events_in_the_background_are_the_same_at_any_pace_and_when_all_is_over() {
        let (all, reply) = told(1, None);
        assert_eq!(numbers(&all), (0..all.len() as u64).collect::<Vec<_>>());
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
            let kept = ended(&mut BackgroundEvents::new(begun.clone(), after), &reply);
            assert_eq!(read(&kept), all[from..], "behind {after:?}");
            let (live, _) = told(3, after);
            assert_eq!(live, all[from..], "behind {after:?}");
        }
    }

    /// The events of one whose tokens are these, which are told, at this pace, and its reply; `late`: they are known at
    /// its end alone. The text does not have the first one's blank, nor the last.
    fn told_with_tokens(said: &[&str], pace: usize, late: bool) -> (Vec<Value>, Value) {
        let relquery = relquery();
        let mut envelope = calling(&relquery);
        envelope.echo.has_logprobs = true;
        let mut events = BackgroundEvents::new(json!(envelope.queued()), None);
        let (mut text, _) = events.look(&envelope, &relquery);
        let tokens: Vec<_> = said.iter().map(|said| token(said.as_bytes())).collect();
        for (place, &said) in said.iter().enumerate() {
            if !late {
                relquery.keep_logprobs(0, &tokens[place..=place]);
            }
            let said = if place == 0 { said.trim_start() } else { said };
            let said = if place + 1 == tokens.len() { "" } else { said };
            relquery.token(0, said, place == 0, Time(1));
            if place % pace == 0 {
                text.push_str(&events.look(&envelope, &relquery).0);
            }
        }
        if late {
            let told = read(&text);
            assert!(told.iter().all(|event| event["delta"].is_null()), "a word waits for its tokens");
            relquery.keep_logprobs(0, &tokens);
        }
        relquery.settle(0, done(End::Stop), Time(3));
        text.push_str(&events.look(&envelope, &relquery).0);
        let reply = by_its_text(&envelope.reply(&relquery.read()).expect("an answer"));
        text.push_str(&ended(&mut events, &reply));
        (read(&text), reply)
    }

    #[test]
    fn tokens_come_with_the_word_that_they_begin_in_at_any_pace_and_when_all_is_over() {
        let text = [" One", " two", ", thr", "ee"];
        let call = ["<tool_call>", "{\"name\": \"find\"}", "</tool_call>"];
        let words = [vec![" One"], vec![" two", ", thr"]];
        for (said, last) in [
            ([text.as_slice(), &["<e>"]].concat(), vec!["ee", "<e>"]),
            ([text.as_slice(), &call, &["<e>"]].concat(), vec!["ee"]),
        ] {
            let (all, reply) = told_with_tokens(&said, 1, false);
            let of_text = all.iter().filter(|event| event["output_index"] == 0 && event["delta"].is_string());
            let told: Vec<_> = of_text.map(|event| texts(&event["logprobs"])).collect();
            assert_eq!(told, [words.as_slice(), &[last]].concat());
            let closed = all.iter().find(|event| event["type"] == "response.output_text.done");
            assert_eq!(texts(&closed.expect("it is closed")["logprobs"]), told.concat());
            for (pace, late) in [(2, false), (100, false), (1, true), (100, true)] {
                assert_eq!(told_with_tokens(&said, pace, late).0, all, "pace {pace}, late {late}");
            }
            for after in (0..all.len()).map(Some).chain([None]) {
                let from = after.map_or(0, |after| after + 1);
                let begun = all[0]["response"].clone();
                let mut kept = BackgroundEvents::new(begun, after.map(|after| after as u64));
                assert_eq!(read(&ended(&mut kept, &reply)), all[from..], "behind {after:?}");
            }
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
            let all = read(&ended(&mut events, &reply));
            let last = all.last().expect("an end");
            let end = (&last["type"], &last["sequence_number"]);
            assert_eq!(end, (&json!("response.cancelled"), &json!(expected)));
            assert_eq!(last["response"], reply);
        }
        let behind = BackgroundEvents::new(begun.clone(), Some(9));
        let error = &read(&behind.error(&RequestError::ShuttingDown))[0];
        assert_eq!(error["sequence_number"], 9, "its reader does not go back");
        let mut events = BackgroundEvents::new(begun, None);
        events.look(&envelope(&relquery), &relquery);
        let error = &read(&events.error(&RequestError::ShuttingDown))[0];
        assert_eq!((&error["type"], &error["sequence_number"]), (&json!("error"), &json!(1)));
        assert!(error["message"].is_string() && error["code"].is_string(), "{error}");
    }

    /// A reader's events of an answer that is told up to here, and what they tell then of another that begins anew.
    fn begun_anew(said: &str, again: &str) -> (BackgroundEvents, Vec<Value>) {
        let (first, second) = (relquery(), relquery());
        let envelope = calling(&first);
        let mut events = BackgroundEvents::new(json!(envelope.queued()), None);
        first.token(0, said, true, Time(1));
        events.look(&envelope, &first);
        events.run_anew();
        let mut text = String::new();
        for character in again.chars() {
            second.token(0, &character.to_string(), false, Time(2));
            text.push_str(&events.look(&envelope, &second).0);
        }
        (events, read(&text))
    }

    #[test]
    fn an_answer_that_begins_anew_goes_on_where_it_says_the_same_and_else_is_not_told() {
        let (all, reply) = told(1, None);
        let (middle, _) = SAID.split_once(" and").expect("two calls");
        for said in ["I  look at", middle] {
            let (mut events, rest) = begun_anew(said, SAID);
            assert!(!events.is_contradicted() && !rest.is_empty(), "{said}");
            let rest = [rest, read(&ended(&mut events, &reply))].concat();
            assert_eq!(rest, all[all.len() - rest.len()..], "{said}");
        }
        // Told: a word of the text, all of the text and a call. The white space behind a word is told with the next.
        let call = "I  look at once, ééééééééééééééééééééééé. <tool_call>{\"name\": \"find\"}</tool_call>";
        for (said, again) in [
            ("I  look at", "I  lo"),
            ("I  look at", "You look at once"),
            (middle, "I  look at once, and more."),
            (middle, call),
            (middle, "<tool_call>{\"name\": \"find\"}</tool_call>"),
        ] {
            let (mut events, rest) = begun_anew(said, again);
            assert_eq!(rest, Vec::<Value>::new(), "{again}");
            let is_behind = said.starts_with(again);
            assert_eq!(events.is_contradicted(), !is_behind, "{again}");
            // What is over says nothing more.
            let second = relquery();
            second.token(0, again, true, Time(1));
            second.settle(0, done(End::Stop), Time(2));
            let reply = json!(calling(&second).reply(&second.read()).expect("an answer"));
            assert_eq!(
                (events.end(&reply), events.is_contradicted()),
                ((String::new(), true), true),
                "{again}"
            );
        }
    }

    #[test]
    fn a_long_answer_is_told_by_several_calls_and_each_tells_little() {
        let relquery = relquery();
        let envelope = envelope(&relquery);
        let said = "word ".repeat(20_000);
        let begun = json!(envelope.queued());
        let mut along = BackgroundEvents::new(begun.clone(), None);
        // One that came before there was anything, and one that comes when all is there.
        along.look(&envelope, &relquery);
        relquery.token(0, &said, true, Time(1));
        let mut live = String::new();
        let mut calls = 0;
        loop {
            let (next, is_over) = along.look(&envelope, &relquery);
            assert!(next.len() < EVENTS_BYTES_MAX + 1_000 && !is_over);
            if next.is_empty() {
                break;
            }
            calls += 1;
            live.push_str(&next);
        }
        assert!(calls > 10, "{calls} calls");
        relquery.settle(0, done(End::Stop), Time(3));
        let reply = json!(envelope.reply(&relquery.read()).expect("an answer"));
        live.push_str(&ended(&mut along, &reply));
        let mut late = BackgroundEvents::new(begun, None);
        let (first, is_all) = late.end(&reply);
        assert!(first.len() < EVENTS_BYTES_MAX + 1_000 && !is_all);
        let all = read(&[first, ended(&mut late, &reply)].concat());
        assert_eq!(numbers(&all), (0..all.len() as u64).collect::<Vec<_>>());
        // The first two were told before.
        assert_eq!(read(&live), all[2..]);
        let deltas: String = all.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(deltas, said);
    }
}
