//! Brings a database to this program's schema: numbered steps, each applied once, all in one transaction
//! under a lock, so several gateways may start on one database at the same time.
//!
//! Not sqlx's own migrator: on SQLite it takes no lock, and two processes that start together collide.

use sqlx::AnyConnection;

use crate::error::Error;

/// The steps, oldest first; step `i` brings the schema to version `i + 1`. Never edited, only added to.
const STEPS: [&str; 23] = [
    include_str!("schema.sql"),
    include_str!("schemas.sql"),
    include_str!("corpora.sql"),
    include_str!("jobs.sql"),
    include_str!("sql.sql"),
    include_str!("replica_leases.sql"),
    include_str!("sign_ins.sql"),
    include_str!("workbooks.sql"),
    include_str!("upkeep.sql"),
    include_str!("idempotency.sql"),
    include_str!("limits.sql"),
    include_str!("money.sql"),
    include_str!("scopes.sql"),
    include_str!("usage_writers.sql"),
    include_str!("ticket_keys.sql"),
    include_str!("responses.sql"),
    include_str!("key_claims.sql"),
    include_str!("ticket_takes.sql"),
    include_str!("uploads.sql"),
    include_str!("part_bytes.sql"),
    include_str!("ticket_progress.sql"),
    include_str!("sums.sql"),
    include_str!("result_bytes.sql"),
];

/// The version that this program brings a schema to, and the newest that it reads.
pub const SCHEMA_VERSION: i64 = STEPS.len() as i64;

/// Applies the steps that the database does not have yet, in a transaction of the caller's, who holds the
/// schema's lock.
pub(crate) async fn migrate(tx: &mut AnyConnection) -> Result<(), Error> {
    sqlx::query("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)")
        .execute(&mut *tx)
        .await?;
    let (found,): (i64,) =
        sqlx::query_as("SELECT COALESCE(MAX(version), 0) FROM schema_version").fetch_one(&mut *tx).await?;
    if found > SCHEMA_VERSION {
        return Err(Error::Newer { found, known: SCHEMA_VERSION });
    }
    for (version, step) in (1i64..).zip(STEPS).skip_while(|(version, _)| *version <= found) {
        for statement in step.split("\n--;\n") {
            sqlx::query(statement).execute(&mut *tx).await?;
        }
        sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
            .bind(version)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}
