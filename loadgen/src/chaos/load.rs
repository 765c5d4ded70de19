//! Clients of several tenants that send, judge what comes, and write down what was promised.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::judge::{JudgedAnswer, judge};
use super::ledger::{Ledger, Promise, RowsOutcome, SentRows, other};
use super::request::{ChaosRequest, RequestKind, Sender};
use crate::client::{ApiTarget, chain};
use crate::random::SplitMix64;

/// Pause before something is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often something is sent under one idempotency key until it is acknowledged.
const TRIES_MAX: u32 = 240;
/// Bytes of an answer that a problem repeats.
const SHOWN_MAX: usize = 600;

pub(super) const ROWS: &str = "every row once, and no other's";
pub(super) const FOREIGN: &str = "no byte of another tenant";
pub(super) const REFUSED: &str = "what is right is not refused as wrong";
pub(super) const ONCE: &str = "one idempotency key, one batch";

/// A tenant as its clients know it.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) marker: String,
    /// By gateway.
    pub(super) targets: Vec<ApiTarget>,
}

/// What clients share.
pub(super) struct SharedLoad {
    pub(super) tenants: Vec<Tenant>,
    pub(super) start: Instant,
    ledger: Mutex<Ledger>,
    finished: watch::Sender<u64>,
    is_over: watch::Sender<bool>,
}

/// An answer as it came.
pub(super) struct RawReply {
    pub(super) status: u16,
    pub(super) text: String,
}

impl SharedLoad {
    pub(super) fn new(tenants: Vec<Tenant>) -> Arc<Self> {
        let (finished, is_over) = (watch::Sender::new(0), watch::Sender::new(false));
        Arc::new(Self { tenants, start: Instant::now(), ledger: Mutex::default(), finished, is_over })
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the beginning.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// How many requests have been finished, one way or another.
    pub(super) fn finished(&self) -> watch::Receiver<u64> {
        self.finished.subscribe()
    }

    /// Clients send nothing new from now on.
    pub(super) fn end(&self) {
        self.is_over.send_replace(true);
    }

    fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Sends, reads the whole answer, and looks for what other tenants alone may see.
    pub(super) async fn read(
        &self,
        tenant: usize,
        request: reqwest::RequestBuilder,
    ) -> Result<RawReply, String> {
        let reply = request.send().await.map_err(|error| chain(&error))?;
        let status = reply.status().as_u16();
        let headers = format!("{:?}", reply.headers());
        let text = reply.text().await.map_err(|error| chain(&error))?;
        self.scan(tenant, &headers);
        self.scan(tenant, &text);
        Ok(RawReply { status, text })
    }

    /// Looks for other tenants' markers.
    fn scan(&self, tenant: usize, text: &str) {
        let mut others = self.tenants.iter().enumerate().filter(|(other, _)| *other != tenant);
        let found = others.find(|(_, other)| text.contains(&other.marker));
        let mut ledger = self.ledger();
        ledger.bytes_scanned += text.len() as u64;
        if let Some((_, other)) = found {
            let name = self.tenants.get(tenant).map_or("nobody", |tenant| &tenant.name);
            ledger.broke(FOREIGN, format!("{name} was told of {}: {}", other.name, shown(text)));
        }
    }

    pub(super) fn target(&self, tenant: usize, gateway: usize) -> Option<&ApiTarget> {
        self.tenants.get(tenant)?.targets.get(gateway)
    }

    fn note(&self, request: &ChaosRequest, outcome: RowsOutcome) {
        self.ledger().sent.push(SentRows { tenant: request.tenant, rows: request.rows, outcome });
    }

    fn broke(&self, promise: &'static str, request: &ChaosRequest, what: &str) {
        let what = format!("{} {}: {}", request.kind.name(), request.number, shown(what));
        self.ledger().broke(promise, what);
    }

    /// Does what a client does with a request, and counts it.
    pub(super) async fn perform(&self, request: &ChaosRequest) {
        let how = match request.kind {
            RequestKind::RelQuery { .. }
            | RequestKind::Cells { .. }
            | RequestKind::Chat { .. }
            | RequestKind::Sql => self.ask(request).await,
            RequestKind::Left { after } => self.leave(request, after).await,
            RequestKind::Ticket { cancel } => self.take_ticket(request, cancel).await,
            RequestKind::SqlTicket => self.take_statement(request).await,
            RequestKind::Batch { cancel } => self.take_batch(request, cancel).await,
            RequestKind::Lists => self.list(request).await,
            RequestKind::Foreign => self.look_elsewhere(request).await,
        };
        *self.ledger().counts.entry((request.kind.name(), how)).or_default() += 1;
        self.finished.send_modify(|finished| *finished += 1);
        if how == FAILED {
            // Where nobody listens an answer comes at once.
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Asks once, and takes what comes.
    async fn ask(&self, request: &ChaosRequest) -> &'static str {
        let Some(target) = self.target(request.tenant, request.gateway) else { return FAILED };
        let reply = self.read(request.tenant, target.post(request.path(), &request.body())).await;
        self.settle(request, reply).0
    }

    /// Judges what came of rows and notes it; an answer where there is one.
    fn settle(
        &self,
        request: &ChaosRequest,
        reply: Result<RawReply, String>,
    ) -> (&'static str, Option<JudgedAnswer>) {
        let (outcome, how, answer) = match reply {
            Err(_) => (RowsOutcome::Unknown, FAILED, None),
            Ok(RawReply { status: 200, text }) => match judge(request, &text) {
                Ok(JudgedAnswer::Whole { failed }) => {
                    let how = if failed == 0 { ANSWERED } else { "answered, rows failed" };
                    (RowsOutcome::Delivered { failed }, how, Some(JudgedAnswer::Whole { failed }))
                }
                Ok(answer @ JudgedAnswer::Ticket(_)) => return (PROMISED, Some(answer)),
                Ok(JudgedAnswer::Broken(_)) => (RowsOutcome::Unknown, "broken off", None),
                Err(problem) => {
                    self.broke(ROWS, request, &problem);
                    (RowsOutcome::Unknown, "wrong", None)
                }
            },
            Ok(reply) => {
                let (outcome, how) = self.refusal(request, &reply);
                (outcome, how, None)
            }
        };
        self.note(request, outcome);
        (how, answer)
    }

    /// What an answer that is no success means. No fault makes a right request wrong, or a key unknown.
    fn refusal(&self, request: &ChaosRequest, reply: &RawReply) -> (RowsOutcome, &'static str) {
        match reply.status {
            429 => (RowsOutcome::Refused, "refused: overloaded"),
            408 | 409 => (RowsOutcome::Unknown, "refused for now"),
            400..=499 => {
                self.broke(REFUSED, request, &format!("HTTP {}: {}", reply.status, reply.text));
                (RowsOutcome::Refused, "refused as wrong")
            }
            _ => (RowsOutcome::Unknown, FAILED),
        }
    }

    /// Hangs up in the middle.
    async fn leave(&self, request: &ChaosRequest, after: usize) -> &'static str {
        let Some(target) = self.target(request.tenant, request.gateway) else { return FAILED };
        let sent = target.post(request.path(), &request.body()).send().await;
        let how = match sent {
            Ok(mut reply) => {
                let mut bytes = Vec::new();
                while bytes.len() < after
                    && let Ok(Some(chunk)) = reply.chunk().await
                {
                    bytes.extend_from_slice(&chunk);
                }
                self.scan(request.tenant, &String::from_utf8_lossy(&bytes));
                "left"
            }
            Err(_) => FAILED,
        };
        self.note(request, RowsOutcome::Unknown);
        how
    }

    /// Sends something under its idempotency key, to one gateway and the other, until it is acknowledged; also says
    /// how often it was sent, and who answered.
    async fn acknowledged(&self, request: &ChaosRequest, body: &Value) -> Option<(RawReply, u32, usize)> {
        let mut gateway = request.gateway;
        for tries in 1..=TRIES_MAX {
            let target = self.target(request.tenant, gateway)?;
            let sent = target.post(request.path(), body).header("Idempotency-Key", request.idempotency_key());
            match self.read(request.tenant, sent).await {
                Ok(reply) if reply.status == 200 => return Some((reply, tries, gateway)),
                Ok(reply) => {
                    if let (RowsOutcome::Refused, "refused as wrong") = self.refusal(request, &reply) {
                        return None;
                    }
                }
                Err(_) => {}
            }
            self.note(request, RowsOutcome::Unknown);
            gateway = other(gateway);
            tokio::time::sleep(RETRY).await;
        }
        None
    }

    async fn take_ticket(&self, request: &ChaosRequest, cancel: bool) -> &'static str {
        let began = self.now();
        let body = request.body();
        let Some((reply, tries, gateway)) = self.acknowledged(request, &body).await else { return FAILED };
        let id = match judge(request, &reply.text) {
            Ok(JudgedAnswer::Ticket(id)) => id,
            Ok(JudgedAnswer::Whole { failed }) => {
                // A repeated request may be given the answer that another gateway made.
                let outcome =
                    if tries == 1 { RowsOutcome::Delivered { failed } } else { RowsOutcome::Unknown };
                self.note(request, outcome);
                return ANSWERED;
            }
            Ok(JudgedAnswer::Broken(_)) => return "broken off",
            Err(problem) => {
                self.broke(ROWS, request, &problem);
                return "wrong";
            }
        };
        self.promise(request, id.clone(), began);
        if self.again(request, &body, (other(gateway), &id)).await {
            self.broke(ONCE, request, "its key has a second ticket");
        }
        match cancel {
            true => self.cancel(request, &format!("/v1/relqueries/{id}"), &id).await,
            false => PROMISED,
        }
    }

    /// Sends what was promised once more, to the other gateway; whether that has a ticket of its own.
    async fn again(&self, request: &ChaosRequest, body: &Value, (gateway, id): (usize, &str)) -> bool {
        let began = self.now();
        let Some(target) = self.target(request.tenant, gateway) else { return false };
        let sent = target.post(request.path(), body).header("Idempotency-Key", request.idempotency_key());
        let answer = match self.read(request.tenant, sent).await {
            Ok(RawReply { status: 200, text }) => judge(request, &text),
            _ => Ok(JudgedAnswer::Broken(String::new())),
        };
        match answer {
            Ok(JudgedAnswer::Ticket(other)) if other != id => {
                self.promise(request, other, began);
                true
            }
            Ok(JudgedAnswer::Ticket(_)) => false,
            Ok(JudgedAnswer::Whole { .. } | JudgedAnswer::Broken(_)) => {
                self.note(request, RowsOutcome::Unknown);
                false
            }
            Err(problem) => {
                self.broke(ROWS, request, &problem);
                false
            }
        }
    }

    async fn take_statement(&self, request: &ChaosRequest) -> &'static str {
        let began = self.now();
        let Some(target) = self.target(request.tenant, request.gateway) else { return FAILED };
        let reply = self.read(request.tenant, target.post(request.path(), &request.body())).await;
        let (how, answer) = self.settle(request, reply);
        if let Some(JudgedAnswer::Ticket(id)) = answer {
            self.promise(request, id, began);
        }
        how
    }

    async fn take_batch(&self, request: &ChaosRequest, cancel: bool) -> &'static str {
        let began = self.now();
        let Some(file) = self.upload(request).await else { return FAILED };
        let body = serde_json::json!({
            "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h",
            "metadata": {"number": request.number.to_string()},
        });
        let Some((reply, ..)) = self.acknowledged(request, &body).await else { return FAILED };
        let reply: Value = serde_json::from_str(&reply.text).unwrap_or_default();
        let Some(id) = reply["id"].as_str() else {
            self.broke(ROWS, request, &format!("a batch without an id: {reply}"));
            return "wrong";
        };
        self.promise(request, id.to_owned(), began);
        if cancel { self.cancel(request, &format!("/v1/batches/{id}/cancel"), id).await } else { PROMISED }
    }

    /// Uploads the file of a batch; what was uploaded and not acknowledged is left behind.
    async fn upload(&self, request: &ChaosRequest) -> Option<String> {
        let marker = &self.tenants.get(request.tenant)?.marker;
        let (head, edge) = (format!("filename=\"{marker}-{}.jsonl\"", request.number), "chaos-edge");
        let body = format!(
            "--{edge}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{edge}\r\n\
             content-disposition: form-data; name=\"file\"; {head}\r\n\r\n{}\r\n--{edge}--\r\n",
            request.file()
        );
        let mut gateway = request.gateway;
        for _ in 0..TRIES_MAX {
            let target = self.target(request.tenant, gateway)?;
            let sent = target.http.post(format!("{}/v1/files", target.url)).body(body.clone());
            let sent = sent.header("content-type", format!("multipart/form-data; boundary={edge}"));
            let sent = sent.bearer_auth(target.key.as_deref().unwrap_or_default());
            match self.read(request.tenant, sent).await {
                Ok(RawReply { status: 200, text }) => {
                    let file: Value = serde_json::from_str(&text).unwrap_or_default();
                    return file["id"].as_str().map(str::to_owned);
                }
                Ok(reply) => {
                    if let (RowsOutcome::Refused, "refused as wrong") = self.refusal(request, &reply) {
                        return None;
                    }
                }
                Err(_) => {}
            }
            gateway = other(gateway);
            tokio::time::sleep(RETRY).await;
        }
        None
    }

    fn promise(&self, request: &ChaosRequest, id: String, began: Duration) {
        let promise = Promise { request: request.clone(), id, is_cancelled: false, began, over: None };
        self.ledger().promises.push(promise);
    }

    /// Calls something off until that is acknowledged.
    async fn cancel(&self, request: &ChaosRequest, path: &str, id: &str) -> &'static str {
        // From the first try on it may be.
        self.ledger().promises.iter_mut().filter(|promise| promise.id == id).for_each(|promise| {
            promise.is_cancelled = true;
        });
        let mut gateway = request.gateway;
        for _ in 0..TRIES_MAX {
            let Some(target) = self.target(request.tenant, gateway) else { return FAILED };
            let sent = match path.ends_with("/cancel") {
                true => target.post(path, &serde_json::json!({})),
                false => target.delete(path),
            };
            if self.read(request.tenant, sent).await.is_ok_and(|reply| reply.status == 200) {
                return "cancelled";
            }
            gateway = other(gateway);
            tokio::time::sleep(RETRY).await;
        }
        FAILED
    }

    async fn list(&self, request: &ChaosRequest) -> &'static str {
        let Some(target) = self.target(request.tenant, request.gateway) else { return FAILED };
        for path in ["/v1/batches?limit=100", "/v1/files?limit=100", "/v1/usage?days=3", "/v1/scheduler"] {
            match self.read(request.tenant, target.get(path)).await {
                Ok(reply) if reply.status == 200 => {}
                Ok(reply) => return self.refusal(request, &reply).1,
                Err(_) => return FAILED,
            }
        }
        ANSWERED
    }

    /// Asks for what another tenant was promised: it is not there.
    async fn look_elsewhere(&self, request: &ChaosRequest) -> &'static str {
        let foreign = {
            let ledger = self.ledger();
            let mut foreign = ledger.promises.iter().rev().filter(|one| one.request.tenant != request.tenant);
            foreign.next().map(|promise| (path_of(promise), promise.request.tenant))
        };
        let (Some((path, owner)), Some(target)) = (foreign, self.target(request.tenant, request.gateway))
        else {
            return "there was nothing yet";
        };
        match self.read(request.tenant, target.get(&path)).await {
            Ok(RawReply { status: 404, .. }) => "not found",
            Ok(RawReply { status: 200, text }) => {
                let what = format!("{path} is of tenant {owner}: {text}");
                self.broke(FOREIGN, request, &what);
                "wrong"
            }
            _ => FAILED,
        }
    }
}

pub(super) const FAILED: &str = "failed";
const ANSWERED: &str = "answered";
const PROMISED: &str = "promised";

/// Where a promise is kept.
pub(super) fn path_of(promise: &Promise) -> String {
    let id = &promise.id;
    match promise.request.kind {
        RequestKind::Batch { .. } => format!("/v1/batches/{id}"),
        RequestKind::SqlTicket => format!("/v1/sql/{id}"),
        _ => format!("/v1/relqueries/{id}"),
    }
}

fn shown(text: &str) -> &str {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= SHOWN_MAX);
    &text[..end.unwrap_or(text.len())]
}

/// One client: request after request, of one tenant, to any gateway.
pub(super) async fn client(load: Arc<SharedLoad>, client: u64, seed: u64) {
    let mut random = SplitMix64::new(seed, &format!("client {client}"));
    let tenant = client as usize % load.tenants.len().max(1);
    let Some(marker) = load.tenants.get(tenant).map(|tenant| tenant.marker.clone()) else { return };
    for turn in 0.. {
        if load.is_over() {
            return;
        }
        // Numbers of a client's own.
        let number = client * 100_000 + turn;
        load.perform(&ChaosRequest::draw(Sender { tenant, marker: &marker, number }, &mut random)).await;
    }
}
