//! Files and batches: seen when they are whole, bounded, written by one gateway at a time.

use base::{Bytes, TenantId, TokenCount};
use store::{
    BATCH, BatchEnd, ClaimKind, DEFAULT_TENANT, Error, FileLimits, NewFile, NewTicket, Page, RowCounts,
    Store, TicketRow, TicketState, UsageKey, UsageRow, Used,
};

use super::{at, lease, open, row, second_tenant, ticket};

const ROOMY: FileLimits = FileLimits { files: 100, bytes: Bytes(1_000) };

async fn begin(store: &Store, id: &str, tenant: TenantId, created: u64) {
    let (purpose, name, expires) = ("batch", "in.jsonl", at(1_000));
    let new = NewFile { id, tenant, purpose, name, is_encoded: false, expires, node: None };
    store.begin_file(new, at(created)).await.expect("begun");
}

async fn put(store: &Store, id: &str, text: &str, created: u64) {
    begin(store, id, DEFAULT_TENANT, created).await;
    store.append_chunk(id, 0, text).await.expect("appended");
    store
        .finish_file((id, "batch"), (Bytes(text.len() as u64), 1), (at(1_000), ROOMY), at(created))
        .await
        .expect("ended");
}

pub(crate) async fn a_file_is_seen_once_it_is_whole_and_by_its_tenant_alone(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    begin(&store, "f", DEFAULT_TENANT, 1).await;
    store.append_chunk("f", 0, "a\n").await.expect("appended");
    store.append_chunk("f", 1, "\u{fc}\n").await.expect("appended");
    assert_eq!(store.file(DEFAULT_TENANT, "f", at(2)).await.expect("read"), None, "not whole");
    store.finish_file(("f", "batch"), (Bytes(5), 2), (at(900), ROOMY), at(2)).await.expect("ended");
    let file = store.file(DEFAULT_TENANT, "f", at(2)).await.expect("read").expect("there");
    assert_eq!(
        (file.bytes, file.lines, file.name.as_str(), file.expires),
        (Bytes(5), 2, "in.jsonl", at(900))
    );
    assert_eq!(store.file_chunk("f", 1).await.expect("read").as_deref(), Some("\u{fc}\n"));
    assert_eq!(store.file_chunk("f", 2).await.expect("read"), None);
    assert!(!store.delete_draft(DEFAULT_TENANT, "f").await.expect("asked"), "it is whole");
    begin(&store, "g", DEFAULT_TENANT, 1).await;
    assert!(!store.delete_draft(zeta, "g").await.expect("asked"));
    assert!(store.delete_draft(DEFAULT_TENANT, "g").await.expect("deleted"));

    assert_eq!(store.file(zeta, "f", at(2)).await.expect("read"), None);
    assert!(!store.delete_file(zeta, "f").await.expect("asked"));
    assert_eq!(store.file(DEFAULT_TENANT, "f", at(900)).await.expect("read"), None, "past its date");
    assert!(store.delete_file(DEFAULT_TENANT, "f").await.expect("deleted"));
    assert_eq!(store.file_chunk("f", 0).await.expect("read"), None, "its chunks went along");
    let late = store.append_chunk("f", 9, "x\n").await;
    assert!(matches!(late, Err(Error::Missing("file"))), "{late:?}");
}

pub(crate) async fn what_a_tenant_keeps_in_files_is_bounded(url: String) {
    let store = open(&url).await;
    put(&store, "a", "12345", 1).await;
    begin(&store, "b", DEFAULT_TENANT, 2).await;
    let bytes = FileLimits { files: 2, bytes: Bytes(9) };
    let full = store.finish_file(("b", "batch"), (Bytes(5), 1), (at(9), bytes), at(2)).await;
    assert!(matches!(full, Err(Error::Full { limit: 9, .. })), "{full:?}");
    let files = FileLimits { files: 1, ..bytes };
    let full = store.finish_file(("b", "batch"), (Bytes(4), 1), (at(9), files), at(2)).await;
    assert!(matches!(full, Err(Error::Full { what: "files", limit: 1 })), "{full:?}");
    store.finish_file(("b", "batch"), (Bytes(4), 1), (at(9), bytes), at(2)).await.expect("room for four");

    begin(&store, "broken off", DEFAULT_TENANT, 3).await;
    assert_eq!(store.expire_files(at(8), at(2)).await.expect("swept"), 0);
    assert_eq!(store.expire_files(at(9), at(3)).await.expect("swept"), 2, "b's date, and what broke off");
    assert!(store.file(DEFAULT_TENANT, "a", at(9)).await.expect("read").is_some());
}

pub(crate) async fn files_are_listed_from_both_ends_and_page_by_page(url: String) {
    let store = open(&url).await;
    for (created, id) in [(1, "a"), (1, "b"), (2, "c"), (3, "d")] {
        put(&store, id, "x\n", created).await;
    }
    let list = async |after: Option<&'static str>, limit, ascending, purpose: Option<&'static str>| {
        let page = (Page { after, limit }, ascending);
        let found = store.files(DEFAULT_TENANT, purpose, page, at(5)).await.expect("listed");
        found.into_iter().map(|file| file.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 10, false, None).await, ["d", "c", "b", "a"]);
    assert_eq!(list(Some("c"), 1, false, Some("batch")).await, ["b"]);
    assert_eq!(list(Some("a"), 2, true, None).await, ["b", "c"]);
    assert!(list(None, 10, true, Some("other")).await.is_empty());
    assert!(list(Some("none such"), 10, true, None).await.is_empty());
}

fn failed(number: u32) -> TicketRow {
    TicketRow { failed: true, ..row(number, "\"bad\"") }
}

async fn batch(store: &Store, id: &str, holder: &str, created: u64) {
    let lease = lease(holder, 60);
    let new = NewTicket { kind: BATCH, ..ticket(id, DEFAULT_TENANT, &lease) };
    store.create_ticket(new, at(created)).await.expect("made");
}

pub(crate) async fn a_batch_leaves_its_files_at_its_end_and_forgets_its_rows(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    batch(&store, "batch_1", "a", 1).await;
    batch(&store, "batch_2", "a", 2).await;
    assert_eq!(store.count_batches(DEFAULT_TENANT).await.expect("counted"), 2);
    let rows = [row(1, "1"), failed(2), row(4, "4"), row(7, "7")];
    store.append_rows("batch_1", "a", &rows).await.expect("appended");
    let counts = store.count_rows("batch_1").await.expect("counted");
    assert_eq!(counts, RowCounts { over: 4, failed: 1 });
    assert_eq!(store.row_numbers("batch_1").await.expect("read"), [1, 2, 4, 7]);
    assert_eq!(store.ticket_rows("batch_1", false, (2, 1)).await.expect("read"), [row(4, "4")]);
    assert_eq!(store.ticket_rows("batch_1", true, (0, 9)).await.expect("read"), [failed(2)]);

    store.note_batch("batch_1", "a", "{\"total\":7}", &[]).await.expect("noted");
    assert!(!store.cancel_batch(zeta, "batch_1", at(3)).await.expect("asked"), "another tenant's");
    assert!(store.cancel_batch(DEFAULT_TENANT, "batch_1", at(3)).await.expect("asked"));
    assert!(!store.cancel_batch(DEFAULT_TENANT, "batch_1", at(4)).await.expect("asked"), "once");
    let read = store.ticket(DEFAULT_TENANT, "batch_1", at(4)).await.expect("read").expect("there");
    assert_eq!((read.cancelling, read.summary.as_deref()), (Some(at(3)), Some("{\"total\":7}")));
    assert!(read.rows.is_empty(), "they are read page by page");

    begin(&store, "f", DEFAULT_TENANT, 5).await;
    let files = [("f".to_owned(), Bytes(3), 1)];
    let end = BatchEnd { state: TicketState::Cancelled, summary: "{}", files: &files };
    assert!(store.finish_batch("batch_1", "a", end).await.expect("ended"));
    assert!(!store.finish_batch("batch_1", "a", end).await.expect("asked"), "once");
    assert!(store.file(DEFAULT_TENANT, "f", at(6)).await.expect("read").is_some(), "seen from now on");
    assert!(store.row_numbers("batch_1").await.expect("read").is_empty());
    let page = |after, limit| Page { after, limit };
    let list = async |page| {
        let found = store.tickets(DEFAULT_TENANT, BATCH, page, at(6)).await.expect("listed");
        found.into_iter().map(|ticket| ticket.id).collect::<Vec<_>>()
    };
    assert_eq!(list(page(None, 10)).await, ["batch_2", "batch_1"]);
    assert_eq!(list(page(Some("batch_2"), 10)).await, ["batch_1"]);
}

pub(crate) async fn a_batch_is_counted_once_however_often_its_beginning_is_written(url: String) {
    let store = open(&url).await;
    batch(&store, "batch_1", "a", 1).await;
    let key = UsageKey { tenant: DEFAULT_TENANT, day: 3, model: "m".into(), route: "batches".into() };
    let usage = UsageRow { key, used: Used { requests: 1, ..Used::default() } };
    for total in ["7", "8"] {
        store.begin_batch("batch_1", "a", (total, &usage)).await.expect("begun");
        assert_eq!(store.usage(None, 0..=9).await.expect("read"), std::slice::from_ref(&usage));
        let read = store.ticket(DEFAULT_TENANT, "batch_1", at(4)).await.expect("read").expect("there");
        assert_eq!(read.summary.as_deref(), Some("7"), "the first beginning stays");
    }
    let lost = store.begin_batch("batch_1", "b", ("9", &usage)).await;
    assert!(matches!(lost, Err(Error::Missing("lease"))), "{lost:?}");
}

/// Rows of batches that have one token of output each.
fn used_by_batches(rows: u64) -> UsageRow {
    let key = UsageKey { tenant: DEFAULT_TENANT, day: 3, model: "m".into(), route: "batches".into() };
    UsageRow { key, used: Used { rows, output: TokenCount(rows), ..Used::default() } }
}

pub(crate) async fn what_is_said_of_a_batch_and_what_is_counted_with_it_are_written_once_and_together(
    url: String,
) {
    let store = open(&url).await;
    batch(&store, "batch_1", "a", 1).await;
    let read = async || {
        let ticket = store.ticket(DEFAULT_TENANT, "batch_1", at(4)).await.expect("read").expect("there");
        (ticket.summary, store.usage(None, 0..=9).await.expect("read"))
    };
    // Whoever does not know whether the first was kept sends it again.
    for _ in 0..2 {
        store.note_batch("batch_1", "a", "{\"called_off\":2}", &[used_by_batches(2)]).await.expect("noted");
        assert_eq!(read().await, (Some("{\"called_off\":2}".into()), vec![used_by_batches(2)]));
    }
    let more = [used_by_batches(1), used_by_batches(4)];
    store.note_batch("batch_1", "a", "{\"called_off\":7}", &more).await.expect("noted");
    assert_eq!(read().await, (Some("{\"called_off\":7}".into()), vec![used_by_batches(7)]));
    store.note_batch("batch_1", "a", "{\"called_off\":7,\"finalizing\":1}", &[]).await.expect("noted");
    assert_eq!(read().await.1, [used_by_batches(7)], "nothing more was used");
}

pub(crate) async fn a_gateway_that_lost_its_lease_writes_nothing(url: String) {
    let store = open(&url).await;
    batch(&store, "batch_1", "a", 1).await;
    store.append_rows("batch_1", "a", &[row(1, "1")]).await.expect("appended");
    let taken = store.claim_tickets(ClaimKind::Batches, &lease("b", 200), 10, at(60)).await.expect("claimed");
    assert_eq!(taken.len(), 1);

    let lost =
        |result: Result<(), Error>| assert!(matches!(result, Err(Error::Missing("lease"))), "{result:?}");
    lost(store.append_rows("batch_1", "a", &[row(2, "2")]).await);
    let used = [used_by_batches(1)];
    lost(store.note_batch("batch_1", "a", "{}", &used).await);
    assert!(store.usage(None, 0..=9).await.expect("read").is_empty(), "nor counts it");
    let end = BatchEnd { state: TicketState::Completed, summary: "{}", files: &[] };
    lost(store.finish_batch("batch_1", "a", end).await.map(|_| ()));
    store.append_rows("batch_1", "b", &[row(1, "again"), row(3, "3")]).await.expect("appended");
    let rows = store.ticket_rows("batch_1", false, (0, 9)).await.expect("read");
    assert_eq!(rows, [row(1, "1"), row(3, "3")], "what was recorded stays as it was");
}

pub(crate) async fn batches_and_replies_are_claimed_apart(url: String) {
    let store = open(&url).await;
    let held = lease("a", 60);
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &held), at(0)).await.expect("made");
    batch(&store, "batch_1", "a", 1).await;
    let restarted = lease("a", 70);
    let claim = async |work| {
        let claimed = store.claim_tickets(work, &restarted, 10, at(5)).await.expect("claimed");
        claimed.into_iter().map(|ticket| ticket.id).collect::<Vec<_>>()
    };
    assert_eq!(claim(ClaimKind::Batches).await, ["batch_1"]);
    assert_eq!(claim(ClaimKind::Replies).await, ["rq-1"]);
    assert!(claim(ClaimKind::Batches).await.is_empty(), "each is handed out once");
    assert_eq!(store.renew_tickets(&lease("a", 90)).await.expect("renewed"), 2);
}
