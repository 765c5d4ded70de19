//! Sends relQueries to a server and reads what comes back; what may pass is tried again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::journal::RowError;
use crate::http::{self, cause};

/// Longest time for a connection, and for the first sign of life.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Shortest and longest wait before another try.
const WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A server, as a job sees it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    /// Without `/v1`.
    address: String,
    key: Option<String>,
    /// For how long a server that does not answer is tried again.
    patience: Duration,
    /// Why the last request got no answer, if it did not.
    outage: Arc<Mutex<Option<String>>>,
}

/// What a request comes to, where it does not come to answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server will not run these rows as they are.
    Rows(RowError, Option<String>),
    /// Nothing of this job will run.
    Job(String),
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTokens {
    pub(super) prompt: u64,
    /// Those of them that were not computed.
    pub(super) cached: u64,
    /// Of its answers.
    pub(super) output: u64,
}

/// A reply's row.
#[derive(Debug, Deserialize)]
struct RowReply {
    text: Option<String>,
    error: Option<ErrorReply>,
}

/// A reply's error.
#[derive(Debug, Deserialize)]
struct ErrorReply {
    message: String,
    code: Option<String>,
    param: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Details,
}

#[derive(Debug, Deserialize)]
struct Details {
    cached_tokens: u64,
}

#[derive(Debug, Deserialize)]
struct Reply {
    status: String,
    rows: Vec<RowReply>,
    usage: Usage,
}

#[derive(Debug, Deserialize)]
struct Refused {
    error: ErrorReply,
}

/// What a try comes to.
enum Try {
    Reply(Reply),
    Refusal(Refusal),
    /// It may pass: why, and when the server would have it tried again.
    Later(String, Option<Duration>),
}

/// An answer or an error for each row of a request.
pub(super) type Answers = Vec<Result<String, RowError>>;

impl Client {
    /// A client of the server at an address.
    pub(super) fn new(address: &str, key: Option<String>, patience: Duration) -> Result<Self, String> {
        let address = address.trim_end_matches('/').trim_end_matches("/v1");
        if !address.starts_with("http://") && !address.starts_with("https://") {
            return Err(format!("--server: {address} must begin with http:// or https://"));
        }
        let http = http::client(CONNECT_MAX).map_err(|error| format!("--server: {error}"))?;
        Ok(Self { http, address: address.to_owned(), key, patience, outage: Arc::default() })
    }

    /// Asks the server for a sign of life, once.
    ///
    /// # Errors
    /// Where nothing answers at the address, or the key is refused.
    pub(super) async fn reach(&self) -> Result<(), String> {
        let request = self.with_key(self.http.get(format!("{}/v1/models", self.address)));
        let response = request.timeout(CONNECT_MAX).send().await.map_err(|error| {
            let (address, cause) = (&self.address, cause(&error.without_url()));
            format!("--server: cannot reach {address}: {cause}; does a server run there?")
        })?;
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let refused = response.json::<Refused>().await.map(|refused| refused.error.message);
                Err(format!("--key: {}", refused.unwrap_or_else(|_| "the server refuses it".into())))
            }
            // What else it says of this route says nothing of the one that rows go to.
            _ => Ok(()),
        }
    }

    /// Why the server does not answer just now; `None` where it does.
    pub(super) fn outage(&self) -> Option<String> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_outage(&self, reason: Option<String>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Runs a relQuery of so many rows.
    pub(super) async fn run(&self, body: &Value, rows: usize) -> Result<(Answers, RequestTokens), Refusal> {
        let mut wait = WAIT.0;
        let mut waited = Duration::ZERO;
        loop {
            let tried = self.try_once(body).await;
            self.set_outage(match &tried {
                Try::Later(reason, None) => Some(format!("{}: {reason}", self.address)),
                Try::Later(_, Some(_)) | Try::Reply(_) | Try::Refusal(_) => None,
            });
            let (reason, after) = match tried {
                Try::Reply(reply) => return read(reply, rows),
                Try::Refusal(refusal) => return Err(refusal),
                Try::Later(reason, after) => (reason, after),
            };
            if waited >= self.patience {
                return Err(Refusal::Job(format!("{}: {reason}", self.address)));
            }
            // A server that says when to come back works: only silence uses patience up.
            if after.is_none() {
                waited += wait;
            }
            tokio::time::sleep(after.unwrap_or(wait).min(WAIT.1)).await;
            wait = (wait * 2).min(WAIT.1);
        }
    }

    async fn try_once(&self, body: &Value) -> Try {
        let request = self.with_key(self.http.post(format!("{}/v1/relqueries", self.address)));
        let response = match request.json(body).send().await {
            Ok(response) => response,
            Err(error) => return Try::Later(cause(&error), None),
        };
        let status = response.status();
        if status.is_success() {
            return match response.json().await {
                Ok(reply) => Try::Reply(reply),
                Err(error) => Try::Later(format!("the reply cannot be read: {}", cause(&error)), None),
            };
        }
        refused(status, response).await
    }
}

/// A reply that says no.
async fn refused(status: StatusCode, response: Response) -> Try {
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let after = after.map(Duration::from_secs);
    let error = match response.json::<Refused>().await {
        Ok(Refused { error }) => error,
        Err(_) => ErrorReply { message: format!("the server answers {status}"), code: None, param: None },
    };
    let ErrorReply { message, code, param } = error;
    match status {
        StatusCode::TOO_MANY_REQUESTS => Try::Later(message, after.or(Some(WAIT.0))),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            Try::Refusal(Refusal::Job(message))
        }
        _ if status.is_client_error() => Try::Refusal(Refusal::Rows(RowError { message, code }, param)),
        _ => Try::Later(message, None),
    }
}

/// The answers of a reply that must have so many rows.
fn read(reply: Reply, rows: usize) -> Result<(Answers, RequestTokens), Refusal> {
    if reply.status != "completed" || reply.rows.len() != rows {
        let (status, found) = (reply.status, reply.rows.len());
        return Err(Refusal::Job(format!("the server's reply is `{status}` with {found} of {rows} rows")));
    }
    let usage = reply.usage;
    let tokens = RequestTokens {
        prompt: usage.prompt_tokens,
        cached: usage.prompt_tokens_details.cached_tokens,
        output: usage.completion_tokens,
    };
    let answer = |row: RowReply| match (row.text, row.error) {
        (Some(text), None) => Ok(text),
        (_, Some(error)) => Err(RowError { message: error.message, code: error.code }),
        (None, None) => Err(RowError { message: "the server left the row out".into(), code: None }),
    };
    Ok((reply.rows.into_iter().map(answer).collect(), tokens))
}
