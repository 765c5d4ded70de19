//! A soak: minutes of random mixed load, in which nothing may go wrong that was not asked for.
//!
//! Several clients send relQueries, cells and chats with and without constraints, follow their answers, hang
//! up on them or cancel them, and send nonsense. What comes is judged: an answer keeps to its constraint, a
//! stream ends with its last event, nonsense is refused. Afterwards the server must come to rest and answer
//! as it did at first. What is sent depends on the seed and a client's number alone; when it meets what does
//! not.

mod judge;
mod request;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{ApiTarget, chain};
use crate::random::SplitMix64;
use judge::judge;
use request::{Ending, Request};

/// Problems that are shown; the others are counted.
const SHOWN_MAX: usize = 20;
/// How long the server may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(120);
/// Pause between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(200);

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// How long clients send.
    pub span: Duration,
    /// What they send.
    pub seed: u64,
    /// How many there are.
    pub clients: u32,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct SoakReport {
    /// Requests by what became of them.
    pub ended: BTreeMap<&'static str, u64>,
    /// What should not have happened.
    pub problems: Vec<String>,
}

impl SoakReport {
    /// Whether nothing went wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// For a person to read.
    pub fn text(&self) -> String {
        let mut text = format!("{:<36}{:>8}\n", "requests", self.ended.values().sum::<u64>());
        for (how, count) in &self.ended {
            text += &format!("  {how:<34}{count:>8}\n");
        }
        text += &format!("{:<36}{:>8}\n", "problems", self.problems.len());
        for problem in self.problems.iter().take(SHOWN_MAX) {
            text += &format!("  {problem}\n");
        }
        text
    }

    fn take(&mut self, other: Self) {
        for (how, count) in other.ended {
            *self.ended.entry(how).or_default() += count;
        }
        self.problems.extend(other.problems);
    }
}

/// Sends, judges, and waits until the server is at rest.
pub async fn soak(target: &ApiTarget, soak: Soak) -> SoakReport {
    let mut tally = SoakReport::default();
    let before = probe(target).await;
    let until = Instant::now() + soak.span;
    let clients = (0..soak.clients).map(|number| {
        let random = SplitMix64::new(soak.seed, &format!("client {number}"));
        tokio::spawn(client(target.clone(), random, until))
    });
    for client in clients.collect::<Vec<_>>() {
        match client.await {
            Ok(more) => tally.take(more),
            Err(error) => tally.problems.push(format!("a client of this program failed: {error}")),
        }
    }
    if let Err(problem) = rest(target).await {
        tally.problems.push(problem);
    }
    match (before, probe(target).await) {
        (Ok(before), Ok(after)) if before == after => {}
        (before, after) => {
            tally.problems.push(format!("the first question was answered {before:?}, later {after:?}"));
        }
    }
    tally
}

/// One client: request after request.
async fn client(target: ApiTarget, mut random: SplitMix64, until: Instant) -> SoakReport {
    let mut tally = SoakReport::default();
    while Instant::now() < until {
        let request = Request::draw(&mut random);
        match send(&target, &request).await {
            Ok(how) => *tally.ended.entry(how).or_default() += 1,
            Err(problem) => {
                *tally.ended.entry("wrong").or_default() += 1;
                tally.problems.push(format!("{problem}; asked: {} {}", request.path, request.body));
            }
        }
    }
    tally
}

/// Sends a request and ends it as it wants to be ended; what became of it.
async fn send(target: &ApiTarget, request: &Request) -> Result<&'static str, String> {
    let response = target.post(request.path, &request.body).send().await.map_err(|error| chain(&error))?;
    let status = response.status().as_u16();
    let read = read(response, request.ending).await?;
    match (status, read) {
        (429, _) => Ok("refused: overloaded"),
        (400..500, Some(text)) if text.contains("\"error\"") => Ok("refused: nonsense or too long"),
        (200, _) if request.is_nonsense => Err("nonsense was taken".into()),
        (200, None) => Ok("left early"),
        (200, Some(text)) => {
            let judged = judge(request, &text)?;
            match (request.ending, judged.ticket) {
                (Ending::Cancel, Some(ticket)) => cancel(target, &ticket).await,
                (Ending::Cancel, None) => Ok("answered before it could be cancelled"),
                _ => Ok("answered"),
            }
        }
        (status, text) => Err(format!("HTTP {status}: {}", text.unwrap_or_default())),
    }
}

/// The whole body; `None` where the client hung up before its end.
async fn read(response: reqwest::Response, ending: Ending) -> Result<Option<String>, String> {
    let Ending::Leave { after } = ending else {
        return response.text().await.map(Some).map_err(|error| chain(&error));
    };
    let (mut response, mut bytes) = (response, Vec::new());
    while bytes.len() < after {
        match response.chunk().await.map_err(|error| chain(&error))? {
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => return Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        }
    }
    Ok(None) // dropping the response closes its connection
}

/// Cancels what a ticket names, twice, and looks at it.
async fn cancel(target: &ApiTarget, ticket: &str) -> Result<&'static str, String> {
    let path = format!("/v1/relqueries/{ticket}");
    for _ in 0..2 {
        let reply = target.delete(&path).send().await.map_err(|error| chain(&error))?;
        if !reply.status().is_success() {
            return Err(format!("DELETE {path}: HTTP {}", reply.status().as_u16()));
        }
    }
    let reply = target.get(&path).send().await.map_err(|error| chain(&error))?;
    let reply: Value = reply.json().await.map_err(|error| chain(&error))?;
    match reply["status"].as_str() {
        Some("cancelled") => Ok("cancelled"),
        Some("completed") => Ok("completed before it was cancelled"),
        _ => Err(format!("cancelled, but it is {reply}")),
    }
}

/// A greedy question that is never answered from a cache, and its answers.
async fn probe(target: &ApiTarget) -> Result<Value, String> {
    let request = Request::probe();
    let reply = target.post(request.path, &request.body).send().await.map_err(|error| chain(&error))?;
    let reply: Value = reply.json().await.map_err(|error| chain(&error))?;
    let rows = reply["rows"].as_array().ok_or_else(|| format!("no rows: {reply}"))?;
    Ok(rows.iter().map(|row| row["text"].clone()).collect())
}

/// Waits until nothing is queued or running.
async fn rest(target: &ApiTarget) -> Result<(), String> {
    let deadline = Instant::now() + REST_MAX;
    loop {
        let text = match target.get("/metrics").send().await {
            Ok(reply) => reply.text().await.map_err(|error| chain(&error))?,
            Err(error) => return Err(chain(&error)),
        };
        let busy = ["relserve_queue_rows ", "relserve_running_rows "]
            .map(|name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()));
        if busy == [Some(0.0); 2] {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "{} s after the last request rows wait or run: {busy:?}",
                REST_MAX.as_secs()
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}
