//! PML schemas.

use base::{Bytes, TenantId, TokenCount};
use store::{DEFAULT_TENANT, NewSchema, SchemaLimits, SchemaPut, Store};

use super::{at, open, second_tenant};

const LIMITS: SchemaLimits = SchemaLimits { schemas: 3, bytes: Bytes(30), pinned: TokenCount(100) };

async fn put(store: &Store, tenant: TenantId, (name, pml): (&str, &str), pinned: u64, now: u64) -> SchemaPut {
    let new = NewSchema { tenant, name, pml, pinned: TokenCount(pinned) };
    let could = store.can_put_schema(new, LIMITS).await.expect("the store answers");
    let kept = store.put_schema(new, LIMITS, at(now)).await.expect("the store answers");
    assert_eq!(could, kept);
    kept
}

pub(crate) async fn a_schema_is_kept_replaced_listed_and_forgotten(url: String) {
    let store = open(&url).await;
    assert_eq!(store.schema(DEFAULT_TENANT, "b").await.expect("read"), None);
    assert_eq!(put(&store, DEFAULT_TENANT, ("b", "<1>"), 0, 1).await, SchemaPut::Yes);
    assert_eq!(put(&store, DEFAULT_TENANT, ("a", "<2>"), 7, 2).await, SchemaPut::Yes);
    assert_eq!(put(&store, DEFAULT_TENANT, ("b", "<3> '' \u{e9}"), 9, 3).await, SchemaPut::Yes);
    drop(store);
    let store = open(&url).await;
    let found = store.schema(DEFAULT_TENANT, "b").await.expect("read").expect("kept");
    assert_eq!((found.pml.as_str(), found.pinned), ("<3> '' \u{e9}", TokenCount(9)));
    assert_eq!((found.created, found.updated), (at(1), at(3)));
    let names: Vec<(String, u64)> = store
        .schemas(DEFAULT_TENANT)
        .await
        .expect("read")
        .into_iter()
        .map(|schema| (schema.name, schema.pinned.0))
        .collect();
    assert_eq!(names, [("a".to_owned(), 7), ("b".to_owned(), 9)]);
    assert!(store.delete_schema(DEFAULT_TENANT, "b").await.expect("written"));
    assert!(!store.delete_schema(DEFAULT_TENANT, "b").await.expect("written"));
    assert_eq!(store.schema(DEFAULT_TENANT, "b").await.expect("read"), None);
}

pub(crate) async fn a_tenant_neither_sees_nor_forgets_anothers_schema(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    assert_eq!(put(&store, DEFAULT_TENANT, ("s", "<1>"), 100, 1).await, SchemaPut::Yes);
    assert_eq!(store.schema(other, "s").await.expect("read"), None);
    assert_eq!(store.schemas(other).await.expect("read"), []);
    assert!(!store.delete_schema(other, "s").await.expect("written"));
    assert_eq!(put(&store, other, ("s", "<2>"), 100, 2).await, SchemaPut::Yes, "each has its own bounds");
    assert_eq!(
        store.schema(DEFAULT_TENANT, "s").await.expect("read").map(|schema| schema.pml),
        Some("<1>".into())
    );
}

pub(crate) async fn what_a_tenant_may_keep_and_pin_is_bounded(url: String) {
    let store = open(&url).await;
    let one = DEFAULT_TENANT;
    assert_eq!(put(&store, one, ("a", "<1>"), 60, 1).await, SchemaPut::Yes);
    assert_eq!(put(&store, one, ("b", "<1>"), 41, 2).await, SchemaPut::TooManyPinned(TokenCount(60)));
    assert_eq!(put(&store, one, ("b", "<1>"), 40, 2).await, SchemaPut::Yes);
    assert_eq!(
        put(&store, one, ("c", "<1>"), 0, 3).await,
        SchemaPut::Yes,
        "what is not pinned takes nothing"
    );
    assert_eq!(put(&store, one, ("d", "<1>"), 0, 4).await, SchemaPut::TooMany);
    assert_eq!(put(&store, one, ("a", "<2>"), 60, 5).await, SchemaPut::Yes, "in its own place it has room");
    assert_eq!(store.schema(one, "d").await.expect("read"), None);
    let missing = NewSchema { tenant: TenantId(99), name: "a", pml: "", pinned: TokenCount(0) };
    assert!(matches!(store.put_schema(missing, LIMITS, at(6)).await, Err(store::Error::Missing("tenant"))));
}

pub(crate) async fn what_a_tenants_schemas_hold_is_bounded_in_bytes(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    // Ten letters, twenty bytes.
    let twenty = "\u{e9}".repeat(10);
    assert_eq!(put(&store, DEFAULT_TENANT, ("a", &twenty), 0, 1).await, SchemaPut::Yes);
    let eleven = put(&store, DEFAULT_TENANT, ("b", "<123456789>"), 0, 2).await;
    assert_eq!(eleven, SchemaPut::TooManyBytes(Bytes(20)));
    assert_eq!(store.schema(DEFAULT_TENANT, "b").await.expect("read"), None);
    assert_eq!(put(&store, DEFAULT_TENANT, ("b", "<12345678>"), 0, 3).await, SchemaPut::Yes, "all thirty");
    assert_eq!(put(&store, DEFAULT_TENANT, ("a", &twenty), 0, 4).await, SchemaPut::Yes, "in its own place");
    assert_eq!(put(&store, DEFAULT_TENANT, ("c", "<"), 0, 5).await, SchemaPut::TooManyBytes(Bytes(30)));
    assert_eq!(put(&store, other, ("a", &twenty), 0, 6).await, SchemaPut::Yes, "each has its own bounds");
    assert!(store.delete_schema(DEFAULT_TENANT, "a").await.expect("written"));
    assert_eq!(put(&store, DEFAULT_TENANT, ("c", &twenty), 0, 7).await, SchemaPut::Yes);
}
