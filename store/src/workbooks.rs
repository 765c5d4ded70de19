//! Workbooks of tenants: their newest content, older versions, and links that show them to readers.
//!
//! A save names the version that it stands on and is refused where another was saved meanwhile, so that nobody
//! writes over what somebody else wrote. Saves of one stretch of time are one kept version (its last), so that
//! versions tell of days and not of keystrokes. No tenant keeps more bytes than its quota: the oldest versions of
//! the workbook that is saved make room first. What stands in a workbook is the caller's business.

use base::{Bytes, Millis, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, new_of};
use crate::keys::{hash, random_secret};
use crate::open::{Lock, Store};
use crate::tenants::next_id;
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// What the token of every link begins with.
pub const SHARE_PREFIX: &str = "ws-";

/// What a tenant may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkbookLimits {
    pub workbooks: u64,
    /// Bytes of all versions of all workbooks.
    pub bytes: Bytes,
    /// Versions of one workbook, its newest among them.
    pub versions: u64,
    /// Saves within this time of a version's first are the same version.
    pub version_span: Millis,
}

/// A workbook to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkbookDraft<'a> {
    /// Its identity; chosen by the caller, unique to the tenant.
    pub id: &'a str,
    pub name: &'a str,
    pub content: &'a str,
    /// The version that it stands on; 0: it is new.
    pub base: u64,
    /// Whether the version stays as it is: the next save, however soon, is another.
    pub closes: bool,
}

impl WorkbookDraft<'_> {
    /// What it takes of the quota.
    fn bytes(&self) -> u64 {
        (self.name.len() + self.content.len()) as u64
    }
}

/// A workbook as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workbook {
    pub id: String,
    pub name: String,
    /// How often it was saved.
    pub version: u64,
    /// Of its newest version.
    pub bytes: Bytes,
    pub created: UnixMillis,
    /// When it was last saved.
    pub updated: UnixMillis,
}

/// A kept version, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkbookVersion {
    pub version: u64,
    /// The workbook's name then.
    pub name: String,
    pub bytes: Bytes,
    pub saved: UnixMillis,
}

/// What became of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkbookSaved {
    /// It is kept, as this.
    Yes(Workbook),
    /// It is not: this was saved since the version that it stands on.
    Stale(Workbook),
    /// It is not: the workbook that it stands on is gone.
    Gone,
}

/// What a tenant has in workbooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkbookUsage {
    pub tenant: TenantId,
    pub workbooks: u64,
    /// Of all versions.
    pub bytes: Bytes,
}

/// A link that shows a workbook, as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkbookShare {
    /// Its number.
    pub id: u64,
    pub created: UnixMillis,
    /// When it stops working.
    pub expires: UnixMillis,
}

type WorkbookColumns = (String, String, i64, i64, i64, i64);

fn workbook((id, name, version, bytes, created, updated): WorkbookColumns) -> Workbook {
    Workbook {
        id,
        name,
        version: from_sql(version),
        bytes: Bytes(from_sql(bytes)),
        created: instant(created),
        updated: instant(updated),
    }
}

/// A tenant's workbooks, or the one of an identity.
const SELECT: &str = "SELECT id, name, version, bytes, created, updated FROM workbooks \
    WHERE tenant = $1 AND ($2 IS NULL OR id = $2) ORDER BY updated DESC, id";

/// A version's row: number, name, bytes, when it was saved.
type VersionColumns = (i64, String, i64, i64);

fn version((version, name, bytes, saved): VersionColumns) -> WorkbookVersion {
    WorkbookVersion { version: from_sql(version), name, bytes: Bytes(from_sql(bytes)), saved: instant(saved) }
}

impl Store {
    /// Saves a workbook on top of the version that it stands on. [`Error::Full`] where the tenant has no room.
    pub async fn save_workbook(
        &self,
        tenant: TenantId,
        draft: WorkbookDraft<'_>,
        limits: WorkbookLimits,
        now: UnixMillis,
    ) -> Result<WorkbookSaved, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Workbooks).await?;
            let there: Option<WorkbookColumns> = sqlx::query_as(SELECT)
                .bind(to_sql(tenant.0))
                .bind(Some(draft.id))
                .fetch_optional(&mut *tx)
                .await?;
            let there = there.map(workbook);
            match &there {
                Some(there) if there.version != draft.base => {
                    return Ok(WorkbookSaved::Stale(there.clone()));
                }
                None if draft.base > 0 => return Ok(WorkbookSaved::Gone),
                None => check_count(&mut tx, tenant, limits).await?,
                Some(_) => {}
            }
            let saved = Workbook {
                id: draft.id.to_owned(),
                name: draft.name.to_owned(),
                version: draft.base + 1,
                bytes: Bytes(draft.bytes()),
                created: there.map_or(now, |there| there.created),
                updated: now,
            };
            put_workbook(&mut tx, tenant, &saved).await?;
            let began = begin_version(&mut tx, tenant, &draft, limits, now).await?;
            make_room(&mut tx, tenant, &draft, limits).await?;
            put_version(&mut tx, tenant, (&saved, &draft), began).await?;
            tx.commit().await?;
            Ok(WorkbookSaved::Yes(saved))
        })
        .await
    }

    /// What tells this database from every other one: 64 hexadecimal digits, chosen when first asked for.
    pub async fn identity(&self) -> Result<String, Error> {
        let chosen = random_secret("")?;
        let read = || sqlx::query_as("SELECT id FROM store_identity");
        self.bounded(async {
            let known: Option<(String,)> = read().fetch_optional(self.pool()).await?;
            if let Some((id,)) = known {
                return Ok(id);
            }
            sqlx::query(
                "INSERT INTO store_identity (only_row, id) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            )
            .bind(chosen)
            .execute(self.pool())
            .await?;
            let (id,): (String,) = read().fetch_one(self.pool()).await?;
            Ok(id)
        })
        .await
    }

    /// A tenant's workbooks, the one saved last first.
    pub async fn workbooks(&self, tenant: TenantId) -> Result<Vec<Workbook>, Error> {
        self.bounded(async {
            let rows: Vec<WorkbookColumns> = sqlx::query_as(SELECT)
                .bind(to_sql(tenant.0))
                .bind(None::<&str>)
                .fetch_all(self.pool())
                .await?;
            Ok(rows.into_iter().map(workbook).collect())
        })
        .await
    }

    /// A tenant's workbook.
    pub async fn workbook(&self, tenant: TenantId, id: &str) -> Result<Option<Workbook>, Error> {
        self.bounded(async {
            let row: Option<WorkbookColumns> = sqlx::query_as(SELECT)
                .bind(to_sql(tenant.0))
                .bind(Some(id))
                .fetch_optional(self.pool())
                .await?;
            Ok(row.map(workbook))
        })
        .await
    }

    /// A kept version of a tenant's workbook with its content; without a number the newest.
    pub async fn workbook_content(
        &self,
        tenant: TenantId,
        id: &str,
        number: Option<u64>,
    ) -> Result<Option<(WorkbookVersion, String)>, Error> {
        self.bounded(async {
            let row: Option<(i64, String, i64, i64, String)> = sqlx::query_as(
                "SELECT version, name, bytes, saved, content FROM workbook_versions \
                 WHERE tenant = $1 AND workbook = $2 AND ($3 IS NULL OR version = $3) \
                 ORDER BY version DESC LIMIT 1",
            )
            .bind(to_sql(tenant.0))
            .bind(id)
            .bind(number.map(to_sql))
            .fetch_optional(self.pool())
            .await?;
            Ok(row.map(|(number, name, bytes, saved, content)| {
                (version((number, name, bytes, saved)), content)
            }))
        })
        .await
    }

    /// The kept versions of a tenant's workbook, the newest first.
    pub async fn workbook_versions(&self, tenant: TenantId, id: &str) -> Result<Vec<WorkbookVersion>, Error> {
        self.bounded(async {
            let rows: Vec<VersionColumns> = sqlx::query_as(
                "SELECT version, name, bytes, saved FROM workbook_versions \
                 WHERE tenant = $1 AND workbook = $2 ORDER BY version DESC",
            )
            .bind(to_sql(tenant.0))
            .bind(id)
            .fetch_all(self.pool())
            .await?;
            Ok(rows.into_iter().map(version).collect())
        })
        .await
    }

    /// Deletes a workbook with its versions and links. `false` where the tenant has none of that identity.
    pub async fn delete_workbook(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let query = sqlx::query("DELETE FROM workbooks WHERE tenant = $1 AND id = $2")
            .bind(to_sql(tenant.0))
            .bind(id);
        Ok(self.changed(query).await? > 0)
    }

    /// What a tenant has in workbooks, or every tenant that has any.
    pub async fn workbook_usage(&self, tenant: Option<TenantId>) -> Result<Vec<WorkbookUsage>, Error> {
        self.bounded(async {
            // A sum of BIGINTs is a NUMERIC to Postgres.
            let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
                "SELECT tenant, COUNT(DISTINCT workbook), CAST(SUM(bytes) AS BIGINT) FROM workbook_versions \
                 WHERE $1 IS NULL OR tenant = $1 GROUP BY tenant ORDER BY tenant",
            )
            .bind(tenant.map(|tenant| to_sql(tenant.0)))
            .fetch_all(self.pool())
            .await?;
            let usage = |(tenant, workbooks, bytes)| WorkbookUsage {
                tenant: TenantId(from_sql(tenant)),
                workbooks: from_sql(workbooks),
                bytes: Bytes(from_sql(bytes)),
            };
            Ok(rows.into_iter().map(usage).collect())
        })
        .await
    }

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
        self.bounded(async {
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
            .bounded(async {
                let sql = "SELECT tenant, workbook FROM workbook_shares WHERE sha256 = $1 AND expires > $2";
                let query = sqlx::query_as(sql).bind(hash(token)).bind(now.to_sql());
                Ok(query.fetch_optional(self.pool()).await?)
            })
            .await?;
        let Some((tenant, id)) = shared else { return Ok(None) };
        self.workbook_content(TenantId(from_sql(tenant)), &id, None).await
    }
}

/// Refuses another workbook where the tenant has as many as it may.
async fn check_count(tx: &mut AnyConnection, tenant: TenantId, limits: WorkbookLimits) -> Result<(), Error> {
    let (count,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM workbooks WHERE tenant = $1")
        .bind(to_sql(tenant.0))
        .fetch_one(tx)
        .await?;
    if from_sql(count) >= limits.workbooks {
        return Err(Error::Full { what: "workbooks", limit: limits.workbooks });
    }
    Ok(())
}

async fn put_workbook(tx: &mut AnyConnection, tenant: TenantId, workbook: &Workbook) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO workbooks (tenant, id, name, version, bytes, created, updated) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO UPDATE SET \
         name = excluded.name, version = excluded.version, bytes = excluded.bytes, updated = excluded.updated",
    )
    .bind(to_sql(tenant.0))
    .bind(&workbook.id)
    .bind(&workbook.name)
    .bind(to_sql(workbook.version))
    .bind(to_sql(workbook.bytes.0))
    .bind(workbook.created.to_sql())
    .bind(workbook.updated.to_sql())
    .execute(tx)
    .await
    .map_err(new_of("workbook", &workbook.id))?;
    Ok(())
}

/// When the version that a save belongs to began; takes the newest version away where the save is of its stretch.
async fn begin_version(
    tx: &mut AnyConnection,
    tenant: TenantId,
    draft: &WorkbookDraft<'_>,
    limits: WorkbookLimits,
    now: UnixMillis,
) -> Result<UnixMillis, Error> {
    let newest: Option<(i64, i64, i64)> = sqlx::query_as(
        "SELECT version, began, closed FROM workbook_versions WHERE tenant = $1 AND workbook = $2 \
         ORDER BY version DESC LIMIT 1",
    )
    .bind(to_sql(tenant.0))
    .bind(draft.id)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((version, began, closed)) = newest else { return Ok(now) };
    let began = instant(began);
    if closed != 0 || now >= began.after(limits.version_span) {
        return Ok(now);
    }
    sqlx::query("DELETE FROM workbook_versions WHERE tenant = $1 AND workbook = $2 AND version = $3")
        .bind(to_sql(tenant.0))
        .bind(draft.id)
        .bind(version)
        .execute(tx)
        .await?;
    Ok(began)
}

/// Drops the oldest versions of a workbook until the draft fits beside what is left.
async fn make_room(
    tx: &mut AnyConnection,
    tenant: TenantId,
    draft: &WorkbookDraft<'_>,
    limits: WorkbookLimits,
) -> Result<(), Error> {
    let (others,): (i64,) = sqlx::query_as(
        "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM workbook_versions \
         WHERE tenant = $1 AND workbook <> $2",
    )
    .bind(to_sql(tenant.0))
    .bind(draft.id)
    .fetch_one(&mut *tx)
    .await?;
    let taken = from_sql(others).saturating_add(draft.bytes());
    let Some(mut free) = limits.bytes.0.checked_sub(taken) else {
        return Err(Error::Full { what: "bytes in workbooks", limit: limits.bytes.0 });
    };
    let versions: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT version, bytes FROM workbook_versions WHERE tenant = $1 AND workbook = $2 ORDER BY version DESC",
    )
    .bind(to_sql(tenant.0))
    .bind(draft.id)
    .fetch_all(&mut *tx)
    .await?;
    let mut kept = 1;
    let oldest = versions.iter().find(|(_, bytes)| {
        kept += 1;
        let fits = kept <= limits.versions && from_sql(*bytes) <= free;
        free = free.saturating_sub(from_sql(*bytes));
        !fits
    });
    if let Some((version, _)) = oldest {
        sqlx::query("DELETE FROM workbook_versions WHERE tenant = $1 AND workbook = $2 AND version <= $3")
            .bind(to_sql(tenant.0))
            .bind(draft.id)
            .bind(*version)
            .execute(tx)
            .await?;
    }
    Ok(())
}

async fn put_version(
    tx: &mut AnyConnection,
    tenant: TenantId,
    (workbook, draft): (&Workbook, &WorkbookDraft<'_>),
    began: UnixMillis,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO workbook_versions (tenant, workbook, version, name, content, bytes, began, closed, saved) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(to_sql(tenant.0))
    .bind(&workbook.id)
    .bind(to_sql(workbook.version))
    .bind(&workbook.name)
    .bind(draft.content)
    .bind(to_sql(workbook.bytes.0))
    .bind(began.to_sql())
    .bind(i64::from(draft.closes))
    .bind(workbook.updated.to_sql())
    .execute(tx)
    .await?;
    Ok(())
}
