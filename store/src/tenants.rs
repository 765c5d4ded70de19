//! Tenants: who owns keys, usage and results.

use base::TenantId;

use crate::error::{Error, unique};
use crate::name_search::{NameSearch, NamesFound};
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// The tenant that every database starts with.
pub const DEFAULT_TENANT: TenantId = TenantId(1);

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its identity; never used twice in a database.
    pub id: TenantId,
    /// Its name; unique.
    pub name: String,
    /// Its share of the machine relative to others.
    pub weight: f64,
    /// When it was made; `None` for the default tenant, which came with the database.
    pub created: Option<UnixMillis>,
}

/// A tenant by its number.
const BY_ID: &str = "SELECT id, name, weight, created FROM tenants WHERE id = $1";
/// The last tenants before a number, the last first.
const PAGE: &str = "SELECT id, name, weight, created FROM tenants WHERE id < $1 ORDER BY id DESC LIMIT $2";
/// Of the last tenants before a number, so many at most, those whose names begin so and go on, the last first.
const BEGUN: &str = "SELECT id, name, weight, created FROM \
    (SELECT id, name, weight, created FROM tenants WHERE id < $1 ORDER BY id DESC LIMIT $2) searched \
    WHERE substr(name, 1, CAST($3 AS INTEGER)) = $4 AND name <> $4 ORDER BY id DESC LIMIT $5";
/// The tenant that stands behind so many, counted from the last before a number.
const BEHIND: &str = "SELECT id FROM tenants WHERE id < $1 ORDER BY id DESC LIMIT 1 OFFSET $2";

type TenantColumns = (i64, String, f64, Option<i64>);

fn tenant((id, name, weight, created): TenantColumns) -> Tenant {
    Tenant { id: TenantId(from_sql(id)), name, weight, created: created.map(instant) }
}

/// The next identifier of a kind, inside the caller's transaction.
pub(crate) async fn next_id(tx: &mut sqlx::AnyConnection, kind: &'static str) -> Result<i64, Error> {
    let (id,): (i64,) = sqlx::query_as("UPDATE counters SET last = last + 1 WHERE name = $1 RETURNING last")
        .bind(kind)
        .fetch_one(tx)
        .await?;
    Ok(id)
}

impl Store {
    /// Makes a tenant. `weight` is its share of the machine relative to others (1 is usual).
    pub async fn create_tenant(&self, name: &str, weight: f64, now: UnixMillis) -> Result<Tenant, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Counters).await?;
            let id = next_id(&mut tx, "tenant").await?;
            sqlx::query("INSERT INTO tenants (id, name, weight, created) VALUES ($1, $2, $3, $4)")
                .bind(id)
                .bind(name)
                .bind(weight)
                .bind(now.to_sql())
                .execute(&mut *tx)
                .await
                .map_err(|error| unique(error, Error::Taken { what: "tenant", name: name.to_owned() }))?;
            tx.commit().await?;
            Ok(tenant((id, name.to_owned(), weight, Some(now.to_sql()))))
        })
        .await
    }

    /// All tenants, oldest first.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        self.reading(async {
            let rows: Vec<TenantColumns> =
                sqlx::query_as("SELECT id, name, weight, created FROM tenants ORDER BY id")
                    .fetch_all(self.pool())
                    .await?;
            Ok(rows.into_iter().map(tenant).collect())
        })
        .await
    }

    /// The last tenants before a number, at most so many; the oldest first.
    pub async fn tenants_before(&self, before: Option<u64>, most: u32) -> Result<Vec<Tenant>, Error> {
        self.reading(async {
            let rows: Vec<TenantColumns> = sqlx::query_as(PAGE)
                .bind(before.map_or(i64::MAX, to_sql))
                .bind(i64::from(most))
                .fetch_all(self.pool())
                .await?;
            Ok(rows.into_iter().rev().map(tenant).collect())
        })
        .await
    }

    /// The last tenants whose names begin so, and have more letters than that.
    pub async fn tenants_begun(&self, search: NameSearch<'_>) -> Result<NamesFound<Tenant>, Error> {
        let before = search.before.map_or(i64::MAX, to_sql);
        self.reading(async {
            let rows: Vec<TenantColumns> = sqlx::query_as(BEGUN)
                .bind(before)
                .bind(i64::from(search.searched_max))
                .bind(search.letters())
                .bind(search.prefix)
                .bind(i64::from(search.found_max))
                .fetch_all(self.pool())
                .await?;
            let behind: Option<(i64,)> = sqlx::query_as(BEHIND)
                .bind(before)
                .bind(i64::from(search.searched_max))
                .fetch_optional(self.pool())
                .await?;
            let entries = rows.into_iter().rev().map(tenant).collect();
            Ok(NamesFound { entries, unsearched: behind.map(|(id,)| from_sql(id)) })
        })
        .await
    }

    /// A tenant.
    pub async fn tenant(&self, id: TenantId) -> Result<Option<Tenant>, Error> {
        self.reading(async {
            let row: Option<TenantColumns> =
                sqlx::query_as(BY_ID).bind(to_sql(id.0)).fetch_optional(self.pool()).await?;
            Ok(row.map(tenant))
        })
        .await
    }

    /// The tenant of a name.
    pub async fn tenant_named(&self, name: &str) -> Result<Option<Tenant>, Error> {
        self.reading(async {
            let row: Option<TenantColumns> =
                sqlx::query_as("SELECT id, name, weight, created FROM tenants WHERE name = $1")
                    .bind(name)
                    .fetch_optional(self.pool())
                    .await?;
            Ok(row.map(tenant))
        })
        .await
    }

    /// Changes a tenant's weight.
    pub async fn set_weight(&self, id: TenantId, weight: f64) -> Result<(), Error> {
        let query =
            sqlx::query("UPDATE tenants SET weight = $1 WHERE id = $2").bind(weight).bind(to_sql(id.0));
        if self.changed(query).await? == 0 { Err(Error::Missing("tenant")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::{assert_reads_by_index, plan_of};

    #[tokio::test]
    async fn a_tenant_and_a_page_of_tenants_are_read_without_the_others() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        for sql in [BY_ID, PAGE, BEHIND] {
            assert_reads_by_index(&plan_of(&store, sql).await);
        }
        let plan = plan_of(&store, BEGUN).await;
        assert!(plan.iter().any(|step| step.starts_with("SEARCH tenants USING INDEX")), "{plan:?}");
        assert!(!plan.iter().any(|step| step.starts_with("SCAN tenants")), "not all are looked at: {plan:?}");
    }
}
