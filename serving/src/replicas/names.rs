//! What replicas are called, over all models of a gateway: routes and metrics know them by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::config::{InvalidConfig, invalid};

/// The names of each model's replicas.
#[derive(Debug, Default)]
pub struct ReplicaNames(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl ReplicaNames {
    /// A model's replicas have these names from now on, in place of those that they had; or nothing changes,
    /// where another model's replica has one of them.
    pub fn take<'a>(&self, model: &str, names: impl Iterator<Item = &'a str>) -> Result<(), InvalidConfig> {
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = all.iter().filter(|(other, _)| *other != model);
        let taken = others.flat_map(|(other, taken)| taken.iter().map(move |name| (other, name)));
        if let Some((other, name)) = taken.into_iter().find(|(_, name)| names.contains(*name)) {
            return Err(invalid("name", &format!("`{name}` is that of a replica of the model `{other}`")));
        }
        all.insert(model.to_owned(), names);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_replica_of_all_models_until_it_is_given_up() {
        let names = ReplicaNames::default();
        names.take("m", ["a", "b"].into_iter()).expect("free");
        let error = names.take("n", ["c", "b"].into_iter()).expect_err("taken").to_string();
        assert!(error.contains("`b`") && error.contains("`m`"), "{error}");
        names.take("m", ["a", "c"].into_iter()).expect("its own, and one that nobody took");
        assert!(names.take("n", ["c"].into_iter()).is_err());
        names.take("n", ["b"].into_iter()).expect("given up");
    }
}
