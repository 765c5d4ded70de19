//! Sign-in tokens: 256 random bits in a link, good for one sign-in within minutes.
//!
//! Whoever opens the link gets a key of its own in exchange, so no key ever stands in a link. Only a token's hash is
//! kept, for the reasons that [`crate::keys`] gives.

use base::{Millis, TenantId};
use serde_json::json;
use sqlx::AnyConnection;

use crate::audit::{NewAuditEntry, insert_audit};
use crate::error::{Error, foreign};
use crate::key_scope::KeyScope;
use crate::keys::{CreatedKey, KeyInfo, KeyOrigin, KeySecret, NewKey, hash, insert_key, random_secret};
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

/// What every token begins with.
pub const SIGN_IN_PREFIX: &str = "si-";

/// Whom a link signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignIn {
    pub tenant: TenantId,
    /// Whether the key that it is exchanged for is an operator's.
    pub is_operator: bool,
}

impl Store {
    /// Makes a token that works until `expires`; its text is kept nowhere.
    pub async fn create_sign_in(
        &self,
        sign_in: SignIn,
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<String, Error> {
        let token = random_secret(SIGN_IN_PREFIX)?;
        self.bounded(async {
            // Those that nobody used.
            sqlx::query("DELETE FROM sign_in_tokens WHERE expires <= $1")
                .bind(now.to_sql())
                .execute(self.pool())
                .await?;
            sqlx::query(
                "INSERT INTO sign_in_tokens (sha256, tenant, operator, expires) VALUES ($1, $2, $3, $4)",
            )
            .bind(hash(&token))
            .bind(to_sql(sign_in.tenant.0))
            .bind(i64::from(sign_in.is_operator))
            .bind(expires.to_sql())
            .execute(self.pool())
            .await
            .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            Ok(())
        })
        .await?;
        Ok(token)
    }

    /// Uses a token up for a new key that works for `lifetime`, both or neither. `None` where the token was used, is
    /// past its date or never was; of several who present it at once one is served. That it was done stands in the audit
    /// log, in the same transaction; what came to nothing does not, for anybody may guess.
    ///
    /// Such keys are deleted once they are past their date: people sign in often, and nobody else clears them away.
    pub async fn exchange_sign_in(
        &self,
        token: &str,
        (name, lifetime): (&str, Millis),
        now: UnixMillis,
    ) -> Result<Option<CreatedKey>, Error> {
        self.bounded(async {
            // Anybody may ask: a guess takes no lock from those who write.
            let known: Option<(i64,)> =
                sqlx::query_as("SELECT expires FROM sign_in_tokens WHERE sha256 = $1")
                    .bind(hash(token))
                    .fetch_optional(self.pool())
                    .await?;
            if known.is_none() {
                return Ok(None);
            }
            let secret = KeySecret::random()?;
            let mut tx = self.begin_write(Lock::Counters).await?;
            let taken: Option<(i64, i64, i64)> = sqlx::query_as(
                "DELETE FROM sign_in_tokens WHERE sha256 = $1 RETURNING tenant, operator, expires",
            )
            .bind(hash(token))
            .fetch_optional(&mut *tx)
            .await?;
            let taken = taken.filter(|(_, _, expires)| from_sql(*expires) > now.0);
            let created = match taken {
                None => None,
                Some((tenant, operator, _)) => {
                    let tenant = TenantId(from_sql(tenant));
                    let expires = Some(now.after(lifetime));
                    let new =
                        NewKey { tenant, name, expires, is_operator: operator != 0, scope: KeyScope::ALL };
                    let created = insert_key(&mut tx, new, secret, (KeyOrigin::SignIn, now)).await?;
                    note_exchange(&mut tx, &created.info, now).await?;
                    Some(created)
                }
            };
            tx.commit().await?;
            Ok(created)
        })
        .await
    }

    /// Deletes the keys that links were exchanged for and that are past their date; says how many.
    pub async fn expire_signed_in_keys(&self, now: UnixMillis) -> Result<u64, Error> {
        let query =
            sqlx::query("DELETE FROM api_keys WHERE signed_in = 1 AND expires <= $1").bind(now.to_sql());
        self.changed(query).await
    }
}

/// Writes into the audit log that a key was made for a link, inside the caller's transaction.
async fn note_exchange(tx: &mut AnyConnection, key: &KeyInfo, now: UnixMillis) -> Result<(), Error> {
    let (tenant,): (String,) = sqlx::query_as("SELECT name FROM tenants WHERE id = $1")
        .bind(to_sql(key.tenant.0))
        .fetch_one(&mut *tx)
        .await?;
    let expires = key.expires.map(|expires| expires.0 / 1_000);
    let details = json!({ "tenant": tenant, "operator": key.is_operator, "expires": expires }).to_string();
    let subject = key.id.to_string();
    let entry = NewAuditEntry {
        actor: "sign-in link",
        action: "sign_in.exchange",
        subject: &subject,
        details: &details,
    };
    insert_audit(tx, entry, (Some(true), now)).await?;
    Ok(())
}
