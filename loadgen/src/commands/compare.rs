//! `loadgen compare`: one trace under one policy after another, or on different servers.

use loadgen::Error;
use loadgen::compare::{ComparePlan, compare};
use loadgen::contest::Contest;
use loadgen::html::{RecordedRun, document, page};
use loadgen::peers::{Load, PeerRun, Peers};
use loadgen::peers_report;
use loadgen::plot::escape;
use loadgen::report::table;
use loadgen::summary::RunSummary;
use serde_json::json;

use super::files::{create_folder, load, write, write_json};
use super::print;
use crate::cli::{CompareArguments, ProgramArguments};

pub(super) async fn perform(arguments: CompareArguments) -> Result<bool, Error> {
    match arguments.program() {
        Some(program) => policies(&program, arguments).await,
        None => servers(arguments).await,
    }
}

/// One server under several policies.
async fn policies(server: &ProgramArguments, arguments: CompareArguments) -> Result<bool, Error> {
    let CompareArguments { scenario, policies, rate, repeat, out, .. } = arguments;
    if rate.len() > 1 {
        let reason = "one alone, or --servers";
        return Err(Error::Scenario { field: "--rate".into(), reason: reason.into() });
    }
    let (scenario, trace) = load(&scenario, rate.first().copied())?;
    let further = server.further();
    let plan =
        ComparePlan { program: &server.program, arguments: &further, policies: &policies, repeat, out: &out };
    let (runs, states): (Vec<RecordedRun>, Vec<_>) =
        compare(&plan, &scenario, &trace).await?.into_iter().unzip();
    write(&out.join("report.html"), &page("loadgen: policies on one trace", &runs))?;
    let summaries: Vec<RunSummary> = runs.into_iter().map(|run| run.summary).collect();
    write_json(&out.join("comparison.json"), &json!({ "runs": summaries, "schedulers": states }))?;
    print(&table(&summaries));
    Ok(summaries.iter().all(RunSummary::is_sound))
}

/// Different servers, at one load after another.
async fn servers(arguments: CompareArguments) -> Result<bool, Error> {
    let CompareArguments { scenario, servers, only, policies, rate, out, .. } = arguments;
    // clap asks for one of both.
    let file = servers.unwrap_or_default();
    let contest = Contest::load(&file)?;
    let mut chosen = contest.under(&policies);
    if let Some(name) = only.iter().find(|name| chosen.iter().all(|server| server.name != **name)) {
        return Err(Error::Scenario {
            field: "--only".into(),
            reason: format!("no server is called `{name}`"),
        });
    }
    chosen.retain(|server| only.is_empty() || only.contains(&server.name));
    let mut loads = Vec::new();
    for (rate, only) in rates(&contest, &rate) {
        if let Some(name) = only.iter().find(|name| contest.under(&policies).iter().all(|s| s.name != **name))
        {
            return Err(Error::file(&file, format!("`loads.only`: no server is called `{name}`")));
        }
        let (scenario, trace) = load(&scenario, rate)?;
        loads.push(Load { scenario, trace, only });
    }
    create_folder(&out)?;
    let tell = |run: &PeerRun| {
        let mean = run.summary().mean_ms().unwrap_or(f64::NAN);
        // Without it, a server tells too little: of single replicas only under `server.metrics_for_all`.
        let without = if run.summary().simulated.is_none() { ", not simulated" } else { "" };
        eprintln!("{} per s, {}: mean {mean:.0} ms{without}", run.rate_per_s, run.summary().name);
    };
    let peers = Peers { contest: &contest, servers: &chosen, out: &out };
    let mut runs = peers.compare(&loads, tell).await?;
    let text = peers_report::table(&loads, &runs, &contest.baselines);
    let chart = peers_report::chart(&runs);
    let body = format!("<h1>Servers on the same traces</h1>{}<pre>{}</pre>", chart.svg(), escape(&text));
    write(&out.join("report.html"), &document("loadgen: servers on the same traces", &body))?;
    write(&out.join("latency.svg"), &chart.file())?;
    write(&out.join("latency.csv"), &peers_report::csv(&runs)?)?;
    write_json(&out.join("comparison.json"), &runs.iter().map(PeerRun::json).collect::<Vec<_>>())?;
    print(&text);
    let is_sound = peers_report::is_sound(&runs);
    for load in &loads {
        let rate = load.scenario.rate_per_s;
        let (own, others): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.rate_per_s == rate);
        runs = others;
        let own: Vec<RecordedRun> = own.into_iter().map(|run| run.recorded).collect();
        let title = format!("loadgen: {} relQueries, {rate} per s", load.trace.len());
        write(&out.join(format!("{rate}")).join("report.html"), &page(&title, &own))?;
    }
    Ok(is_sound)
}

/// The loads and who runs at each: the rates of the command line, or else those of the servers' file, or else
/// the scenario's own. The servers of a rate that the file names too are those of the file.
fn rates(contest: &Contest, asked: &[f64]) -> Vec<(Option<f64>, Vec<String>)> {
    let named = |rate: f64| {
        let spec = contest.loads.iter().find(|load| load.rate_per_s == rate);
        (Some(rate), spec.map_or_else(Vec::new, |load| load.only.clone()))
    };
    if !asked.is_empty() {
        return asked.iter().copied().map(named).collect();
    }
    if contest.loads.is_empty() {
        return vec![(None, Vec::new())];
    }
    contest.loads.iter().map(|load| named(load.rate_per_s)).collect()
}
