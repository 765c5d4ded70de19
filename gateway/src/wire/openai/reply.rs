//! The replies of the OpenAI routes, whole ones and chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{End, TokenId, TokenLogprob};
use serde::Serialize;
use serving::error::RequestError;
use serving::model::Model;
use serving::relquery_state::{AnswerRow, RelQueryState, RowProgress, State, Status, Usage};
use utoipa::ToSchema;

use super::logprobs::{ChatLogprobs, CompletionLogprobs};
use super::prompt_reply::{PromptReply, ScoredToken};
use super::token_ids::{RowPrompts, numbers};
use super::tool_calls::{CallReader, ToolCallReply};
use crate::wire::public_ids;
use crate::wire::relquery::finish_reason;
use crate::wire::usage::UsageReply;

/// Which of the two routes is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completion,
    /// `/v1/chat/completions`.
    Chat,
}

/// What all objects of one request have in common.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The route.
    pub api: Api,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
    /// How calls of tools are read, where any can be called.
    pub(super) tools: Option<Arc<CallReader>>,
    /// The prompts, where ids of tokens are told.
    prompts: Option<RowPrompts>,
    /// What is told of the prompts beside.
    pub(super) prompt: PromptReply,
    /// At which texts answers end.
    stops: Arc<[String]>,
}

/// A reply or a chunk, by its kind of choice.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Reply<C: ToSchema> {
    /// `cmpl-...` or `chatcmpl-...`.
    pub id: String,
    /// What this is.
    pub object: &'static str,
    /// When the request came, unix seconds.
    pub created: u64,
    /// The model.
    pub model: String,
    /// Weights and tokenizer: equal seeds give equal answers under equal fingerprints.
    pub system_fingerprint: String,
    /// Ids of a conversation's tokens, where they were asked for (vLLM's name for them). In a stream they are in
    /// the first chunk of each answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// How likely the tokens of a conversation's prompt were, by their ids, where that was asked for (vLLM's name for
    /// it); null for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<BTreeMap<String, ScoredToken>>>>,
    /// `n` per prompt; in a chunk, those that went on.
    pub choices: Vec<C>,
    /// Tokens. In a stream only when asked for, and null but in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageReply>)]
    pub usage: Option<Option<UsageReply>>,
}

/// A choice of `/v1/completions`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CompletionChoice {
    /// The prompt's number times `n`, and the answer's.
    pub index: u32,
    /// The output, or its next piece; behind its prompt where that was asked for.
    pub text: String,
    /// Of its tokens, where they were asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`, at the end.
    pub finish_reason: Option<&'static str>,
    /// What ended it, where that was one of the request's own (vLLM's name for it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Ids of its tokens, where they were asked for (vLLM's name for them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Those of its prompt; in a stream, in its first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// How likely the tokens of its prompt were, by their ids, where that was asked for (vLLM's name for it); null for
    /// the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<BTreeMap<String, ScoredToken>>>>,
}

/// A choice of `/v1/chat/completions`: whole (`message`) or a piece (`delta`).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    /// The answer's number, below `n`.
    pub index: u32,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<AssistantMessage>,
    /// Its next piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<Delta>,
    /// Of its tokens, where they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length` or `tool_calls`, at the end.
    pub finish_reason: Option<&'static str>,
    /// What ended it, where that was one of the request's own (vLLM's name for it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Ids of its tokens, where they were asked for (vLLM's name for them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What of a request ended an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// One of its texts (`stop`).
    Text(String),
    /// One of its tokens (`stop_token_ids`).
    Token(u32),
}

/// Why a row ended, as it is told.
pub(super) struct RowEnd {
    pub(super) finish_reason: &'static str,
    pub(super) stop_reason: Option<StopReason>,
}

impl RowEnd {
    /// The two fields of a chunk.
    pub(super) fn fields(end: Option<Self>) -> (Option<&'static str>, Option<StopReason>) {
        end.map_or((None, None), |end| (Some(end.finish_reason), end.stop_reason))
    }
}

/// A whole answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AssistantMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// What it says; null where it calls tools and says nothing beside.
    pub content: Option<String>,
    /// Always null.
    #[schema(value_type = Option<String>)]
    pub refusal: (),
    /// The tools that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallReply>,
}

/// A piece of an answer.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Delta {
    /// `assistant`, in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text; absent in the last piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Pieces of calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallReply>,
}

/// A model that can be called.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelObject {
    /// Its name.
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// When it was loaded, unix seconds.
    pub created: u64,
    /// Always `relserve`.
    pub owned_by: &'static str,
    /// The model that an alias stands for (vLLM's name for it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Longest prompt and output together (vLLM's name for it).
    /// Absent where only the servers that run it know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u64>,
    /// What it is (our extension).
    pub description: String,
    /// Whether functions that write text are refused, since it can only pick among given answers: the demo model. Absent
    /// where it is not so (our extension).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub picks_only: bool,
    /// The ways on from here over other gateways, each as the random ids of the gateways on it: to gateways alone, which
    /// find by it that they lead to themselves (our extension).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Vec<String>>,
}

/// The models that can be called.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelObject>,
}

impl ModelObject {
    /// The served model, by its name and by each alias.
    pub fn all(model: &Model) -> Vec<Self> {
        let aliases = model
            .aliases
            .iter()
            .map(|alias| Self { root: Some(model.name.clone()), ..Self::named(model, alias) });
        std::iter::once(Self::named(model, &model.name)).chain(aliases).collect()
    }

    /// The embedding model.
    pub fn embedder(name: &str, created: u64) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created,
            owned_by: "relserve",
            root: None,
            max_model_len: None,
            description: "embedding model: /v1/embeddings, /v1/score, /v1/rerank".into(),
            picks_only: false,
            gateways: Vec::new(),
        }
    }

    fn named(model: &Model, name: &str) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created: model.created,
            owned_by: "relserve",
            root: None,
            max_model_len: model.has_ids().then_some(model.context_max.0),
            description: model.description.clone(),
            picks_only: model.picks_only,
            gateways: Vec::new(),
        }
    }
}

impl Envelope {
    /// For one request.
    pub fn new(api: Api, relquery: &RelQueryState, model: &Model) -> Self {
        let prefix = match api {
            Api::Completion => "cmpl",
            Api::Chat => "chatcmpl",
        };
        Self {
            api,
            id: format!("{prefix}-{}", public_ids::shown(relquery.id)),
            created: relquery.created_ms / 1_000,
            model: model.name.clone(),
            fingerprint: format!("rs-{:012x}", model.revision & 0xffff_ffff_ffff),
            tools: None,
            prompts: None,
            prompt: PromptReply::default(),
            stops: Arc::default(),
        }
    }

    /// The same where answers may call tools.
    pub fn calling(self, tools: Option<Arc<CallReader>>) -> Self {
        Self { tools, ..self }
    }

    /// The same where ids of tokens are told; `prompts`: those of the rows.
    pub fn telling_tokens(self, prompts: Option<RowPrompts>) -> Self {
        Self { prompts, ..self }
    }

    /// The same where more is told of the prompts.
    pub fn telling_prompts(self, prompt: PromptReply) -> Self {
        Self { prompt, ..self }
    }

    /// The same where answers end at these texts.
    pub fn stopping_at(self, stops: Arc<[String]>) -> Self {
        Self { stops, ..self }
    }

    /// What of the request ended an answer that is told, where that did.
    pub(super) fn stop_reason(&self, end: End) -> Option<StopReason> {
        if self.prompt.fields.hides_answer {
            return None;
        }
        match end {
            End::StopText(place) => self.stops.get(place as usize).cloned().map(StopReason::Text),
            End::StopToken(token) => Some(StopReason::Token(token.0)),
            End::Stop | End::Length => None,
        }
    }

    /// Ids of tokens of an output, where they are told.
    pub(super) fn token_ids(&self, tokens: &[TokenId]) -> Option<Vec<u32>> {
        self.prompts.as_ref().map(|_| numbers(tokens))
    }

    /// Those of a row's prompt.
    pub(super) fn prompt_token_ids(&self, index: u32) -> Option<Vec<u32>> {
        self.prompts.as_ref()?.get(index as usize).map(|prompt| numbers(prompt))
    }

    /// Puts choices into the envelope.
    pub(super) fn wrap<C: ToSchema>(
        &self,
        object: &'static str,
        choices: Vec<C>,
        usage: Option<Option<UsageReply>>,
    ) -> Reply<C> {
        Reply {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: self.fingerprint.clone(),
            prompt_token_ids: None,
            prompt_logprobs: None,
            choices,
            usage,
        }
    }

    /// The same for one request of many on a relQuery.
    pub fn numbered(mut self, number: u32) -> Self {
        self.id = format!("{}-{number}", self.id);
        self
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole reply of `/v1/completions`, once nothing changes any more.
    pub fn completion(&self, state: &State) -> Result<Reply<CompletionChoice>, RequestError> {
        verdict(state)?;
        Ok(self.completion_of(&state.rows, state.usage))
    }

    /// The reply of `/v1/completions` whose rows these are.
    pub fn completion_of(&self, rows: &[AnswerRow], usage: Usage) -> Reply<CompletionChoice> {
        let choices = finished(rows).map(|(index, row, end)| {
            let told = ShownAnswer::of(row, &self.prompt);
            let (mut offsets, text) = (self.prompt.offsets(index), (told.text, true));
            let names_ids = self.prompt.fields.names_ids;
            let logprobs = CompletionLogprobs::of(told.logprobs, &mut offsets, text, names_ids);
            CompletionChoice {
                index,
                text: format!("{}{}", self.prompt.text(index), told.text),
                logprobs: CompletionLogprobs::behind(self.prompt.echoed(index, row), logprobs),
                finish_reason: Some(self.prompt.finish_reason(end)),
                stop_reason: self.stop_reason(end),
                token_ids: self.token_ids(told.tokens),
                prompt_token_ids: self.prompt_token_ids(index),
                prompt_logprobs: self.prompt.scores(row),
            }
        });
        self.wrap("text_completion", choices.collect(), Some(Some(usage.into())))
    }

    /// The whole reply of `/v1/chat/completions`, once nothing changes any more.
    pub fn chat(&self, state: &State) -> Result<Reply<ChatChoice>, RequestError> {
        verdict(state)?;
        Ok(self.chat_of(&state.rows, state.usage))
    }

    /// The reply of `/v1/chat/completions` whose rows these are.
    pub fn chat_of(&self, rows: &[AnswerRow], usage: Usage) -> Reply<ChatChoice> {
        let choices = finished(rows).map(|(index, row, end)| {
            let (message, reason) = self.message(index, &row.text, end);
            ChatChoice {
                index,
                message: Some(message),
                delta: None,
                logprobs: ChatLogprobs::of(&row.logprobs, self.prompt.fields.names_ids),
                finish_reason: Some(reason),
                stop_reason: self.stop_reason(end),
                token_ids: self.token_ids(&row.tokens),
            }
        });
        let reply = self.wrap("chat.completion", choices.collect(), Some(Some(usage.into())));
        // All answers of a conversation have one prompt.
        let prompt_logprobs = rows.first().and_then(|row| self.prompt.scores(row));
        Reply { prompt_token_ids: self.prompt_token_ids(0), prompt_logprobs, ..reply }
    }
}

impl Envelope {
    /// A whole answer, and why it ended.
    fn message(&self, index: u32, text: &str, end: End) -> (AssistantMessage, &'static str) {
        let message =
            |content, tool_calls| AssistantMessage { role: "assistant", content, refusal: (), tool_calls };
        let before = self.prompt.text(index);
        let Some(tools) = &self.tools else {
            return (message(Some(format!("{before}{text}")), Vec::new()), finish_reason(end));
        };
        let answer = tools.read(text, true);
        let reason = tools.finish_reason(&answer, end).unwrap_or_else(|| finish_reason(end));
        let calls = answer.calls.into_iter().enumerate();
        let calls: Vec<_> = calls.map(|(i, call)| call.reply(tools.id(&self.id, index, i))).collect();
        let content = Some(format!("{before}{}", answer.content))
            .filter(|content| calls.is_empty() || !content.is_empty());
        (message(content, calls), reason)
    }
}

/// What is told of an answer of `/v1/completions`.
pub(super) struct ShownAnswer<'a> {
    pub(super) text: &'a str,
    pub(super) logprobs: &'a [TokenLogprob],
    pub(super) tokens: &'a [TokenId],
}

impl<'a> ShownAnswer<'a> {
    /// All of it, or nothing.
    pub(super) fn of(row: &'a AnswerRow, prompt: &PromptReply) -> Self {
        match prompt.fields.hides_answer {
            true => Self { text: "", logprobs: &[], tokens: &[] },
            false => Self { text: &row.text, logprobs: &row.logprobs, tokens: &row.tokens },
        }
    }
}

/// What a request comes to as a whole: this API has no errors per prompt.
pub(crate) fn verdict(state: &State) -> Result<(), RequestError> {
    match &state.status {
        Status::Failed(error) => return Err(error.clone()),
        Status::Cancelled => return Err(RequestError::Cancelled),
        Status::Running | Status::Completed => {}
    }
    let error = state.rows.iter().find_map(|row| match &row.state {
        RowProgress::Failed(error) => Some(error.clone()),
        RowProgress::Pending | RowProgress::Done { .. } => None,
    });
    error.map_or(Ok(()), Err)
}

/// Those rows of a request that succeeded.
fn finished(rows: &[AnswerRow]) -> impl Iterator<Item = (u32, &AnswerRow, End)> {
    (0..).zip(rows).filter_map(|(index, row)| match row.state {
        RowProgress::Done { end, .. } => Some((index, row, end)),
        RowProgress::Pending | RowProgress::Failed(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use base::{RelQueryId, TenantId, Time, TokenCount};
    use serde_json::json;
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind};

    use super::*;
    use crate::wire::openai::tests::model;

    const ARRIVAL: Arrival = Arrival { unix_ms: 5_999, time: Time(0) };

    fn done(prompt: u64, output: u64) -> RowProgress {
        let usage = Usage {
            prompt: TokenCount(prompt),
            cached: TokenCount(2),
            shifted: TokenCount(1),
            repaired: TokenCount(0),
            computed: TokenCount(prompt - 2),
            output: TokenCount(output),
        };
        RowProgress::Done { end: End::Stop, usage, source: AnswerSource::Model }
    }

    #[test]
    fn whole_replies_have_openais_shape() {
        let relquery = RelQueryState::new(RelQueryId(9), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        relquery.token(0, "hi", true, Time(1));
        relquery.settle(0, done(7, 2), Time(2));
        let envelope = Envelope::new(Api::Completion, &relquery, &model());
        let reply = envelope.completion(&relquery.read()).expect("it succeeded");
        let usage = json!({
            "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "computed_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 2, "exact_tokens": 1, "shifted_tokens": 1}
        });
        assert_eq!(
            serde_json::to_value(reply).expect("plain data"),
            json!({
                "id": format!("cmpl-{}", public_ids::shown(RelQueryId(9))), "object": "text_completion", "created": 5, "model": "m",
                "system_fingerprint": "rs-000000000007",
                "choices": [{"index": 0, "text": "hi", "logprobs": null, "finish_reason": "stop"}],
                "usage": usage,
            })
        );
        let envelope = Envelope::new(Api::Chat, &relquery, &model());
        let reply = envelope.chat(&relquery.read()).expect("it succeeded");
        assert_eq!(
            serde_json::to_value(reply).expect("plain data"),
            json!({
                "id": format!("chatcmpl-{}", public_ids::shown(RelQueryId(9))), "object": "chat.completion", "created": 5, "model": "m",
                "system_fingerprint": "rs-000000000007",
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": "hi", "refusal": null},
                    "logprobs": null, "finish_reason": "stop"
                }],
                "usage": usage,
            })
        );
    }

    #[test]
    fn ids_of_tokens_are_told_where_they_are_asked_for() {
        let relquery = RelQueryState::new(RelQueryId(9), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        relquery.keep_tokens();
        relquery.keep_token(0, TokenId(104));
        relquery.token(0, "h", true, Time(1));
        relquery.settle(0, done(7, 2), Time(2));
        let tokens: Arc<[TokenId]> = [TokenId(1), TokenId(256)].into();
        let prompts: RowPrompts = [tokens].into();
        let state = relquery.read();
        for prompts in [Some(prompts), None] {
            let (ids, own) = match &prompts {
                Some(_) => (json!([1, 256]), json!([104])),
                None => (json!(null), json!(null)),
            };
            let envelope = |api| Envelope::new(api, &relquery, &model()).telling_tokens(prompts.clone());
            let reply = json!(envelope(Api::Completion).completion(&state).expect("it succeeded"));
            let choice = &reply["choices"][0];
            assert_eq!((&choice["prompt_token_ids"], &choice["token_ids"]), (&ids, &own));
            assert_eq!(reply["prompt_token_ids"], json!(null));
            let reply = json!(envelope(Api::Chat).chat(&state).expect("it succeeded"));
            assert_eq!((&reply["prompt_token_ids"], &reply["choices"][0]["token_ids"]), (&ids, &own));
        }
    }

    #[test]
    fn one_failed_prompt_fails_the_request() {
        let relquery = RelQueryState::new(RelQueryId(9), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        relquery.settle(0, done(7, 2), Time(2));
        relquery.settle(1, RowProgress::Failed(RequestError::Row("NaN".into())), Time(3));
        let envelope = Envelope::new(Api::Completion, &relquery, &model());
        let error = envelope.completion(&relquery.read()).expect_err("a row failed");
        assert_eq!(error, RequestError::Row("NaN".into()));
    }
}
