//! Idempotent replies: what a request with an idempotency key was answered with, so that the same request gets the
//! same answer, also from another gateway or after a restart. Bounded by number and by bytes per tenant: the oldest go
//! first. A request that was answered with a ticket finds that by its key, for as long as the ticket is there.

use base::{Bytes, TenantId};

use crate::error::{Error, foreign};
use crate::keys::hex;
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

/// A reply to keep, or one that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentReply {
    /// SHA-256 of the request: its path and body.
    pub request: [u8; 32],
    /// Its HTTP status.
    pub status: u16,
    /// Its media type.
    pub content_type: String,
    /// Its body.
    pub body: String,
}

/// What a tenant may keep of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    pub replies: u64,
    /// Of their bodies, together.
    pub bytes: Bytes,
}

impl Store {
    /// Keeps a tenant's reply under a key until `expires`, in place of an older one, and of the tenant's replies those that
    /// are kept longest, within the limits. One that is larger alone is not kept.
    pub async fn keep_reply(
        &self,
        (tenant, key): (TenantId, &str),
        reply: &IdempotentReply,
        expires: UnixMillis,
        limits: ReplyLimits,
    ) -> Result<(), Error> {
        if reply.body.len() as u64 > limits.bytes.0 {
            return Ok(());
        }
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Replies).await?;
            sqlx::query(
                "INSERT INTO idempotent_replies (tenant, name, request, status, content_type, body, expires) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, name) DO UPDATE SET \
                 request = excluded.request, status = excluded.status, content_type = excluded.content_type, \
                 body = excluded.body, expires = excluded.expires",
            )
            .bind(to_sql(tenant.0))
            .bind(key)
            .bind(hex(&reply.request))
            .bind(i64::from(reply.status))
            .bind(reply.content_type.as_str())
            .bind(reply.body.as_str())
            .bind(expires.to_sql())
            .execute(&mut *tx)
            .await
            .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            // Those that are too many, or too much, with all that are kept longer.
            sqlx::query(
                "DELETE FROM idempotent_replies WHERE tenant = $1 AND name IN (SELECT name FROM (SELECT name, \
                 ROW_NUMBER() OVER longest AS place, SUM(octet_length(body)) OVER longest AS with_longer \
                 FROM idempotent_replies WHERE tenant = $1 WINDOW longest AS (ORDER BY expires DESC, name)) AS kept \
                 WHERE place > $2 OR with_longer > $3)",
            )
            .bind(to_sql(tenant.0))
            .bind(to_sql(limits.replies))
            .bind(to_sql(limits.bytes.0))
            .execute(&mut *tx)
            .await?;
            Ok(tx.commit().await?)
        })
        .await
    }

    /// The reply that a tenant's key has.
    pub async fn kept_reply(
        &self,
        tenant: TenantId,
        key: &str,
        now: UnixMillis,
    ) -> Result<Option<IdempotentReply>, Error> {
        self.reading(async {
            let row: Option<(String, i64, String, String)> = sqlx::query_as(
                "SELECT request, status, content_type, body FROM idempotent_replies \
                 WHERE tenant = $1 AND name = $2 AND expires > $3",
            )
            .bind(to_sql(tenant.0))
            .bind(key)
            .bind(now.to_sql())
            .fetch_optional(self.pool())
            .await?;
            row.map(|(request, status, content_type, body)| {
                let request = digest(&request)?;
                let status = u16::try_from(from_sql(status)).map_err(|_| broken("status of a reply"))?;
                Ok(IdempotentReply { request, status, content_type, body })
            })
            .transpose()
        })
        .await
    }

    /// The ticket that a tenant's key has, and the digest of its request. One that failed may be asked for anew.
    pub async fn ticket_of_key(
        &self,
        tenant: TenantId,
        key: &str,
        now: UnixMillis,
    ) -> Result<Option<(String, [u8; 32])>, Error> {
        self.reading(async {
            // Two gateways that were asked at once may each have made one.
            let row: Option<(String, String)> = sqlx::query_as(
                "SELECT id, request_digest FROM tickets WHERE tenant = $1 AND idempotency_key = $2 AND expires > $3 \
                 AND state <> 'failed' ORDER BY created, id LIMIT 1",
            )
            .bind(to_sql(tenant.0))
            .bind(key)
            .bind(now.to_sql())
            .fetch_optional(self.pool())
            .await?;
            row.map(|(id, request)| Ok((id, digest(&request)?))).transpose()
        })
        .await
    }

    /// Deletes the replies that are past their date; says how many.
    pub async fn expire_replies(&self, now: UnixMillis) -> Result<u64, Error> {
        let query = sqlx::query("DELETE FROM idempotent_replies WHERE expires <= $1").bind(now.to_sql());
        self.changed(query).await
    }
}

fn broken(what: &'static str) -> Error {
    Error::Broken { what, reason: "not as it was written".into() }
}

/// The digest of a request that was written.
fn digest(text: &str) -> Result<[u8; 32], Error> {
    from_hex(text).ok_or_else(|| broken("digest of a request"))
}

/// The 32 bytes of a digest that [`hex`] wrote.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}
