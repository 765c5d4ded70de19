//! How far tickets are, as readers at other gateways are told.

use base::{Millis, TenantId};
use store::{ClaimKind, DEFAULT_TENANT, Lease, ProgressPiece, ProgressPlace, Store, TicketState};

use super::{at, lease, open, second_tenant, ticket};

const LONG: Millis = Millis(600_000);
/// Over as soon as it begins.
const NONE: Millis = Millis(0);

fn piece(run: &str, number: u32, content: &str) -> ProgressPiece {
    ProgressPiece { number, run: run.to_owned(), content: content.to_owned() }
}

/// Tells a ticket; whether it is written.
async fn tell(store: &Store, lease: &Lease, id: &str, piece: ProgressPiece) -> bool {
    let written = store.append_progress(lease, &[(id.to_owned(), piece)]).await.expect("asked");
    written.contains(id)
}

/// What a tenant is told of a ticket behind so many pieces of a run.
async fn told(store: &Store, of: (TenantId, &str), run: &str, next: u32) -> Vec<ProgressPiece> {
    store.progress(of, ProgressPlace { run, next }, 9).await.expect("read")
}

async fn want(store: &Store, id: &str, span: Millis) -> bool {
    store.want_progress(DEFAULT_TENANT, id, span, at(1)).await.expect("asked")
}

pub(crate) async fn a_ticket_is_told_while_somebody_reads_it_and_by_who_has_it(url: String) {
    let (store, other) = (open(&url).await, open(&url).await);
    let (a, b) = (lease("a", 60), lease("b", 200));
    for id in ["rq-1", "rq-2"] {
        store.create_ticket(ticket(id, DEFAULT_TENANT, &a), at(0)).await.expect("made");
    }
    let wanted = async |of: &Lease| store.wanted_progress(&of.process, 9).await.expect("read");
    assert!(!tell(&store, &a, "rq-1", piece("r", 0, "x")).await, "nobody reads it");
    assert_eq!(wanted(&a).await, Vec::<String>::new());
    assert!(want(&other, "rq-1", LONG).await);
    assert_eq!(wanted(&a).await, ["rq-1"]);
    assert_eq!(wanted(&b).await, Vec::<String>::new(), "another has it");
    assert!(want(&other, "rq-1", NONE).await);
    assert_eq!(wanted(&a).await, Vec::<String>::new(), "its reader has not asked again");
    assert!(want(&other, "rq-1", LONG).await);

    assert!(!tell(&store, &b, "rq-1", piece("r", 0, "x")).await, "it is another's");
    let both = [("rq-1".to_owned(), piece("r", 0, "x")), ("rq-2".to_owned(), piece("s", 0, "y"))];
    let written = store.append_progress(&a, &both).await.expect("asked");
    assert_eq!(written.into_iter().collect::<Vec<_>>(), ["rq-1"], "nobody reads the other");
    let of = (DEFAULT_TENANT, "rq-1");
    assert_eq!(told(&other, of, "", 0).await, [piece("r", 0, "x")]);

    // Another gateway takes it over: what the first told is told no more, and it tells nothing behind that.
    let claimed = store.claim_tickets(ClaimKind::Replies, &b, 9, at(60)).await.expect("claimed");
    assert_eq!(claimed.len(), 2);
    assert!(!tell(&store, &a, "rq-1", piece("r", 1, "late")).await, "it has lost its lease");
    store.take_tickets(&["rq-1"], &b).await.expect("taken");
    assert_eq!(told(&other, of, "", 0).await, []);
    assert_eq!((wanted(&a).await.len(), wanted(&b).await), (0, vec!["rq-1".to_owned()]));
    assert!(tell(&store, &b, "rq-1", piece("t", 0, "anew")).await);
    assert_eq!(told(&other, of, "r", 1).await, [piece("t", 0, "anew")]);
}

pub(crate) async fn a_run_that_begins_anew_replaces_what_was_told_and_a_gap_is_not_written(url: String) {
    let store = open(&url).await;
    let (a, of) = (lease("a", 60), (DEFAULT_TENANT, "rq-1"));
    store.create_ticket(ticket("rq-1", DEFAULT_TENANT, &a), at(0)).await.expect("made");
    assert!(want(&store, "rq-1", LONG).await);
    for (number, content) in [(0, "x"), (1, "y"), (2, "z")] {
        assert!(tell(&store, &a, "rq-1", piece("r", number, content)).await);
    }
    assert!(!tell(&store, &a, "rq-1", piece("r", 4, "?")).await, "one is missing before it");
    assert!(!tell(&store, &a, "rq-1", piece("s", 3, "?")).await, "the ones before are another run's");
    assert_eq!(told(&store, of, "r", 1).await, [piece("r", 1, "y"), piece("r", 2, "z")]);
    assert_eq!(told(&store, of, "r", 3).await, []);
    let first = store.progress(of, ProgressPlace::default(), 2).await.expect("read");
    assert_eq!(first, [piece("r", 0, "x"), piece("r", 1, "y")], "as many as are asked for");
    assert!(tell(&store, &a, "rq-1", piece("s", 0, "x2")).await);
    assert_eq!(told(&store, of, "r", 3).await, [piece("s", 0, "x2")], "all of it is new");
    assert!(!tell(&store, &a, "rq-1", piece("r", 3, "?")).await, "its run is gone");
}

pub(crate) async fn what_was_told_is_its_tenants_and_goes_with_the_end_or_the_readers(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let a = lease("a", 60);
    let ids = ["rq-1", "rq-2", "rq-3", "rq-4"];
    for id in ids {
        store.create_ticket(ticket(id, DEFAULT_TENANT, &a), at(0)).await.expect("made");
        assert!(!store.want_progress(zeta, id, LONG, at(1)).await.expect("asked"), "it is another's");
        assert!(!store.want_progress(DEFAULT_TENANT, id, LONG, at(1_000)).await.expect("asked"), "its date");
        assert!(want(&store, id, LONG).await);
        assert!(tell(&store, &a, id, piece("r", 0, "x")).await);
        assert_eq!(told(&store, (zeta, id), "", 0).await, []);
    }
    assert!(!store.want_progress(DEFAULT_TENANT, "never", LONG, at(1)).await.expect("asked"));
    assert_eq!(store.forget_progress().await.expect("nothing is over"), 0);
    store.finish_ticket("rq-1", Some("a"), TicketState::Completed, None).await.expect("ended");
    assert!(!want(&store, "rq-1", LONG).await, "it has ended");
    assert!(!tell(&store, &a, "rq-1", piece("r", 1, "late")).await, "it has ended");
    assert!(want(&store, "rq-2", NONE).await);
    assert!(store.delete_ticket(DEFAULT_TENANT, "rq-3").await.expect("deleted"));
    assert_eq!(store.forget_progress().await.expect("forgotten"), 2, "the end of one, no reader of another");
    let left = async |id| told(&store, (DEFAULT_TENANT, id), "", 0).await.len();
    let mut all = Vec::new();
    for id in ids {
        all.push(left(id).await);
    }
    assert_eq!(all, [0, 0, 0, 1]);
}
