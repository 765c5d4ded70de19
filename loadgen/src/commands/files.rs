//! The files that commands read and write. It must not know what stands in them.

use std::path::Path;

use loadgen::Error;
use loadgen::scenario::Scenario;
use loadgen::table::SourceTable;
use loadgen::workload::{RelQuery, trace};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The scenario of a file, and its trace.
pub(super) fn load(path: &Path, rate: Option<f64>) -> Result<(Scenario, Vec<RelQuery>), Error> {
    let mut scenario = Scenario::load(path)?;
    scenario.rate_per_s = rate.unwrap_or(scenario.rate_per_s);
    scenario.validate()?;
    let tables: Vec<SourceTable> = scenario
        .tables
        .iter()
        .map(|spec| SourceTable::load(spec, scenario.seed))
        .collect::<Result<_, _>>()?;
    let trace = trace(&scenario, &tables);
    Ok((scenario, trace))
}

/// A folder, and those above it, where they are not there yet.
pub(super) fn create_folder(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|error| Error::file(path, error))
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    serde_json::from_str(&text).map_err(|error| Error::file(path, error))
}

pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::file(path, error))?;
    write(path, &(text + "\n"))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::file(path, error))
}
