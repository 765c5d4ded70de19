//! What a server's reply means: an answer, an error of the row, or a failure of the server. Pure.

use std::sync::Arc;

use base::{End, Nanos, PromptToken, TokenCount, TokenId, TokenLogprob};
use scheduler::fleet::Finish;
use serde_json::Value;

use super::logprobs::{self, Beside};
use super::prompt_scores::{self, PromptScoring};
use crate::gateway_ids::{LOOP_DETECTED, says_loop};

/// Characters of a server's error that are passed on.
const ERROR_CHARS_MAX: usize = 400;

/// What became of one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The row is answered.
    Answered {
        finish: Finish,
        /// Of the tokens of the text, where they were asked for and are told.
        logprobs: Vec<TokenLogprob>,
        /// The tokens of the prompt, where it was asked how likely they were.
        prompt: Option<Arc<[PromptToken]>>,
    },
    /// The row cannot be answered, here or elsewhere.
    Row(String),
    /// The server refuses the row as it is.
    Refused(String),
    /// The server works, but its answer is not of the form that the row asked for; another's may be.
    Unfit(String),
    /// The server did not answer it; another may.
    Lost(Loss),
}

/// Why a server did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// In words.
    pub reason: String,
    /// What it says of the server.
    pub kind: LossKind,
}

/// What a lost request says of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// There is nobody: nothing goes there before it is seen to be well, and what it had goes elsewhere.
    Gone,
    /// It does not serve this model, or not with this key: nothing goes there before it is seen to be well.
    Misconfigured,
    /// It sends rows back to this gateway, or is this gateway: as where there is nobody.
    Loop,
    /// It failed; again and again opens its breaker.
    Failed,
    /// It asks to be left alone for a while.
    Busy(Option<Nanos>),
}

impl LossKind {
    /// What a tenant is told.
    pub fn told(self) -> &'static str {
        match self {
            Self::Gone => "the server of its model cannot be reached",
            Self::Misconfigured => "the server of its model refuses this gateway",
            Self::Loop => "the server of its model sends it back",
            Self::Failed => "the server of its model failed",
            Self::Busy(_) => "the server of its model is busy",
        }
    }
}

impl Outcome {
    /// A failure of the server.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Lost(Loss { reason: cut(&reason.into()), kind: LossKind::Failed })
    }

    /// Nobody is there.
    pub fn gone(reason: impl Into<String>) -> Self {
        Self::Lost(Loss { reason: cut(&reason.into()), kind: LossKind::Gone })
    }
}

/// What a reply of this status means. `retry_after`: its header, in seconds; `sent`: the body of the request; `scoring`:
/// what the reply has to tell of its prompt; `beside`: what beside each of its own tokens.
pub fn outcome(
    status: u16,
    retry_after: Option<u64>,
    body: &[u8],
    (sent, scoring, beside): (&Value, Option<&PromptScoring>, Beside),
) -> Outcome {
    let seconds = |seconds: u64| Nanos(seconds.saturating_mul(1_000_000_000));
    match status {
        200 => match answer(body, sent, scoring, beside) {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::failed(format!("its reply cannot be read: {reason}")),
        },
        // 404 is a path or a model that is not there, 405 another path, 401 and 403 a key that is not right, 402 an
        // account that is spent, 407 somebody between: not the row's.
        401..=405 | 407 => Outcome::Lost(Loss { reason: said(status, body), kind: LossKind::Misconfigured }),
        429 => {
            Outcome::Lost(Loss { reason: said(status, body), kind: LossKind::Busy(retry_after.map(seconds)) })
        }
        503 if retry_after.is_some() => {
            Outcome::Lost(Loss { reason: said(status, body), kind: LossKind::Busy(retry_after.map(seconds)) })
        }
        LOOP_DETECTED if says_loop(body) => {
            Outcome::Lost(Loss { reason: said(status, body), kind: LossKind::Loop })
        }
        408 | 500..=599 => Outcome::failed(said(status, body)),
        400..=499 => Outcome::Refused(said(status, body)),
        _ => Outcome::failed(format!("it replied with status {status}")),
    }
}

/// The answer of a reply.
fn answer(
    body: &[u8],
    sent: &Value,
    scoring: Option<&PromptScoring>,
    beside: Beside,
) -> Result<Outcome, String> {
    let reply: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let choice = reply["choices"].get(0).ok_or("it has no choices")?;
    let text = match (&choice["text"], &choice["message"]["content"]) {
        (Value::String(text), _) | (_, Value::String(text)) => text.clone(),
        (_, Value::Null) if choice["message"].is_object() => String::new(),
        _ => return Err("its choice has no text".into()),
    };
    let mut logprobs = logprobs::told(&choice["logprobs"]);
    match beside {
        Beside::Likeliest(most) => logprobs::keep_likeliest(&mut logprobs, most),
        Beside::Named(named) if !logprobs::may_tell_named(&choice["logprobs"], &logprobs, named) => {
            let reason =
                "its answer does not tell the tokens of `logprob_token_ids`: its version may not know it";
            return Ok(Outcome::Unfit(reason.into()));
        }
        Beside::Named(_) => {}
    }
    let reason = (choice["finish_reason"].as_str(), stop_told(choice, sent));
    let outcome = ended(reason, text, (logprobs, &reply["usage"]))?;
    Ok(match (outcome, scoring) {
        (Outcome::Answered { finish, logprobs, .. }, Some(scoring)) => {
            match prompt_scores::told(&reply, scoring) {
                Ok(prompt) => Outcome::Answered { finish, logprobs, prompt: Some(prompt) },
                Err(reason) => Outcome::Unfit(cut(&reason)),
            }
        }
        (outcome, _) => outcome,
    })
}

/// Which stop string or token of a request ended an answer, where its server says so: in a word of vLLM's or of
/// SGLang's.
pub(super) fn stop_told(choice: &Value, sent: &Value) -> Option<End> {
    let mut words = ["stop_reason", "matched_stop"].iter().map(|name| &choice[*name]);
    let told = words.find(|told| !told.is_null())?;
    let place = |field: &str| sent[field].as_array()?.iter().position(|one| one == told);
    if let Some(place) = place("stop") {
        return u32::try_from(place).ok().map(End::StopText);
    }
    // The model's own end may be told too.
    place("stop_token_ids")?;
    told.as_u64().and_then(|id| u32::try_from(id).ok()).map(|id| End::StopToken(TokenId(id)))
}

/// An answer that has ended, for this reason; `stop`: what of its request ended it, where that is known.
pub(super) fn ended(
    (finish_reason, stop): (Option<&str>, Option<End>),
    text: String,
    (logprobs, usage): (Vec<TokenLogprob>, &Value),
) -> Result<Outcome, String> {
    let end = match finish_reason {
        Some("stop") => stop.unwrap_or(End::Stop),
        Some("length") => End::Length,
        // A server that ends aborts what it runs; this is no answer.
        Some("abort" | "error") | None => return Err("the answer was cut off".into()),
        Some(other) => return Ok(Outcome::Row(format!("the answer ended with `{}`", cut(other)))),
    };
    let count = |name: &str| usage[name].as_u64().map(TokenCount);
    let finish = Finish {
        text,
        tokens: Vec::new(),
        end,
        prompt: count("prompt_tokens"),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().map(TokenCount).unwrap_or_default(),
        output: count("completion_tokens").unwrap_or_default(),
    };
    Ok(Outcome::Answered { finish, logprobs, prompt: None })
}

/// What a server says is wrong.
fn said(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(message);
    cut(&format!("status {status}: {}", message.unwrap_or(text.trim())))
}

/// The message of an error, in whichever place servers put it.
pub(super) fn message(json: &Value) -> Option<&str> {
    let places = [&json["error"]["message"], &json["message"], &json["error"], &json["detail"]];
    places.into_iter().find_map(Value::as_str)
}

/// No more than is useful.
pub fn cut(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::replicas::prompt_scores::PromptIds;

    /// What a reply means to a row that asks nothing of its prompt.
    fn read(status: u16, retry_after: Option<u64>, body: &[u8]) -> Outcome {
        outcome(status, retry_after, body, (&Value::Null, None, Beside::Likeliest(0)))
    }

    fn reply(choice: Value, usage: Value) -> Vec<u8> {
        json!({ "choices": [choice], "usage": usage }).to_string().into_bytes()
    }

    #[test]
    fn an_answer_of_both_routes_is_read_with_its_tokens() {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}});
        for choice in [
            json!({"text": "hi", "finish_reason": "stop"}),
            json!({"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}),
        ] {
            let Outcome::Answered { finish, .. } = read(200, None, &reply(choice, usage.clone())) else {
                panic!("it is an answer")
            };
            assert_eq!((finish.text.as_str(), finish.end), ("hi", End::Stop));
            let counts = (finish.prompt, finish.cached, finish.output);
            assert_eq!(counts, (Some(TokenCount(9)), TokenCount(4), TokenCount(2)));
        }
        let plain =
            reply(json!({"text": "x", "finish_reason": "length"}), json!({"prompt_tokens_details": null}));
        let Outcome::Answered { finish, .. } = read(200, None, &plain) else { panic!("it is an answer") };
        assert_eq!((finish.end, finish.prompt, finish.cached), (End::Length, None, TokenCount(0)));
    }

    #[test]
    fn what_of_a_request_ended_its_answer_is_known_where_the_server_says_so() {
        let sent = json!({"stop": ["never", "d an"], "stop_token_ids": [7]});
        for (choice, end) in [
            (json!({"stop_reason": "d an"}), End::StopText(1)),
            (json!({"stop_reason": 7}), End::StopToken(TokenId(7))),
            (json!({"matched_stop": "never"}), End::StopText(0)),
            (json!({"stop_reason": null}), End::Stop),
            (json!({"matched_stop": 2}), End::Stop),
            (json!({"stop_reason": "else"}), End::Stop),
            (json!({}), End::Stop),
        ] {
            let mut told = choice.clone();
            (told["text"], told["finish_reason"]) = ("hi".into(), "stop".into());
            let asked = (&sent, None, Beside::Likeliest(0));
            let outcome = outcome(200, None, &reply(told, json!({})), asked);
            let Outcome::Answered { finish, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(finish.end, end, "{choice}");
        }
    }

    #[test]
    fn an_answer_without_what_was_asked_of_its_prompt_is_another_servers_to_give() {
        let scores = json!([null, {"9": {"logprob": -0.5, "rank": 1, "decoded_token": "x"}}]);
        let choice = json!({"text": "hi", "finish_reason": "length", "prompt_logprobs": scores});
        let body = reply(choice, json!({}));
        let scoring = |ids: [u32; 2]| {
            let ids = PromptIds::Sent(ids.map(TokenId).into());
            PromptScoring { top: 0, ids }
        };
        let scored = |status, ids| {
            outcome(status, None, &body, (&Value::Null, Some(&scoring(ids)), Beside::Likeliest(0)))
        };
        let Outcome::Answered { prompt, .. } = scored(200, [7, 9]) else { panic!("it is an answer") };
        assert_eq!(prompt.expect("it is scored").len(), 2);
        let other = scored(200, [7, 8]);
        assert!(matches!(&other, Outcome::Unfit(reason) if reason.contains("token 1")), "{other:?}");
        let Outcome::Answered { prompt, .. } = read(200, None, &body) else { panic!("it is an answer") };
        assert_eq!(prompt, None, "nobody asked");
        let refused = scored(400, [7, 9]);
        assert!(matches!(refused, Outcome::Refused(_)));
    }

    #[test]
    fn an_answer_of_who_knows_nothing_of_named_tokens_is_anothers_to_give() {
        let told = |beside: Value| {
            let token = json!({"token": "hi", "logprob": -0.5, "bytes": null, "top_logprobs": beside});
            let message = json!({"role": "assistant", "content": "hi"});
            let logprobs = json!({"content": [token]});
            reply(json!({"message": message, "finish_reason": "stop", "logprobs": logprobs}), json!({}))
        };
        let without = outcome(200, None, &told(json!([])), (&Value::Null, None, Beside::Named(2)));
        let is_unfit = matches!(&without, Outcome::Unfit(reason) if reason.contains("`logprob_token_ids`"));
        assert!(is_unfit, "{without:?}");
        let all = json!([{"token": "hi", "logprob": -0.5}, {"token": "ho", "logprob": -1.5}]);
        for (told_beside, asked) in [(all, Beside::Named(2)), (json!([]), Beside::Likeliest(0))] {
            let outcome = outcome(200, None, &told(told_beside), (&Value::Null, None, asked));
            assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
        }
    }

    #[test]
    fn a_token_that_was_drawn_is_none_of_the_likeliest_that_were_asked_for() {
        // As vLLM 0.32 tells it for `logprobs` 1 of a completion.
        let logprobs = json!({"text_offset": [0], "tokens": ["z"], "token_logprobs": [-6.5],
            "top_logprobs": [{"z": -6.5, "hi": -0.5}]});
        let body = reply(json!({"text": "z", "finish_reason": "length", "logprobs": logprobs}), json!({}));
        for (asked, expected) in [(0, &[][..]), (1, &["hi"][..])] {
            let outcome = outcome(200, None, &body, (&Value::Null, None, Beside::Likeliest(asked)));
            let Outcome::Answered { logprobs, .. } = outcome else { panic!("{outcome:?}") };
            let top: Vec<&str> = logprobs[0].top.iter().map(|one| one.token.as_str()).collect();
            assert_eq!((logprobs[0].chosen.token.as_str(), &top[..]), ("z", expected));
        }
    }

    #[test]
    fn what_is_no_answer_is_a_failure_of_the_server_and_not_of_the_row() {
        let cut_off = reply(json!({"text": "x", "finish_reason": "abort"}), json!({}));
        let open = reply(json!({"text": "x", "finish_reason": null}), json!({}));
        for body in [&b"{\"choices\": [{"[..], b"", b"<html>", b"{}", b"{\"choices\": []}", &cut_off, &open] {
            let Outcome::Lost(loss) = read(200, None, body) else { panic!("{body:?} is no answer") };
            assert_eq!(loss.kind, LossKind::Failed);
        }
        let filtered = reply(json!({"text": "", "finish_reason": "content_filter"}), json!({}));
        assert!(
            matches!(read(200, None, &filtered), Outcome::Row(reason) if reason.contains("content_filter"))
        );
    }

    #[test]
    fn a_status_says_whose_fault_it_is() {
        let body = br#"{"error": {"message": "too long", "type": "x"}}"#;
        for status in [400, 413, 422] {
            let expected = Outcome::Refused(format!("status {status}: too long"));
            assert_eq!(read(status, Some(1), body), expected);
        }
        let kind = |status, retry_after| match read(status, retry_after, body) {
            Outcome::Lost(loss) => loss.kind,
            other => panic!("{status}: {other:?}"),
        };
        for status in [408, 500, 502, 503, 504, LOOP_DETECTED, 301] {
            assert_eq!(kind(status, None), LossKind::Failed, "{status}");
        }
        for status in [401, 402, 403, 404, 405, 407] {
            assert_eq!(kind(status, None), LossKind::Misconfigured, "{status}");
        }
        let back = br#"{"error": {"message": "in a loop", "code": "loop_detected"}}"#;
        let Outcome::Lost(loss) = read(LOOP_DETECTED, Some(2), back) else { panic!("the row comes back") };
        assert_eq!((loss.kind, &*loss.reason), (LossKind::Loop, "status 508: in a loop"));
        assert_eq!(kind(429, None), LossKind::Busy(None));
        for status in [429, 503] {
            assert_eq!(kind(status, Some(2)), LossKind::Busy(Some(Nanos(2_000_000_000))));
        }
        let long = read(400, None, &[b'x'; 9_000]);
        assert!(matches!(long, Outcome::Refused(reason) if reason.chars().count() <= ERROR_CHARS_MAX));
    }
}
