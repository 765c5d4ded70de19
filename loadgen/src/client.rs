//! Sends a relQuery as one streamed request to a relQuery server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sse::Event;

use crate::Error;
use crate::record::{Periods, RelQueryOutcome, TokenUsage};
use crate::scenario::Scenario;
use crate::workload::RelQuery;

/// Where to send, and as whom.
#[derive(Clone, Debug)]
pub struct ApiTarget {
    /// The client, with its connections.
    pub http: reqwest::Client,
    /// The server, `http://HOST:PORT`.
    pub url: String,
    /// The API key, if the server wants one.
    pub key: Option<String>,
}

/// Longest error text that a record keeps, in characters.
const ERROR_CHARS_MAX: usize = 300;

impl ApiTarget {
    /// A target whose requests are given up after `timeout`.
    pub fn new(url: &str, key: Option<String>, timeout: Duration) -> Result<Self, Error> {
        // The second call of a process finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout.min(Duration::from_secs(10)))
            .no_proxy()
            .build()
            .map_err(|error| Error::Client(error.to_string()))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key })
    }

    /// A POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.authorized(self.http.post(format!("{}{path}", self.url)).json(body))
    }

    /// A GET.
    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.authorized(self.http.get(format!("{}{path}", self.url)))
    }

    /// A DELETE.
    pub fn delete(&self, path: &str) -> reqwest::RequestBuilder {
        self.authorized(self.http.delete(format!("{}{path}", self.url)))
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

/// Servers that are asked in turn, as a load balancer does that knows nothing of what they hold (round robin).
#[derive(Debug)]
pub struct Targets {
    first: ApiTarget,
    others: Vec<ApiTarget>,
    asked: AtomicUsize,
}

impl Targets {
    /// These servers; none where there is none.
    pub fn new(targets: impl IntoIterator<Item = ApiTarget>) -> Option<Self> {
        let mut targets = targets.into_iter();
        let first = targets.next()?;
        Some(Self { first, others: targets.collect(), asked: AtomicUsize::new(0) })
    }

    /// The one whose turn it is.
    pub fn in_turn(&self) -> &ApiTarget {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        turn.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }
}

impl From<ApiTarget> for Targets {
    fn from(first: ApiTarget) -> Self {
        Self { first, others: Vec::new(), asked: AtomicUsize::new(0) }
    }
}

/// The body of `POST /v1/relqueries`.
pub fn body(scenario: &Scenario, relquery: &RelQuery) -> Value {
    let mut body = json!({
        "template": relquery.template,
        "columns": relquery.columns,
        "rows": relquery.rows,
        "max_tokens": relquery.max_tokens,
        "ignore_eos": relquery.ignore_eos,
        "temperature": scenario.temperature,
        "seed": scenario.seed,
        "cache": scenario.cache,
        "stream": true,
    });
    if !relquery.choices.is_empty() {
        body["constraint"] = json!({ "choice": relquery.choices });
    }
    if let Some(model) = &scenario.model {
        body["model"] = json!(model);
    }
    if let Some(chat) = scenario.chat {
        body["chat"] = json!(chat);
    }
    body
}

/// Sends a relQuery and follows its rows; also says when the first row came. Never fails: what goes wrong is
/// the outcome.
pub async fn send(
    target: &ApiTarget,
    scenario: &Scenario,
    relquery: &RelQuery,
) -> (RelQueryOutcome, Option<Instant>) {
    let mut first_row = None;
    let outcome = match target.post("/v1/relqueries", &body(scenario, relquery)).send().await {
        Ok(response) if response.status().is_success() => follow(response, relquery, &mut first_row).await,
        Ok(response) => refused(response).await,
        Err(error) => RelQueryOutcome::failed(chain(&error)),
    };
    (outcome, first_row)
}

/// The events of a response.
pub fn events(response: reqwest::Response) -> impl Stream<Item = Result<Event, String>> {
    sse::events(response.bytes_stream().map_err(|error| chain(&error)))
}

/// Reads the event stream to its end.
async fn follow(
    response: reqwest::Response,
    relquery: &RelQuery,
    first_row: &mut Option<Instant>,
) -> RelQueryOutcome {
    let rows = relquery.rows.len();
    let outcome =
        RelQueryOutcome { row_tokens: vec![TokenUsage::default(); rows], ..RelQueryOutcome::default() };
    let mut answered = Answered { relquery, seen: vec![false; rows], again: None, outcome };
    let mut events = events(response);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(reason) => return answered.fail(reason),
        };
        if event.event == "row" && first_row.is_none() {
            *first_row = Some(Instant::now());
        }
        match answered.take(&event) {
            Ok(false) => {}
            Ok(true) => return answered.outcome,
            Err(reason) => return answered.fail(reason),
        }
    }
    answered.fail("the stream ended without a `done` event".into())
}

/// The rows so far.
struct Answered<'a> {
    relquery: &'a RelQuery,
    seen: Vec<bool>,
    /// The first row that came twice.
    again: Option<u64>,
    outcome: RelQueryOutcome,
}

impl Answered<'_> {
    fn fail(mut self, reason: String) -> RelQueryOutcome {
        let reason = self.again.map_or(reason, |row| format!("row {row} came twice"));
        self.outcome.error = Some(cut(&reason));
        self.outcome
    }

    /// Takes an event in; `true` when it was the last, an error where it breaks what was promised.
    fn take(&mut self, event: &Event) -> Result<bool, String> {
        let data: Value = serde_json::from_str(&event.data)
            .map_err(|error| format!("a `{}` event is not JSON: {error}", event.event))?;
        match event.event.as_str() {
            "row" => self.row(&data).map(|()| false),
            "done" => self.done(&data).map(|()| true),
            "error" => Err(error_message(&data)),
            // Events of a later version mean nothing here.
            _ => Ok(false),
        }
    }

    fn row(&mut self, data: &Value) -> Result<(), String> {
        let index = data["index"].as_u64().ok_or("a row has no `index`")?;
        let seen = usize::try_from(index).ok().and_then(|index| self.seen.get_mut(index));
        let seen = seen.ok_or_else(|| format!("row {index} was never asked"))?;
        if std::mem::replace(seen, true) {
            self.outcome.rows_twice += 1;
            self.again.get_or_insert(index);
            return Ok(());
        }
        if let Some(text) = data["text"].as_str() {
            if !self.relquery.allows(text) {
                return Err(format!("row {index} is answered by none of the choices: {text:?}"));
            }
            self.outcome.rows_done += 1;
            self.outcome.row_tokens[index as usize] = tokens(&data["usage"]);
        } else if data.get("error").is_some_and(|error| !error.is_null()) {
            self.outcome.rows_failed += 1;
            self.outcome.row_error.get_or_insert_with(|| error_message(data));
        } else {
            return Err(format!("row {index} has neither `text` nor `error`"));
        }
        Ok(())
    }

    fn done(&mut self, data: &Value) -> Result<(), String> {
        let timing = &data["timing"];
        let ms = |name: &str| timing[name].as_f64();
        self.outcome.periods = ms("waiting_ms")
            .zip(ms("core_ms"))
            .zip(ms("tail_ms"))
            .map(|((waiting_ms, core_ms), tail_ms)| Periods { waiting_ms, core_ms, tail_ms });
        self.outcome.tokens = tokens(&data["usage"]);
        if data["status"] != "completed" {
            return Err(format!("the relQuery ended as {}", data["status"]));
        }
        match self.seen.iter().position(|seen| !seen) {
            Some(missing) => Err(format!("done, but row {missing} never came")),
            None if self.again.is_some() => Err("done, but a row came twice".into()),
            None => Ok(()),
        }
    }
}

/// The `usage` object of OpenAI's API and of relQueries.
pub fn tokens(usage: &Value) -> TokenUsage {
    TokenUsage {
        prompt: usage["prompt_tokens"].as_u64(),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
        computed: usage["computed_tokens"].as_u64(),
        output: usage["completion_tokens"].as_u64(),
    }
}

/// The outcome of a response that is not a success.
pub async fn refused(response: reqwest::Response) -> RelQueryOutcome {
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let message = serde_json::from_str(&text).map(|data| error_message(&data)).unwrap_or(text);
    RelQueryOutcome::failed(cut(&format!("HTTP {}: {message}", status.as_u16())))
}

/// The message of an OpenAI error object.
fn error_message(data: &Value) -> String {
    data["error"]["message"].as_str().map_or_else(|| data.to_string(), str::to_owned)
}

/// An error with its causes: reqwest's own text hides them.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    cut(&causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

fn cut(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}
