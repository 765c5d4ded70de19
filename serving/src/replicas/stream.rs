//! An answer that a server says piece by piece: the chunks of its stream, taken together. Pure.
//!
//! What has gone out cannot be taken back, so a failure is told apart from an answer only at the end: by the
//! reason with which the answer ended, which the last chunk of it has.

use base::End;
use serde_json::Value;

use super::reply::{Outcome, cut, ended, message, stop_told};

/// What is known of an answer so far.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerStream {
    finish_reason: Option<String>,
    stop: Option<End>,
    usage: Value,
    is_done: bool,
}

impl AnswerStream {
    /// Takes an event of the stream of a request that was `sent`. The text that it brings, if any; or why the request
    /// failed.
    pub(super) fn take(&mut self, data: &str, sent: &Value) -> Result<Option<String>, String> {
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(None);
        }
        let unread = |error| format!("its reply cannot be read: {error}");
        let chunk: Value = serde_json::from_str(data).map_err(unread)?;
        if !chunk["error"].is_null() {
            let reason = message(&chunk).unwrap_or("an error without words");
            return Err(format!("its stream ended with an error: {}", cut(reason)));
        }
        if chunk["usage"].is_object() {
            self.usage = chunk["usage"].clone();
        }
        // The chunk of usage has no choice.
        let Some(choice) = chunk["choices"].get(0) else { return Ok(None) };
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
            self.stop = stop_told(choice, sent);
        }
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    /// Whether the server has said that this was all.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// What became of the request, once the stream has ended. The text has gone out already.
    pub(super) fn end(self) -> Outcome {
        let reason = (self.finish_reason.as_deref(), self.stop);
        ended(reason, String::new(), (Vec::new(), &self.usage)).unwrap_or_else(Outcome::failed)
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;
    use serde_json::json;

    use super::*;
    use crate::replicas::reply::LossKind;

    fn taken(events: &[Value]) -> (Vec<String>, Outcome) {
        let (mut stream, mut texts) = (AnswerStream::default(), Vec::new());
        for event in events {
            match stream.take(&event.to_string(), &json!({"stop": ["never", "!"]})) {
                Ok(text) => texts.extend(text),
                Err(reason) => return (texts, Outcome::failed(reason)),
            }
        }
        assert_eq!(stream.take("[DONE]", &Value::Null), Ok(None));
        assert!(stream.is_done());
        (texts, stream.end())
    }

    #[test]
    fn chunks_of_both_routes_are_one_answer_with_the_usage_behind_it() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 4}}});
        let chat =
            |delta: Value, reason: Value| json!({"choices": [{"delta": delta, "finish_reason": reason}]});
        let text = |text: &str, reason: Value| json!({"choices": [{"text": text, "finish_reason": reason}]});
        let chats = [
            chat(json!({"role": "assistant", "content": ""}), json!(null)),
            chat(json!({"content": "hi"}), json!(null)),
            chat(json!({"content": " you"}), json!(null)),
            chat(json!({}), json!("stop")),
            usage.clone(),
        ];
        let completions = [text("hi", json!(null)), text(" you", json!("stop")), usage];
        for events in [&chats[..], &completions] {
            let (texts, outcome) = taken(events);
            assert_eq!(texts, ["hi", " you"]);
            let Outcome::Answered { finish, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!((finish.text.as_str(), finish.end), ("", End::Stop), "the text is out");
            let counts = (finish.prompt, finish.cached, finish.output);
            assert_eq!(counts, (Some(TokenCount(9)), TokenCount(4), TokenCount(2)));
        }
    }

    #[test]
    fn the_last_chunk_says_which_stop_string_ended_the_answer() {
        let chunk = |reason: Value, stop: Value| json!({"choices": [{"text": "", "finish_reason": reason, "stop_reason": stop}]});
        let (_, outcome) = taken(&[chunk(json!(null), json!(null)), chunk(json!("stop"), json!("!"))]);
        let Outcome::Answered { finish, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(finish.end, End::StopText(1));
    }

    #[test]
    fn a_stream_without_a_reason_or_with_an_error_is_no_answer() {
        let begun = json!({"choices": [{"text": "hi", "finish_reason": null}]});
        let (texts, outcome) = taken(std::slice::from_ref(&begun));
        assert_eq!(texts, ["hi"]);
        assert!(matches!(outcome, Outcome::Lost(loss) if loss.reason.contains("cut off")));
        let (_, outcome) = taken(&[begun, json!({"error": {"message": "out of memory"}})]);
        let Outcome::Lost(loss) = outcome else { panic!("{outcome:?}") };
        assert!(loss.kind == LossKind::Failed && loss.reason.contains("out of memory"), "{loss:?}");
        assert!(AnswerStream::default().take("<html>", &Value::Null).is_err());
        let filtered = json!({"choices": [{"text": "", "finish_reason": "content_filter"}]});
        assert!(matches!(taken(&[filtered]).1, Outcome::Row(reason) if reason.contains("content_filter")));
    }
}
