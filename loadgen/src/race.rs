//! A race: servers, each started as its users would start it, one after another on the same machine, answer
//! the same relQueries one at a time. Rounds of all servers follow one another, so that what disturbs the
//! machine disturbs all.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::client::{self, Targets};
use crate::contest::{Contest, Contestant, Sent};
use crate::record::RelQueryOutcome;
use crate::scenario::Scenario;
use crate::single::{self, Route, named_model};
use crate::upstreams::RunningContestant;
use crate::workload::RelQuery;

/// What one relQuery took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lap {
    pub server: String,
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
            let server = RunningContestant::start(contest, contestant, timeout).await?;
            let runner = Runner::new(server.targets()?, contestant, scenario).await?;
            for relquery in trace {
                let lap = runner.lap(round, relquery).await;
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

/// A line per server: medians over its laps, their extremes, and how many times the first server's median
/// they are.
pub fn table(contest: &Contest, laps: &[Lap]) -> String {
    let mut text = format!(
        "{:<24}{:>10}{:>22}{:>9}{:>12}{:>11}{:>9}{:>9}\n",
        "medians (ms)", "relQuery", "(least..most)", "to first", "first row", "one token", "prompt", "output"
    );
    let mut base = None;
    for server in &contest.servers {
        let own: Vec<&Lap> = laps.iter().filter(|lap| lap.server == server.name).collect();
        let sound: Vec<&&Lap> = own.iter().filter(|lap| lap.failed.is_none()).collect();
        let sorted = |of: &dyn Fn(&Lap) -> Option<f64>| {
            let mut values: Vec<f64> = sound.iter().filter_map(|lap| of(lap)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let totals = sorted(&|lap| Some(lap.total_ms));
        if let (Some(least), Some(most), Some(total)) = (totals.first(), totals.last(), middle(&totals)) {
            let base = *base.get_or_insert(total);
            let first = middle(&sorted(&|lap| lap.first_ms)).unwrap_or(f64::NAN);
            let one = middle(&sorted(&|lap| Some(lap.one_ms))).unwrap_or(f64::NAN);
            let count = |of: &dyn Fn(&Lap) -> Option<u64>| {
                middle(&sorted(&|lap| of(lap).map(|tokens| tokens as f64)))
                    .map_or_else(|| "-".into(), |tokens| format!("{tokens:.0}"))
            };
            let (prompt, output) = (count(&|lap| lap.prompt), count(&|lap| lap.output));
            text += &format!(
                "{:<24}{total:>10.0}{:>22}{:>9.2}{first:>12.0}{one:>11.0}{prompt:>9}{output:>9}\n",
                server.name,
                format!("({least:.0}..{most:.0})"),
                total / base,
            );
        }
        let failed = own.iter().filter_map(|lap| lap.failed.as_ref());
        if let Some(reason) = failed.clone().next() {
            text += &format!("{:<24}{} of {} failed: {reason}\n", server.name, failed.count(), own.len());
        }
    }
    text
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
        let server =
            |name: &str| format!("[[servers]]\nname = \"{name}\"\ncommand = [\"x\"]\nsent = \"chat\"\n");
        let contest: Contest = toml::from_str(&(server("a") + &server("b"))).expect("sound");
        let laps = [
            lap("a", 30.0, None),
            lap("a", 10.0, None),
            lap("a", 20.0, None),
            lap("b", 50.0, None),
            lap("b", 1.0, Some("HTTP 500")),
            lap("b", 70.0, None),
        ];
        let text = table(&contest, &laps);
        let words = |line: usize| text.lines().nth(line).expect(&text).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1), ["a", "20", "(10..30)", "1.00", "10", "7", "100", "-"]);
        assert_eq!(words(2), ["b", "60", "(50..70)", "3.00", "30", "7", "100", "-"]);
        assert_eq!(words(3).join(" "), "b 1 of 3 failed: HTTP 500");
    }
}
