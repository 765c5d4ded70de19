//! Leases of replicas: who holds what is seen by everybody, and ends with whoever is not heard of.

use base::Millis;
use store::{OtherLease, ReplicaLease, Store};

use super::open;

const LONG: Millis = Millis(600_000);

fn lease(replica: &str, held_rows: u32) -> ReplicaLease {
    ReplicaLease {
        replica: replica.to_owned(),
        rows_max: 64,
        tokens_max: (held_rows > 8).then_some(9_000_000_000),
        held_rows,
        held_tokens: 5_000_000_000,
        queue: format!("[{held_rows}]"),
    }
}

/// Renews a gateway's leases for `span`, whatever the others hold; what these held.
async fn renew(store: &Store, node: &str, span: Millis, leases: Vec<ReplicaLease>) -> Vec<OtherLease> {
    let seen = store.renew_replica_leases(node, span, |others, now| {
        assert!(others.iter().all(|other| other.renewed <= now), "one clock: {others:?}");
        (leases, others.to_vec())
    });
    seen.await.expect("renewed")
}

fn shown(others: &[OtherLease]) -> Vec<(&str, &str, u32)> {
    others
        .iter()
        .map(|OtherLease { node, lease, .. }| (node.as_str(), lease.replica.as_str(), lease.held_rows))
        .collect()
}

pub(crate) async fn gateways_see_what_others_hold_and_replace_their_own(url: String) {
    let (one, other) = (open(&url).await, open(&url).await);
    assert_eq!(renew(&one, "a", LONG, vec![lease("http://x", 9), lease("http://y", 3)]).await, []);
    let seen = renew(&other, "b", LONG, vec![lease("http://x", 5)]).await;
    assert_eq!(
        seen.iter().map(|other| &other.lease).collect::<Vec<_>>(),
        [&lease("http://x", 9), &lease("http://y", 3)]
    );
    // The second replica is not the first one's any more.
    let seen = renew(&one, "a", LONG, vec![lease("http://x", 2)]).await;
    assert_eq!(shown(&seen), [("b", "http://x", 5)]);
    assert_eq!(shown(&renew(&other, "b", LONG, Vec::new()).await), [("a", "http://x", 2)]);
    assert_eq!(renew(&one, "a", LONG, vec![lease("http://x", 2)]).await, []);
    one.end_replica_leases("a").await.expect("ended");
    assert_eq!(renew(&other, "b", LONG, Vec::new()).await, []);
}

pub(crate) async fn a_gateway_that_is_not_heard_of_loses_its_leases(url: String) {
    let store = open(&url).await;
    renew(&store, "dead", Millis(30), vec![lease("http://x", 60)]).await;
    renew(&store, "alive", LONG, vec![lease("http://x", 4)]).await;
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    loop {
        looks.tick().await;
        let seen = renew(&store, "c", LONG, Vec::new()).await;
        if shown(&seen) == [("alive", "http://x", 4)] {
            break;
        }
        assert_eq!(shown(&seen), [("alive", "http://x", 4), ("dead", "http://x", 60)]);
    }
}

pub(crate) async fn gateways_that_renew_at_once_never_hold_more_than_there_is(url: String) {
    let (one, other) = (open(&url).await, open(&url).await);
    // Each takes what the other leaves of ten rows, up to seven, and gives one back.
    let gateway = |store: Store, node: &'static str| async move {
        let mut most = 0;
        for round in 0..40 {
            let renewed = store.renew_replica_leases(node, LONG, |others, _| {
                let theirs: u32 = others.iter().map(|other| other.lease.held_rows).sum();
                let mine = if round % 2 == 0 { 7.min(10 - theirs) } else { 1 };
                (vec![lease("http://x", mine)], theirs + mine)
            });
            most = most.max(renewed.await.expect("renewed"));
        }
        most
    };
    let (first, second) = tokio::join!(tokio::spawn(gateway(one, "a")), tokio::spawn(gateway(other, "b")));
    assert!([first, second].into_iter().all(|most| most.is_ok_and(|most| most <= 10)));
}
