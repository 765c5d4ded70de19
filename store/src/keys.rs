//! API keys: 256 random bits shown once, kept as a SHA-256, and as a SCRAM verifier for Postgres' clients.
//!
//! A plain, unsalted hash is right here and would be wrong for passwords: the secret is uniformly random,
//! so there is nothing to guess and no two are equal. For the same reason the lookup need not be
//! constant-time: the index compares hashes, and what a hash comparison leaks tells nothing about the key
//! that gave the hash.

use std::ops::RangeInclusive;

use base::{Millis, TenantId};
use postgres_protocol::password::scram_sha_256;
use sha2::{Digest, Sha256};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, FromRow, Row as _};

use crate::error::{Error, foreign};
use crate::key_scope::KeyScope;
use crate::name_search::{NameSearch, NamesFound};
use crate::open::{Lock, Store};
use crate::tenants::next_id;
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// What every key begins with.
pub const KEY_PREFIX: &str = "rs-";
/// Random bytes of a key or a token.
const KEY_BYTES: usize = 32;
/// Characters of a key that lists show: enough to tell keys apart, of no use to a thief.
const SHOWN_CHARS: usize = 9;
/// A key's last use is written at most this often: a lookup should not cost a write.
const LAST_USED_RESOLUTION: Millis = Millis(60_000);

/// What to make a key of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey<'a> {
    /// Whose it will be.
    pub tenant: TenantId,
    /// What its owner calls it; need not be unique.
    pub name: &'a str,
    /// When it stops working, if ever.
    pub expires: Option<UnixMillis>,
    /// Whether it is an operator's, who sees all tenants and changes them.
    pub is_operator: bool,
    /// What it may.
    pub scope: KeyScope,
}

/// A key as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its number.
    pub id: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its owner's name for it.
    pub name: String,
    /// Its first characters.
    pub shown: String,
    /// When it was made.
    pub created: UnixMillis,
    /// When it was last used, to the minute.
    pub last_used: Option<UnixMillis>,
    /// When it stops working, if ever.
    pub expires: Option<UnixMillis>,
    /// When it was revoked.
    pub revoked: Option<UnixMillis>,
    /// What a SCRAM-SHA-256 login is checked against, in Postgres' own form: of no use to who steals it. A
    /// key that an older version made has none.
    pub verifier: Option<String>,
    /// Whether it is an operator's.
    pub is_operator: bool,
    /// What it may.
    pub scope: KeyScope,
    /// The key that it came in place of.
    pub rotated_from: Option<u64>,
}

/// A key of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    pub key: KeyInfo,
    /// Its tenant's name.
    pub tenant_name: String,
}

/// A new key, with the only copy of its text that will ever exist.
#[derive(Clone)]
pub struct CreatedKey {
    /// What stays in the store.
    pub info: KeyInfo,
    /// The key itself. Show it once and forget it.
    pub plaintext: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("info", &self.info).finish_non_exhaustive()
    }
}

/// What became of a rotation.
#[expect(clippy::large_enum_variant, reason = "one at a time, on its way to whoever asked")]
#[derive(Debug)]
pub enum KeyRotation {
    /// The new key.
    Done(CreatedKey),
    /// This one came in its place before.
    Before(u64),
    /// None that works.
    NoSuchKey,
}

/// What a presented key is.
#[expect(clippy::large_enum_variant, reason = "one at a time, on its way to whoever asked")]
#[derive(Clone, Debug, PartialEq)]
pub enum KeyLookup {
    /// A working key.
    Valid {
        key: KeyInfo,
        /// Its tenant's name.
        tenant_name: String,
        /// Its tenant's weight.
        weight: f64,
    },
    Revoked,
    /// It is past its date.
    Expired,
    /// Not a key of this store.
    Unknown,
}

/// A key's columns.
struct KeyColumns {
    id: i64,
    tenant: i64,
    name: String,
    shown: String,
    created: i64,
    last_used: Option<i64>,
    expires: Option<i64>,
    revoked: Option<i64>,
    verifier: Option<String>,
    operator: i64,
    read_only: i64,
    routes: Option<String>,
    sql_tables: Option<String>,
    rotated_from: Option<i64>,
}

/// Those columns.
macro_rules! key_columns {
    () => {
        "k.id, k.tenant, k.name, k.shown, k.created, k.last_used, k.expires, k.revoked, k.verifier, \
         k.operator, k.read_only, k.routes, k.sql_tables, k.rotated_from"
    };
}

// By hand: the derive would compile all drivers a second time, for the compiler's own use.
impl<'r> FromRow<'r, AnyRow> for KeyColumns {
    fn from_row(row: &'r AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            tenant: row.try_get("tenant")?,
            name: row.try_get("name")?,
            shown: row.try_get("shown")?,
            created: row.try_get("created")?,
            last_used: row.try_get("last_used")?,
            expires: row.try_get("expires")?,
            revoked: row.try_get("revoked")?,
            verifier: row.try_get("verifier")?,
            operator: row.try_get("operator")?,
            read_only: row.try_get("read_only")?,
            routes: row.try_get("routes")?,
            sql_tables: row.try_get("sql_tables")?,
            rotated_from: row.try_get("rotated_from")?,
        })
    }
}

/// A key's columns with its tenant's name and weight.
struct FoundColumns {
    key: KeyColumns,
    tenant_name: String,
    weight: f64,
}

impl<'r> FromRow<'r, AnyRow> for FoundColumns {
    fn from_row(row: &'r AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            key: KeyColumns::from_row(row)?,
            tenant_name: row.try_get("tenant_name")?,
            weight: row.try_get("weight")?,
        })
    }
}

/// A key with its tenant, found by a condition.
macro_rules! select_key {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            key_columns!(),
            ", t.name AS tenant_name, t.weight AS weight ",
            "FROM api_keys k JOIN tenants t ON t.id = k.tenant WHERE ",
            $condition
        )
    };
}

/// The last keys before a number with their tenants, the last first. (SQLite keeps the order of a CROSS JOIN.)
const PAGE: &str = concat!(
    "SELECT ",
    key_columns!(),
    ", t.name AS tenant_name, t.weight AS weight FROM api_keys k CROSS JOIN tenants t \
     WHERE t.id = k.tenant AND k.id < $1 ORDER BY k.id DESC LIMIT $2"
);

/// The last keys of a tenant before a number, the last first. They are found among that tenant's alone.
const TENANT_PAGE: &str = concat!(
    "SELECT ",
    key_columns!(),
    ", t.name AS tenant_name, t.weight AS weight FROM api_keys k CROSS JOIN tenants t \
     WHERE t.id = k.tenant AND k.tenant = $1 AND k.id < $2 ORDER BY k.id DESC LIMIT $3"
);

/// Of the last keys before a number, so many at most, those whose names or tenants' names begin so, the last first.
const BEGUN: &str = concat!(
    "SELECT ",
    key_columns!(),
    ", t.name AS tenant_name, t.weight AS weight \
     FROM (SELECT * FROM api_keys WHERE id < $1 ORDER BY id DESC LIMIT $2) k CROSS JOIN tenants t \
     WHERE t.id = k.tenant AND (substr(k.name, 1, CAST($3 AS INTEGER)) = $4 \
     OR substr(t.name, 1, CAST($3 AS INTEGER)) = $4) ORDER BY k.id DESC LIMIT $5"
);
/// The key that stands behind so many, counted from the last before a number.
const BEHIND: &str = "SELECT id FROM api_keys WHERE id < $1 ORDER BY id DESC LIMIT 1 OFFSET $2";

/// How many keys tenants of a range have that work at an instant.
const WORKING: &str = "SELECT tenant, COUNT(*) FROM api_keys WHERE tenant BETWEEN $1 AND $2 AND revoked IS NULL \
    AND (expires IS NULL OR expires > $3) GROUP BY tenant";

/// A page that was read from its end.
fn oldest_first(rows: Vec<FoundColumns>) -> Result<Vec<ListedKey>, Error> {
    let listed = |found: FoundColumns| -> Result<ListedKey, Error> {
        Ok(ListedKey { key: KeyInfo::try_from(found.key)?, tenant_name: found.tenant_name })
    };
    rows.into_iter().rev().map(listed).collect()
}

/// What a key that was found, or not, is.
fn looked_up(found: Option<FoundColumns>, now: UnixMillis) -> Result<KeyLookup, Error> {
    let Some(FoundColumns { key, tenant_name, weight }) = found else { return Ok(KeyLookup::Unknown) };
    let key = KeyInfo::try_from(key)?;
    if key.revoked.is_some() {
        return Ok(KeyLookup::Revoked);
    }
    if key.expires.is_some_and(|expires| expires <= now) {
        return Ok(KeyLookup::Expired);
    }
    Ok(KeyLookup::Valid { key, tenant_name, weight })
}

impl TryFrom<KeyColumns> for KeyInfo {
    type Error = Error;

    fn try_from(columns: KeyColumns) -> Result<Self, Error> {
        Ok(Self {
            id: from_sql(columns.id),
            tenant: TenantId(from_sql(columns.tenant)),
            name: columns.name,
            shown: columns.shown,
            created: instant(columns.created),
            last_used: columns.last_used.map(instant),
            expires: columns.expires.map(instant),
            revoked: columns.revoked.map(instant),
            verifier: columns.verifier,
            is_operator: columns.operator != 0,
            scope: KeyScope::of_columns(columns.read_only, columns.routes, columns.sql_tables)?,
            rotated_from: columns.rotated_from.map(from_sql),
        })
    }
}

impl Store {
    /// Makes a key and returns its text, which is kept nowhere.
    pub async fn create_key(&self, new: NewKey<'_>, now: UnixMillis) -> Result<CreatedKey, Error> {
        let secret = KeySecret::random()?;
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Counters).await?;
            let created = insert_key(&mut tx, new, secret, (KeyOrigin::Made, now)).await?;
            tx.commit().await?;
            Ok(created)
        })
        .await
    }

    /// Makes a key of the same tenant and scope in place of one that works, which ends after `overlap`, unless it
    /// ends before; both or neither. The new one lives as long from now as the old one was given.
    pub async fn rotate_key(&self, id: u64, overlap: Millis, now: UnixMillis) -> Result<KeyRotation, Error> {
        let secret = KeySecret::random()?;
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Counters).await?;
            let sql = select_key!("k.id = $1");
            let found = sqlx::query_as(sql).bind(to_sql(id)).fetch_optional(&mut *tx).await?;
            let KeyLookup::Valid { key: old, .. } = looked_up(found, now)? else {
                return Ok(KeyRotation::NoSuchKey);
            };
            let other: Option<(i64,)> =
                sqlx::query_as("SELECT id FROM api_keys WHERE rotated_from = $1 AND revoked IS NULL")
                    .bind(to_sql(id))
                    .fetch_optional(&mut *tx)
                    .await?;
            if let Some((other,)) = other {
                return Ok(KeyRotation::Before(from_sql(other)));
            }
            sqlx::query(
                "UPDATE api_keys SET expires = $1 WHERE id = $2 AND (expires IS NULL OR expires > $1)",
            )
            .bind(now.after(overlap).to_sql())
            .bind(to_sql(id))
            .execute(&mut *tx)
            .await?;
            let lifetime = |expires: UnixMillis| now.after(Millis(expires.0.saturating_sub(old.created.0)));
            let new = NewKey {
                tenant: old.tenant,
                name: &old.name,
                expires: old.expires.map(lifetime),
                is_operator: old.is_operator,
                scope: old.scope,
            };
            let created = insert_key(&mut tx, new, secret, (KeyOrigin::Rotated(id), now)).await?;
            tx.commit().await?;
            Ok(KeyRotation::Done(created))
        })
        .await
    }

    /// What a presented key is, by one query; notes a working key's use.
    pub async fn find_key(&self, presented: &str, now: UnixMillis) -> Result<KeyLookup, Error> {
        let sql = select_key!("k.sha256 = $1");
        self.reading(async {
            let found = sqlx::query_as(sql).bind(hash(presented)).fetch_optional(self.pool()).await?;
            let found = looked_up(found, now)?;
            if let KeyLookup::Valid { key, .. } = &found {
                self.note_use(key, now).await;
            }
            Ok(found)
        })
        .await
    }

    /// What the key of a number is. Not a use: whoever asks has not shown that it holds the key.
    pub async fn key_by_id(&self, id: u64, now: UnixMillis) -> Result<KeyLookup, Error> {
        let sql = select_key!("k.id = $1");
        self.reading(async {
            looked_up(sqlx::query_as(sql).bind(to_sql(id)).fetch_optional(self.pool()).await?, now)
        })
        .await
    }

    /// Notes that a key was used in a way that [`Self::find_key`] does not see.
    pub async fn use_key(&self, key: &KeyInfo, now: UnixMillis) -> Result<(), Error> {
        self.bounded(async {
            self.note_use(key, now).await;
            Ok(())
        })
        .await
    }

    /// Writes a key's use down. A failure is logged and no more: a key works without it.
    async fn note_use(&self, key: &KeyInfo, now: UnixMillis) {
        if key.last_used.is_some_and(|used| now < used.after(LAST_USED_RESOLUTION)) {
            return;
        }
        let noted = sqlx::query(
            "UPDATE api_keys SET last_used = $1 WHERE id = $2 AND (last_used IS NULL OR last_used < $1)",
        )
        .bind(now.to_sql())
        .bind(to_sql(key.id))
        .execute(self.pool())
        .await;
        if let Err(error) = noted {
            tracing::warn!(%error, key = key.id, "the use of a key was not written down");
        }
    }

    /// The last keys before a number, of all tenants, at most so many; the oldest first, revoked ones too.
    pub async fn keys(&self, before: Option<u64>, most: u32) -> Result<Vec<ListedKey>, Error> {
        self.reading(async {
            let rows: Vec<FoundColumns> = sqlx::query_as(PAGE)
                .bind(before.map_or(i64::MAX, to_sql))
                .bind(i64::from(most))
                .fetch_all(self.pool())
                .await?;
            oldest_first(rows)
        })
        .await
    }

    /// The last keys of a tenant before a number, at most so many; the oldest first, revoked ones too.
    pub async fn keys_of(
        &self,
        tenant: TenantId,
        before: Option<u64>,
        most: u32,
    ) -> Result<Vec<ListedKey>, Error> {
        self.reading(async {
            let rows: Vec<FoundColumns> = sqlx::query_as(TENANT_PAGE)
                .bind(to_sql(tenant.0))
                .bind(before.map_or(i64::MAX, to_sql))
                .bind(i64::from(most))
                .fetch_all(self.pool())
                .await?;
            oldest_first(rows)
        })
        .await
    }

    /// The last keys whose names, or whose tenants' names, begin so, revoked ones too.
    pub async fn keys_begun(&self, search: NameSearch<'_>) -> Result<NamesFound<ListedKey>, Error> {
        let before = search.before.map_or(i64::MAX, to_sql);
        let searched_max = i64::from(search.searched_max);
        self.reading(async {
            let rows: Vec<FoundColumns> = sqlx::query_as(BEGUN)
                .bind(before)
                .bind(searched_max)
                .bind(search.letters())
                .bind(search.prefix)
                .bind(i64::from(search.found_max))
                .fetch_all(self.pool())
                .await?;
            let behind = sqlx::query_as(BEHIND).bind(before).bind(searched_max);
            let behind: Option<(i64,)> = behind.fetch_optional(self.pool()).await?;
            Ok(NamesFound { entries: oldest_first(rows)?, unsearched: behind.map(|(id,)| from_sql(id)) })
        })
        .await
    }

    /// How many keys each tenant of a range has that work, of each that has any.
    pub async fn working_keys(
        &self,
        tenants: RangeInclusive<TenantId>,
        now: UnixMillis,
    ) -> Result<Vec<(TenantId, u64)>, Error> {
        self.reading(async {
            let rows: Vec<(i64, i64)> = sqlx::query_as(WORKING)
                .bind(to_sql(tenants.start().0))
                .bind(to_sql(tenants.end().0))
                .bind(now.to_sql())
                .fetch_all(self.pool())
                .await?;
            Ok(rows.into_iter().map(|(tenant, keys)| (TenantId(from_sql(tenant)), from_sql(keys))).collect())
        })
        .await
    }

    /// Revokes a key. Again is no error and keeps the first date; `false` where there is no such key.
    pub async fn revoke_key(&self, id: u64, now: UnixMillis) -> Result<bool, Error> {
        let query = sqlx::query("UPDATE api_keys SET revoked = COALESCE(revoked, $1) WHERE id = $2")
            .bind(now.to_sql())
            .bind(to_sql(id));
        Ok(self.changed(query).await? > 0)
    }
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrigin {
    /// Somebody made it, and clears it away.
    Made,
    /// A sign-in link was exchanged for it: it goes when it is past its date.
    SignIn,
    /// It came in place of another.
    Rotated(u64),
}

/// A new key's text, and what is kept of it. Made before a lock is taken: the verifier takes thousands of hashes.
pub(crate) struct KeySecret {
    plaintext: String,
    verifier: String,
}

impl KeySecret {
    pub(crate) fn random() -> Result<Self, Error> {
        let plaintext = random_secret(KEY_PREFIX)?;
        let verifier = scram_sha_256(plaintext.as_bytes());
        Ok(Self { plaintext, verifier })
    }
}

/// Keeps a new key, inside the caller's transaction.
pub(crate) async fn insert_key(
    tx: &mut AnyConnection,
    new: NewKey<'_>,
    KeySecret { plaintext, verifier }: KeySecret,
    (origin, now): (KeyOrigin, UnixMillis),
) -> Result<CreatedKey, Error> {
    let shown: String = plaintext.chars().take(SHOWN_CHARS).collect();
    let id = next_id(tx, "key").await?;
    let [routes, tables] = new.scope.lists();
    let rotated_from = match origin {
        KeyOrigin::Rotated(old) => Some(old),
        KeyOrigin::Made | KeyOrigin::SignIn => None,
    };
    sqlx::query(
        "INSERT INTO api_keys \
         (id, tenant, name, sha256, shown, created, last_used, expires, revoked, verifier, operator, signed_in, \
         read_only, routes, sql_tables, rotated_from) \
         VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, NULL, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(id)
    .bind(to_sql(new.tenant.0))
    .bind(new.name)
    .bind(hash(&plaintext))
    .bind(&shown)
    .bind(now.to_sql())
    .bind(new.expires.map(UnixMillis::to_sql))
    .bind(&verifier)
    .bind(i64::from(new.is_operator))
    .bind(i64::from(origin == KeyOrigin::SignIn))
    .bind(i64::from(new.scope.is_read_only))
    .bind(routes)
    .bind(tables)
    .bind(rotated_from.map(to_sql))
    .execute(tx)
    .await
    .map_err(|error| foreign(error, Error::Missing("tenant")))?;
    let info = KeyInfo {
        id: from_sql(id),
        tenant: new.tenant,
        name: new.name.to_owned(),
        shown,
        created: now,
        last_used: None,
        expires: new.expires,
        revoked: None,
        verifier: Some(verifier),
        is_operator: new.is_operator,
        scope: new.scope,
        rotated_from,
    };
    Ok(CreatedKey { info, plaintext })
}

/// A prefix and 256 random bits: a new key's text, or a token's.
pub(crate) fn random_secret(prefix: &str) -> Result<String, Error> {
    let mut bytes = [0u8; KEY_BYTES];
    rand::TryRngCore::try_fill_bytes(&mut rand::rngs::OsRng, &mut bytes)
        .map_err(|error| Error::Entropy(error.to_string()))?;
    Ok(format!("{prefix}{}", hex(&bytes)))
}

/// What the store keeps of a key or a token.
pub(crate) fn hash(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plan::{assert_reads_by_index, plan_of};

    #[tokio::test]
    async fn a_page_of_keys_and_the_counts_of_some_tenants_are_read_without_other_keys() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        for sql in [PAGE, BEHIND] {
            assert_reads_by_index(&plan_of(&store, sql).await);
        }
        let plan = plan_of(&store, BEGUN).await;
        assert!(plan.iter().any(|step| step.starts_with("SEARCH api_keys USING INDEX")), "{plan:?}");
        let is_scan = |step: &String| step.starts_with("SCAN api_keys") || step.starts_with("SCAN t");
        assert!(!plan.iter().any(is_scan), "not all are looked at: {plan:?}");
        let plan = plan_of(&store, WORKING).await;
        assert_reads_by_index(&plan);
        assert!(plan[0].contains("COVERING INDEX"), "no row is read to be counted: {plan:?}");
        let plan = plan_of(&store, TENANT_PAGE).await;
        assert!(plan[0].contains("api_keys_by_tenant (tenant=?)"), "keys of others are not read: {plan:?}");
    }
}
