//! Numbered events of a response, and of the items of its output: each is closed before the next is opened.
//!
//! What an event says is made only where it is told: its reader may have it already.

use serde_json::{Value, json};

use super::token_places::PieceTokens;

/// Most bytes of one piece of a text in the background. Words are shorter; what has no words comes in such pieces.
const PIECE_BYTES_MAX: usize = 32;

/// Bytes of events behind which an answer that is told in pieces goes on at the next call: its events are some forty times
/// its text.
pub(super) const EVENTS_BYTES_MAX: usize = 64 << 10;

/// What all events of an item name.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemName<'a> {
    pub(super) id: &'a str,
    /// A message; otherwise a call.
    pub(super) is_message: bool,
}

/// What an item says, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemText<'a> {
    pub(super) text: &'a str,
    /// Whether that is all of it.
    pub(super) is_whole: bool,
    /// Its tokens, where they are told.
    pub(super) tokens: Option<PieceTokens<'a>>,
}

/// Counts events, and tells items.
#[derive(Debug, Default)]
pub(super) struct ItemEvents {
    /// The number of the next event.
    pub(super) sequence: u64,
    /// The last event that is left out: the reader has all up to it.
    pub(super) after: Option<u64>,
    /// Items that were closed.
    pub(super) closed: usize,
    /// Bytes that were told of the item behind those, once it is open.
    told: Option<usize>,
}

impl ItemEvents {
    /// For a reader who has all events up to `after`.
    pub(super) fn behind(after: Option<u64>) -> Self {
        Self { after, ..Self::default() }
    }

    pub(super) fn event(&mut self, out: &mut String, name: &str, fields: impl FnOnce() -> Value) {
        let number = self.sequence;
        self.sequence += 1;
        if self.is_known(number) {
            return;
        }
        let mut event = json!({"type": name, "sequence_number": number});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields()) {
            event.extend(fields);
        }
        out.push_str(&format!("event: {name}\ndata: {event}\n\n"));
    }

    /// Whether the reader has an event.
    fn is_known(&self, number: u64) -> bool {
        self.after.is_some_and(|after| number <= after)
    }

    /// An event of the item that is open.
    fn item_event(
        &mut self,
        out: &mut String,
        (name, item): (&str, ItemName<'_>),
        fields: impl FnOnce() -> Value,
    ) {
        let place = self.closed;
        self.event(out, name, || {
            let mut event = json!({"item_id": item.id, "output_index": place});
            if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields()) {
                event.extend(fields);
            }
            event
        });
    }

    pub(super) fn is_open(&self) -> bool {
        self.told.is_some()
    }

    /// Bytes that were told of the item that is open.
    pub(super) fn told(&self) -> Option<usize> {
        self.told
    }

    /// What is not told yet of the item that is open or next.
    pub(super) fn unsent<'a>(&self, text: &'a str) -> &'a str {
        // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
        text.get(self.told.unwrap_or_default()..).unwrap_or_default()
    }

    /// Opens the next item where none is open; `made`: the item, whatever it says by now.
    pub(super) fn open(&mut self, out: &mut String, item: ItemName<'_>, made: impl FnOnce() -> Value) {
        if self.told.is_some() {
            return;
        }
        self.told = Some(0);
        let place = self.closed;
        self.event(out, "response.output_item.added", || {
            let mut begun = made();
            begun["status"] = "in_progress".into();
            if item.is_message {
                begun["content"] = json!([]);
            } else {
                begun["arguments"] = "".into();
            }
            json!({"output_index": place, "item": begun})
        });
        if item.is_message {
            self.item_event(out, ("response.content_part.added", item), || {
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                json!({"content_index": 0, "part": part})
            });
        }
    }

    /// Tells more of the item that is open.
    pub(super) fn delta(
        &mut self,
        out: &mut String,
        item: ItemName<'_>,
        (delta, logprobs): (&str, impl FnOnce() -> Value),
    ) {
        self.told = Some(self.told.unwrap_or_default() + delta.len());
        if item.is_message {
            self.item_event(
                out,
                ("response.output_text.delta", item),
                || json!({"content_index": 0, "delta": delta, "logprobs": logprobs()}),
            );
        } else {
            let name = "response.function_call_arguments.delta";
            self.item_event(out, (name, item), || json!({"delta": delta}));
        }
    }

    /// Closes the item that is open; `made`: the whole item.
    pub(super) fn close(&mut self, out: &mut String, item: ItemName<'_>, made: impl FnOnce() -> Value) {
        let events = if item.is_message { 3 } else { 2 };
        if self.is_known(self.sequence + events - 1) {
            self.sequence += events;
        } else {
            self.tell_whole(out, item, &made());
        }
        self.closed += 1;
        self.told = None;
    }

    fn tell_whole(&mut self, out: &mut String, item: ItemName<'_>, whole: &Value) {
        if item.is_message {
            let part = &whole["content"][0];
            self.item_event(out, ("response.output_text.done", item), || {
                let logprobs = part.get("logprobs").cloned().unwrap_or_else(|| json!([]));
                json!({"content_index": 0, "text": part["text"], "logprobs": logprobs})
            });
            self.item_event(
                out,
                ("response.content_part.done", item),
                || json!({"content_index": 0, "part": part}),
            );
        } else {
            self.item_event(
                out,
                ("response.function_call_arguments.done", item),
                || json!({"name": whole["name"], "arguments": whole["arguments"]}),
            );
        }
        let place = self.closed;
        self.event(out, "response.output_item.done", || json!({"output_index": place, "item": whole}));
    }

    /// Tells an item in pieces that follow from its text alone, and closes it where that is all of it; `false`: that is
    /// enough for one call, or tokens are not known yet that come with the next piece.
    pub(super) fn tell_in_pieces(
        &mut self,
        out: &mut String,
        item: ItemName<'_>,
        ItemText { text, is_whole, tokens }: ItemText<'_>,
        made: impl Fn() -> Value,
    ) -> bool {
        self.open(out, item, &made);
        loop {
            let rest = self.unsent(text);
            let last = (is_whole && !rest.is_empty()).then_some(rest.len());
            let Some(bytes) = piece(rest).or(last) else { break };
            if out.len() >= EVENTS_BYTES_MAX {
                return false;
            }
            let from = self.told.unwrap_or_default();
            let own = tokens
                .map_or(Some(<&[Value]>::default()), |tokens| tokens.of_piece(text, from..from + bytes));
            let Some(own) = own else { return false };
            self.delta(out, item, (&rest[..bytes], || json!(own)));
        }
        if is_whole {
            let are_known = tokens.is_none_or(|tokens| tokens.reach(text, text.len()));
            if out.len() >= EVENTS_BYTES_MAX || !are_known {
                return false;
            }
            self.close(out, item, &made);
        }
        true
    }
}

/// Bytes of the next piece of a text, where it is known to be whole whatever comes behind it: a word and the white space
/// before it.
pub(super) fn piece(text: &str) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_has_is_counted_and_not_made() {
        let mut items = ItemEvents { after: Some(9), ..ItemEvents::default() };
        let mut out = String::new();
        let made = || -> Value { panic!("the reader has it") };
        items.event(&mut out, "response.created", made);
        let message = ItemName { id: "msg-1", is_message: true };
        let said = ItemText { text: "one two", is_whole: true, tokens: None };
        assert!(items.tell_in_pieces(&mut out, message, said, made));
        let call = ItemName { id: "fc-1", is_message: false };
        items.open(&mut out, call, made);
        assert_eq!((items.sequence, items.closed, out.as_str()), (9, 1, ""));
        items.delta(&mut out, call, ("{}", made));
        assert_eq!((items.sequence, out.as_str()), (10, ""));
        items.close(&mut out, call, || json!({"name": "find", "arguments": "{}"}));
        assert!(out.contains("\"sequence_number\":10") && out.contains("\"sequence_number\":11"), "{out}");
    }
}
