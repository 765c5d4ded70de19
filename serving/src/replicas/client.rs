//! The HTTP client of one server. Dropping the future of a request closes its connection, which is how the
//! server hears that nobody waits any more.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::TokenCount;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;

use super::reply::{Outcome, cut, outcome};
use super::request::Ask;
use super::stream::AnswerStream;
use super::unhealthy::Unhealthy;
use super::{kv_report, retry_after};
use crate::config::{Dialect, ReplicaSettings, Secret};
use crate::gateway_ids::{self, GatewayIds, GatewayPaths, LOOP_DETECTED, VIA};

/// Bytes of a list of models, or of what a server says of its memory.
const LOOK_BYTES_MAX: u64 = 4 << 20;
/// Time for what a server says of its memory: its first rows wait for it.
const KV_PATIENCE: Duration = Duration::from_secs(1);

/// Sends requests to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// The server's address, up to where `/v1` begins.
    base: String,
    key: Option<Secret>,
    /// What this gateway is called where it looks at the server.
    via: String,
    dialect: Dialect,
    reply_bytes_max: u64,
    health_path: Option<String>,
    health_patience: Duration,
    try_patience: Duration,
}

/// A server that is well.
#[derive(Debug)]
pub struct FoundServer {
    /// The longest context that it says it takes.
    pub context_max: Option<u64>,
    /// The gateways that it leads to, where it is one.
    pub gateways: GatewayPaths,
}

/// Why a body is not there.
enum Unread {
    /// It has more bytes than are taken.
    TooLarge,
    /// It ended early.
    Broken(reqwest::Error),
}

impl Client {
    /// A client of a server, which is asked nothing yet.
    pub fn new(config: &ReplicaSettings, gateway: &GatewayIds) -> Result<Self, String> {
        // The second call of a process finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(config.connect_ms_max.0))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| chain(&error))?;
        let url = config.url.as_deref().unwrap_or_default().trim_end_matches('/');
        Ok(Self {
            http,
            base: url.strip_suffix("/v1").unwrap_or(url).to_owned(),
            key: config.api_key.clone(),
            via: gateway.via(None),
            dialect: config.dialect,
            reply_bytes_max: config.reply_bytes_max.0,
            health_path: config.health_path().map(str::to_owned),
            health_patience: Duration::from_millis(config.connect_ms_max.0.saturating_mul(2)),
            try_patience: Duration::from_millis(config.try_ms_max.0),
        })
    }

    /// The server's address, up to where `/v1` begins.
    pub fn base(&self) -> &str {
        &self.base
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(&key.0),
            None => request,
        }
    }

    /// Asks once, with headers that say what it is for. `say` is given the text of an answer that streams, as it
    /// comes.
    pub async fn ask(&self, ask: &Ask, headers: Vec<(String, String)>, say: impl Fn(String)) -> Outcome {
        let request =
            self.request(reqwest::Method::POST, ask.path).json(&ask.body).timeout(self.try_patience);
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Outcome::gone(chain(&error)),
            Err(error) => return Outcome::failed(chain(&error)),
        };
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name)?.to_str().ok();
        let retry_after =
            retry_after::seconds(header(reqwest::header::RETRY_AFTER), header(reqwest::header::DATE));
        let kind = response.headers().get(reqwest::header::CONTENT_TYPE);
        if status == 200 && kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            return self.listen(response, &ask.body, say).await;
        }
        match read(response, self.reply_bytes_max).await {
            Ok(body) => outcome(status, retry_after, &body, (&ask.body, ask.scoring.as_ref(), ask.beside)),
            Err(Unread::TooLarge) => self.too_large(),
            Err(Unread::Broken(error)) => Outcome::failed(chain(&error)),
        }
    }

    /// Hears an answer out that streams; `sent`: the body of its request. What is no event, or none yet, counts too: it is
    /// held, or without an end.
    async fn listen(&self, response: reqwest::Response, sent: &Value, say: impl Fn(String)) -> Outcome {
        let heard = AtomicU64::new(0);
        let is_beyond = |heard: u64| heard > self.reply_bytes_max;
        let pieces = response.bytes_stream().map_err(|error| chain(&error)).map(|piece| match piece {
            Ok(piece) => {
                let more = piece.len() as u64;
                let heard = heard.fetch_add(more, Ordering::Relaxed) + more;
                if is_beyond(heard) { Err("its stream has no end".to_owned()) } else { Ok(piece) }
            }
            Err(reason) => Err(reason),
        });
        let mut events = std::pin::pin!(sse::events(pieces));
        let mut answer = AnswerStream::default();
        while let Some(event) = events.next().await {
            let data = match event {
                _ if is_beyond(heard.load(Ordering::Relaxed)) => return self.too_large(),
                Ok(event) => event.data,
                Err(reason) => return Outcome::failed(reason),
            };
            match answer.take(&data, sent) {
                Ok(text) => text.into_iter().for_each(&say),
                Err(reason) => return Outcome::failed(reason),
            }
            if answer.is_done() {
                break;
            }
        }
        answer.end()
    }

    fn too_large(&self) -> Outcome {
        Outcome::Row(format!("the answer has more than {} bytes", self.reply_bytes_max))
    }

    /// Whether the server is well and serves `model`; why not.
    pub async fn look(&self, model: &str) -> Result<FoundServer, Unhealthy> {
        if let Some(path) = &self.health_path {
            // A server without the path is judged by its list of models.
            self.get(path).await?;
        }
        let body = self.get("/v1/models").await?;
        let body = body.ok_or_else(|| gone("it has no list of models (/v1/models)".into()))?;
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let models =
            list["data"].as_array().ok_or_else(|| gone("its list of models cannot be read".into()))?;
        let named = |entry: &&Value| entry["id"].as_str() == Some(model);
        match models.iter().find(named) {
            Some(entry) => Ok(FoundServer {
                context_max: entry["max_model_len"].as_u64(),
                gateways: gateway_ids::told(&entry["gateways"]),
            }),
            None => {
                let names: Vec<&str> = models.iter().filter_map(|entry| entry["id"].as_str()).collect();
                Err(gone(cut(&format!("it serves {}, not `{model}`", names.join(", ")))))
            }
        }
    }

    /// Tokens that the server's KV memory holds, where it says so in time.
    pub async fn kv_tokens(&self) -> Option<TokenCount> {
        let path = self.dialect.kv_path()?;
        let found = tokio::time::timeout(KV_PATIENCE, self.get(path)).await;
        kv_report::kv_tokens(self.dialect, &found.ok()?.ok()??)
    }

    /// What is there; nothing, where the path is none.
    async fn get(&self, path: &str) -> Result<Option<Vec<u8>>, Unhealthy> {
        let request = self.request(reqwest::Method::GET, path).timeout(self.health_patience);
        // By it a gateway knows its own look, and another one tells which gateways it leads to.
        let response = request.header(VIA, &self.via).send().await;
        let response =
            response.map_err(|error| Unhealthy { is_gone: error.is_connect(), reason: chain(&error) })?;
        let status = response.status();
        if status.as_u16() == 404 {
            return Ok(None);
        }
        if !status.is_success() {
            let status = status.as_u16();
            let is_loop = status == LOOP_DETECTED
                && read(response, LOOK_BYTES_MAX).await.is_ok_and(|body| gateway_ids::says_loop(&body));
            // A look names nobody else.
            return Err(if is_loop { gone(gateway_ids::itself()) } else { unwell(path, status) });
        }
        read(response, LOOK_BYTES_MAX).await.map(Some).map_err(|unread| match unread {
            Unread::TooLarge => gone(format!("{path} has more than {LOOK_BYTES_MAX} bytes")),
            Unread::Broken(error) => Unhealthy { reason: chain(&error), is_gone: false },
        })
    }
}

/// What a status says of a server that is no success: one that fails now, or is busy, may still answer what it has.
fn unwell(path: &str, status: u16) -> Unhealthy {
    let is_gone = !matches!(status, 408 | 429 | 500..=599);
    Unhealthy { reason: format!("{path} replied with status {status}"), is_gone }
}

/// It is certain that no row is answered there.
fn gone(reason: String) -> Unhealthy {
    Unhealthy { reason, is_gone: true }
}

/// A whole body, if it is not too large.
async fn read(response: reqwest::Response, bytes_max: u64) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(Unread::Broken)?);
        if body.len() as u64 > bytes_max {
            return Err(Unread::TooLarge);
        }
    }
    Ok(body)
}

/// An error with its causes: the library's own text hides them. Addresses stay out, which may be nobody's
/// business.
fn chain(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() { "it took too long" } else { "the connection failed" };
    let mut said = what.to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    cut(&said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_fails_for_the_moment_takes_no_rows_away() {
        for (status, is_gone) in
            [(429, false), (408, false), (500, false), (503, false), (508, false), (401, true), (410, true)]
        {
            let unwell = unwell("/health", status);
            assert_eq!(unwell.is_gone, is_gone, "{status}");
            assert!(unwell.reason.contains(&status.to_string()));
        }
    }
}
