//! Corpora of tenants: documents in, the fragments nearest to a question out (the `R` of Span Queries,
//! section 3.1).
//!
//! The store keeps fragments with their vectors; an index in memory is made from them when a corpus is first
//! asked for. Everything is found by the caller's tenant first, so nobody sees another's corpus. Must not
//! know HTTP or wire shapes.

mod adding;
mod embedding;
mod index_cache;
pub mod loaded;
mod payer;

use std::sync::Arc;

pub(crate) use adding::repeated;
pub use adding::{Addition, Document, Written, add};
use base::{TenantId, TokenCount};
use index_cache::{IndexSlot, Indexed, Key};
use payer::Payer;
use retrieval::{Embedder, Embedding, Hit};
use serving::account::Account;
use serving::error::stored;
use serving::error::{RequestError, internal, of_store};
use store::{Corpus, NewCorpus};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::state::App;

/// Fragments read from the store at a time.
const PAGE: u32 = 1_000;
/// Where what corpora embed is accounted.
pub const ROUTE: &str = "corpora";
/// How often an index is begun again because its corpus was written meanwhile.
const ATTEMPTS: usize = 5;

/// A corpus' index at the revision that the store has, held against writes.
type Current = OwnedRwLockReadGuard<Option<Indexed>, Indexed>;

/// The texts of the `count` fragments of a tenant's corpus that are nearest to a text, the nearest first.
pub async fn retrieve(
    app: &Arc<App>,
    tenant: TenantId,
    corpus: &str,
    text: &str,
    count: usize,
) -> Result<Vec<Arc<str>>, RequestError> {
    let found = search(app, tenant, corpus, text, count).await?;
    Ok(found.hits.into_iter().map(|hit| hit.fragment.text).collect())
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The fragments, the nearest first.
    pub hits: Vec<Hit>,
    /// Tokens of the question that were embedded.
    pub tokens: TokenCount,
    /// Whether the question was longer than the embedding model reads.
    pub is_truncated: bool,
}

/// The `count` fragments of a tenant's corpus that are nearest to a text.
pub async fn search(
    app: &Arc<App>,
    tenant: TenantId,
    corpus: &str,
    text: &str,
    count: usize,
) -> Result<Found, RequestError> {
    let embedding = app.corpora.embedding()?;
    let limits = &app.config.retrieval;
    if text.len() as u64 > limits.query_bytes_max.0 {
        let limit = format!("{} bytes (retrieval.query_bytes_max)", limits.query_bytes_max.0);
        return Err(RequestError::invalid("query", format!("is longer than {limit}")));
    }
    if !(1..=limits.results_max).contains(&count) {
        let range = format!("must be an integer from 1 to {} (retrieval.results_max)", limits.results_max);
        return Err(RequestError::invalid("k", range));
    }
    // Before anything is computed for a corpus that is not there.
    usable(app, tenant, corpus).await?;
    let payer = Payer::of(app, Account { tenant, route: ROUTE })?;
    let question = text.to_owned();
    let embed = move |embedder: &Embedder, stop: &(dyn Fn() -> bool + Sync)| {
        payer.embed(embedder, &[&question], stop)
    };
    let vector =
        embedding.run(&app.runtime, embed).await?.pop().ok_or_else(|| internal("no vector for a text"))?;
    let tokens = TokenCount(vector.tokens as u64);
    app.runtime.shared.metrics.retrieval.searches.inc();
    let index = current(app, tenant, corpus).await?;
    let hits = tokio::task::spawn_blocking(move || index.index.search(&vector.vector, count))
        .await
        .map_err(internal)?;
    let hits = hits.map_err(internal)?;
    Ok(Found { hits, tokens, is_truncated: vector.is_truncated })
}

/// Numbers of the embedding model's vectors.
pub fn dims(app: &App) -> Result<usize, RequestError> {
    Ok(app.corpora.embedding()?.embedder.dims())
}

/// Refuses to embed where there is no embedding model, by its setting's name.
pub fn check_embeds(app: &App) -> Result<(), RequestError> {
    app.corpora.embedding().map(drop)
}

/// The vectors of a tenant's texts, in their order.
pub async fn vectors(
    app: &Arc<App>,
    account: Account,
    texts: Vec<String>,
) -> Result<Vec<Embedding>, RequestError> {
    let embedding = app.corpora.embedding()?;
    let payer = Payer::of(app, account)?;
    let embed = move |embedder: &Embedder, stop: &(dyn Fn() -> bool + Sync)| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        payer.embed(embedder, &texts, stop)
    };
    embedding.run(&app.runtime, embed).await
}

/// Makes a corpus where there is none of the name, and gives the one that is there.
async fn made(app: &App, tenant: TenantId, new: NewCorpus<'_>) -> Result<Corpus, RequestError> {
    let now = app.runtime.shared.unix_now();
    match app.runtime.store.create_corpus(tenant, new.clone(), app.config.retrieval.corpora_max, now).await {
        Ok(()) | Err(store::Error::Taken { .. }) => {}
        Err(error) => return Err(refused(error)),
    }
    usable(app, tenant, new.name).await
}

/// A tenant's corpus.
pub async fn find(app: &App, tenant: TenantId, name: &str) -> Result<Corpus, RequestError> {
    let corpus = stored(app.runtime.store.corpus(tenant, name).await)?;
    corpus.ok_or_else(|| RequestError::NotFound(format!("corpus `{name}`")))
}

/// All corpora of a tenant.
pub async fn list(app: &App, tenant: TenantId) -> Result<Vec<Corpus>, RequestError> {
    stored(app.runtime.store.corpora(tenant).await)
}

/// Deletes a tenant's corpus.
pub async fn delete(app: &App, tenant: TenantId, name: &str) -> Result<(), RequestError> {
    app.corpora.indexes.forget(&(tenant, name.to_owned()));
    if stored(app.runtime.store.delete_corpus(tenant, name).await)? {
        return Ok(());
    }
    Err(RequestError::NotFound(format!("corpus `{name}`")))
}

/// A tenant's corpus whose vectors are of the embedding model that is served.
async fn usable(app: &App, tenant: TenantId, name: &str) -> Result<Corpus, RequestError> {
    let corpus = find(app, tenant, name).await?;
    if corpus.embedder != app.corpora.embedding()?.identity {
        let reason =
            format!("`{name}` has vectors of another embedding model; delete it and add its documents again");
        return Err(RequestError::invalid("corpus", reason));
    }
    Ok(corpus)
}

/// A corpus' index as the store has it now.
async fn current(app: &Arc<App>, tenant: TenantId, name: &str) -> Result<Current, RequestError> {
    let key: Key = (tenant, name.to_owned());
    for _ in 0..ATTEMPTS {
        let corpus = usable(app, tenant, name).await?;
        let is_current =
            |indexed: &Option<Indexed>| indexed.as_ref().is_some_and(|i| i.revision == corpus.revision);
        let place = app.corpora.indexes.place(&key);
        let mut guard = Arc::clone(&place).read_owned().await;
        if !is_current(&guard) {
            drop(guard);
            let mut writing = Arc::clone(&place).write_owned().await;
            if !is_current(&writing) {
                let mut indexed = load(app, tenant, &corpus).await?;
                link(app, &place, &mut indexed);
                *writing = Some(indexed);
            }
            guard = OwnedRwLockWriteGuard::downgrade(writing);
            let bytes = guard.as_ref().map_or(0, |indexed| indexed.bytes);
            app.corpora.indexes.note(&key, bytes);
            // A write while it was read may have left it half old, half new.
            if find(app, tenant, name).await?.revision != corpus.revision {
                continue;
            }
        }
        if let Ok(current) = OwnedRwLockReadGuard::try_map(guard, Option::as_ref) {
            return Ok(current);
        }
    }
    let retry_after = base::Millis(1_000);
    Err(RequestError::Busy {
        what: "writes of a corpus while its index is made",
        limit: ATTEMPTS.to_string(),
        retry_after,
    })
}

/// Makes an index of what the store has.
async fn load(app: &App, tenant: TenantId, corpus: &Corpus) -> Result<Indexed, RequestError> {
    let fragments_max = app.config.retrieval.fragments_max.max(corpus.fragments);
    let fragments_max = usize::try_from(fragments_max).unwrap_or(usize::MAX);
    let dims = usize::try_from(corpus.dims).map_err(internal)?;
    let mut indexed = Indexed::new(corpus.revision, dims, fragments_max);
    let mut after = None;
    loop {
        let page = stored(app.runtime.store.fragments(tenant, &corpus.name, after.as_ref(), PAGE).await)?;
        let Some((last, _)) = page.last() else { return Ok(indexed) };
        after = Some(last.clone());
        let add = move || {
            for (place, fragment) in &page {
                indexed.add((place.document.as_str().into(), place.number), fragment)?;
            }
            Ok::<Indexed, retrieval::Error>(indexed)
        };
        indexed = tokio::task::spawn_blocking(add).await.map_err(internal)?.map_err(internal)?;
    }
}

/// Has a graph made for an index that wants one, beside the searches, which look at all fragments meanwhile.
fn link(app: &Arc<App>, place: &IndexSlot, indexed: &mut Indexed) {
    if indexed.is_linking || !indexed.index.wants_graph() {
        return;
    }
    indexed.is_linking = true;
    let (app, place) = (app.clone(), Arc::clone(place));
    tokio::spawn(async move {
        let _turn = app.corpora.linking.lock().await;
        let draft = place.read().await.as_ref().and_then(|indexed| indexed.index.draft());
        let state = app.clone();
        let make = move || draft.and_then(|draft| draft.finish(&|| state.runtime.is_draining()));
        let made = tokio::task::spawn_blocking(make).await;
        if let Some(indexed) = place.write().await.as_mut() {
            indexed.is_linking = false;
            match made {
                Ok(Some(links)) => {
                    indexed.index.adopt(links);
                    app.runtime.shared.metrics.retrieval.graphs.inc();
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a graph was not made; searches look at all fragments"),
            }
        }
    });
}

/// What the store's refusal of a write means to the caller.
fn refused(error: store::Error) -> RequestError {
    match error {
        store::Error::Full { what: store::CORPORA_BYTES, limit } => RequestError::TooLarge {
            what: "what the tenant's corpora hold, with these `documents`,".into(),
            limit: format!("{limit} bytes (retrieval.tenant_bytes_max)"),
        },
        store::Error::Full { what, limit } => {
            let (field, of) = match what {
                "corpora" => ("name", "the tenant"),
                _ => ("documents", "the corpus"),
            };
            RequestError::invalid(
                field,
                format!("{of} would have more than {limit} {what} (retrieval.{what}_max)"),
            )
        }
        store::Error::Missing(_) => RequestError::NotFound("the corpus (it was deleted meanwhile)".into()),
        other => of_store(other),
    }
}
