//! What cells of a tenant may compute in a day, held against the usage that the store keeps of their route.
//!
//! Beside [`super::sql::budgets`], which sets aside what a statement may take: cells are asked by the
//! thousand and mostly known, so a request is let in while anything is left, and runs to its end. Must not
//! know HTTP.

use std::sync::Arc;

use base::{Millis, TenantId};
use serving::account::Account;
use serving::error::{RequestError, stored};

use crate::models::ServedModel;
use crate::state::App;

/// The route whose tokens count, as usage has it.
pub const ROUTE: &str = "cells";
/// The setting.
pub const SETTING: &str = "limits.tenant_day_cell_tokens_max";
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Tokens of prompts and answers that a tenant's cells have computed today, of all models.
pub async fn used(app: &App, tenant: TenantId) -> Result<u64, RequestError> {
    // Held to the end: what is on its way from memory to the store is in neither sum.
    let mut settled = Vec::new();
    for model in app.models.iter() {
        settled.push(model.runtime.shared.accounts.settled().await);
    }
    let today = app.runtime.shared.unix_now().day();
    // Before the store's: rows of tickets move to it meanwhile.
    let unwritten = unwritten(app, tenant);
    let rows = stored(app.runtime.store.usage(Some(tenant), today..=today).await)?;
    let kept = rows.iter().filter(|row| row.key.route == ROUTE);
    let kept: u64 = kept.map(|row| row.used.computed.0 + row.used.output.0).sum();
    Ok(kept + unwritten)
}

/// Those that are not in the store yet.
fn unwritten(app: &App, tenant: TenantId) -> u64 {
    let of_model = |model: &Arc<ServedModel>| {
        model.runtime.shared.accounts.unwritten_tokens(Account { tenant, route: ROUTE })
    };
    app.models.iter().map(of_model).sum()
}

/// Refuses cells of a tenant whose tokens of today are spent.
pub async fn hold(app: &App, tenant: TenantId) -> Result<(), RequestError> {
    let Some(max) = app.config.limits.tenant_day_cell_tokens_max else { return Ok(()) };
    let is_away = || app.runtime.store.health().is_away();
    let used = match is_away() {
        true => unwritten(app, tenant),
        false => match used(app, tenant).await {
            // Cells go on while the database is away: what they compute meanwhile is held in memory, and counts.
            Err(RequestError::NoDatabase(_)) if is_away() => unwritten(app, tenant),
            used => used?,
        },
    };
    if used < max {
        return Ok(());
    }
    let retry_after = Millis(DAY_MS - app.runtime.shared.unix_now().0 % DAY_MS);
    Err(RequestError::BudgetSpent { setting: SETTING, max, used, retry_after })
}
