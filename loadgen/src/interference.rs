//! Interference: how long a person waits for five cells while a column of thousands of rows of another
//! tenant runs, and how long for the like on the same server at rest.
//!
//! Cells are asked again and again, spread evenly over the column's rows; what is asked is never the same
//! text twice, and nothing is answered from the result cache.

use std::fmt::Write as _;
use std::time::Instant;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Error;
use crate::client::{ApiTarget, chain, events, refused};
use crate::random::SplitMix64;
use crate::summary::Stats;

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interference {
    /// Rows of the column.
    pub rows: u32,
    /// Cells that are asked together.
    pub cells: u32,
    /// How often they are asked, at rest and again beside the column.
    pub rounds: u32,
    /// What stands in the cells.
    pub seed: u64,
}

/// One asking while the column ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asking {
    /// From the request to its whole answer, ms.
    pub ms: f64,
    /// Rows of the column that had come when the cells were asked.
    pub before: u32,
    /// The same when they were answered.
    pub after: u32,
}

/// What the askings and the columns took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterferenceReport {
    /// Milliseconds of each asking at rest.
    pub idle: Vec<f64>,
    /// The askings while the column ran.
    pub busy: Vec<Asking>,
    /// The column with nothing beside it, ms.
    pub column_alone_ms: f64,
    /// The column with the askings, ms.
    pub column_ms: f64,
    /// Rows of the column.
    pub rows: u32,
    /// Cells of an asking.
    pub cells: u32,
}

impl InterferenceReport {
    /// The askings that were answered while the column ran.
    fn during(&self) -> impl Iterator<Item = &Asking> {
        self.busy.iter().filter(|asked| asked.after < self.rows)
    }

    /// Whether the column ran long enough for every asking.
    pub fn is_sound(&self) -> bool {
        self.during().count() == self.busy.len() && !self.busy.is_empty() && !self.idle.is_empty()
    }

    /// The median while the column ran over the median at rest.
    pub fn ratio(&self) -> Option<f64> {
        let busy = Stats::of(self.during().map(|asked| asked.ms))?;
        Some(busy.p50 / Stats::of(self.idle.iter().copied())?.p50)
    }

    /// A table for a terminal.
    pub fn text(&self) -> String {
        let line = |name: &str, stats: Option<Stats>| match stats {
            Some(Stats { p50, max, .. }) => format!("{name:<44}{p50:>9.1}{max:>9.1}\n"),
            None => format!("{name:<44}{:>9}{:>9}\n", "-", "-"),
        };
        let mut text = format!("{:<44}{:>9}{:>9}\n", "ms", "median", "max");
        text += &line(&format!("{} cells, server at rest", self.cells), Stats::of(self.idle.iter().copied()));
        let busy = Stats::of(self.during().map(|asked| asked.ms));
        text += &line(&format!("{} cells, beside the column", self.cells), busy);
        let ratio = self.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(text, "{:<44}{ratio:>9}", "ratio of the medians");
        let passed = Stats::of(self.during().map(|asked| f64::from(asked.after - asked.before)));
        let _ = writeln!(
            text,
            "{:<44}{:>9.0}{:>9.0}",
            "rows of the column that ended meanwhile",
            passed.map_or(0.0, |stats| stats.p50),
            passed.map_or(0.0, |stats| stats.max),
        );
        let (alone, shared) = (self.column_alone_ms / 1e3, self.column_ms / 1e3);
        let rows = self.rows;
        let _ = writeln!(
            text,
            "the column of {rows} rows: {alone:.2} s alone, {shared:.2} s with the cells beside it"
        );
        let (during, all) = (self.during().count(), self.busy.len());
        if during < all {
            let _ = writeln!(
                text,
                "only {during} of {all} were answered while the column ran: give it more rows"
            );
        }
        text
    }
}

/// Measures a server as two of its tenants.
pub async fn measure(
    few: &ApiTarget,
    column: &ApiTarget,
    asked: Interference,
) -> Result<InterferenceReport, Error> {
    let Interference { rows, cells, rounds, seed } = asked;
    let mut random = SplitMix64::new(seed, "cells beside a column");
    let mut outcome = InterferenceReport { rows, cells, ..InterferenceReport::default() };
    // The first of a server meets cold memory, and compiles the labels.
    ask(few, &calls(&mut random, cells)).await?;
    for _ in 0..rounds {
        outcome.idle.push(ask(few, &calls(&mut random, cells)).await?);
    }
    let (quiet, _) = watch::channel(0);
    outcome.column_alone_ms = fill(column.clone(), calls(&mut random, rows), quiet).await?;
    let (come, mut coming) = watch::channel(0);
    let running = tokio::spawn(fill(column.clone(), calls(&mut random, rows), come));
    for round in 1..=rounds {
        let due = (u64::from(rows) * u64::from(round) / u64::from(rounds + 1)).max(1);
        // A column that failed has no more to say; its error is told below.
        if coming.wait_for(|come| u64::from(*come) >= due).await.is_err() {
            break;
        }
        let before = *coming.borrow();
        let ms = ask(few, &calls(&mut random, cells)).await?;
        outcome.busy.push(Asking { ms, before, after: *coming.borrow() });
    }
    outcome.column_ms = running.await.map_err(|error| Error::Client(error.to_string()))??;
    Ok(outcome)
}

/// Calls of a cell function on made-up reviews, as one request.
fn calls(random: &mut SplitMix64, count: u32) -> Value {
    let call = |_| json!({"function": "classify", "args": [review(random), ["positive", "negative"]]});
    let calls: Vec<Value> = (0..count).map(call).collect();
    json!({"calls": calls, "cache": false})
}

const WORDS: [&str; 24] = [
    "the",
    "film",
    "was",
    "long",
    "and",
    "dull",
    "but",
    "its",
    "music",
    "stays",
    "with",
    "me",
    "actors",
    "play",
    "well",
    "story",
    "never",
    "begins",
    "wonderful",
    "a",
    "lost",
    "evening",
    "camera",
    "loved",
];

/// A review of 8 to 24 words.
fn review(random: &mut SplitMix64) -> String {
    let words = random.between(8, 24);
    let words: Vec<&str> = (0..words).filter_map(|_| random.pick(&WORDS).copied()).collect();
    words.join(" ")
}

/// Asks for cells and waits for all of them; the milliseconds.
async fn ask(target: &ApiTarget, body: &Value) -> Result<f64, Error> {
    let begun = Instant::now();
    let response =
        target.post("/v1/cells", body).send().await.map_err(|error| Error::Client(chain(&error)))?;
    if !response.status().is_success() {
        return Err(Error::Client(refused(response).await.error.unwrap_or_default()));
    }
    let reply: Value = response.json().await.map_err(|error| Error::Client(chain(&error)))?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let cells = reply["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    let answered = cells.iter().filter(|cell| !cell["value"].is_null()).count();
    if answered == body["calls"].as_array().map_or(0, Vec::len) {
        Ok(ms)
    } else {
        Err(Error::Client(format!("{answered} of the cells were answered: {reply}")))
    }
}

/// Fills a column and says how many of its cells have come; the milliseconds.
async fn fill(target: ApiTarget, mut body: Value, come: watch::Sender<u32>) -> Result<f64, Error> {
    body["stream"] = json!(true);
    let begun = Instant::now();
    let response =
        target.post("/v1/cells", &body).send().await.map_err(|error| Error::Client(chain(&error)))?;
    if !response.status().is_success() {
        return Err(Error::Client(refused(response).await.error.unwrap_or_default()));
    }
    let mut events = events(response);
    while let Some(event) = events.next().await {
        let event = event.map_err(Error::Client)?;
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match event.event.as_str() {
            "cell" if !data["value"].is_null() => come.send_modify(|come| *come += 1),
            "cell" | "error" => {
                return Err(Error::Client(format!("a cell of the column failed: {data}")));
            }
            "done" if data["status"] == "completed" => return Ok(begun.elapsed().as_secs_f64() * 1e3),
            "done" => return Err(Error::Client(format!("the column ended early: {data}"))),
            _ => {}
        }
    }
    Err(Error::Client("the column's stream ended without `done`".into()))
}
