//! `loadgen run`: a scenario to a running server.

use std::time::Duration;

use loadgen::Error;
use loadgen::client::ApiTarget;
use loadgen::html::{RecordedRun, page};
use loadgen::run::{Mode, run};
use loadgen::single::{ChoiceField, named_model};
use loadgen::summary::RunSummary;

use super::files::{create_folder, load, write, write_json};
use super::print;
use crate::cli::{ModeName, RunArguments};

pub(super) async fn perform(arguments: RunArguments) -> Result<bool, Error> {
    let RunArguments { scenario, url, key, mode, endpoint, rate, out } = arguments;
    let (scenario, trace) = load(&scenario, rate)?;
    let target = ApiTarget::new(&url, key, Duration::from_millis(scenario.timeout_ms))?;
    let (name, mode) = match mode {
        ModeName::Relquery => ("relquery", Mode::RelQuery),
        ModeName::Single => {
            let model = named_model(&target, &scenario).await?;
            let choice = ChoiceField::default();
            ("single", Mode::Single { endpoint, choice, model, tokens_per_char: None })
        }
    };
    create_folder(&out)?;
    let records = run(target, &scenario, mode, &trace, &out.join("requests.jsonl")).await?;
    let summary = RunSummary::of(name, &records);
    print(&summary.text());
    write_json(&out.join("summary.json"), &summary)?;
    let sound = summary.is_sound();
    write(&out.join("report.html"), &page("loadgen", &[RecordedRun { summary, records }]))?;
    Ok(sound)
}
