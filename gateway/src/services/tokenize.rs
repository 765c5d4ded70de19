//! Prompts and conversations as the tokens that the model gets, tokens as text, and what the tokenizer is. Nothing is run.

use base::{ChatTemplate, Role, TokenId};
use serde::Serialize;
use serving::error::{RequestError, internal};
use serving::model::Model;

use crate::json::JsonFields;
use crate::services::openai::{ended, with_variables};
use crate::services::prepare::RequestContext;
use crate::services::prepare::rows::prompt_bytes_max;
use crate::services::tools;
use crate::wire::openai::{
    DetokenizeReply, DetokenizeRequest, Message, TokenizeInput, TokenizeReply, TokenizeRequest, ToolRequest,
    tokenizer_info as wire_info,
};

/// A reply, with the names of fields that were left out.
#[derive(Debug)]
pub(crate) struct ReplyWithIgnored {
    /// Its JSON: of hundreds of thousands of tokens it is not made on a connection's thread.
    pub(crate) json: Vec<u8>,
    pub(crate) ignored: Vec<String>,
}

impl ReplyWithIgnored {
    fn new(reply: &impl Serialize, ignored: Vec<String>) -> Result<Self, RequestError> {
        Ok(Self { json: serde_json::to_vec(reply).map_err(internal)?, ignored })
    }
}

/// A body of `/tokenize`.
pub(crate) fn tokenize(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<ReplyWithIgnored, RequestError> {
    let model = with_ids(context.model.model())?;
    let asked = TokenizeRequest::read(fields, context.validation())?;
    let mut tokens = if asked.starts_prompt { model.text.prompt_start() } else { Vec::new() };
    match asked.input {
        TokenizeInput::Prompt(text) => {
            check_bytes(context, "`prompt`", text.len())?;
            tokens.extend(model.text.encode_stretch(base::After::Nothing, &text));
        }
        TokenizeInput::Conversation { messages, end, tools, variables } => {
            if !model.has_chat {
                let reason = "the model has no chat template: send `prompt`";
                return Err(RequestError::invalid("messages", reason));
            }
            let changed = with_variables(model, variables.as_deref())?;
            let whole = changed.as_deref().unwrap_or(&*model.text);
            let ended = ended(end, whole)?;
            let template = ended.as_deref().unwrap_or(whole);
            tokens.extend(tokens_of(context, messages, (tools.as_ref(), template))?);
        }
    }
    if asked.tells_names && tokens.len() as u64 > model.context_max.0 {
        let (found, most) = (tokens.len(), model.context_max.0);
        let reason = format!("is for at most {most} tokens, the model's context: these are {found}");
        return Err(RequestError::invalid("return_token_strs", reason));
    }
    ReplyWithIgnored::new(&TokenizeReply::new(&tokens, model, asked.tells_names), asked.ignored)
}

/// A body of `/detokenize`.
pub(crate) fn detokenize(
    context: RequestContext<'_>,
    fields: JsonFields,
) -> Result<ReplyWithIgnored, RequestError> {
    let model = with_ids(context.model.model())?;
    let DetokenizeRequest { tokens, ignored } = DetokenizeRequest::read(fields, context.validation())?;
    ReplyWithIgnored::new(&DetokenizeReply { prompt: model.text.decode_written(&tokens) }, ignored)
}

/// What a model's tokenizer is, as JSON: of thousands of added tokens it is not made on a connection's thread.
pub(crate) fn tokenizer_info(model: &Model) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(&wire_info(with_ids(model)?)).map_err(internal)
}

/// The model, where its tokens are known here.
fn with_ids(model: &Model) -> Result<&Model, RequestError> {
    if model.has_ids() { Ok(model) } else { Err(RequestError::NotConfigured("model.tokenizer")) }
}

/// Refuses what takes too long to tokenize: no prompt of the model's is as long. `what`: the fields that it stands in.
fn check_bytes(context: RequestContext<'_>, what: &str, found: usize) -> Result<(), RequestError> {
    let limit = prompt_bytes_max(context.model.model(), &context.app.config).0;
    if found as u64 <= limit {
        return Ok(());
    }
    Err(RequestError::TooLarge { what: what.to_owned(), limit: format!("{limit} bytes") })
}

/// The tokens of a conversation as its template writes it: those of the same chat.
fn tokens_of(
    context: RequestContext<'_>,
    messages: Vec<Message>,
    (tools, template): (Option<&ToolRequest>, &dyn ChatTemplate),
) -> Result<Vec<TokenId>, RequestError> {
    let model = context.model.model();
    let what = if tools.is_some() { "`messages` and `tools` together" } else { "`messages`" };
    let concerns_tools = tools::concern(&messages, tools);
    let pieces = match tools::native_form(model).filter(|_| concerns_tools) {
        None => {
            let messages = tools::plain(messages, tools);
            check_bytes(context, what, messages.iter().map(|(_, content)| content.len()).sum())?;
            let messages: Vec<(Role, &str)> =
                messages.iter().map(|(role, content)| (*role, content.as_str())).collect();
            template.render(&messages)
        }
        Some(form) => {
            let fields = tools::fields(&messages, tools, form);
            let texts = fields.tools.iter().chain(fields.messages.values());
            let texts = texts.chain(messages.iter().map(|message| &message.content));
            check_bytes(context, what, texts.map(String::len).sum())?;
            let messages: Vec<(Role, &str)> =
                messages.iter().map(|message| (message.role, message.content.as_str())).collect();
            template.render_tools(&messages, &fields)
        }
    };
    let pieces = pieces.map_err(|error| RequestError::invalid("messages", error.to_string()))?;
    Ok(model.text.encode_rendered(&pieces))
}
