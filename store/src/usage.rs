//! Usage: what each tenant used, summed by day, model and route.

use base::{Money, TenantId, TokenCount};
use sqlx::AnyConnection;

use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

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
    /// At the prices that held.
    pub cost: Money,
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.rows += more.rows;
        self.prompt += more.prompt;
        self.cached += more.cached;
        self.computed += more.computed;
        self.output += more.output;
        self.cost = self.cost.saturating_add(more.cost);
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

/// Amounts to add, as one write. Whoever does not know whether it was kept sends the same again: it counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageWrite<'a> {
    /// Who writes: a name that no other process has or had.
    pub writer: &'a str,
    /// The writer's number of it: larger than that of what it wrote before.
    pub number: u64,
    /// The amounts. Sent again they must be those of the first time.
    pub rows: &'a [UsageRow],
    /// The instant of the write.
    pub at: UnixMillis,
}

/// What became of a write that a process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageReplay {
    /// It is added.
    Added,
    /// It was there already, or a later one of its writer.
    Known,
    /// Its writer is not known: another database's, or one that has been silent for so long that it was forgotten. Nothing is
    /// added: nobody could tell whether it was there.
    Foreign,
}

/// A tenant's sums. A statement for both, with a condition that holds where no tenant is given, would have SQLite read
/// the whole table for each.
const OF_TENANT: &str = "SELECT tenant, day, model, route, requests, row_count, prompt, cached, computed, output, cost \
    FROM token_usage WHERE tenant = $1 AND day BETWEEN $2 AND $3 ORDER BY day, model, route";
/// All tenants': tenant by tenant, for the table is in that order. (SQLite keeps the order of a CROSS JOIN.)
const OF_ALL: &str = "SELECT tenant, day, model, route, requests, row_count, prompt, cached, computed, output, cost \
    FROM tenants CROSS JOIN token_usage WHERE token_usage.tenant = tenants.id AND day BETWEEN $1 AND $2 \
    ORDER BY day, tenant, model, route";

/// The first day of all tenants' sums: of each tenant the first that its part of the table has.
const FIRST_DAY: &str = "SELECT MIN(oldest) FROM (SELECT (SELECT MIN(day) FROM token_usage \
    WHERE token_usage.tenant = tenants.id) AS oldest FROM tenants) AS firsts";

/// An insertion into the table that adds to the sum that is there; `$rows`: what is inserted.
macro_rules! insert_or_add {
    ($rows:literal) => {
        concat!(
            "INSERT INTO token_usage \
            (tenant, day, model, route, requests, row_count, prompt, cached, computed, output, cost) ",
            $rows,
            " ON CONFLICT (tenant, day, model, route) DO UPDATE SET \
            requests = token_usage.requests + excluded.requests, \
            row_count = token_usage.row_count + excluded.row_count, \
            prompt = token_usage.prompt + excluded.prompt, \
            cached = token_usage.cached + excluded.cached, \
            computed = token_usage.computed + excluded.computed, \
            output = token_usage.output + excluded.output, \
            cost = token_usage.cost + excluded.cost"
        )
    };
}

/// Adds one amount to its sum.
const ADD: &str = insert_or_add!("VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");

/// Adds a tenant's sums of days after $2 and before $3 to those of $2.
const MERGE: &str = insert_or_add!(
    "SELECT tenant, CAST($2 AS BIGINT), model, route, CAST(SUM(requests) AS BIGINT), CAST(SUM(row_count) AS BIGINT), \
    CAST(SUM(prompt) AS BIGINT), CAST(SUM(cached) AS BIGINT), CAST(SUM(computed) AS BIGINT), \
    CAST(SUM(output) AS BIGINT), CAST(SUM(cost) AS BIGINT) \
    FROM token_usage WHERE tenant = $1 AND day > $2 AND day < $3 GROUP BY tenant, model, route"
);

/// The last sums of a day of all tenants before one of them, the last first: tenant by tenant too, no further than the limit.
const OF_DAY: &str = "SELECT tenant, day, model, route, requests, row_count, prompt, cached, computed, output, cost \
    FROM tenants CROSS JOIN token_usage WHERE token_usage.tenant = tenants.id AND day = $1 \
    AND tenants.id <= $2 AND (tenants.id < $2 OR (model, route) < ($3, $4)) \
    ORDER BY tenants.id DESC, model DESC, route DESC LIMIT $5";

type UsageColumns = (i64, i64, String, String, i64, i64, i64, i64, i64, i64, i64);

impl Store {
    /// Adds amounts to their sums, all or none, and a write that is there already not again.
    pub async fn add_usage(&self, write: UsageWrite<'_>) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Usage).await?;
            let is_new = sqlx::query(
                "INSERT INTO usage_writers (id, last, written) VALUES ($1, $2, $3) \
                 ON CONFLICT (id) DO UPDATE SET last = excluded.last, written = excluded.written \
                 WHERE usage_writers.last < excluded.last",
            )
            .bind(write.writer)
            .bind(to_sql(write.number))
            .bind(write.at.to_sql())
            .execute(&mut *tx)
            .await?
            .rows_affected()
                > 0;
            if is_new {
                add(&mut tx, write.rows).await?;
            }
            Ok(tx.commit().await?)
        })
        .await
    }

    /// Has a writer known that may have written nothing yet, or for long: until it is forgotten, what it leaves can be told from
    /// what it wrote. One that was heard of after `since` is left as it is.
    pub async fn know_usage_writer(
        &self,
        writer: &str,
        at: UnixMillis,
        since: UnixMillis,
    ) -> Result<(), Error> {
        let query = sqlx::query(
            "INSERT INTO usage_writers (id, last, written) VALUES ($1, 0, $2) \
             ON CONFLICT (id) DO UPDATE SET written = excluded.written WHERE usage_writers.written <= $3",
        );
        self.changed(query.bind(writer).bind(at.to_sql()).bind(since.to_sql())).await?;
        Ok(())
    }

    /// Adds what a process has left of a write, unless it is there. Only of a writer that is known can that be told.
    pub async fn replay_usage(&self, write: UsageWrite<'_>) -> Result<UsageReplay, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Usage).await?;
            let last: Option<(i64,)> = sqlx::query_as("SELECT last FROM usage_writers WHERE id = $1")
                .bind(write.writer)
                .fetch_optional(&mut *tx)
                .await?;
            match last {
                None => return Ok(UsageReplay::Foreign),
                Some((last,)) if last >= to_sql(write.number) => return Ok(UsageReplay::Known),
                Some(_) => {}
            }
            sqlx::query("UPDATE usage_writers SET last = $2, written = $3 WHERE id = $1")
                .bind(write.writer)
                .bind(to_sql(write.number))
                .bind(write.at.to_sql())
                .execute(&mut *tx)
                .await?;
            add(&mut tx, write.rows).await?;
            tx.commit().await?;
            Ok(UsageReplay::Added)
        })
        .await
    }

    /// Forgets writers that were not heard of since `before`; says how many.
    pub async fn forget_usage_writers(&self, before: UnixMillis) -> Result<u64, Error> {
        let query = sqlx::query("DELETE FROM usage_writers WHERE written < $1").bind(before.to_sql());
        self.changed(query).await
    }

    /// The sums of a tenant (or of all) over a range of days, by day, tenant, model and route.
    pub async fn usage(
        &self,
        tenant: Option<TenantId>,
        days: std::ops::RangeInclusive<u64>,
    ) -> Result<Vec<UsageRow>, Error> {
        self.reading(async {
            let query = match tenant {
                Some(tenant) => sqlx::query_as(OF_TENANT).bind(to_sql(tenant.0)),
                None => sqlx::query_as(OF_ALL),
            };
            let days = query.bind(to_sql(*days.start())).bind(to_sql(*days.end()));
            let rows: Vec<UsageColumns> = days.fetch_all(self.pool()).await?;
            Ok(rows.into_iter().map(usage_row).collect())
        })
        .await
    }
}

impl Store {
    /// The last sums of a day, of all tenants by tenant, model and route, the last first: at most `limit`, of those before
    /// the sum of a key of that day. A day of many tenants is more than one call gives in time.
    pub async fn usage_of_day(
        &self,
        day: u64,
        before: Option<&UsageKey>,
        limit: u32,
    ) -> Result<Vec<UsageRow>, Error> {
        self.reading(async {
            // Without a key: before a tenant that comes after all others.
            let (tenant, model, route) =
                before.map_or((i64::MAX, "", ""), |key| (to_sql(key.tenant.0), &*key.model, &*key.route));
            let query = sqlx::query_as(OF_DAY).bind(to_sql(day)).bind(tenant).bind(model).bind(route);
            let rows: Vec<UsageColumns> = query.bind(i64::from(limit)).fetch_all(self.pool()).await?;
            Ok(rows.into_iter().map(usage_row).collect())
        })
        .await
    }
}

impl Store {
    /// The first day of which there is usage.
    pub async fn first_usage_day(&self) -> Result<Option<u64>, Error> {
        self.reading(async {
            let (day,): (Option<i64>,) = sqlx::query_as(FIRST_DAY).fetch_one(self.pool()).await?;
            Ok(day.map(from_sql))
        })
        .await
    }

    /// The tenants that have usage of days after `first` and before `next`.
    pub async fn tenants_with_usage(&self, (first, next): (u64, u64)) -> Result<Vec<TenantId>, Error> {
        self.reading(async {
            let rows: Vec<(i64,)> = sqlx::query_as(
                "SELECT id FROM tenants WHERE EXISTS (SELECT 1 FROM token_usage \
                 WHERE token_usage.tenant = tenants.id AND day > $1 AND day < $2) ORDER BY id",
            )
            .bind(to_sql(first))
            .bind(to_sql(next))
            .fetch_all(self.pool())
            .await?;
            Ok(rows.into_iter().map(|(id,)| TenantId(from_sql(id))).collect())
        })
        .await
    }

    /// Adds a tenant's sums of days after `first` and before `next` to those of `first`, by model and route. Where they
    /// were added before nothing is left to add.
    pub async fn merge_usage(&self, tenant: TenantId, (first, next): (u64, u64)) -> Result<(), Error> {
        self.in_background(async {
            let mut tx = self.begin_write(Lock::Usage).await?;
            sqlx::query(MERGE)
                .bind(to_sql(tenant.0))
                .bind(to_sql(first))
                .bind(to_sql(next))
                .execute(&mut *tx)
                .await?;
            sqlx::query("DELETE FROM token_usage WHERE tenant = $1 AND day > $2 AND day < $3")
                .bind(to_sql(tenant.0))
                .bind(to_sql(first))
                .bind(to_sql(next))
                .execute(&mut *tx)
                .await?;
            Ok(tx.commit().await?)
        })
        .await
    }
}

/// Adds amounts to their sums, in a transaction that has waited for other writers of usage.
pub(crate) async fn add(tx: &mut AnyConnection, rows: &[UsageRow]) -> Result<(), Error> {
    for UsageRow { key, used } in rows {
        sqlx::query(ADD)
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
            .bind(to_sql(used.cost.0))
            .execute(&mut *tx)
            .await
            .map_err(|error| foreign(error, Error::Missing("tenant")))?;
    }
    Ok(())
}

fn usage_row(row: UsageColumns) -> UsageRow {
    let (tenant, day, model, route, requests, rows, prompt, cached, computed, output, cost) = row;
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
            cost: Money(from_sql(cost)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::plan_of;

    #[tokio::test]
    async fn a_years_sums_are_not_read_for_a_month_or_a_page_of_them() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let range = "(tenant=? AND day>? AND day<?)";
        for (sql, by) in [
            (OF_TENANT, range),
            (OF_ALL, range),
            (OF_DAY, "(tenant=? AND day=?)"),
            (FIRST_DAY, "(tenant=?)"),
            (MERGE, range),
        ] {
            let plan = plan_of(&store, sql).await;
            let reads: Vec<&String> = plan.iter().filter(|step| step.contains(" token_usage")).collect();
            let [read] = &reads[..] else { panic!("one read: {plan:?}") };
            assert!(read.starts_with("SEARCH ") && read.contains(by), "{plan:?}");
        }
    }
}
