//! `loadgen compare`: one trace under one policy after another.

use loadgen::Error;
use loadgen::compare::{ComparePlan, compare};
use loadgen::html::{RecordedRun, page};
use loadgen::report::table;
use loadgen::summary::RunSummary;
use serde_json::json;

use super::files::{load, write, write_json};
use super::print;
use crate::cli::CompareArguments;

pub(super) async fn perform(arguments: CompareArguments) -> Result<bool, Error> {
    let CompareArguments { scenario, server, policies, rate, repeat, out } = arguments;
    let (scenario, trace) = load(&scenario, rate)?;
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
