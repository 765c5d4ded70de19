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
use store::{ListedKey, NameSearch, Spending, Tenant, WorkbookUsage};

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

/// Entries of a list that one search by name looks at: what a database reads in some hundredths of a second.
const SEARCHED_MAX: u32 = 50_000;
/// Tenants between two of a page that are read along with them, which costs less than to ask twice.
const GAP_MAX: u64 = 100;

/// The last tenants before a number, at most so many, with what each has; the oldest first. Or those of them whose names
/// begin so: the one that is called just that ends the newest page, whatever its number.
pub async fn overviews(
    app: &App,
    name: Option<&str>,
    (before, rows_max): (Option<u64>, u32),
) -> Result<NewestPage<TenantOverview>, RequestError> {
    let store = &app.runtime.store;
    let now = app.runtime.shared.unix_now();
    let NewestPage { entries, before } = match name {
        Some(name) => begun(app, name, (before, rows_max)).await?,
        None => {
            let read = stored(store.tenants_before(before, rows_max.saturating_add(1)).await)?;
            NewestPage::of_last(read, rows_max, |tenant| tenant.id.0)
        }
    };
    let mut keys: HashMap<TenantId, u64> = HashMap::new();
    let mut workbooks: HashMap<TenantId, WorkbookUsage> = HashMap::new();
    let mut cached: HashMap<TenantId, u64> = HashMap::new();
    let mut spent: HashMap<TenantId, Spending> = HashMap::new();
    for tenants in ranges(entries.iter().map(|tenant| tenant.id)) {
        keys.extend(stored(store.working_keys(tenants.clone(), now).await)?);
        let usage = stored(store.workbook_usage(tenants.clone()).await)?;
        workbooks.extend(usage.into_iter().map(|usage| (usage.tenant, usage)));
        cached.extend(stored(store.result_counts(tenants.clone()).await)?);
        spent.extend(stored(store.spendings(now.day(), tenants).await)?);
    }
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

/// The tenants of a page whose names begin so.
async fn begun(
    app: &App,
    prefix: &str,
    (before, rows_max): (Option<u64>, u32),
) -> Result<NewestPage<Tenant>, RequestError> {
    let store = &app.runtime.store;
    let exact = match before {
        None => stored(store.tenant_named(prefix).await)?,
        Some(_) => None,
    };
    let room = rows_max.saturating_sub(u32::from(exact.is_some()));
    let found = stored(store.tenants_begun(search(prefix, (before, room))).await)?;
    let mut page = NewestPage::of_found(found, room, |tenant| tenant.id.0);
    page.entries.extend(exact);
    Ok(page)
}

/// The keys of a page whose names, or whose tenants' names, begin so.
pub async fn keys_begun(
    app: &App,
    prefix: &str,
    (before, rows_max): (Option<u64>, u32),
) -> Result<NewestPage<ListedKey>, RequestError> {
    let found = stored(app.runtime.store.keys_begun(search(prefix, (before, rows_max))).await)?;
    Ok(NewestPage::of_found(found, rows_max, |listed| listed.key.id))
}

/// A search for a page, and for one entry more, by which it is known that there are more.
fn search(prefix: &str, (before, rows_max): (Option<u64>, u32)) -> NameSearch<'_> {
    NameSearch { prefix, before, searched_max: SEARCHED_MAX, found_max: rows_max.saturating_add(1) }
}

/// Ranges that hold these tenants, and few others.
fn ranges(tenants: impl Iterator<Item = TenantId>) -> Vec<RangeInclusive<TenantId>> {
    let mut ids: Vec<TenantId> = tenants.collect();
    ids.sort_unstable();
    let mut ranges: Vec<RangeInclusive<TenantId>> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(last) if id.0 - last.end().0 <= GAP_MAX => *last = *last.start()..=id,
            _ => ranges.push(id..=id),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_far_apart_are_read_without_those_between_them() {
        let of = |ids: &[u64]| {
            let ranges = ranges(ids.iter().map(|id| TenantId(*id)));
            ranges.iter().map(|range| (range.start().0, range.end().0)).collect::<Vec<_>>()
        };
        assert!(of(&[]).is_empty());
        assert_eq!(of(&[7, 8, 9, 2]), [(2, 9)]);
        assert_eq!(of(&[1, 101, 202, 9_000]), [(1, 101), (202, 202), (9_000, 9_000)]);
    }
}
