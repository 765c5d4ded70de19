//! What SQL keeps: verifiers of keys, sums of a day, rows of a ticket that begins again.

use store::{DEFAULT_TENANT, Error, KeyLookup, KeyScope, NewKey, Spending, TicketRow};

use super::{at, first_write, lease, open, row, second_tenant, ticket};

pub(crate) async fn a_key_has_a_verifier_that_is_not_the_key(url: String) {
    let store = open(&url).await;
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "laptop",
        expires: Some(at(10)),
        is_operator: false,
        scope: KeyScope::ALL,
    };
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
    assert_eq!(store.keys(None, 9).await.expect("listed")[0].key.last_used, Some(at(9)));
    store.revoke_key(number, at(9)).await.expect("revoked");
    assert!(matches!(store.key_by_id(number, at(9)).await, Ok(KeyLookup::Revoked)));
}

fn new_like(key: &store::KeyInfo) -> NewKey<'_> {
    NewKey {
        tenant: key.tenant,
        name: &key.name,
        expires: key.expires,
        is_operator: false,
        scope: KeyScope::ALL,
    }
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
    let of_day = async |first| {
        let mut sums = store.spendings(3, first..=other).await.expect("read");
        sums.sort_by_key(|(tenant, _)| tenant.0);
        sums
    };
    assert_eq!(of_day(DEFAULT_TENANT).await, [(DEFAULT_TENANT, sum), (other, one)]);
    assert_eq!(of_day(other).await, [(other, one)]);
    // What was set aside and not computed is taken out again, never more than there is.
    let less = Spending { tokens: 12, calls: 1 };
    let left = Spending { tokens: 3, calls: 3 };
    let changed = store.change_spending(DEFAULT_TENANT, 3, Spending { tokens: 0, calls: 1 }, less).await;
    assert_eq!(changed.expect("changed"), left);
    assert_eq!(store.spending(DEFAULT_TENANT, 3).await.expect("read"), left);
    let none = store.change_spending(other, 3, Spending::default(), less).await;
    assert_eq!(none.expect("changed"), Spending::default());
    let nobody = store.add_spending(base::TenantId(77), 3, one).await;
    assert!(matches!(nobody, Err(Error::Missing("tenant"))), "{nobody:?}");
}

pub(crate) async fn limits_come_with_what_was_computed_in_its_day_and_month(url: String) {
    use base::{Money, TokenCount};
    use store::{Computed, TenantLimits, UsageKey, UsageRow, Used};
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    // 2026-03-01 and the days around it.
    let first = 20_513;
    let row = |tenant, day, route: &str, computed| UsageRow {
        key: UsageKey { tenant, day, model: "m".into(), route: route.into() },
        used: Used {
            requests: 1,
            rows: 1,
            prompt: TokenCount(1_000),
            cached: TokenCount(1_000),
            computed: TokenCount(computed),
            output: TokenCount(1),
            cost: Money(2 * computed),
        },
    };
    let rows = [
        row(DEFAULT_TENANT, first - 1, "cells", 1_000_000),
        row(DEFAULT_TENANT, first, "cells", 10),
        row(DEFAULT_TENANT, first + 4, "cells", 20),
        row(DEFAULT_TENANT, first + 4, "chat", 30),
        row(DEFAULT_TENANT, first + 5, "chat", 1_000_000),
        row(other, first + 4, "chat", 7),
    ];
    store.add_usage(first_write("a", &rows)).await.expect("added");
    assert_eq!(store.limits(first + 4).await.expect("read"), []);
    let few = TenantLimits { day_tokens: Some(100), minute_requests: Some(7), ..TenantLimits::default() };
    store.set_limits(DEFAULT_TENANT, &few).await.expect("set");
    let larger = TenantLimits {
        day_tokens: Some(200),
        month_tokens: Some(u64::MAX >> 1),
        day_cost: Some(Money(0)),
        month_cost: Some(Money(u64::MAX >> 1)),
        minute_requests: Some(u32::MAX),
        models: Some(vec!["a \"b\"".to_owned(), "ü".to_owned()]),
    };
    store.set_limits(DEFAULT_TENANT, &larger).await.expect("set again");
    let found = store.limits(first + 4).await.expect("read");
    let sums = Computed { day_tokens: 52, month_tokens: 63, day_cost: Money(100), month_cost: Money(120) };
    assert_eq!(found, [(DEFAULT_TENANT, larger, sums)]);
    store.set_limits(other, &few).await.expect("set");
    let found = store.limits(first).await.expect("read");
    let sums = Computed { day_tokens: 11, month_tokens: 11, day_cost: Money(20), month_cost: Money(20) };
    assert_eq!(found[0].2, sums, "a month begins anew");
    assert_eq!(found[1], (other, few.clone(), Computed::default()), "one that has computed nothing is there");
    store.set_limits(DEFAULT_TENANT, &TenantLimits::default()).await.expect("taken away");
    assert_eq!(store.limits(first).await.expect("read").len(), 1);
    let nobody = store.set_limits(base::TenantId(77), &few).await;
    assert!(matches!(nobody, Err(Error::Missing("tenant"))), "{nobody:?}");
}

pub(crate) async fn what_operators_do_is_written_before_it_is_done(url: String) {
    use store::NewAuditEntry;
    let store = open(&url).await;
    let entry = |subject| NewAuditEntry { actor: "key 1", action: "tenant.create", subject, details: "{}" };
    let made = store.audited(entry("zeta"), at(5), store.create_tenant("zeta", 1.0, at(5))).await;
    made.expect("made");
    let again = store.audited(entry("zeta"), at(6), store.create_tenant("zeta", 1.0, at(6))).await;
    assert!(matches!(again, Err(Error::Taken { .. })));
    let begun = store.begin_audit(entry("eta"), at(7)).await.expect("written");
    let all = store.audit(None, 10).await.expect("read");
    let shown: Vec<_> = all.iter().map(|entry| (&*entry.subject, entry.at, entry.is_done)).collect();
    let expected = [("eta", at(7), None), ("zeta", at(6), Some(false)), ("zeta", at(5), Some(true))];
    assert_eq!(shown, expected, "the newest first, each with its end");
    assert_eq!(all[0].id, begun);
    store.end_audit(begun, true).await.expect("said");
    store.end_audit(begun, false).await.expect("asked");
    let older = store.audit(Some(begun), 1).await.expect("read");
    assert_eq!((older.len(), older[0].is_done), (1, Some(false)));
    assert_eq!(store.audit(None, 1).await.expect("read")[0].is_done, Some(true), "an end is said once");
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
