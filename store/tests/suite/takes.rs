//! Takes of tickets: who dies with one leaves its take in the count.

use store::{BATCH, ClaimKind, DEFAULT_TENANT, Lease, NewTicket, Store, Ticket, TicketState};

use super::{at, lease, open, row, ticket};

/// The lease of a process of the gateway `a`.
fn process(name: &str, until: u64) -> Lease {
    Lease { process: name.to_owned(), ..lease("a", until) }
}

/// How often a ticket was taken, and by whom it is now.
async fn takes(store: &Store, id: &str) -> (u64, Option<String>) {
    let ticket = store.ticket(DEFAULT_TENANT, id, at(1)).await.expect("read").expect("there");
    (ticket.takes, ticket.taken_by)
}

fn by(count: u64, process: &str) -> (u64, Option<String>) {
    (count, Some(process.to_owned()))
}

async fn claimed(store: &Store, work: ClaimKind, lease: &Lease) -> Vec<Ticket> {
    store.claim_tickets(work, lease, 10, at(5)).await.expect("claimed")
}

pub(crate) async fn a_take_counts_until_it_is_given_back_or_a_row_is_stored(url: String) {
    let store = open(&url).await;
    let (first, second, third) = (process("p1", 60), process("p2", 70), process("p3", 80));
    for id in ["rq-1", "rq-2", "rq-3"] {
        store.create_ticket(ticket(id, DEFAULT_TENANT, &first), at(0)).await.expect("made");
        assert_eq!(takes(&store, id).await, by(1, "p1"), "its work goes on where it is made");
    }
    // The first process is gone without a word.
    let found = claimed(&store, ClaimKind::Replies, &second).await;
    assert!(found.iter().all(|ticket| (ticket.ends_before("p2"), ticket.ends_before("p1")) == (1, 0)));
    store.take_tickets(&["rq-1", "rq-2"], &second).await.expect("taken");
    store.take_tickets(&["rq-1"], &second).await.expect("asked again");
    assert_eq!(takes(&store, "rq-1").await, by(2, "p2"), "once");
    assert_eq!(takes(&store, "rq-3").await, by(1, "p1"), "claimed and not begun");
    store.append_rows("rq-1", "a", &[row(0, "1")]).await.expect("appended");
    assert_eq!(takes(&store, "rq-1").await, by(1, "p2"), "a row is progress");

    // The second one gives back what it has, in order.
    assert!(store.give_ticket_back("rq-2", "p2").await.expect("given"));
    assert!(!store.give_ticket_back("rq-2", "p2").await.expect("asked"), "once");
    assert_eq!(takes(&store, "rq-2").await, (1, None), "the end of the first is not forgotten");
    assert_eq!(store.give_tickets_back("p2").await.expect("given"), 1);
    assert_eq!(takes(&store, "rq-1").await, (0, None));
    assert_eq!(store.give_tickets_back("p2").await.expect("asked"), 0);
    assert_eq!(takes(&store, "rq-3").await, by(1, "p1"), "another's are left alone");

    // A row that is there already is no progress.
    claimed(&store, ClaimKind::Replies, &third).await;
    store.take_tickets(&["rq-1", "rq-2", "rq-3"], &third).await.expect("taken");
    store.append_rows("rq-1", "a", &[row(0, "1")]).await.expect("appended");
    store.append_rows("rq-2", "a", &[]).await.expect("nothing to append");
    assert_eq!((takes(&store, "rq-1").await, takes(&store, "rq-2").await), (by(1, "p3"), by(2, "p3")));
    store.finish_ticket("rq-3", Some("a"), TicketState::Failed, None).await.expect("ended");
    assert_eq!(store.give_tickets_back("p3").await.expect("given"), 2);
    assert_eq!(takes(&store, "rq-3").await, by(2, "p3"), "what is over stays as it ended");
}

pub(crate) async fn a_ticket_is_taken_by_its_holder_alone(url: String) {
    let store = open(&url).await;
    let (first, other) = (process("p1", 60), Lease { process: "q1".into(), ..lease("b", 200) });
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &first), at(0)).await.expect("made");
    store.take_tickets(&["rq-1", "never"], &other).await.expect("nothing of it is its own");
    assert_eq!(takes(&store, "rq-1").await, by(1, "p1"));
    let found = store.claim_tickets(ClaimKind::Replies, &other, 10, at(60)).await.expect("claimed");
    assert_eq!(found[0].ends_before("q1"), 1);
    store.take_tickets(&["rq-1"], &other).await.expect("taken");
    assert_eq!(store.give_tickets_back("p1").await.expect("asked"), 0, "it has lost it");
    assert_eq!(takes(&store, "rq-1").await, by(2, "q1"));
}

pub(crate) async fn a_batch_is_taken_by_who_runs_it_and_rows_of_a_rerun_are_no_progress(url: String) {
    let store = open(&url).await;
    let (first, second) = (process("p1", 60), process("p2", 70));
    let batch = NewTicket { kind: BATCH, ..ticket("batch_1", DEFAULT_TENANT, &first) };
    store.create_ticket(batch, at(0)).await.expect("made");
    assert_eq!(takes(&store, "batch_1").await, (0, None), "it waits");
    store.take_tickets(&["batch_1"], &first).await.expect("taken");
    assert_eq!(claimed(&store, ClaimKind::Batches, &second).await[0].ends_before("p2"), 1);
    store.take_tickets(&["batch_1"], &second).await.expect("taken");
    store.append_rows_with_usage("batch_1", "a", &[(row(1, "1"), None)]).await.expect("appended");
    assert_eq!(takes(&store, "batch_1").await, by(1, "p2"));

    let statement = NewTicket { kind: "sql", ..ticket("sq-1", DEFAULT_TENANT, &first) };
    store.create_ticket(statement, at(0)).await.expect("made");
    store.take_tickets(&["sq-1"], &second).await.expect("taken");
    store.clear_rows("sq-1", "a").await.expect("cleared");
    store.append_rerun_rows("sq-1", "a", &[row(0, "1")]).await.expect("appended");
    assert_eq!(takes(&store, "sq-1").await, by(2, "p2"), "the next process takes its rows back");
    let read = store.ticket(DEFAULT_TENANT, "sq-1", at(1)).await.expect("read").expect("there");
    assert_eq!(read.rows, [row(0, "1")]);
}
