//! Replies kept under idempotency keys.

use store::{DEFAULT_TENANT, IdempotentReply};

use super::{at, open, second_tenant};

fn reply(request: u8, body: &str) -> IdempotentReply {
    let content_type = "application/json".to_owned();
    IdempotentReply { request: [request; 32], status: 201, content_type, body: body.to_owned() }
}

pub(crate) async fn a_reply_is_its_tenants_alone_is_replaced_and_ends(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let kept = async |tenant, now| store.kept_reply(tenant, "k", now).await.expect("read");
    let keep = async |reply: &IdempotentReply| {
        store.keep_reply((DEFAULT_TENANT, "k"), reply, at(10), 5).await.expect("kept");
    };
    assert_eq!(kept(DEFAULT_TENANT, at(1)).await, None);
    keep(&reply(0xab, "{\"a\":\"ä\"}")).await;
    assert_eq!(kept(DEFAULT_TENANT, at(1)).await, Some(reply(0xab, "{\"a\":\"ä\"}")));
    assert_eq!(kept(zeta, at(1)).await, None);
    keep(&reply(0x0c, "{}")).await;
    assert_eq!(
        open(&url).await.kept_reply(DEFAULT_TENANT, "k", at(9)).await.expect("read"),
        Some(reply(0x0c, "{}"))
    );
    assert_eq!(kept(DEFAULT_TENANT, at(10)).await, None, "past its date");
    assert_eq!(store.expire_replies(at(9)).await.expect("asked"), 0);
    assert_eq!(store.expire_replies(at(10)).await.expect("asked"), 1);
}

pub(crate) async fn of_a_tenants_replies_those_that_last_longest_stay(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    store.keep_reply((zeta, "other"), &reply(1, "{}"), at(1), 2).await.expect("kept");
    for (second, key) in [(10, "a"), (12, "b"), (11, "c"), (13, "d")] {
        store.keep_reply((DEFAULT_TENANT, key), &reply(1, "{}"), at(second), 2).await.expect("kept");
    }
    let is_kept = async |tenant, key| store.kept_reply(tenant, key, at(0)).await.expect("read").is_some();
    let mut left = Vec::new();
    for key in ["a", "b", "c", "d"] {
        left.push(is_kept(DEFAULT_TENANT, key).await);
    }
    assert_eq!(left, [false, true, false, true]);
    assert!(is_kept(zeta, "other").await);
}
