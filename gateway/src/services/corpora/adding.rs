//! Adding documents: cut, embedded and kept group by group, each document whole or not at all.
//!
//! A document whose text is in the corpus already is left as it is, so a request that broke off can be sent
//! again and goes on where it ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::{Bytes, TenantId, TokenCount};
use retrieval::{Cut, Embedder, FragmentRange, TokenizedTexts};
use serving::account::Account;
use serving::error::stored;
use serving::error::{RequestError, internal};
use sha2::{Digest as _, Sha256};
use store::{
    CORPORA_BYTES, Corpus, CorpusLimits, CorpusOf, NewCorpus, NewDocument, StoredFragment, vector_bytes,
};

use super::embedding::of_retrieval;
use super::index_cache::{Indexed, render_vector};
use super::payer::Payer;
use super::{ROUTE, find, link, made, refused, usable};
use crate::state::App;

/// Fragments that are embedded and written together: what is lost when a client leaves, and how long others
/// wait.
const GROUP: usize = 256;

/// Documents for a corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The corpus' name; it is made where there is none.
    pub name: String,
    /// The documents; names differ.
    pub documents: Vec<Document>,
    /// Most tokens of a fragment, where the caller says.
    pub fragment_tokens: Option<u64>,
    /// Tokens that fragments have in common, where the caller says.
    pub overlap: Option<u64>,
}

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its name.
    pub id: String,
    /// What it says.
    pub text: String,
}

/// What an addition did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Documents that were new or other than before.
    pub documents: u64,
    /// Documents that were there with the same text.
    pub unchanged: u64,
    /// Fragments of the written ones.
    pub fragments: u64,
    /// Tokens that were embedded.
    pub tokens: TokenCount,
    /// Fragments that by themselves have more tokens than the model reads, so that their ends have no part in
    /// their vectors.
    pub truncated: u64,
}

/// A document and where it is cut.
struct Pieces {
    document: Document,
    digest: String,
    pieces: Vec<FragmentRange>,
    /// The pieces as the embedding model reads them.
    texts: TokenizedTexts,
}

/// Notes a client that left before its answer, where it is dropped unanswered.
struct Answering<'a> {
    app: &'a App,
    is_answered: bool,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.app.runtime.shared.metrics.requests.disconnects.inc_by(u64::from(!self.is_answered));
    }
}

/// Adds documents to a tenant's corpus. Dropped before its end, it stops within a batch of texts, and what it
/// has kept so far stays.
pub async fn add(
    app: &Arc<App>,
    tenant: TenantId,
    addition: Addition,
) -> Result<(Corpus, Written), RequestError> {
    let mut answering = Answering { app, is_answered: false };
    let added = add_groups(app, tenant, addition).await;
    answering.is_answered = true;
    added
}

async fn add_groups(
    app: &Arc<App>,
    tenant: TenantId,
    addition: Addition,
) -> Result<(Corpus, Written), RequestError> {
    if app.runtime.is_draining() {
        return Err(RequestError::ShuttingDown);
    }
    let embedding = app.corpora.embedding()?;
    let payer = Payer::of(app, Account { tenant, route: ROUTE })?;
    let corpus = opened(app, tenant, &addition, &embedding.embedder, &embedding.identity).await?;
    let (changed, unchanged) = changed(app, tenant, &corpus, addition.documents).await?;
    let mut written = Written { unchanged, ..Written::default() };
    let cut = Cut { tokens_max: corpus.fragment_tokens.0 as usize, overlap: corpus.overlap.0 as usize };
    let cut_all = move |embedder: &Embedder, stop: &(dyn Fn() -> bool + Sync)| {
        let cut_one = |(document, digest): (Document, String)| {
            if stop() {
                return Err(retrieval::Error::Stopped { texts: 0, tokens: 0 });
            }
            let pieces = embedder.fragments(&document.text, cut)?;
            let texts: Vec<&str> = pieces.iter().map(|piece| &document.text[piece.range.clone()]).collect();
            let texts = embedder.tokenize(&texts, stop)?;
            Ok(Pieces { document, digest, pieces, texts })
        };
        changed.into_iter().map(cut_one).collect::<Result<Vec<Pieces>, _>>().map_err(of_retrieval)
    };
    let cut = embedding.run(&app.runtime, cut_all).await?;
    check_room(app, &cut)?;
    check_tenant_room(app, tenant, &corpus, &cut).await?;
    let groups = groups(cut);
    let tokens = |group: &Vec<Pieces>| group.iter().map(|one| one.texts.tokens()).sum::<u64>();
    // All of it, before any: what there is no room for is refused whole.
    let held = payer.set_aside(groups.iter().map(tokens))?;
    for (number, group) in (0..).zip(groups) {
        let (payer, held) = (payer.clone(), held.clone());
        let embed = move |embedder: &Embedder, stop: &(dyn Fn() -> bool + Sync)| {
            let embedded = embedded(embedder, stop, group).map_err(|error| payer.refused(error))?;
            payer.settle(embedded.1.fragments, embedded.1.tokens);
            if let Some(held) = &held {
                held.release(number);
            }
            Ok(embedded)
        };
        let (documents, some) = embedding.run(&app.runtime, embed).await?;
        keep(app, tenant, &corpus, documents).await?;
        written.documents += some.documents;
        written.fragments += some.fragments;
        written.tokens = TokenCount(written.tokens.0 + some.tokens.0);
        written.truncated += some.truncated;
    }
    Ok((find(app, tenant, &corpus.name).await?, written))
}

/// The corpus of an addition, which agrees with how it says that fragments are cut.
async fn opened(
    app: &App,
    tenant: TenantId,
    addition: &Addition,
    embedder: &Embedder,
    identity: &str,
) -> Result<Corpus, RequestError> {
    let corpus = match usable(app, tenant, &addition.name).await {
        Err(RequestError::NotFound(_)) => {
            let most = embedder.fragment_tokens_max();
            let usual = app.config.retrieval.fragment_tokens.min(most) as u64;
            let fragment_tokens = addition.fragment_tokens.unwrap_or(usual);
            let overlap = addition.overlap.unwrap_or(0);
            let cut = Cut { tokens_max: fragment_tokens as usize, overlap: overlap as usize };
            // Refused before a corpus is made that nothing could be added to.
            embedder.fragments("", cut).map_err(|error| match error {
                retrieval::Error::Invalid { field, reason } => RequestError::invalid(field, reason),
                other => internal(other),
            })?;
            let new = NewCorpus {
                name: &addition.name,
                embedder: identity,
                dims: embedder.dims() as u64,
                fragment_tokens: TokenCount(fragment_tokens),
                overlap: TokenCount(overlap),
            };
            made(app, tenant, new).await?
        }
        other => other?,
    };
    let asked = [
        ("fragment_tokens", addition.fragment_tokens, corpus.fragment_tokens),
        ("overlap", addition.overlap, corpus.overlap),
    ];
    match asked.into_iter().find(|(_, asked, has)| asked.is_some_and(|asked| asked != has.0)) {
        Some((field, _, has)) => Err(RequestError::invalid(
            field,
            format!("the corpus was made with {has}; leave it out, or delete the corpus"),
        )),
        None => Ok(corpus),
    }
}

/// Documents that the corpus does not have as they are, with their digests; and how many it has.
async fn changed(
    app: &App,
    tenant: TenantId,
    corpus: &Corpus,
    documents: Vec<Document>,
) -> Result<(Vec<(Document, String)>, u64), RequestError> {
    let ids: Vec<&str> = documents.iter().map(|document| document.id.as_str()).collect();
    let known = stored(app.runtime.store.document_digests(tenant, &corpus.name, &ids).await)?;
    let new = ids.len() as u64 - known.len() as u64;
    let limit = app.config.retrieval.documents_max;
    if corpus.documents + new > limit {
        return Err(refused(store::Error::Full { what: "documents", limit }));
    }
    let known: HashMap<String, String> = known.into_iter().collect();
    let count = documents.len();
    let digested = documents.into_iter().map(|document| {
        let digest = Sha256::digest(document.text.as_bytes());
        (document, digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    });
    let changed: Vec<_> =
        digested.filter(|(document, digest)| known.get(&document.id) != Some(digest)).collect();
    let unchanged = (count - changed.len()) as u64;
    Ok((changed, unchanged))
}

/// Refuses what can have no room, before it is embedded; the store has the last word.
fn check_room(app: &App, cut: &[Pieces]) -> Result<(), RequestError> {
    let limits = &app.config.retrieval;
    if let Some(empty) = cut.iter().find(|pieces| pieces.pieces.is_empty()) {
        return Err(RequestError::invalid("documents", format!("`{}` has no text", empty.document.id)));
    }
    let fragments: usize = cut.iter().map(|pieces| pieces.pieces.len()).sum();
    if fragments as u64 > limits.fragments_max {
        return Err(refused(store::Error::Full { what: "fragments", limit: limits.fragments_max }));
    }
    Ok(())
}

/// The same of the tenant's corpora together: what the others have stays, whatever is replaced in this one.
async fn check_tenant_room(
    app: &App,
    tenant: TenantId,
    corpus: &Corpus,
    cut: &[Pieces],
) -> Result<(), RequestError> {
    let limit = app.config.retrieval.tenant_bytes_max.0;
    let corpora = stored(app.runtime.store.corpora(tenant).await)?;
    let others = corpora.iter().filter(|other| other.name != corpus.name).map(|other| other.held_bytes().0);
    let new = cut
        .iter()
        .map(|one| one.document.text.len() as u64 + vector_bytes(one.pieces.len() as u64, corpus.dims).0);
    if others.chain(new).fold(0, u64::saturating_add) > limit {
        return Err(refused(store::Error::Full { what: CORPORA_BYTES, limit }));
    }
    Ok(())
}

/// Whole documents, about [`GROUP`] fragments at a time.
fn groups(all: Vec<Pieces>) -> Vec<Vec<Pieces>> {
    let mut groups: Vec<Vec<Pieces>> = Vec::new();
    let mut fragments = GROUP;
    for one in all {
        if fragments >= GROUP {
            groups.push(Vec::new());
            fragments = 0;
        }
        fragments += one.pieces.len();
        if let Some(last) = groups.last_mut() {
            last.push(one);
        }
    }
    groups
}

/// Embeds the fragments of documents.
fn embedded(
    embedder: &Embedder,
    stop: &(dyn Fn() -> bool + Sync),
    mut group: Vec<Pieces>,
) -> Result<(Vec<NewDocument>, Written), retrieval::Error> {
    let mut texts = TokenizedTexts::default();
    group.iter_mut().for_each(|one| texts.append(std::mem::take(&mut one.texts)));
    let mut vectors = embedder.embed_tokenized(texts, stop)?.into_iter();
    let fragments = group.iter().map(|one| one.pieces.len() as u64).sum();
    let mut written = Written { documents: group.len() as u64, fragments, ..Written::default() };
    let mut documents = Vec::with_capacity(group.len());
    for Pieces { document, digest, pieces, .. } in &group {
        let fragments = pieces.iter().zip(&mut vectors).map(|(piece, embedding)| {
            written.tokens.0 += embedding.tokens as u64;
            written.truncated += u64::from(embedding.is_truncated);
            StoredFragment {
                text: document.text[piece.range.clone()].to_owned(),
                tokens: TokenCount(piece.tokens as u64),
                vector: render_vector(&embedding.vector),
            }
        });
        let fragments = fragments.collect();
        let bytes = Bytes(document.text.len() as u64);
        documents.push(NewDocument { id: document.id.clone(), digest: digest.clone(), bytes, fragments });
    }
    Ok((documents, written))
}

/// Writes documents, and into the index in memory where that was up to date.
async fn keep(
    app: &Arc<App>,
    tenant: TenantId,
    corpus: &Corpus,
    documents: Vec<NewDocument>,
) -> Result<(), RequestError> {
    let limits = &app.config.retrieval;
    let limits = CorpusLimits {
        documents_max: limits.documents_max,
        fragments_max: limits.fragments_max,
        bytes_max: limits.bytes_max,
        tenant_bytes_max: limits.tenant_bytes_max,
    };
    let key = (tenant, corpus.name.clone());
    // Held over the write: whoever searches sees the index of before or that of after.
    let place = app.corpora.indexes.place(&key);
    let mut indexed = Arc::clone(&place).write_owned().await;
    let now = app.runtime.shared.unix_now();
    let name = CorpusOf { name: &corpus.name, embedder: &corpus.embedder };
    let (before, after) =
        app.runtime.store.put_documents(tenant, name, &documents, limits, now).await.map_err(refused)?;
    let is_current = |indexed: &Indexed| indexed.revision == before;
    if let Some(held) = indexed.take().filter(is_current) {
        let replace = move || {
            let mut held = held;
            held.replace(after, &documents).map(|()| held)
        };
        // What cannot be put in is made anew from the store.
        match tokio::task::spawn_blocking(replace).await.map_err(internal)? {
            Ok(mut held) => {
                app.corpora.indexes.note(&key, held.bytes);
                link(app, &place, &mut held);
                *indexed = Some(held);
            }
            Err(error) => tracing::warn!(%error, "an index is made anew"),
        }
    }
    Ok(())
}

/// Names that stand more than once.
pub(crate) fn repeated(documents: &[Document]) -> Option<&str> {
    let mut seen = HashSet::new();
    documents.iter().map(|document| document.id.as_str()).find(|id| !seen.insert(*id))
}
