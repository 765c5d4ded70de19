//! Databases that programs of older versions left. There has been no release; every version of the schema is taken for
//! one.
//!
//! `store/tests/versions` has a file for each version: what it added to the schema, word by word as the commit has it
//! that introduced it, and rows as its server wrote them. A database of version N is the files 1 to N, one after the
//! other: it has lived through all of them.

use base::{Bytes, Millis, Money, TenantId, TokenCount};
use store::{
    ClaimKind, DEFAULT_TENANT, FragmentKey, KeyLookup, KeyScope, NewKey, NewResult, ResultKey, ResultLimits,
    RowCounts, SCHEMA_VERSION, Store, TicketState, UnixMillis, UsageWrite, WorkbookDraft, WorkbookLimits,
    WorkbookSaved,
};

use super::cases::used;
use super::{first_write, lease, open, row};

/// What each version added, as it was, with rows; and as it is in the source now.
pub(crate) static VERSIONS: [(&str, &str); 23] = [
    (include_str!("../versions/01.sql"), include_str!("../../src/schema.sql")),
    (include_str!("../versions/02.sql"), include_str!("../../src/schemas.sql")),
    (include_str!("../versions/03.sql"), include_str!("../../src/corpora.sql")),
    (include_str!("../versions/04.sql"), include_str!("../../src/jobs.sql")),
    (include_str!("../versions/05.sql"), include_str!("../../src/sql.sql")),
    (include_str!("../versions/06.sql"), include_str!("../../src/replica_leases.sql")),
    (include_str!("../versions/07.sql"), include_str!("../../src/sign_ins.sql")),
    (include_str!("../versions/08.sql"), include_str!("../../src/workbooks.sql")),
    (include_str!("../versions/09.sql"), include_str!("../../src/upkeep.sql")),
    (include_str!("../versions/10.sql"), include_str!("../../src/idempotency.sql")),
    (include_str!("../versions/11.sql"), include_str!("../../src/limits.sql")),
    (include_str!("../versions/12.sql"), include_str!("../../src/money.sql")),
    (include_str!("../versions/13.sql"), include_str!("../../src/scopes.sql")),
    (include_str!("../versions/14.sql"), include_str!("../../src/usage_writers.sql")),
    (include_str!("../versions/15.sql"), include_str!("../../src/ticket_keys.sql")),
    (include_str!("../versions/16.sql"), include_str!("../../src/responses.sql")),
    (include_str!("../versions/17.sql"), include_str!("../../src/key_claims.sql")),
    (include_str!("../versions/18.sql"), include_str!("../../src/ticket_takes.sql")),
    (include_str!("../versions/19.sql"), include_str!("../../src/uploads.sql")),
    (include_str!("../versions/20.sql"), include_str!("../../src/part_bytes.sql")),
    (include_str!("../versions/21.sql"), include_str!("../../src/ticket_progress.sql")),
    (include_str!("../versions/22.sql"), include_str!("../../src/sums.sql")),
    (include_str!("../versions/23.sql"), include_str!("../../src/result_bytes.sql")),
];

/// Stands between the schema and the rows of a file.
const ROWS: &str = "\n\n-- rows: ";

#[test]
fn what_a_version_did_is_never_edited() {
    assert_eq!(VERSIONS.len() as i64, SCHEMA_VERSION, "a new version has its file here too");
    for (number, (then, now)) in (1..).zip(VERSIONS) {
        let schema = then.split_once(ROWS).and_then(|(schema, _)| schema.split_once("\n\n"));
        let (_, schema) = schema.expect("a head, a schema and rows");
        assert!(schema == now.trim_end(), "version {number} was released; add another step");
    }
}

/// The tenant of all rows.
const ACME: TenantId = TenantId(2);
/// A little after the rows were written.
const NOW: UnixMillis = UnixMillis(1_763_700_200_000);

/// Makes a database as a program of this version left it.
async fn leave(url: &str, version: usize) {
    sqlx::any::install_default_drivers();
    let is_sqlite = url.starts_with("sqlite:");
    // A file is made by who asks so.
    let url = if is_sqlite { format!("{url}?mode=rwc") } else { url.to_owned() };
    let pool = sqlx::AnyPool::connect(&url).await.expect("connects");
    let begun = "CREATE TABLE schema_version (version BIGINT PRIMARY KEY)";
    sqlx::query(begun).execute(&pool).await.expect("made");
    for (number, (file, _)) in (1_i64..).zip(&VERSIONS[..version]) {
        // SQLite keeps the text of a column's addition, and would keep a remark behind it too.
        let (schema, rows) = file.split_once(ROWS).expect("a schema and rows");
        for statement in schema.split("\n--;\n").chain(rows.split("\n--;\n").skip(1)) {
            // The one thing that the two databases write otherwise: bytes.
            let statement = if is_sqlite { statement.to_owned() } else { statement.replace("X'", "'\\x") };
            let done = sqlx::query(sqlx::AssertSqlSafe(statement.as_str())).execute(&pool).await;
            done.unwrap_or_else(|error| panic!("version {number}: {error}: {statement}"));
        }
        let noted = sqlx::query("INSERT INTO schema_version (version) VALUES ($1)").bind(number);
        noted.execute(&pool).await.expect("noted");
    }
    pool.close().await;
}

/// Opens a database of a version, and finds all that its program left.
async fn keeps_all(url: String, version: usize) {
    leave(&url, version).await;
    let found = Store::inspect(&url).await.expect("it is looked at");
    assert_eq!((found.schema, found.is_older()), (Some(version as i64), true));
    let store = open(&url).await;
    assert_eq!(Store::inspect(&url).await.expect("again").schema, Some(SCHEMA_VERSION));
    has_accounts(&store, version).await;
    has_work(&store, version).await;
    has_texts(&store, version).await;
    if version >= 4 {
        has_batch(&store, version).await;
    }
    if version >= 19 {
        let parts = store.upload_parts("upload_old").await.expect("read");
        let parts: Vec<_> = parts.into_iter().collect();
        assert_eq!(parts, [("part_old".to_owned(), Bytes(3))], "it came whole");
    }
    takes_what_is_new(&store, version).await;
    drop(store);
    let again = open(&url).await;
    assert_eq!(again.tenants().await.expect("read").len(), 3, "it opens a second time");
}

/// Keys, tenants and usage.
async fn has_accounts(store: &Store, version: usize) {
    let key = format!("rs-{}", "0123456789abcdef".repeat(4));
    let KeyLookup::Valid { key, weight, .. } = store.find_key(&key, NOW).await.expect("asked") else {
        panic!("the key works")
    };
    assert_eq!((key.id, key.tenant, key.name.as_str(), weight), (1, ACME, "desk", 2.0));
    assert_eq!((key.is_operator, key.verifier), (false, None));
    let lost = format!("rs-{}", "fedcba9876543210".repeat(4));
    let lost = store.find_key(&lost, NOW).await.expect("asked");
    assert!(matches!(lost, KeyLookup::Revoked), "{lost:?}");
    let usage = store.usage(Some(ACME), 0..=1_000_000).await.expect("read");
    let used: Vec<_> =
        usage.iter().map(|day| (day.key.route.as_str(), day.used.rows, day.used.output)).collect();
    assert_eq!(used, [("relqueries", 40, TokenCount(80))]);
    let (cost, day_cost) = if version >= 12 { (1_400, Some(Money(5_000_000_000))) } else { (0, None) };
    assert_eq!(usage[0].used.cost, Money(cost));
    if version >= 11 {
        let all = store.limits(NOW.day()).await.expect("read");
        let (_, limits, _) = all.iter().find(|(tenant, ..)| *tenant == ACME).expect("it has some");
        assert_eq!(
            (limits.day_tokens, limits.minute_requests, limits.day_cost),
            (Some(5_000), Some(60), day_cost)
        );
    }
    if version >= 5 {
        let KeyLookup::Valid { key, .. } = store.key_by_id(3, NOW).await.expect("asked") else {
            panic!("it works")
        };
        assert!(key.verifier.is_some_and(|verifier| verifier.starts_with("SCRAM-SHA-256$")));
        let spent = store.spending(ACME, NOW.day()).await.expect("read");
        assert_eq!((spent.tokens, spent.calls), (900, 30));
    }
    if version >= 7 {
        let KeyLookup::Valid { key, .. } = store.key_by_id(4, NOW).await.expect("asked") else {
            panic!("it works")
        };
        assert!(key.is_operator);
        assert_eq!(store.identity().await.expect("read"), "this-database");
    }
}

/// Answers and tickets.
async fn has_work(store: &Store, version: usize) {
    let key = ResultKey([7; 32]);
    let known = store.results(ACME, &[key], NOW).await.expect("read");
    assert!(known[0].as_ref().is_some_and(|value| value.contains("positive")), "{known:?}");
    let ended = store.ticket(ACME, "rq-4", NOW).await.expect("read").expect("there");
    assert_eq!(
        (ended.state, ended.rows.len(), ended.summary.as_deref()),
        (TicketState::Completed, 1, Some("{}"))
    );
    let mine = lease("relserve", 900_000_000);
    let claimed = store.claim_tickets(ClaimKind::Replies, &mine, 9, NOW).await.expect("claimed");
    let [ticket] = &claimed[..] else { panic!("one goes on: {claimed:?}") };
    assert_eq!((ticket.id.as_str(), ticket.tenant, ticket.rows.len()), ("rq-5", ACME, 1));
    assert!(ticket.rows[0].result.contains("as it was") && !ticket.rows[0].failed);
    assert_eq!(ticket.ends_before("a process"), if version >= 18 { 2 } else { 0 });
    store.append_rows("rq-5", "relserve", &[row(0, "again"), row(1, "new")]).await.expect("appended");
    assert!(
        store.finish_ticket("rq-5", Some("relserve"), TicketState::Completed, None).await.expect("ended")
    );
    let whole = store.ticket(ACME, "rq-5", NOW).await.expect("read").expect("there");
    assert!(whole.rows[0].result.contains("as it was") && whole.rows[1].result == "new", "{whole:?}");
    let fitted = store.calibration("revision", "machine").await.expect("read");
    assert_eq!(fitted.as_deref(), Some("{\"decode_base\":7}"));
}

/// Schemas, corpora, workbooks, replies.
async fn has_texts(store: &Store, version: usize) {
    if version >= 2 {
        let schema = store.schema(ACME, "travel").await.expect("read").expect("there");
        assert!(schema.pml.contains("Lisbon") && schema.pinned == TokenCount(3));
    }
    if version >= 3 {
        let fragments = store.fragments(ACME, "manuals", None, 9).await.expect("read");
        let [(key, fragment)] = &fragments[..] else { panic!("one: {fragments:?}") };
        assert_eq!(*key, FragmentKey { document: "pump".into(), number: 0 });
        assert_eq!((fragment.text.as_str(), &fragment.vector[..]), ("Turn left", &[0, 255][..]));
    }
    if version >= 8 {
        let (found, content) = store.workbook_content(ACME, "w", None).await.expect("read").expect("there");
        assert_eq!((found.version, content.as_str()), (3, "{\"v\":3}"));
        assert_eq!(store.shares(ACME, "w", NOW).await.expect("read").len(), 1);
    }
    if version >= 10 {
        let reply = store.kept_reply(ACME, "once", NOW).await.expect("read").expect("there");
        assert_eq!((reply.request, reply.status, reply.body.as_str()), ([8; 32], 200, "{\"id\":\"rq-3\"}"));
    }
    if version >= 15 {
        let ticket = store.ticket_of_key(ACME, "once more", NOW).await.expect("read");
        assert_eq!(ticket, Some(("rq-4".to_owned(), [9; 32])));
    }
    if version >= 16 {
        let response = store.response(ACME, "resp-7", NOW).await.expect("read").expect("there");
        assert_eq!(
            (response.input.as_str(), response.reply.as_str()),
            ("[{\"role\":\"user\"}]", "{\"id\":\"resp-7\"}")
        );
    }
}

/// A batch that ran, and the file with its requests.
async fn has_batch(store: &Store, version: usize) {
    let file = store.file(ACME, "file-old", NOW).await.expect("read").expect("there");
    let chunk = store.file_chunk("file-old", 0).await.expect("read").expect("there");
    assert_eq!((file.lines, file.bytes, file.is_encoded), (4, Bytes(chunk.len() as u64), false));
    if version >= 5 {
        let file = store.file(ACME, "file-bytes", NOW).await.expect("read").expect("there");
        assert!(file.is_encoded);
    }
    let mine = lease("relserve", 900_000_000);
    let claimed = store.claim_tickets(ClaimKind::Batches, &mine, 9, NOW).await.expect("claimed");
    assert_eq!(claimed.iter().map(|batch| batch.id.as_str()).collect::<Vec<_>>(), ["batch_old"]);
    assert_eq!(store.count_rows("batch_old").await.expect("counted"), RowCounts { over: 2, failed: 0 });
    assert_eq!(store.row_numbers("batch_old").await.expect("read"), [1, 3]);
    let rows = store.ticket_rows("batch_old", false, (0, 9)).await.expect("read");
    assert!(rows[1].row == 3 && rows[1].result.contains("as it was 2"), "{rows:?}");
}

/// The writer of usage in the rows of version 14.
const LEFT_WRITER: &str = "4f2a8a09ee47d98db681ca9bf3cf7c44";

/// Names and numbers go on behind those that were given.
async fn takes_what_is_new(store: &Store, version: usize) {
    assert_eq!(store.create_tenant("zeta", 1.0, NOW).await.expect("made").id, TenantId(3));
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "new",
        expires: None,
        is_operator: true,
        scope: KeyScope::ALL,
    };
    let key = store.create_key(new, NOW).await.expect("made");
    let before = match version {
        ..5 => 2,
        5..7 => 3,
        7..13 => 4,
        13.. => 5,
    };
    assert_eq!(key.info.id, before + 1);
    // A writer that version 14 left has written more than one.
    let left = UsageWrite { writer: LEFT_WRITER, number: 12, rows: &[used(9, DEFAULT_TENANT, 5)], at: NOW };
    store.add_usage(left).await.expect("taken");
    let is_known = store.usage(None, 9..=9).await.expect("read").is_empty();
    assert_eq!(is_known, version >= 14);
    for _ in 0..2 {
        let rows = [used(7, DEFAULT_TENANT, 5)];
        store.add_usage(first_write("a process", &rows)).await.expect("added");
    }
    let usage = store.usage(Some(DEFAULT_TENANT), 7..=7).await.expect("read");
    assert_eq!(usage[0].used.prompt, TokenCount(5));
    let limits = WorkbookLimits { workbooks: 9, bytes: Bytes(100), versions: 1, version_span: Millis(0) };
    let draft = WorkbookDraft { id: "gone", name: "Gone", content: "{}", base: 0, closes: false };
    let saved = store.save_workbook(ACME, draft, limits, NOW).await.expect("answered");
    let WorkbookSaved::Yes(saved) = saved else { panic!("it is saved: {saved:?}") };
    assert_eq!(saved.version, if version >= 9 { 9 } else { 1 }, "one that was deleted is told from it");
    // Answers that were there count in bytes: they make room.
    let (old, new) = (ResultKey([7; 32]), ResultKey([1; 32]));
    let result = NewResult { key: new, value: "\"new\"".into() };
    let limits = ResultLimits { tenant_bytes_max: Bytes(50), ..ResultLimits::default() };
    store.put_results(ACME, &[result], limits, UnixMillis(NOW.0 + 1)).await.expect("kept");
    let known = store.results(ACME, &[old, new], NOW).await.expect("read");
    assert_eq!(known, [None, Some("\"new\"".to_owned())]);
}

macro_rules! versions {
    ($($case:ident = $version:literal),* $(,)?) => {$(
        pub(crate) async fn $case(url: String) {
            keeps_all(url, $version).await;
        }
    )*};
}
versions! {
    a_database_of_version_1_keeps_all_it_has = 1,
    a_database_of_version_2_keeps_all_it_has = 2,
    a_database_of_version_3_keeps_all_it_has = 3,
    a_database_of_version_4_keeps_all_it_has = 4,
    a_database_of_version_5_keeps_all_it_has = 5,
    a_database_of_version_6_keeps_all_it_has = 6,
    a_database_of_version_7_keeps_all_it_has = 7,
    a_database_of_version_8_keeps_all_it_has = 8,
    a_database_of_version_9_keeps_all_it_has = 9,
    a_database_of_version_10_keeps_all_it_has = 10,
    a_database_of_version_11_keeps_all_it_has = 11,
    a_database_of_version_12_keeps_all_it_has = 12,
    a_database_of_version_13_keeps_all_it_has = 13,
    a_database_of_version_14_keeps_all_it_has = 14,
    a_database_of_version_15_keeps_all_it_has = 15,
    a_database_of_version_16_keeps_all_it_has = 16,
    a_database_of_version_17_keeps_all_it_has = 17,
    a_database_of_version_18_keeps_all_it_has = 18,
    a_database_of_version_19_keeps_all_it_has = 19,
    a_database_of_version_20_keeps_all_it_has = 20,
    a_database_of_version_21_keeps_all_it_has = 21,
    a_database_of_version_22_keeps_all_it_has = 22,
}
