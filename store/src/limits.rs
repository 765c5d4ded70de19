//! What tenants may, in tokens of a day and of a month, in requests of a minute and in models, and what they have
//! computed.

use base::TenantId;

use crate::error::{Error, foreign};
use crate::open::Store;
use crate::time::{from_sql, month_start, to_sql};

/// Bounds of a tenant; `None`: as much as it likes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Tokens that it computes in a UTC day: prompts that no cache had, and answers.
    pub day_tokens: Option<u64>,
    /// The same of a UTC month.
    pub month_tokens: Option<u64>,
    /// Requests in a minute.
    pub minute_requests: Option<u32>,
    /// Names of models.
    pub models: Option<Vec<String>>,
}

/// What a tenant with limits has computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// Tokens of the day.
    pub day: u64,
    /// Tokens of the month so far.
    pub month: u64,
}

type LimitColumns = (i64, Option<i64>, Option<i64>, Option<i64>, Option<String>, i64, i64);

impl Store {
    /// Sets a tenant's limits; those without a bound are none.
    pub async fn set_limits(&self, tenant: TenantId, limits: &TenantLimits) -> Result<(), Error> {
        if *limits == TenantLimits::default() {
            let query = sqlx::query("DELETE FROM tenant_limits WHERE tenant = $1").bind(to_sql(tenant.0));
            return self.changed(query).await.map(|_| ());
        }
        let models = limits.models.as_ref().map(|models| serde_json::json!(models).to_string());
        let query = sqlx::query(
            "INSERT INTO tenant_limits (tenant, day_tokens, month_tokens, minute_requests, models) \
             VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (tenant) DO UPDATE SET day_tokens = excluded.day_tokens, \
             month_tokens = excluded.month_tokens, minute_requests = excluded.minute_requests, \
             models = excluded.models",
        )
        .bind(to_sql(tenant.0))
        .bind(limits.day_tokens.map(to_sql))
        .bind(limits.month_tokens.map(to_sql))
        .bind(limits.minute_requests.map(i64::from))
        .bind(models);
        self.changed(query).await.map(|_| ()).map_err(|error| match error {
            Error::Sql(cause) => foreign(cause, Error::Missing("tenant")),
            error => error,
        })
    }

    /// The limits of all tenants that have some, with what these have computed on a day ([`crate::UnixMillis::day`])
    /// and in its month up to it.
    pub async fn limits(&self, day: u64) -> Result<Vec<(TenantId, TenantLimits, Computed)>, Error> {
        self.bounded(async {
            let rows: Vec<LimitColumns> = sqlx::query_as(
                "SELECT l.tenant, l.day_tokens, l.month_tokens, l.minute_requests, l.models, \
                 CAST(COALESCE(SUM(CASE WHEN u.day = $1 THEN u.computed + u.output ELSE 0 END), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(u.computed + u.output), 0) AS BIGINT) \
                 FROM tenant_limits l \
                 LEFT JOIN token_usage u ON u.tenant = l.tenant AND u.day BETWEEN $2 AND $1 \
                 GROUP BY l.tenant, l.day_tokens, l.month_tokens, l.minute_requests, l.models ORDER BY l.tenant",
            )
            .bind(to_sql(day))
            .bind(to_sql(month_start(day)))
            .fetch_all(self.pool())
            .await?;
            rows.into_iter().map(read).collect()
        })
        .await
    }
}

fn read(row: LimitColumns) -> Result<(TenantId, TenantLimits, Computed), Error> {
    let (tenant, day_tokens, month_tokens, minute_requests, models, day, month) = row;
    let broken =
        |error: serde_json::Error| Error::Broken { what: "list of models", reason: error.to_string() };
    let limits = TenantLimits {
        day_tokens: day_tokens.map(from_sql),
        month_tokens: month_tokens.map(from_sql),
        minute_requests: minute_requests.map(|most| u32::try_from(from_sql(most)).unwrap_or(u32::MAX)),
        models: models.map(|models| serde_json::from_str(&models)).transpose().map_err(broken)?,
    };
    Ok((TenantId(from_sql(tenant)), limits, Computed { day: from_sql(day), month: from_sql(month) }))
}
