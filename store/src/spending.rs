//! What SQL of a tenant has computed on a day, over all gateways, and what it has set aside for calls under way: what its
//! budget is held against.
//!
//! Beside [`crate::usage`], which counts what a client got (answers out of a cache too) for whoever bills.

use std::ops::RangeInclusive;

use base::TenantId;

use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::time::{from_sql, to_sql};

/// The sums of a day, tenant by tenant, for the table is in that order. (SQLite keeps the order of a CROSS JOIN.)
const OF_DAY: &str = "SELECT tenants.id, tokens, calls FROM tenants CROSS JOIN sql_spending \
    WHERE sql_spending.tenant = tenants.id AND day = $1 AND tenants.id BETWEEN $2 AND $3";

/// What is added, and what is taken out; one of the two is nothing, and no sum falls below nothing.
const CHANGE: &str = "INSERT INTO sql_spending (tenant, day, tokens, calls) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (tenant, day) DO UPDATE SET \
    tokens = CASE WHEN sql_spending.tokens + excluded.tokens > $5 \
        THEN sql_spending.tokens + excluded.tokens - $5 ELSE 0 END, \
    calls = CASE WHEN sql_spending.calls + excluded.calls > $6 \
        THEN sql_spending.calls + excluded.calls - $6 ELSE 0 END \
    RETURNING tokens, calls";

/// What was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Tokens of prompts and answers.
    pub tokens: u64,
    /// Calls of a model.
    pub calls: u64,
}

impl Store {
    /// Adds to a tenant's day ([`crate::UnixMillis::day`]); gives the sum of all gateways.
    pub async fn add_spending(&self, tenant: TenantId, day: u64, more: Spending) -> Result<Spending, Error> {
        self.change_spending(tenant, day, more, Spending::default()).await
    }

    /// Adds to a tenant's day, and takes out of it what was added before and not computed; gives the sum of all gateways.
    pub async fn change_spending(
        &self,
        tenant: TenantId,
        day: u64,
        more: Spending,
        less: Spending,
    ) -> Result<Spending, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Usage).await?;
            let (tokens, calls): (i64, i64) = sqlx::query_as(CHANGE)
                .bind(to_sql(tenant.0))
                .bind(to_sql(day))
                .bind(to_sql(more.tokens.saturating_sub(less.tokens)))
                .bind(to_sql(more.calls.saturating_sub(less.calls)))
                .bind(to_sql(less.tokens.saturating_sub(more.tokens)))
                .bind(to_sql(less.calls.saturating_sub(more.calls)))
                .fetch_one(&mut *tx)
                .await
                .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            tx.commit().await?;
            Ok(Spending { tokens: from_sql(tokens), calls: from_sql(calls) })
        })
        .await
    }

    /// The sums of a day, of each tenant of a range that has one.
    pub async fn spendings(
        &self,
        day: u64,
        tenants: RangeInclusive<TenantId>,
    ) -> Result<Vec<(TenantId, Spending)>, Error> {
        self.reading(async {
            let rows: Vec<(i64, i64, i64)> = sqlx::query_as(OF_DAY)
                .bind(to_sql(day))
                .bind(to_sql(tenants.start().0))
                .bind(to_sql(tenants.end().0))
                .fetch_all(self.pool())
                .await?;
            let spending = |(tenant, tokens, calls)| {
                let spent = Spending { tokens: from_sql(tokens), calls: from_sql(calls) };
                (TenantId(from_sql(tenant)), spent)
            };
            Ok(rows.into_iter().map(spending).collect())
        })
        .await
    }

    /// The sum of a tenant's day.
    pub async fn spending(&self, tenant: TenantId, day: u64) -> Result<Spending, Error> {
        self.reading(async {
            let found: Option<(i64, i64)> =
                sqlx::query_as("SELECT tokens, calls FROM sql_spending WHERE tenant = $1 AND day = $2")
                    .bind(to_sql(tenant.0))
                    .bind(to_sql(day))
                    .fetch_optional(self.pool())
                    .await?;
            let (tokens, calls) = found.unwrap_or_default();
            Ok(Spending { tokens: from_sql(tokens), calls: from_sql(calls) })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::{assert_reads_by_index, plan_of};

    #[tokio::test]
    async fn a_days_sums_are_read_without_those_of_other_days() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let plan = plan_of(&store, OF_DAY).await;
        assert_reads_by_index(&plan);
        assert!(plan.iter().any(|step| step.contains("(tenant=? AND day=?)")), "{plan:?}");
    }
}
