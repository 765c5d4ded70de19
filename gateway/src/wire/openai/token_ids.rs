//! Ids of tokens in requests and replies: beside their text (vLLM's `return_token_ids`), in its place
//! (`return_tokens_as_token_ids`), and of those whose log probabilities are wanted (`logprob_token_ids`).

use std::sync::Arc;

use base::TokenId;
use serde_json::Value;
use serving::error::RequestError;
use serving::model::{Model, Runs};
use serving::relquery_state::SCORES_MAX;

use super::truncation;
use crate::json::JsonFields;

/// Whether ids are told beside texts.
const FIELD: &str = "return_token_ids";
/// Whether they are told in place of texts.
const NAMES: &str = "return_tokens_as_token_ids";
/// Tokens whose log probabilities are told.
const SCORED: &str = "logprob_token_ids";
/// So many of them at most, as vLLM has it.
const SCORED_MAX: usize = 128;

/// The prompts of a request's rows.
pub type RowPrompts = Arc<[Arc<[TokenId]>]>;

/// Takes whether ids are told.
pub(super) fn take(fields: &mut JsonFields, model: &Model) -> Result<bool, RequestError> {
    of_engine(fields, FIELD, model)
}

/// Takes whether tokens are named by their ids.
pub(super) fn take_names(fields: &mut JsonFields, model: &Model) -> Result<bool, RequestError> {
    of_engine(fields, NAMES, model)
}

/// Takes a field that asks for ids of tokens.
fn of_engine(fields: &mut JsonFields, field: &str, model: &Model) -> Result<bool, RequestError> {
    let is_asked = fields.bool(field)?.unwrap_or(false);
    if is_asked && model.runs != Runs::Engine {
        return fields
            .bad(field, "is for the local engine alone: which tokens replicas draw is not known here");
    }
    Ok(is_asked)
}

/// Takes the tokens whose log probabilities are told in place of the likeliest ones'; none: those. `logprobs`: whether
/// any are told.
pub(super) fn take_scored(
    fields: &mut JsonFields,
    logprobs: Option<u32>,
    model: &Model,
) -> Result<Vec<TokenId>, RequestError> {
    let tokens = take_list(fields, SCORED, model)?.unwrap_or_default();
    if tokens.len() > SCORED_MAX {
        return fields.bad(SCORED, format!("has {} tokens; at most {SCORED_MAX} are allowed", tokens.len()));
    }
    if !tokens.is_empty() && logprobs.is_none() {
        return fields.bad(SCORED, "is only allowed with `logprobs`");
    }
    let mut scored = Vec::with_capacity(tokens.len());
    for token in tokens {
        if !scored.contains(&token) {
            scored.push(token);
        }
    }
    Ok(scored)
}

/// Refuses to tell of tokens nobody will hear of.
pub(super) fn check_scored(is_told: bool, tokens: &[TokenId]) -> Result<(), RequestError> {
    match tokens {
        [] => Ok(()),
        _ if is_told => Ok(()),
        _ => Err(RequestError::invalid(SCORED, "has no place beside `max_tokens` 0: no token is told")),
    }
}

/// Refuses answers of which too much would be told: so many of so many tokens each, with `scored` beside each token.
/// `of_prompts`: log probabilities that the reply tells of prompts.
pub(crate) fn check_scores(
    answers: u64,
    output_max: u64,
    scored: &[TokenId],
    of_prompts: u64,
) -> Result<(), RequestError> {
    let told = answers.saturating_mul(output_max).saturating_mul(scored.len() as u64);
    if told == 0 || told.saturating_add(of_prompts) <= SCORES_MAX {
        return Ok(());
    }
    let prompts = if of_prompts > 0 { format!(" and {of_prompts} of prompts") } else { String::new() };
    let reason = format!(
        "asks for up to {told} log probabilities, of {} tokens beside each of {output_max} in {answers} answers\
         {prompts}; at most {SCORES_MAX} are told in one reply: lower `max_tokens`",
        scored.len()
    );
    Err(RequestError::invalid(SCORED, reason))
}

/// Tokens that each answer may have at most for the reply to tell of all of them, one at least.
pub(crate) fn answer_max(answers: u64, scored: &[TokenId], of_prompts: u64) -> u64 {
    let each = answers.saturating_mul(scored.len() as u64);
    SCORES_MAX.saturating_sub(of_prompts).checked_div(each).map_or(u64::MAX, |tokens| tokens.max(1))
}

/// Takes a list of the model's tokens.
pub(super) fn take_list(
    fields: &mut JsonFields,
    field: &str,
    model: &Model,
) -> Result<Option<Vec<TokenId>>, RequestError> {
    let Some(items) = fields.array(field)? else { return Ok(None) };
    let read = |(place, item): (usize, &Value)| match item.as_u64().and_then(|id| token(id, model)) {
        Some(token) => Ok(token),
        None => fields.bad(&format!("{field}[{place}]"), ids(model)),
    };
    let tokens: Result<Vec<TokenId>, RequestError> = items.iter().enumerate().map(read).collect();
    tokens.map(Some)
}

/// A token of the model; any id where only those that run it know its tokens.
pub(super) fn token(id: u64, model: &Model) -> Option<TokenId> {
    let id = u32::try_from(id).ok()?;
    (!model.has_ids() || id < model.vocab).then_some(TokenId(id))
}

/// What a token id is.
pub(super) fn ids(model: &Model) -> String {
    if !model.has_ids() {
        return format!("token ids are integers from 0 to {}", u32::MAX);
    }
    let (end, vocab) = (model.vocab.saturating_sub(1), model.vocab);
    format!("token ids are integers from 0 to {end}, of a vocabulary of {vocab}")
}

/// Takes the fields of chats and completions that are about tokens, where others stand for them.
pub(crate) fn refuse(fields: &mut JsonFields) -> Result<(), RequestError> {
    for field in [FIELD, NAMES] {
        if fields.bool(field)? == Some(true) {
            return fields
                .bad(field, "is for chats and completions: this route's replies have no place for ids");
        }
    }
    for field in [SCORED, truncation::FIELD, truncation::SIDE] {
        if fields.take(field).is_some() {
            return fields.bad(field, "is for chats and completions");
        }
    }
    Ok(())
}

/// Ids as replies have them.
pub(super) fn numbers(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

#[cfg(test)]
mod tests {
    use serving::config::PromptForm;

    use super::*;
    use crate::wire::openai::tests::model;

    #[test]
    fn ids_are_told_where_the_local_engine_draws_the_tokens() {
        let read = |body: &str, runs| {
            let mut fields = crate::json::object(body.as_bytes()).expect("an object");
            take(&mut fields, &Model { runs, ..model() })
        };
        let asked = r#"{"return_token_ids":true}"#;
        assert_eq!(read(asked, Runs::Engine), Ok(true));
        for runs in [Runs::Engine, Runs::Fleet(PromptForm::Tokens)] {
            assert_eq!(read("{}", runs), Ok(false));
            assert_eq!(read(r#"{"return_token_ids":false}"#, runs), Ok(false));
        }
        for form in [PromptForm::Tokens, PromptForm::Messages] {
            let error = read(asked, Runs::Fleet(form)).expect_err("refused").to_string();
            assert!(error.contains("`return_token_ids`") && error.contains("local engine"), "{error}");
            let mut fields = crate::json::object(br#"{"return_tokens_as_token_ids":true}"#).expect("one");
            let error = take_names(&mut fields, &Model { runs: Runs::Fleet(form), ..model() });
            assert!(error.is_err_and(|error| error.to_string().contains("`return_tokens_as_token_ids`")));
        }
    }

    #[test]
    fn tokens_whose_log_probabilities_are_wanted_are_the_models_and_each_once() {
        let read = |ids: &str, logprobs| {
            let body = format!("{{\"logprob_token_ids\":{ids}}}");
            let mut fields = crate::json::object(body.as_bytes()).expect("an object");
            take_scored(&mut fields, logprobs, &model())
        };
        assert_eq!(read("[256,0,256,7]", Some(0)), Ok([256, 0, 7].map(TokenId).to_vec()));
        assert_eq!((read("[]", None), read("null", None)), (Ok(Vec::new()), Ok(Vec::new())));
        let many = format!("[{}1]", "1,".repeat(SCORED_MAX));
        for (ids, logprobs, field, reason) in [
            ("[1,257]", Some(1), "logprob_token_ids[1]", "from 0 to 256"),
            ("[-1]", Some(1), "logprob_token_ids[0]", "from 0 to 256"),
            ("[1.5]", Some(1), "logprob_token_ids[0]", "from 0 to 256"),
            ("5", Some(1), "logprob_token_ids", "an array"),
            (&many, Some(1), "logprob_token_ids", "at most 128"),
            ("[1]", None, "logprob_token_ids", "`logprobs`"),
        ] {
            let error = read(ids, logprobs).expect_err("refused").to_string();
            assert!(error.contains(&format!("`{field}`")) && error.contains(reason), "{error}");
        }
        let named = [TokenId(1), TokenId(2)];
        assert_eq!(check_scores(u64::MAX, u64::MAX, &[], SCORES_MAX), Ok(()), "nobody asks");
        assert_eq!(check_scores(2, SCORES_MAX / 4, &named, 0), Ok(()));
        for (output_max, of_prompts, word) in
            [(SCORES_MAX / 4 + 1, 0, "2 answers;"), (SCORES_MAX / 4, 1, "1 of prompts")]
        {
            let error = check_scores(2, output_max, &named, of_prompts).expect_err("too many").to_string();
            assert!(error.contains("`logprob_token_ids`") && error.contains("131072"), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn an_answer_is_as_long_as_can_be_told_of_and_never_empty() {
        let named = [TokenId(1), TokenId(2)];
        assert_eq!(answer_max(3, &[], SCORES_MAX), u64::MAX, "nobody asks");
        assert_eq!(answer_max(2, &named, 0), SCORES_MAX / 4);
        assert_eq!(answer_max(2, &named, 4), SCORES_MAX / 4 - 1);
        assert_eq!(answer_max(2, &named, SCORES_MAX), 1);
        for of_prompts in [0, 5] {
            let most = answer_max(2, &named, of_prompts);
            assert_eq!(check_scores(2, most, &named, of_prompts), Ok(()));
            assert!(check_scores(2, most + 1, &named, of_prompts).is_err());
        }
    }
}
