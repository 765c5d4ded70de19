//! Sends each row of a relQuery as one request to any OpenAI-compatible server: what clients do that know
//! nothing of relQueries. The relQuery's latency is its last row's.

use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};

use crate::Error;
use crate::client::{ApiTarget, Targets, chain, refused, tokens};
use crate::record::{RelQueryOutcome, TokenUsage};
use crate::scenario::Scenario;
use crate::workload::RelQuery;

/// Which OpenAI route takes the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    /// `/v1/chat/completions`, the prompt as one user message.
    #[default]
    Chat,
    /// `/v1/completions`, the prompt as it is.
    Completions,
}

impl Endpoint {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// How a server is told the answers that it may give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceField {
    /// `structured_outputs.choice` (vLLM).
    #[default]
    StructuredOutputs,
    /// `grammar` in GBNF (llama.cpp).
    Gbnf,
    /// `grammar` with a regular expression (mistral.rs).
    Regex,
}

impl ChoiceField {
    /// Adds the choices to a request.
    fn add(self, choices: &[String], body: &mut Value) {
        match self {
            Self::StructuredOutputs => body["structured_outputs"] = json!({ "choice": choices }),
            Self::Gbnf => {
                let quoted: Vec<String> = choices.iter().map(|choice| json!(choice).to_string()).collect();
                body["grammar"] = json!(format!("root ::= {}", quoted.join(" | ")));
            }
            Self::Regex => {
                let escaped: Vec<String> = choices.iter().map(|choice| escape(choice)).collect();
                body["grammar"] = json!({ "type": "regex", "value": format!("({})", escaped.join("|")) });
            }
        }
    }
}

/// A text as a regular expression that matches it alone.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// What every row's request names alike.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Where it goes.
    pub endpoint: Endpoint,
    /// How it says which answers are allowed.
    pub choice: ChoiceField,
    /// The model that shall answer.
    pub model: &'a str,
    /// `priority` (vLLM under `--scheduling-policy priority`: the least first).
    pub priority: Option<i64>,
}

/// The body of one row's request. `ignore_eos` is vLLM's extension, understood by most local servers.
pub fn body(route: Route<'_>, scenario: &Scenario, relquery: &RelQuery, row: &[String]) -> Value {
    let mut body = json!({
        "model": route.model,
        "max_tokens": relquery.max_tokens,
        "temperature": scenario.temperature,
        "seed": scenario.seed,
    });
    let prompt = relquery.prompt(row);
    match route.endpoint {
        Endpoint::Chat => body["messages"] = json!([{"role": "user", "content": prompt}]),
        Endpoint::Completions => body["prompt"] = json!(prompt),
    }
    if relquery.ignore_eos {
        body["ignore_eos"] = json!(true);
    }
    if let Some(priority) = route.priority {
        body["priority"] = json!(priority);
    }
    if !relquery.choices.is_empty() {
        route.choice.add(&relquery.choices, &mut body);
    }
    body
}

/// The model that the scenario names, or else the first that the server lists.
pub async fn named_model(target: &ApiTarget, scenario: &Scenario) -> Result<String, Error> {
    match &scenario.model {
        Some(model) => Ok(model.clone()),
        None => first_model(target).await.map_err(Error::Client),
    }
}

async fn first_model(target: &ApiTarget) -> Result<String, String> {
    let response = target.get("/v1/models").send().await.map_err(|error| chain(&error))?;
    let status = response.status();
    let list: Value = response.json().await.map_err(|error| chain(&error))?;
    list["data"][0]["id"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("/v1/models answered {status} and names no model"))
}

/// Sends all rows at once, each to the server whose turn it is, and waits for all; also says when the first
/// answer came.
pub async fn send(
    targets: &Targets,
    route: Route<'_>,
    scenario: &Scenario,
    relquery: &RelQuery,
) -> (RelQueryOutcome, Option<Instant>) {
    let mut rows: FuturesUnordered<_> = relquery
        .rows
        .iter()
        .map(|row| one(targets.in_turn(), route.endpoint, body(route, scenario, relquery, row), relquery))
        .collect();
    let (mut outcome, mut first) =
        (RelQueryOutcome { tokens: TokenUsage::NONE_YET, ..RelQueryOutcome::default() }, None);
    while let Some(row) = rows.next().await {
        match row {
            Ok(used) => {
                outcome.rows_done += 1;
                outcome.tokens = outcome.tokens.plus(used);
                first.get_or_insert_with(Instant::now);
            }
            Err(reason) => {
                outcome.rows_failed += 1;
                outcome.row_error.get_or_insert(reason);
            }
        }
    }
    if outcome.rows_done == 0 {
        outcome.error = outcome.row_error.clone();
    }
    (outcome, first)
}

/// One row: its tokens, or why it failed.
async fn one(
    target: &ApiTarget,
    endpoint: Endpoint,
    body: Value,
    relquery: &RelQuery,
) -> Result<TokenUsage, String> {
    let response = target.post(endpoint.path(), &body).send().await.map_err(|error| chain(&error))?;
    if !response.status().is_success() {
        return Err(refused(response).await.error.unwrap_or_default());
    }
    let reply: Value = response.json().await.map_err(|error| chain(&error))?;
    let choice = &reply["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    let text = text.ok_or("the reply has no text")?;
    if !relquery.allows(text) {
        return Err(format!("the answer is none of the choices: {text:?}"));
    }
    Ok(tokens(&reply["usage"]))
}
