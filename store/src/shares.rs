//! Links that show a workbook to whoever has them: 256 random bits, of which only a hash is kept, for the reasons that
//! [`crate::keys`] gives.

use base::TenantId;

use crate::error::Error;
use crate::keys::{hash, random_secret};
use crate::open::{Lock, Store};
use crate::tenants::next_id;
use crate::time::{UnixMillis, from_sql, instant, to_sql};
use crate::workbooks::WorkbookVersion;

/// What the token of every link begins with.
pub const SHARE_PREFIX: &str = "ws-";

/// A link that shows a workbook, as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkbookShare {
    /// Its number.
    pub id: u64,
    pub created: UnixMillis,
    /// When it stops working.
    pub expires: UnixMillis,
}

impl Store {
    /// Makes a link's token, which shows a workbook until `expires`; its text is kept nowhere. [`Error::Missing`]
    /// where the tenant has no such workbook, [`Error::Full`] where `shares_max` links show it already.
    pub async fn create_share(
        &self,
        (tenant, id): (TenantId, &str),
        shares_max: u64,
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<(WorkbookShare, String), Error> {
        let token = random_secret(SHARE_PREFIX)?;
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Workbooks).await?;
            sqlx::query("DELETE FROM workbook_shares WHERE expires <= $1")
                .bind(now.to_sql())
                .execute(&mut *tx)
                .await?;
            let (workbooks, shares): (i64, i64) = sqlx::query_as(
                "SELECT (SELECT COUNT(*) FROM workbooks WHERE tenant = $1 AND id = $2), \
                 (SELECT COUNT(*) FROM workbook_shares WHERE tenant = $1 AND workbook = $2)",
            )
            .bind(to_sql(tenant.0))
            .bind(id)
            .fetch_one(&mut *tx)
            .await?;
            if workbooks == 0 {
                return Err(Error::Missing("workbook"));
            }
            if from_sql(shares) >= shares_max {
                return Err(Error::Full { what: "links to a workbook", limit: shares_max });
            }
            let number = next_id(&mut tx, "share").await?;
            sqlx::query(
                "INSERT INTO workbook_shares (id, sha256, tenant, workbook, created, expires) \
                 VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(number)
            .bind(hash(&token))
            .bind(to_sql(tenant.0))
            .bind(id)
            .bind(now.to_sql())
            .bind(expires.to_sql())
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok((WorkbookShare { id: from_sql(number), created: now, expires }, token))
        })
        .await
    }

    /// The links that show a tenant's workbook, the oldest first; not those past their date.
    pub async fn shares(
        &self,
        tenant: TenantId,
        id: &str,
        now: UnixMillis,
    ) -> Result<Vec<WorkbookShare>, Error> {
        self.reading(async {
            let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
                "SELECT id, created, expires FROM workbook_shares \
                 WHERE tenant = $1 AND workbook = $2 AND expires > $3 ORDER BY id",
            )
            .bind(to_sql(tenant.0))
            .bind(id)
            .bind(now.to_sql())
            .fetch_all(self.pool())
            .await?;
            let share = |(id, created, expires)| WorkbookShare {
                id: from_sql(id),
                created: instant(created),
                expires: instant(expires),
            };
            Ok(rows.into_iter().map(share).collect())
        })
        .await
    }

    /// Ends a link. `false` where the tenant's workbook has none of that number.
    pub async fn delete_share(&self, tenant: TenantId, id: &str, share: u64) -> Result<bool, Error> {
        let query =
            sqlx::query("DELETE FROM workbook_shares WHERE tenant = $1 AND workbook = $2 AND id = $3")
                .bind(to_sql(tenant.0))
                .bind(id)
                .bind(to_sql(share));
        Ok(self.changed(query).await? > 0)
    }

    /// What a link shows: the newest version of its workbook, with its content.
    pub async fn shared_workbook(
        &self,
        token: &str,
        now: UnixMillis,
    ) -> Result<Option<(WorkbookVersion, String)>, Error> {
        let shared: Option<(i64, String)> = self
            .reading(async {
                let sql = "SELECT tenant, workbook FROM workbook_shares WHERE sha256 = $1 AND expires > $2";
                let query = sqlx::query_as(sql).bind(hash(token)).bind(now.to_sql());
                Ok(query.fetch_optional(self.pool()).await?)
            })
            .await?;
        let Some((tenant, id)) = shared else { return Ok(None) };
        self.workbook_content(TenantId(from_sql(tenant)), &id, None).await
    }
}
