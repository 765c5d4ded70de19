//! Log probabilities of an answer's tokens on the wire: how they are asked for, and OpenAI's two shapes.

use std::collections::HashSet;

use base::{Logprob, TokenId, TokenLogprob};
use serde::{Serialize, Serializer};
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

/// How likely a token is told to be that is less likely than that, or cannot be there at all, as OpenAI has it.
const LEAST: f64 = -9999.0;

/// How a token is named: by its text, or by its id where that is asked for and known, as vLLM has it.
pub(super) fn name_of(text: &str, id: Option<TokenId>, names_ids: bool) -> String {
    match id.filter(|_| names_ids) {
        Some(id) => format!("token_id:{id}"),
        None => text.to_owned(),
    }
}

/// Log probabilities by tokens' names, in the order in which they are told.
#[derive(Clone, Debug, PartialEq)]
pub struct LikelyTokens(Vec<(String, f64)>);

impl LikelyTokens {
    /// A token and others in its place; of several by one name the first is told.
    pub(super) fn new(own: (String, f64), others: impl Iterator<Item = (String, f64)>) -> Self {
        let mut names = HashSet::new();
        let all = std::iter::once(own).chain(others).filter(|(name, _)| names.insert(name.clone()));
        Self(all.map(|(name, logprob)| (name, logprob.max(LEAST))).collect())
    }
}

impl Serialize for LikelyTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, logprob)| (name, logprob)))
    }
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
    /// The chosen token of each, then the most likely ones in its place; null for the first of a prompt.
    #[schema(value_type = Vec<Option<std::collections::BTreeMap<String, f64>>>)]
    pub top_logprobs: Vec<Option<LikelyTokens>>,
    /// Characters of the whole text in front of each.
    pub text_offset: Vec<usize>,
}

impl ChatLogprobs {
    /// Of these tokens; none where there are none. `names_ids`: whether they are named by their ids.
    pub(super) fn of(tokens: &[TokenLogprob], names_ids: bool) -> Option<Self> {
        let content: Vec<ChatToken> = tokens.iter().map(|token| ChatToken::named(token, names_ids)).collect();
        (!content.is_empty()).then_some(Self { content, refusal: () })
    }
}

impl ChatToken {
    fn named(TokenLogprob { chosen, top, .. }: &TokenLogprob, names_ids: bool) -> Self {
        let one = |Logprob { id, token, logprob, bytes }: &Logprob| LikelyToken {
            token: name_of(token, *id, names_ids),
            logprob: f64::max(*logprob, LEAST),
            bytes: bytes.clone(),
        };
        Self { chosen: one(chosen), top_logprobs: top.iter().map(one).collect() }
    }
}

impl From<&TokenLogprob> for ChatToken {
    fn from(token: &TokenLogprob) -> Self {
        Self::named(token, false)
    }
}

impl CompletionLogprobs {
    /// Of an output's next tokens; none where there are none. `text`: the output so far, and whether that is all;
    /// `names_ids`: whether tokens are named by their ids.
    pub(super) fn of(
        tokens: &[TokenLogprob],
        offsets: &mut TextOffsets,
        text: (&str, bool),
        names_ids: bool,
    ) -> Option<Self> {
        if tokens.is_empty() {
            return None;
        }
        let name = |one: &Logprob| name_of(&one.token, one.id, names_ids);
        // The chosen one is among them, as OpenAI and vLLM have it: alone where none were asked for. It may be told with
        // the rest of its answer, and is there once all the same.
        let likely = |TokenLogprob { chosen, top, .. }: &TokenLogprob| {
            let is_chosen = |one: &Logprob| match (one.id, chosen.id) {
                (Some(one), Some(chosen)) => one == chosen,
                _ => one.logprob == chosen.logprob && chosen.token.starts_with(&one.token),
            };
            let others = top.iter().filter(|one| !is_chosen(one)).map(|one| (name(one), one.logprob));
            LikelyTokens::new((name(chosen), chosen.logprob), others)
        };
        Some(Self {
            tokens: tokens.iter().map(|token| name(&token.chosen)).collect(),
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
        let token = |token: &str, logprob| Logprob { id: None, token: token.into(), logprob, bytes: None };
        let told = |chosen, top| TokenLogprob { chosen, is_hidden: false, top };
        let tokens = [
            told(token("é", -0.5), vec![token("é", -0.5), token("e", -1.0)]),
            told(token("!", -2.0), Vec::new()),
        ];
        let likely = |token: &str, logprob: f64| json!({"token": token, "logprob": logprob, "bytes": null});
        let mut first = likely("é", -0.5);
        first["top_logprobs"] = json!([likely("é", -0.5), likely("e", -1.0)]);
        let mut second = likely("!", -2.0);
        second["top_logprobs"] = json!([]);
        let content = json!({"content": [first, second], "refusal": null});
        assert_eq!(json!(ChatLogprobs::of(&tokens, false)), content);
        let expected = json!({
            "tokens": ["é", "!"], "token_logprobs": [-0.5, -2.0], "text_offset": [0, 1],
            "top_logprobs": [{"é": -0.5, "e": -1.0}, {"!": -2.0}],
        });
        let whole = |tokens: &[TokenLogprob], text: &str| {
            CompletionLogprobs::of(tokens, &mut TextOffsets::default(), (text, true), false)
        };
        assert_eq!(json!(whole(&tokens, "é!")), expected);
        assert_eq!((ChatLogprobs::of(&[], false), whole(&[], "")), (None, None));
        let drawn = json!(whole(&[told(token("z", -9.0), vec![token("e", -1.0)])], "z"));
        assert_eq!(drawn["top_logprobs"], json!([{"e": -1.0, "z": -9.0}]), "the chosen one is there");
        let decided = told(token("else", -1.0), vec![token("e", -1.0), token("z", -9.0)]);
        let decided = json!(whole(&[decided], "else"));
        assert_eq!(decided["top_logprobs"], json!([{"else": -1.0, "z": -9.0}]), "and there once");
    }

    #[test]
    fn tokens_are_named_by_their_ids_where_that_is_asked_for_and_the_chosen_one_first() {
        let token = |id: u32, token: &str, logprob| Logprob {
            id: Some(TokenId(id)),
            token: token.into(),
            logprob,
            bytes: Some(token.into()),
        };
        // One id begins with the other's digits, and what cannot be there is no number in JSON.
        let chosen = token(42, "b", -1.0);
        let top = vec![token(4, "b", -1.0), token(42, "b", -1.0), token(7, "a", f64::NEG_INFINITY)];
        let tokens = [TokenLogprob { chosen, is_hidden: false, top }];
        let completion = |names_ids| {
            json!(CompletionLogprobs::of(&tokens, &mut TextOffsets::default(), ("b", true), names_ids))
        };
        let by_id = completion(true);
        assert_eq!(by_id["tokens"], json!(["token_id:42"]));
        let top = by_id["top_logprobs"][0].as_object().expect("an object");
        let told: Vec<_> = top.iter().map(|(name, logprob)| (name.as_str(), logprob.as_f64())).collect();
        let expected = [("token_id:42", -1.0), ("token_id:4", -1.0), ("token_id:7", -9999.0)];
        assert_eq!(told, expected.map(|(name, logprob)| (name, Some(logprob))));
        // By their texts two of them are one.
        assert_eq!(completion(false)["top_logprobs"], json!([{"b": -1.0, "a": -9999.0}]));
        let chat = json!(ChatLogprobs::of(&tokens, true));
        assert_eq!(chat["content"][0]["token"], "token_id:42");
        assert_eq!(chat["content"][0]["bytes"], json!([98]), "of its text");
        let last = json!({"token": "token_id:7", "logprob": -9999.0, "bytes": [97]});
        assert_eq!(chat["content"][0]["top_logprobs"][2], last);
    }

    #[test]
    fn of_tokens_by_one_name_the_first_is_told_and_all_in_their_order() {
        let named = |name: usize, logprob| (name.to_string(), logprob);
        let others = (0..200).map(|at| named(at % 100, -(at as f64)));
        let LikelyTokens(told) = LikelyTokens::new(named(7, f64::NEG_INFINITY), others);
        let mut expected = vec![named(7, LEAST)];
        expected.extend((0..100).filter(|at| *at != 7).map(|at| named(at, -(at as f64))));
        assert_eq!(told, expected);
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
