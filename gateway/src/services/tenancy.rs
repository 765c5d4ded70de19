//! Tenants as operators see and change them: weights, keys, budgets, and what each keeps on the server. What is read for a
//! page of them is of those tenants alone.
//!
//! Must not know HTTP.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use base::{Bytes, TenantId};
use serving::budgets::BudgetStatus;
use serving::error::{RequestError, of_store, stored};
use sql::budget::BudgetLimits;
use store::{Spending, Tenant};

use crate::services::pages::NewestPage;
use crate::state::App;

/// A tenant and what it has.
#[derive(Clone, Debug)]
pub struct TenantOverview {
    pub tenant: Tenant,
    /// Keys that work.
    pub keys: u64,
    pub workbooks: u64,
    /// Of all versions of the workbooks.
    pub workbook_bytes: Bytes,
    /// Answers in the result cache.
    pub cached_answers: u64,
    /// What SQL has computed today (UTC), half a second late.
    pub spent: Spending,
    /// What SQL may compute in a day.
    pub day_budget: BudgetLimits,
    /// What it has computed on all routes, and may.
    pub budget: BudgetStatus,
}

/// The tenant of a name.
pub async fn named(app: &App, name: &str) -> Result<Tenant, RequestError> {
    // No tenant has such a name, and Postgres takes no text with a NUL.
    let found = match name.contains('\0') {
        true => None,
        false => stored(app.runtime.store.tenant_named(name).await)?,
    };
    found.ok_or_else(|| RequestError::NotFound(format!("the tenant `{name}`")))
}

/// A tenant's name.
pub async fn name_of(app: &App, id: TenantId) -> Result<String, RequestError> {
    let found = stored(app.runtime.store.tenant(id).await)?;
    Ok(found.map(|tenant| tenant.name).unwrap_or_default())
}

/// The names of all tenants.
pub async fn names(app: &App) -> Result<HashMap<TenantId, String>, RequestError> {
    let tenants = stored(app.runtime.store.tenants().await)?;
    Ok(tenants.into_iter().map(|tenant| (tenant.id, tenant.name)).collect())
}

/// Makes a tenant; a name that is taken is refused.
pub async fn create(app: &App, name: &str, weight: f64) -> Result<Tenant, RequestError> {
    let now = app.runtime.shared.unix_now();
    app.runtime.store.create_tenant(name, weight, now).await.map_err(|error| match error {
        store::Error::Taken { .. } => RequestError::invalid("name", format!("`{name}` is a tenant already")),
        error => of_store(error),
    })
}

/// Changes a tenant's weight. What its keys send from now on counts by it; other servers of the database follow within
/// `auth.remember_ms`.
pub async fn set_weight(app: &App, name: &str, weight: f64) -> Result<Tenant, RequestError> {
    let tenant = named(app, name).await?;
    stored(app.runtime.store.set_weight(tenant.id, weight).await)?;
    app.remembered.forget_all();
    Ok(Tenant { weight, ..tenant })
}

/// The last tenants before a number, at most so many, with what each has; the oldest first. Or the one of a name, which has to
/// be there.
pub async fn overviews(
    app: &App,
    name: Option<&str>,
    (before, rows_max): (Option<u64>, u32),
) -> Result<NewestPage<TenantOverview>, RequestError> {
    let store = &app.runtime.store;
    let now = app.runtime.shared.unix_now();
    let read = match name {
        Some(name) => {
            let found = named(app, name).await?;
            let is_before = before.is_none_or(|before| found.id.0 < before);
            if is_before { vec![found] } else { Vec::new() }
        }
        None => stored(store.tenants_before(before, rows_max.saturating_add(1)).await)?,
    };
    let NewestPage { entries, before } = NewestPage::of_last(read, rows_max, |tenant| tenant.id.0);
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return Ok(NewestPage { entries: Vec::new(), before });
    };
    let tenants = || RangeInclusive::new(first.id, last.id);
    let keys: HashMap<_, _> = stored(store.working_keys(tenants(), now).await)?.into_iter().collect();
    let workbooks = stored(store.workbook_usage(tenants()).await)?;
    let workbooks: HashMap<_, _> = workbooks.into_iter().map(|usage| (usage.tenant, usage)).collect();
    let cached: HashMap<_, _> = stored(store.result_counts(tenants()).await)?.into_iter().collect();
    let spent: HashMap<_, _> = stored(store.spendings(now.day(), tenants()).await)?.into_iter().collect();
    let overview = |tenant: Tenant| {
        let id = tenant.id;
        let kept = workbooks.get(&id);
        let [_, day_budget] = app.config.sql.budget_of(&tenant.name);
        TenantOverview {
            tenant,
            keys: keys.get(&id).copied().unwrap_or_default(),
            workbooks: kept.map_or(0, |usage| usage.workbooks),
            workbook_bytes: kept.map_or(Bytes(0), |usage| usage.bytes),
            cached_answers: cached.get(&id).copied().unwrap_or_default(),
            spent: spent.get(&id).copied().unwrap_or_default(),
            day_budget,
            budget: app.runtime.shared.budgets.status(id),
        }
    };
    Ok(NewestPage { entries: entries.into_iter().map(overview).collect(), before })
}
