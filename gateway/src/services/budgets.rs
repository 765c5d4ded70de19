//! Tenants' budgets: read from the store into what the loops hold work against, and set by operators.

use serving::budgets::{StoredTokens, TokenBudget};
use serving::error::RequestError;
use store::{StoreOutage, TenantBudget, UnixMillis};

use crate::services::tenancy;
use crate::state::App;

/// Reads budgets, and what tenants that have one have computed through all gateways. While the database is away, what
/// was read before holds, and what is computed here counts.
pub async fn refresh(app: &App) {
    let store = &app.runtime.store;
    if store.health().outage() == Some(StoreOutage::Away) {
        return;
    }
    // Held to the end: what is on its way to the store is in neither sum.
    let mut settled = Vec::new();
    for model in app.models.iter() {
        settled.push(model.runtime.shared.accounts.settled().await);
    }
    let today = UnixMillis(app.runtime.shared.clock.unix_ms()).day();
    match store.budgets(today).await {
        Ok(found) => {
            app.runtime.shared.budgets.refresh(found.into_iter().map(|(tenant, budget, computed)| {
                let budget = TokenBudget { day: budget.day_tokens, month: budget.month_tokens };
                (tenant, budget, StoredTokens { day: computed.day, month: computed.month })
            }))
        }
        Err(error) => tracing::warn!(%error, "budgets were not read; the last ones hold"),
    }
}

/// Sets a tenant's budget. Servers on the same database follow within `store.flush_ms`.
pub async fn set(app: &App, name: &str, budget: TenantBudget) -> Result<(), RequestError> {
    let tenant = tenancy::named(app, name).await?;
    serving::error::stored(app.runtime.store.set_budget(tenant.id, budget).await)?;
    refresh(app).await;
    Ok(())
}
