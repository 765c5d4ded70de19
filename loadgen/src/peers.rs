//! Different servers on the same traces: each load's trace is replayed to every server, one after another on
//! the same machine. No run finds what an earlier one left in a cache: a server is started for its run, and
//! one that others stand in front of is started anew or told to forget.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;
use crate::client::{self, ApiTarget};
use crate::contest::{Contest, Contestant, Upstream};
use crate::html::RecordedRun;
use crate::run::{Mode, run};
use crate::scenario::Scenario;
use crate::server::{PrefixCounts, ServerProcess};
use crate::single::{self, Route, named_model};
use crate::summary::RunSummary;
use crate::workload::RelQuery;

/// Rows and output tokens of the relQuery that warms a server up, on a template of its own: as many rows as
/// servers run at a time, because products of a size that they meet for the first time take longer.
const WARM_UP_ROWS: usize = 64;
const WARM_UP_TOKENS: u32 = 32;

/// A load: a scenario at a rate of arrivals, and its trace.
pub struct Load {
    /// What the trace was made of.
    pub scenario: Scenario,
    /// The relQueries, the same for every server.
    pub trace: Vec<RelQuery>,
}

impl Load {
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
    /// Runs every load on every server: first those on the first upstream, load by load, then those on the
    /// next, in the end those without one. `tell` gets each run as it ends.
    pub async fn compare(
        &self,
        loads: &[Load],
        mut tell: impl FnMut(&PeerRun),
    ) -> Result<Vec<PeerRun>, Error> {
        let mut runs = Vec::new();
        for upstream in self.contest.upstreams.iter().map(Some).chain([None]) {
            let on_it = |server: &&Contestant| {
                server.upstream.as_ref() == upstream.map(|upstream: &Upstream| &upstream.name)
            };
            let servers: Vec<&Contestant> = self.servers.iter().filter(on_it).collect();
            let mut behind: Option<ServerProcess> = None;
            for (load, server) in loads.iter().flat_map(|load| servers.iter().map(move |one| (load, *one))) {
                if let Some(upstream) = upstream {
                    behind = Some(fresh(upstream, behind.take(), timeout(load)).await?);
                }
                let run = self.one(load, server, upstream, behind.as_ref()).await?;
                tell(&run);
                runs.push(run);
            }
            if let Some(server) = behind {
                server.stop().await?;
            }
        }
        Ok(runs)
    }

    /// One run, after a warm-up.
    async fn one(
        &self,
        load: &Load,
        server: &Contestant,
        upstream: Option<&Upstream>,
        behind: Option<&ServerProcess>,
    ) -> Result<PeerRun, Error> {
        let rate_per_s = load.scenario.rate_per_s;
        let dir = self.out.join(format!("{rate_per_s}")).join(file_name(&server.name));
        std::fs::create_dir_all(&dir).map_err(|error| Error::file(&dir, error))?;
        let own = server.start(behind, timeout(load)).await?;
        let asked = own.as_ref().or(behind).map(|server| server.target.clone());
        let target = asked.ok_or_else(|| Error::Client(format!("`{}` has no command", server.name)))?;
        let mode = warm_up(&target, server, load).await?;
        if let (Some(behind), Some(path)) = (behind, upstream.and_then(|upstream| upstream.reset.as_ref())) {
            behind.reset(path).await?;
        }
        let before = counts(behind).await;
        let records = run(target, &load.scenario, mode, &load.trace, &dir.join("requests.jsonl")).await?;
        let after = counts(behind).await;
        if let Some(own) = own {
            own.stop().await?;
        }
        let mut summary = RunSummary::of(&server.name, &records);
        if let Some(wrong) = wrong_length(load, &summary) {
            summary.errors.push(wrong);
        }
        let by_upstream = before.zip(after).and_then(|(before, after)| {
            let asked = after.asked - before.asked;
            (asked > 0.0).then(|| (after.hit - before.hit) / asked)
        });
        let hit = by_upstream.or(summary.hit());
        Ok(PeerRun { rate_per_s, hit, recorded: RecordedRun { summary, records } })
    }
}

/// An upstream whose cache is empty: it was never asked, will be reset after the warm-up, or is started anew.
async fn fresh(
    upstream: &Upstream,
    running: Option<ServerProcess>,
    timeout: Duration,
) -> Result<ServerProcess, Error> {
    match running {
        Some(server) if upstream.reset.is_some() => Ok(server),
        Some(server) => {
            server.stop().await?;
            upstream.start(timeout).await
        }
        None => upstream.start(timeout).await,
    }
}

/// Sends a relQuery whose prompts begin as none of the trace, and gives the mode in which the trace is sent.
async fn warm_up(target: &ApiTarget, server: &Contestant, load: &Load) -> Result<Mode, Error> {
    let fail = |reason: String| Error::Server { name: server.name.clone(), reason };
    let first = load.trace.first().ok_or_else(|| fail("the trace is empty".into()))?;
    let mut relquery = first.clone();
    relquery.template = format!("Warm up. {}", first.template);
    relquery.rows = first.rows.iter().cycle().take(WARM_UP_ROWS).cloned().collect();
    (relquery.max_tokens, relquery.ignore_eos) = (WARM_UP_TOKENS, true);
    relquery.choices = Vec::new();
    let Some(endpoint) = server.sent.endpoint() else {
        let (outcome, _) = client::send(target, &load.scenario, &relquery).await;
        return outcome.error.or(outcome.row_error).map_or(Ok(Mode::RelQuery), |reason| Err(fail(reason)));
    };
    let model = named_model(target, &load.scenario).await?;
    let route = Route { endpoint, choice: server.choice, model: &model, priority: None };
    let (outcome, _) = single::send(target, route, &load.scenario, &relquery).await;
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

async fn counts(server: Option<&ServerProcess>) -> Option<PrefixCounts> {
    server?.prefix_counts().await
}

/// What is wrong with the output's length, where the trace decides it.
fn wrong_length(load: &Load, summary: &RunSummary) -> Option<String> {
    let wanted = load.output_tokens()?;
    let told = summary.tokens.output;
    (told != Some(wanted)).then(|| format!("output tokens: {told:?}, and {wanted} were asked for"))
}

fn timeout(load: &Load) -> Duration {
    Duration::from_millis(load.scenario.timeout_ms)
}

/// A name that is a folder's: letters, digits, and a hyphen for whatever stands between them.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
