//! Databases of older versions of the program.

use base::{Millis, Money, TenantId};
use store::{
    DEFAULT_TENANT, KeyLookup, KeyScope, SignIn, Store, TenantLimits, WorkbookDeleted, WorkbookDraft,
    WorkbookLimits, WorkbookSaved,
};

use super::{at, open};

/// The steps that a database of version 11 had.
static STEPS: [&str; 11] = [
    include_str!("../../src/schema.sql"),
    include_str!("../../src/schemas.sql"),
    include_str!("../../src/corpora.sql"),
    include_str!("../../src/jobs.sql"),
    include_str!("../../src/sql.sql"),
    include_str!("../../src/replica_leases.sql"),
    include_str!("../../src/sign_ins.sql"),
    include_str!("../../src/workbooks.sql"),
    include_str!("../../src/upkeep.sql"),
    include_str!("../../src/idempotency.sql"),
    include_str!("../../src/limits.sql"),
];

/// What a program of a version left: its schema, a tenant and a key of it, and more.
async fn leave(url: &str, version: usize, more: &[&'static str]) {
    sqlx::any::install_default_drivers();
    // A file is made by who asks so.
    let url = if url.starts_with("sqlite:") { format!("{url}?mode=rwc") } else { url.to_owned() };
    let pool = sqlx::AnyPool::connect(&url).await.expect("connects");
    let key = "INSERT INTO api_keys (id, tenant, name, sha256, shown, created) \
        VALUES (7, 2, 'old', 'its hash', 'rs-old', 1)";
    let left = [
        "CREATE TABLE schema_version (version BIGINT PRIMARY KEY)",
        "INSERT INTO tenants (id, name, weight, created) VALUES (2, 'acme', 2, 1)",
        key,
        "UPDATE counters SET last = 7 WHERE name = 'key'",
    ];
    let steps = STEPS[..version].iter().flat_map(|step| step.split("\n--;\n"));
    for statement in steps.chain(left).chain(more.iter().copied()) {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.expect("as it was");
    }
    for number in 1..=version as i64 {
        let sql = "INSERT INTO schema_version VALUES ($1)";
        sqlx::query(sql).bind(number).execute(&pool).await.expect("as it was");
    }
    pool.close().await;
}

/// Saves of any workbook are kept.
const LIMITS: WorkbookLimits =
    WorkbookLimits { workbooks: 9, bytes: base::Bytes(100), versions: 1, version_span: Millis(0) };

/// A database takes all that is new.
async fn takes_what_is_new(store: &Store) {
    let KeyLookup::Valid { key, weight, .. } = store.key_by_id(7, at(2)).await.expect("asked") else {
        panic!("it works")
    };
    assert_eq!((key.name.as_str(), key.is_operator, weight), ("old", false, 2.0));
    let tenant = key.tenant;
    let draft = WorkbookDraft { id: "a", name: "Sales", content: "{}", base: 0, closes: false };
    let saved = store.save_workbook(tenant, draft, LIMITS, at(3)).await.expect("answered");
    assert!(matches!(saved, WorkbookSaved::Yes(_)), "{saved:?}");
    let (share, _) = store.create_share((tenant, "a"), 1, at(9), at(3)).await.expect("made");
    assert_eq!(share.id, 1);
    let sign_in = SignIn { tenant: DEFAULT_TENANT, is_operator: true };
    let token = store.create_sign_in(sign_in, at(9), at(3)).await.expect("made");
    let created = store.exchange_sign_in(&token, ("by a link", Millis(1)), at(4)).await.expect("asked");
    assert!(created.is_some_and(|key| key.info.is_operator && key.info.id == 8));
}

pub(crate) async fn a_database_of_version_6_keeps_what_it_has_and_takes_what_is_new(url: String) {
    leave(&url, 6, &[]).await;
    let store = open(&url).await;
    takes_what_is_new(&store).await;
    drop(store);
    let tenants = open(&url).await.workbook_usage(DEFAULT_TENANT..=TenantId(2)).await.expect("read");
    assert_eq!(tenants.len(), 1, "opened again");
}

pub(crate) async fn a_database_of_version_8_keeps_what_it_has_and_takes_what_is_new(url: String) {
    let key = "INSERT INTO api_keys (id, tenant, name, sha256, shown, created, expires) \
        VALUES (6, 1, 'signed in by a link', 'another', 'rs-old', 1, 5000)";
    let version = "INSERT INTO workbook_versions VALUES (2, 'w', 5, 'W', '{\"v\":5}', 8, 1, 0, 1)";
    let workbook = "INSERT INTO workbooks VALUES (2, 'w', 'W', 5, 8, 1, 1)";
    leave(&url, 8, &[key, workbook, version]).await;
    let store = open(&url).await;
    takes_what_is_new(&store).await;
    assert_eq!(store.expire_signed_in_keys(at(5)).await.expect("deleted"), 2, "old ones too");
    let tenant = store.tenant_named("acme").await.expect("asked").expect("there").id;
    let kept = store.workbook_content(tenant, "w", None).await.expect("read").expect("there");
    assert_eq!((kept.0.version, kept.1.as_str()), (5, "{\"v\":5}"));
    let deleted = store.delete_workbook(tenant, ("w", None), at(6)).await.expect("answered");
    assert_eq!(deleted, WorkbookDeleted::Yes);
    let draft = WorkbookDraft { id: "w", name: "W", content: "{}", base: 0, closes: false };
    let saved = store.save_workbook(tenant, draft, LIMITS, at(7)).await.expect("answered");
    assert!(matches!(saved, WorkbookSaved::Yes(anew) if anew.version == 6));
}

pub(crate) async fn a_database_of_version_11_keeps_what_it_has_and_takes_what_is_new(url: String) {
    let limits = "INSERT INTO tenant_limits (tenant, day_tokens) VALUES (2, 90)";
    let usage = "INSERT INTO token_usage VALUES (2, 2, 'm', 'cells', 1, 1, 5, 0, 5, 2)";
    leave(&url, 11, &[limits, usage]).await;
    let store = open(&url).await;
    takes_what_is_new(&store).await;
    let found = store.limits(2).await.expect("read");
    let [(tenant, limits, computed)] = &found[..] else { panic!("one has limits: {found:?}") };
    assert_eq!((limits.day_tokens, limits.day_cost), (Some(90), None));
    assert_eq!((computed.day_tokens, computed.day_cost), (7, Money(0)), "what it computed had no price");
    let limits = TenantLimits { month_cost: Some(Money(5)), ..limits.clone() };
    store.set_limits(*tenant, &limits).await.expect("set");
    assert_eq!(store.limits(2).await.expect("read")[0].1, limits);
    let keys = store.keys(None, 9).await.expect("listed");
    let key = keys.iter().find(|listed| listed.key.tenant == *tenant).map(|listed| &listed.key);
    let key = key.expect("it has its key");
    assert_eq!((key.id, &key.scope), (7, &KeyScope::ALL), "old keys may all that their tenants may");
}
