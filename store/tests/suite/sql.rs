//! What SQL keeps: verifiers of keys, sums of a day, rows of a ticket that begins again.

use store::{DEFAULT_TENANT, Error, KeyLookup, NewKey, Spending, TicketRow};

use super::{at, lease, open, row, second_tenant, ticket};

pub(crate) async fn a_key_has_a_verifier_that_is_not_the_key(url: String) {
    let store = open(&url).await;
    let new = NewKey { tenant: DEFAULT_TENANT, name: "laptop", expires: Some(at(10)), is_operator: false };
    let created = store.create_key(new, at(0)).await.expect("created");
    let again = store.create_key(new_like(&created.info), at(0)).await.expect("created");
    let verifier = created.info.verifier.clone().expect("a verifier");
    assert!(verifier.starts_with("SCRAM-SHA-256$4096:"), "{verifier}");
    assert!(!verifier.contains(&created.plaintext));
    assert_ne!(again.info.verifier, created.info.verifier);

    let number = created.info.id;
    let KeyLookup::Valid { key, tenant_name, .. } = store.key_by_id(number, at(9)).await.expect("asked")
    else {
        panic!("the key works")
    };
    assert_eq!((key.verifier, tenant_name.as_str(), key.last_used), (Some(verifier), "default", None));
    assert!(matches!(store.key_by_id(number, at(10)).await, Ok(KeyLookup::Expired)));
    assert!(matches!(store.key_by_id(number + 9, at(9)).await, Ok(KeyLookup::Unknown)));
    store.use_key(&created.info, at(9)).await.expect("noted");
    assert_eq!(store.keys(None).await.expect("listed")[0].last_used, Some(at(9)));
    store.revoke_key(number, at(9)).await.expect("revoked");
    assert!(matches!(store.key_by_id(number, at(9)).await, Ok(KeyLookup::Revoked)));
}

fn new_like(key: &store::KeyInfo) -> NewKey<'_> {
    NewKey { tenant: key.tenant, name: &key.name, expires: key.expires, is_operator: false }
}

pub(crate) async fn what_sql_spends_adds_up_by_tenant_and_day(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    let one = Spending { tokens: 10, calls: 1 };
    assert_eq!(store.spending(DEFAULT_TENANT, 3).await.expect("read"), Spending::default());
    assert_eq!(store.add_spending(DEFAULT_TENANT, 3, one).await.expect("added"), one);
    let sum = store.add_spending(DEFAULT_TENANT, 3, Spending { tokens: 5, calls: 2 }).await.expect("added");
    assert_eq!(sum, Spending { tokens: 15, calls: 3 });
    assert_eq!(store.add_spending(DEFAULT_TENANT, 4, one).await.expect("added"), one);
    assert_eq!(store.add_spending(other, 3, one).await.expect("added"), one);
    assert_eq!(store.spending(DEFAULT_TENANT, 3).await.expect("read"), sum);
    let nobody = store.add_spending(base::TenantId(77), 3, one).await;
    assert!(matches!(nobody, Err(Error::Missing("tenant"))), "{nobody:?}");
}

pub(crate) async fn a_ticket_that_begins_again_has_no_rows(url: String) {
    let store = open(&url).await;
    let mine = lease("a", 100);
    store.create_ticket(ticket("sq-1", DEFAULT_TENANT, &mine), at(1)).await.expect("made");
    store.append_rows("sq-1", "a", &[row(0, "old"), row(1, "old")]).await.expect("appended");
    assert!(matches!(store.clear_rows("sq-1", "b").await, Err(Error::Missing("lease"))));
    store.clear_rows("sq-1", "a").await.expect("cleared");
    store.append_rows("sq-1", "a", &[row(0, "new")]).await.expect("appended");
    let kept = store.ticket(DEFAULT_TENANT, "sq-1", at(2)).await.expect("read").expect("there");
    assert_eq!(kept.rows, [TicketRow { row: 0, result: "new".into(), failed: false }]);
}
