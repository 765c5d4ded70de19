//! The lines of a batch's input: `{"custom_id", "method", "url", "body"}` each.
//!
//! A line whose frame is wrong makes the whole batch invalid, before anything runs; a wrong body fails its
//! line alone. Must not know storage or how lines run.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serving::error::RequestError;
use serving::intake::PendingRow;
use sha2::{Digest as _, Sha256};

use crate::json::{self, JsonFields};
use crate::models::ServedModel;
use crate::services::files::FileChunk;
use crate::services::openai as lower;
use crate::services::prepare::RequestContext;
use crate::wire::openai::{Api, BestOf, CallReader, PromptReply, RowPrompts};

/// Errors that are told of one input; more are not looked for.
const ERRORS_MAX: usize = 100;
/// Bytes of a `custom_id`.
const ID_BYTES_MAX: usize = 512;

/// What is wrong with an input, or with a line of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The field to blame.
    pub param: Option<String>,
    /// The line; none where the whole input is to blame.
    pub line: Option<u32>,
}

impl LineError {
    pub(super) fn whole(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), param: None, line: None }
    }

    fn field(line: u32, code: &str, field: &str, message: String) -> Self {
        Self { code: code.into(), message, param: Some(field.into()), line: Some(line) }
    }
}

/// The path and the API of a batch's requests.
pub fn api_of(endpoint: &str) -> Option<Api> {
    match endpoint {
        "/v1/chat/completions" => Some(Api::Chat),
        "/v1/completions" => Some(Api::Completion),
        _ => None,
    }
}

/// A line whose frame is right.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client's name for it.
    pub custom_id: String,
    /// What it asks.
    pub body: Map<String, Value>,
}

impl Request {
    /// Reads a line.
    pub fn read(line: u32, text: &str, endpoint: &str) -> Result<Self, LineError> {
        let mut fields = json::object(text.as_bytes()).map_err(|error| LineError {
            code: "invalid_json_line".into(),
            message: error.to_string(),
            param: None,
            line: Some(line),
        })?;
        let bad = |field: &str, reason: String| {
            Err(LineError::field(line, "invalid_request", field, format!("invalid `{field}`: {reason}")))
        };
        let custom_id = match fields.take("custom_id") {
            Some(Value::String(id)) if (1..=ID_BYTES_MAX).contains(&id.len()) => id,
            _ => return bad("custom_id", format!("must be a string of 1 to {ID_BYTES_MAX} bytes")),
        };
        match fields.take("method") {
            Some(Value::String(method)) if method == "POST" => {}
            _ => return bad("method", "must be `POST`".into()),
        }
        match fields.take("url") {
            Some(Value::String(url)) if url == endpoint => {}
            _ => return bad("url", format!("must be `{endpoint}`, the endpoint of the batch")),
        }
        let Some(Value::Object(body)) = fields.take("body") else {
            return bad("body", "must be an object".into());
        };
        match fields.finish() {
            Ok(()) => Ok(Self { custom_id, body }),
            Err(error) => Err(LineError {
                code: "invalid_request".into(),
                message: error.to_string(),
                param: None,
                line: Some(line),
            }),
        }
    }
}

/// Goes through an input before any of it runs.
#[derive(Debug, Default)]
pub struct Checker {
    /// Hashes of the ids so far: 16 bytes each, whatever the ids' length.
    seen: HashSet<[u8; 16]>,
    /// Lines so far.
    pub total: u64,
    /// The model of the first line that names one.
    pub model: Option<String>,
    /// What is wrong.
    pub errors: Vec<LineError>,
}

impl Checker {
    /// Looks at a chunk.
    pub fn check(&mut self, chunk: &FileChunk, endpoint: &str, requests_max: u64) {
        for (line, text) in chunk.lines() {
            if self.errors.len() >= ERRORS_MAX || self.total > requests_max {
                return;
            }
            self.total += 1;
            if self.total > requests_max {
                let message = format!("the file has more than {requests_max} requests (bulk.requests_max)");
                self.errors.push(LineError::whole("too_many_requests", message));
                return;
            }
            match Request::read(line, text, endpoint) {
                Err(error) => self.errors.push(error),
                Ok(request) => {
                    if self.model.is_none() {
                        self.model = request.body.get("model").and_then(Value::as_str).map(str::to_owned);
                    }
                    let hash: [u8; 32] = Sha256::digest(request.custom_id.as_bytes()).into();
                    let half: [u8; 16] = hash[..16].try_into().expect("a SHA-256 has 32 bytes");
                    if !self.seen.insert(half) {
                        let message =
                            format!("the custom_id `{}` stands on another line already", request.custom_id);
                        self.errors.push(LineError::field(line, "duplicate_custom_id", "custom_id", message));
                    }
                }
            }
        }
    }

    /// How many lines there are, or what is wrong with the whole.
    pub fn end(mut self) -> Result<u64, Vec<LineError>> {
        if self.total == 0 && self.errors.is_empty() {
            self.errors.push(LineError::whole("empty_file", "the file has no requests"));
        }
        if self.errors.is_empty() { Ok(self.total) } else { Err(self.errors) }
    }
}

/// A line, ready to run.
#[derive(Clone)]
pub struct ReadyLine {
    pub number: u32,
    /// The client's name for it.
    pub custom_id: String,
    /// What runs it.
    pub model: Arc<ServedModel>,
    /// How its reply is shaped.
    pub api: Api,
    /// How calls of tools are read in its answers, where any can be called.
    pub tools: Option<Arc<CallReader>>,
    /// The prompts of its rows, where ids of tokens are told.
    pub prompts: Option<RowPrompts>,
    /// What else is told of them.
    pub prompt: PromptReply,
    /// At which texts its answers end.
    pub stops: Arc<[String]>,
    /// Which of its answers to each prompt are told, where that is not all.
    pub best_of: Option<BestOf>,
    /// Its rows: one, or one per prompt.
    pub rows: Vec<PendingRow>,
    /// What it counts for while it waits.
    pub bytes: u64,
}

/// Makes a line ready; `text_bytes` is its length. Its error is its own.
pub fn ready(
    context: RequestContext<'_>,
    api: Api,
    number: u32,
    text_bytes: usize,
    request: Request,
) -> Result<ReadyLine, RequestError> {
    let Request { custom_id, body } = request;
    let asked = match api {
        Api::Chat => lower::chat(context, JsonFields::of(body))?,
        Api::Completion => lower::completion(context, JsonFields::of(body))?,
    };
    if asked.stream {
        return Err(RequestError::invalid("stream", "must be false in a batch"));
    }
    if asked.work.deadline.is_some() {
        return Err(RequestError::invalid(
            "deadline_ms",
            "is not for batches: they have a completion window",
        ));
    }
    let (api, tools, prompts) = (asked.api, asked.tools, asked.prompts);
    let (prompt, stops, best_of) = (asked.prompt, asked.stops, asked.best_of);
    let rows: Vec<PendingRow> = asked.work.parts.into_iter().flat_map(|part| part.rows).collect();
    let tokens: usize = rows.iter().map(|row| row.item.prompt.len()).sum();
    let bytes = (tokens * size_of::<base::TokenId>() + text_bytes) as u64;
    let model = Arc::clone(context.model);
    Ok(ReadyLine { number, custom_id, model, api, tools, prompts, prompt, stops, best_of, rows, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<u64, Vec<LineError>> {
        let mut checker = Checker::default();
        checker.check(&FileChunk { first: 1, text: text.into() }, "/v1/completions", 3);
        checker.end()
    }

    fn line(id: &str) -> String {
        format!(r#"{{"custom_id":"{id}","method":"POST","url":"/v1/completions","body":{{"prompt":"x"}}}}"#)
    }

    #[test]
    fn a_wrong_frame_is_told_with_its_line_and_field() {
        assert_eq!(check(&format!("\u{feff}{}\n\n{}\n", line("a"), line("b"))), Ok(2));
        for (bad, number, param) in [
            ("{".to_owned(), 2, None),
            ("[]".into(), 2, None),
            (line("a"), 2, Some("custom_id")),
            (line(""), 2, Some("custom_id")),
            (line("c").replace("POST", "GET"), 2, Some("method")),
            (line("c").replace("/v1/completions", "/v1/chat/completions"), 2, Some("url")),
            (line("c").replace(r#"{"prompt":"x"}"#, "7"), 2, Some("body")),
            (line("c").replace(r#""method""#, r#""x":1,"method""#), 2, None),
        ] {
            let errors = check(&format!("{}\n{bad}\n", line("a"))).expect_err("bad");
            let found: Vec<_> = errors.iter().map(|error| (error.line, error.param.as_deref())).collect();
            assert_eq!(found, [(Some(number), param)], "{bad}");
        }
    }

    #[test]
    fn too_many_and_no_requests_are_errors_of_the_whole() {
        let many: Vec<String> = (0..5).map(|number| line(&number.to_string())).collect();
        assert_eq!(check(&many.join("\n")).expect_err("too many")[0].code, "too_many_requests");
        assert_eq!(check("\n \n").expect_err("none")[0].code, "empty_file");
    }
}
