//! The OpenAI shapes of `/v1/completions` and `/v1/chat/completions`, converted by hand.
//!
//! A request is read field by field: what the engine cannot do is refused with a 400 that names the
//! field, never dropped in silence, so an answer is always the answer to what was asked. Fields that
//! change nothing (`user`, a penalty of 0) are accepted. Must not know sockets.

mod adjustments;
mod answer_copy;
mod answer_pieces;
mod background_events;
mod best_of;
pub(crate) mod chat;
mod chunks;
mod completion;
mod constrained;
mod item_events;
pub(crate) mod legacy_functions;
mod logprobs;
mod loop_names;
mod model_list;
mod neutral;
pub(crate) mod prompt_reply;
mod reply;
mod response_end;
mod response_events;
mod response_items;
mod response_reply;
mod response_request;
pub(crate) mod template_variables;
mod text_offsets;
pub(crate) mod token_ids;
mod token_places;
mod tokenize;
mod tool_calls;
mod tool_namespaces;
mod tools;
mod truncation;

use std::sync::Arc;

pub(crate) use answer_copy::{AnswerCopy, whole};
pub(crate) use answer_pieces::{AnswerPieces, put_piece};
pub use background_events::BackgroundEvents;
use base::{Millis, ServiceClass};
pub use best_of::BestOf;
pub use chat::{ChatRequest, Message};
pub use chunks::{Chunker, Look, UsageChunks};
pub use completion::{CompletionPrompt, CompletionRequest};
pub use loop_names::{LoopHeaders, LoopNames};
pub use model_list::{ModelList, ModelObject};
pub(crate) use neutral::{BodyKind, LeftOut, left_out, neutral_fields};
pub use prompt_reply::{PromptFields, PromptReply};
pub(crate) use reply::verdict;
pub use reply::{Api, ChatChoice, CompletionChoice, Envelope, Reply};
pub use response_events::ResponseEvents;
pub(crate) use response_items::all_said;
pub use response_items::{PREVIOUS, PreviousResponse};
pub use response_reply::{ResponseEnvelope, ResponseReply};
pub use response_request::{ResponseEcho, ResponseRequest};
use serving::error::RequestError;
use serving::model::Model;
pub use token_ids::RowPrompts;
pub(crate) use tokenize::tokenizer_info;
pub use tokenize::{DetokenizeReply, DetokenizeRequest, TokenizeInput, TokenizeReply, TokenizeRequest};
pub use tool_calls::{CallReader, ReadAnswer, ReadCall, TAGS};
pub use tools::{Tool, ToolCall, ToolChoice, ToolPart, ToolRequest};
pub use truncation::Truncation;

use crate::config::UnknownFields;
use crate::json::JsonFields;
use crate::wire::ValidationContext;
use crate::wire::relquery::{check_model, class, deadline};
use crate::wire::sampling::{Absent, Sampling, output_limit};

/// Answers to one prompt.
const ANSWERS_MAX: u32 = 128;

/// What both routes take beside their prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// How to generate; its output limit is a placeholder where the request names none.
    pub sampling: Sampling,
    /// The output limit, where the request names one: what it names, or the operator's limit where that is less.
    pub max_tokens: Option<u64>,
    /// Answers to each prompt.
    pub n: u32,
    /// Chunks as they come, or one reply.
    pub stream: bool,
    /// Whether a stream ends with a chunk of usage.
    pub include_usage: bool,
    /// Whether its other chunks have the usage so far as well.
    pub continuous_usage: bool,
    /// Who waits (our extension).
    pub class: ServiceClass,
    /// Whether a known answer may be given, and this one kept (our extension; off by default, because
    /// clients of this API measure the model).
    pub cache: bool,
    /// Time after which the work is stopped and the request fails (our extension).
    pub deadline: Option<Millis>,
    /// What says which requests are of one loop.
    pub loop_names: LoopNames,
    /// Whether tokens are named by their ids in place of their text.
    pub names_ids: bool,
    /// What is kept of prompts that are too long; `None`: they are refused.
    pub truncation: Option<Truncation>,
    /// Fields of objects in it that are not known, and those without effect as they are.
    pub ignored: Vec<String>,
}

impl Common {
    /// Takes the common fields; `limit_names` are the names of the output limit on this route.
    pub(crate) fn take(
        fields: &mut JsonFields,
        context: ValidationContext<'_>,
        limit_names: &[&str],
    ) -> Result<Self, RequestError> {
        let ValidationContext { limits, model, unknown_fields, .. } = context;
        check_model(fields, model)?;
        // vLLM's default, which keeps all of them.
        if fields.count("top_k") == Some(0) {
            fields.insert("top_k", (-1).into());
        }
        let mut ignored = Vec::new();
        let max_tokens = take_max_tokens(fields, limit_names, context, &mut ignored)?;
        let absent = Absent {
            max_tokens: max_tokens.unwrap_or(limits.output_tokens_max),
            temperature: model.defaults.temperature,
            top_p: model.defaults.top_p,
            top_k: model.defaults.top_k,
        };
        let mut sampling = Sampling::read(fields, context, absent, &[])?;
        let generation = Arc::make_mut(&mut sampling.generation);
        let already = generation.constraint.is_some();
        if let Some((constraint, compiled)) = constrained::take(fields, already, context, &mut ignored)? {
            (generation.constraint, generation.compiled) = (Some(constraint), compiled);
        }
        adjustments::take(fields, context, (generation, absent.max_tokens))?;
        let stream = fields.bool("stream")?.unwrap_or(false);
        let (include_usage, continuous_usage) =
            take_stream_options(fields, stream, unknown_fields, &mut ignored)?;
        Ok(Self {
            sampling,
            max_tokens,
            n: take_n(fields)?,
            stream,
            include_usage,
            continuous_usage,
            class: class(fields)?,
            cache: fields.bool("cache")?.unwrap_or(false),
            deadline: deadline(fields)?,
            loop_names: LoopNames::take(fields),
            names_ids: false,
            truncation: None,
            ignored,
        })
    }

    /// Takes the fields of a request that is like one of `/v1/completions`.
    pub(crate) fn of_completion(
        fields: &mut JsonFields,
        context: ValidationContext<'_>,
    ) -> Result<Self, RequestError> {
        let common = Self::take(fields, context, &["max_tokens"])?;
        Ok(common.with_logprobs(logprobs::of_completion(fields)?))
    }

    /// With variables of the model's chat template.
    fn with_template_variables(mut self, variables: Option<String>) -> Self {
        Arc::make_mut(&mut self.sampling.generation).template_variables = variables;
        self
    }

    /// With what is asked for by ids of tokens; log probabilities are read by now.
    fn with_token_ids(mut self, fields: &mut JsonFields, model: &Model) -> Result<Self, RequestError> {
        let generation = Arc::make_mut(&mut self.sampling.generation);
        generation.tells_tokens = token_ids::take(fields, model)?;
        generation.logprob_tokens = token_ids::take_scored(fields, generation.logprobs, model)?;
        self.names_ids = token_ids::take_names(fields, model)?;
        // Each token has an id, one without text too.
        generation.logprobs_of_each |= self.names_ids && generation.logprobs.is_some();
        self.truncation = Truncation::take(fields, model)?;
        Ok(self)
    }

    /// With those of its prompt's tokens, where they are asked for.
    fn with_prompt_logprobs(mut self, fields: &mut JsonFields, model: &Model) -> Result<Self, RequestError> {
        let top = prompt_reply::take(fields, self.stream, model)?;
        prompt_reply::ask(Arc::make_mut(&mut self.sampling.generation), top);
        Ok(self)
    }

    /// With log probabilities of its tokens, each with so many of the most likely ones.
    fn with_logprobs(mut self, top: Option<u32>) -> Self {
        Arc::make_mut(&mut self.sampling.generation).logprobs = top;
        self
    }
}

/// Ends the reading of a request that is like one of `/v1/completions`: refuses what is left unless it
/// changes nothing; the names of what is unknown.
pub(crate) fn finish_completion(
    fields: JsonFields,
    unknown: UnknownFields,
) -> Result<Vec<String>, RequestError> {
    neutral::finish(fields, BodyKind::Completion, unknown)
}

/// Takes `n`.
fn take_n(fields: &mut JsonFields) -> Result<u32, RequestError> {
    let n = fields.integer("n", 1, u64::from(ANSWERS_MAX))?;
    Ok(n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1))
}

/// Takes the output limit under all its names, which must agree. Clients cannot know what an operator allows: a number
/// above that is lowered to it, and its field is told in `ignored`, unless what has no effect is to be refused.
fn take_max_tokens(
    fields: &mut JsonFields,
    names: &[&str],
    context: ValidationContext<'_>,
    ignored: &mut Vec<String>,
) -> Result<Option<u64>, RequestError> {
    let ValidationContext { limits, unknown_fields, .. } = context;
    let most = limits.output_tokens_max;
    let mut asked = None;
    for name in names {
        let above = fields.count(name).filter(|tokens| *tokens > most);
        let tokens = match (above, unknown_fields) {
            (None, _) | (Some(_), UnknownFields::Refuse) => output_limit(fields, name, context)?,
            (Some(_), UnknownFields::Warn | UnknownFields::Ignore) => {
                fields.take(name);
                above
            }
        };
        if tokens.is_some() && asked.is_some() && tokens != asked {
            return fields.bad(name, format!("contradicts `{}`", names[0]));
        }
        if above.is_some() && unknown_fields == UnknownFields::Warn {
            ignored.push(fields.name(name));
        }
        asked = asked.or(tokens);
    }
    Ok(asked.map(|tokens| tokens.min(most)))
}

/// Takes `stream_options`: whether a stream ends with a chunk of usage, and whether its other chunks have it too.
fn take_stream_options(
    fields: &mut JsonFields,
    stream: bool,
    unknown: UnknownFields,
    ignored: &mut Vec<String>,
) -> Result<(bool, bool), RequestError> {
    let Some(value) = fields.take("stream_options") else { return Ok((false, false)) };
    if !stream {
        return fields.bad("stream_options", "is only allowed when `stream` is true");
    }
    let mut options = JsonFields::nested("stream_options", value)?;
    let include_usage = options.bool("include_usage")?.unwrap_or(false);
    // Padding against observers of encrypted traffic: a wish about the transport, not about the answer.
    options.bool("include_obfuscation")?;
    // As vLLM has it: without effect where no usage is asked for.
    let is_continuous = options.bool("continuous_usage_stats")?.unwrap_or(false);
    ignored.extend(left_out(options, unknown)?);
    Ok((include_usage, include_usage && is_continuous))
}

#[cfg(test)]
pub(crate) mod tests {
    use base::text::ByteText;
    use base::{TenantId, TokenCount};
    use serving::clock::Clock;
    use serving::model::{Defaults, Runs};

    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::services::constraints::{Constraints, Purpose};

    /// A model of 257 tokens that likes to be sampled warmly.
    pub(crate) fn model() -> Model {
        Model {
            name: "m".into(),
            aliases: Vec::new(),
            description: "bytes".into(),
            picks_only: false,
            knows_bare_prompts: false,
            text: Arc::new(ByteText),
            has_chat: true,
            constraints: None,
            context_max: TokenCount(64),
            vocab: 257,
            revision: 7,
            kv_blocks: 16,
            host_kv_blocks: 0,
            block_tokens: 16,
            reuse: base::SectionReuse::Anywhere,
            scores_prompts: true,
            replicas: None,
            defaults: Defaults { temperature: 0.7, top_p: 0.9, top_k: Some(40) },
            created: 1,
            runs: Runs::Engine,
        }
    }

    /// The context of that model, which keeps to no constraint.
    pub(crate) fn with_context<T>(limits: &LimitsConfig, run: impl FnOnce(ValidationContext<'_>) -> T) -> T {
        let constraints = Constraints::new(None, Clock::start());
        run(ValidationContext {
            limits,
            model: &model(),
            constraints: constraints.of(TenantId(1), Purpose::Run, limits),
            unknown_fields: UnknownFields::Refuse,
        })
    }

    fn take(body: &str) -> Result<Common, RequestError> {
        take_where(UnknownFields::Refuse, body)
    }

    fn take_where(unknown_fields: UnknownFields, body: &str) -> Result<Common, RequestError> {
        let mut fields = json::object(body.as_bytes())?;
        let limits = LimitsConfig { output_tokens_max: 100, ..LimitsConfig::default() };
        with_context(&limits, |context| {
            let context = ValidationContext { unknown_fields, ..context };
            Common::take(&mut fields, context, &["max_tokens", "max_completion_tokens"])
        })
    }

    fn refused(name: &str, value: &str) {
        match take(&format!("{{\"{name}\":{value}}}")) {
            Err(RequestError::Invalid { field, .. }) => assert_eq!(field, name),
            other => panic!("{name} = {value} gave {other:?}"),
        }
    }

    #[test]
    fn every_value_out_of_range_is_refused_by_name() {
        for (name, values) in [
            ("temperature", &["-0.1", "2.1", "1e300", "\"1\"", "true"][..]),
            ("top_p", &["0", "-1", "1.0001", "[]"]),
            ("top_k", &["-2", "258", "1.5", "9223372036854775808"]),
            ("seed", &["18446744073709551616", "-9223372036854775809", "1.5", "\"7\""]),
            ("n", &["0", "129", "1.5", "\"2\""]),
            ("max_tokens", &["0", "-1", "101", "9223372036854775808", "1.5", "\"5\""]),
            ("max_completion_tokens", &["0", "101", "9223372036854775808"]),
            ("stop", &["\"\"", "[1]", "{}", "[\"a\",\"\"]"]),
            ("ignore_eos", &["1"]),
            ("stream", &["\"yes\"", "1"]),
            ("class", &["\"urgent\"", "1"]),
            ("deadline_ms", &["0", "-5", "1e300"]),
        ] {
            for value in values {
                refused(name, value);
            }
        }
        refused("stop", &format!("[{}\"x\"]", "\"x\",".repeat(LimitsConfig::default().stops_max)));
    }

    #[test]
    fn the_ends_of_every_range_are_accepted_and_defaults_are_the_models() {
        let low = take(r#"{"temperature":0,"top_p":1e-60,"seed":-9223372036854775808,"top_k":1}"#);
        let low = low.expect("valid").sampling;
        assert_eq!(low.seed, Some(1 << 63));
        assert!(low.generation.top_p > 0.0, "it did not vanish in f32");
        let high = take(r#"{"temperature":2,"top_p":1,"top_k":257,"seed":18446744073709551615,"stop":"x"}"#);
        let high = high.expect("valid").sampling;
        assert_eq!((high.seed, high.generation.top_k), (Some(u64::MAX), Some(257)));
        for all in [r#"{"top_k":-1}"#, r#"{"top_k":0}"#] {
            let all = take(all).expect("valid").sampling;
            assert_eq!(all.generation.top_k, None, "whatever the model's own");
        }
        let open = take("{}").expect("valid");
        let generation = &open.sampling.generation;
        assert_eq!((generation.temperature, generation.top_p, generation.top_k), (0.7, 0.9, Some(40)));
        assert_eq!((open.max_tokens, open.stream, open.cache), (None, false, false));
    }

    #[test]
    fn both_names_of_the_output_limit_must_agree() {
        assert_eq!(take(r#"{"max_completion_tokens":6}"#).expect("valid").max_tokens, Some(6));
        assert!(take(r#"{"max_tokens":5,"max_completion_tokens":5}"#).is_ok());
        assert!(take(r#"{"max_tokens":5,"max_completion_tokens":6}"#).is_err());
    }

    #[test]
    fn an_output_limit_above_the_operators_is_lowered_and_named_or_refused() {
        let read = |unknown, body: &str| {
            let taken = take_where(unknown, body);
            taken.map(|common| (common.max_tokens, common.sampling.generation.output_max.0, common.ignored))
        };
        let lowered = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Ok((Some(100), 100, names))
        };
        let limits: [(&str, &[&str]); 5] = [
            (r#"{"max_tokens":101}"#, &["max_tokens"]),
            (r#"{"max_completion_tokens":128000}"#, &["max_completion_tokens"]),
            (r#"{"max_tokens":18446744073709551615}"#, &["max_tokens"]),
            (r#"{"max_tokens":101,"max_completion_tokens":101}"#, &["max_tokens", "max_completion_tokens"]),
            (r#"{"max_tokens":100}"#, &[]),
        ];
        for (body, names) in limits {
            assert_eq!(read(UnknownFields::Warn, body), lowered(names), "{body}");
            assert_eq!(read(UnknownFields::Ignore, body), lowered(&[]), "{body}");
            assert_eq!(read(UnknownFields::Refuse, body).is_err(), !names.is_empty(), "{body}");
        }
        for (body, blamed) in [
            (r#"{"max_tokens":0}"#, "max_tokens"),
            (r#"{"max_tokens":1e30}"#, "max_tokens"),
            (r#"{"max_tokens":"200"}"#, "max_tokens"),
            // Both would be lowered, and were not the same.
            (r#"{"max_tokens":101,"max_completion_tokens":102}"#, "max_completion_tokens"),
            (r#"{"max_tokens":101,"min_tokens":101}"#, "min_tokens"),
        ] {
            match read(UnknownFields::Warn, body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }

    #[test]
    fn stream_options_need_a_stream() {
        let usage = |body| take(body).map(|common| common.include_usage);
        assert_eq!(usage(r#"{"stream":true,"stream_options":{"include_usage":true}}"#), Ok(true));
        assert_eq!(usage(r#"{"stream":true,"stream_options":null}"#), Ok(false));
        refused("stream_options", "{\"include_usage\":true}");
        assert!(usage(r#"{"stream":true,"stream_options":{"x":1}}"#).is_err());
        let continuous = |options: &str| {
            let body =
                format!("{{\"stream\":true,\"stream_options\":{{\"continuous_usage_stats\":{options}}}}}");
            take(&body).map(|common| common.continuous_usage)
        };
        assert_eq!(continuous(r#"true,"include_usage":true"#), Ok(true));
        assert_eq!(continuous("true"), Ok(false), "no usage is asked for");
        assert!(continuous("1").is_err_and(|error| error.to_string().contains("continuous_usage_stats")));
    }

    #[test]
    fn another_model_is_not_found() {
        let error = take(r#"{"model":"gpt-4o"}"#).expect_err("another model is served");
        assert_eq!(error.to_string(), "the model `gpt-4o` does not exist; served: `m`");
    }
}
