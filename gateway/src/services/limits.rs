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
    stored(app.runtime.store.set_limits(tenant.id, limits).await)?;
    refresh(app).await;
    Ok(())
}
