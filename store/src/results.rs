//! The result cache: finished cells by the hash of everything that decides them.
//!
//! Every statement names the tenant, so no tenant can see another's results. Bounded by rows, per tenant and
//! in total, and by a tenant's bytes: what is past its date goes first, then what was used longest ago.

use std::ops::RangeInclusive;

use base::{Bytes, Millis, TenantId};
use sha2::{Digest, Sha256};
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use crate::error::{Error, foreign};
use crate::keys::hex;
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

/// Keys per statement: below SQLite's and Postgres' limits on parameters, above a usual batch.
const CHUNK: usize = 256;
/// A result's last use is written at most this often, so that most reads cost no write.
const LAST_USE_RESOLUTION: Millis = Millis(60_000);

/// How many results tenants of a range have.
const COUNTS: &str = "SELECT tenant, COUNT(*) FROM results WHERE tenant BETWEEN $1 AND $2 GROUP BY tenant";
/// How many results a tenant has, and the bytes of their values: from the index alone. SUM of a BIGINT is no BIGINT on
/// Postgres.
const HELD: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM results WHERE tenant = $1";

/// The identity of a result: a SHA-256 over all that decides it (model revision, prompt, sampling).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultKey(pub [u8; 32]);

impl ResultKey {
    /// The key of a sequence of parts. Lengths are hashed too: `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

/// A finished cell to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResult {
    /// What decides it.
    pub key: ResultKey,
    /// The value: JSON text, meaningful to the caller.
    pub value: String,
}

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimits {
    /// Most results of one tenant.
    pub tenant_rows_max: u64,
    /// Bytes of the values of one tenant's results; one that is larger alone is not kept.
    pub tenant_bytes_max: Bytes,
    /// Most results of all tenants together.
    pub rows_max: u64,
    /// A longer value is not kept.
    pub value_bytes_max: usize,
    /// How long a result counts.
    pub lifetime: Millis,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self {
            tenant_rows_max: 50_000,
            tenant_bytes_max: Bytes(256 << 20),
            rows_max: 200_000,
            value_bytes_max: 65_536,
            lifetime: Millis(7 * 86_400_000),
        }
    }
}

impl Store {
    /// A tenant's results for `keys`, in their order.
    pub async fn results(
        &self,
        tenant: TenantId,
        keys: &[ResultKey],
        now: UnixMillis,
    ) -> Result<Vec<Option<String>>, Error> {
        self.reading(async {
            let mut found = std::collections::HashMap::with_capacity(keys.len());
            let mut stale = Vec::new();
            for chunk in keys.chunks(CHUNK) {
                let sql = format!(
                    "SELECT key, value, last_use FROM results WHERE tenant = $1 AND expires > $2 AND key IN ({})",
                    placeholders(3, chunk.len())
                );
                // Safe: nothing but numbered placeholders is put in.
                let mut query = sqlx::query_as::<Any, (String, String, i64)>(AssertSqlSafe(sql))
                    .bind(to_sql(tenant.0))
                    .bind(now.to_sql());
                for key in chunk {
                    query = query.bind(hex(&key.0));
                }
                for (key, value, last_use) in query.fetch_all(self.pool()).await? {
                    if last_use < now.before(LAST_USE_RESOLUTION).to_sql() {
                        stale.push(key.clone());
                    }
                    found.insert(key, value);
                }
            }
            if let Err(error) = self.note_result_use(tenant, &stale, now).await {
                tracing::warn!(%error, "the use of results was not written down");
            }
            Ok(keys.iter().map(|key| found.get(&hex(&key.0)).cloned()).collect())
        })
        .await
    }

    /// Moves results to the recent end of the eviction order.
    async fn note_result_use(&self, tenant: TenantId, keys: &[String], now: UnixMillis) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin_write(Lock::Results).await?;
        for chunk in keys.chunks(CHUNK) {
            let sql = format!(
                "UPDATE results SET last_use = $1 WHERE tenant = $2 AND key IN ({})",
                placeholders(3, chunk.len())
            );
            let mut query = sqlx::query::<Any>(AssertSqlSafe(sql)).bind(now.to_sql()).bind(to_sql(tenant.0));
            for key in chunk {
                query = query.bind(key);
            }
            query.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Keeps a tenant's results and brings the cache back under its limits, in one transaction.
    pub async fn put_results(
        &self,
        tenant: TenantId,
        new: &[NewResult],
        limits: ResultLimits,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Results).await?;
            let fits =
                |bytes: usize| bytes <= limits.value_bytes_max && bytes as u64 <= limits.tenant_bytes_max.0;
            for result in new.iter().filter(|result| fits(result.value.len())) {
                sqlx::query(
                    "INSERT INTO results (tenant, key, value, created, expires, last_use, bytes) \
                     VALUES ($1, $2, $3, $4, $5, $4, $6) ON CONFLICT (tenant, key) DO UPDATE SET \
                     value = excluded.value, created = excluded.created, expires = excluded.expires, \
                     last_use = excluded.last_use, bytes = excluded.bytes",
                )
                .bind(to_sql(tenant.0))
                .bind(hex(&result.key.0))
                .bind(&result.value)
                .bind(now.to_sql())
                .bind(now.after(limits.lifetime).to_sql())
                .bind(to_sql(result.value.len() as u64))
                .execute(&mut *tx)
                .await
                .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            }
            trim(&mut tx, tenant, limits, now).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// How many results each tenant of a range has that has any, those past their date included until they are swept.
    pub async fn result_counts(
        &self,
        tenants: RangeInclusive<TenantId>,
    ) -> Result<Vec<(TenantId, u64)>, Error> {
        self.reading(async {
            let rows: Vec<(i64, i64)> = sqlx::query_as(COUNTS)
                .bind(to_sql(tenants.start().0))
                .bind(to_sql(tenants.end().0))
                .fetch_all(self.pool())
                .await?;
            Ok(rows
                .into_iter()
                .map(|(tenant, count)| (TenantId(from_sql(tenant)), from_sql(count)))
                .collect())
        })
        .await
    }

    /// Forgets all of a tenant's results; says how many.
    pub async fn clear_results(&self, tenant: TenantId) -> Result<u64, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Results).await?;
            let done = sqlx::query("DELETE FROM results WHERE tenant = $1")
                .bind(to_sql(tenant.0))
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(done.rows_affected())
        })
        .await
    }
}

/// Evicts until the limits hold: expired results, then the tenant's least recently used, then anyone's.
async fn trim(
    tx: &mut AnyConnection,
    tenant: TenantId,
    limits: ResultLimits,
    now: UnixMillis,
) -> Result<(), Error> {
    sqlx::query("DELETE FROM results WHERE expires <= $1").bind(now.to_sql()).execute(&mut *tx).await?;
    let (of_tenant, bytes): (i64, i64) =
        sqlx::query_as(HELD).bind(to_sql(tenant.0)).fetch_one(&mut *tx).await?;
    let excess = of_tenant - to_sql(limits.tenant_rows_max);
    if excess > 0 {
        sqlx::query(
            "DELETE FROM results WHERE tenant = $1 AND key IN \
             (SELECT key FROM results WHERE tenant = $1 ORDER BY last_use, key LIMIT $2)",
        )
        .bind(to_sql(tenant.0))
        .bind(excess)
        .execute(&mut *tx)
        .await?;
    }
    if bytes > to_sql(limits.tenant_bytes_max.0) {
        sqlx::query(
            "DELETE FROM results WHERE tenant = $1 AND key IN (SELECT key FROM (SELECT key, \
             SUM(bytes) OVER (ORDER BY last_use DESC, key DESC) AS with_newer FROM results WHERE tenant = $1) \
             AS summed WHERE with_newer > $2)",
        )
        .bind(to_sql(tenant.0))
        .bind(to_sql(limits.tenant_bytes_max.0))
        .execute(&mut *tx)
        .await?;
    }
    let (in_all,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM results").fetch_one(&mut *tx).await?;
    let excess = in_all - to_sql(limits.rows_max);
    if excess > 0 {
        sqlx::query(
            "DELETE FROM results WHERE (tenant, key) IN \
             (SELECT tenant, key FROM results ORDER BY last_use, tenant, key LIMIT $1)",
        )
        .bind(excess)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// `$first, $first+1, ...`: `count` of them.
pub(crate) fn placeholders(first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|number| format!("${number}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::{assert_reads_by_index, plan_of};

    #[tokio::test]
    async fn results_of_a_range_of_tenants_are_counted_without_those_of_others_and_without_values() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let plan = plan_of(&store, COUNTS).await;
        assert_reads_by_index(&plan);
        assert!(plan[0].contains("COVERING INDEX"), "{plan:?}");
    }

    #[tokio::test]
    async fn what_a_tenants_results_take_is_summed_without_reading_them() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let plan = plan_of(&store, HELD).await;
        assert_reads_by_index(&plan);
        assert!(plan[0].contains("COVERING INDEX results_by_size"), "{plan:?}");
    }

    #[test]
    fn the_borders_between_parts_are_part_of_a_key() {
        assert_ne!(ResultKey::of(&[b"ab", b"c"]), ResultKey::of(&[b"a", b"bc"]));
        assert_ne!(ResultKey::of(&[b"ab"]), ResultKey::of(&[b"ab", b""]));
        assert_eq!(ResultKey::of(&[b"ab", b"c"]), ResultKey::of(&[b"ab", b"c"]));
    }

    #[test]
    fn placeholders_are_numbered_on() {
        assert_eq!(placeholders(3, 2), "$3, $4");
    }
}
