//! Fields that had another name before: a configuration that uses it is refused, and told the new one.
//!
//! `serde` derives reading and writing as functions of [`SchedulerConfig`] (its `remote = "Self"`); here they
//! are put behind the traits, with a look at each key.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::SchedulerConfig;

/// Old names and new ones.
const RENAMED: [(&str, &str); 2] = [("ours", "marginal_work"), ("readings", "paper_variant")];

impl SchedulerConfig {
    /// What a field is called now that was called so before.
    pub fn new_name_of(old: &str) -> Option<&'static str> {
        RENAMED.into_iter().find(|(name, _)| *name == old).map(|(_, new)| new)
    }
}

impl Serialize for SchedulerConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for SchedulerConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = SchedulerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a scheduler's configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<SchedulerConfig, A::Error> {
        SchedulerConfig::deserialize(MapAccessDeserializer::new(Named(fields)))
    }
}

/// Fields, of which none may have an old name.
struct Named<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.0.next_key::<String>()? else { return Ok(None) };
        match SchedulerConfig::new_name_of(&name) {
            Some(new) => Err(A::Error::custom(format!("`{name}` is called `{new}` now"))),
            None => seed.deserialize(name.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<SchedulerConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn an_old_name_is_refused_with_the_new_one() {
        let error = read(r#"{"ours": {"marginal_key": false}}"#).expect_err("an old name");
        assert!(error.starts_with("`ours` is called `marginal_work` now"), "{error}");
        let error = read(r#"{"policy": "ours"}"#).expect_err("an old name");
        assert!(error.starts_with("policy `ours` is called `marginal-work` now"), "{error}");
    }

    #[test]
    fn new_names_are_read_and_others_refused() {
        let config =
            read(r#"{"marginal_work": {"marginal_key": false}, "kv_blocks": 7}"#).expect("new names");
        assert!(!config.marginal_work.marginal_key);
        assert_eq!(config.kv_blocks, 7);
        let error = read(r#"{"kv_block": 7}"#).expect_err("no such field");
        assert!(error.starts_with("unknown field `kv_block`, expected one of"), "{error}");
    }
}
