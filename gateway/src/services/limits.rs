//! Tenants' limits: read from the store into what the loops hold work against, and set by operators.

use serving::error::{RequestError, stored};
use store::TenantLimits;

use crate::services::tenancy;
use crate::state::App;

/// Reads limits, and what tenants that have some have computed through all gateways. While the database is away, what
/// was read before holds, and what is computed here counts.
pub async fn refresh(app: &App) {
    let store = &app.runtime.store;
    if store.health().is_away() {
        return;
    }
    // Held to the end: what is on its way from memory to the store is in neither sum, and of two who read at once the
    // one would take for read what only the other has.
    let mut moving = Vec::new();
    for model in app.models.iter() {
        moving.push(model.runtime.shared.accounts.moving().await);
    }
    let (today, budgets) = (app.runtime.shared.unix_now().day(), &app.runtime.shared.budgets);
    budgets.begin_refresh();
    match store.limits(today).await {
        Ok(found) => budgets.refresh(found),
        Err(error) => tracing::warn!(%error, "limits of tenants were not read; the last ones hold"),
    }
}

/// Sets a tenant's limits. Servers on the same database follow within `store.flush_ms`.
pub async fn set(app: &App, name: &str, limits: &TenantLimits) -> Result<(), RequestError> {
    let tenant = tenancy::named(app, name).await?;
    let models = limits.models.as_deref().map(|names| names_of(app, names)).transpose()?;
    let limits = TenantLimits { models, ..limits.clone() };
    stored(app.runtime.store.set_limits(tenant.id, &limits).await)?;
    refresh(app).await;
    Ok(())
}

/// The names of models that are called so, or by an alias. Refuses what none of them is called: a tenant that may use
/// that alone could use nothing, and nobody would see why.
fn names_of(app: &App, asked: &[String]) -> Result<Vec<String>, RequestError> {
    let retrieval = &app.config.retrieval;
    let embedder = retrieval.model.is_some().then(|| retrieval.model_name());
    let mut names: Vec<String> = Vec::new();
    for called in asked {
        let served = app.models.iter().map(|one| one.model()).find(|model| model.is_called(called));
        let served = served.map(|model| &model.name);
        let Some(name) = served.or(embedder.as_ref().filter(|name| *name == called)) else {
            let all = app.models.iter().map(|one| one.model().name.as_str()).chain(embedder.as_deref());
            let all: Vec<String> = all.map(|name| format!("`{name}`")).collect();
            let reason = format!("has `{called}`, which no model is called; served: {}", all.join(", "));
            return Err(RequestError::invalid("limits.models", reason));
        };
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}
