//! Sampling fields, which all text routes share: read, checked and named one by one.

use std::sync::Arc;

use base::{Generation, TokenCount};
use serde_json::Value;
use serving::error::RequestError;

use crate::config::LimitsConfig;
use crate::json::JsonFields;
use crate::wire::{ValidationContext, constraint};

/// Longest stop string.
const STOP_BYTES_MAX: usize = 256;

/// What a route takes where the caller does not say.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// `max_tokens`.
    pub max_tokens: u64,
    /// `temperature`.
    pub temperature: f32,
    /// `top_p`.
    pub top_p: f32,
    /// `top_k`.
    pub top_k: Option<u32>,
}

impl Default for Absent {
    /// What relQueries and cells take: short and greedy.
    fn default() -> Self {
        Self { max_tokens: 16, temperature: 0.0, top_p: 1.0, top_k: None }
    }
}

/// How to produce outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// For the executor.
    pub generation: Arc<Generation>,
    /// The caller's seed.
    pub seed: Option<u64>,
}

impl Sampling {
    /// Whether the same prompt gives the same answer every time.
    pub fn is_deterministic(&self) -> bool {
        self.generation.temperature == 0.0 || self.seed.is_some()
    }

    /// Takes the fields of the request. `max_tokens` may also be called by the names in `limit_names`.
    pub fn read(
        fields: &mut JsonFields,
        context: ValidationContext<'_>,
        absent: Absent,
        limit_names: &[&str],
    ) -> Result<Self, RequestError> {
        let ValidationContext { limits, model, .. } = context;
        let mut output_max = absent.max_tokens.min(limits.output_tokens_max);
        for name in limit_names {
            if let Some(tokens) = output_limit(fields, name, context)? {
                output_max = tokens;
            }
        }
        let temperature = fields.number("temperature", "from 0 to 2", |t| (0.0..=2.0).contains(&t))?;
        let top_p = fields.number("top_p", "above 0 and at most 1", |p| p > 0.0 && p <= 1.0)?;
        let top_k = top_k(fields, model.vocab, absent.top_k)?;
        let (constraint, compiled) = constraint::take(fields, context)?.unzip();
        let generation = Generation {
            output_max: TokenCount(output_max),
            // The smallest f32 above 0 rather than 0: a tiny p is legal and must not become an illegal one.
            top_p: top_p.map_or(absent.top_p, |p| (p as f32).max(f32::MIN_POSITIVE)),
            temperature: temperature.map_or(absent.temperature, |t| t as f32),
            top_k,
            stop: stops(fields, limits)?,
            stop_tokens: Vec::new(),
            ignore_end: fields.bool("ignore_eos")?.unwrap_or(false),
            constraint,
            compiled: compiled.unwrap_or_default(),
            scoring: None,
            ..Generation::default()
        };
        Ok(Self { generation: Arc::new(generation), seed: seed(fields)? })
    }
}

/// Takes a limit of output tokens under one of its names. A wrong one is told the most that an answer may have where it
/// runs, and what sets that: the model's context may leave less than the operator allows.
pub(crate) fn output_limit(
    fields: &mut JsonFields,
    name: &str,
    ValidationContext { limits, model, .. }: ValidationContext<'_>,
) -> Result<Option<u64>, RequestError> {
    let Some(value) = fields.take(name) else { return Ok(None) };
    let allowed = limits.output_tokens_max;
    if let Some(tokens) = value.as_u64().filter(|tokens| (1..=allowed).contains(tokens)) {
        return Ok(Some(tokens));
    }
    let (context, memory) = (model.context_max.0, model.kv_tokens());
    let (most, whence) = if allowed <= context.min(memory) {
        (allowed, "limits.output_tokens_max")
    } else if memory < context {
        (memory, "what the KV memory holds, prompt included")
    } else {
        (context, "the model's context, prompt included")
    };
    fields.bad(name, format!("must be an integer of at least 1 and at most {most} ({whence})"))
}

/// `top_k`: how many of the most likely tokens are kept; -1 is vLLM's word for all of them.
fn top_k(fields: &mut JsonFields, vocab: u32, absent: Option<u32>) -> Result<Option<u32>, RequestError> {
    let Some(value) = fields.take("top_k") else { return Ok(absent) };
    if value.as_i64() == Some(-1) {
        return Ok(None);
    }
    match value.as_u64().and_then(|k| u32::try_from(k).ok()).filter(|k| (1..=vocab).contains(k)) {
        Some(top_k) => Ok(Some(top_k)),
        None => fields.bad("top_k", format!("must be an integer from 1 to {vocab}, or -1 for all")),
    }
}

/// `seed`: any 64-bit integer, signed or not.
fn seed(fields: &mut JsonFields) -> Result<Option<u64>, RequestError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    match value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)) {
        Some(seed) => Ok(Some(seed)),
        None => fields.bad("seed", "must be an integer of 64 bits"),
    }
}

/// `stop`: a string or an array of strings.
fn stops(fields: &mut JsonFields, limits: &LimitsConfig) -> Result<Vec<String>, RequestError> {
    let items = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(one) => vec![one],
    };
    if items.len() > limits.stops_max {
        return fields.bad("stop", format!("has more than {} strings", limits.stops_max));
    }
    let text = |item: Value| match item {
        Value::String(text) if !text.is_empty() && text.len() <= STOP_BYTES_MAX => Ok(text),
        _ => fields.bad("stop", format!("must be strings of 1 to {STOP_BYTES_MAX} bytes")),
    };
    items.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::openai::tests::with_context;

    #[test]
    fn a_wrong_output_limit_is_told_the_most_that_is_served_and_what_sets_it() {
        // The model has a context of 64 tokens.
        for (allowed, told) in [
            (16_384, "at least 1 and at most 64 (the model's context, prompt included)"),
            (64, "at least 1 and at most 64 (limits.output_tokens_max)"),
            (7, "at least 1 and at most 7 (limits.output_tokens_max)"),
        ] {
            let limits = LimitsConfig { output_tokens_max: allowed, ..LimitsConfig::default() };
            let read = |value: u64| {
                let body = format!("{{\"max_tokens\":{value}}}");
                let mut fields = crate::json::object(body.as_bytes()).expect("an object");
                with_context(&limits, |context| output_limit(&mut fields, "max_tokens", context))
            };
            for wrong in [0, allowed + 1] {
                let error = read(wrong).expect_err("refused").to_string();
                assert!(error.contains("`max_tokens`") && error.contains(told), "{error:?} lacks {told:?}");
            }
            assert_eq!(read(allowed), Ok(Some(allowed)));
        }
    }
}
