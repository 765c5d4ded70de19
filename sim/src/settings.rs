//! Settings by name, as a command line has them: policies, and any field of the scheduler's
//! configuration by its dotted path. It must not know where the text comes from.

use scheduler::{Policy, SchedulerConfig, UnknownPolicy};
use serde_json::{Map, Value};

/// A setting that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    Form(String),
    /// No such field.
    #[error("`{key}` is no setting; there are {known}")]
    Unknown {
        /// As written.
        key: String,
        /// The fields at that place.
        known: String,
    },
    /// A value that the field cannot have.
    #[error("`{key}` cannot be {value}: {reason}")]
    Value {
        /// The field.
        key: String,
        /// As written.
        value: String,
        /// Why not.
        reason: String,
    },
    /// A field that has another name now.
    #[error("`{0}` is called `{1}` now")]
    Renamed(String, &'static str),
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

/// Sets one field: `sequences_max=64`, `marginal_work.marginal_key=false`, `unit_waiting_ms_max=null`. Values
/// are JSON; what is not is taken as a word.
pub fn set(config: &mut SchedulerConfig, assignment: &str) -> Result<(), SettingError> {
    let form = || SettingError::Form(assignment.to_owned());
    let (key, text) = assignment.split_once('=').ok_or_else(form)?;
    let (key, text) = (key.trim(), text.trim());
    let reason = |error: &dyn std::fmt::Display| SettingError::Value {
        key: key.to_owned(),
        value: text.to_owned(),
        reason: error.to_string(),
    };
    let mut whole = serde_json::to_value(&*config).map_err(|error| reason(&error))?;
    let mut place = &mut whole;
    for name in key.split('.') {
        if let Some(new) = SchedulerConfig::new_name_of(name) {
            return Err(SettingError::Renamed(name.to_owned(), new));
        }
        let known = place.as_object().map(listed);
        let unknown = || SettingError::Unknown {
            key: key.to_owned(),
            known: known.clone().unwrap_or_else(|| "no fields in it".to_owned()),
        };
        place = place.as_object_mut().and_then(|fields| fields.get_mut(name)).ok_or_else(unknown)?;
    }
    *place = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let changed: SchedulerConfig = serde_json::from_value(whole).map_err(|error| reason(&error))?;
    changed.validate().map_err(|error| reason(&error))?;
    *config = changed;
    Ok(())
}

/// The names of fields, sorted here: how `serde_json` orders a map depends on which crates are built with it.
fn listed(fields: &Map<String, Value>) -> String {
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(", ")
}

/// `all`, or names with commas between them; those of the reference results are known too.
pub fn policies(names: &str) -> Result<Vec<Policy>, SettingError> {
    if names == "all" {
        return Ok(Policy::ALL.to_vec());
    }
    names.split(',').map(|name| policy(name.trim())).collect()
}

fn policy(name: &str) -> Result<Policy, SettingError> {
    let alias = match name {
        "vllm" => "fcfs",
        "vllm-sp" => "static-priority",
        "vllm-sp-weak" => "static-priority-weak",
        name => name,
    };
    Ok(alias.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(assignment: &str, expected: Result<(), &str>) {
        let mut config = SchedulerConfig::default();
        let got = set(&mut config, assignment).map_err(|error| error.to_string());
        match expected {
            Ok(()) => assert_eq!(got, Ok(()), "{assignment}"),
            Err(part) => {
                assert!(got.as_ref().is_err_and(|error| error.contains(part)), "{assignment}: {got:?}");
                assert_eq!(config, SchedulerConfig::default(), "nothing is set by halves");
            }
        }
    }

    #[test]
    fn any_field_can_be_set_and_a_wrong_one_is_named() {
        let mut config = SchedulerConfig::default();
        set(&mut config, "sequences_max=64").expect("a field");
        set(&mut config, "unit_waiting_ms_max = 500").expect("a field");
        set(&mut config, "marginal_work.marginal_key=false").expect("a field of a field");
        assert_eq!(config.sequences_max, 64);
        assert_eq!(config.unit_waiting_ms_max, Some(base::Millis(500)));
        assert!(!config.marginal_work.marginal_key);
        check("unit_waiting_ms_max=null", Ok(()));
        check("sequences_max", Err("not of the form key=value"));
        check("sequence_max=1", Err("there are attempts_max, auto, block_tokens"));
        check("marginal_work.nonsense=1", Err("`marginal_work.nonsense` is no setting; there are"));
        check("ours.marginal_key=false", Err("`ours` is called `marginal_work` now"));
        check("sequences_max.deeper=1", Err("no fields in it"));
        check("sequences_max=many", Err("`sequences_max` cannot be many"));
        check("sequences_max=-1", Err("invalid value: integer `-1`"));
        check("watermark_permille=1000", Err("must be below 1000"));
    }

    #[test]
    fn policies_are_known_by_both_names() {
        assert_eq!(policies("all"), Ok(Policy::ALL.to_vec()));
        assert_eq!(policies("marginal-work, vllm"), Ok(vec![Policy::MarginalWork, Policy::Fcfs]));
        assert_eq!(policies("static-priority-weak"), Ok(vec![Policy::StaticPriorityWeak]));
        let error = policies("marginal-work,best").expect_err("no such policy").to_string();
        assert!(error.starts_with("policy `best` is not one of fcfs, sarathi"), "{error}");
    }
}
