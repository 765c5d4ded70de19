//! Further models, each on servers of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::TokenCount;
use serde::{Deserialize, Serialize};

use super::{
    BackendConfig, DemoFunctions, DiscoveryConfig, InvalidConfig, ModelSettings, PriceSettings,
    ReplicaSettings, invalid,
};

/// A further model behind this gateway, on servers of its own: a request's `model` picks it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelPoolConfig {
    /// The name clients see. No other model has it, as a name or an alias.
    pub name: String,
    /// Other names that clients may ask for it by.
    pub aliases: Vec<String>,
    /// As `model.tokenizer`, for this model.
    pub tokenizer: Option<PathBuf>,
    /// As `model.context_max`, for this model.
    pub context_max: Option<TokenCount>,
    /// As `model.prompt_price`, for this model.
    pub prompt_price: Option<f64>,
    /// As `model.cached_price`, for this model.
    pub cached_price: Option<f64>,
    /// As `model.output_price`, for this model.
    pub output_price: Option<f64>,
    /// The servers that run it. Names are unique over all models; by default this model's name and a number,
    /// and of one that is found or added while the server runs its host and port in place of the number. SIGHUP takes
    /// the list.
    pub replicas: Vec<ReplicaSettings>,
    /// Where more of its servers are found.
    pub discovery: DiscoveryConfig,
}

impl ModelPoolConfig {
    /// The settings of its model.
    pub fn model(&self) -> ModelSettings<'_> {
        ModelSettings {
            demo_functions: DemoFunctions::default(),
            dir: None,
            name: Some(&self.name),
            aliases: &self.aliases,
            tokenizer: self.tokenizer.as_deref(),
            context_max: self.context_max,
            recalibrate: false,
            prices: PriceSettings {
                prompt: self.prompt_price,
                cached: self.cached_price,
                output: self.output_price,
            },
        }
    }
}

/// Refuses models that cannot work, each and together. Each comes with the place of its section, which is
/// empty of the one whose sections stand at the top.
pub fn validate_models(models: &[(String, BackendConfig<'_>)]) -> Result<(), InvalidConfig> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    let mut replicas: BTreeMap<String, String> = BTreeMap::new();
    for (place, backend) in models {
        backend.validate().map_err(|error| error.within(place))?;
        if !place.is_empty() {
            if !backend.has_fleet() {
                return Err(invalid(
                    &format!("{place}.replicas"),
                    "is empty: name the servers that run the model, or where they are found",
                ));
            }
            if backend.has_local_engine() {
                let reason = "has the local engine, which runs the model of `[model]` only";
                return Err(invalid(&format!("{place}.replicas"), reason));
            }
        }
        let section = if place.is_empty() { "model" } else { place };
        let aliases = backend.model.aliases.iter().enumerate();
        let aliases = aliases.map(|(index, alias)| (format!("{section}.aliases[{index}]"), alias.as_str()));
        let name = backend.model.name.map(|name| (format!("{section}.name"), name));
        for (field, name) in name.into_iter().chain(aliases) {
            if let Some(other) = names.insert(name, field.clone()) {
                return Err(invalid(
                    &field,
                    &format!("is `{name}`, as is {other}: a name stands for one model"),
                ));
            }
        }
        for (index, replica) in backend.named_replicas().into_iter().enumerate() {
            let field = place_of(place, &format!("replicas[{index}].name"));
            if let Some(other) = replicas.insert(replica.name.unwrap_or_default(), field.clone()) {
                return Err(invalid(&field, &format!("is another replica's too: {other}")));
            }
        }
    }
    Ok(())
}

fn place_of(place: &str, field: &str) -> String {
    if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") }
}

impl InvalidConfig {
    /// The same of a model whose settings stand at a place of their own.
    fn within(self, place: &str) -> Self {
        if place.is_empty() {
            return self;
        }
        let Self { field, reason } = self;
        let own = field.strip_prefix("model.").unwrap_or(&field);
        let is_own = own != field || ["replicas", "discovery"].iter().any(|section| own.starts_with(section));
        let field = if is_own { format!("{place}.{own}") } else { field };
        Self { field, reason: reason.replace("model.", &format!("{place}.")) }
    }
}
