//! `loadgen compare`: one trace under one policy after another.

use loadgen::Error;
use loadgen::compare::{Plan, compare};
use loadgen::html::{Run, page};
use loadgen::report::table;
use loadgen::summary::Summary;
use serde_json::json;

use super::files::{load, write, write_json};
use super::print;
use crate::cli::CompareArguments;

pub(super) async fn perform(arguments: CompareArguments) -> Result<bool, Error> {
    let CompareArguments { scenario, server, policies, rate, repeat, out } = arguments;
    let (scenario, trace) = load(&scenario, rate)?;
    let further = server.further();
    let plan = Plan { program: &server.program, arguments: &further, policies: &policies, repeat, out: &out };
    let (runs, states): (Vec<Run>, Vec<_>) = compare(&plan, &scenario, &trace).await?.into_iter().unzip();
    write(&out.join("report.html"), &page("loadgen: policies on one trace", &runs))?;
    let summaries: Vec<Summary> = runs.into_iter().map(|run| run.summary).collect();
    write_json(&out.join("comparison.json"), &json!({ "runs": summaries, "schedulers": states }))?;
    print(&table(&summaries));
    Ok(summaries.iter().all(Summary::is_sound))
}
