//! The models behind this gateway. A request's `model` picks one, and with it the runtime that runs its rows.
//!
//! Each model has a runtime (and so a loop, a queue, a policy, metrics) of its own, so that nothing of one waits
//! for another's servers; ids, keys, the store and what it keeps are shared.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{RelQueryId, TenantId};
use ir::Tags;
use scheduler::FleetConfig;
use serving::Runtime;
use serving::config::BackendConfig;
use serving::error::RequestError;
use serving::gateway_ids::GatewayPath;
use serving::model::Model;
use serving::relquery_state::RelQueryState;

use crate::config::{Config, LimitsConfig};
use crate::json::JsonFields;
use crate::services::constraints::Constraints;
use crate::services::known_cells::KnownCells;
use crate::services::priors::Calibrations;
use crate::services::schemas::ready::Schemas;

/// A model that is served, and what is kept for it alone.
pub struct ServedModel {
    /// The runtime of its rows.
    pub runtime: Arc<Runtime>,
    /// What tenants have compiled.
    pub constraints: Constraints,
    tags: Result<Tags, String>,
    /// PML schemas, laid out in its tokens.
    pub schemas: Schemas,
    /// How likely it finds labels without content.
    pub calibrations: Calibrations,
    /// Its cells that were asked for.
    pub known_cells: KnownCells,
    /// The settings of its queue, where servers run its rows.
    pub fleet: Option<FleetConfig>,
    /// What the policy cannot do where its rows run.
    pub limits_of_policy: Vec<String>,
}

impl ServedModel {
    /// The model of a runtime.
    pub fn new(runtime: Arc<Runtime>, backend: BackendConfig<'_>, limits: &LimitsConfig) -> Self {
        let (model, clock) = (&runtime.model, runtime.shared.clock);
        Self {
            constraints: Constraints::new(model.constraints.clone(), clock),
            tags: model.tags(),
            schemas: Schemas::new(limits),
            calibrations: Calibrations::default(),
            known_cells: KnownCells::new(if runtime.cache.enabled {
                runtime.cache.memory_entries_max
            } else {
                0
            }),
            fleet: backend.has_fleet().then(|| backend.fleet.clone()),
            limits_of_policy: backend.limits_of_policy(),
            runtime,
        }
    }

    /// What is known of it.
    pub fn model(&self) -> &Model {
        &self.runtime.model
    }

    /// The markup of messages, or why the model has none.
    pub fn tags(&self) -> Result<&Tags, &str> {
        self.tags.as_ref().map_err(String::as_str)
    }

    /// The ways on over other gateways from this one, for this model.
    pub fn gateways(&self) -> Vec<GatewayPath> {
        let replicas = self.runtime.view().replicas;
        self.runtime.shared.gateway.paths(replicas.iter().flat_map(|replica| replica.gateways.iter()))
    }

    /// Whether servers run its rows, the local engine among them or not.
    pub fn has_fleet(&self) -> bool {
        self.runtime.members.is_some()
    }

    /// Why it answers nobody now; `None`: it does, or will in a moment.
    pub fn not_ready(&self) -> Option<&'static str> {
        let has_replica = self.runtime.members.is_none()
            || self.runtime.view().replicas.iter().any(|replica| replica.is_up);
        match (self.runtime.shared.pulse.is_dead(), self.runtime.is_draining(), has_replica) {
            (true, ..) => Some("dead"),
            (_, true, _) => Some("draining"),
            (_, _, false) => Some("no replica is up"),
            _ => None,
        }
    }
}

/// A relQuery and the model that runs it.
pub type FoundRelQuery = (Arc<ServedModel>, Arc<RelQueryState>);

/// All models that are served.
pub struct ServedModels {
    default: Arc<ServedModel>,
    /// Those beside it.
    further: Vec<Arc<ServedModel>>,
}

impl ServedModels {
    /// Those of these runtimes, the default one first. Refuses names that two of them have: what a checkpoint is
    /// called is known only now.
    pub fn new(runtimes: Vec<Arc<Runtime>>, config: &Config) -> Result<Self, String> {
        let backends = config.backends().into_iter().map(|(_, backend)| backend);
        let served = runtimes.into_iter().zip(backends);
        let mut served =
            served.map(|(runtime, backend)| Arc::new(ServedModel::new(runtime, backend, &config.limits)));
        let default = served.next().ok_or("there is none")?;
        let models = Self { default, further: served.collect() };
        let embedder = config.retrieval.model.is_some().then(|| config.retrieval.model_name());
        let served = models.iter().map(|one| one.model().name.clone()).chain(embedder);
        models.default.runtime.shared.budgets.serves(served.collect());
        let mut names = BTreeSet::new();
        for model in models.iter().map(|one| one.model()) {
            for name in std::iter::once(&model.name).chain(&model.aliases) {
                if !names.insert(name.clone()) {
                    return Err(format!(
                        "`{name}` is what two models are called: set model.name or models[..].name"
                    ));
                }
            }
        }
        Ok(models)
    }

    /// The one that requests mean that name none.
    pub fn usual(&self) -> &Arc<ServedModel> {
        &self.default
    }

    /// All, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServedModel>> {
        std::iter::once(&self.default).chain(&self.further)
    }

    /// Whether there is more than one.
    pub fn are_several(&self) -> bool {
        !self.further.is_empty()
    }

    /// The one of this name or alias; without a name the default one.
    pub fn named(&self, name: Option<&str>) -> Result<&Arc<ServedModel>, RequestError> {
        let Some(name) = name else { return Ok(&self.default) };
        let found = self.iter().find(|one| one.model().is_called(name));
        found.ok_or_else(|| {
            RequestError::unknown_model(name, self.iter().map(|one| one.model().name.as_str()))
        })
    }

    /// That none has this name, to a tenant, which is told of those alone that it may use.
    pub fn unknown_to(&self, tenant: TenantId, name: &str) -> RequestError {
        let budgets = &self.default.runtime.shared.budgets;
        let names = self.iter().map(|one| one.model().name.as_str());
        RequestError::unknown_model(name, names.filter(|known| budgets.allows(tenant, known).is_ok()))
    }

    /// The one that a tenant calls so; without a name the default one. Whether the tenant may use it is asked where its
    /// rows are taken: what it had computed before stays its own.
    pub fn named_for(&self, tenant: TenantId, name: Option<&str>) -> Result<&Arc<ServedModel>, RequestError> {
        self.named(name).map_err(|error| name.map_or(error, |name| self.unknown_to(tenant, name)))
    }

    /// The one that the field `model` of a tenant's body names. What is no name at all is left to who reads the field.
    pub fn of_request(
        &self,
        tenant: TenantId,
        fields: &JsonFields,
    ) -> Result<&Arc<ServedModel>, RequestError> {
        self.named_for(tenant, fields.text("model"))
    }

    /// A tenant's relQuery, while it is in memory, with the model that runs it.
    pub fn relquery(
        &self,
        tenant: TenantId,
        id: RelQueryId,
    ) -> Option<(&Arc<ServedModel>, Arc<RelQueryState>)> {
        self.iter().find_map(|model| Some((model, model.runtime.registry.get(tenant, id)?)))
    }
}
