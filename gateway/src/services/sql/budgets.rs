//! Budgets of tenants: limits of the configuration, held against sums that the store keeps. Where a day has a limit, the sum
//! counts what calls may take before they run, and is told after what they did not take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::TenantId;
use serving::Runtime;
use serving::error::{RequestError, internal, stored};
use sql::budget::{ComputedCalls, Reservation, TenantBudget, UnwrittenCalls};
use store::Spending;

use crate::config::SqlConfig;

/// The budgets of tenants that have had sessions.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<HashMap<TenantId, KnownBudget>>);

#[derive(Clone, Debug)]
struct KnownBudget {
    budget: Arc<TenantBudget>,
    /// Held while its sums are read or written: who reads a sum meanwhile would miss what is on its way.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Budgets {
    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, KnownBudget>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        let KnownBudget { budget, writing } = match known {
            Some(known) => known,
            None => {
                let name = stored(runtime.store.tenant(tenant).await)?.map(|known| known.name);
                let [statement, day] = config.budget_of(&name.unwrap_or_default());
                let clock = Arc::clone(shared);
                let budget = TenantBudget::new(statement, day, move || clock.unix_now().day());
                let known = KnownBudget { budget: Arc::new(budget), writing: Arc::default() };
                self.known().entry(tenant).or_insert(known).clone()
            }
        };
        if budget.limits_days() {
            let _writing = writing.lock().await;
            let day = shared.unix_now().day();
            budget.kept(day, computed(stored(runtime.store.spending(tenant, day).await)?));
        }
        Ok(budget)
    }

    /// Has the sum of the day count what calls may take that are about to run, where the day has a limit: a kill leaves
    /// them in it.
    pub async fn hold(
        &self,
        runtime: &Arc<Runtime>,
        tenant: TenantId,
        mut reserved: Reservation,
    ) -> Result<Reservation, RequestError> {
        let most = reserved.most();
        let known = self.known().get(&tenant).cloned();
        let Some(KnownBudget { writing, .. }) = known.filter(|known| known.budget.limits_days()) else {
            return Ok(reserved);
        };
        if most == ComputedCalls::default() {
            return Ok(reserved);
        }
        // A task of its own: whoever waits may leave, and what is written then is taken out again.
        let runtime = Arc::clone(runtime);
        let holding = tokio::spawn(async move {
            let _writing = writing.lock().await;
            let day = runtime.shared.unix_now().day();
            let written = runtime.store.add_spending(tenant, day, spending(most)).await;
            let sum = computed(stored(written)?);
            reserved.hold(day, sum);
            Ok::<_, RequestError>(reserved)
        });
        holding.await.map_err(internal)?
    }

    /// Tells the store what was computed since the last time, and what was set aside and not computed.
    pub async fn keep(&self, runtime: &Runtime) {
        // What is taken out must not be taken out twice: it waits for a store that surely takes it.
        if runtime.store.health().outage().is_some() {
            return;
        }
        let all: Vec<_> = self.known().iter().map(|(tenant, known)| (*tenant, known.clone())).collect();
        for (tenant, KnownBudget { budget, writing }) in all {
            let _writing = writing.lock().await;
            for (day, UnwrittenCalls { more, less }) in budget.take_unwritten() {
                let changed =
                    runtime.store.change_spending(tenant, day, spending(more), spending(less)).await;
                match changed {
                    Ok(sum) => budget.kept(day, computed(sum)),
                    Err(error) => {
                        tracing::warn!(%error, "what SQL computed was not written and is kept");
                        // It may be written all the same: then too much is counted, and never too little.
                        budget.put_back(day, UnwrittenCalls { more, ..UnwrittenCalls::default() });
                    }
                }
            }
        }
    }
}

fn computed(sum: Spending) -> ComputedCalls {
    ComputedCalls { tokens: sum.tokens, calls: sum.calls }
}

fn spending(calls: ComputedCalls) -> Spending {
    Spending { tokens: calls.tokens, calls: calls.calls }
}
