//! What each gateway holds of the replicas that several gateways use, and what it has to do for them.
//!
//! A gateway renews all its leases in one transaction, behind a lock that all gateways take: it sees what the
//! others hold, decides what it takes, and writes that down before anybody else looks. Who gets how much is the
//! caller's to say. A lease ends by the database's clock, so that gateways need not agree on the time.

use base::Millis;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use crate::error::Error;
use crate::open::{Lock, Store};
use crate::results::placeholders;
use crate::time::{UnixMillis, from_sql, to_sql};

/// A gateway's lease of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLease {
    /// The replica: the same text on every gateway that uses it.
    pub replica: String,
    /// Most rows in flight that the gateway has been told the replica runs.
    pub rows_max: u32,
    /// Most unfinished tokens.
    pub tokens_max: Option<u64>,
    /// Rows that the gateway has in flight or may send.
    pub held_rows: u32,
    /// Tokens of these.
    pub held_tokens: u64,
    /// What it has to do: text that gateways understand.
    pub queue: String,
}

/// Another gateway's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLease {
    /// The gateway.
    pub node: String,
    pub lease: ReplicaLease,
    /// When it last said so, by the database's clock.
    pub renewed: UnixMillis,
}

/// Leases written by one statement: SQLite takes 32,766 values.
const CHUNK: usize = 500;
/// The columns of a [`LeaseColumns`].
const COLUMNS: &str = "replica, node, rows_max, tokens_max, held_rows, held_tokens, queue, renewed";

type LeaseColumns = (String, String, i64, Option<i64>, i64, i64, String, i64);

impl Store {
    /// Renews all leases of a gateway for `span`: `decide` gets those of the others, by replica and name, and the
    /// time, by the database's clock, and gives the gateway's own, which take the place of the former. What it
    /// gives beside them is the result.
    ///
    /// # Errors
    /// [`Error::Away`]: whether the new leases are written down is not known.
    pub async fn renew_replica_leases<T>(
        &self,
        node: &str,
        span: Millis,
        decide: impl FnOnce(&[OtherLease], UnixMillis) -> (Vec<ReplicaLease>, T),
    ) -> Result<T, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::ReplicaLeases).await?;
            let now = self.database_now(&mut tx).await?;
            sqlx::query("DELETE FROM replica_leases WHERE expires <= $1 OR node = $2")
                .bind(now)
                .bind(node)
                .execute(&mut *tx)
                .await?;
            let sql = format!("SELECT {COLUMNS} FROM replica_leases ORDER BY replica, node");
            // Safe: nothing but the constant is put in.
            let others = sqlx::query_as::<Any, LeaseColumns>(AssertSqlSafe(sql)).fetch_all(&mut *tx).await?;
            let others: Vec<OtherLease> = others.into_iter().map(read).collect();
            let (leases, result) = decide(&others, UnixMillis(from_sql(now)));
            for chunk in leases.chunks(CHUNK) {
                write(&mut tx, node, chunk, (now, now.saturating_add(to_sql(span.0)))).await?;
            }
            tx.commit().await?;
            Ok(result)
        })
        .await
    }

    /// Ends all leases of a gateway, which has nothing in flight any more.
    pub async fn end_replica_leases(&self, node: &str) -> Result<(), Error> {
        self.changed(sqlx::query("DELETE FROM replica_leases WHERE node = $1").bind(node)).await?;
        Ok(())
    }
}

fn read(
    (replica, node, rows_max, tokens_max, held_rows, held_tokens, queue, renewed): LeaseColumns,
) -> OtherLease {
    let rows = |rows: i64| u32::try_from(from_sql(rows)).unwrap_or(u32::MAX);
    let lease = ReplicaLease {
        replica,
        rows_max: rows(rows_max),
        tokens_max: tokens_max.map(from_sql),
        held_rows: rows(held_rows),
        held_tokens: from_sql(held_tokens),
        queue,
    };
    OtherLease { node, lease, renewed: UnixMillis(from_sql(renewed)) }
}

/// Writes leases that are not there.
async fn write(
    tx: &mut AnyConnection,
    node: &str,
    leases: &[ReplicaLease],
    (now, expires): (i64, i64),
) -> Result<(), Error> {
    const VALUES: usize = 9;
    let rows: Vec<String> =
        (0..leases.len()).map(|row| format!("({})", placeholders(row * VALUES + 1, VALUES))).collect();
    let sql = format!("INSERT INTO replica_leases ({COLUMNS}, expires) VALUES {}", rows.join(", "));
    // Safe: nothing but numbered placeholders is put in.
    let mut query = sqlx::query::<Any>(AssertSqlSafe(sql));
    for lease in leases {
        query = query
            .bind(&lease.replica)
            .bind(node)
            .bind(i64::from(lease.rows_max))
            .bind(lease.tokens_max.map(to_sql))
            .bind(i64::from(lease.held_rows))
            .bind(to_sql(lease.held_tokens))
            .bind(&lease.queue)
            .bind(now)
            .bind(expires);
    }
    query.execute(tx).await?;
    Ok(())
}
