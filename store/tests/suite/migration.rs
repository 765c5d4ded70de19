//! Databases of older versions of the program.

use store::{DEFAULT_TENANT, KeyLookup, SignIn, WorkbookDraft, WorkbookLimits, WorkbookSaved};

use super::{at, open};

/// The steps that a database of version 6 had.
const VERSION_6: [&str; 6] = [
    include_str!("../../src/schema.sql"),
    include_str!("../../src/schemas.sql"),
    include_str!("../../src/corpora.sql"),
    include_str!("../../src/jobs.sql"),
    include_str!("../../src/sql.sql"),
    include_str!("../../src/replica_leases.sql"),
];

/// What a program of version 6 left: its schema, a tenant and a key of it.
async fn leave_version_6(url: &str) {
    sqlx::any::install_default_drivers();
    // A file is made by who asks so.
    let url = if url.starts_with("sqlite:") { format!("{url}?mode=rwc") } else { url.to_owned() };
    let pool = sqlx::AnyPool::connect(&url).await.expect("connects");
    let key = "INSERT INTO api_keys (id, tenant, name, sha256, shown, created) \
        VALUES (7, 2, 'old', 'its hash', 'rs-old', 1)";
    let left = [
        "CREATE TABLE schema_version (version BIGINT PRIMARY KEY)",
        "INSERT INTO schema_version VALUES (1), (2), (3), (4), (5), (6)",
        "INSERT INTO tenants (id, name, weight, created) VALUES (2, 'acme', 2, 1)",
        key,
        "UPDATE counters SET last = 7 WHERE name = 'key'",
    ];
    for statement in VERSION_6.iter().flat_map(|step| step.split("\n--;\n")).chain(left) {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.expect("as it was");
    }
    pool.close().await;
}

pub(crate) async fn a_database_of_version_6_keeps_what_it_has_and_takes_what_is_new(url: String) {
    leave_version_6(&url).await;
    let store = open(&url).await;
    let KeyLookup::Valid { key, weight, .. } = store.key_by_id(7, at(2)).await.expect("asked") else {
        panic!("it works")
    };
    assert_eq!((key.name.as_str(), key.is_operator, weight), ("old", false, 2.0));
    let tenant = key.tenant;
    let draft = WorkbookDraft { id: "a", name: "Sales", content: "{}", base: 0, closes: false };
    let limits =
        WorkbookLimits { workbooks: 1, bytes: base::Bytes(100), versions: 1, version_span: base::Millis(0) };
    let saved = store.save_workbook(tenant, draft, limits, at(3)).await.expect("answered");
    assert!(matches!(saved, WorkbookSaved::Yes(_)), "{saved:?}");
    let (share, _) = store.create_share((tenant, "a"), 1, at(9), at(3)).await.expect("made");
    assert_eq!(share.id, 1);
    let sign_in = SignIn { tenant: DEFAULT_TENANT, is_operator: true };
    let token = store.create_sign_in(sign_in, at(9), at(3)).await.expect("made");
    assert_eq!(store.take_sign_in(&token, at(4)).await.expect("asked"), Some(sign_in));
    drop(store);
    assert_eq!(open(&url).await.workbooks(tenant).await.expect("listed").len(), 1, "opened again");
}
