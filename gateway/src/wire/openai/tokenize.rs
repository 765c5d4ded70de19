//! The JSON of vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info`: a prompt or a conversation as tokens, tokens as
//! text, and what tokens there are.

use base::{AddedToken, PromptEnd, TokenId, TokenizerInfo};
use serde::Serialize;
use serde_json::{Map, Value, json};
use serving::error::RequestError;
use serving::model::Model;
use utoipa::ToSchema;

use super::chat::{self, Message};
use super::neutral;
use super::template_variables;
use super::token_ids::numbers;
use super::tools::ToolRequest;
use crate::json::JsonFields;
use crate::wire::ValidationContext;
use crate::wire::relquery::check_model;

/// A body of `/tokenize`.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizeRequest {
    /// What is to be tokens.
    pub input: TokenizeInput,
    /// Whether what starts the model's prompts is put in front.
    pub starts_prompt: bool,
    /// Whether the tokens are told by their names in the vocabulary too.
    pub tells_names: bool,
    /// Fields that are not known.
    pub ignored: Vec<String>,
}

/// What is to be tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeInput {
    /// A text, as `/v1/completions` takes it.
    Prompt(String),
    /// Messages, as `/v1/chat/completions` takes them.
    Conversation {
        /// Never empty, and some message says something.
        messages: Vec<Message>,
        /// Where the prompt ends.
        end: PromptEnd,
        /// What may be called, where anything may be.
        tools: Option<ToolRequest>,
        /// Variables of the model's chat template, JSON text of an object.
        variables: Option<String>,
    },
}

impl TokenizeRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        check_model(&mut fields, context.model)?;
        let tells_names = fields.bool("return_token_strs")?.unwrap_or(false);
        let starts_prompt = fields.bool("add_special_tokens")?;
        let prompt = fields.string("prompt")?;
        let has_messages = fields.get("messages").is_some_and(|messages| !messages.is_null());
        let (input, mut ignored) = match prompt {
            Some(_) if has_messages => return fields.bad("prompt", "cannot stand beside `messages`"),
            Some(text) => (TokenizeInput::Prompt(text), Vec::new()),
            None if has_messages => take_conversation(&mut fields, context)?,
            None => return fields.bad("prompt", "is required where there are no `messages`"),
        };
        // A chat template writes itself what starts a prompt.
        let starts_prompt = starts_prompt.unwrap_or(matches!(input, TokenizeInput::Prompt(_)));
        ignored.extend(neutral::left_out(fields, context.unknown_fields)?);
        Ok(Self { input, starts_prompt, tells_names, ignored })
    }
}

/// Takes a conversation, and the names of what is unknown in it.
fn take_conversation(
    fields: &mut JsonFields,
    context: ValidationContext<'_>,
) -> Result<(TokenizeInput, Vec<String>), RequestError> {
    if fields.take("chat_template").is_some() {
        return fields.bad("chat_template", "is the model's own: another one is not taken");
    }
    let tools = ToolRequest::take(fields)?;
    let variables = template_variables::take(fields)?;
    let (messages, ignored) = chat::take_messages(fields, context.unknown_fields)?;
    let end = chat::take_end(fields, &messages)?;
    Ok((TokenizeInput::Conversation { messages, end, tools, variables }, ignored))
}

/// A body of `/detokenize`.
#[derive(Clone, Debug, PartialEq)]
pub struct DetokenizeRequest {
    pub tokens: Vec<TokenId>,
    /// Fields that are not known.
    pub ignored: Vec<String>,
}

impl DetokenizeRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        const TOKENS: &str = "tokens";
        check_model(&mut fields, context.model)?;
        let Some(items) = fields.array(TOKENS)? else { return fields.bad(TOKENS, "is required") };
        let most = context.model.context_max.0;
        if items.len() as u64 > most {
            let found = items.len();
            let reason = format!("has {found} tokens; at most {most} are allowed, the model's context");
            return fields.bad(TOKENS, reason);
        }
        let vocab = context.model.vocab;
        let token = |item: &Value| {
            let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
            id.filter(|id| *id < vocab).map(TokenId)
        };
        let tokens: Option<Vec<TokenId>> = items.iter().map(token).collect();
        let Some(tokens) = tokens else {
            let reason = format!("must hold token ids from 0 to {}", vocab.saturating_sub(1));
            return fields.bad(TOKENS, reason);
        };
        let ignored = neutral::left_out(fields, context.unknown_fields)?;
        Ok(Self { tokens, ignored })
    }
}

/// The reply of `/tokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenizeReply {
    /// How many tokens there are; a prompt may be longer than the model takes.
    pub count: usize,
    /// Longest prompt and output together.
    pub max_model_len: u64,
    /// Their ids.
    pub tokens: Vec<u32>,
    /// Their names in the vocabulary, where they were asked for; else null.
    pub token_strs: Option<Vec<String>>,
}

impl TokenizeReply {
    /// Of tokens of a model.
    pub fn new(tokens: &[TokenId], model: &Model, tells_names: bool) -> Self {
        let names = || tokens.iter().map(|token| model.text.vocabulary_name(*token)).collect();
        Self {
            count: tokens.len(),
            max_model_len: model.context_max.0,
            tokens: numbers(tokens),
            token_strs: tells_names.then(names),
        }
    }
}

/// The reply of `/detokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DetokenizeReply {
    /// Their text, special tokens as they are written.
    pub prompt: String,
}

/// The class that Transformers takes where no file names one.
const DEFAULT_CLASS: &str = "PreTrainedTokenizerFast";

/// The reply of `/tokenizer_info`: what is told of a model's tokenizer, in the words of `tokenizer_config.json`.
pub(crate) fn tokenizer_info(model: &Model) -> Value {
    let TokenizerInfo {
        class,
        chat_template,
        special_tokens,
        additional_special_tokens,
        flags,
        added_tokens,
    } = model.text.info();
    let mut fields = Map::new();
    fields.insert("tokenizer_class".to_owned(), class.as_deref().unwrap_or(DEFAULT_CLASS).into());
    // What a file says of it is the tokenizer's, not this server's.
    fields.insert("model_max_length".to_owned(), model.context_max.0.into());
    fields.extend(flags.into_iter().map(|(name, is_set)| (name.to_owned(), is_set.into())));
    fields.extend(special_tokens.into_iter().map(|(name, token)| (name.to_owned(), token.into())));
    if !additional_special_tokens.is_empty() {
        fields.insert("additional_special_tokens".to_owned(), additional_special_tokens.into());
    }
    fields.extend(chat_template.map(|template| ("chat_template".to_owned(), template.into())));
    let added: Map<String, Value> =
        added_tokens.iter().map(|(id, token)| (id.to_string(), added(token))).collect();
    fields.insert("added_tokens_decoder".to_owned(), added.into());
    fields.into()
}

fn added(token: &AddedToken) -> Value {
    json!({
        "content": token.content,
        "lstrip": token.lstrip,
        "normalized": token.normalized,
        "rstrip": token.rstrip,
        "single_word": token.single_word,
        "special": token.special,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    fn read(body: &str) -> Result<TokenizeRequest, RequestError> {
        let fields = json::object(body.as_bytes())?;
        with_context(&LimitsConfig::default(), |context| TokenizeRequest::read(fields, context))
    }

    #[test]
    fn a_prompt_is_started_and_a_conversation_is_not_unless_they_say_so() {
        let messages = r#""messages":[{"role":"user","content":"a"}]"#;
        for (body, starts_prompt) in [
            (r#"{"model":"m","prompt":""}"#.to_owned(), true),
            (r#"{"prompt":"a","add_special_tokens":false}"#.to_owned(), false),
            (format!("{{{messages}}}"), false),
            (format!(r#"{{{messages},"add_special_tokens":true}}"#), true),
        ] {
            assert_eq!(read(&body).expect("valid").starts_prompt, starts_prompt, "{body}");
        }
        let ended =
            read(&format!(r#"{{{messages},"continue_final_message":true,"return_token_strs":true}}"#));
        let ended = ended.expect("valid");
        assert!(ended.tells_names);
        let TokenizeInput::Conversation { end, .. } = ended.input else { panic!("a conversation") };
        assert_eq!(end, PromptEnd::Text);
    }

    #[test]
    fn what_cannot_be_tokens_or_text_is_named() {
        let messages = r#""messages":[{"role":"user","content":"a"}]"#;
        for (body, blamed) in [
            ("{}".to_owned(), "prompt"),
            (r#"{"prompt":["a"]}"#.to_owned(), "prompt"),
            (format!(r#"{{"prompt":"a",{messages}}}"#), "prompt"),
            (r#"{"messages":[]}"#.to_owned(), "messages"),
            (format!(r#"{{{messages},"chat_template":"x"}}"#), "chat_template"),
            (
                format!(r#"{{{messages},"continue_final_message":true,"add_generation_prompt":true}}"#),
                "add_generation_prompt",
            ),
            (r#"{"prompt":"a","add_special_tokens":1}"#.to_owned(), "add_special_tokens"),
            (r#"{"prompt":"a","return_token_strs":"yes"}"#.to_owned(), "return_token_strs"),
            (r#"{"prompt":"a","x":1}"#.to_owned(), "x"),
        ] {
            match read(&body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
        let detokenize = |body: &str| {
            let fields = json::object(body.as_bytes())?;
            with_context(&LimitsConfig::default(), |context| DetokenizeRequest::read(fields, context))
        };
        assert_eq!(detokenize(r#"{"tokens":[0,256]}"#).expect("valid").tokens, [TokenId(0), TokenId(256)]);
        let most = with_context(&LimitsConfig::default(), |context| context.model.context_max.0 as usize);
        let many = |count: usize| detokenize(&serde_json::json!({"tokens": vec![7; count]}).to_string());
        assert_eq!(many(most).expect("valid").tokens.len(), most);
        match many(most + 1) {
            Err(RequestError::Invalid { field, reason }) => {
                assert!(field == "tokens" && reason.contains(&format!("at most {most}")), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        for body in [
            "{}",
            r#"{"tokens":7}"#,
            r#"{"tokens":[257]}"#,
            r#"{"tokens":[-1]}"#,
            r#"{"tokens":[1.5]}"#,
            r#"{"tokens":[[1]]}"#,
        ] {
            match detokenize(body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, "tokens", "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }
}
