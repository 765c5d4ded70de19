//! Different servers on the same traces: each load's trace is replayed to every server, one after another on
//! the same machine. No run finds what an earlier one left in a cache: a server is started for its run, and
//! one that others stand in front of is started anew or told to forget.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;
use crate::client::{self, Targets};
use crate::contest::{Contest, Contestant};
use crate::fleet_replay::{MeasuredFleet, RowTimes};
use crate::html::RecordedRun;
use crate::record::Record;
use crate::replay::{Simulated, predict};
use crate::run::{Mode, run};
use crate::scenario::Scenario;
use crate::server::ServerProcess;
use crate::single::{self, Endpoint, Route, named_model};
use crate::summary::RunSummary;
use crate::upstreams::RunningUpstreams;
use crate::workload::RelQuery;

/// Rows and output tokens of the relQuery that warms a server up, on a template of its own: as many rows as
/// servers run at a time, because products of a size that they meet for the first time take longer.
const WARM_UP_ROWS: usize = 64;
const WARM_UP_TOKENS: u32 = 32;

/// The policy whose choices hang on the clock: the simulator cannot say which it would have made.
const AUTO: &str = "auto";

/// A load: a scenario at a rate of arrivals, and its trace.
pub struct Load {
    /// What the trace was made of.
    pub scenario: Scenario,
    /// The relQueries, the same for every server.
    pub trace: Vec<RelQuery>,
    /// Names of the servers that run at it; empty: all.
    pub only: Vec<String>,
}

impl Load {
    fn takes(&self, server: &Contestant) -> bool {
        self.only.is_empty() || self.only.contains(&server.name)
    }

    /// Output tokens of all rows, where every row is as long as it may be.
    pub fn output_tokens(&self) -> Option<u64> {
        let has_length = self.trace.iter().all(|relquery| relquery.ignore_eos);
        has_length.then(|| self.trace.iter().map(RelQuery::output_tokens_max).sum())
    }
}

/// One server's run of one load's trace.
pub struct PeerRun {
    /// RelQueries per second.
    pub rate_per_s: f64,
    /// Share of prompt tokens that a prefix cache supplied, by the count of the server that has it.
    pub hit: Option<f64>,
    /// What became of the relQueries; named as the server.
    pub recorded: RecordedRun,
}

impl PeerRun {
    /// Its figures.
    pub fn summary(&self) -> &RunSummary {
        &self.recorded.summary
    }

    /// The run as JSON, without its relQueries.
    pub fn json(&self) -> Value {
        json!({ "rate_per_s": self.rate_per_s, "hit": self.hit, "summary": self.summary() })
    }
}

/// The servers of a contest under some policies.
pub struct Peers<'a> {
    /// Who runs behind them.
    pub contest: &'a Contest,
    /// The servers, their policies filled in.
    pub servers: &'a [Contestant],
    /// Where the records go: a folder per load, and in it one per server.
    pub out: &'a Path,
}

impl Peers<'_> {
    /// Runs every load on its servers: first those on the first server's upstreams, load by load, then those on
    /// others. `tell` gets each run as it ends.
    pub async fn compare(
        &self,
        loads: &[Load],
        mut tell: impl FnMut(&PeerRun),
    ) -> Result<Vec<PeerRun>, Error> {
        let mut groups: Vec<&[String]> = Vec::new();
        for server in self.servers {
            if !groups.contains(&server.upstreams.as_slice()) {
                groups.push(&server.upstreams);
            }
        }
        let mut runs = Vec::new();
        for names in groups {
            let mut behind = RunningUpstreams::of(self.contest, names);
            let servers = || self.servers.iter().filter(|server| server.upstreams == names);
            for (load, server) in loads.iter().flat_map(|load| servers().map(move |one| (load, one))) {
                if !load.takes(server) {
                    continue;
                }
                behind.refresh(timeout(load)).await?;
                let run = self.one(load, server, &mut behind).await?;
                tell(&run);
                runs.push(run);
            }
            behind.stop().await?;
        }
        Ok(runs)
    }

    /// One run, after a warm-up.
    async fn one(
        &self,
        load: &Load,
        server: &Contestant,
        behind: &mut RunningUpstreams<'_>,
    ) -> Result<PeerRun, Error> {
        let rate_per_s = load.scenario.rate_per_s;
        let dir = self.out.join(format!("{rate_per_s}")).join(file_name(&server.name));
        std::fs::create_dir_all(&dir).map_err(|error| Error::file(&dir, error))?;
        let own = server.start(behind.servers(), timeout(load)).await?;
        if behind.servers().len() > 1 {
            warm_up_each(behind, server, load).await?;
        }
        let targets = behind.targets(own.as_ref())?;
        let mode = warm_up(&targets, server, load).await?;
        behind.reset().await?;
        let before = behind.prefix_counts().await;
        let times = RowTimes::read(own.as_ref(), behind.servers()).await;
        let lines = dir.join("requests.jsonl");
        let (records, happened) = tokio::join!(
            run(targets, &load.scenario, mode, &load.trace, &lines),
            behind.happen(server, own.as_ref(), timeout(load)),
        );
        happened?;
        let records = records?;
        // Those that were killed or came count from another beginning.
        let after = if server.events.is_empty() { behind.prefix_counts().await } else { None };
        let mut summary = RunSummary::of(&server.name, &records);
        if let Some(own) = own.as_ref().filter(|_| server.events.is_empty()) {
            summary.simulated = simulated((load, &records), server, own, (behind, times)).await;
        }
        if let Some(own) = own {
            own.stop().await?;
        }
        summary.errors.extend(wrong_length(load, &summary));
        summary.errors.extend(late_event(server, &records));
        let by_upstreams = before.zip(after).and_then(|(before, after)| {
            let asked = after.asked - before.asked;
            (asked > 0.0).then(|| (after.hit - before.hit) / asked)
        });
        let hit = by_upstreams.or(summary.hit());
        Ok(PeerRun { rate_per_s, hit, recorded: RecordedRun { summary, records } })
    }
}

/// What the simulator says of the run, where its servers say what it needs to know.
async fn simulated(
    (load, records): (&Load, &[Record]),
    server: &Contestant,
    own: &ServerProcess,
    (behind, before): (&RunningUpstreams<'_>, Option<RowTimes>),
) -> Option<Simulated> {
    let state = own.scheduler().await?;
    if behind.servers().is_empty() {
        let policy = state["configured_policy"].as_str().filter(|policy| *policy != AUTO)?;
        return predict(&load.trace, records, &state, policy);
    }
    let times = [before?, RowTimes::read(Some(own), behind.servers()).await?];
    let mut replicas = Vec::new();
    for upstream in behind.servers() {
        replicas.push(upstream.scheduler().await?);
    }
    MeasuredFleet::of(server, &state, &replicas, times)?.predict(&load.trace, records)
}

/// A relQuery whose prompts begin as none of the trace.
fn warm_up_relquery(server: &Contestant, load: &Load) -> Result<RelQuery, Error> {
    let fail = |reason: &str| Error::Server { name: server.name.clone(), reason: reason.into() };
    let first = load.trace.first().ok_or_else(|| fail("the trace is empty"))?;
    Ok(RelQuery {
        template: format!("Warm up. {}", first.template),
        rows: first.rows.iter().cycle().take(WARM_UP_ROWS).cloned().collect(),
        max_tokens: WARM_UP_TOKENS,
        ignore_eos: true,
        choices: Vec::new(),
        ..first.clone()
    })
}

/// Warms each upstream up by itself: what is in front of several may send them anything or nothing.
async fn warm_up_each(behind: &RunningUpstreams<'_>, server: &Contestant, load: &Load) -> Result<(), Error> {
    let relquery = warm_up_relquery(server, load)?;
    for upstream in behind.servers() {
        let model = named_model(&upstream.target, &load.scenario).await?;
        let (endpoint, choice) = (Endpoint::Completions, server.choice);
        let route = Route { endpoint, choice, model: &model, priority: None };
        let (outcome, _) =
            single::send(&upstream.target.clone().into(), route, &load.scenario, &relquery).await;
        if let Some(reason) = outcome.error.or(outcome.row_error) {
            return Err(Error::Server { name: upstream.name().to_owned(), reason });
        }
    }
    Ok(())
}

/// Sends what warms up, and gives the mode in which the trace is sent.
async fn warm_up(targets: &Targets, server: &Contestant, load: &Load) -> Result<Mode, Error> {
    let fail = |reason: String| Error::Server { name: server.name.clone(), reason };
    let relquery = warm_up_relquery(server, load)?;
    let Some(endpoint) = server.sent.endpoint() else {
        let (outcome, _) = client::send(targets.in_turn(), &load.scenario, &relquery).await;
        return outcome.error.or(outcome.row_error).map_or(Ok(Mode::RelQuery), |reason| Err(fail(reason)));
    };
    let model = named_model(targets.in_turn(), &load.scenario).await?;
    let route = Route { endpoint, choice: server.choice, model: &model, priority: None };
    let (outcome, _) = single::send(targets, route, &load.scenario, &relquery).await;
    if let Some(reason) = outcome.error.or(outcome.row_error) {
        return Err(fail(reason));
    }
    let tokens = outcome.tokens.prompt.map(|tokens| tokens as f64 / relquery.prompt_chars() as f64);
    let tokens_per_char = match server.priority {
        Some(_) => Some(tokens.ok_or_else(|| fail("it does not count prompt tokens".into()))?),
        None => None,
    };
    Ok(Mode::Single { endpoint, choice: server.choice, model, tokens_per_char })
}

/// An event that came after the last answer, so that the run shows nothing of it.
fn late_event(server: &Contestant, records: &[Record]) -> Option<String> {
    let at_s = server.events.last()?.at_s;
    let ends = records.iter().filter_map(|record| Some(record.arrival_ms + record.latency_ms?));
    let last_s = ends.fold(0.0, f64::max) / 1e3;
    (at_s > last_s).then(|| format!("the event at {at_s} s came after the last answer, at {last_s:.1} s"))
}

/// What is wrong with the output's length, where the trace decides it.
fn wrong_length(load: &Load, summary: &RunSummary) -> Option<String> {
    let wanted = load.output_tokens()?;
    let reported = summary.tokens.output;
    (reported != Some(wanted)).then(|| format!("output tokens: {reported:?}, and {wanted} were asked for"))
}

fn timeout(load: &Load) -> Duration {
    Duration::from_millis(load.scenario.timeout_ms)
}

/// A name that is a folder's: letters, digits, and a hyphen for whatever stands between them.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::record;

    #[test]
    fn an_event_after_the_last_answer_is_told() {
        let text = "name = \"a\"\ncommand = [\"x\"]\nsent = \"rel_query\"\nupstreams = [\"v\"]\n\
                    events = [{ at_s = 0.5, kill = \"v\" }, { at_s = 1.5, kill = \"v\" }]";
        let server: Contestant = toml::from_str(text).expect("sound");
        let records = [record(0, Some(100.0)), record(1, Some(501.0))];
        assert_eq!(late_event(&server, &records), None);
        let late = late_event(&server, &records[..1]).expect("the run ended at 0.1 s");
        assert!(late.contains("the event at 1.5 s"), "{late}");
        assert_eq!(late_event(&Contestant { events: Vec::new(), ..server }, &records), None);
    }
}
