//! The sections of the configuration that this crate acts on. Must not know files or the environment.

mod cache;
mod discovery;
mod live;
mod model;
mod policy_limits;
mod pool;
mod price;
mod replica_memory;
mod replicas;
mod restart;
mod traces;
mod variables;

pub use cache::{CacheConfig, CoalesceConfig};
pub use discovery::DiscoveryConfig;
pub use live::LiveConfig;
pub use model::{DemoFunctions, ModelConfig, ModelSettings};
pub use pool::{ModelPoolConfig, validate_models};
pub use price::PriceSettings;
pub(crate) use replicas::plain;
pub use replicas::{BackendConfig, Dialect, FleetRules, PromptForm, ReplicaKind, ReplicaSettings, Secret};
pub use restart::RestartConfig;
pub use traces::TracesConfig;
pub use variables::{Variable, expand};

/// A value that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("configuration `{field}`: {reason}")]
pub struct InvalidConfig {
    /// The field.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

/// An error that names a field.
pub fn invalid(field: &str, reason: &str) -> InvalidConfig {
    InvalidConfig { field: field.into(), reason: reason.into() }
}
