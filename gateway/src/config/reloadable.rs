//! What of another configuration a server takes while it runs.
//!
//! A key is here when all that it decides is decided by requests, statements, batches and rounds of upkeep that begin
//! later: each of these reads the configuration as it is then; or when what was built with its value is told another
//! (`CurrentApp::set_config`). What would go on with the value of the start (a listener, a cache, the engine) has no key
//! here. `limits.output_tokens_max` has none: by it replicas are told an open end from a shorter one.

use serving::config::ReplicaSettings;

use super::Config;

/// A key whose value a server takes while it runs.
struct ReloadableKey {
    /// As the file has it.
    name: &'static str,
    /// Puts the second configuration's value into the first.
    take: fn(&mut Config, &Config),
}

/// The keys of some sections, each with what copies it: a name without a field does not compile.
macro_rules! keys {
    ($($section:ident: $($key:ident)+;)+) => {
        &[$($(ReloadableKey {
            name: concat!(stringify!($section), ".", stringify!($key)),
            take: |config, found| config.$section.$key.clone_from(&found.$section.$key),
        },)+)+]
    };
}

/// All but lists of replicas, of which [`Config::replica_changes`] knows.
const KEYS: &[ReloadableKey] = keys! {
    server: body_ms_max hosts cors_origins keep_alive_ms drain_ms_max stuck_ms_max ready_without_store
        metrics_for_all;
    auth: remember_ms away_ms_max admin_key sign_in_ms_max sign_in_key_ms_max;
    limits: body_bytes_max bodies_bytes_max rows_max columns_max cell_bytes_max template_bytes_max
        schema_bytes_max schemas_bytes_max tenant_schemas_max tenant_schemas_bytes_max tenant_pinned_tokens_max
        prompt_sections_max query_nodes_max stops_max choices_max constraint_bytes_max tenant_constraints_max
        tenant_compile_ms_max queue_rows_max finished_max finished_rows_max tenant_ticket_bytes_max
        idempotency_keys_max idempotency_reply_bytes_max tenant_idempotency_bytes_max tenant_day_cell_tokens_max;
    store: flush_ms ticket_ms_max takes_max usage_days_max;
    cells: examples constraints calibration;
    openai: unknown_fields;
    reuse: repair_tokens;
    retrieval: prompt_price fragment_tokens corpora_max documents_max fragments_max bytes_max tenant_bytes_max
        document_bytes_max query_bytes_max results_max;
    sql: cached_only_scans ticket_bytes_max;
    bulk: requests_max file_bytes_max line_bytes_max tenant_files_max tenant_bytes_max tenant_batches_max
        rows_in_flight_max keep_ms_max bucket;
    workbooks: tenant_workbooks_max tenant_bytes_max versions_max version_ms shares_max share_ms_max;
};

/// Lists of replicas, as the file has them, places in lists left out.
const REPLICA_LISTS: [&str; 2] = ["replicas", "models.replicas"];

/// Whether a server takes a change of this key or section while it runs; the path is as the file has it, places in
/// lists left out: `bulk.bucket`.
pub fn is_reloadable(path: &str) -> bool {
    let is_of =
        |whole: &str| path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    KEYS.iter().map(|key| key.name).chain(REPLICA_LISTS).any(is_of)
}

/// Another list of replicas of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaListChange {
    /// The place of the model among those that are served.
    pub model: usize,
    /// The list, each with its name.
    pub replicas: Vec<ReplicaSettings>,
}

impl Config {
    /// This configuration with what of `found` a server takes while it runs; its replicas stay.
    pub fn reloaded(&self, found: &Self) -> Self {
        let mut config = self.clone();
        KEYS.iter().for_each(|key| (key.take)(&mut config, found));
        config
    }

    /// The lists of replicas that `found` has others of, of models that can take them while they run.
    pub fn replica_changes(&self, found: &Self) -> Vec<ReplicaListChange> {
        let mut changes = Vec::new();
        for (model, (section, backend)) in self.backends().into_iter().enumerate() {
            let mut config = self.clone();
            config.take_replicas(found, model);
            let backends = config.backends();
            // Without a replica of its own the model at the top is no model any more.
            let next = backends.get(model).filter(|(other, _)| *other == section);
            if let Some((_, next)) = next
                && next.replicas != backend.replicas
                && backend.can_take_replicas_of(next)
            {
                changes.push(ReplicaListChange { model, replicas: next.named_replicas() });
            }
        }
        changes
    }

    /// Takes the list of replicas of the model at this place, where `found` has the same model there.
    pub fn take_replicas(&mut self, found: &Self, model: usize) {
        let has_own = self.models.is_empty() || self.has_own_model();
        match model.checked_sub(usize::from(has_own)) {
            None => self.replicas.clone_from(&found.replicas),
            Some(place) => {
                if let (Some(own), Some(other)) = (self.models.get_mut(place), found.models.get(place))
                    && own.name == other.name
                {
                    own.replicas.clone_from(&other.replicas);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::changed_keys;
    use super::*;

    fn read(text: &str) -> Config {
        Config::parse(text, &|_| None).expect("it is valid")
    }

    /// Gives all numbers and switches of a table other values; texts may have to be certain words.
    fn change(table: &mut toml::Table) {
        for (_, value) in table {
            match value {
                toml::Value::Table(inner) => change(inner),
                toml::Value::Integer(number) => *number += 1,
                toml::Value::Boolean(is_on) => *is_on = !*is_on,
                toml::Value::Float(number) => *number /= 2.0,
                _ => {}
            }
        }
    }

    #[test]
    fn of_all_keys_that_change_the_named_ones_are_taken_and_no_others() {
        let own = read(
            "[auth]\nadmin_key = \"old\"\n[limits]\ntenant_day_cell_tokens_max = 5\n[store]\nusage_days_max = 500\n\
             [retrieval]\nprompt_price = 2.0\n",
        );
        let mut table = toml::Table::try_from(&own).expect("a table");
        change(&mut table);
        for (section, key) in [("server", "hosts"), ("server", "cors_origins"), ("sql", "cached_only_scans")]
        {
            table[section][key] = vec![toml::Value::from("superset")].into();
        }
        table["auth"]["admin_key"] = "new".into();
        table["auth"]["mode"] = "none".into();
        table["openai"]["unknown_fields"] = "refuse".into();
        table["scheduler"]["policy"] = "fcfs".into();
        let found: Config = table.try_into().expect("the same kinds");
        let next = own.reloaded(&found);
        let changed = changed_keys(&own, &found);
        let (taken, waiting): (Vec<String>, Vec<String>) =
            changed.into_iter().partition(|key| is_reloadable(key));
        assert_eq!(changed_keys(&own, &next), taken);
        assert_eq!(changed_keys(&next, &found), waiting);
        for key in KEYS {
            let is_there =
                taken.iter().any(|path| path == key.name || path.starts_with(&format!("{}.", key.name)));
            assert!(is_there, "{} does not differ", key.name);
        }
        for waits in
            ["auth.mode", "server.workers", "limits.output_tokens_max", "scheduler.policy", "sql.tickets_max"]
        {
            assert!(waiting.iter().any(|key| key == waits), "{waits}: {waiting:?}");
        }
    }

    #[test]
    fn a_key_is_told_from_one_that_begins_like_it_and_a_section_from_its_keys() {
        for (path, expected) in [
            ("limits.rows_max", true),
            ("limits.rows_max_more", false),
            ("limits", false),
            ("bulk.bucket", true),
            ("bulk.bucket.rows_max", true),
            ("bulk.running_max", false),
            ("replicas", true),
            ("models.replicas.url", true),
            ("models.name", false),
        ] {
            assert_eq!(is_reloadable(path), expected, "{path}");
        }
    }

    /// The models whose lists change, with the names in each.
    fn changes(own: &str, found: &str) -> Vec<(usize, Vec<String>)> {
        let changes = read(own).replica_changes(&read(found));
        let names =
            |change: ReplicaListChange| change.replicas.into_iter().filter_map(|one| one.name).collect();
        changes.into_iter().map(|change| (change.model, names(change))).collect()
    }

    #[test]
    fn replicas_are_taken_where_the_fleet_stays_one_of_the_same_model() {
        let a = "[model]\nname = \"m\"\n[[replicas]]\nurl = \"http://a\"\n";
        let b = "[[replicas]]\nurl = \"http://b\"\n";
        let both = format!("{a}{b}");
        assert!(changes(a, a).is_empty());
        assert_eq!(changes(a, &both), [(0, vec!["0".to_owned(), "1".to_owned()])]);
        assert_eq!(changes(&both, a), [(0, vec!["0".to_owned()])]);
        let named = format!("{a}name = \"n\"\nrows_max = 3\n");
        assert_eq!(changes(a, &named), [(0, vec!["n".to_owned()])]);
        let engine = "[model]\nname = \"m\"\n";
        let local = format!("{a}[[replicas]]\nkind = \"local\"\n");
        let other_model = format!("{a}model = \"n\"\n");
        let tokens = format!("{a}prompt = \"tokens\"\n");
        for (own, found, what) in [
            (engine, a, "there is no fleet yet"),
            (a, engine, "there would be none"),
            (a, local.as_str(), "the engine would have to be loaded"),
            (local.as_str(), a, "it would have to go"),
            (a, other_model.as_str(), "answers that are kept are another model's"),
            (a, tokens.as_str(), "prompts are of another form"),
        ] {
            assert!(changes(own, found).is_empty(), "{what}");
        }
    }

    #[test]
    fn each_of_several_models_has_a_list_of_its_own() {
        let models = |own: &str, first: &str, second: &str, name: &str| {
            let list = |url: &str| format!("[[models.replicas]]\nurl = \"http://{url}\"\n");
            format!(
                "{own}[[models]]\nname = \"x\"\n{}[[models]]\nname = \"{name}\"\n{}",
                list(first),
                list(second)
            )
        };
        let old = models("", "a", "b", "y");
        let name = |name: &str| vec![name.to_owned()];
        assert_eq!(changes(&old, &models("", "a", "c", "y")), [(1, name("y-0"))]);
        assert_eq!(changes(&old, &models("", "d", "c", "y")), [(0, name("x-0")), (1, name("y-0"))]);
        assert!(changes(&old, &models("", "a", "c", "z")).is_empty(), "that is another model");
        let own = "[[replicas]]\nurl = \"http://own\"\nmodel = \"m\"\n";
        let with_own = models(own, "a", "b", "y");
        assert!(changes(&old, &with_own).is_empty(), "there was no model at the top");
        assert!(changes(&with_own, &old).is_empty(), "there is one");
        let beside = models(&own.replace("own", "new"), "a", "c", "y");
        assert_eq!(changes(&with_own, &beside), [(0, name("0")), (2, name("y-0"))]);
        let (mut config, found) = (read(&old), read(&models("", "d", "c", "y")));
        config.take_replicas(&found, 1);
        assert_eq!(changed_keys(&read(&old), &config), ["models[1].replicas"]);
        assert_eq!(changed_keys(&config, &found), ["models[0].replicas"]);
    }
}
