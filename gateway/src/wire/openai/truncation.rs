//! Prompts of which a part is left out: `truncate_prompt_tokens` and `truncation_side`, as vLLM has them.
//!
//! With -1 a chat keeps all of the context but a token for its answer, as there: its output limit is a ceiling.
//! A completion keeps what its output limit leaves, where vLLM keeps as much as of a chat and cuts the answer
//! short: here a completion has room for the answer that it asks for.

use std::borrow::Cow;

use base::TokenId;
use serving::error::RequestError;
use serving::model::Model;

use crate::json::JsonFields;

/// How many tokens of a prompt are kept.
pub(super) const FIELD: &str = "truncate_prompt_tokens";
/// At which of its ends the others are left out.
pub(super) const SIDE: &str = "truncation_side";

/// What is kept of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// So many tokens at most; `None`: what the context leaves.
    tokens: Option<u64>,
    /// `None`: the first ones are left out, but for what the tokenizer puts in front of a text, as where vLLM leaves
    /// that to the tokenizer.
    side: Option<TruncationSide>,
}

/// The end at which tokens are left out, whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TruncationSide {
    /// The first ones.
    Left,
    /// The last ones.
    Right,
}

impl Truncation {
    /// Takes the fields.
    pub(super) fn take(fields: &mut JsonFields, model: &Model) -> Result<Option<Self>, RequestError> {
        let side = match fields.string(SIDE)?.as_deref() {
            None => None,
            Some("left") => Some(TruncationSide::Left),
            Some("right") => Some(TruncationSide::Right),
            Some(_) => return fields.bad(SIDE, "must be left or right: where tokens are left out"),
        };
        let Some(value) = fields.take(FIELD) else { return Ok(None) };
        if !model.has_ids() {
            return fields.bad(FIELD, "is not for this model: its replicas are sent text, not tokens");
        }
        let context = model.context_max.0.min(model.kv_tokens());
        let tokens = match (value.as_i64(), value.as_u64()) {
            (Some(-1), _) => None,
            (_, Some(tokens)) if (1..=context).contains(&tokens) => Some(tokens),
            _ => {
                let reason =
                    format!("must be an integer from 1 to {context}, or -1 for what the context leaves");
                return fields.bad(FIELD, reason);
            }
        };
        Ok(Some(Self { tokens, side }))
    }

    /// The tokens of a prompt that are kept. `start`: how many of them its tokenizer put in front of its text; `room`:
    /// how many the context leaves beside the output.
    pub(crate) fn kept<'a>(
        &self,
        prompt: &'a [TokenId],
        start: usize,
        room: u64,
    ) -> Result<Cow<'a, [TokenId]>, RequestError> {
        let most = self.tokens.unwrap_or(room);
        if most == 0 {
            let reason = "-1 leaves nothing of the prompt: the output limit takes the whole context";
            return Err(RequestError::invalid(FIELD, reason));
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(prompt.len());
        let over = prompt.len() - most;
        Ok(match self.side {
            None if over > 0 && start > 0 => {
                let (front, rest) = prompt.split_at(start.min(most));
                Cow::Owned([front, &rest[over..]].concat())
            }
            None | Some(TruncationSide::Left) => Cow::Borrowed(&prompt[over..]),
            Some(TruncationSide::Right) => Cow::Borrowed(&prompt[..most]),
        })
    }
}

#[cfg(test)]
mod tests {
    use serving::config::PromptForm;
    use serving::model::Runs;

    use super::*;
    use crate::wire::openai::tests::model;

    fn take(body: &str, runs: Runs) -> Result<Option<Truncation>, RequestError> {
        let mut fields = crate::json::object(body.as_bytes()).expect("an object");
        Truncation::take(&mut fields, &Model { runs, ..model() })
    }

    #[test]
    fn the_first_or_the_last_tokens_are_kept_and_never_none() {
        let prompt: Vec<TokenId> = (0..8).map(TokenId).collect();
        let check = |body: &str, room: u64, kept: std::ops::Range<u32>| {
            let truncation = take(body, Runs::Engine).expect("valid").expect("it is asked for");
            let expected: Vec<TokenId> = kept.map(TokenId).collect();
            assert_eq!(truncation.kept(&prompt, 0, room).as_deref(), Ok(&expected[..]), "{body}");
        };
        check(r#"{"truncate_prompt_tokens":3}"#, 0, 5..8);
        check(r#"{"truncate_prompt_tokens":3,"truncation_side":"left"}"#, 9, 5..8);
        check(r#"{"truncate_prompt_tokens":3,"truncation_side":"right"}"#, 9, 0..3);
        check(r#"{"truncate_prompt_tokens":64}"#, 9, 0..8);
        check(r#"{"truncate_prompt_tokens":-1}"#, 7, 1..8);
        check(r#"{"truncate_prompt_tokens":-1,"truncation_side":"right"}"#, 9, 0..8);
        let all = take(r#"{"truncate_prompt_tokens":-1}"#, Runs::Engine).expect("valid").expect("asked for");
        let error = all.kept(&prompt, 2, 0).expect_err("nothing is left").to_string();
        assert!(error.contains("`truncate_prompt_tokens`") && error.contains("output limit"), "{error}");
    }

    #[test]
    fn what_a_tokenizer_puts_in_front_of_a_text_stays_where_no_side_is_named() {
        let prompt: Vec<TokenId> = (0..8).map(TokenId).collect();
        let check = |tokens: u64, side: &str, kept: &[u32]| {
            let body = format!("{{\"truncate_prompt_tokens\":{tokens}{side}}}");
            let truncation = take(&body, Runs::Engine).expect("valid").expect("it is asked for");
            let expected: Vec<TokenId> = kept.iter().copied().map(TokenId).collect();
            assert_eq!(truncation.kept(&prompt, 2, 9).as_deref(), Ok(&expected[..]), "{body}");
        };
        check(5, "", &[0, 1, 5, 6, 7]);
        check(3, "", &[0, 1, 7]);
        check(2, "", &[0, 1]);
        check(1, "", &[0]);
        check(8, "", &[0, 1, 2, 3, 4, 5, 6, 7]);
        check(3, r#","truncation_side":"left""#, &[5, 6, 7]);
        check(3, r#","truncation_side":"right""#, &[0, 1, 2]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_with_its_limit() {
        assert_eq!(take("{}", Runs::Engine), Ok(None));
        assert_eq!(take(r#"{"truncation_side":"right"}"#, Runs::Engine), Ok(None), "nothing is left out");
        for (body, field, limit) in [
            (r#"{"truncate_prompt_tokens":0}"#, "`truncate_prompt_tokens`", "from 1 to 64"),
            (r#"{"truncate_prompt_tokens":65}"#, "`truncate_prompt_tokens`", "from 1 to 64"),
            (r#"{"truncate_prompt_tokens":-2}"#, "`truncate_prompt_tokens`", "or -1"),
            (r#"{"truncate_prompt_tokens":"4"}"#, "`truncate_prompt_tokens`", "an integer"),
            (r#"{"truncation_side":"up"}"#, "`truncation_side`", "left or right"),
        ] {
            let error = take(body, Runs::Engine).expect_err("refused").to_string();
            assert!(error.contains(field) && error.contains(limit), "{error}");
        }
        let asked = r#"{"truncate_prompt_tokens":4}"#;
        assert!(take(asked, Runs::Fleet(PromptForm::Tokens)).is_ok_and(|found| found.is_some()));
        let error = take(asked, Runs::Fleet(PromptForm::Messages)).expect_err("refused").to_string();
        assert!(error.contains("`truncate_prompt_tokens`") && error.contains("replicas"), "{error}");
    }
}
