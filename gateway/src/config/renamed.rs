//! Names that settings had before: each is refused with the name that it has now.

use serving::config::{InvalidConfig, invalid};

/// Old name and new name, as paths of keys.
const RENAMED: [(&str, &str); 2] = [("executors", "replicas"), ("live.survey_ms", "live.snapshot_ms")];

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
        ] {
            let said = Config::parse(text, &|_| None).expect_err("an old name").to_string();
            assert!(said.contains(old) && said.contains(new), "{said}");
        }
    }
}
