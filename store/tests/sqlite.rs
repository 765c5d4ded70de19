//! The suite on SQLite, and what is SQLite's alone.

mod suite;

use base::Bytes;
use store::{Error, FileLimits, NewFile, NewPartedUpload, ReceivedChunk, Store};
use suite::{
    batches, cases, corpora, key_claims, keys, leases, migration, progress, replies, responses, schemas, sql,
    takes, tickets, uploads, versions, workbooks,
};

macro_rules! on_sqlite {
    ($($module:ident::$case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let dir = tempfile::tempdir().expect("a directory");
            // An awkward name, to be sure of the encoding.
            $module::$case(format!("sqlite:{}", dir.path().join("store.db").display())).await;
        }
    )*};
}
for_each_case!(on_sqlite);

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("odd name #1%.db");
    let store = suite::open(&format!("sqlite:{}", path.display())).await;
    suite::second_tenant(&store).await;
    let entries: Vec<_> =
        std::fs::read_dir(dir.path()).expect("readable").map(|entry| entry.expect("entry")).collect();
    assert!(entries.iter().any(|entry| entry.path() == path), "under the name as given");
    for entry in entries {
        let mode = entry.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
    }
}

#[tokio::test]
async fn what_was_done_to_a_file_is_written_into_it_and_it_stays_of_its_version() {
    use sqlx::{AnyConnection, Connection as _, Executor as _};
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("odd name #1%.db");
    let url = format!("sqlite:{}", path.display());
    let entry = store::NewAuditEntry { actor: "somebody", action: "restore", subject: "a", details: "{}" };
    let missing = Store::audit_in_file(&path, entry, suite::at(3)).await;
    assert!(matches!(missing, Err(Error::Missing(_))) && !path.exists(), "nothing was made: {missing:?}");
    suite::open(&url).await.close().await;
    assert!(Store::audit_in_file(&path, entry, suite::at(3)).await.expect("written"));
    let store = suite::open(&url).await;
    let log = store.audit(None, 10).await.expect("read");
    let told: Vec<_> = log.iter().map(|entry| (entry.id, &*entry.action, entry.at, entry.is_done)).collect();
    assert_eq!(told, [(1, "restore", suite::at(3), Some(true))]);
    assert_eq!(store.begin_audit(entry, suite::at(4)).await.expect("written"), 2, "numbers go on");
    store.close().await;

    let plain = dir.path().join("old.db");
    Store::copy_file(&url, &plain).await.expect("copied");
    let mut old = AnyConnection::connect(&format!("sqlite:{}", plain.display())).await.expect("it opens");
    old.execute("DROP TABLE audit_log").await.expect("an older one had none");
    old.close().await.expect("closed");
    assert!(!Store::audit_in_file(&plain, entry, suite::at(5)).await.expect("looked at"));
}

#[tokio::test]
async fn no_file_has_a_key_or_a_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = suite::open(&format!("sqlite:{}", dir.path().join("store.db").display())).await;
    let (tenant, is_operator) = (store::DEFAULT_TENANT, true);
    let new = store::NewKey { tenant, name: "desk", expires: None, is_operator, scope: store::KeyScope::ALL };
    let key = store.create_key(new, suite::at(1)).await.expect("made").plaintext;
    let sign_in = store::SignIn { tenant, is_operator };
    let token = store.create_sign_in(sign_in, suite::at(9), suite::at(1)).await.expect("made");
    workbooks::kept(&store, ("a", "{}"), 0, 1).await;
    let (_, link) = store.create_share((tenant, "a"), 1, suite::at(9), suite::at(1)).await.expect("made");
    let mut read = 0;
    for entry in std::fs::read_dir(dir.path()).expect("readable") {
        let bytes = std::fs::read(entry.expect("entry").path()).expect("readable");
        read += bytes.len();
        for secret in [&key, &token, &link] {
            let secret = secret.split_once('-').expect("a prefix").1.as_bytes();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "only hashes are kept");
        }
    }
    assert!(read > 0, "the files were read");
}

#[tokio::test]
async fn a_database_in_memory_works_and_leaves_nothing() {
    let store = Store::open("sqlite::memory:").await.expect("opens");
    suite::second_tenant(&store).await;
    assert_eq!(store.tenants().await.expect("listed").len(), 2);
    let other = Store::open("sqlite::memory:").await.expect("opens");
    assert_eq!(other.tenants().await.expect("listed").len(), 1, "each has its own");
}

#[tokio::test]
async fn a_file_that_is_no_database_or_cannot_be_made_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "these are only notes, and long enough to be read as a header: ".repeat(20))
        .expect("written");
    let error = Store::open(&format!("sqlite:{}", path.display())).await.expect_err("refused");
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("notes.txt` is damaged"), "it names the file: {error}");
    let missing = dir.path().join("no/such/dir/store.db");
    assert!(matches!(Store::open(&format!("sqlite:{}", missing.display())).await, Err(Error::File { .. })));
}

/// A store in a folder whose calls may take little time, and a transaction elsewhere that keeps it from writing.
async fn beside_a_writer(dir: &tempfile::TempDir) -> (Store, sqlx::Transaction<'static, sqlx::Any>) {
    let url = format!("sqlite:{}", dir.path().join("store.db").display());
    // Made before: that takes longer than a call may.
    drop(Store::open(&url).await.expect("is made"));
    let options = store::StoreOptions { call_ms_max: base::Millis(200), ..Default::default() };
    let store = Store::open_with(&url, options).await.expect("opens");
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    (store, other.begin_with("BEGIN IMMEDIATE").await.expect("locks"))
}

#[tokio::test]
async fn a_writer_elsewhere_makes_a_call_transient_not_hanging() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, mut holding) = beside_a_writer(&dir).await;
    sqlx::query("UPDATE tenants SET weight = 9").execute(&mut *holding).await.expect("writes");

    let refused = store.create_tenant("zeta", 1.0, suite::at(0)).await.expect_err("locked");
    assert!(refused.is_transient(), "{refused}");
    assert_eq!(store.tenants().await.expect("readers do not wait")[0].weight, 1.0);
    holding.rollback().await.expect("unlocks");
    // The abandoned attempt may still hold its place in the queue: the promise is that it recovers.
    let mut last = None;
    for _ in 0..50 {
        match store.create_tenant("zeta", 1.0, suite::at(0)).await {
            Ok(_) => return,
            Err(error) => last = Some(error),
        }
    }
    panic!("never recovered: {last:?}");
}

/// The steps that a database of version 4 had.
const VERSION_4: [&str; 4] = [
    include_str!("../src/schema.sql"),
    include_str!("../src/schemas.sql"),
    include_str!("../src/corpora.sql"),
    include_str!("../src/jobs.sql"),
];

#[tokio::test]
async fn a_key_of_an_older_version_works_on_and_has_no_verifier() {
    use sqlx::Connection as _;
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite://{}", dir.path().join("store.db").display());
    let mut old = sqlx::SqliteConnection::connect(&format!("{url}?mode=rwc")).await.expect("made");
    for step in VERSION_4 {
        for statement in step.split("\n--;\n") {
            sqlx::query(statement).execute(&mut old).await.expect("as it was");
        }
    }
    sqlx::query("CREATE TABLE schema_version (version BIGINT PRIMARY KEY)")
        .execute(&mut old)
        .await
        .expect("made");
    sqlx::query("INSERT INTO schema_version VALUES (1), (2), (3), (4)")
        .execute(&mut old)
        .await
        .expect("noted");
    sqlx::query("INSERT INTO api_keys VALUES (7, 1, 'old', 'its hash', 'rs-old', 1, NULL, NULL, NULL)")
        .execute(&mut old)
        .await
        .expect("kept");
    old.close().await.expect("closed");

    let store = suite::open(&url).await;
    let store::KeyLookup::Valid { key, .. } = store.key_by_id(7, suite::at(2)).await.expect("asked") else {
        panic!("it works")
    };
    assert_eq!((key.name.as_str(), key.verifier), ("old", None));
}

#[tokio::test]
async fn a_nodes_name_is_one_processs_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("store.db").display());
    let (one, other) = (suite::open(&url).await, suite::open(&url).await);
    suite::nodes(&one, &other).await;
    let memory = Store::open("sqlite::memory:").await.expect("opens");
    let _claims =
        [memory.claim_node("a").await.expect("its own"), memory.claim_node("a").await.expect("its own")];
}

#[tokio::test]
async fn a_node_that_runs_on_a_file_is_found_without_taking_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let node = || Store::node_on(&path).expect("the folder is read");
    assert_eq!(node(), None);
    let store = suite::open(&format!("sqlite:{}", path.display())).await;
    drop(store.claim_node("gone").await.expect("it is free"));
    let claim = store.claim_node("gateway/1").await.expect("it is free");
    assert_eq!([node().as_deref(), node().as_deref()], [Some("gateway%2f1"); 2]);
    drop(claim);
    assert_eq!(node(), None);
    assert_eq!(Store::node_on(&dir.path().join("no/such.db")).expect("none is there"), None);
}

#[tokio::test]
async fn a_transaction_that_sqlite_ends_by_itself_costs_no_later_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("store.db").display());
    let store = suite::open(&url).await;
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    // As where the disk is full: the statement fails and its transaction is gone.
    let full = "CREATE TRIGGER full BEFORE INSERT ON tenants BEGIN SELECT RAISE(ROLLBACK, 'full'); END";
    sqlx::query(full).execute(&other).await.expect("made");
    for attempt in 0..20 {
        let refused = store.create_tenant("zeta", 1.0, suite::at(0)).await.expect_err("refused");
        assert!(refused.to_string().contains("full"), "attempt {attempt}: {refused}");
    }
    assert_eq!(store.health().errors().failed, 20);
    sqlx::query("DROP TRIGGER full").execute(&other).await.expect("dropped");
    store.create_tenant("zeta", 1.0, suite::at(0)).await.expect("written");
}

#[tokio::test]
async fn a_part_that_goes_while_it_comes_is_none_of_its_upload() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("store.db").display());
    let store = suite::open(&url).await;
    let (tenant, name, expires, bytes) = (store::DEFAULT_TENANT, "in.jsonl", suite::at(9), Bytes(9));
    let new = NewPartedUpload { id: "u", tenant, purpose: "batch", name, bytes, kept: None, expires };
    let limits = FileLimits { files: 9, bytes };
    store.create_upload(new, limits, suite::at(1)).await.expect("made");
    let (purpose, node) = ("upload_part", Some("a"));
    let new = NewFile { id: "p", tenant, purpose, name, is_encoded: true, expires, node };
    store.begin_part("u", new, 9, suite::at(1)).await.expect("begun");
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    // As where the upload was deleted by its date meanwhile: no row is changed.
    let gone = "CREATE TRIGGER gone BEFORE UPDATE ON upload_parts BEGIN SELECT RAISE(IGNORE); END";
    sqlx::query(gone).execute(&other).await.expect("made");
    let chunk = ReceivedChunk { number: 0, content: "e30K", bytes: Bytes(3) };
    let late = store.receive_part(("u", "p"), chunk, expires, suite::at(1)).await;
    assert!(matches!(late, Err(Error::Missing("upload"))), "{late:?}");
    assert_eq!(store.file_chunk("p", 0).await.expect("read"), None, "nothing was written");
}

#[tokio::test]
async fn a_database_with_wrong_bytes_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let url = format!("sqlite:{}", path.display());
    let store = suite::open(&url).await;
    for number in 0..500 {
        store.create_tenant(&format!("tenant {number}"), 1.0, suite::at(0)).await.expect("made");
    }
    store.close().await;
    let mut bytes = std::fs::read(&path).expect("readable");
    // All but the header and the schema's first page.
    bytes[4_096..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&path, bytes).expect("written");
    for beside in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{beside}", path.display()));
    }
    let error = match Store::open(&url).await {
        Ok(store) => store.tenants().await.expect_err("nothing can be read"),
        Err(error) => error,
    };
    assert!(error.to_string().contains("store.db` is damaged"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_is_gone_until_the_very_file_is_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let [path, aside] = ["store.db", "aside.db"].map(|name| dir.path().join(name));
    let url = format!("sqlite:{}", path.display());
    // One connection, which is there from the first: another could not be made to the file that is gone.
    let options = store::StoreOptions { connections_max: 1, ..Default::default() };
    let store = Store::open_with(&url, options).await.expect("opens");
    suite::second_tenant(&store).await;
    store.look_at_file().await;
    assert_eq!(store.health().outage(), None);

    std::fs::rename(&path, &aside).expect("moved");
    store.look_at_file().await;
    for is_another_there in [false, true] {
        if is_another_there {
            std::fs::copy(&aside, &path).expect("copied");
            store.look_at_file().await;
        }
        assert_eq!(store.health().outage(), Some(store::StoreOutage::FileGone));
        let refused = store.create_tenant("lost", 1.0, suite::at(1)).await.expect_err("refused");
        assert!(refused.is_transient() && refused.to_string().contains("store.db` is gone"), "{refused}");
        let upkeep = store.merge_usage(store::DEFAULT_TENANT, (5, 9)).await.expect_err("refused");
        assert_eq!(upkeep.outage(), Some(store::StoreOutage::FileGone));
        assert!(store.try_to_write(base::Time(1)).await.is_err());
        assert_eq!(store.tenants().await.expect("what is open is read").len(), 2);
    }
    assert_eq!(store.health().errors().file_gone, 7, "once for the file, and for each write");

    std::fs::rename(&aside, &path).expect("moved back");
    assert!(store.create_tenant("lost", 1.0, suite::at(1)).await.is_err(), "nobody has looked");
    store.look_at_file().await;
    assert_eq!(store.health().outage(), None);
    store.create_tenant("kept", 1.0, suite::at(1)).await.expect("written");
    store.close().await;
    let tenants = suite::open(&url).await.tenants().await.expect("read");
    let names: Vec<_> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["default", "zeta", "kept"]);
}

#[tokio::test]
async fn a_database_in_memory_has_no_file_to_lose() {
    let store = Store::open("sqlite::memory:").await.expect("opens");
    store.look_at_file().await;
    assert_eq!(store.health().outage(), None);
    suite::second_tenant(&store).await;
}

#[tokio::test]
async fn a_reply_whose_sums_cannot_be_written_is_not_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("store.db").display());
    let store = suite::open(&url).await;
    let other = sqlx::AnyPool::connect(&url).await.expect("connects");
    // As where the process ends between the two.
    let cut = "CREATE TRIGGER cut BEFORE INSERT ON idempotent_reply_sums \
        BEGIN SELECT RAISE(ABORT, 'cut'); END";
    sqlx::query(cut).execute(&other).await.expect("made");
    let (request, content_type, body) = ([7; 32], "text/plain".to_owned(), "once".to_owned());
    let reply = store::IdempotentReply { request, status: 200, content_type, body };
    let limits = store::ReplyLimits { replies: 9, bytes: Bytes(99) };
    let keep = async || store.keep_reply((store::DEFAULT_TENANT, "k"), &reply, suite::at(9), limits).await;
    assert!(keep().await.expect_err("refused").to_string().contains("cut"));
    let kept = async || store.kept_reply(store::DEFAULT_TENANT, "k", suite::at(1)).await.expect("read");
    assert_eq!(kept().await, None);
    sqlx::query("DROP TRIGGER cut").execute(&other).await.expect("dropped");
    keep().await.expect("kept");
    assert_eq!(kept().await, Some(reply.clone()));
}

#[tokio::test]
async fn upkeep_that_takes_too_long_is_no_database_that_is_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, holding) = beside_a_writer(&dir).await;
    let late = store.merge_usage(store::DEFAULT_TENANT, (5, 9)).await.expect_err("locked");
    assert!(late.is_transient(), "{late}");
    assert_eq!(store.health().outage(), None);
    holding.rollback().await.expect("unlocks");
}

#[tokio::test]
async fn a_write_that_works_ends_an_outage() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, holding) = beside_a_writer(&dir).await;
    assert!(store.try_to_write(base::Time(0)).await.is_err());
    assert_eq!(store.health().outage(), Some(store::StoreOutage::Away));
    holding.rollback().await.expect("unlocks");
    while store.try_to_write(base::Time(1)).await.is_err() {}
    assert_eq!(store.health().outage(), None);
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_no_database_in_memory_along() {
    let store = Store::open("sqlite::memory:").await.expect("opens");
    // It waits for its turn, then for its connection, then for its answer: one is dropped at each of these.
    for looks in (1..20).cycle().take(200) {
        let mut call = Box::pin(store.ping());
        for _ in 0..looks {
            tokio::select! {
                biased;
                _ = &mut call => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(call);
        let tenant = store.tenant(store::DEFAULT_TENANT).await.expect("the same database");
        assert!(tenant.is_some());
    }
}
