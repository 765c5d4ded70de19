//! Budgets of tenants: limits of the configuration, held against sums that the store keeps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::TenantId;
use serving::Runtime;
use serving::error::{RequestError, stored};
use sql::budget::{ComputedCalls, TenantBudget};
use store::Spending;

use crate::config::SqlConfig;

/// The budgets of tenants that have had sessions.
#[derive(Debug, Default)]
pub struct Budgets {
    known: Mutex<HashMap<TenantId, Arc<TenantBudget>>>,
    /// Held from taking an amount to keeping it: who reads the sum meanwhile would miss it.
    keeping: tokio::sync::Mutex<()>,
}

impl Budgets {
    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<TenantBudget>>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A tenant's budget, with what all servers have spent of its day.
    pub async fn of(
        &self,
        runtime: &Runtime,
        config: &SqlConfig,
        tenant: TenantId,
    ) -> Result<Arc<TenantBudget>, RequestError> {
        let known = self.known().get(&tenant).cloned();
        let shared = &runtime.shared;
        let budget = match known {
            Some(budget) => budget,
            None => {
                let name = stored(runtime.store.tenant(tenant).await)?.map(|known| known.name);
                let [statement, day] = config.budget_of(&name.unwrap_or_default());
                let clock = Arc::clone(shared);
                let budget = TenantBudget::new(statement, day, move || clock.unix_now().day());
                Arc::clone(self.known().entry(tenant).or_insert(Arc::new(budget)))
            }
        };
        if budget.limits_days() {
            let _keeping = self.keeping.lock().await;
            let day = shared.unix_now().day();
            budget.kept(day, computed(stored(runtime.store.spending(tenant, day).await)?));
        }
        Ok(budget)
    }

    /// Adds to the store what was computed since the last time.
    pub async fn keep(&self, runtime: &Runtime) {
        let budgets: Vec<_> =
            self.known().iter().map(|(tenant, budget)| (*tenant, Arc::clone(budget))).collect();
        let _keeping = self.keeping.lock().await;
        for (tenant, budget) in budgets {
            for (day, more) in budget.take_unwritten() {
                let spent = Spending { tokens: more.tokens, calls: more.calls };
                match runtime.store.add_spending(tenant, day, spent).await {
                    Ok(sum) => budget.kept(day, computed(sum)),
                    Err(error) => {
                        tracing::warn!(%error, "what SQL computed was not written and is kept");
                        budget.put_back(day, more);
                    }
                }
            }
        }
    }
}

fn computed(sum: Spending) -> ComputedCalls {
    ComputedCalls { tokens: sum.tokens, calls: sum.calls }
}
