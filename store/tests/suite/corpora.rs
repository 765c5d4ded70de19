//! Corpora: whole documents, their limits, and whose they are.

use base::{Bytes, TenantId, TokenCount};
use store::{
    CORPORA_BYTES, CorpusLimits, CorpusOf, DEFAULT_TENANT, Error, FragmentKey, NewCorpus, NewDocument, Store,
    StoredFragment,
};

use super::{at, open, second_tenant};

const NEW: NewCorpus<'static> = NewCorpus {
    name: "law",
    embedder: "e1",
    dims: 2,
    fragment_tokens: TokenCount(8),
    overlap: TokenCount(1),
};
const LAW: CorpusOf<'static> = CorpusOf { name: "law", embedder: "e1" };
const LIMITS: CorpusLimits = CorpusLimits {
    documents_max: 3,
    fragments_max: 200,
    bytes_max: Bytes(1_000),
    tenant_bytes_max: Bytes(10_000),
};

fn document(id: &str, fragments: u64) -> NewDocument {
    // Bytes of every kind, NUL first: a vector's bytes are no text.
    let fragment = |number| StoredFragment {
        text: format!("{id} {number} \u{e4}"),
        tokens: TokenCount(3),
        vector: vec![0, 255, 128, number as u8, 10, 39],
    };
    let fragments = (0..fragments).map(fragment).collect();
    NewDocument { id: id.into(), digest: format!("d-{id}"), bytes: Bytes(100), fragments }
}

async fn put(store: &Store, tenant: TenantId, documents: &[NewDocument]) -> Result<u64, Error> {
    Ok(store.put_documents(tenant, LAW, documents, LIMITS, at(2)).await?.1)
}

async fn all(store: &Store, tenant: TenantId) -> Vec<(FragmentKey, StoredFragment)> {
    store.fragments(tenant, "law", None, 1_000).await.expect("read")
}

pub(crate) async fn a_corpus_keeps_whole_documents_and_survives_a_restart(url: String) {
    let store = open(&url).await;
    store.create_corpus(DEFAULT_TENANT, NEW, 2, at(1)).await.expect("made");
    let taken = store.create_corpus(DEFAULT_TENANT, NEW, 2, at(1)).await;
    assert!(matches!(taken, Err(Error::Taken { what: "corpus", .. })), "{taken:?}");
    // More fragments than one statement takes.
    let documents = [document("b", 150), document("a", 2)];
    let first = put(&store, DEFAULT_TENANT, &documents).await.expect("kept");
    let second = put(&store, DEFAULT_TENANT, &[document("b", 3)]).await.expect("replaced");
    assert!(second > first);

    let store = open(&url).await;
    let corpus = store.corpus(DEFAULT_TENANT, "law").await.expect("read").expect("there");
    assert_eq!(
        (corpus.documents, corpus.fragments, corpus.bytes, corpus.tokens),
        (2, 5, Bytes(200), TokenCount(15))
    );
    assert_eq!((corpus.revision, corpus.created, corpus.updated), (second, at(1), at(2)));
    assert_eq!((corpus.dims, corpus.fragment_tokens, corpus.overlap), (2, TokenCount(8), TokenCount(1)));
    let found = all(&store, DEFAULT_TENANT).await;
    let places: Vec<_> = found.iter().map(|(place, _)| (place.document.as_str(), place.number)).collect();
    assert_eq!(places, [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]);
    let texts: Vec<_> = found.iter().map(|(_, fragment)| fragment.clone()).collect();
    assert_eq!(texts, [document("a", 2).fragments, document("b", 3).fragments].concat());
    let rest = store.fragments(DEFAULT_TENANT, "law", Some(&found[1].0), 2).await.expect("read");
    assert_eq!(rest, found[2..4]);
    let digests = store.document_digests(DEFAULT_TENANT, "law", &["b", "x"]).await.expect("read");
    assert_eq!(digests, [("b".to_owned(), "d-b".to_owned())]);
}

pub(crate) async fn a_corpus_is_never_above_its_limits(url: String) {
    let store = open(&url).await;
    store.create_corpus(DEFAULT_TENANT, NEW, 1, at(1)).await.expect("made");
    let more = NewCorpus { name: "tax", ..NEW };
    let full = store.create_corpus(DEFAULT_TENANT, more, 1, at(1)).await;
    assert!(matches!(full, Err(Error::Full { what: "corpora", limit: 1 })), "{full:?}");
    let four: Vec<_> = ["a", "b", "c", "d"].map(|id| document(id, 1)).into();
    let long = [document("a", 201)];
    let large = [NewDocument { bytes: Bytes(1_001), ..document("a", 1) }];
    for (documents, expected) in [(&four[..], "documents"), (&long, "fragments"), (&large, "bytes")] {
        let full = put(&store, DEFAULT_TENANT, documents).await;
        assert!(matches!(full, Err(Error::Full { what, .. }) if what == expected), "{full:?}");
        assert_eq!(all(&store, DEFAULT_TENANT).await, [], "none of them is kept");
    }
    put(&store, DEFAULT_TENANT, &four[..3]).await.expect("kept");
    put(&store, DEFAULT_TENANT, &four[..1]).await.expect("a replacement needs no room");
    let other = store
        .put_documents(DEFAULT_TENANT, CorpusOf { embedder: "e2", ..LAW }, &four[..1], LIMITS, at(2))
        .await;
    assert!(matches!(other, Err(Error::Missing("corpus"))), "vectors of another model: {other:?}");
}

pub(crate) async fn a_tenants_corpora_together_are_never_above_its_bytes(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    let tax = NewCorpus { name: "tax", ..NEW };
    for (tenant, new) in [(DEFAULT_TENANT, NEW), (DEFAULT_TENANT, tax), (other, NEW)] {
        store.create_corpus(tenant, new, 2, at(1)).await.expect("made");
    }
    // A document has 100 bytes, a vector two numbers of four bytes.
    let limits = CorpusLimits { tenant_bytes_max: Bytes(300), ..LIMITS };
    let put = async |tenant, name, document: NewDocument| {
        let corpus = CorpusOf { name, ..LAW };
        store.put_documents(tenant, corpus, &[document], limits, at(2)).await.map(drop)
    };
    put(DEFAULT_TENANT, "law", document("a", 1)).await.expect("108");
    put(DEFAULT_TENANT, "tax", document("b", 1)).await.expect("216");
    let law = async || store.corpus(DEFAULT_TENANT, "law").await.expect("read").expect("there");
    let before = law().await;
    assert_eq!(before.held_bytes(), Bytes(108));
    for refused in [document("c", 1), document("a", 12)] {
        let full = put(DEFAULT_TENANT, "law", refused).await;
        assert!(matches!(full, Err(Error::Full { what: CORPORA_BYTES, limit: 300 })), "{full:?}");
        assert_eq!(law().await, before, "nothing of it is kept");
    }
    put(DEFAULT_TENANT, "law", document("a", 11)).await.expect("108 and 188");
    put(other, "law", document("c", 1)).await.expect("another tenant has its own");
    assert!(store.delete_corpus(DEFAULT_TENANT, "tax").await.expect("deleted"));
    put(DEFAULT_TENANT, "law", document("c", 1)).await.expect("188 and 108");
}

pub(crate) async fn a_tenant_has_no_part_in_anothers_corpora(url: String) {
    let store = open(&url).await;
    let other = second_tenant(&store).await;
    for tenant in [DEFAULT_TENANT, other] {
        store.create_corpus(tenant, NEW, 1, at(1)).await.expect("made");
    }
    put(&store, DEFAULT_TENANT, &[document("a", 2)]).await.expect("kept");
    assert_eq!(all(&store, other).await, []);
    assert_eq!(store.document_digests(other, "law", &["a"]).await.expect("read"), []);
    assert_eq!(store.corpora(other).await.expect("listed")[0].documents, 0);
    assert!(store.delete_corpus(other, "law").await.expect("deleted"));
    assert!(!store.delete_corpus(other, "law").await.expect("deleted"));
    assert_eq!(all(&store, DEFAULT_TENANT).await.len(), 2);

    let before = store.corpus(DEFAULT_TENANT, "law").await.expect("read").expect("there").revision;
    assert!(store.delete_corpus(DEFAULT_TENANT, "law").await.expect("deleted"));
    assert_eq!(all(&store, DEFAULT_TENANT).await, []);
    assert!(matches!(put(&store, DEFAULT_TENANT, &[]).await, Err(Error::Missing("corpus"))));
    store.create_corpus(DEFAULT_TENANT, NEW, 1, at(1)).await.expect("made again");
    let after = store.corpus(DEFAULT_TENANT, "law").await.expect("read").expect("there");
    assert!(after.revision > before && after.documents == 0, "a name that is used again is another corpus");
}
