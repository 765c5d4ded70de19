//! The request of `/v1/completions`.

use base::TokenId;
use serde_json::Value;
use serving::error::RequestError;
use serving::model::Model;

use super::{BestOf, Common, PromptFields, finish_completion};
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// A prompt to complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionPrompt {
    /// Text; special tokens written in it are recognised, as everywhere in this API.
    Text(String),
    /// Tokens, taken as they are.
    Tokens(Vec<TokenId>),
}

/// A body of `/v1/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// What both routes take; `n` of it are as many answers as are made.
    pub common: Common,
    /// Which of those are told, where that is not all.
    pub best_of: Option<BestOf>,
    /// The prompts. Never empty.
    pub prompts: Vec<CompletionPrompt>,
    /// Whether what starts the model's prompts is put in front of those that are text.
    pub starts_prompts: bool,
    /// What is to be told of them.
    pub prompt: PromptFields,
    /// Fields that are not known.
    pub ignored: Vec<String>,
}

impl CompletionRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        let prompt = PromptFields::take_echo(&mut fields)?;
        let common = Common::of_completion(&mut fields, context)?;
        let mut common = common.with_token_ids(&mut fields, context.model)?;
        let prompt = prompt.with_logprobs(&mut fields, &mut common, context.model)?;
        let starts_prompts = take_starts(&mut fields, context.model)?;
        let prompts = take_prompts(&mut fields, context.limits.rows_max, context.model)?;
        let best_of = BestOf::take(&mut fields, &mut common)?;
        let mut ignored = std::mem::take(&mut common.ignored);
        ignored.extend(finish_completion(fields, context.unknown_fields)?);
        Ok(Self { common, best_of, prompts, starts_prompts, prompt, ignored })
    }
}

/// Takes `add_special_tokens` (vLLM's name for it).
fn take_starts(fields: &mut JsonFields, model: &Model) -> Result<bool, RequestError> {
    const FIELD: &str = "add_special_tokens";
    let starts = fields.bool(FIELD)?.unwrap_or(true);
    if !starts && !model.has_ids() {
        return fields.bad(FIELD, "must be true: this server's replicas are sent no token ids");
    }
    Ok(starts)
}

/// Takes `prompt`: a string, an array of strings, an array of tokens, or an array of those.
fn take_prompts(
    fields: &mut JsonFields,
    prompts_max: usize,
    model: &Model,
) -> Result<Vec<CompletionPrompt>, RequestError> {
    let items = match fields.require("prompt")? {
        Value::Array(items) if items.first().is_some_and(Value::is_number) => vec![Value::Array(items)],
        Value::Array(items) => items,
        one => vec![one],
    };
    if items.is_empty() {
        return fields.bad("prompt", "must not be empty");
    }
    if items.len() > prompts_max {
        return fields
            .bad("prompt", format!("has {} prompts; at most {prompts_max} are allowed", items.len()));
    }
    items.into_iter().map(|item| prompt(fields, item, model)).collect()
}

/// One prompt.
fn prompt(fields: &JsonFields, value: Value, model: &Model) -> Result<CompletionPrompt, RequestError> {
    let vocab = model.vocab;
    match value {
        Value::String(text) if text.is_empty() => fields.bad("prompt", "must not be empty"),
        Value::String(text) => Ok(CompletionPrompt::Text(text)),
        Value::Array(items) if items.is_empty() => fields.bad("prompt", "must not be empty"),
        Value::Array(_) if !model.has_ids() => {
            fields.bad("prompt", "must be text: this server's replicas are sent no token ids")
        }
        Value::Array(items) => match items.iter().map(|item| token(item, vocab)).collect() {
            Some(tokens) => Ok(CompletionPrompt::Tokens(tokens)),
            None => {
                fields.bad("prompt", format!("must hold token ids from 0 to {}", vocab.saturating_sub(1)))
            }
        },
        _ => fields.bad("prompt", "must be a string, an array of strings, or arrays of token ids"),
    }
}

/// A token id of the vocabulary.
fn token(value: &Value, vocab: u32) -> Option<TokenId> {
    let id = u32::try_from(value.as_u64()?).ok()?;
    (id < vocab).then_some(TokenId(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    fn read(prompt: &str) -> Result<CompletionRequest, RequestError> {
        let fields = json::object(format!("{{\"model\":\"m\",\"prompt\":{prompt}}}").as_bytes());
        let limits = LimitsConfig { rows_max: 2, ..LimitsConfig::default() };
        with_context(&limits, |context| CompletionRequest::read(fields.expect("an object"), context))
    }

    #[test]
    fn the_four_forms_of_a_prompt_are_read() {
        let text = |text: &str| CompletionPrompt::Text(text.into());
        let tokens = |ids: &[u32]| CompletionPrompt::Tokens(ids.iter().map(|id| TokenId(*id)).collect());
        for (json, prompts) in [
            (r#""a""#, vec![text("a")]),
            (r#"["a","b"]"#, vec![text("a"), text("b")]),
            ("[0,256]", vec![tokens(&[0, 256])]),
            ("[[1],[2,3]]", vec![tokens(&[1]), tokens(&[2, 3])]),
        ] {
            assert_eq!(read(json).expect("valid").prompts, prompts);
        }
    }

    #[test]
    fn a_prompt_is_started_unless_its_request_says_otherwise() {
        let starts = |more: &str| {
            read(&format!("\"a\",\"add_special_tokens\":{more}")).map(|asked| asked.starts_prompts)
        };
        assert_eq!((starts("null"), starts("true"), starts("false")), (Ok(true), Ok(true), Ok(false)));
        assert!(
            matches!(starts("1"), Err(RequestError::Invalid { field, .. }) if field == "add_special_tokens")
        );
    }

    #[test]
    fn a_prompt_the_engine_could_not_take_is_refused_by_name() {
        let many = r#"["a","b","c"]"#;
        for json in ["\"\"", "[]", "[[]]", "[-1]", "[257]", "[1,\"a\"]", "{}", "7", "[1.5]", many, "[null]"] {
            match read(json) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, "prompt", "{json}"),
                other => panic!("{json} gave {other:?}"),
            }
        }
    }
}
