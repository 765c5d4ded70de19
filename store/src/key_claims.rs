//! Claims of idempotency keys: which gateway runs the request that has a key, for as long as it does. What it was
//! answered with is kept by [`crate::idempotency`], and a ticket by [`crate::tickets`]; a claim is given back once
//! either is there.
//!
//! A claim ends by the database's clock, so that gateways need not agree on the time, and so that one whose clock
//! jumps takes nothing over.

use base::{Millis, TenantId};
use sqlx::{Any, AssertSqlSafe};

use crate::error::{Error, foreign};
use crate::keys::{hex, random_secret};
use crate::open::Store;
use crate::results::placeholders;
use crate::time::{UnixMillis, to_sql};

/// A gateway's claim of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    pub tenant: TenantId,
    /// The key.
    pub name: String,
    /// SHA-256 of the request: its path and body.
    pub request: [u8; 32],
    /// The gateway.
    pub node: String,
    /// Tells this claim from an earlier one of the same gateway.
    pub token: String,
}

impl KeyClaim {
    /// A word that no other claim has.
    pub fn token() -> Result<String, Error> {
        random_secret("")
    }
}

/// What came of a try to claim a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyClaimed {
    /// The key is the gateway's.
    Granted {
        /// A request that had it before was answered, or has a ticket.
        is_answered: bool,
    },
    /// Another gateway runs the same request.
    Elsewhere,
    /// Another gateway runs another request under the key.
    Reused,
}

/// Claims that one statement renews.
const CHUNK: usize = 500;

impl Store {
    /// Claims a key for `span`, unless another gateway has it. What the same gateway had claimed before is replaced: it
    /// knows itself what it runs. `now`: by which replies and tickets are past their date.
    pub async fn claim_key(
        &self,
        claim: &KeyClaim,
        span: Millis,
        now: UnixMillis,
    ) -> Result<KeyClaimed, Error> {
        let clock = self.database_clock();
        let sql = format!(
            "INSERT INTO key_claims (tenant, name, request, node, token, expires) \
             VALUES ($1, $2, $3, $4, $5, {clock} + $6) ON CONFLICT (tenant, name) DO UPDATE SET \
             request = excluded.request, node = excluded.node, token = excluded.token, expires = excluded.expires \
             WHERE key_claims.expires <= {clock} OR key_claims.node = excluded.node"
        );
        self.bounded(async {
            // Safe: nothing but a constant is put in.
            let claimed = sqlx::query::<Any>(AssertSqlSafe(sql))
                .bind(to_sql(claim.tenant.0))
                .bind(&claim.name)
                .bind(hex(&claim.request))
                .bind(&claim.node)
                .bind(&claim.token)
                .bind(to_sql(span.0))
                .execute(self.pool())
                .await
                .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            if claimed.rows_affected() > 0 {
                // Looked for now: who had the key before gave it back behind what is found here.
                return Ok(KeyClaimed::Granted { is_answered: self.is_key_answered(claim, now).await? });
            }
            let found: Option<(String,)> =
                sqlx::query_as("SELECT request FROM key_claims WHERE tenant = $1 AND name = $2")
                    .bind(to_sql(claim.tenant.0))
                    .bind(&claim.name)
                    .fetch_optional(self.pool())
                    .await?;
            Ok(match found {
                Some((request,)) if request != hex(&claim.request) => KeyClaimed::Reused,
                // `None`: it was given back just now.
                _ => KeyClaimed::Elsewhere,
            })
        })
        .await
    }

    /// Whether a key has a reply, or a ticket that may be shown.
    async fn is_key_answered(&self, claim: &KeyClaim, now: UnixMillis) -> Result<bool, Error> {
        let (found,): (i64,) = sqlx::query_as(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM idempotent_replies \
             WHERE tenant = $1 AND name = $2 AND expires > $3 UNION ALL SELECT 1 AS one FROM tickets \
             WHERE tenant = $1 AND idempotency_key = $2 AND expires > $3 AND state <> 'failed') AS outcomes",
        )
        .bind(to_sql(claim.tenant.0))
        .bind(&claim.name)
        .bind(now.to_sql())
        .fetch_one(self.pool())
        .await?;
        Ok(found > 0)
    }

    /// Prolongs claims of a gateway, by their tokens, to `span` from now. Those that another gateway has taken over
    /// stay its own.
    pub async fn renew_key_claims(&self, node: &str, tokens: &[String], span: Millis) -> Result<(), Error> {
        for chunk in tokens.chunks(CHUNK) {
            let sql = format!(
                "UPDATE key_claims SET expires = {} + $1 WHERE node = $2 AND token IN ({})",
                self.database_clock(),
                placeholders(3, chunk.len())
            );
            // Safe: nothing but a constant and numbered placeholders is put in.
            let mut query = sqlx::query::<Any>(AssertSqlSafe(sql)).bind(to_sql(span.0)).bind(node);
            for token in chunk {
                query = query.bind(token);
            }
            self.changed(query).await?;
        }
        Ok(())
    }

    /// Gives a key back. One that was claimed again meanwhile stays as it is.
    pub async fn end_key_claim(&self, claim: &KeyClaim) -> Result<(), Error> {
        let query = sqlx::query("DELETE FROM key_claims WHERE tenant = $1 AND name = $2 AND token = $3")
            .bind(to_sql(claim.tenant.0))
            .bind(&claim.name)
            .bind(&claim.token);
        self.changed(query).await.map(drop)
    }

    /// Gives back all keys of a gateway, which runs nothing.
    pub async fn end_key_claims_of(&self, node: &str) -> Result<(), Error> {
        self.changed(sqlx::query("DELETE FROM key_claims WHERE node = $1").bind(node)).await.map(drop)
    }

    /// Deletes the claims of gateways that are gone; says how many.
    pub async fn expire_key_claims(&self) -> Result<u64, Error> {
        let sql = format!("DELETE FROM key_claims WHERE expires <= {}", self.database_clock());
        // Safe: nothing but a constant is put in.
        self.changed(sqlx::query::<Any>(AssertSqlSafe(sql))).await
    }
}
