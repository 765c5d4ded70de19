//! Log probabilities of an answer's tokens, in the two forms that servers tell them: that of conversations
//! (`content`, an object a token) and that of completions (`tokens`, a list for each thing). Pure.

use base::{Logprob, TokenLogprob};
use serde_json::Value;

/// What a reply has to tell beside each token of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// So many of the likeliest tokens.
    Likeliest(usize),
    /// So many tokens that were named.
    Named(usize),
}

/// What a choice's `logprobs` say; nothing, where it says nothing that can be read.
pub fn told(logprobs: &Value) -> Vec<TokenLogprob> {
    match (&logprobs["content"], &logprobs["tokens"]) {
        (Value::Array(content), _) => content.iter().filter_map(of_conversation).collect(),
        (_, Value::Array(tokens)) => of_completion(tokens, logprobs),
        _ => Vec::new(),
    }
}

/// Whether a reply may tell the tokens that were named. Beside them no likeliest ones are asked for: who knows nothing of
/// names tells nothing beside a token, in the form of completions the token itself alone. There one name may be all the
/// same that was drawn.
pub fn may_tell_named(logprobs: &Value, tokens: &[TokenLogprob], named: usize) -> bool {
    let without = usize::from(!logprobs["content"].is_array());
    named <= without || tokens.is_empty() || tokens.iter().any(|token| token.top.len() > without)
}

/// Leaves so many of the likeliest tokens beside each. In the form of completions vLLM tells the token itself too, where it
/// is none of them, and where none are asked for.
pub fn keep_likeliest(tokens: &mut [TokenLogprob], most: usize) {
    for token in tokens {
        token.top.truncate(most);
    }
}

fn of_conversation(entry: &Value) -> Option<TokenLogprob> {
    let top = entry["top_logprobs"].as_array();
    let top = top.into_iter().flatten().filter_map(one).collect();
    Some(TokenLogprob { chosen: one(entry)?, is_hidden: false, top })
}

fn one(entry: &Value) -> Option<Logprob> {
    let bytes = entry["bytes"].as_array().map(|bytes| {
        let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
        bytes.iter().filter_map(byte).collect()
    });
    let (token, logprob) = (entry["token"].as_str()?.to_owned(), entry["logprob"].as_f64()?);
    Some(Logprob { id: None, token, logprob, bytes })
}

fn of_completion(tokens: &[Value], logprobs: &Value) -> Vec<TokenLogprob> {
    let token = |(i, token): (usize, &Value)| {
        let top = logprobs["top_logprobs"][i].as_object().into_iter().flatten();
        let mut top: Vec<Logprob> = top.filter_map(|(token, value)| logprob(token, value)).collect();
        top.sort_by(|one, other| other.logprob.total_cmp(&one.logprob));
        let chosen = logprob(token.as_str()?, &logprobs["token_logprobs"][i])?;
        Some(TokenLogprob { chosen, is_hidden: false, top })
    };
    tokens.iter().enumerate().filter_map(token).collect()
}

fn logprob(token: &str, value: &Value) -> Option<Logprob> {
    Some(Logprob { id: None, token: token.to_owned(), logprob: value.as_f64()?, bytes: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let entry = |token: &str, logprob: f64| json!({"token": token, "logprob": logprob, "bytes": null});
        let mut chat = entry("hi", -0.5);
        chat["top_logprobs"] = json!([entry("hi", -0.5), entry("ho", -1.5)]);
        let expected = |token: &str, logprob| Logprob { id: None, token: token.into(), logprob, bytes: None };
        let both = [expected("hi", -0.5), expected("ho", -1.5)];
        let all = [TokenLogprob { chosen: both[0].clone(), is_hidden: false, top: both.to_vec() }];
        assert_eq!(told(&json!({ "content": [chat] })), all);
        let completion = json!({
            "tokens": ["hi"], "token_logprobs": [-0.5], "text_offset": [0], "top_logprobs": [{"ho": -1.5, "hi": -0.5}],
        });
        assert_eq!(told(&completion), all);
        let bytes = json!({"content": [{"token": "h", "logprob": 0, "bytes": [104], "top_logprobs": []}]});
        assert_eq!(told(&bytes)[0].chosen.bytes.as_deref(), Some(&b"h"[..]));
        for (form, beside, named, expected) in [
            ("content", 0, 1, false),
            ("content", 1, 1, true),
            ("content", 0, 0, true),
            ("tokens", 1, 2, false),
            ("tokens", 2, 2, true),
            ("tokens", 1, 1, true),
        ] {
            let top = both.iter().take(beside).cloned().collect();
            let tokens = [TokenLogprob { chosen: both[0].clone(), is_hidden: false, top }];
            let logprobs = json!({ form: [] });
            assert_eq!(may_tell_named(&logprobs, &tokens, named), expected, "{form}, {beside} of {named}");
            assert!(may_tell_named(&logprobs, &[], named), "nothing is said");
        }
        // As vLLM 0.32 tells a token that was drawn beyond the two likeliest: itself first.
        let drawn = json!({
            "text_offset": [0], "tokens": ["z"], "token_logprobs": [-6.5],
            "top_logprobs": [{"z": -6.5, "hi": -0.5, "ho": -1.5}],
        });
        for (most, expected) in [(2, &both[..]), (1, &both[..1]), (0, &both[..0])] {
            let mut tokens = told(&drawn);
            keep_likeliest(&mut tokens, most);
            let top = tokens.iter().map(|token| (token.chosen.token.as_str(), &token.top[..]));
            assert_eq!(top.collect::<Vec<_>>(), [("z", expected)], "{most} were asked for");
        }
        for nothing in [json!(null), json!({}), json!({"content": null}), json!({"tokens": [null]})] {
            assert_eq!(told(&nothing), []);
        }
    }
}
