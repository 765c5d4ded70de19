//! Conversations that do not fit the model's context: their oldest messages are left out, as OpenAI's `truncation` has it.
//! Must not know how a conversation is made ready.

use base::Role;
use serving::error::RequestError;

use crate::wire::openai::{ChatRequest, Message, ToolPart};

/// A conversation made ready, without as many of its oldest messages as it takes to fit. System messages stay, and so
/// does the last thing that the user says, with all that follows it. `bytes_max`: more cannot fit, and is refused
/// before anybody counts its tokens.
pub(crate) fn shortened<T>(
    chat: ChatRequest,
    bytes_max: u64,
    prepare: impl Fn(ChatRequest) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    let attempt = |chat: ChatRequest| {
        let bytes: u64 = chat.messages.iter().map(|message| message.content.len() as u64).sum();
        let prepared = prepare(chat);
        let is_too_long = bytes > bytes_max || matches!(prepared, Err(RequestError::TooLong { .. }));
        (prepared, is_too_long)
    };
    let (whole, is_too_long) = attempt(chat.clone());
    if !is_too_long {
        return whole;
    }
    let head = chat.messages.iter().take_while(|message| message.role == Role::System).count();
    // Results of calls are a user's messages too, and mean nothing without the calls.
    let begins = |message: &Message| message.role == Role::User && message.tool == ToolPart::Nothing;
    let places = head + 1..chat.messages.len();
    let places: Vec<usize> = places.filter(|place| begins(&chat.messages[*place])).collect();
    let from = |place: usize| {
        let mut shorter = chat.clone();
        let mut numbers = 0_usize..;
        shorter.messages.retain(|message| numbers.next() >= Some(place) || message.role == Role::System);
        attempt(shorter)
    };
    // The more is left out, the shorter is the rest.
    let first = places.partition_point(|place| from(*place).1);
    places.get(first).map_or(whole, |place| from(*place).0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    /// What is said of a conversation that has room for so many bytes, and is refused at once with more than `bytes_max`.
    fn said(messages: &Value, (room, bytes_max): (usize, usize)) -> Result<Vec<String>, RequestError> {
        let body = json!({ "messages": messages }).to_string();
        let fields = json::object(body.as_bytes()).expect("an object");
        let chat = with_context(&LimitsConfig::default(), |context| ChatRequest::read(fields, context));
        shortened(chat.expect("valid"), bytes_max as u64, |chat| {
            let said: Vec<String> = chat.messages.into_iter().map(|message| message.content).collect();
            let bytes = said.iter().map(String::len).sum::<usize>();
            if bytes > bytes_max {
                return Err(RequestError::invalid("messages", "cannot fit"));
            }
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
            assert_eq!(said(&messages, (room, 99)).expect("it fits"), kept, "room for {room}");
            assert_eq!(said(&messages, (room, room)).expect("it fits"), kept, "{room} bytes at most");
        }
        let refused = said(&messages, (1, 99));
        assert!(matches!(refused, Err(RequestError::TooLong { prompt: 10, .. })), "all of it: {refused:?}");
        let between = json!([{"role": "user", "content": "aaaa"}, {"role": "developer", "content": "t"},
            {"role": "user", "content": "e"}]);
        assert_eq!(said(&between, (2, 99)).expect("it fits"), ["t", "e"], "the system's among them too");
    }

    #[test]
    fn what_came_of_a_call_does_not_begin_a_conversation() {
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = json!([{"role": "user", "content": "aaaa"}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "e"}]);
        assert_eq!(said(&messages, (2, 99)).expect("it fits"), ["e"]);
        let unended = json!([messages[0], messages[1], messages[2]]);
        assert!(said(&unended, (2, 99)).is_err(), "what the last word asked for is there");
    }
}
