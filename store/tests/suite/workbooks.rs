//! Workbooks, their versions and their links; sign-in tokens.

use base::{Bytes, Millis, TenantId};
use store::{
    CreatedKey, DEFAULT_TENANT, Error, KeyLookup, KeyScope, NewKey, SignIn, Store, Workbook, WorkbookDeleted,
    WorkbookDraft, WorkbookLimits, WorkbookSaved, WorkbookUsage,
};

use super::{at, open, second_tenant};

const LIMITS: WorkbookLimits =
    WorkbookLimits { workbooks: 3, bytes: Bytes(100), versions: 3, version_span: Millis(60_000) };

/// A save at a second.
async fn save(
    store: &Store,
    tenant: TenantId,
    (id, content): (&str, &str),
    base: u64,
    now: u64,
) -> Result<WorkbookSaved, Error> {
    let draft = WorkbookDraft { id, name: "Sales", content, base, closes: false };
    store.save_workbook(tenant, draft, LIMITS, at(now)).await
}

/// A save that is kept.
pub(crate) async fn kept(store: &Store, (id, content): (&str, &str), base: u64, now: u64) -> Workbook {
    match save(store, DEFAULT_TENANT, (id, content), base, now).await {
        Ok(WorkbookSaved::Yes(workbook)) => workbook,
        other => panic!("{other:?}"),
    }
}

async fn content(store: &Store, id: &str, version: Option<u64>) -> Option<String> {
    let found = store.workbook_content(DEFAULT_TENANT, id, version).await.expect("read");
    found.map(|(_, content)| content)
}

async fn delete(store: &Store, id: &str, version: Option<u64>) -> WorkbookDeleted {
    store.delete_workbook(DEFAULT_TENANT, (id, version), at(4)).await.expect("answered")
}

/// The numbers of the versions that are kept.
async fn versions(store: &Store, id: &str) -> Vec<u64> {
    let found = store.workbook_versions(DEFAULT_TENANT, id).await.expect("read");
    found.into_iter().map(|version| version.version).collect()
}

pub(crate) async fn a_save_stands_on_the_version_it_names_or_is_refused(url: String) {
    let store = open(&url).await;
    let first = kept(&store, ("a", "{\"\u{e9}\":1}"), 0, 1).await;
    assert_eq!((first.version, first.bytes, first.created), (1, Bytes(13), at(1)));
    let second = kept(&store, ("a", "{}"), 1, 2).await;
    assert_eq!((second.version, second.created, second.updated), (2, at(1), at(2)));
    for base in [0, 1, 3] {
        let stale = save(&store, DEFAULT_TENANT, ("a", "{\"lost\":1}"), base, 3).await.expect("answered");
        assert_eq!(stale, WorkbookSaved::Stale(second.clone()), "on {base}");
    }
    let gone = save(&store, DEFAULT_TENANT, ("b", "{}"), 4, 3).await.expect("answered");
    assert_eq!(gone, WorkbookSaved::Gone);
    drop(store);
    let store = open(&url).await;
    assert_eq!(store.workbooks(DEFAULT_TENANT).await.expect("listed"), std::slice::from_ref(&second));
    assert_eq!(store.workbook(DEFAULT_TENANT, "a").await.expect("read"), Some(second.clone()));
    assert_eq!(content(&store, "a", None).await.as_deref(), Some("{}"));
    assert_eq!(delete(&store, "a", Some(1)).await, WorkbookDeleted::Stale(second), "it was saved since");
    assert_eq!(delete(&store, "a", Some(2)).await, WorkbookDeleted::Yes);
    assert_eq!(delete(&store, "a", None).await, WorkbookDeleted::Gone);
    assert_eq!(content(&store, "a", None).await, None);
}

pub(crate) async fn a_workbook_made_anew_is_none_of_the_versions_of_the_deleted_one(url: String) {
    let store = open(&url).await;
    kept(&store, ("a", "{}"), 0, 1).await;
    let second = kept(&store, ("a", "{}"), 1, 2).await;
    assert_eq!(delete(&store, "a", None).await, WorkbookDeleted::Yes);
    let gone = save(&store, DEFAULT_TENANT, ("a", "{}"), 2, 4).await.expect("answered");
    assert_eq!(gone, WorkbookSaved::Gone);
    let anew = kept(&store, ("a", "{\"new\":1}"), 0, 5).await;
    assert_eq!((anew.version, anew.created), (second.version + 1, at(5)));
    for base in [1, 2] {
        let stale = save(&store, DEFAULT_TENANT, ("a", "{\"lost\":1}"), base, 6).await.expect("answered");
        assert_eq!(stale, WorkbookSaved::Stale(anew.clone()), "on {base}");
    }
    assert_eq!(delete(&store, "a", None).await, WorkbookDeleted::Yes, "again");
    assert_eq!(kept(&store, ("a", "{}"), 0, 8).await.version, 4);
    let other = second_tenant(&store).await;
    let theirs = save(&store, other, ("a", "{}"), 0, 9).await.expect("answered");
    assert!(matches!(theirs, WorkbookSaved::Yes(Workbook { version: 1, .. })), "{theirs:?}");
}

pub(crate) async fn of_two_saves_at_once_one_is_kept(url: String) {
    let store = open(&url).await;
    kept(&store, ("a", "{}"), 0, 1).await;
    let (one, other) = tokio::join!(
        save(&store, DEFAULT_TENANT, ("a", "{\"one\":1}"), 1, 2),
        save(&store, DEFAULT_TENANT, ("a", "{\"other\":1}"), 1, 2)
    );
    let outcomes = [one.expect("answered"), other.expect("answered")];
    let is_kept = |saved: &&WorkbookSaved| matches!(saved, WorkbookSaved::Yes(_));
    assert_eq!(outcomes.iter().filter(is_kept).count(), 1, "{outcomes:?}");
    assert_eq!(store.workbooks(DEFAULT_TENANT).await.expect("listed")[0].version, 2);
}

pub(crate) async fn saves_of_a_stretch_are_one_version_and_old_ones_go(url: String) {
    let store = open(&url).await;
    kept(&store, ("a", "{\"v\":1}"), 0, 0).await;
    kept(&store, ("a", "{\"v\":2}"), 1, 59).await;
    assert_eq!(versions(&store, "a").await, [2], "the stretch is not over");
    kept(&store, ("a", "{\"v\":3}"), 2, 60).await;
    kept(&store, ("a", "{\"v\":4}"), 3, 119).await;
    assert_eq!(versions(&store, "a").await, [4, 2]);
    kept(&store, ("a", "{\"v\":5}"), 4, 200).await;
    kept(&store, ("a", "{\"v\":6}"), 5, 300).await;
    assert_eq!(versions(&store, "a").await, [6, 5, 4], "three are kept");
    assert_eq!(content(&store, "a", Some(4)).await.as_deref(), Some("{\"v\":4}"));
    assert_eq!(content(&store, "a", Some(3)).await, None);
    let found = store.workbook_versions(DEFAULT_TENANT, "a").await.expect("read");
    assert_eq!((found[2].saved, found[2].name.as_str(), found[2].bytes), (at(119), "Sales", Bytes(12)));
}

pub(crate) async fn a_closed_version_is_not_written_over(url: String) {
    let store = open(&url).await;
    kept(&store, ("a", "{\"v\":1}"), 0, 0).await;
    let draft = WorkbookDraft { id: "a", name: "Sales", content: "{\"v\":2}", base: 1, closes: true };
    let closed = store.save_workbook(DEFAULT_TENANT, draft, LIMITS, at(1)).await.expect("answered");
    assert!(matches!(closed, WorkbookSaved::Yes(_)), "{closed:?}");
    kept(&store, ("a", "{\"v\":3}"), 2, 2).await;
    kept(&store, ("a", "{\"v\":4}"), 3, 3).await;
    assert_eq!(versions(&store, "a").await, [4, 2]);
    assert_eq!(content(&store, "a", Some(2)).await.as_deref(), Some("{\"v\":2}"));
}

pub(crate) async fn a_tenants_workbooks_stay_within_its_quota(url: String) {
    let store = open(&url).await;
    // 5 bytes of name each.
    let text = |bytes: usize| "x".repeat(bytes - 5);
    kept(&store, ("a", &text(30)), 0, 0).await;
    kept(&store, ("a", &text(30)), 1, 100).await;
    kept(&store, ("b", &text(40)), 0, 100).await;
    assert_eq!(versions(&store, "a").await, [2, 1]);
    kept(&store, ("a", &text(31)), 2, 200).await;
    assert_eq!(
        versions(&store, "a").await,
        [3],
        "older versions of the same workbook make room, the oldest first"
    );
    let full = save(&store, DEFAULT_TENANT, ("a", &text(61)), 3, 300).await;
    assert!(matches!(full, Err(Error::Full { what: "bytes in workbooks", limit: 100 })), "{full:?}");
    assert_eq!(content(&store, "a", None).await, Some(text(31)), "what is there stays");
    kept(&store, ("a", &text(60)), 3, 300).await;
    let other = second_tenant(&store).await;
    assert!(matches!(save(&store, other, ("a", &text(80)), 0, 1).await, Ok(WorkbookSaved::Yes(_))));
    let usage = store.workbook_usage(DEFAULT_TENANT..=other).await.expect("read");
    let of = |tenant, workbooks, bytes| WorkbookUsage { tenant, workbooks, bytes: Bytes(bytes) };
    assert_eq!(usage, [of(DEFAULT_TENANT, 2, 100), of(other, 1, 80)]);
    assert_eq!(store.workbook_usage(other..=other).await.expect("read"), [of(other, 1, 80)]);

    for id in ["x", "y"] {
        save(&store, other, (id, "{}"), 0, 1).await.expect("within the number");
    }
    let full = save(&store, other, ("z", "{}"), 0, 1).await;
    assert!(matches!(full, Err(Error::Full { what: "workbooks", limit: 3 })), "{full:?}");
}

pub(crate) async fn what_is_new_is_never_refused_for_what_is_old(url: String) {
    let store = open(&url).await;
    // 5 bytes of name each.
    let text = |bytes: usize| "x".repeat(bytes - 5);
    for (base, now) in [(0, 0), (1, 100), (2, 200)] {
        kept(&store, ("a", &text(20)), base, now).await;
    }
    kept(&store, ("b", &text(20)), 0, 150).await;
    kept(&store, ("b", &text(20)), 1, 250).await;
    assert_eq!((versions(&store, "a").await, versions(&store, "b").await), (vec![3, 2, 1], vec![2, 1]));
    kept(&store, ("c", &text(30)), 0, 300).await;
    assert_eq!((versions(&store, "a").await, versions(&store, "b").await), (vec![3], vec![2, 1]));
    kept(&store, ("c", &text(31)), 1, 400).await;
    assert_eq!(versions(&store, "c").await, [2], "its own old versions go before those of others");
    assert_eq!((versions(&store, "a").await, versions(&store, "b").await), (vec![3], vec![2, 1]));
    let full = save(&store, DEFAULT_TENANT, ("c", &text(61)), 2, 500).await;
    assert!(matches!(full, Err(Error::Full { what: "bytes in workbooks", limit: 100 })), "{full:?}");
    assert_eq!(versions(&store, "b").await, [2, 1], "a save that is refused takes nothing away");
}

pub(crate) async fn a_tenant_has_no_part_in_anothers_workbooks(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    kept(&store, ("a", "{}"), 0, 1).await;
    assert_eq!(store.workbooks(other).await.expect("listed"), []);
    assert_eq!(store.workbook(other, "a").await.expect("read"), None);
    assert_eq!(store.workbook_content(other, "a", None).await.expect("read"), None);
    assert_eq!(store.workbook_versions(other, "a").await.expect("read"), []);
    let deleted = store.delete_workbook(other, ("a", None), at(4)).await.expect("answered");
    assert_eq!(deleted, WorkbookDeleted::Gone);
    assert_eq!(save(&store, other, ("a", "{}"), 1, 2).await.expect("answered"), WorkbookSaved::Gone);
    let share = store.create_share((other, "a"), 9, at(9), at(1)).await;
    assert!(matches!(share, Err(Error::Missing("workbook"))), "{share:?}");
    let missing = save(&store, TenantId(99), ("a", "{}"), 0, 1).await;
    assert!(matches!(missing, Err(Error::Missing("tenant"))), "{missing:?}");
}

pub(crate) async fn a_link_shows_a_workbook_until_it_ends(url: String) {
    let store = open(&url).await;
    kept(&store, ("a", "{\"v\":1}"), 0, 1).await;
    let of = (DEFAULT_TENANT, "a");
    let (first, token) = store.create_share(of, 2, at(10), at(1)).await.expect("made");
    let (second, other) = store.create_share(of, 2, at(20), at(1)).await.expect("made");
    assert!(token.starts_with("ws-") && token != other && token.len() == 67, "{token}");
    let full = store.create_share(of, 2, at(20), at(9)).await;
    assert!(matches!(full, Err(Error::Full { what: "links to a workbook", limit: 2 })), "{full:?}");
    kept(&store, ("a", "{\"v\":2}"), 1, 2).await;
    let shown = store.shared_workbook(&token, at(9)).await.expect("read").expect("it works");
    assert_eq!((shown.0.version, shown.1.as_str()), (2, "{\"v\":2}"), "what is newest is shown");
    assert_eq!(store.shared_workbook(&token, at(10)).await.expect("read"), None, "past its date");
    assert_eq!(store.shared_workbook("ws-wrong", at(2)).await.expect("read"), None);
    assert_eq!(store.shares(DEFAULT_TENANT, "a", at(9)).await.expect("listed"), [first, second]);
    assert_eq!(store.shares(DEFAULT_TENANT, "a", at(10)).await.expect("listed"), [second]);
    // The place of one past its date is free.
    let (third, _) = store.create_share(of, 2, at(20), at(10)).await.expect("made");
    assert!(!store.delete_share(DEFAULT_TENANT, "b", second.id).await.expect("answered"));
    assert!(store.delete_share(DEFAULT_TENANT, "a", second.id).await.expect("ended"));
    assert_eq!(store.shared_workbook(&other, at(11)).await.expect("read"), None);
    assert_eq!(store.shares(DEFAULT_TENANT, "a", at(11)).await.expect("listed"), [third]);
    assert_eq!(delete(&store, "a", None).await, WorkbookDeleted::Yes);
    assert_eq!(store.shares(DEFAULT_TENANT, "a", at(11)).await.expect("listed"), []);
}

/// Uses a sign-in token up for a key of 20 seconds.
async fn exchanged(store: &Store, token: &str, now: u64) -> Option<CreatedKey> {
    store.exchange_sign_in(token, ("by a link", Millis(20_000)), at(now)).await.expect("asked")
}

pub(crate) async fn a_sign_in_token_works_once_and_not_for_long(url: String) {
    let store = open(&url).await;
    let operator = SignIn { tenant: DEFAULT_TENANT, is_operator: true };
    let token = store.create_sign_in(operator, at(10), at(1)).await.expect("made");
    assert!(token.starts_with("si-") && token.len() == 67, "{token}");
    assert!(exchanged(&store, "si-wrong", 2).await.is_none());
    let (one, other) = tokio::join!(exchanged(&store, &token, 9), exchanged(&store, &token, 9));
    let [Some(key), None] = (if one.is_some() { [one, other] } else { [other, one] }) else {
        panic!("one of two is served")
    };
    assert_eq!((key.info.tenant, key.info.is_operator), (DEFAULT_TENANT, true));
    assert_eq!((key.info.name.as_str(), key.info.expires), ("by a link", Some(at(29))));
    assert!(matches!(store.find_key(&key.plaintext, at(28)).await, Ok(KeyLookup::Valid { .. })));
    let late = store.create_sign_in(operator, at(10), at(1)).await.expect("made");
    assert!(exchanged(&store, &late, 10).await.is_none(), "past its date");
    assert_eq!(store.keys(None, 9).await.expect("listed").len(), 1, "and no key was made");
    let log = store.audit(None, 10).await.expect("read");
    let told: Vec<_> =
        log.iter().map(|entry| (&*entry.actor, &*entry.action, &*entry.subject, entry.is_done)).collect();
    assert_eq!(
        told,
        [("sign-in link", "sign_in.exchange", "1", Some(true))],
        "what came of it, and it alone"
    );
    let details: serde_json::Value = serde_json::from_str(&log[0].details).expect("JSON");
    let expires = at(29).0 / 1_000;
    assert_eq!(details, serde_json::json!({"tenant": "default", "operator": true, "expires": expires}));
    let orphan = SignIn { tenant: TenantId(99), is_operator: false };
    let orphan = store.create_sign_in(orphan, at(10), at(1)).await;
    assert!(matches!(orphan, Err(Error::Missing("tenant"))), "{orphan:?}");
}

pub(crate) async fn keys_of_links_go_when_they_are_past_their_date_and_no_others(url: String) {
    let store = open(&url).await;
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "made",
        expires: Some(at(5)),
        is_operator: false,
        scope: KeyScope::ALL,
    };
    store.create_key(new, at(1)).await.expect("made");
    let member = SignIn { tenant: DEFAULT_TENANT, is_operator: false };
    for now in [1, 2] {
        let token = store.create_sign_in(member, at(10), at(now)).await.expect("made");
        exchanged(&store, &token, now).await.expect("it is new");
    }
    assert_eq!(store.expire_signed_in_keys(at(20)).await.expect("none is old"), 0);
    assert_eq!(store.expire_signed_in_keys(at(21)).await.expect("the first is"), 1);
    let left = store.keys(None, 9).await.expect("listed");
    let left: Vec<_> = left.iter().map(|listed| (listed.key.id, listed.key.name.as_str())).collect();
    assert_eq!(left, [(1, "made"), (3, "by a link")], "who makes a key clears it away");
}

pub(crate) async fn an_operators_key_is_told_from_a_tenants(url: String) {
    let store = open(&url).await;
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "desk",
        expires: None,
        is_operator: true,
        scope: KeyScope::ALL,
    };
    let operator = store.create_key(new.clone(), at(1)).await.expect("made").plaintext;
    let usual = store.create_key(NewKey { is_operator: false, ..new }, at(1)).await.expect("made").plaintext;
    for (presented, expected) in [(&operator, true), (&usual, false)] {
        let KeyLookup::Valid { key, .. } = store.find_key(presented, at(2)).await.expect("asked") else {
            panic!("it works")
        };
        assert_eq!(key.is_operator, expected);
    }
    let listed = store.keys(None, 9).await.expect("listed");
    assert_eq!(listed.iter().map(|listed| listed.key.is_operator).collect::<Vec<_>>(), [true, false]);
}

pub(crate) async fn a_database_keeps_its_identity(url: String) {
    let store = open(&url).await;
    let (one, other) = tokio::join!(store.identity(), store.identity());
    let id = one.expect("chosen");
    assert_eq!((id.len(), other.expect("read")), (64, id.clone()));
    drop(store);
    assert_eq!(open(&url).await.identity().await.expect("read"), id);
    let another = Store::open("sqlite::memory:").await.expect("opens");
    assert_ne!(another.identity().await.expect("chosen"), id);
}
