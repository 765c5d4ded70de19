//! What keys may, and keys that come in place of others.

use base::{Millis, TenantId};
use store::{
    DEFAULT_TENANT, KeyInfo, KeyLookup, KeyRotation, KeyScope, ListedKey, NameSearch, NewKey, Store,
};

use super::{at, open, second_tenant};

/// A key of one table that only looks.
fn narrow(name: &str) -> NewKey<'_> {
    let list = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let scope =
        KeyScope { is_read_only: true, routes: list(&["sql", "cells"]), tables: list(&["a \"b\"", "ü"]) };
    NewKey { tenant: DEFAULT_TENANT, name, expires: None, is_operator: false, scope }
}

async fn valid(store: &Store, presented: &str, now: u64) -> Option<KeyInfo> {
    match store.find_key(presented, at(now)).await.expect("asked") {
        KeyLookup::Valid { key, .. } => Some(key),
        _ => None,
    }
}

pub(crate) async fn a_key_keeps_its_scope_and_one_without_may_all(url: String) {
    let store = open(&url).await;
    let made = store.create_key(narrow("a"), at(1)).await.expect("made");
    let nothing = KeyScope { routes: Some(Vec::new()), ..KeyScope::ALL };
    let none = store.create_key(NewKey { scope: nothing.clone(), ..narrow("b") }, at(1)).await.expect("made");
    let all = store.create_key(NewKey { scope: KeyScope::ALL, ..narrow("c") }, at(1)).await.expect("made");
    drop(store);
    let store = open(&url).await;
    for (key, expected) in [(made, narrow("a").scope), (none, nothing), (all, KeyScope::ALL)] {
        assert_eq!(key.info.scope, expected);
        assert_eq!(valid(&store, &key.plaintext, 2).await.expect("it works").scope, expected);
        let KeyLookup::Valid { key: by_id, .. } = store.key_by_id(key.info.id, at(2)).await.expect("asked")
        else {
            panic!("it works")
        };
        assert_eq!(by_id.scope, expected);
    }
    let listed = store.keys(None, 9).await.expect("listed");
    assert_eq!(listed[0].key.scope, narrow("a").scope);
}

pub(crate) async fn keys_and_tenants_are_read_page_by_page_from_their_end(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    for (number, tenant) in [(1, DEFAULT_TENANT), (2, zeta), (3, DEFAULT_TENANT), (4, zeta), (5, zeta)] {
        let name = format!("key {number}");
        store.create_key(NewKey { tenant, ..narrow(&name) }, at(number)).await.expect("made");
    }
    store.revoke_key(4, at(9)).await.expect("revoked");
    let keys = async |before, most| {
        let page = store.keys(before, most).await.expect("listed");
        page.into_iter().map(|listed| (listed.key.id, listed.tenant_name)).collect::<Vec<_>>()
    };
    let key = |id: u64, tenant: &str| (id, tenant.to_owned());
    assert_eq!(keys(None, 2).await, [key(4, "zeta"), key(5, "zeta")], "revoked ones too");
    assert_eq!(keys(Some(4), 2).await, [key(2, "zeta"), key(3, "default")]);
    assert_eq!(keys(Some(2), 2).await, [key(1, "default")]);
    assert!(keys(Some(1), 2).await.is_empty() && keys(Some(0), 2).await.is_empty());
    assert_eq!(keys(Some(u64::MAX), 1).await, [key(5, "zeta")]);
    assert_eq!(keys(None, 9).await.len(), 5);
    let keys_of = async |tenant, before, most| {
        let page = store.keys_of(tenant, before, most).await.expect("listed");
        page.into_iter().map(|listed| (listed.key.id, listed.tenant_name)).collect::<Vec<_>>()
    };
    assert_eq!(keys_of(zeta, None, 2).await, [key(4, "zeta"), key(5, "zeta")], "revoked ones too");
    assert_eq!(keys_of(zeta, Some(4), 2).await, [key(2, "zeta")]);
    assert_eq!(keys_of(DEFAULT_TENANT, None, 9).await, [key(1, "default"), key(3, "default")]);
    assert!(keys_of(TenantId(77), None, 9).await.is_empty());
    let more = store.create_tenant("more", 1.0, at(0)).await.expect("made").id;
    let tenants = async |before: Option<TenantId>, most| {
        let page = store.tenants_before(before.map(|tenant| tenant.0), most).await.expect("listed");
        page.into_iter().map(|tenant| tenant.id).collect::<Vec<_>>()
    };
    assert_eq!(tenants(None, 2).await, [zeta, more]);
    assert_eq!(tenants(Some(zeta), 2).await, [DEFAULT_TENANT]);
    assert!(tenants(Some(DEFAULT_TENANT), 2).await.is_empty());
    assert_eq!(tenants(None, 9).await, [DEFAULT_TENANT, zeta, more]);
    let found = store.tenant(zeta).await.expect("asked").expect("there");
    assert_eq!((found.id, found.name.as_str(), found.weight), (zeta, "zeta", 2.0));
    assert_eq!(store.tenant(TenantId(77)).await.expect("asked"), None);
}

pub(crate) async fn tenants_and_keys_are_found_by_the_beginnings_of_their_names(url: String) {
    let store = open(&url).await;
    // Letters of several bytes, those that a pattern would take for others, and both cases.
    for name in ["acme", "acme%", "Acme two", "žába", "žabka", "acme_1", "acm", "x acme"] {
        let tenant = store.create_tenant(name, 1.0, at(0)).await.expect("made").id;
        store.create_key(NewKey { tenant, ..narrow("desk") }, at(1)).await.expect("made");
    }
    store.create_key(narrow("acme's"), at(1)).await.expect("made");
    let search = |prefix, before| NameSearch { prefix, before, searched_max: 100, found_max: 100 };
    let tenants = async |search: NameSearch<'_>| {
        let found = store.tenants_begun(search).await.expect("asked");
        (found.entries.into_iter().map(|tenant| tenant.name).collect::<Vec<_>>(), found.unsearched)
    };
    let keys = async |search: NameSearch<'_>| {
        let found = store.keys_begun(search).await.expect("asked");
        let named = |listed: ListedKey| format!("{} of {}", listed.key.name, listed.tenant_name);
        (found.entries.into_iter().map(named).collect::<Vec<_>>(), found.unsearched)
    };
    for (prefix, names) in [
        ("acm", &["acme", "acme%", "acme_1"][..]),
        ("acme", &["acme%", "acme_1"]),
        ("acme%", &[]),
        ("acme_", &["acme_1"]),
        ("ž", &["žába", "žabka"]),
        ("žá", &["žába"]),
        ("A", &["Acme two"]),
        ("cme", &[]),
        ("acme and many letters more", &[]),
    ] {
        assert_eq!(tenants(search(prefix, None)).await.0, names, "{prefix}");
    }
    assert_eq!(tenants(search("", None)).await.0.len(), 9, "all begin with nothing");
    assert_eq!(keys(search("žá", None)).await, (vec!["desk of žába".to_owned()], None));
    let expected = ["desk of acme", "desk of acme%", "desk of acme_1", "acme's of default"];
    assert_eq!(keys(search("acme", None)).await.0, expected, "by their own names too");
    assert_eq!(keys(search("desk", None)).await.0.len(), 8);

    // The default tenant is the first, so these have the numbers from 2 on.
    assert_eq!(tenants(search("acm", Some(7))).await.0, ["acme", "acme%"]);
    let two = NameSearch { found_max: 2, ..search("acm", None) };
    assert_eq!(tenants(two).await.0, ["acme%", "acme_1"], "the last");
    let near = NameSearch { searched_max: 3, ..search("acm", None) };
    assert_eq!(tenants(near).await, (vec!["acme_1".to_owned()], Some(6)), "no more than three are looked at");
    let rest = NameSearch { before: Some(7), searched_max: 6, ..near };
    assert_eq!(tenants(rest).await, (vec!["acme".to_owned(), "acme%".to_owned()], None));
    let near = NameSearch { searched_max: 3, ..search("acme", None) };
    assert_eq!(keys(near).await, (vec!["acme's of default".to_owned()], Some(6)));
    let older = NameSearch { before: Some(7), ..near };
    assert_eq!(keys(older).await, (vec!["desk of acme_1".to_owned()], Some(3)));
}

pub(crate) async fn keys_that_work_are_counted_by_tenant(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    for (tenant, expires) in
        [(DEFAULT_TENANT, None), (DEFAULT_TENANT, Some(5)), (zeta, Some(6)), (zeta, None)]
    {
        let new = NewKey { tenant, expires: expires.map(at), ..narrow("n") };
        store.create_key(new, at(1)).await.expect("made");
    }
    store.revoke_key(4, at(2)).await.expect("revoked");
    let count = async |last, now| {
        let counted = store.working_keys(DEFAULT_TENANT..=last, at(now)).await.expect("counted");
        let mut counted: Vec<_> = counted.into_iter().map(|(tenant, keys)| (tenant.0, keys)).collect();
        counted.sort_unstable();
        counted
    };
    let everyone = TenantId(u64::MAX);
    assert_eq!(count(everyone, 4).await, [(DEFAULT_TENANT.0, 2), (zeta.0, 1)]);
    assert_eq!(count(everyone, 5).await, [(DEFAULT_TENANT.0, 1), (zeta.0, 1)]);
    assert_eq!(count(everyone, 6).await, [(DEFAULT_TENANT.0, 1)]);
    assert_eq!(count(DEFAULT_TENANT, 4).await, [(DEFAULT_TENANT.0, 2)]);
}

pub(crate) async fn a_rotated_key_lives_beside_its_successor_for_the_overlap(url: String) {
    let store = open(&url).await;
    let old = store.create_key(narrow("desk"), at(1)).await.expect("made");
    let KeyRotation::Done(new) = store.rotate_key(old.info.id, Millis(10_000), at(100)).await.expect("asked")
    else {
        panic!("it works")
    };
    assert_ne!(new.plaintext, old.plaintext);
    let found = valid(&store, &new.plaintext, 101).await.expect("it works");
    assert_eq!((found.name.as_str(), &found.scope), ("desk", &old.info.scope));
    assert_eq!((found.rotated_from, found.expires), (Some(old.info.id), None));
    assert_eq!(valid(&store, &old.plaintext, 109).await.expect("it still works").expires, Some(at(110)));
    assert!(matches!(store.find_key(&old.plaintext, at(110)).await, Ok(KeyLookup::Expired)), "by itself");
    assert!(valid(&store, &new.plaintext, 1_000_000).await.is_some());
    let again = store.rotate_key(old.info.id, Millis(1), at(105)).await.expect("asked");
    assert!(matches!(again, KeyRotation::Before(id) if id == new.info.id), "once: {again:?}");
    let gone = store.rotate_key(old.info.id, Millis(1), at(110)).await.expect("asked");
    assert!(matches!(gone, KeyRotation::NoSuchKey), "it has ended: {gone:?}");
    assert!(matches!(store.rotate_key(99, Millis(1), at(1)).await, Ok(KeyRotation::NoSuchKey)));
    assert_eq!(store.keys(None, 9).await.expect("listed").len(), 2);
}

pub(crate) async fn a_rotation_makes_no_key_live_longer_than_it_was_given(url: String) {
    let store = open(&url).await;
    let old = NewKey { expires: Some(at(61)), ..narrow("short") };
    let old = store.create_key(old, at(1)).await.expect("made");
    let rotated = store.rotate_key(old.info.id, Millis(86_400_000), at(50)).await.expect("asked");
    let KeyRotation::Done(new) = rotated else { panic!("it works: {rotated:?}") };
    assert_eq!(new.info.expires, Some(at(110)), "a minute, as the old one");
    assert!(matches!(store.find_key(&old.plaintext, at(61)).await, Ok(KeyLookup::Expired)));
    store.revoke_key(new.info.id, at(51)).await.expect("revoked");
    let again = store.rotate_key(old.info.id, Millis(5_000), at(52)).await.expect("asked");
    assert!(matches!(again, KeyRotation::Done(_)), "the successor is gone: {again:?}");
    assert!(matches!(store.find_key(&old.plaintext, at(57)).await, Ok(KeyLookup::Expired)));
}
