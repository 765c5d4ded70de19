//! Names that settings had before: each is refused with the name that it has now.

use serving::config::{InvalidConfig, invalid};

/// Old name and new name, as paths of keys.
const RENAMED: [(&str, &str); 6] = [
    ("executors", "replicas"),
    ("live.survey_ms", "live.snapshot_ms"),
    ("fleet.age_half_ms", "scheduler.marginal_work.age_half_ms"),
    ("fleet.tenant_lag_tokens_max", "scheduler.marginal_work.tenant_lag_ms_max"),
    ("fleet.dashboard_wait_ms_max", "scheduler.marginal_work.dashboard_wait_ms_max"),
    ("fleet.bulk_wait_ms_max", "scheduler.marginal_work.bulk_wait_ms_max"),
];

/// Refuses a table that still has an old name.
pub(super) fn refuse_old_names(table: &toml::Table) -> Result<(), InvalidConfig> {
    match RENAMED.iter().find(|(old, _)| has(table, old)) {
        Some((old, new)) => Err(invalid(old, &format!("is now called `{new}`"))),
        None => Ok(()),
    }
}

fn has(table: &toml::Table, path: &str) -> bool {
    match path.split_once('.') {
        Some((section, rest)) => {
            table.get(section).and_then(toml::Value::as_table).is_some_and(|section| has(section, rest))
        }
        None => table.contains_key(path),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn an_old_name_is_refused_with_the_new_one() {
        for (text, old, new) in [
            ("[[executors]]\nurl = \"http://a\"", "`executors`", "`replicas`"),
            ("[live]\nsurvey_ms = 9", "`live.survey_ms`", "`live.snapshot_ms`"),
            ("[fleet]\nage_half_ms = 9", "`fleet.age_half_ms`", "`scheduler.marginal_work.age_half_ms`"),
        ] {
            let error = Config::parse(text, &|_| None).expect_err("an old name").to_string();
            assert!(error.contains(old) && error.contains(new), "{error}");
        }
    }
}
