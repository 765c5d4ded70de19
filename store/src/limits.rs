//! What tenants may, in tokens and money of a day and of a month, in requests of a minute and in models, and what they
//! have computed.

use base::{Money, TenantId};
use sqlx::any::AnyRow;
use sqlx::{FromRow, Row as _};

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
    /// What it computes in a UTC day may cost so much.
    pub day_cost: Option<Money>,
    /// The same of a UTC month.
    pub month_cost: Option<Money>,
    /// Requests in a minute.
    pub minute_requests: Option<u32>,
    /// Names of models.
    pub models: Option<Vec<String>>,
}

/// What a tenant with limits has computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// Tokens of the day.
    pub day_tokens: u64,
    /// Tokens of the month so far.
    pub month_tokens: u64,
    /// What the day's rows cost.
    pub day_cost: Money,
    /// The same of the month.
    pub month_cost: Money,
}

/// The columns of a tenant's limits, with its sums.
struct LimitColumns {
    tenant: i64,
    day_tokens: Option<i64>,
    month_tokens: Option<i64>,
    day_cost: Option<i64>,
    month_cost: Option<i64>,
    minute_requests: Option<i64>,
    models: Option<String>,
    computed: Computed,
}

// By hand: see the keys' columns.
impl<'r> FromRow<'r, AnyRow> for LimitColumns {
    fn from_row(row: &'r AnyRow) -> Result<Self, sqlx::Error> {
        let sum = |name: &str| row.try_get::<i64, _>(name).map(from_sql);
        Ok(Self {
            tenant: row.try_get("tenant")?,
            day_tokens: row.try_get("day_tokens")?,
            month_tokens: row.try_get("month_tokens")?,
            day_cost: row.try_get("day_cost")?,
            month_cost: row.try_get("month_cost")?,
            minute_requests: row.try_get("minute_requests")?,
            models: row.try_get("models")?,
            computed: Computed {
                day_tokens: sum("tokens_of_day")?,
                month_tokens: sum("tokens_of_month")?,
                day_cost: Money(sum("cost_of_day")?),
                month_cost: Money(sum("cost_of_month")?),
            },
        })
    }
}

impl Store {
    /// Sets a tenant's limits; those without a bound are none.
    pub async fn set_limits(&self, tenant: TenantId, limits: &TenantLimits) -> Result<(), Error> {
        if *limits == TenantLimits::default() {
            let query = sqlx::query("DELETE FROM tenant_limits WHERE tenant = $1").bind(to_sql(tenant.0));
            return self.changed(query).await.map(|_| ());
        }
        let models = limits.models.as_ref().map(|models| serde_json::json!(models).to_string());
        let query = sqlx::query(
            "INSERT INTO tenant_limits \
             (tenant, day_tokens, month_tokens, day_cost, month_cost, minute_requests, models) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (tenant) DO UPDATE SET day_tokens = excluded.day_tokens, \
             month_tokens = excluded.month_tokens, day_cost = excluded.day_cost, \
             month_cost = excluded.month_cost, minute_requests = excluded.minute_requests, \
             models = excluded.models",
        )
        .bind(to_sql(tenant.0))
        .bind(limits.day_tokens.map(to_sql))
        .bind(limits.month_tokens.map(to_sql))
        .bind(limits.day_cost.map(|cost| to_sql(cost.0)))
        .bind(limits.month_cost.map(|cost| to_sql(cost.0)))
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
        self.reading(async {
            let rows: Vec<LimitColumns> = sqlx::query_as(
                "SELECT l.tenant, l.day_tokens, l.month_tokens, l.day_cost, l.month_cost, \
                 l.minute_requests, l.models, \
                 CAST(COALESCE(SUM(CASE WHEN u.day = $1 THEN u.computed + u.output ELSE 0 END), 0) AS BIGINT) \
                 AS tokens_of_day, \
                 CAST(COALESCE(SUM(u.computed + u.output), 0) AS BIGINT) AS tokens_of_month, \
                 CAST(COALESCE(SUM(CASE WHEN u.day = $1 THEN u.cost ELSE 0 END), 0) AS BIGINT) AS cost_of_day, \
                 CAST(COALESCE(SUM(u.cost), 0) AS BIGINT) AS cost_of_month \
                 FROM tenant_limits l \
                 LEFT JOIN token_usage u ON u.tenant = l.tenant AND u.day BETWEEN $2 AND $1 \
                 GROUP BY l.tenant, l.day_tokens, l.month_tokens, l.day_cost, l.month_cost, \
                 l.minute_requests, l.models ORDER BY l.tenant",
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
    let broken =
        |error: serde_json::Error| Error::Broken { what: "list of models", reason: error.to_string() };
    let models = row.models.map(|models| serde_json::from_str(&models)).transpose().map_err(broken)?;
    let money = |amount: Option<i64>| amount.map(|amount| Money(from_sql(amount)));
    let limits = TenantLimits {
        day_tokens: row.day_tokens.map(from_sql),
        month_tokens: row.month_tokens.map(from_sql),
        day_cost: money(row.day_cost),
        month_cost: money(row.month_cost),
        minute_requests: row.minute_requests.map(|most| u32::try_from(from_sql(most)).unwrap_or(u32::MAX)),
        models,
    };
    Ok((TenantId(from_sql(row.tenant)), limits, row.computed))
}
