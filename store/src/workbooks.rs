//! Workbooks of tenants: their newest content and older versions. Links that show them: [`crate::shares`].
//!
//! A save names the version that it stands on and is refused where another was saved meanwhile, so that nobody
//! writes over what somebody else wrote; the versions of a workbook that is made anew go on behind those of the one
//! that was deleted. Saves of one stretch of time are one kept version (its last), so that versions tell of days
//! and not of keystrokes. No tenant keeps more bytes than its quota: the oldest versions of the workbook that is
//! saved make room first, then those of others. What stands in a workbook is the caller's business.

use std::ops::RangeInclusive;

use base::{Bytes, Millis, TenantId};
use sqlx::AnyConnection;

use crate::error::{Error, new_of};
use crate::keys::random_secret;
use crate::open::{Lock, Store};
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// Deleted workbooks of a tenant whose last versions are remembered; the oldest are forgotten.
const DELETED_MAX: u64 = 1_000;

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
    /// How often it was saved, under its identity.
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

/// What became of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkbookDeleted {
    Yes,
    /// It is there still: this was saved since the version that was to be deleted.
    Stale(Workbook),
    /// There is none of that identity.
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

/// The versions of a workbook. This and the sums below read an index and no content: contents are megabytes.
const VERSIONS: &str = "SELECT version, name, bytes, saved FROM workbook_versions \
    WHERE tenant = $1 AND workbook = $2 ORDER BY version DESC";

/// What tenants of a range have. A sum of BIGINTs is a NUMERIC to Postgres.
const USAGE: &str = "SELECT tenant, COUNT(DISTINCT workbook), CAST(SUM(bytes) AS BIGINT) FROM workbook_versions \
    WHERE tenant BETWEEN $1 AND $2 GROUP BY tenant ORDER BY tenant";

/// The newest version of a workbook, and when its stretch of saves began.
const NEWEST: &str = "SELECT version, began, closed FROM workbook_versions \
    WHERE tenant = $1 AND workbook = $2 ORDER BY version DESC LIMIT 1";

/// The newest version of a workbook that is one too many, behind so many.
const SURPLUS: &str = "SELECT version FROM workbook_versions \
    WHERE tenant = $1 AND workbook = $2 ORDER BY version DESC LIMIT 1 OFFSET $3";

/// Bytes of all that a tenant has.
const BYTES: &str = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM workbook_versions WHERE tenant = $1";

/// All versions of a tenant but the newest of each workbook: first those of one workbook, and the oldest first.
const OLDER: &str = "SELECT v.workbook, v.version, v.bytes FROM workbook_versions v \
    JOIN workbooks w ON w.tenant = v.tenant AND w.id = v.workbook \
    WHERE v.tenant = $1 AND v.version < w.version \
    ORDER BY CASE WHEN v.workbook = $2 THEN 0 ELSE 1 END, v.saved, v.version";

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
            let before = match &there {
                Some(there) => there.version,
                None => take_deleted(&mut tx, tenant, draft.id).await?,
            };
            let saved = Workbook {
                id: draft.id.to_owned(),
                name: draft.name.to_owned(),
                version: before + 1,
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
        let known: Option<(String,)> =
            self.reading(async { Ok(read().fetch_optional(self.pool()).await?) }).await?;
        if let Some((id,)) = known {
            return Ok(id);
        }
        self.bounded(async {
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
        self.reading(async {
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
        self.reading(async {
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
        self.reading(async {
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
        self.reading(async {
            let rows: Vec<VersionColumns> =
                sqlx::query_as(VERSIONS).bind(to_sql(tenant.0)).bind(id).fetch_all(self.pool()).await?;
            Ok(rows.into_iter().map(version).collect())
        })
        .await
    }

    /// Deletes a workbook with its versions and links; where a version is named, only while that is its newest.
    pub async fn delete_workbook(
        &self,
        tenant: TenantId,
        (id, version): (&str, Option<u64>),
        now: UnixMillis,
    ) -> Result<WorkbookDeleted, Error> {
        self.bounded(async {
            // A save that is under way has read that it is there.
            let mut tx = self.begin_write(Lock::Workbooks).await?;
            let there: Option<WorkbookColumns> =
                sqlx::query_as(SELECT).bind(to_sql(tenant.0)).bind(Some(id)).fetch_optional(&mut *tx).await?;
            let Some(there) = there.map(workbook) else { return Ok(WorkbookDeleted::Gone) };
            if version.is_some_and(|version| version != there.version) {
                return Ok(WorkbookDeleted::Stale(there));
            }
            sqlx::query("DELETE FROM workbooks WHERE tenant = $1 AND id = $2")
                .bind(to_sql(tenant.0))
                .bind(id)
                .execute(&mut *tx)
                .await?;
            put_deleted(&mut tx, tenant, (id, there.version), now).await?;
            tx.commit().await?;
            Ok(WorkbookDeleted::Yes)
        })
        .await
    }

    /// What tenants of a range have in workbooks, of each that has any.
    pub async fn workbook_usage(
        &self,
        tenants: RangeInclusive<TenantId>,
    ) -> Result<Vec<WorkbookUsage>, Error> {
        self.reading(async {
            let rows: Vec<(i64, i64, i64)> = sqlx::query_as(USAGE)
                .bind(to_sql(tenants.start().0))
                .bind(to_sql(tenants.end().0))
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
    let newest: Option<(i64, i64, i64)> =
        sqlx::query_as(NEWEST).bind(to_sql(tenant.0)).bind(draft.id).fetch_optional(&mut *tx).await?;
    let Some((version, began, closed)) = newest else { return Ok(now) };
    let began = instant(began);
    if closed != 0 || now >= began.after(limits.version_span) {
        return Ok(now);
    }
    delete_version(tx, tenant, (draft.id, version)).await?;
    Ok(began)
}

/// Drops old versions until the draft fits beside what is left: those of its own workbook first, then those of
/// others, the oldest first. The newest of another workbook is never dropped.
async fn make_room(
    tx: &mut AnyConnection,
    tenant: TenantId,
    draft: &WorkbookDraft<'_>,
    limits: WorkbookLimits,
) -> Result<(), Error> {
    let surplus: Option<(i64,)> = sqlx::query_as(SURPLUS)
        .bind(to_sql(tenant.0))
        .bind(draft.id)
        .bind(to_sql(limits.versions.saturating_sub(1)))
        .fetch_optional(&mut *tx)
        .await?;
    if let Some((version,)) = surplus {
        sqlx::query("DELETE FROM workbook_versions WHERE tenant = $1 AND workbook = $2 AND version <= $3")
            .bind(to_sql(tenant.0))
            .bind(draft.id)
            .bind(version)
            .execute(&mut *tx)
            .await?;
    }
    let (kept,): (i64,) = sqlx::query_as(BYTES).bind(to_sql(tenant.0)).fetch_one(&mut *tx).await?;
    let mut over = from_sql(kept).saturating_add(draft.bytes()).saturating_sub(limits.bytes.0);
    if over == 0 {
        return Ok(());
    }
    let older: Vec<(String, i64, i64)> =
        sqlx::query_as(OLDER).bind(to_sql(tenant.0)).bind(draft.id).fetch_all(&mut *tx).await?;
    for (workbook, version, bytes) in older {
        delete_version(tx, tenant, (&workbook, version)).await?;
        over = over.saturating_sub(from_sql(bytes));
        if over == 0 {
            return Ok(());
        }
    }
    Err(Error::Full { what: "bytes in workbooks", limit: limits.bytes.0 })
}

async fn delete_version(
    tx: &mut AnyConnection,
    tenant: TenantId,
    (workbook, version): (&str, i64),
) -> Result<(), Error> {
    sqlx::query("DELETE FROM workbook_versions WHERE tenant = $1 AND workbook = $2 AND version = $3")
        .bind(to_sql(tenant.0))
        .bind(workbook)
        .bind(version)
        .execute(tx)
        .await?;
    Ok(())
}

/// Remembers the last version of a workbook that was deleted.
async fn put_deleted(
    tx: &mut AnyConnection,
    tenant: TenantId,
    (id, version): (&str, u64),
    now: UnixMillis,
) -> Result<(), Error> {
    sqlx::query("INSERT INTO deleted_workbooks (tenant, id, version, deleted) VALUES ($1, $2, $3, $4)")
        .bind(to_sql(tenant.0))
        .bind(id)
        .bind(to_sql(version))
        .bind(now.to_sql())
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "DELETE FROM deleted_workbooks WHERE tenant = $1 AND deleted <= \
         (SELECT deleted FROM deleted_workbooks WHERE tenant = $1 ORDER BY deleted DESC LIMIT 1 OFFSET $2)",
    )
    .bind(to_sql(tenant.0))
    .bind(to_sql(DELETED_MAX))
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets that a workbook of this identity was deleted; its last version, 0 where there was none.
async fn take_deleted(tx: &mut AnyConnection, tenant: TenantId, id: &str) -> Result<u64, Error> {
    let taken: Option<(i64,)> =
        sqlx::query_as("DELETE FROM deleted_workbooks WHERE tenant = $1 AND id = $2 RETURNING version")
            .bind(to_sql(tenant.0))
            .bind(id)
            .fetch_optional(tx)
            .await?;
    Ok(taken.map_or(0, |(version,)| from_sql(version)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::plan_of;

    #[tokio::test]
    async fn as_many_deleted_workbooks_are_remembered_as_may_be() {
        let store = Store::open("sqlite::memory:").await.expect("opens");
        let tenant = crate::DEFAULT_TENANT;
        let mut tx = store.begin_write(Lock::Workbooks).await.expect("begins");
        for number in 0..=DELETED_MAX + 1 {
            let id = format!("w{number}");
            put_deleted(&mut tx, tenant, (&id, 7), UnixMillis(number)).await.expect("kept");
        }
        let mut last = Vec::new();
        for id in ["w0", "w1", "w2"] {
            last.push(take_deleted(&mut tx, tenant, id).await.expect("asked"));
        }
        assert_eq!(last, [0, 0, 7], "the oldest are forgotten");
    }

    #[tokio::test]
    async fn no_list_and_no_sum_reads_contents() {
        let store = Store::open("sqlite::memory:").await.expect("opens");
        for sql in [VERSIONS, USAGE, NEWEST, SURPLUS, BYTES, OLDER] {
            let plan = plan_of(&store, sql).await;
            assert!(plan.iter().any(|step| step.contains("COVERING INDEX")), "{sql}: {plan:?}");
        }
    }
}
