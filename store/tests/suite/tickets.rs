//! Tickets: rows appended, leases, and the crash.

use std::io::BufRead as _;
use std::process::{Command, Stdio};

use base::Bytes;
use store::{
    ClaimKind, DEFAULT_TENANT, Error, NewTicket, RESPONSE, TicketBytes, TicketMade, TicketRow, TicketState,
};

use super::{at, lease, open, row, second_tenant, ticket};

/// Tells the re-run test binary which database it should write to before it is killed.
const CHILD_URL: &str = "STORE_TEST_CHILD_URL";
/// What the child prints when the store has acknowledged everything.
const ACKNOWLEDGED: &str = "acknowledged";

pub(crate) async fn a_ticket_collects_rows_once_and_ends_once(url: String) {
    let store = open(&url).await;
    let lease = lease("a", 60);
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    let taken = store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await;
    assert!(matches!(taken, Err(Error::Taken { what: "ticket", .. })), "{taken:?}");

    store.append_rows("rq-1", "a", &[row(2, "\"c\""), row(0, "\"a\"")]).await.expect("appended");
    store.append_rows("rq-1", "a", &[row(0, "\"again\""), row(1, "\"b\"")]).await.expect("appended");
    let read = store.ticket(DEFAULT_TENANT, "rq-1", at(1)).await.expect("read").expect("there");
    assert_eq!(read.rows, [row(0, "\"a\""), row(1, "\"b\""), row(2, "\"c\"")]);
    assert_eq!(
        (read.state, read.kind.as_str(), read.request.as_str()),
        (TicketState::Running, "relquery", "{\"rows\":3}")
    );
    assert_eq!((read.created, read.expires, read.summary), (at(0), at(1_000), None));
    let holder = async |now| store.ticket_holder(DEFAULT_TENANT, "rq-1", at(now)).await.expect("read");
    assert_eq!(holder(1).await, Some((TicketState::Running, "a".to_owned())));
    assert_eq!(holder(1_000).await, None, "past its date");

    let finish = async |holder, state, summary| {
        store.finish_ticket("rq-1", holder, state, summary).await.expect("asked")
    };
    assert!(!finish(Some("b"), TicketState::Failed, None).await, "another has it");
    assert!(finish(Some("a"), TicketState::Completed, Some("{\"usage\":{}}")).await);
    assert!(!finish(None, TicketState::Cancelled, None).await, "it is over");
    let read = store.ticket(DEFAULT_TENANT, "rq-1", at(1)).await.expect("read").expect("there");
    assert_eq!((read.state, read.summary.as_deref()), (TicketState::Completed, Some("{\"usage\":{}}")));
    assert_eq!(holder(1).await, Some((TicketState::Completed, "a".to_owned())));
}

pub(crate) async fn a_tenants_tickets_stay_within_its_bytes(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let lease = lease("a", 60);
    // A request of 10 bytes each.
    let make = async |id, tenant, most| {
        let new = ticket(id, tenant, &lease);
        store.create_ticket_within(new, &[], Bytes(most), at(1)).await.expect("asked") == TicketMade::Yes
    };
    assert!(make("rq-1", DEFAULT_TENANT, 10).await);
    assert!(!make("rq-2", DEFAULT_TENANT, 19).await, "two of them are 20");
    assert!(make("rq-2", zeta, 10).await, "another tenant's count for itself");
    store.append_rows("rq-1", "a", &[row(0, "\"ä\"")]).await.expect("appended");
    assert!(!make("rq-3", DEFAULT_TENANT, 23).await, "a result of four bytes");
    assert!(make("rq-3", DEFAULT_TENANT, 24).await);
    assert!(!store.shorten_ticket("rq-1", "{}").await.expect("asked"), "it runs: its request is needed");
    store.finish_ticket("rq-1", Some("a"), TicketState::Completed, None).await.expect("ended");
    assert!(store.shorten_ticket("rq-1", "{}").await.expect("asked"));
    assert!(make("rq-4", DEFAULT_TENANT, 26).await, "8 bytes less");
    let rows = [row(0, "\"a\""), row(1, "\"b\"")];
    let with_rows = async |most| {
        let new = ticket("rq-5", DEFAULT_TENANT, &lease);
        store.create_ticket_within(new, &rows, Bytes(most), at(1)).await.expect("asked") == TicketMade::Yes
    };
    assert!(!with_rows(41).await, "its rows count: 26, 10 and 6");
    let new = ticket("rq-5", DEFAULT_TENANT, &lease);
    let refused = store.create_ticket_within(new, &rows, Bytes(41), at(1)).await.expect("asked");
    let bytes = |requests, answers| TicketBytes { requests: Bytes(requests), answers: Bytes(answers) };
    assert_eq!(refused, TicketMade::NoRoom { kept: bytes(22, 4), own: bytes(10, 6) });
    assert!(with_rows(42).await);
    let read = store.ticket(DEFAULT_TENANT, "rq-5", at(2)).await.expect("read").expect("there");
    assert_eq!(read.rows, rows, "it came with them");
}

pub(crate) async fn the_oldest_responses_that_are_over_make_room_for_a_tenants_tickets(url: String) {
    let store = open(&url).await;
    let lease = lease("a", 60);
    // A request of 10 bytes each.
    let make = async |id, kind, created, most| {
        let new = NewTicket { kind, ..ticket(id, DEFAULT_TENANT, &lease) };
        store.create_ticket_within(new, &[], Bytes(most), at(created)).await.expect("asked")
            == TicketMade::Yes
    };
    for (created, id) in ["resp-2", "resp-1", "resp-3", "rq-1"].into_iter().enumerate() {
        let kind = if id == "rq-1" { "relquery" } else { RESPONSE };
        assert!(make(id, kind, created as u64, 100).await);
    }
    store.append_rows("resp-2", "a", &[row(0, "\"four\"")]).await.expect("appended");
    for id in ["resp-2", "resp-1", "rq-1"] {
        assert!(store.finish_ticket(id, Some("a"), TicketState::Completed, None).await.expect("ended"));
    }
    let left = async || {
        let mut left = Vec::new();
        for id in ["resp-2", "resp-1", "resp-3", "rq-1", "rq-2", "rq-3"] {
            left.extend(store.ticket_holder(DEFAULT_TENANT, id, at(9)).await.expect("read").map(|_| id));
        }
        left
    };
    assert!(!make("rq-2", "relquery", 9, 29).await, "46 bytes, of which 26 are of responses that are over");
    assert_eq!(left().await, ["resp-2", "resp-1", "resp-3", "rq-1"]);
    assert!(make("rq-2", "relquery", 9, 40).await, "without the oldest it is 30");
    assert_eq!(left().await, ["resp-1", "resp-3", "rq-1", "rq-2"]);
    assert!(make("rq-3", "relquery", 9, 49).await);
    assert_eq!(left().await, ["resp-3", "rq-1", "rq-2", "rq-3"], "one that runs stays");
}

pub(crate) async fn more_rows_than_a_statement_takes_are_appended_once_each(url: String) {
    let store = open(&url).await;
    let lease = lease("a", 60);
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    let rows = |numbers: std::ops::Range<u32>, text: &str| -> Vec<TicketRow> {
        numbers.map(|number| row(number, text)).collect()
    };
    store.append_rows("rq-1", "a", &rows(40..290, "1")).await.expect("appended");
    store.append_rows("rq-1", "a", &rows(0..300, "2")).await.expect("appended");
    store.append_rows("rq-1", "a", &[]).await.expect("nothing to append");
    let read = store.ticket(DEFAULT_TENANT, "rq-1", at(2)).await.expect("read").expect("there");
    let expected = [rows(0..40, "2"), rows(40..290, "1"), rows(290..300, "2")].concat();
    assert_eq!(read.rows, expected, "what was there stays as it was");
}

pub(crate) async fn another_tenant_can_neither_read_nor_delete_a_ticket(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let lease = lease("a", 60);
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    assert_eq!(store.ticket(zeta, "rq-1", at(1)).await.expect("read"), None);
    assert_eq!(store.ticket_holder(zeta, "rq-1", at(1)).await.expect("read"), None);
    assert!(!store.delete_ticket(zeta, "rq-1").await.expect("asked"));
    assert!(store.delete_ticket(DEFAULT_TENANT, "rq-1").await.expect("deleted"));
    assert!(!store.delete_ticket(DEFAULT_TENANT, "rq-1").await.expect("asked again"));
}

pub(crate) async fn deleted_and_expired_tickets_take_no_more_rows(url: String) {
    let store = open(&url).await;
    let lease = lease("a", 60);
    for id in ["rq-1", "rq-2"] {
        store.create_ticket(ticket(id, DEFAULT_TENANT, &lease), at(0)).await.expect("made");
        store.append_rows(id, "a", &[row(0, "1")]).await.expect("appended");
    }
    store.delete_ticket(DEFAULT_TENANT, "rq-1").await.expect("deleted");
    assert_eq!(store.ticket(DEFAULT_TENANT, "rq-2", at(1_000)).await.expect("read"), None);
    assert_eq!(store.expire_tickets(at(999)).await.expect("swept"), 0);
    assert_eq!(store.expire_tickets(at(1_000)).await.expect("swept"), 1);
    for id in ["rq-1", "rq-2", "never"] {
        let late = store.append_rows(id, "a", &[row(1, "1")]).await;
        assert!(matches!(late, Err(Error::Missing("ticket"))), "{id}: {late:?}");
    }
}

pub(crate) async fn a_restarted_gateway_claims_its_own_tickets_and_others_wait_for_the_lease(url: String) {
    let store = open(&url).await;
    let first = lease("a", 60);
    for (second, id) in ["rq-3", "rq-1", "rq-2", "done"].into_iter().enumerate() {
        store.create_ticket(ticket(id, DEFAULT_TENANT, &first), at(second as u64)).await.expect("made");
    }
    store.append_rows("rq-1", "a", &[row(0, "1")]).await.expect("appended");
    let ended = store.finish_ticket("done", None, TicketState::Failed, None).await;
    assert!(ended.expect("ended"), "its owner may, whoever has it");
    let ids = |tickets: Vec<store::Ticket>| tickets.into_iter().map(|ticket| ticket.id).collect::<Vec<_>>();

    assert!(
        store
            .claim_tickets(ClaimKind::Replies, &lease("b", 100), 10, at(59))
            .await
            .expect("claimed")
            .is_empty(),
        "still a's"
    );
    let restarted = lease("a", 70);
    assert_eq!(
        ids(store.claim_tickets(ClaimKind::Replies, &restarted, 2, at(10)).await.expect("claimed")),
        ["rq-3", "rq-1"]
    );
    let rest = store.claim_tickets(ClaimKind::Replies, &restarted, 2, at(10)).await.expect("claimed");
    assert_eq!(ids(rest), ["rq-2"], "each is handed out once");
    assert!(
        store.claim_tickets(ClaimKind::Replies, &restarted, 2, at(10)).await.expect("claimed").is_empty()
    );

    let longer = lease("a", 90);
    assert_eq!(store.renew_tickets(&longer).await.expect("renewed"), 3);
    assert!(
        store.claim_tickets(ClaimKind::Replies, &longer, 10, at(11)).await.expect("claimed").is_empty(),
        "not one's own again"
    );
    assert!(
        store
            .claim_tickets(ClaimKind::Replies, &lease("b", 200), 10, at(89))
            .await
            .expect("claimed")
            .is_empty()
    );
    let orphaned =
        store.claim_tickets(ClaimKind::Replies, &lease("b", 200), 10, at(90)).await.expect("claimed");
    assert_eq!(orphaned[1].rows, [row(0, "1")], "with what was finished");
    assert_eq!(ids(orphaned), ["rq-3", "rq-1", "rq-2"]);
    assert!(
        store
            .claim_tickets(ClaimKind::Replies, &lease("c", 2_000), 10, at(1_500))
            .await
            .expect("claimed")
            .is_empty(),
        "expired"
    );
}

/// The other process: makes a ticket with rows, says so, and waits to be killed. In any other run of the
/// test binary there is nothing to do.
#[test]
fn a_child_that_is_killed_after_its_acknowledgement() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = open(&url).await;
        let lease = lease("a", 60);
        store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
        store.append_rows("rq-1", "a", &[row(0, "\"a\""), row(4, "\"e\"")]).await.expect("appended");
        eprintln!("{ACKNOWLEDGED}");
        // Until killed; or until the parent is gone and its end of the pipe with it.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("reads");
    });
}

pub(crate) async fn an_acknowledged_ticket_survives_kill_dash_nine(url: String) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["suite::tickets::a_child_that_is_killed_after_its_acknowledgement", "--exact", "--nocapture"])
        .env(CHILD_URL, &url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let stderr = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let acknowledged = stderr.lines().map_while(Result::ok).any(|line| line.contains(ACKNOWLEDGED));
    child.kill().expect("SIGKILL");
    child.wait().expect("gone");
    assert!(acknowledged, "the child wrote its ticket");

    let store = open(&url).await;
    let resumed =
        store.claim_tickets(ClaimKind::Replies, &lease("a", 120), 10, at(61)).await.expect("claimed");
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].rows, [row(0, "\"a\""), row(4, "\"e\"")]);
    assert_eq!(resumed[0].request, "{\"rows\":3}");
}

pub(crate) async fn usage_is_recorded_with_the_row_that_used_it_once(url: String) {
    use base::TokenCount;
    use store::{UsageKey, UsageRow, Used};
    let store = open(&url).await;
    let lease = lease("a", 100);
    store.create_ticket(ticket("b-1", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    let counted = |number: u32, computed| {
        let key = UsageKey { tenant: DEFAULT_TENANT, day: 3, model: "m".into(), route: "batches".into() };
        let used = Used { rows: 1, computed: TokenCount(computed), ..Used::default() };
        (row(number, "x"), Some(UsageRow { key, used }))
    };
    let append = |rows| {
        let store = store.clone();
        async move { store.append_rows_with_usage("b-1", "a", &Vec::from_iter(rows)).await }
    };
    append(vec![counted(0, 5), counted(1, 7), (row(2, "failed"), None)]).await.expect("appended");
    append(vec![counted(1, 100), counted(3, 9)]).await.expect("one of them again");
    let sums = || async { store.usage(Some(DEFAULT_TENANT), 3..=3).await.expect("read") };
    let found = sums().await;
    assert_eq!((found.len(), found[0].used.rows, found[0].used.computed), (1, 3, TokenCount(21)));
    let other = store.append_rows_with_usage("b-1", "b", &[counted(4, 1)]).await;
    assert!(matches!(other, Err(Error::Missing("lease"))), "{other:?}");
    assert_eq!(sums().await, found, "who may not write rows adds no usage");
}

pub(crate) async fn what_the_work_of_a_ticket_keeps_is_counted_once_and_goes_with_its_end(url: String) {
    use base::TokenCount;
    use store::{FIRST_WORK_ROW, UsageKey, UsageRow, Used};
    let store = open(&url).await;
    let lease = lease("a", 100);
    // A request of 10 bytes each.
    let make = async |id, most| {
        let new = ticket(id, DEFAULT_TENANT, &lease);
        store.create_ticket_within(new, &[], Bytes(most), at(1)).await.expect("asked") == TicketMade::Yes
    };
    assert!(make("sq-1", 10).await);
    let kept = |number: u32, computed| {
        let key = UsageKey { tenant: DEFAULT_TENANT, day: 3, model: "m".into(), route: "sql".into() };
        let used = Used { rows: 1, computed: TokenCount(computed), ..Used::default() };
        (row(FIRST_WORK_ROW + number, "\"k\""), Some(UsageRow { key, used }))
    };
    let sum = async || store.usage(Some(DEFAULT_TENANT), 3..=3).await.expect("read")[0].used.computed;
    store.append_rerun_rows("sq-1", "a", &[row(0, "1")]).await.expect("appended");
    store.keep_work_rows("sq-1", "a", &[kept(0, 5), kept(1, 7)]).await.expect("kept");
    store.keep_work_rows("sq-1", "a", &[kept(1, 7), kept(2, 9)]).await.expect("one of them again");
    assert_eq!(sum().await, TokenCount(21));
    let other = store.keep_work_rows("sq-1", "b", &[kept(3, 1)]).await;
    assert!(matches!(other, Err(Error::Missing("lease"))), "{other:?}");
    store.clear_rows("sq-1", "a").await.expect("cleared");
    let numbers = [0, 1, 2].map(|number| kept(number, 0).0);
    assert_eq!(store.work_rows("sq-1").await.expect("read"), numbers, "results alone are taken back");
    let read = store.ticket(DEFAULT_TENANT, "sq-1", at(1)).await.expect("read").expect("there");
    assert!(read.rows.is_empty(), "{read:?}");
    assert!(!make("sq-2", 28).await, "three bytes each: they count among the tenant's");
    assert!(make("sq-2", 29).await);
    assert!(store.finish_ticket("sq-1", None, TicketState::Cancelled, None).await.expect("asked"));
    assert!(store.work_rows("sq-1").await.expect("read").is_empty());
    let late = store.keep_work_rows("sq-1", "a", &[kept(3, 1)]).await;
    assert!(matches!(late, Err(Error::Missing("ticket"))), "{late:?}");
    assert_eq!(sum().await, TokenCount(21));
}

pub(crate) async fn a_row_and_what_it_used_are_stored_together_by_who_has_the_ticket(url: String) {
    use base::{Money, TenantId, TokenCount};
    use store::{UsageKey, UsageRow, Used};
    let store = open(&url).await;
    let first = lease("a", 100);
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &first), at(0)).await.expect("made");
    let counted = |tenant: TenantId, number: u32, computed: u64| {
        let key = UsageKey { tenant, day: 3, model: "m".into(), route: "relqueries".into() };
        let (tokens, cost) = (TokenCount(computed), Money(2 * computed));
        let used = Used { rows: 1, prompt: tokens, computed: tokens, cost, ..Used::default() };
        (row(number, "x"), Some(UsageRow { key, used }))
    };
    let of_tenant = |number, computed| counted(DEFAULT_TENANT, number, computed);
    store.append_rows_with_usage("rq-1", "a", &[of_tenant(0, 5)]).await.expect("appended");
    let taken =
        store.claim_tickets(ClaimKind::Replies, &lease("b", 300), 10, at(101)).await.expect("claimed");
    assert_eq!(taken[0].rows, [row(0, "x")], "the rest runs again");
    let late = store.append_rows_with_usage("rq-1", "a", &[of_tenant(0, 5), of_tenant(1, 7)]).await;
    assert!(matches!(late, Err(Error::Missing("lease"))), "{late:?}");
    store.append_rows_with_usage("rq-1", "b", &[of_tenant(0, 50), of_tenant(1, 9)]).await.expect("appended");
    let sums = || async { store.usage(None, 3..=3).await.expect("read") };
    let found = sums().await;
    let [UsageRow { used, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (used.rows, used.prompt, used.cost),
        (2, TokenCount(14), Money(28)),
        "as the rows that are there"
    );
    // Where the one cannot be stored, the other is not.
    let nobodys = counted(TenantId(99), 3, 1);
    let unknown = store.append_rows_with_usage("rq-1", "b", &[of_tenant(2, 1), nobodys]).await;
    assert!(matches!(unknown, Err(Error::Missing("tenant"))), "{unknown:?}");
    assert_eq!((store.row_numbers("rq-1").await.expect("read"), sums().await), (vec![0, 1], found));
}
