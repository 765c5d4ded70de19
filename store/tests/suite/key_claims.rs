//! Claims of idempotency keys.

use base::{Bytes, Millis, TenantId};
use store::{
    DEFAULT_TENANT, IdempotentReply, KeyClaim, KeyClaimed, NewTicket, ReplyLimits, Store, TicketKey,
    TicketMade, TicketState,
};
use tokio::task::JoinSet;

use super::{at, lease, open, second_tenant, ticket};

const GRANTED: KeyClaimed = KeyClaimed::Granted { is_answered: false };
const ANSWERED: KeyClaimed = KeyClaimed::Granted { is_answered: true };
const LONG: Millis = Millis(600_000);
/// Over as soon as it begins.
const NONE: Millis = Millis(0);

fn claim((tenant, name): (TenantId, &str), request: u8, node: &str) -> KeyClaim {
    let (name, node, token) = (name.to_owned(), node.to_owned(), KeyClaim::token().expect("random bytes"));
    KeyClaim { tenant, name, request: [request; 32], node, token }
}

async fn take(store: &Store, claim: &KeyClaim, span: Millis) -> KeyClaimed {
    store.claim_key(claim, span, at(1)).await.expect("asked")
}

pub(crate) async fn a_key_is_one_gateways_until_it_is_given_back_or_its_time_is_over(url: String) {
    let (store, other) = (open(&url).await, open(&url).await);
    let zeta = second_tenant(&store).await;
    let key = (DEFAULT_TENANT, "k");
    let first = claim(key, 1, "a");
    assert_eq!(take(&store, &first, LONG).await, GRANTED);
    assert_eq!(take(&other, &claim(key, 1, "b"), LONG).await, KeyClaimed::Elsewhere);
    assert_eq!(take(&other, &claim(key, 2, "b"), LONG).await, KeyClaimed::Reused);
    assert_eq!(take(&other, &claim((zeta, "k"), 2, "b"), LONG).await, GRANTED, "another tenant's");
    assert_eq!(take(&other, &claim((DEFAULT_TENANT, "l"), 2, "b"), LONG).await, GRANTED, "another key");
    // Another try of the same gateway, which was killed meanwhile: what the first gives back is not this one's.
    let second = claim(key, 1, "a");
    assert_eq!(take(&store, &second, LONG).await, GRANTED);
    store.end_key_claim(&first).await.expect("asked");
    assert_eq!(take(&other, &claim(key, 1, "b"), LONG).await, KeyClaimed::Elsewhere);
    store.end_key_claim(&second).await.expect("asked");
    assert_eq!(take(&other, &claim(key, 1, "b"), NONE).await, GRANTED);
    assert_eq!(take(&store, &claim(key, 2, "a"), LONG).await, GRANTED, "the other's time is over");
    let orphan = store.claim_key(&claim((TenantId(77), "k"), 1, "a"), LONG, at(1)).await;
    assert!(matches!(orphan, Err(store::Error::Missing("tenant"))), "{orphan:?}");
}

pub(crate) async fn who_gets_a_key_is_told_of_what_it_was_answered_with(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let content_type = "application/json".to_owned();
    let reply = IdempotentReply { request: [1; 32], status: 200, content_type, body: "{}".into() };
    let limits = ReplyLimits { replies: 9, bytes: Bytes(99) };
    let keep = async |key, until| store.keep_reply(key, &reply, at(until), limits).await.expect("kept");
    keep((DEFAULT_TENANT, "over"), 1).await;
    keep((zeta, "k"), 9).await;
    for name in ["over", "k"] {
        assert_eq!(take(&store, &claim((DEFAULT_TENANT, name), 1, "a"), LONG).await, GRANTED, "{name}");
    }
    keep((DEFAULT_TENANT, "k"), 9).await;
    assert_eq!(take(&store, &claim((DEFAULT_TENANT, "k"), 1, "a"), LONG).await, ANSWERED);
    let held = lease("a", 60);
    let make = async |id, name| {
        let key = Some(TicketKey { name, request: [1; 32] });
        let new = NewTicket { key, ..ticket(id, DEFAULT_TENANT, &held) };
        let made = store.create_ticket_within(new, &[], Bytes(1_000), at(0)).await.expect("asked");
        assert_eq!(made, TicketMade::Yes);
    };
    make("rq-1", "t").await;
    assert_eq!(take(&store, &claim((DEFAULT_TENANT, "t"), 1, "a"), LONG).await, ANSWERED);
    assert!(store.finish_ticket("rq-1", None, TicketState::Failed, None).await.expect("ended"));
    let again = take(&store, &claim((DEFAULT_TENANT, "t"), 1, "a"), LONG).await;
    assert_eq!(again, GRANTED, "what failed may be tried again");
}

pub(crate) async fn claims_are_renewed_by_their_tokens_and_all_of_a_gateway_end_at_once(url: String) {
    let (store, other) = (open(&url).await, open(&url).await);
    let claims: Vec<KeyClaim> =
        (0..510).map(|number| claim((DEFAULT_TENANT, &format!("k{number}")), 1, "a")).collect();
    for claim in &claims {
        assert_eq!(take(&store, claim, NONE).await, GRANTED);
    }
    let (gone, kept) = claims.split_at(2);
    let lost = claim((DEFAULT_TENANT, "k0"), 1, "b");
    assert_eq!(take(&other, &lost, LONG).await, GRANTED, "its time was over");
    let mut tokens: Vec<String> = kept.iter().map(|claim| claim.token.clone()).collect();
    tokens.push(gone[0].token.clone());
    store.renew_key_claims("a", &tokens, LONG).await.expect("renewed");
    for claimed in [&kept[0], &kept[507]] {
        let again = claim((DEFAULT_TENANT, &claimed.name), 1, "b");
        assert_eq!(take(&other, &again, LONG).await, KeyClaimed::Elsewhere);
    }
    let again = take(&store, &claim((DEFAULT_TENANT, "k0"), 1, "a"), LONG).await;
    assert_eq!(again, KeyClaimed::Elsewhere, "it stays who took it");
    assert_eq!(store.expire_key_claims().await.expect("deleted"), 1, "the one that nobody renewed");
    store.end_key_claims_of("a").await.expect("ended");
    assert_eq!(take(&other, &claim((DEFAULT_TENANT, &kept[7].name), 1, "b"), LONG).await, GRANTED);
    assert_eq!(take(&store, &claim((DEFAULT_TENANT, "k0"), 1, "a"), LONG).await, KeyClaimed::Elsewhere);
}

pub(crate) async fn of_gateways_that_claim_one_key_at_once_one_gets_it(url: String) {
    let stores = [open(&url).await, open(&url).await];
    for round in 0..20 {
        let name = format!("k{round}");
        let mut all = JoinSet::new();
        for number in 0..8 {
            let claim = claim((DEFAULT_TENANT, &name), 1, &format!("gateway {number}"));
            let store = stores[number % 2].clone();
            all.spawn(async move { take(&store, &claim, LONG).await });
        }
        let ours = all.join_all().await.into_iter().filter(|claimed| *claimed == GRANTED).count();
        assert_eq!(ours, 1);
    }
}
