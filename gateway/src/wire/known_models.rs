//! `/v1/known-models` on the wire: models that can be served here by their names.

use std::path::Path;

use base::Bytes;
use serde::Serialize;
use serving::known_models::KnownModel;
use utoipa::ToSchema;

/// Where a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// It answers requests.
    Served,
    /// It is in the data folder, whole.
    Fetched,
    /// A start with its name fetches it.
    NotFetched,
}

/// A model that has a name here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KnownModelObject {
    /// What `--model` and `relserve pull` take.
    pub name: &'static str,
    /// What it is good for, one line.
    pub description: &'static str,
    /// SPDX identifier.
    pub licence: &'static str,
    /// Its weights, a number.
    pub parameters: u64,
    /// What a hub sends, bytes.
    pub download_bytes: u64,
    /// What serving it takes with the default settings, bytes.
    pub memory_bytes: u64,
    /// Whether this machine has that memory, for a server that takes this one's place; null where the system does not say.
    pub fits: Option<bool>,
    pub availability: Availability,
    /// The command that serves it.
    pub command: String,
}

/// The models that have names here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KnownModelList {
    /// Always `list`.
    pub object: &'static str,
    /// From the smallest.
    pub data: Vec<KnownModelObject>,
    /// Memory that a server on this machine can have, bytes; null where the system does not say.
    pub memory_bytes: Option<u64>,
}

/// What a list is made against.
#[derive(Clone, Copy, Debug)]
pub struct LocalMachine<'a> {
    /// Where models are fetched into.
    pub data_dir: &'a Path,
    /// What a server can have.
    pub memory: Option<Bytes>,
}

impl KnownModelObject {
    /// A model as it is here. Looks for its files.
    pub fn new(model: &'static KnownModel, machine: LocalMachine<'_>, is_served: bool) -> Self {
        let KnownModel { name, licence, parameters, about, .. } = model;
        let availability = match is_served {
            true => Availability::Served,
            false if model.fetched(machine.data_dir).is_some() => Availability::Fetched,
            false => Availability::NotFetched,
        };
        Self {
            name,
            description: about,
            licence,
            parameters: *parameters,
            download_bytes: model.download().0,
            memory_bytes: model.memory().0,
            // What runs has its memory.
            fits: if is_served { Some(true) } else { machine.memory.map(|memory| model.fits(memory)) },
            availability,
            command: format!("relserve serve --model {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serving::known_models;

    use super::*;

    #[test]
    fn what_is_served_fits_and_of_others_memory_decides() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [smallest, .., largest] = known_models::all() else { panic!("there are several") };
        let of = |model, memory, is_served| {
            let machine = LocalMachine { data_dir: folder.path(), memory };
            let shown = KnownModelObject::new(model, machine, is_served);
            (shown.fits, shown.availability)
        };
        let two = Some(Bytes(2 << 30));
        assert_eq!(of(smallest, two, false), (Some(true), Availability::NotFetched));
        assert_eq!(of(largest, two, false), (Some(false), Availability::NotFetched));
        assert_eq!(of(largest, two, true), (Some(true), Availability::Served));
        assert_eq!(of(largest, None, false), (None, Availability::NotFetched));
    }
}
