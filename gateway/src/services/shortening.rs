//! Conversations that do not fit the model's context: their oldest messages are left out, as OpenAI's `truncation` has it.
//! Must not know how a conversation is made ready.

use base::Role;
use serving::error::RequestError;

use crate::wire::openai::{ChatRequest, Message, ToolPart};

/// A conversation made ready, without as many of its oldest messages as it takes to fit. What stands before it for the
/// model (system messages) stays, and so does the last thing that the user says, with all that follows it.
pub(crate) fn shortened<T>(
    chat: ChatRequest,
    prepare: impl Fn(ChatRequest) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    let whole = prepare(chat.clone());
    if !is_too_long(&whole) {
        return whole;
    }
    let head = chat.messages.iter().take_while(|message| message.role == Role::System).count();
    // Results of calls are a user's messages too, and mean nothing without the calls.
    let begins = |message: &Message| message.role == Role::User && message.tool == ToolPart::Nothing;
    let places = head + 1..chat.messages.len();
    let places: Vec<usize> = places.filter(|place| begins(&chat.messages[*place])).collect();
    let from = |place: usize| {
        let mut shorter = chat.clone();
        shorter.messages.drain(head..place);
        prepare(shorter)
    };
    // The more is left out, the shorter is the rest.
    let first = places.partition_point(|place| is_too_long(&from(*place)));
    places.get(first).map_or(whole, |place| from(*place))
}

fn is_too_long<T>(prepared: &Result<T, RequestError>) -> bool {
    matches!(prepared, Err(RequestError::TooLong { .. }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    /// What is said of a conversation that has room for so many bytes.
    fn said(messages: &Value, room: usize) -> Result<Vec<String>, RequestError> {
        let body = json!({ "messages": messages }).to_string();
        let fields = json::object(body.as_bytes()).expect("an object");
        let chat = with_context(&LimitsConfig::default(), |context| ChatRequest::read(fields, context));
        shortened(chat.expect("valid"), |chat| {
            let said: Vec<String> = chat.messages.into_iter().map(|message| message.content).collect();
            let bytes = said.iter().map(String::len).sum::<usize>();
            if bytes <= room {
                return Ok(said);
            }
            Err(RequestError::TooLong {
                prompt: bytes as u64,
                output: 1,
                what: "context",
                limit: room as u64,
            })
        })
    }

    #[test]
    fn the_oldest_messages_give_way_and_the_systems_and_the_last_stay() {
        let messages = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "aaaa"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": "cc"},
            {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]);
        for (room, kept) in [
            (10, &["s", "aaaa", "b", "cc", "d", "e"][..]),
            (9, &["s", "cc", "d", "e"]),
            (5, &["s", "cc", "d", "e"]),
            (4, &["s", "e"]),
            (2, &["s", "e"]),
        ] {
            assert_eq!(said(&messages, room).expect("it fits"), kept, "room for {room}");
        }
        let refused = said(&messages, 1);
        assert!(matches!(refused, Err(RequestError::TooLong { prompt: 10, .. })), "all of it: {refused:?}");
    }

    #[test]
    fn what_came_of_a_call_does_not_begin_a_conversation() {
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = json!([{"role": "user", "content": "aaaa"}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "e"}]);
        assert_eq!(said(&messages, 2).expect("it fits"), ["e"]);
        let unended = json!([messages[0], messages[1], messages[2]]);
        assert!(said(&unended, 2).is_err(), "what the last word asked for is there");
    }
}
