//! Responses that a later request may go on from.

use base::{Bytes, TenantId};
use store::{DEFAULT_TENANT, NewResponse, Store, StoredResponse};

use super::{at, open, second_tenant};

async fn keep(store: &Store, (tenant, id, input): (TenantId, &str, &str), bytes_max: u64, now: u64) -> bool {
    let new = NewResponse { tenant, id, input, reply: "{}", expires: at(100) };
    store.keep_response(new, Bytes(bytes_max), at(now)).await.expect("answered")
}

pub(crate) async fn a_response_is_its_tenants_alone_and_ends(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    assert!(keep(&store, (DEFAULT_TENANT, "resp-1", "[\"ä\"]"), 1_000, 1).await);
    assert!(keep(&store, (zeta, "resp-1", "[1]"), 1_000, 1).await);
    let found = async |tenant, now| open(&url).await.response(tenant, "resp-1", at(now)).await.expect("read");
    let stored = StoredResponse { input: "[\"ä\"]".into(), reply: "{}".into() };
    assert_eq!(found(DEFAULT_TENANT, 99).await, Some(stored));
    assert_eq!(found(DEFAULT_TENANT, 100).await, None, "past its date");
    assert_eq!(found(zeta, 1).await.map(|found| found.input), Some("[1]".into()));
    assert!(store.delete_response(DEFAULT_TENANT, "resp-1").await.expect("asked"));
    assert!(!store.delete_response(DEFAULT_TENANT, "resp-1").await.expect("asked"));
    assert!(found(zeta, 1).await.is_some(), "another's");
    assert_eq!(store.expire_responses(at(99)).await.expect("asked"), 0);
    assert_eq!(store.expire_responses(at(100)).await.expect("asked"), 1);
}

pub(crate) async fn the_oldest_responses_of_a_tenant_make_room(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    assert!(keep(&store, (zeta, "other", "12345678"), 30, 0).await);
    for (id, now) in [("a", 1), ("b", 2), ("c", 3)] {
        assert!(keep(&store, (DEFAULT_TENANT, id, "12345678"), 30, now).await);
    }
    assert_eq!(store.response_bytes(DEFAULT_TENANT).await.expect("read"), Bytes(30));
    assert!(keep(&store, (DEFAULT_TENANT, "d", "123456789012"), 30, 4).await);
    let mut left = Vec::new();
    for id in ["a", "b", "c", "d"] {
        left.push(store.response(DEFAULT_TENANT, id, at(4)).await.expect("read").is_some());
    }
    assert_eq!(left, [false, false, true, true], "14 and 10 bytes of 30");
    assert!(!keep(&store, (DEFAULT_TENANT, "e", &"x".repeat(29)), 30, 5).await, "too large alone");
    assert_eq!(store.response_bytes(DEFAULT_TENANT).await.expect("read"), Bytes(24), "nothing went for it");
    assert_eq!(store.response_bytes(zeta).await.expect("read"), Bytes(10));
}
