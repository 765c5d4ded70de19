//! What of a configuration is another one's.

use std::collections::BTreeSet;

use super::Config;

/// The list whose entries are compared one by one.
const MODELS: &str = "models";

/// The keys, as the file names them, whose values differ. Values are not told: some are secrets.
pub fn changed_keys(old: &Config, new: &Config) -> Vec<String> {
    let mut found = Vec::new();
    if let (Ok(old), Ok(new)) = (toml::Table::try_from(old), toml::Table::try_from(new)) {
        compare("", &old, &new, &mut found);
    }
    found
}

fn compare(place: &str, old: &toml::Table, new: &toml::Table, found: &mut Vec<String>) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let at = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
        match (old.get(key), new.get(key)) {
            (Some(toml::Value::Table(old)), Some(toml::Value::Table(new))) => compare(&at, old, new, found),
            (old, new) if old == new => {}
            // Each model's sections are as much as one configuration's.
            (Some(toml::Value::Array(old)), Some(toml::Value::Array(new)))
                if at == MODELS && old.len() == new.len() =>
            {
                for (index, pair) in old.iter().zip(new).enumerate() {
                    if let (toml::Value::Table(old), toml::Value::Table(new)) = pair {
                        compare(&format!("{at}[{index}]"), old, new, found);
                    }
                }
            }
            _ => found.push(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_named_and_no_others() {
        let read = |text: &str| Config::parse(text, &|_| None).expect("it is valid");
        let old = read("[server]\nworkers = 3\n[cache]\n[[replicas]]\nurl = \"http://a\"\n");
        assert_eq!(changed_keys(&old, &old), Vec::<String>::new());
        let new = read("[server]\nworkers = 4\nunix_socket = \"/a\"\n[scheduler]\npolicy = \"fcfs\"\n");
        let found = changed_keys(&old, &new);
        assert_eq!(found, ["replicas", "scheduler.policy", "server.unix_socket", "server.workers"]);
        let models = |names: &[&str]| {
            let of = |name: &&str| format!("[[models]]\nname = \"{name}\"\n");
            read(&names.iter().map(of).collect::<String>())
        };
        assert_eq!(changed_keys(&models(&["a", "b"]), &models(&["a", "c"])), ["models[1].name"]);
        assert_eq!(changed_keys(&models(&["a", "b"]), &models(&["a"])), ["models"]);
    }
}
