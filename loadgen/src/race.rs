//! A race: servers, each started as its users would start it, one after another on the same machine, answer
//! the same relQueries one at a time. Rounds of all servers follow one another, so that what disturbs the
//! machine disturbs all.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::client::{self, Targets};
use crate::contest::{Contest, Contestant, Sent};
use crate::record::RelQueryOutcome;
use crate::scenario::Scenario;
use crate::single::{self, Route, named_model};
use crate::upstreams::RunningContestant;
use crate::workload::RelQuery;

/// What one relQuery took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    pub server: String,
    /// From the server's start, and that of those behind it, to when it was ready to answer, ms; asked every tenth
    /// of a second. None in laps of earlier versions.
    #[serde(default)]
    pub ready_ms: Option<f64>,
    /// The round, from 1.
    pub round: u32,
    /// The relQuery's number in the trace.
    pub index: u32,
    /// From its sending to its first answered row, ms; none where no row was answered.
    pub first_ms: Option<f64>,
    /// To its last answered row, ms.
    pub total_ms: f64,
    /// A single row of one output token on a template of its own before it, ms: the first token of a small
    /// relQuery.
    pub one_ms: f64,
    /// Prompt tokens, as the server counts.
    pub prompt: Option<u64>,
    /// Output tokens, as the server counts.
    pub output: Option<u64>,
    /// Rows that failed, and why the first of them did.
    pub failed: Option<String>,
}

/// Runs `rounds` of all servers: in each, a server starts, warms up on the trace's first relQuery and answers
/// the rest. `tell` gets every lap as it ends.
pub async fn race(
    contest: &Contest,
    scenario: &Scenario,
    trace: &[RelQuery],
    rounds: u32,
    mut tell: impl FnMut(&Lap),
) -> Result<Vec<Lap>, Error> {
    let mut laps = Vec::new();
    for round in 1..=rounds {
        for contestant in &contest.servers {
            let timeout = Duration::from_millis(scenario.timeout_ms);
            let start = Instant::now();
            let server = RunningContestant::start(contest, contestant, timeout).await?;
            let ready_ms = Some(start.elapsed().as_secs_f64() * 1e3);
            let runner = Runner::new(server.targets()?, contestant, scenario).await?;
            for relquery in trace {
                let lap = Lap { ready_ms, ..runner.lap(round, relquery).await };
                if relquery.index > 0 {
                    tell(&lap);
                    laps.push(lap);
                }
            }
            server.stop().await?;
        }
    }
    Ok(laps)
}

/// A server that is asked.
struct Runner<'a> {
    targets: Targets,
    contestant: &'a Contestant,
    scenario: &'a Scenario,
    /// Named in requests of single rows.
    model: String,
}

impl<'a> Runner<'a> {
    async fn new(
        targets: Targets,
        contestant: &'a Contestant,
        scenario: &'a Scenario,
    ) -> Result<Self, Error> {
        let model = match contestant.sent {
            Sent::RelQuery => String::new(),
            Sent::Chat | Sent::Completions => named_model(targets.in_turn(), scenario).await?,
        };
        Ok(Self { targets, contestant, scenario, model })
    }

    /// A relQuery on a template that the server has not seen, and before it a row of one token on another
    /// such.
    async fn lap(&self, round: u32, relquery: &RelQuery) -> Lap {
        let marked = |kind: &str| {
            let mark = format!("Question {kind}{} of round {round}.", relquery.index);
            RelQuery { template: format!("{mark} {}", relquery.template), ..relquery.clone() }
        };
        let mut one = RelQuery { max_tokens: 1, ignore_eos: true, choices: Vec::new(), ..marked("A") };
        one.rows.truncate(1);
        let (_, _, one_ms) = self.send(&one).await;
        let (outcome, first_ms, total_ms) = self.send(&marked("B")).await;
        let failed = outcome
            .error
            .or_else(|| (outcome.rows_failed > 0).then(|| format!("{} rows failed", outcome.rows_failed)));
        Lap {
            server: self.contestant.name.clone(),
            ready_ms: None,
            round,
            index: relquery.index,
            first_ms,
            total_ms,
            one_ms,
            prompt: outcome.tokens.prompt,
            output: outcome.tokens.output,
            failed,
        }
    }

    async fn send(&self, relquery: &RelQuery) -> (RelQueryOutcome, Option<f64>, f64) {
        let (targets, scenario) = (&self.targets, self.scenario);
        let start = Instant::now();
        let (outcome, first) = match self.contestant.sent.endpoint() {
            None => client::send(targets.in_turn(), scenario, relquery).await,
            Some(endpoint) => {
                let choice = self.contestant.choice;
                let route = Route { endpoint, choice, model: &self.model, priority: None };
                single::send(targets, route, scenario, relquery).await
            }
        };
        let ms = |instant: Instant| instant.duration_since(start).as_secs_f64() * 1e3;
        (outcome, first.map(ms), ms(Instant::now()))
    }
}

/// What a server came to: medians over its laps in which no row failed.
struct ServerLine<'a> {
    server: &'a str,
    total: f64,
    least: f64,
    most: f64,
    /// How many times the first server's.
    to_first: f64,
    first: Option<f64>,
    /// The first row's part of the relQuery's time.
    first_share: Option<f64>,
    one: Option<f64>,
    ready: Option<f64>,
    prompt: Option<f64>,
    output: Option<f64>,
}

impl<'a> ServerLine<'a> {
    fn of(server: &'a str, laps: &[&Lap], base: Option<f64>) -> Option<Self> {
        let sorted = |of: &dyn Fn(&Lap) -> Option<f64>| {
            let mut values: Vec<f64> = laps.iter().filter_map(|lap| of(lap)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |of: &dyn Fn(&Lap) -> Option<f64>| middle(&sorted(of));
        let totals = sorted(&|lap| Some(lap.total_ms));
        let total = middle(&totals)?;
        Some(Self {
            server,
            total,
            least: *totals.first()?,
            most: *totals.last()?,
            to_first: total / base.unwrap_or(total),
            first: median(&|lap| lap.first_ms),
            first_share: median(&|lap| lap.first_ms.map(|first| first / lap.total_ms)),
            one: median(&|lap| Some(lap.one_ms)),
            ready: median(&|lap| lap.ready_ms),
            prompt: median(&|lap| lap.prompt.map(|tokens| tokens as f64)),
            output: median(&|lap| lap.output.map(|tokens| tokens as f64)),
        })
    }

    /// What a table's columns have.
    fn cells(&self) -> [String; COLUMNS.len()] {
        let or_none = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
        };
        [
            format!("{:.0}", self.total),
            format!("({:.0}..{:.0})", self.least, self.most),
            format!("{:.2}", self.to_first),
            or_none(self.first, 0),
            or_none(self.first_share, 2),
            or_none(self.one, 0),
            or_none(self.ready.map(|ms| ms / 1e3), 1),
            or_none(self.prompt, 0),
            or_none(self.output, 0),
        ]
    }
}

/// Columns behind a server's name, each with its width in text.
const COLUMNS: [(&str, usize); 9] = [
    ("relQuery", 10),
    ("(least..most)", 22),
    ("to first", 9),
    ("first row", 12),
    ("of it", 7),
    ("one token", 11),
    ("ready s", 9),
    ("prompt", 9),
    ("output", 9),
];

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableStyle {
    /// Aligned, for people who run it.
    Text,
    /// For a document.
    Markdown,
}

/// A line per server, in the order of their first laps: medians, their extremes, how many times the first server's
/// median they are, and the first row's part of the relQuery's time.
pub fn table(laps: &[Lap], style: TableStyle) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for lap in laps {
        if !servers.contains(&lap.server.as_str()) {
            servers.push(&lap.server);
        }
    }
    let row = |name: &str, cells: &[String]| match style {
        TableStyle::Text => {
            let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
            format!("{name:<24}{}\n", cells.collect::<String>())
        }
        TableStyle::Markdown => format!("| {name} | {} |\n", cells.join(" | ")),
    };
    let mut text = row("medians (ms)", &COLUMNS.map(|(title, _)| title.to_owned()));
    if style == TableStyle::Markdown {
        text += &format!("| --- |{}\n", " ---: |".repeat(COLUMNS.len()));
    }
    let (mut base, mut behind) = (None, String::new());
    for server in servers {
        let own: Vec<&Lap> = laps.iter().filter(|lap| lap.server == server).collect();
        let sound: Vec<&Lap> = own.iter().copied().filter(|lap| lap.failed.is_none()).collect();
        if let Some(line) = ServerLine::of(server, &sound, base) {
            base = base.or(Some(line.total));
            text += &row(line.server, &line.cells());
        }
        let failed: Vec<&String> = own.iter().filter_map(|lap| lap.failed.as_ref()).collect();
        if let Some(reason) = failed.first() {
            let told = format!("{} of {} failed: {reason}", failed.len(), own.len());
            match style {
                TableStyle::Text => text += &format!("{server:<24}{told}\n"),
                TableStyle::Markdown => behind += &format!("\n{server}: {told}\n"),
            }
        }
    }
    text + &behind
}

/// The median; of an even number the mean of both middles.
fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = sorted.get(half)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[half - 1] + upper) / 2.0 } else { *upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lap(server: &str, total_ms: f64, failed: Option<&str>) -> Lap {
        Lap {
            server: server.into(),
            ready_ms: Some(12_345.0),
            round: 1,
            index: 1,
            first_ms: Some(total_ms / 2.0),
            total_ms,
            one_ms: 7.0,
            prompt: Some(100),
            output: None,
            failed: failed.map(str::to_owned),
        }
    }

    #[test]
    fn the_table_divides_medians_by_the_first_servers_and_leaves_failed_laps_out() {
        let laps = [
            lap("a", 30.0, None),
            lap("a", 10.0, None),
            lap("a", 20.0, None),
            lap("b", 50.0, None),
            lap("b", 1.0, Some("HTTP 500")),
            lap("b", 70.0, None),
        ];
        let text = table(&laps, TableStyle::Text);
        let words = |line: usize| text.lines().nth(line).expect(&text).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1), ["a", "20", "(10..30)", "1.00", "10", "0.50", "7", "12.3", "100", "-"]);
        assert_eq!(words(2), ["b", "60", "(50..70)", "3.00", "30", "0.50", "7", "12.3", "100", "-"]);
        assert_eq!(words(3).join(" "), "b 1 of 3 failed: HTTP 500");
        let markdown = table(&laps, TableStyle::Markdown);
        let lines: Vec<&str> = markdown.lines().collect();
        let cells = |line: &str| line.matches('|').count();
        assert!(lines[..4].iter().all(|line| cells(line) == 11), "{markdown}");
        assert_eq!(lines[2], "| a | 20 | (10..30) | 1.00 | 10 | 0.50 | 7 | 12.3 | 100 | - |");
        assert_eq!(lines.last(), Some(&"b: 1 of 3 failed: HTTP 500"));
    }

    #[test]
    fn laps_of_several_races_stand_in_one_table_and_those_of_earlier_versions_have_no_start() {
        let before = r#"[{"server":"c","round":1,"index":1,"first_ms":null,"total_ms":90.0,"one_ms":4.0,"prompt":null,
            "output":null,"failed":null}]"#;
        let earlier: Vec<Lap> = serde_json::from_str(before).expect("laps as they were kept");
        let laps = [vec![lap("a", 30.0, None)], earlier].concat();
        let text = table(&laps, TableStyle::Text);
        let last: Vec<&str> = text.lines().nth(2).expect(&text).split_whitespace().collect();
        assert_eq!(last, ["c", "90", "(90..90)", "3.00", "-", "-", "4", "-", "-", "-"]);
    }
}
