//! What keys may, and keys that come in place of others.

use base::Millis;
use store::{DEFAULT_TENANT, KeyInfo, KeyLookup, KeyRotation, KeyScope, NewKey, Store};

use super::{at, open};

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
    let listed = store.keys(Some(DEFAULT_TENANT)).await.expect("listed");
    assert_eq!(listed[0].scope, narrow("a").scope);
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
    assert_eq!(store.keys(None).await.expect("listed").len(), 2);
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
