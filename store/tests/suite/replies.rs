//! Replies kept under idempotency keys.

use base::{Bytes, TenantId};
use store::{
    DEFAULT_TENANT, IdempotentReply, NewTicket, ReplyLimits, Store, TicketKey, TicketMade, TicketState,
};

use super::{at, lease, open, second_tenant, ticket};

fn reply(request: u8, body: &str) -> IdempotentReply {
    let content_type = "application/json".to_owned();
    IdempotentReply { request: [request; 32], status: 201, content_type, body: body.to_owned() }
}

fn limits(replies: u64, bytes: u64) -> ReplyLimits {
    ReplyLimits { replies, bytes: Bytes(bytes) }
}

pub(crate) async fn a_reply_is_its_tenants_alone_is_replaced_and_ends(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let kept = async |tenant, now| store.kept_reply(tenant, "k", now).await.expect("read");
    let keep = async |reply: &IdempotentReply| {
        store.keep_reply((DEFAULT_TENANT, "k"), reply, at(10), limits(5, 99)).await.expect("kept");
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
    store.keep_reply((zeta, "other"), &reply(1, "{}"), at(1), limits(2, 99)).await.expect("kept");
    for (second, key) in [(10, "a"), (12, "b"), (11, "c"), (13, "d")] {
        let place = (DEFAULT_TENANT, key);
        store.keep_reply(place, &reply(1, "{}"), at(second), limits(2, 99)).await.expect("kept");
    }
    let is_kept = async |tenant, key| store.kept_reply(tenant, key, at(0)).await.expect("read").is_some();
    let mut left = Vec::new();
    for key in ["a", "b", "c", "d"] {
        left.push(is_kept(DEFAULT_TENANT, key).await);
    }
    assert_eq!(left, [false, true, false, true]);
    assert!(is_kept(zeta, "other").await);
}

pub(crate) async fn of_a_tenants_replies_those_that_fit_its_bytes_stay(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    store.keep_reply((zeta, "other"), &reply(1, "0123456789"), at(1), limits(9, 10)).await.expect("kept");
    let keep = async |second, key, body: &str| {
        let place = (DEFAULT_TENANT, key);
        store.keep_reply(place, &reply(1, body), at(second), limits(9, 10)).await.expect("asked");
    };
    let left = async || {
        let mut left = String::new();
        for key in ["a", "b", "c", "d"] {
            if store.kept_reply(DEFAULT_TENANT, key, at(0)).await.expect("read").is_some() {
                left += key;
            }
        }
        left
    };
    // Each has four bytes, and two letters.
    for (second, key) in [(10, "a"), (12, "b"), (11, "c")] {
        keep(second, key, "\u{e4}\u{f6}").await;
    }
    assert_eq!(left().await, "bc", "the one that would go first makes room");
    keep(13, "d", "01234567890").await;
    assert_eq!(left().await, "bc", "one that is larger alone is not kept, and takes no other's room");
    keep(13, "b", "012345").await;
    assert_eq!(left().await, "bc", "all ten bytes");
    keep(14, "a", "0123").await;
    assert_eq!(left().await, "ab");
    keep(15, "d", "0123456789").await;
    assert_eq!(left().await, "d");
    // More of them, of one instant, than are looked at together.
    for number in 100..170 {
        let (key, body) = (format!("many {number}"), reply(1, "0"));
        store.keep_reply((DEFAULT_TENANT, key.as_str()), &body, at(16), limits(99, 99)).await.expect("kept");
    }
    keep(17, "c", "01234567").await;
    let mut many = Vec::new();
    for number in 100..170 {
        let key = format!("many {number}");
        if store.kept_reply(DEFAULT_TENANT, &key, at(0)).await.expect("read").is_some() {
            many.push(number);
        }
    }
    assert_eq!((left().await.as_str(), many), ("c", vec![100, 101]), "the first by name stay longest");
    assert!(store.kept_reply(zeta, "other", at(0)).await.expect("read").is_some(), "another tenant's stays");
}

/// How many replies a tenant has and their bytes: as they are, and as the sums beside them say.
async fn counted(database: &sqlx::AnyPool, tenant: TenantId) -> [(i64, i64); 2] {
    let are = "SELECT COUNT(*), CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) FROM idempotent_replies \
        WHERE tenant = $1";
    let told = "SELECT CAST(COALESCE(SUM(replies), 0) AS BIGINT), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) \
        FROM idempotent_reply_sums WHERE tenant = $1";
    let mut counted = [(0, 0); 2];
    for (count, sql) in counted.iter_mut().zip([are, told]) {
        *count = sqlx::query_as(sql).bind(tenant.0 as i64).fetch_one(database).await.expect("read");
    }
    counted
}

pub(crate) async fn what_a_tenant_has_of_replies_is_counted_as_it_comes_and_goes(url: String) {
    let (store, other) = (open(&url).await, open(&url).await);
    let zeta = second_tenant(&store).await;
    let database = sqlx::AnyPool::connect(&url).await.expect("connects");
    let keep = async |store: &Store, (tenant, key), body: &str, second| {
        store.keep_reply((tenant, key), &reply(1, body), at(second), limits(3, 20)).await.expect("kept");
        let [are, told] = counted(&database, tenant).await;
        assert_eq!(told, are, "{key}");
        told
    };
    assert_eq!(keep(&store, (zeta, "other"), "01", 9).await, (1, 2));
    for (second, key, body, expected) in [
        (10, "a", "\u{e4}", (1, 2)),
        (11, "b", "0123456789", (2, 12)),
        (11, "b", "01", (2, 4)),
        (12, "c", "012345", (3, 10)),
        (13, "d", "0", (3, 9)),
        (14, "e", "0123456789012345", (2, 17)),
        (13, "d", "012", (2, 19)),
    ] {
        for store in [&other, &store] {
            assert_eq!(keep(store, (DEFAULT_TENANT, key), body, second).await, expected, "{key}, and again");
        }
    }
    assert_eq!(store.expire_replies(at(13)).await.expect("deleted"), 2, "of two tenants");
    assert_eq!(counted(&database, DEFAULT_TENANT).await, [(1, 16); 2]);
    assert_eq!(counted(&database, zeta).await, [(0, 0); 2]);
    assert_eq!(store.expire_replies(at(13)).await.expect("asked"), 0);
    // As a program left it that did not know the sums.
    sqlx::query("DELETE FROM idempotent_reply_sums").execute(&database).await.expect("deleted");
    assert_eq!(keep(&store, (DEFAULT_TENANT, "f"), "0", 15).await, (2, 17));
    // Who sums them anew finds two, and room for another.
    let more = "UPDATE idempotent_reply_sums SET replies = 3";
    sqlx::query(more).execute(&database).await.expect("changed");
    let place = (DEFAULT_TENANT, "g");
    store.keep_reply(place, &reply(1, "0"), at(16), limits(3, 20)).await.expect("kept");
    assert_eq!(counted(&database, DEFAULT_TENANT).await, [(2, 2), (3, 2)]);
    assert_eq!(store.expire_replies(at(15)).await.expect("deleted"), 1);
    assert_eq!(counted(&database, DEFAULT_TENANT).await, [(1, 1); 2], "wrong sums are mended then");
}

pub(crate) async fn a_ticket_is_found_by_its_tenants_key_while_it_may_be_shown(url: String) {
    let (store, other) = (open(&url).await, open(&url).await);
    let zeta = second_tenant(&store).await;
    let lease = lease("a", 60);
    let make = async |id, (tenant, name, request), created| {
        let key = Some(TicketKey { name, request: [request; 32] });
        let new = NewTicket { key, ..ticket(id, tenant, &lease) };
        let made = store.create_ticket_within(new, &[], Bytes(1_000), at(created)).await.expect("asked");
        assert_eq!(made, TicketMade::Yes);
    };
    let found = async |tenant, key, now| other.ticket_of_key(tenant, key, at(now)).await.expect("read");
    assert_eq!(found(DEFAULT_TENANT, "k", 0).await, None);
    store.create_ticket(ticket("rq-0", DEFAULT_TENANT, &lease), at(0)).await.expect("made");
    make("rq-2", (DEFAULT_TENANT, "k", 0xa2), 2).await;
    make("rq-3", (zeta, "k", 3), 1).await;
    make("rq-4", (DEFAULT_TENANT, "other", 4), 1).await;
    assert_eq!(found(DEFAULT_TENANT, "k", 3).await, Some(("rq-2".to_owned(), [0xa2; 32])));
    assert_eq!(found(zeta, "k", 3).await, Some(("rq-3".to_owned(), [3; 32])));
    make("rq-1", (DEFAULT_TENANT, "k", 0xa2), 2).await;
    assert_eq!(
        found(DEFAULT_TENANT, "k", 3).await.map(|(id, _)| id).as_deref(),
        Some("rq-1"),
        "the first of two"
    );
    store.delete_ticket(DEFAULT_TENANT, "rq-1").await.expect("deleted");
    assert!(store.finish_ticket("rq-2", None, TicketState::Completed, None).await.expect("ended"));
    assert!(found(DEFAULT_TENANT, "k", 999).await.is_some(), "one that has ended");
    assert_eq!(found(DEFAULT_TENANT, "k", 1_000).await, None, "past its date");
    assert!(store.finish_ticket("rq-3", None, TicketState::Failed, None).await.expect("ended"));
    assert_eq!(found(zeta, "k", 3).await, None, "what failed may be tried again");
}
