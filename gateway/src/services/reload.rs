//! Another configuration for a server that runs: what of it can be is taken, all at once, and the log says which keys
//! were and which wait for the next start. Must not know where it was read.

use std::fmt::Display;

use serde_json::json;
use serving::error::RequestError;
use serving::replicas::ReplicaSource;

use crate::config::{Config, ConfigError, ReplicaListChange, changed_keys};
use crate::error::ApiError;
use crate::services::audit::{Change, recorded_of};
use crate::state::{App, CurrentApp};

/// Who it is that reads the configuration again, in words of the audit log.
const ACTOR: &str = "SIGHUP";

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    /// What runs and what was found do not go together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The audit log.
    #[error("the audit log cannot be written: {0}")]
    Audit(ApiError),
}

/// A configuration before and after it is settled: as it was asked for, and with what the start found of it.
#[derive(Clone)]
struct Reload {
    asked: Config,
    in_force: Config,
}

impl Reload {
    /// With all keys of `found` that can be taken, and these lists of replicas.
    fn with(&self, found: &Config, lists: &[ReplicaListChange]) -> Self {
        let mut next = Self { asked: self.asked.reloaded(found), in_force: self.in_force.reloaded(found) };
        for list in lists {
            next.asked.take_replicas(found, list.model);
            next.in_force.take_replicas(found, list.model);
        }
        next
    }
}

/// Takes what can be taken of `found`; `asked`: what the configuration in force was asked to be. Gives what it is asked
/// to be from now on, or nothing where all stays as it was.
pub async fn reload<E: Display>(
    current: &CurrentApp,
    asked: &Config,
    found: Result<Config, E>,
) -> Option<Config> {
    let app = current.get();
    let counts = &app.runtime.shared.metrics.reloads;
    let taken = match found {
        Ok(found) => take(current, asked, &found).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match &taken {
        Ok(_) => counts.taken.inc(),
        Err(error) => {
            counts.refused.inc();
            tracing::error!(error, "the configuration stays as it was");
        }
    }
    taken.ok()
}

async fn take(current: &CurrentApp, asked: &Config, found: &Config) -> Result<Config, ReloadError> {
    found.validate()?;
    let app = current.get();
    let old = Reload { asked: asked.clone(), in_force: Config::clone(&app.config) };
    let lists = old.in_force.replica_changes(found);
    let wanted = old.with(found, &lists);
    // Keys that are taken may not go together with those that stay.
    wanted.in_force.validate()?;
    let keys = changed_keys(asked, &wanted.asked);
    let next = if keys.is_empty() {
        old.asked
    } else {
        let change = Change { action: "config.reload", subject: "config", details: json!({ "keys": keys }) };
        let make = async {
            let taken: Vec<ReplicaListChange> = lists.into_iter().filter(|list| give(&app, list)).collect();
            let next = old.with(found, &taken);
            current.set_config(next.in_force);
            Ok::<_, RequestError>(next.asked)
        };
        recorded_of(&app, ACTOR, change, make).await.map_err(ReloadError::Audit)?
    };
    let (taken, waiting) = (changed_keys(asked, &next), changed_keys(&next, found));
    if !taken.is_empty() {
        tracing::info!(keys = taken.join(", "), "the configuration has other values; taken");
    }
    if !waiting.is_empty() {
        tracing::warn!(keys = waiting.join(", "), "changed; taken at the next start");
    }
    Ok(next)
}

/// Gives a model's fleet its replicas, unless it cannot have them.
fn give(app: &App, list: &ReplicaListChange) -> bool {
    let Some(model) = app.models.iter().nth(list.model) else { return false };
    let Some(members) = &model.runtime.members else { return false };
    let set = members.set(ReplicaSource::Config, list.replicas.clone());
    if let Err(error) = &set {
        tracing::warn!(model = model.model().name, %error, "the replicas stay as they were");
    }
    set.is_ok()
}
