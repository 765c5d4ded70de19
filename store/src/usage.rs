//! Usage: what each tenant used, summed by day, model and route.

use base::{TenantId, TokenCount};
use sqlx::AnyConnection;

use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::time::{from_sql, to_sql};

/// What a sum is kept for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageKey {
    /// Who used it.
    pub tenant: TenantId,
    /// The UTC day, counted from 1970-01-01 ([`crate::UnixMillis::day`]).
    pub day: u64,
    /// The model's name.
    pub model: String,
    /// The route's name.
    pub route: String,
}

/// Amounts; they add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Calls.
    pub requests: u64,
    /// Rows of relQueries, cells, or one per single request.
    pub rows: u64,
    pub prompt: TokenCount,
    /// Prompt tokens that the prefix cache had.
    pub cached: TokenCount,
    /// Prompt tokens that were computed.
    pub computed: TokenCount,
    pub output: TokenCount,
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.rows += more.rows;
        self.prompt += more.prompt;
        self.cached += more.cached;
        self.computed += more.computed;
        self.output += more.output;
    }
}

/// A sum and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// What it is for.
    pub key: UsageKey,
    /// The sum.
    pub used: Used,
}

type UsageColumns = (i64, i64, String, String, i64, i64, i64, i64, i64, i64);

impl Store {
    /// Adds amounts to their sums, all or none.
    pub async fn add_usage(&self, rows: &[UsageRow]) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Usage).await?;
            add(&mut tx, rows).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// The sums of a tenant (or of all) over a range of days, by day, tenant, model and route.
    pub async fn usage(
        &self,
        tenant: Option<TenantId>,
        days: std::ops::RangeInclusive<u64>,
    ) -> Result<Vec<UsageRow>, Error> {
        self.bounded(async {
            let rows: Vec<UsageColumns> = sqlx::query_as(
                "SELECT tenant, day, model, route, requests, row_count, prompt, cached, computed, output \
                 FROM token_usage WHERE ($1 IS NULL OR tenant = $1) AND day BETWEEN $2 AND $3 \
                 ORDER BY day, tenant, model, route",
            )
            .bind(tenant.map(|tenant| to_sql(tenant.0)))
            .bind(to_sql(*days.start()))
            .bind(to_sql(*days.end()))
            .fetch_all(self.pool())
            .await?;
            Ok(rows.into_iter().map(usage_row).collect())
        })
        .await
    }
}

/// Adds amounts to their sums, in a transaction that has waited for other writers of usage.
pub(crate) async fn add(tx: &mut AnyConnection, rows: &[UsageRow]) -> Result<(), Error> {
    for UsageRow { key, used } in rows {
        sqlx::query(
            "INSERT INTO token_usage \
                     (tenant, day, model, route, requests, row_count, prompt, cached, computed, output) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                     ON CONFLICT (tenant, day, model, route) DO UPDATE SET \
                     requests = token_usage.requests + excluded.requests, \
                     row_count = token_usage.row_count + excluded.row_count, \
                     prompt = token_usage.prompt + excluded.prompt, \
                     cached = token_usage.cached + excluded.cached, \
                     computed = token_usage.computed + excluded.computed, \
                     output = token_usage.output + excluded.output",
        )
        .bind(to_sql(key.tenant.0))
        .bind(to_sql(key.day))
        .bind(&key.model)
        .bind(&key.route)
        .bind(to_sql(used.requests))
        .bind(to_sql(used.rows))
        .bind(to_sql(used.prompt.0))
        .bind(to_sql(used.cached.0))
        .bind(to_sql(used.computed.0))
        .bind(to_sql(used.output.0))
        .execute(&mut *tx)
        .await
        .map_err(|error| foreign(error, Error::Missing("tenant")))?;
    }
    Ok(())
}

fn usage_row(row: UsageColumns) -> UsageRow {
    let (tenant, day, model, route, requests, rows, prompt, cached, computed, output) = row;
    let tokens = |count| TokenCount(from_sql(count));
    UsageRow {
        key: UsageKey { tenant: TenantId(from_sql(tenant)), day: from_sql(day), model, route },
        used: Used {
            requests: from_sql(requests),
            rows: from_sql(rows),
            prompt: tokens(prompt),
            cached: tokens(cached),
            computed: tokens(computed),
            output: tokens(output),
        },
    }
}
