//! Log probabilities of an answer's tokens on the wire: how they are asked for, and OpenAI's two shapes.

use std::collections::BTreeMap;

use base::{Logprob, TokenLogprob};
use serde::Serialize;
use serving::error::RequestError;
use utoipa::ToSchema;

use super::text_offsets::TextOffsets;
use crate::json::JsonFields;

/// Most likely tokens that can be told beside each.
pub(super) const TOP_MAX: u64 = 20;

/// Takes `logprobs` and `top_logprobs` of a conversation: how many of the most likely tokens are told beside
/// each, where any are asked for.
pub(super) fn of_chat(fields: &mut JsonFields) -> Result<Option<u32>, RequestError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0, TOP_MAX)?;
    if !wanted {
        return match top {
            None | Some(0) => Ok(None),
            Some(_) => fields.bad("top_logprobs", "is only allowed when `logprobs` is true"),
        };
    }
    Ok(Some(within(top.unwrap_or(0))))
}

/// Takes `logprobs` of a completion: a number.
pub(super) fn of_completion(fields: &mut JsonFields) -> Result<Option<u32>, RequestError> {
    Ok(fields.integer("logprobs", 0, TOP_MAX)?.map(within))
}

/// A number of tokens that was found to be at most [`TOP_MAX`].
pub(super) fn within(top: u64) -> u32 {
    u32::try_from(top).unwrap_or(TOP_MAX as u32)
}

/// Of a conversation's answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    /// Its tokens.
    pub content: Vec<ChatToken>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub refusal: (),
}

/// A token of a conversation's answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatToken {
    /// The token.
    #[serde(flatten)]
    pub chosen: LikelyToken,
    /// The most likely tokens in its place.
    pub top_logprobs: Vec<LikelyToken>,
}

/// A token that may be said.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LikelyToken {
    /// Its text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// Its bytes, where the server tells them.
    pub bytes: Option<Vec<u8>>,
}

/// Of a completion.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Its tokens.
    pub tokens: Vec<String>,
    /// Natural logarithms of their probabilities.
    /// Null for the first of a prompt, before which there is nothing.
    pub token_logprobs: Vec<Option<f64>>,
    /// The most likely tokens in place of each, and the chosen one; null for the first of a prompt.
    pub top_logprobs: Vec<Option<BTreeMap<String, f64>>>,
    /// Characters of the whole text in front of each.
    pub text_offset: Vec<usize>,
}

impl ChatLogprobs {
    /// Of these tokens; none where there are none.
    pub(super) fn of(tokens: &[TokenLogprob]) -> Option<Self> {
        let content: Vec<ChatToken> = tokens.iter().map(ChatToken::from).collect();
        (!content.is_empty()).then_some(Self { content, refusal: () })
    }
}

impl From<&TokenLogprob> for ChatToken {
    fn from(TokenLogprob { chosen, top }: &TokenLogprob) -> Self {
        Self { chosen: chosen.into(), top_logprobs: top.iter().map(LikelyToken::from).collect() }
    }
}

impl From<&Logprob> for LikelyToken {
    fn from(Logprob { token, logprob, bytes }: &Logprob) -> Self {
        Self { token: token.clone(), logprob: *logprob, bytes: bytes.clone() }
    }
}

impl CompletionLogprobs {
    /// Of an output's next tokens; none where there are none. `text`: the output so far, and whether that is all.
    pub(super) fn of(tokens: &[TokenLogprob], offsets: &mut TextOffsets, text: (&str, bool)) -> Option<Self> {
        if tokens.is_empty() {
            return None;
        }
        // The chosen one is among them, as OpenAI and vLLM have it: alone where none were asked for. It may be told with
        // the rest of its answer, and is there once all the same.
        let likely = |TokenLogprob { chosen, top }: &TokenLogprob| {
            let is_chosen =
                |one: &Logprob| one.logprob == chosen.logprob && chosen.token.starts_with(&one.token);
            let others = top.iter().filter(|one| !is_chosen(one));
            let all = others.chain(std::iter::once(chosen));
            all.map(|one| (one.token.clone(), one.logprob)).collect::<BTreeMap<_, _>>()
        };
        Some(Self {
            tokens: tokens.iter().map(|token| token.chosen.token.clone()).collect(),
            token_logprobs: tokens.iter().map(|token| Some(token.chosen.logprob)).collect(),
            top_logprobs: tokens.iter().map(|token| Some(likely(token))).collect(),
            text_offset: offsets.of(tokens, text),
        })
    }

    /// Those of a prompt with those of its answer behind them.
    pub(super) fn behind(prompt: Option<Self>, answer: Option<Self>) -> Option<Self> {
        let (mut all, answer) = match (prompt, answer) {
            (Some(prompt), Some(answer)) => (prompt, answer),
            (one, other) => return one.or(other),
        };
        all.tokens.extend(answer.tokens);
        all.token_logprobs.extend(answer.token_logprobs);
        all.top_logprobs.extend(answer.top_logprobs);
        all.text_offset.extend(answer.text_offset);
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_shapes_are_openais() {
        let token = |token: &str, logprob| Logprob { token: token.into(), logprob, bytes: None };
        let tokens = [
            TokenLogprob { chosen: token("é", -0.5), top: vec![token("é", -0.5), token("e", -1.0)] },
            TokenLogprob { chosen: token("!", -2.0), top: Vec::new() },
        ];
        let likely = |token: &str, logprob: f64| json!({"token": token, "logprob": logprob, "bytes": null});
        let mut first = likely("é", -0.5);
        first["top_logprobs"] = json!([likely("é", -0.5), likely("e", -1.0)]);
        let mut second = likely("!", -2.0);
        second["top_logprobs"] = json!([]);
        assert_eq!(json!(ChatLogprobs::of(&tokens)), json!({"content": [first, second], "refusal": null}));
        let expected = json!({
            "tokens": ["é", "!"], "token_logprobs": [-0.5, -2.0], "text_offset": [0, 1],
            "top_logprobs": [{"é": -0.5, "e": -1.0}, {"!": -2.0}],
        });
        let whole = |tokens: &[TokenLogprob], text: &str| {
            CompletionLogprobs::of(tokens, &mut TextOffsets::default(), (text, true))
        };
        assert_eq!(json!(whole(&tokens, "é!")), expected);
        assert_eq!((ChatLogprobs::of(&[]), whole(&[], "")), (None, None));
        let drawn = TokenLogprob { chosen: token("z", -9.0), top: vec![token("e", -1.0)] };
        let told = json!(whole(&[drawn], "z"));
        assert_eq!(told["top_logprobs"], json!([{"e": -1.0, "z": -9.0}]), "the chosen one is there");
        let decided =
            TokenLogprob { chosen: token("else", -1.0), top: vec![token("e", -1.0), token("z", -9.0)] };
        let told = json!(whole(&[decided], "else"));
        assert_eq!(told["top_logprobs"], json!([{"else": -1.0, "z": -9.0}]), "and there once");
    }

    #[test]
    fn numbers_of_likely_tokens_are_bounded_and_0_asks_for_the_chosen_alone() {
        let read = |body: &str| of_completion(&mut crate::json::object(body.as_bytes()).expect("an object"));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"logprobs":0}"#), Ok(Some(0)));
        assert_eq!(read(r#"{"logprobs":20}"#), Ok(Some(20)));
        for body in [r#"{"logprobs":21}"#, r#"{"logprobs":-1}"#, r#"{"logprobs":true}"#] {
            let error = read(body).expect_err("refused").to_string();
            assert!(error.contains("`logprobs`") && error.contains("from 0 to 20"), "{error}");
        }
    }
}
