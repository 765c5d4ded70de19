//! What tenants may compute in a day and in a month, and what they have computed.

use base::TenantId;

use crate::error::{Error, foreign};
use crate::open::Store;
use crate::time::{from_sql, month_start, to_sql};

/// Bounds of the tokens that a tenant computes: prompts that no cache had, and answers. `None`: as many as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantBudget {
    /// Of a UTC day.
    pub day_tokens: Option<u64>,
    /// Of a UTC month.
    pub month_tokens: Option<u64>,
}

/// What a tenant with a budget has computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// Tokens of the day.
    pub day: u64,
    /// Tokens of the month so far.
    pub month: u64,
}

type BudgetColumns = (i64, Option<i64>, Option<i64>, i64, i64);

impl Store {
    /// Sets a tenant's budget; one without bounds is none.
    pub async fn set_budget(&self, tenant: TenantId, budget: TenantBudget) -> Result<(), Error> {
        if budget == TenantBudget::default() {
            let query = sqlx::query("DELETE FROM tenant_budgets WHERE tenant = $1").bind(to_sql(tenant.0));
            return self.changed(query).await.map(|_| ());
        }
        let query = sqlx::query(
            "INSERT INTO tenant_budgets (tenant, day_tokens, month_tokens) VALUES ($1, $2, $3) \
             ON CONFLICT (tenant) DO UPDATE SET day_tokens = excluded.day_tokens, \
             month_tokens = excluded.month_tokens",
        )
        .bind(to_sql(tenant.0))
        .bind(budget.day_tokens.map(to_sql))
        .bind(budget.month_tokens.map(to_sql));
        self.changed(query).await.map(|_| ()).map_err(|error| match error {
            Error::Sql(cause) => foreign(cause, Error::Missing("tenant")),
            error => error,
        })
    }

    /// The budgets of all tenants that have one, with what these have computed on a day ([`crate::UnixMillis::day`])
    /// and in its month up to it.
    pub async fn budgets(&self, day: u64) -> Result<Vec<(TenantId, TenantBudget, Computed)>, Error> {
        self.bounded(async {
            let rows: Vec<BudgetColumns> = sqlx::query_as(
                "SELECT b.tenant, b.day_tokens, b.month_tokens, \
                 CAST(COALESCE(SUM(CASE WHEN u.day = $1 THEN u.computed + u.output ELSE 0 END), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(u.computed + u.output), 0) AS BIGINT) \
                 FROM tenant_budgets b \
                 LEFT JOIN token_usage u ON u.tenant = b.tenant AND u.day BETWEEN $2 AND $1 \
                 GROUP BY b.tenant, b.day_tokens, b.month_tokens ORDER BY b.tenant",
            )
            .bind(to_sql(day))
            .bind(to_sql(month_start(day)))
            .fetch_all(self.pool())
            .await?;
            let of = |(tenant, day_tokens, month_tokens, day, month): BudgetColumns| {
                let budget = TenantBudget {
                    day_tokens: day_tokens.map(from_sql),
                    month_tokens: month_tokens.map(from_sql),
                };
                (TenantId(from_sql(tenant)), budget, Computed { day: from_sql(day), month: from_sql(month) })
            };
            Ok(rows.into_iter().map(of).collect())
        })
        .await
    }
}
