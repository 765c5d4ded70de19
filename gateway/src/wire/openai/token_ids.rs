//! Ids of tokens beside their text, of prompts and of outputs (vLLM's `return_token_ids`).

use std::sync::Arc;

use base::TokenId;
use serving::error::RequestError;
use serving::model::{Model, Runs};

use crate::json::JsonFields;

/// The field.
const FIELD: &str = "return_token_ids";

/// The prompts of a request's rows.
pub type RowPrompts = Arc<[Arc<[TokenId]>]>;

/// Takes whether ids are told.
pub(super) fn take(fields: &mut JsonFields, model: &Model) -> Result<bool, RequestError> {
    let is_asked = fields.bool(FIELD)?.unwrap_or(false);
    if is_asked && model.runs != Runs::Engine {
        return fields
            .bad(FIELD, "is for the local engine alone: which tokens replicas draw is not known here");
    }
    Ok(is_asked)
}

/// Takes the field where replies have no place for ids.
pub(crate) fn refuse(fields: &mut JsonFields) -> Result<(), RequestError> {
    match fields.bool(FIELD)? {
        None | Some(false) => Ok(()),
        Some(true) => {
            fields.bad(FIELD, "is for chats and completions: this route's replies have no place for ids")
        }
    }
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
        }
    }
}
