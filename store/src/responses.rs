//! Responses of `/v1/responses` that are kept, so that a later request may go on from one. Each has its whole
//! conversation, so none depends on another. Bounded by bytes per tenant: the oldest go first.

use base::{Bytes, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, foreign};
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, to_sql};

/// The kind of a ticket that holds a response in the background.
pub const RESPONSE: &str = "response";

/// A response to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewResponse<'a> {
    pub tenant: TenantId,
    /// Its identity; one of this identity is replaced.
    pub id: &'a str,
    /// What was sent, as a JSON array: the whole conversation before the answer.
    pub input: &'a str,
    /// What was answered, as JSON.
    pub reply: &'a str,
    /// When it is forgotten.
    pub expires: UnixMillis,
}

impl NewResponse<'_> {
    fn bytes(&self) -> u64 {
        (self.input.len() + self.reply.len()) as u64
    }
}

/// A response that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// What was sent, as a JSON array: the whole conversation before the answer.
    pub input: String,
    /// What was answered, as JSON.
    pub reply: String,
}

impl Store {
    /// Keeps a response; the tenant's oldest go where it would have more than so many bytes. Says whether it is kept: one
    /// that is larger alone is not.
    pub async fn keep_response(
        &self,
        new: NewResponse<'_>,
        bytes_max: Bytes,
        now: UnixMillis,
    ) -> Result<bool, Error> {
        let Some(room) = bytes_max.0.checked_sub(new.bytes()) else { return Ok(false) };
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Responses).await?;
            // Those that leave the newer ones and the new one no room.
            sqlx::query(
                "DELETE FROM responses WHERE tenant = $1 AND id IN (SELECT id FROM (SELECT id, \
                 SUM(bytes) OVER (ORDER BY created DESC, id DESC) AS with_newer FROM responses WHERE tenant = $1) AS kept \
                 WHERE with_newer > $2)",
            )
            .bind(to_sql(new.tenant.0))
            .bind(to_sql(room))
            .execute(&mut *tx)
            .await?;
            sqlx::query(
                "INSERT INTO responses (tenant, id, input, reply, bytes, created, expires) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO UPDATE SET \
                 input = excluded.input, reply = excluded.reply, bytes = excluded.bytes, \
                 created = excluded.created, expires = excluded.expires",
            )
            .bind(to_sql(new.tenant.0))
            .bind(new.id)
            .bind(new.input)
            .bind(new.reply)
            .bind(to_sql(new.bytes()))
            .bind(now.to_sql())
            .bind(new.expires.to_sql())
            .execute(&mut *tx)
            .await
            .map_err(|error| foreign(error, Error::Missing("tenant")))?;
            tx.commit().await?;
            Ok(true)
        })
        .await
    }

    /// A tenant's response.
    pub async fn response(
        &self,
        tenant: TenantId,
        id: &str,
        now: UnixMillis,
    ) -> Result<Option<StoredResponse>, Error> {
        self.reading(async {
            let row: Option<(String, String)> = sqlx::query_as(
                "SELECT input, reply FROM responses WHERE tenant = $1 AND id = $2 AND expires > $3",
            )
            .bind(to_sql(tenant.0))
            .bind(id)
            .bind(now.to_sql())
            .fetch_optional(self.pool())
            .await?;
            Ok(row.map(|(input, reply)| StoredResponse { input, reply }))
        })
        .await
    }

    /// Forgets a tenant's response; says whether there was one.
    pub async fn delete_response(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let query = sqlx::query("DELETE FROM responses WHERE tenant = $1 AND id = $2")
            .bind(to_sql(tenant.0))
            .bind(id);
        Ok(self.changed(query).await? > 0)
    }

    /// Bytes of the responses that a tenant keeps.
    pub async fn response_bytes(&self, tenant: TenantId) -> Result<Bytes, Error> {
        self.reading(async {
            // A sum of BIGINTs is a NUMERIC to Postgres.
            let (bytes,): (i64,) = sqlx::query_as(
                "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM responses WHERE tenant = $1",
            )
            .bind(to_sql(tenant.0))
            .fetch_one(self.pool())
            .await?;
            Ok(Bytes(from_sql(bytes)))
        })
        .await
    }

    /// Forgets the responses that are past their date; says how many.
    pub async fn expire_responses(&self, now: UnixMillis) -> Result<u64, Error> {
        let query = sqlx::query("DELETE FROM responses WHERE expires <= $1").bind(now.to_sql());
        self.changed(query).await
    }
}

/// Deletes the oldest of a tenant's responses in the background that are over, until at least so many bytes of its tickets
/// are free or none is left.
pub(crate) async fn forget_oldest(
    connection: &mut AnyConnection,
    (tenant, bytes): (TenantId, u64),
    now: UnixMillis,
) -> Result<(), Error> {
    sqlx::query(
        "DELETE FROM tickets WHERE id IN (SELECT id FROM (SELECT id, bytes, \
         SUM(bytes) OVER (ORDER BY created, id) AS with_older FROM (SELECT id, created, octet_length(request) + \
         COALESCE((SELECT SUM(octet_length(result)) FROM ticket_rows WHERE ticket = tickets.id), 0) AS bytes \
         FROM tickets WHERE tenant = $1 AND kind = $2 AND state <> 'running' AND expires > $3) AS ended) AS summed \
         WHERE with_older - bytes < $4)",
    )
    .bind(to_sql(tenant.0))
    .bind(RESPONSE)
    .bind(now.to_sql())
    .bind(to_sql(bytes))
    .execute(connection)
    .await?;
    Ok(())
}
