//! Idempotent replies: what a request with an idempotency key was answered with, so that the same request gets the
//! same answer, also from another gateway or after a restart. Bounded by number and by bytes per tenant: the oldest go
//! first. What a tenant has is not summed for each of them: the sums stand beside the replies, and change with them in one
//! transaction. A request that was answered with a ticket finds that by its key, for as long as the ticket is there.

use base::{Bytes, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, foreign};
use crate::keys::hex;
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

/// Replies that are looked at together where some have to go.
const REPLIES_PER_STATEMENT: i64 = 64;

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

/// What a tenant has of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeptReplies {
    replies: u64,
    bytes: u64,
}

impl KeptReplies {
    /// With one more, of so many bytes.
    fn with(self, bytes: u64) -> Self {
        Self { replies: self.replies.saturating_add(1), bytes: self.bytes.saturating_add(bytes) }
    }

    /// Without what has gone.
    fn without(self, gone: Self) -> Self {
        Self {
            replies: self.replies.saturating_sub(gone.replies),
            bytes: self.bytes.saturating_sub(gone.bytes),
        }
    }

    fn is_over(self, limits: ReplyLimits) -> bool {
        self.replies > limits.replies || self.bytes > limits.bytes.0
    }
}

/// A tenant's sums.
const SUMS: &str = "SELECT replies, bytes FROM idempotent_reply_sums WHERE tenant = $1";
/// The same from the replies themselves. SUM of a BIGINT is no BIGINT on Postgres.
const SUMMED: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) FROM idempotent_replies \
    WHERE tenant = $1";
/// Those of the replies that are past their date.
const SUMMED_PAST: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) FROM idempotent_replies \
    WHERE tenant = $1 AND expires <= $2";
/// The tenants that have some of those: by the index, tenant by tenant.
const TENANTS_PAST: &str = "SELECT id FROM tenants WHERE EXISTS (SELECT 1 FROM idempotent_replies \
    WHERE idempotent_replies.tenant = tenants.id AND expires <= $1) ORDER BY id";
const DELETE_PAST: &str = "DELETE FROM idempotent_replies WHERE tenant = $1 AND expires <= $2";
/// The bytes of the reply that a key has.
const BYTES_OF_KEY: &str =
    "SELECT CAST(octet_length(body) AS BIGINT) FROM idempotent_replies WHERE tenant = $1 AND name = $2";
const PUT: &str = "INSERT INTO idempotent_replies (tenant, name, request, status, content_type, body, expires) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, name) DO UPDATE SET \
    request = excluded.request, status = excluded.status, content_type = excluded.content_type, \
    body = excluded.body, expires = excluded.expires RETURNING CAST(octet_length(body) AS BIGINT)";
const PUT_SUMS: &str = "INSERT INTO idempotent_reply_sums (tenant, replies, bytes) VALUES ($1, $2, $3) \
    ON CONFLICT (tenant) DO UPDATE SET replies = excluded.replies, bytes = excluded.bytes";

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
            let before = sums(&mut tx, tenant).await?;
            let replaced: Option<(i64,)> = sqlx::query_as(BYTES_OF_KEY)
                .bind(to_sql(tenant.0))
                .bind(key)
                .fetch_optional(&mut *tx)
                .await?;
            let (bytes,): (i64,) = sqlx::query_as(PUT)
                .bind(to_sql(tenant.0))
                .bind(key)
                .bind(hex(&reply.request))
                .bind(i64::from(reply.status))
                .bind(reply.content_type.as_str())
                .bind(reply.body.as_str())
                .bind(expires.to_sql())
                .fetch_one(&mut *tx)
                .await
                .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            let one = |(bytes,): (i64,)| KeptReplies { replies: 1, bytes: from_sql(bytes) };
            let replaced = replaced.map(one).unwrap_or_default();
            let kept = before.without(replaced).with(from_sql(bytes));
            let kept = make_room(&mut tx, tenant, kept, limits).await?;
            put_sums(&mut tx, tenant, kept).await?;
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
        self.bounded(async {
            let tenants: Vec<(i64,)> =
                sqlx::query_as(TENANTS_PAST).bind(now.to_sql()).fetch_all(self.pool()).await?;
            let mut expired = 0;
            // One by one: other writers wait for one tenant's replies at most.
            for (tenant,) in tenants {
                let mut tx = self.begin_write(Lock::Replies).await?;
                expired += expire(&mut tx, TenantId(from_sql(tenant)), now).await?;
                tx.commit().await?;
            }
            Ok(expired)
        })
        .await
    }
}

/// Deletes a tenant's replies that are past their date; says how many.
async fn expire(tx: &mut AnyConnection, tenant: TenantId, now: UnixMillis) -> Result<u64, Error> {
    let before = sums(tx, tenant).await?;
    let (replies, bytes): (i64, i64) =
        sqlx::query_as(SUMMED_PAST).bind(to_sql(tenant.0)).bind(now.to_sql()).fetch_one(&mut *tx).await?;
    let gone = KeptReplies { replies: from_sql(replies), bytes: from_sql(bytes) };
    sqlx::query(DELETE_PAST).bind(to_sql(tenant.0)).bind(now.to_sql()).execute(&mut *tx).await?;
    put_sums(tx, tenant, before.without(gone)).await?;
    Ok(gone.replies)
}

/// What a tenant has, in a transaction that has waited for other writers of replies.
async fn sums(tx: &mut AnyConnection, tenant: TenantId) -> Result<KeptReplies, Error> {
    let known: Option<(i64, i64)> =
        sqlx::query_as(SUMS).bind(to_sql(tenant.0)).fetch_optional(&mut *tx).await?;
    let (replies, bytes) = match known {
        Some(known) => known,
        // The first time, and the last: they are put down at the end.
        None => sqlx::query_as(SUMMED).bind(to_sql(tenant.0)).fetch_one(&mut *tx).await?,
    };
    Ok(KeptReplies { replies: from_sql(replies), bytes: from_sql(bytes) })
}

async fn put_sums(tx: &mut AnyConnection, tenant: TenantId, kept: KeptReplies) -> Result<(), Error> {
    sqlx::query(PUT_SUMS)
        .bind(to_sql(tenant.0))
        .bind(to_sql(kept.replies))
        .bind(to_sql(kept.bytes))
        .execute(tx)
        .await?;
    Ok(())
}

/// Deletes those of a tenant's replies that end first, until the others are within the limits; gives what is left. Read in
/// order are these alone: a tenant may have many.
async fn make_room(
    tx: &mut AnyConnection,
    tenant: TenantId,
    mut kept: KeptReplies,
    limits: ReplyLimits,
) -> Result<KeptReplies, Error> {
    while kept.is_over(limits) {
        let first: Vec<(i64, String, i64)> = sqlx::query_as(
            "SELECT expires, name, CAST(octet_length(body) AS BIGINT) FROM idempotent_replies WHERE tenant = $1 \
             ORDER BY expires, name DESC LIMIT $2",
        )
        .bind(to_sql(tenant.0))
        .bind(REPLIES_PER_STATEMENT)
        .fetch_all(&mut *tx)
        .await?;
        let mut last = None;
        for (expires, name, held) in first {
            if !kept.is_over(limits) {
                break;
            }
            kept = kept.without(KeptReplies { replies: 1, bytes: from_sql(held) });
            last = Some((expires, name));
        }
        // None is left, whatever the sums say.
        let Some((expires, name)) = last else { return Ok(KeptReplies::default()) };
        sqlx::query(
            "DELETE FROM idempotent_replies WHERE tenant = $1 AND (expires < $2 OR (expires = $2 AND name >= $3))",
        )
        .bind(to_sql(tenant.0))
        .bind(expires)
        .bind(name)
        .execute(&mut *tx)
        .await?;
    }
    Ok(kept)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::plan_of;

    #[tokio::test]
    async fn no_other_reply_is_read_to_keep_one_or_to_find_what_is_past_its_date() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        let of_date = "(tenant=? AND expires<?)";
        for (sql, table, by) in [
            (SUMS, " idempotent_reply_sums", "(tenant=?)"),
            (BYTES_OF_KEY, " idempotent_replies", "(tenant=? AND name=?)"),
            (TENANTS_PAST, " idempotent_replies", of_date),
            (SUMMED_PAST, " idempotent_replies", of_date),
            (DELETE_PAST, " idempotent_replies", of_date),
        ] {
            let plan = plan_of(&store, sql).await;
            let reads: Vec<&String> = plan.iter().filter(|step| step.contains(table)).collect();
            let [read] = &reads[..] else { panic!("one read: {plan:?}") };
            assert!(read.starts_with("SEARCH ") && read.contains(by), "{plan:?}");
        }
    }
}
