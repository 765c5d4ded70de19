//! The server's edge: so many requests a second whose answers it knows, beside connections that are idle and clients
//! that are slow; and one request after another on a connection of its own, which is what the gateway itself takes.
//!
//! Requests are sent when they are due, whatever became of those before: where one could not be sent in time, its wait
//! counts. The client is bare sockets, so that most of the machine is the server's.

mod bare;
mod connection;
mod crowd;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::Error;
use crate::summary::Stats;
use bare::BareServer;
use connection::Connection;
use crowd::Crowd;

/// What to ask, and beside what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeLoad {
    /// Requests a second.
    pub rate: f64,
    /// For how long.
    pub span: Duration,
    /// Connections that send them.
    pub connections: u32,
    /// Different cells.
    pub cells: u32,
    /// Connections that had an answer and say no more.
    pub idle: u32,
    /// Connections whose requests come in pieces.
    pub slow: u32,
    /// Pieces of such a request, which takes nine seconds.
    pub pieces: u32,
}

/// What the requests took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeReport {
    /// Milliseconds of each request, one after another.
    pub alone: Vec<f64>,
    /// Milliseconds of each of them where a thread on a bare socket gives the same reply: what this machine's sockets
    /// and the client take.
    pub bare: Vec<f64>,
    /// Milliseconds of each request of the load, from when it was due.
    pub loaded: Vec<f64>,
    /// Requests of the load.
    pub sent: u64,
    /// Requests that had no answer.
    pub failed: u64,
    /// Why the first of them had none.
    pub error: Option<String>,
    /// Seconds of the load.
    pub seconds: f64,
    /// Idle connections that were asked for, and those that were open to its end.
    pub idle: u32,
    pub idle_open: u32,
    /// Slow clients that were asked for, and their requests that were answered meanwhile.
    pub slow: u32,
    pub slow_answered: u64,
}

/// Requests one after another, which are measured, and how many the server and the bare socket get in turn.
const ALONE: usize = 2_000;
const IN_TURN: usize = 100;
/// The goals: of a request of the load, the 99th percentile, and of one alone, the median beyond a bare socket's, in ms.
const LOADED_MS_MAX: f64 = 5.0;
const ALONE_MS_MAX: f64 = 0.3;

/// A goal, and what was found; what was not measured misses it.
struct Goal {
    name: &'static str,
    found: Option<f64>,
    ms_max: f64,
}

impl Goal {
    fn is_met(&self) -> bool {
        self.found.is_some_and(|found| found <= self.ms_max)
    }
}

impl EdgeReport {
    /// Whether each request had the answer that is known, beside those who were to be there.
    pub fn is_sound(&self) -> bool {
        let is_answered = self.failed == 0 && !self.alone.is_empty() && self.loaded.len() as u64 == self.sent;
        is_answered && self.has_crowd()
    }

    /// Whether all idle connections stayed open and slow clients got answers.
    fn has_crowd(&self) -> bool {
        self.idle_open == self.idle && (self.slow == 0 || self.slow_answered > 0)
    }

    /// Whether both goals are met.
    pub fn meets_goals(&self) -> bool {
        self.goals().iter().all(Goal::is_met)
    }

    fn goals(&self) -> [Goal; 2] {
        let [alone, bare, loaded] =
            [&self.alone, &self.bare, &self.loaded].map(|times| Stats::of(times.iter().copied()));
        [
            Goal { name: "p99 of the load", found: loaded.map(|stats| stats.p99), ms_max: LOADED_MS_MAX },
            Goal {
                name: "p50 of one alone beyond a bare socket's",
                found: alone.zip(bare).map(|(alone, bare)| alone.p50 - bare.p50),
                ms_max: ALONE_MS_MAX,
            },
        ]
    }

    /// A table for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{:<44}{:>9}{:>9}{:>9}{:>9}\n", "ms", "p50", "p95", "p99", "max");
        let mut line = |name: &str, stats: Option<Stats>| {
            let _ = match stats {
                Some(Stats { p50, p95, p99, max, .. }) => {
                    writeln!(text, "{name:<44}{p50:>9.3}{p95:>9.3}{p99:>9.3}{max:>9.3}")
                }
                None => writeln!(text, "{name:<44}{:>9}{:>9}{:>9}{:>9}", "-", "-", "-", "-"),
            };
        };
        let of = |times: &[f64]| Stats::of(times.iter().copied());
        line("a known cell, one after another", of(&self.alone));
        line("the same reply of a bare socket", of(&self.bare));
        let rate = self.loaded.len() as f64 / self.seconds.max(1e-9);
        line(&format!("known cells, {rate:.0} a second"), of(&self.loaded));
        let _ = writeln!(
            text,
            "{} requests, {} failed; {} idle connections open at the end, {} slow requests answered",
            self.sent, self.failed, self.idle_open, self.slow_answered
        );
        if !self.has_crowd() {
            let _ = writeln!(
                text,
                "failed: {} idle connections and {} slow clients were to be there, none closed and some answered",
                self.idle, self.slow
            );
        }
        if let Some(error) = &self.error {
            let _ = writeln!(text, "the first failure: {error}");
        }
        for goal in self.goals() {
            let word = if goal.is_met() { "met" } else { "missed" };
            let _ = writeln!(text, "goal: {} at most {} ms: {word}", goal.name, goal.ms_max);
        }
        text
    }
}

/// What a cell's request is on the wire.
fn request(host: SocketAddr, key: Option<&str>, cell: u32) -> Vec<u8> {
    let text = format!("A wonderful film, which I saw {cell} times.");
    let call = json!({"function": "classify", "args": [text, ["positive", "negative"]]});
    let body = json!({ "calls": [call] }).to_string();
    let key = key.map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
    format!(
        "POST /v1/cells HTTP/1.1\r\nHost: {host}\r\n{key}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Measures a server at an address.
pub async fn measure(server: SocketAddr, key: Option<&str>, load: EdgeLoad) -> Result<EdgeReport, Error> {
    let requests: Arc<Vec<Vec<u8>>> =
        Arc::new((0..load.cells).map(|cell| request(server, key, cell)).collect());
    let mut report = EdgeReport { idle: load.idle, slow: load.slow, ..EdgeReport::default() };
    let failed = |error: std::io::Error| Error::Client(format!("{server}: {error}"));
    let mut first = Connection::open(server).await.map_err(failed)?;
    // From here on all answers are known.
    for request in requests.iter() {
        first.ask(request).await.map_err(failed)?;
    }
    let bare = BareServer::start(first.reply().to_vec()).map_err(failed)?;
    let mut second = Connection::open(bare.address).await.map_err(failed)?;
    for turn in (0..ALONE).step_by(IN_TURN) {
        for (connection, times) in [(&mut first, &mut report.alone), (&mut second, &mut report.bare)] {
            for number in turn..turn + IN_TURN {
                let asked = Instant::now();
                connection.ask(&requests[number % requests.len()]).await.map_err(failed)?;
                times.push(milliseconds(asked.elapsed()));
            }
        }
    }
    drop(second);
    bare.end().map_err(failed)?;
    let crowd =
        Crowd::gather(server, (load.idle, load.slow, load.pieces), &requests[0]).await.map_err(failed)?;
    let begun = Instant::now();
    let mut senders = JoinSet::new();
    for sender in 0..load.connections {
        senders.spawn(send(server, Arc::clone(&requests), load, (begun, sender)));
    }
    while let Some(sent) = senders.join_next().await {
        let (times, error) = sent.map_err(|error| Error::Client(error.to_string()))?;
        report.sent += times.len() as u64 + u64::from(error.is_some());
        report.failed += u64::from(error.is_some());
        report.loaded.extend(times);
        report.error = report.error.take().or(error);
    }
    report.seconds = begun.elapsed().as_secs_f64();
    (report.idle_open, report.slow_answered) = crowd.end().await;
    Ok(report)
}

/// Sends every request whose turn it is on one connection, until the load ends or one fails.
async fn send(
    server: SocketAddr,
    requests: Arc<Vec<Vec<u8>>>,
    load: EdgeLoad,
    (begun, sender): (Instant, u32),
) -> (Vec<f64>, Option<String>) {
    let mut times = Vec::new();
    let mut connection = match Connection::open(server).await {
        Ok(connection) => connection,
        Err(error) => return (times, Some(error.to_string())),
    };
    for number in (u64::from(sender)..).step_by(load.connections as usize) {
        let due = Duration::from_secs_f64(number as f64 / load.rate);
        if due >= load.span {
            break;
        }
        let due = begun + due;
        // A timer is up to a millisecond late, which is not the server's. Who is late for another reason counts it.
        let asked = if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
            Instant::now()
        } else {
            due
        };
        if let Err(error) = connection.ask(&requests[number as usize % requests.len()]).await {
            return (times, Some(error.to_string()));
        }
        times.push(milliseconds(asked.elapsed()));
    }
    (times, None)
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_or_missed_by_the_percentiles() {
        let report = |loaded: f64| EdgeReport {
            alone: vec![0.5],
            bare: vec![0.2],
            loaded: vec![loaded],
            sent: 1,
            seconds: 1.0,
            ..EdgeReport::default()
        };
        let met = report(1.0).text();
        assert!(met.contains("p99 of the load at most 5 ms: met"), "{met}");
        let missed = report(6.0).text();
        assert!(missed.contains("p99 of the load at most 5 ms: missed"), "{missed}");
        let lost = EdgeReport { failed: 1, ..report(1.0) };
        assert!(report(1.0).is_sound() && !lost.is_sound());
        let late_alone = EdgeReport { alone: vec![0.6], ..report(1.0) };
        let no_bare = EdgeReport { bare: Vec::new(), ..report(1.0) };
        let unmeasured = EdgeReport { loaded: Vec::new(), ..report(1.0) };
        assert!(report(5.0).meets_goals() && lost.meets_goals(), "the goals are of time alone");
        assert!(!report(5.1).meets_goals() && !late_alone.meets_goals());
        assert!(!unmeasured.meets_goals() && !no_bare.meets_goals());
    }

    #[test]
    fn a_run_whose_idle_connections_were_closed_or_whose_slow_clients_got_nothing_is_unsound() {
        let report = |(idle, idle_open): (u32, u32), (slow, slow_answered): (u32, u64)| EdgeReport {
            alone: vec![0.2],
            bare: vec![0.1],
            loaded: vec![1.0],
            sent: 1,
            seconds: 1.0,
            idle,
            idle_open,
            slow,
            slow_answered,
            ..EdgeReport::default()
        };
        let whole = report((3, 3), (2, 1));
        assert!(whole.is_sound() && !whole.text().contains("failed:"), "{}", whole.text());
        assert!(report((0, 0), (0, 0)).is_sound(), "nobody else was asked for");
        for other in [report((3, 0), (2, 1)), report((3, 2), (2, 1)), report((3, 3), (2, 0))] {
            assert!(!other.is_sound() && other.text().contains("failed: 3 idle"), "{}", other.text());
        }
    }
}
