//! A server that speaks the OpenAI API over real sockets and does as it is told: it answers with the last
//! word of what it is asked, or fails in one of the ways servers fail.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use base::Millis;
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{Dialect, ReplicaSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// What it does with a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Answers.
    Answer,
    /// Replies with this status, these headers and this body.
    Reply(u16, &'static str, &'static str),
    /// Never replies.
    Hang,
    /// Answers once [`FakeReplica::release`] lets it.
    AnswerLater,
    /// Sends half of its reply and closes; of a stream, half of its text.
    Break,
    /// Replies with a body of this type that is one piece again and again, until nobody takes it any more.
    Endless(&'static str, &'static str),
    /// Streams half of its text, and the rest when it is told to.
    StreamHalf(Arc<Notify>),
}

/// What it is to do, and what it did.
#[derive(Debug)]
pub struct State {
    /// The model it serves.
    pub model: String,
    /// What it does with the next requests; then it answers.
    pub acts: VecDeque<Act>,
    /// Bodies it was asked with, and their heads, in lower case.
    pub asked: Vec<Value>,
    pub heads: Vec<String>,
    /// Words that it answered with.
    pub answered: Vec<String>,
    /// Hung requests, and replies without an end, whose client went away.
    pub left: usize,
    /// Where each answer waits for a permit.
    pub gate: Option<Arc<Semaphore>>,
    /// Requests under way, and the most there ever were.
    pub running: usize,
    pub running_max: usize,
    /// Looks at its list of models.
    pub looks: usize,
    /// What it has under `/metrics`; none: nothing is there.
    pub metrics: Option<String>,
    /// Lets held requests go on.
    held: Arc<Semaphore>,
    /// Whether it has nothing to say of log probabilities, of answers and of prompts.
    pub hides_logprobs: bool,
}

/// A running one.
pub struct FakeReplica {
    /// Where.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    tasks: tokio::task::JoinHandle<()>,
}

impl Drop for FakeReplica {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl FakeReplica {
    /// Starts one that serves `m`.
    pub async fn start() -> Self {
        Self::restart("127.0.0.1:0".parse().unwrap()).await
    }

    async fn listen(address: SocketAddr, state: State) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(state)));
        let shared = Arc::clone(&state);
        let tasks = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { address, state, tasks }
    }

    /// Kills it: its port is closed, and every connection.
    pub async fn kill(self) -> SocketAddr {
        self.tasks.abort();
        let address = self.address;
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        address
    }

    /// Starts one where another was.
    pub async fn restart(address: SocketAddr) -> Self {
        let held = Arc::new(Semaphore::new(0));
        let (acts, asked, heads, answered) = Default::default();
        let state = State {
            model: "m".into(),
            acts,
            asked,
            heads,
            answered,
            left: 0,
            looks: 0,
            metrics: None,
            held,
            gate: None,
            running: 0,
            running_max: 0,
            hides_logprobs: false,
        };
        Self::listen(address, state).await
    }

    /// Lets so many held requests go on.
    pub fn release(&self, requests: usize) {
        self.state().held.add_permits(requests);
    }

    /// What it is to do, and what it did.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What it does with the next requests.
    pub fn next(&self, acts: impl IntoIterator<Item = Act>) {
        self.state().acts.extend(acts);
    }

    /// From now on each answer waits for a permit of this gate.
    pub fn shut(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.state().gate = Some(Arc::clone(&gate));
        gate
    }

    /// It as a replica, looked at often and given up soon.
    pub fn executor(&self) -> ReplicaSettings {
        executor(self.address)
    }
}

/// A server as a replica, looked at often and left alone only for moments.
pub fn executor(address: SocketAddr) -> ReplicaSettings {
    ReplicaSettings {
        url: Some(format!("http://{address}")),
        dialect: Dialect::Vllm,
        health_ms: Millis(20),
        failures_max: 2,
        open_ms: Millis(50),
        ..ReplicaSettings::default()
    }
}

/// The configuration of a fleet of these.
pub fn fleet(replicas: Vec<ReplicaSettings>) -> Config {
    let mut config = super::config();
    config.model.name = Some("m".into());
    config.replicas = replicas;
    config
}

/// Serves one request.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Some((head, body)) = read(&mut stream).await else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let reply = match path.as_str() {
        "/health" => http(200, "", ""),
        "/metrics" | "/props" => match state.lock().unwrap().metrics.clone() {
            Some(metrics) => http(200, "", &metrics),
            None => http(404, "", ""),
        },
        "/v1/models" => {
            let model = {
                let mut state = state.lock().unwrap();
                state.looks += 1;
                state.model.clone()
            };
            http(
                200,
                "",
                &json!({"object": "list", "data": [{"id": model, "max_model_len": 4_096}]}).to_string(),
            )
        }
        _ => {
            let body: Value = serde_json::from_slice(&body).expect("the gateway sends JSON");
            let act = {
                let mut state = state.lock().unwrap();
                state.asked.push(body.clone());
                state.heads.push(head.clone());
                state.running += 1;
                state.running_max = state.running_max.max(state.running);
                state.acts.pop_front().unwrap_or(Act::Answer)
            };
            let gate = state.lock().unwrap().gate.clone();
            if let Some(gate) = gate {
                gate.acquire().await.expect("it stays open").forget();
            }
            // Before the client can know that it has ended.
            state.lock().unwrap().running -= 1;
            if matches!(act, Act::AnswerLater) {
                let held = Arc::clone(&state.lock().unwrap().held);
                held.acquire().await.expect("nobody closes it").forget();
            }
            let hides_logprobs = state.lock().unwrap().hides_logprobs;
            match act {
                Act::Answer | Act::Break | Act::StreamHalf(_) if body["stream"] == true => {
                    let word = last_word(&body);
                    if say(&mut stream, (&path, &word), act).await {
                        state.lock().unwrap().answered.push(word);
                    } else {
                        state.lock().unwrap().left += 1;
                    }
                    return;
                }
                Act::StreamHalf(_) => panic!("nobody asked for a stream"),
                Act::Answer | Act::AnswerLater => {
                    let word = last_word(&body);
                    state.lock().unwrap().answered.push(word.clone());
                    let mut reply = answer(&path, &word);
                    if !hides_logprobs {
                        reply["choices"][0]["logprobs"] = logprobs(&body, &word);
                        score_prompt(&mut reply, &body);
                    }
                    http(200, "", &reply.to_string())
                }
                Act::Reply(status, headers, body) => http(status, headers, body),
                Act::Break => {
                    let whole = http(200, "", &answer(&path, "half").to_string());
                    whole[..whole.len() / 2 + 20].to_owned()
                }
                Act::Endless(kind, piece) => {
                    let head =
                        format!("HTTP/1.1 200 Said\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
                    let pieces = piece.repeat(100);
                    let mut sent = stream.write_all(head.as_bytes()).await;
                    while sent.is_ok() {
                        sent = stream.write_all(pieces.as_bytes()).await;
                    }
                    state.lock().unwrap().left += 1;
                    return;
                }
                Act::Hang => {
                    // Nothing more comes from the client but its end.
                    let _ = stream.read(&mut [0; 1]).await;
                    state.lock().unwrap().left += 1;
                    return;
                }
            }
        }
    };
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn http(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An answer in the shape of its route, whose usage is the same for all.
fn answer(path: &str, word: &str) -> Value {
    let choice = match path {
        "/v1/chat/completions" => {
            json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": word}})
        }
        _ => json!({"index": 0, "finish_reason": "stop", "text": word}),
    };
    json!({"choices": [choice], "usage": usage()})
}

fn usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
}

/// Log probabilities of a word of one token, in the shape of the route, where they are asked for.
fn logprobs(body: &Value, word: &str) -> Value {
    match &body["logprobs"] {
        Value::Bool(true) => {
            let one = json!({"token": word, "logprob": -0.25, "bytes": word.as_bytes()});
            let mut token = one.clone();
            token["top_logprobs"] = json!([one]);
            json!({"content": [token], "refusal": null})
        }
        Value::Number(_) => json!({"tokens": [word], "token_logprobs": [-0.25], "text_offset": [0],
            "top_logprobs": [{word: -0.25}]}),
        _ => Value::Null,
    }
}

/// A token of a prompt as vLLM scores it.
pub fn score(logprob: f64, rank: u64, text: &str) -> Value {
    json!({"logprob": logprob, "rank": rank, "decoded_token": text})
}

/// Tells how likely the tokens of a prompt were, where that is asked for and where the route tells it: each less than
/// the one before it, and than all that are told beside it.
fn score_prompt(reply: &mut Value, body: &Value) {
    let Some(top) = body["prompt_logprobs"].as_u64() else { return };
    let tokens = prompt_tokens(body);
    let scores = tokens.iter().enumerate().map(|(at, (id, text))| {
        let mut scores = json!({});
        scores[id.to_string()] = score(-(at as f64), top + 1, text);
        for rank in 1..=top {
            scores[rank.to_string()] = score(-(rank as f64) / 8.0, rank, &format!("likely{rank}"));
        }
        if at == 0 { Value::Null } else { scores }
    });
    let place = if body["messages"].is_array() { reply } else { &mut reply["choices"][0] };
    place["prompt_logprobs"] = scores.collect();
    if body["return_token_ids"] == true {
        place["prompt_token_ids"] = tokens.iter().map(|(id, _)| *id).collect();
    }
}

/// The tokens of a prompt: those that it was sent as, or its words, which a conversation has behind a mark.
fn prompt_tokens(body: &Value) -> Vec<(u64, String)> {
    if let Some(ids) = body["prompt"].as_array() {
        return ids.iter().filter_map(Value::as_u64).map(|id| (id, format!("t{id}"))).collect();
    }
    let (mark, text) = match body["messages"].as_array().and_then(|messages| messages.last()) {
        Some(message) => (Some("<start>"), &message["content"]),
        None => (None, &body["prompt"]),
    };
    let words = mark.into_iter().chain(text.as_str().unwrap_or_default().split_inclusive(' '));
    (100..).zip(words.map(str::to_owned)).collect()
}

/// Streams a word in two halves; false where it was not all sent.
async fn say(stream: &mut TcpStream, (path, word): (&str, &str), act: Act) -> bool {
    let head =
        "HTTP/1.1 200 Said\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
    let chunk = |text: &str, reason: Value| {
        let choice = match path {
            "/v1/chat/completions" => {
                json!({"index": 0, "delta": {"content": text}, "finish_reason": reason})
            }
            _ => json!({"index": 0, "text": text, "finish_reason": reason}),
        };
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let (first, rest) = word.split_at(word.len() / 2);
    if stream.write_all(format!("{head}{}", chunk(first, Value::Null)).as_bytes()).await.is_err() {
        return false;
    }
    match act {
        Act::Break => return true,
        Act::StreamHalf(goes_on) => {
            let mut byte = [0; 1];
            tokio::select! {
                () = goes_on.notified() => {}
                _ = stream.read(&mut byte) => return false,
            }
        }
        _ => {}
    }
    let usage = json!({"choices": [], "usage": usage()});
    let rest = format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(rest, json!("stop")));
    stream.write_all(rest.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok()
}

/// The last word of what is asked.
fn last_word(body: &Value) -> String {
    let asked = match body["messages"].as_array().and_then(|messages| messages.last()) {
        Some(message) => message["content"].as_str(),
        None => body["prompt"].as_str(),
    };
    asked.unwrap_or("ids").split_whitespace().next_back().unwrap_or_default().to_owned()
}

/// A request: head and body.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 16_384];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let length = length.unwrap_or(0);
        if bytes.len() >= end + 4 + length {
            return Some((head, bytes[end + 4..end + 4 + length].to_vec()));
        }
    }
}
