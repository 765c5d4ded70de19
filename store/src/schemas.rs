//! PML schemas: each tenant's, by name, as they were written. Bounded by number, by bytes and by
//! tokens that are pinned.

use base::{Bytes, TenantId, TokenCount};
use sqlx::AnyConnection;

use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// A schema to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSchema<'a> {
    pub tenant: TenantId,
    /// Its name; one of this name is replaced.
    pub name: &'a str,
    /// Its text.
    pub pml: &'a str,
    /// Tokens of it that are to stay in the engine's memory; 0: none.
    pub pinned: TokenCount,
}

/// What a tenant may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    pub schemas: u64,
    /// Of the texts of all of them together.
    pub bytes: Bytes,
    /// Pinned tokens of all of them together.
    pub pinned: TokenCount,
}

/// Whether a schema is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaPut {
    Yes,
    /// The tenant has as many as it may.
    TooMany,
    /// The texts of the tenant's others have so many bytes: too many beside this one's.
    TooManyBytes(Bytes),
    /// The tenant's others have this many tokens pinned: too many beside this one's.
    TooManyPinned(TokenCount),
}

/// A schema that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchema {
    pub name: String,
    /// Its text.
    pub pml: String,
    /// Tokens of it that are to stay in the engine's memory; 0: none.
    pub pinned: TokenCount,
    /// When the first of this name was kept.
    pub created: UnixMillis,
    /// When this one was.
    pub updated: UnixMillis,
}

type SchemaColumns = (String, String, i64, i64, i64);

fn schema((name, pml, pinned, created, updated): SchemaColumns) -> StoredSchema {
    let pinned = TokenCount(from_sql(pinned));
    StoredSchema { name, pml, pinned, created: instant(created), updated: instant(updated) }
}

impl Store {
    /// Whether a schema would be kept.
    pub async fn can_put_schema(&self, new: NewSchema<'_>, limits: SchemaLimits) -> Result<SchemaPut, Error> {
        self.reading(async {
            let mut connection = self.pool().acquire().await?;
            room(&mut connection, new, limits).await
        })
        .await
    }

    /// Keeps a schema, in place of the one of its name, where the limits allow.
    pub async fn put_schema(
        &self,
        new: NewSchema<'_>,
        limits: SchemaLimits,
        now: UnixMillis,
    ) -> Result<SchemaPut, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Schemas).await?;
            let kept = room(&mut tx, new, limits).await?;
            if kept != SchemaPut::Yes {
                return Ok(kept);
            }
            sqlx::query(
                "INSERT INTO schemas (tenant, name, pml, pinned, created, updated) \
                 VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (tenant, name) DO UPDATE SET \
                 pml = excluded.pml, pinned = excluded.pinned, updated = excluded.updated",
            )
            .bind(to_sql(new.tenant.0))
            .bind(new.name)
            .bind(new.pml)
            .bind(to_sql(new.pinned.0))
            .bind(now.to_sql())
            .execute(&mut *tx)
            .await
            .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            tx.commit().await?;
            Ok(SchemaPut::Yes)
        })
        .await
    }

    /// A tenant's schema.
    pub async fn schema(&self, tenant: TenantId, name: &str) -> Result<Option<StoredSchema>, Error> {
        self.reading(async {
            let row: Option<SchemaColumns> = sqlx::query_as(
                "SELECT name, pml, pinned, created, updated FROM schemas WHERE tenant = $1 AND name = $2",
            )
            .bind(to_sql(tenant.0))
            .bind(name)
            .fetch_optional(self.pool())
            .await?;
            Ok(row.map(schema))
        })
        .await
    }

    /// A tenant's schemas by name, without their texts.
    pub async fn schemas(&self, tenant: TenantId) -> Result<Vec<StoredSchema>, Error> {
        self.reading(async {
            let rows: Vec<SchemaColumns> = sqlx::query_as(
                "SELECT name, '', pinned, created, updated FROM schemas WHERE tenant = $1 ORDER BY name",
            )
            .bind(to_sql(tenant.0))
            .fetch_all(self.pool())
            .await?;
            Ok(rows.into_iter().map(schema).collect())
        })
        .await
    }

    /// Forgets a tenant's schema; says whether there was one.
    pub async fn delete_schema(&self, tenant: TenantId, name: &str) -> Result<bool, Error> {
        let query = sqlx::query("DELETE FROM schemas WHERE tenant = $1 AND name = $2")
            .bind(to_sql(tenant.0))
            .bind(name);
        Ok(self.changed(query).await? > 0)
    }
}

/// Whether the tenant's other schemas leave room for this one.
async fn room(
    connection: &mut AnyConnection,
    new: NewSchema<'_>,
    limits: SchemaLimits,
) -> Result<SchemaPut, Error> {
    // A sum of BIGINTs is a NUMERIC to Postgres.
    let (count, bytes, pinned): (i64, i64, i64) = sqlx::query_as(
        "SELECT COUNT(*), CAST(COALESCE(SUM(octet_length(pml)), 0) AS BIGINT), \
         CAST(COALESCE(SUM(pinned), 0) AS BIGINT) FROM schemas WHERE tenant = $1 AND name <> $2",
    )
    .bind(to_sql(new.tenant.0))
    .bind(new.name)
    .fetch_one(connection)
    .await?;
    if from_sql(count) >= limits.schemas {
        return Ok(SchemaPut::TooMany);
    }
    let bytes = from_sql(bytes);
    if bytes.saturating_add(new.pml.len() as u64) > limits.bytes.0 {
        return Ok(SchemaPut::TooManyBytes(Bytes(bytes)));
    }
    let pinned = from_sql(pinned);
    if new.pinned.0 > 0 && pinned.saturating_add(new.pinned.0) > limits.pinned.0 {
        return Ok(SchemaPut::TooManyPinned(TokenCount(pinned)));
    }
    Ok(SchemaPut::Yes)
}
