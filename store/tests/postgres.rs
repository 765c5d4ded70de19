//! The suite on a real Postgres that the test starts itself, and what happens when it goes away.

mod suite;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::pin::Pin;

use base::{Bytes, Millis, Time};
use store::{
    DEFAULT_TENANT, FileLimits, KeyLookup, KeyScope, NewFile, NewKey, NewPartedUpload, NewResult,
    ReceivedChunk, ResultKey, ResultLimits, Store, StoreOptions, WorkbookDeleted,
};
use suite::{
    at, batches, cases, corpora, key_claims, keys, leases, migration, progress, replies, responses, schemas,
    sql, takes, tickets, uploads, versions, workbooks,
};
use support::Server;
use wire::{LostBytes, Wire};

/// One of the suite's cases, on a database.
type Case = fn(String) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! on_postgres {
    ($($module:ident::$case:ident),* $(,)?) => {
        /// One server for all cases, a database for each, dropped after it: together they take half a gigabyte.
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_whole_suite_holds_on_postgres() {
            let Some(server) = Server::start() else { return };
            // Each case's future on the heap, made by a function of its own: all of them are more than a stack holds.
            let cases: &[(&str, Case)] = &[$((stringify!($case), |url| Box::pin($module::$case(url)))),*];
            for (case, run) in cases {
                eprintln!("{case}");
                // Postgres cuts names at 63 bytes; the cases differ before that.
                let name = case.get(..50).unwrap_or(case);
                run(server.create_database(name).await).await;
                drop_database(&server, name).await;
            }
        }
    };
}
for_each_case!(on_postgres);

/// Deletes a database with whatever is still connected to it: each takes 8 MB.
async fn drop_database(server: &Server, name: &str) {
    let pool = sqlx::AnyPool::connect(&server.url("postgres")).await.expect("connects");
    let sql = format!("DROP DATABASE {name} WITH (FORCE)");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await.expect("dropped");
    pool.close().await;
}

/// Options that give up soon.
const IMPATIENT: StoreOptions =
    StoreOptions { connections_max: 4, acquire_ms_max: Millis(300), call_ms_max: Millis(1_000) };

#[tokio::test]
async fn a_server_that_crashes_gives_transient_errors_and_then_everything_works_again() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("away").await;
    let store = Store::open_with(&url, StoreOptions { call_ms_max: Millis(20_000), ..IMPATIENT })
        .await
        .expect("opens");
    let new =
        NewKey { tenant: DEFAULT_TENANT, name: "k", expires: None, is_operator: false, scope: KeyScope::ALL };
    let key = store.create_key(new.clone(), at(0)).await.expect("created");
    let lease = suite::lease("a", 60);
    store.create_ticket(suite::ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    store.append_rows("rq-1", "a", &[suite::row(0, "1")]).await.expect("appended");

    server.crash();
    for attempt in 0..3 {
        let error = store.find_key(&key.plaintext, at(1)).await.expect_err("the server is away");
        assert!(error.is_transient(), "attempt {attempt}: {error}");
        let error =
            store.append_rows("rq-1", "a", &[suite::row(1, "1")]).await.expect_err("the server is away");
        assert!(error.is_transient(), "attempt {attempt}: {error}");
    }
    let error = Store::open_with(&url, IMPATIENT).await.expect_err("the server is away");
    assert!(error.is_transient(), "{error}");

    server.resume();
    assert!(matches!(store.find_key(&key.plaintext, at(1)).await, Ok(KeyLookup::Valid { .. })));
    store.append_rows("rq-1", "a", &[suite::row(2, "1")]).await.expect("appended");
    let ticket = store.ticket(DEFAULT_TENANT, "rq-1", at(2)).await.expect("read").expect("there");
    assert_eq!(
        ticket.rows,
        [suite::row(0, "1"), suite::row(2, "1")],
        "what was acknowledged, and nothing else"
    );
}

#[tokio::test]
async fn a_full_disk_of_the_server_is_named() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("disk_full").await;
    let store = suite::open(&url).await;
    let pool = sqlx::AnyPool::connect(&url).await.expect("connects");
    let run = async |sql: &'static str| sqlx::query(sql).execute(&pool).await.expect("done");
    // The error that a server has whose disk is full.
    run("CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$")
    .await;
    run("CREATE TRIGGER full_disk BEFORE INSERT ON tenants EXECUTE FUNCTION fill()").await;

    let error = store.create_tenant("zeta", 1.0, at(0)).await.expect_err("there is no room");
    assert_eq!(error.outage(), Some(store::StoreOutage::DiskFull), "{error}");
    // A small write finds room where others do not, and ends nothing.
    store.try_to_write(Time(1)).await.expect("it fits");
    assert_eq!(store.health().outage(), Some(store::StoreOutage::DiskFull));
    store.create_tenant("eta", 1.0, at(0)).await.expect_err("there is no room");
    store.try_to_write(Time(60_000_000_000)).await.expect("it fits");
    assert_eq!(store.health().outage(), Some(store::StoreOutage::DiskFull));
    assert_eq!(store.tenants().await.expect("it is read").len(), 1);

    run("DROP FUNCTION fill() CASCADE").await;
    store.try_to_write(Time(119_999_999_999)).await.expect("there is room");
    assert_eq!(store.health().outage(), Some(store::StoreOutage::DiskFull), "it is not long ago");
    store.try_to_write(Time(120_000_000_000)).await.expect("there is room");
    assert_eq!(store.health().outage(), None);
}

#[tokio::test]
async fn a_server_that_does_not_answer_gives_an_error_and_no_hang() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("stuck").await;
    // Made with time for it: what is bounded here is a call.
    suite::open(&url).await.close().await;
    let store = Store::open_with(&url, IMPATIENT).await.expect("opens");
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    let mut holding = other.begin().await.expect("begins");
    sqlx::query("LOCK TABLE tenants IN ACCESS EXCLUSIVE MODE").execute(&mut *holding).await.expect("locks");

    for _ in 0..2 {
        let error = store.tenants().await.expect_err("locked");
        assert!(error.is_transient(), "{error}");
    }
    store.ping().await.expect("other connections still serve");
    holding.rollback().await.expect("unlocks");
    assert_eq!(store.tenants().await.expect("listed").len(), 1);
}

#[tokio::test]
async fn a_workbook_is_not_deleted_under_a_save() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("workbooks").await;
    let store = suite::open(&url).await;
    workbooks::kept(&store, ("a", "{}"), 0, 1).await;
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    let mut saving = other.begin().await.expect("begins");
    // What a save holds from its first look to its end.
    sqlx::query("SELECT pg_advisory_xact_lock(1919249418)").execute(&mut *saving).await.expect("locks");
    let waits = async {
        let sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while sqlx::query_as::<_, (i64,)>(sql).fetch_one(&other).await.expect("looked") == (0,) {}
    };
    let mut deletion = std::pin::pin!(store.delete_workbook(DEFAULT_TENANT, ("a", None), at(2)));
    tokio::select! { deleted = &mut deletion => panic!("{deleted:?} under a save"), () = waits => {} }
    saving.rollback().await.expect("unlocks");
    assert_eq!(deletion.await.expect("nobody holds it"), WorkbookDeleted::Yes);
}

#[tokio::test]
async fn files_of_one_tenant_do_not_wait_for_those_of_another() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("files").await;
    let store = suite::open(&url).await;
    let zeta = suite::second_tenant(&store).await;
    let limits = FileLimits { files: 9, bytes: Bytes(100) };
    let file = |id, tenant| {
        let (purpose, name, expires) = ("batch", "in.jsonl", at(100));
        NewFile { id, tenant, purpose, name, is_encoded: false, expires, node: Some("a") }
    };
    let upload = |id, tenant| {
        let (purpose, name, expires) = ("batch", "in.jsonl", at(100));
        NewPartedUpload { id, tenant, purpose, name, bytes: Bytes(9), kept: None, expires }
    };
    let chunk = || ReceivedChunk { number: 0, content: "e30K", bytes: Bytes(3) };
    for (id, part, tenant) in [("u", "p", DEFAULT_TENANT), ("v", "q", zeta)] {
        store.create_upload(upload(id, tenant), limits, at(1)).await.expect("made");
        store.begin_part(id, file(part, tenant), 9, at(1)).await.expect("begun");
    }
    for (id, tenant) in [("f", DEFAULT_TENANT), ("g", zeta)] {
        store.begin_file(file(id, tenant), at(1)).await.expect("begun");
    }
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    let mut holding = other.begin().await.expect("begins");
    // The lock of the default tenant's files.
    sqlx::query("SELECT pg_advisory_xact_lock(8243113474587099137)")
        .execute(&mut *holding)
        .await
        .expect("locks");
    store.receive_part(("v", "q"), chunk(), at(50), at(1)).await.expect("received");
    store.finish_part(("v", "q"), at(100), at(1)).await.expect("ended");
    store.receive_chunk("g", chunk(), (at(50), limits), at(1)).await.expect("received");
    store.finish_file(("g", "batch"), (Bytes(3), 1), (at(90), limits), at(1)).await.expect("ended");
    assert!(store.cancel_upload("v").await.expect("asked"));
    store.create_upload(upload("w", zeta), limits, at(1)).await.expect("made");

    let sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let waits =
        async { while sqlx::query_as::<_, (i64,)>(sql).fetch_one(&other).await.expect("looked") != (3,) {} };
    let (part, received, made) = (
        store.receive_part(("u", "p"), chunk(), at(50), at(1)),
        store.receive_chunk("f", chunk(), (at(50), limits), at(1)),
        store.create_upload(upload("x", DEFAULT_TENANT), limits, at(1)),
    );
    let release = async {
        waits.await;
        holding.rollback().await.expect("unlocks");
    };
    let (part, received, made, ()) = tokio::join!(part, received, made, release);
    assert!(part.is_ok() && received.is_ok() && made.is_ok(), "{part:?} {received:?} {made:?}");
}

#[tokio::test]
async fn a_nodes_name_is_one_processs_at_a_time() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("nodes").await;
    let (one, other) = (suite::open(&url).await, suite::open(&url).await);
    suite::nodes(&one, &other).await;
}

/// Options that give up soon, and not before a connection is made.
const BRISK: StoreOptions =
    StoreOptions { connections_max: 4, acquire_ms_max: Millis(3_000), call_ms_max: Millis(3_000) };

#[tokio::test]
async fn a_lock_does_not_outlive_the_call_of_a_client_that_is_lost() {
    let Some(server) = Server::start() else { return };
    let store = suite::open(&server.create_database("lost").await).await;
    let wire = Wire::to(&server.url("postgres"));
    let lost = Store::open_with(&wire.url("lost"), BRISK).await.expect("opens");
    let results = [NewResult { key: ResultKey([1; 32]), value: "\"v\"".to_owned() }];
    // It holds the lock of results by then.
    wire.lose(LostBytes::Message, "INSERT INTO results");
    let put = lost.put_results(DEFAULT_TENANT, &results, ResultLimits::default(), at(0)).await;
    let error = put.expect_err("nothing comes back");
    assert!(error.is_transient(), "{error}");
    let put = store.put_results(DEFAULT_TENANT, &results, ResultLimits::default(), at(0)).await;
    put.expect("Postgres has ended the transaction that said nothing any more");
    lost.clear_results(DEFAULT_TENANT).await.expect("its other connections serve");
}

#[tokio::test]
async fn a_wait_for_a_lock_ends_in_the_database_too() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("waits").await;
    let store = Store::open_with(&url, BRISK).await.expect("opens");
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    let mut holding = other.begin().await.expect("begins");
    // The lock of results.
    sqlx::query("SELECT pg_advisory_xact_lock(1919249410)").execute(&mut *holding).await.expect("locks");
    let error = store.clear_results(DEFAULT_TENANT).await.expect_err("locked");
    assert!(error.is_transient(), "{error}");
    let sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while sqlx::query_as::<_, (i64,)>(sql).fetch_one(&other).await.expect("looked") != (0,) {}
    holding.rollback().await.expect("unlocks");
    store.clear_results(DEFAULT_TENANT).await.expect("nobody holds it");
}

#[tokio::test]
async fn usage_whose_write_is_kept_and_not_confirmed_counts_once() {
    let Some(server) = Server::start() else { return };
    let store = suite::open(&server.create_database("usage").await).await;
    let wire = Wire::to(&server.url("postgres"));
    let lost = Store::open_with(&wire.url("usage"), BRISK).await.expect("opens");
    let rows = [cases::used(7, DEFAULT_TENANT, 100)];
    wire.lose(LostBytes::Answer, "COMMIT");
    let error = lost.add_usage(suite::first_write("a", &rows)).await.expect_err("no answer comes");
    assert!(error.is_transient(), "{error}");
    // Waits for the first to end.
    store.add_usage(suite::first_write("b", &[])).await.expect("taken");
    let kept = store.usage(None, 7..=7).await.expect("read");
    assert_eq!(kept.len(), 1, "it was kept all the same");
    lost.add_usage(suite::first_write("a", &rows)).await.expect("sent again");
    assert_eq!(store.usage(None, 7..=7).await.expect("read"), kept);
}
