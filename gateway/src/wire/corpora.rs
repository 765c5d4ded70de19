//! The JSON of `/v1/corpora`.

use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use store::Corpus;
use utoipa::ToSchema;

use crate::config::RetrievalConfig;
use crate::json::JsonFields;
use crate::services::corpora::{Addition, Document, Found, Written, repeated};

/// Longest name of a corpus.
const NAME_BYTES_MAX: usize = 64;
/// Longest name of a document.
const ID_BYTES_MAX: usize = 256;
/// Fragments that a search gives where it does not say.
const RESULTS: usize = 5;

/// Reads `POST /v1/corpora`.
pub fn addition(mut fields: JsonFields, limits: &RetrievalConfig) -> Result<Addition, RequestError> {
    let Some(name) = fields.string("name")? else { return fields.bad("name", "is required") };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.chars().all(is_name) {
        return fields
            .bad("name", format!("must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`"));
    }
    let Some(items) = fields.array("documents")? else { return fields.bad("documents", "is required") };
    if items.len() as u64 > limits.documents_max {
        let limit = limits.documents_max;
        return fields.bad("documents", format!("are more than {limit} (retrieval.documents_max)"));
    }
    let documents: Vec<Document> =
        items.into_iter().enumerate().map(|(i, item)| document(i, item, limits)).collect::<Result<_, _>>()?;
    if let Some(id) = repeated(&documents) {
        return fields.bad("documents", format!("name `{id}` twice"));
    }
    let bytes: u64 = documents.iter().map(|document| document.text.len() as u64).sum();
    if bytes > limits.bytes_max.0 {
        let limit = limits.bytes_max.0;
        return fields.bad("documents", format!("have more than {limit} bytes (retrieval.bytes_max)"));
    }
    let fragment_tokens = fields.integer("fragment_tokens", 1, u64::from(u32::MAX))?;
    let overlap = fields.integer("overlap", 0, u64::from(u32::MAX))?;
    fields.finish()?;
    Ok(Addition { name, documents, fragment_tokens, overlap })
}

fn document(place: usize, item: Value, limits: &RetrievalConfig) -> Result<Document, RequestError> {
    let mut fields = JsonFields::nested(format!("documents[{place}]"), item)?;
    let Some(id) = fields.string("id")? else { return fields.bad("id", "is required") };
    if !(1..=ID_BYTES_MAX).contains(&id.len()) || id.chars().any(char::is_control) {
        return fields.bad("id", format!("must be 1 to {ID_BYTES_MAX} bytes without control characters"));
    }
    let Some(text) = fields.string("text")? else { return fields.bad("text", "is required") };
    if text.trim().is_empty() {
        return fields.bad("text", "is empty");
    }
    let limit = limits.document_bytes_max.0;
    if text.len() as u64 > limit {
        return fields.bad("text", format!("has more than {limit} bytes (retrieval.document_bytes_max)"));
    }
    fields.finish()?;
    Ok(Document { id, text })
}

/// A search, as it was asked for.
pub struct Question {
    /// What to look for.
    pub text: String,
    /// How many fragments.
    pub count: usize,
}

/// Reads `POST /v1/corpora/{name}/search`.
pub fn question(mut fields: JsonFields, limits: &RetrievalConfig) -> Result<Question, RequestError> {
    let Some(text) = fields.string("query")? else { return fields.bad("query", "is required") };
    if text.trim().is_empty() {
        return fields.bad("query", "is empty");
    }
    let usual = RESULTS.min(limits.results_max) as u64;
    let count = fields.integer("k", 1, limits.results_max as u64)?.unwrap_or(usual) as usize;
    fields.finish()?;
    Ok(Question { text, count })
}

/// A corpus.
#[derive(Debug, Serialize, ToSchema)]
pub struct CorpusReply {
    /// `corpus`.
    object: &'static str,
    /// Its name.
    name: String,
    /// Documents in it.
    documents: u64,
    /// Fragments of all of them.
    fragments: u64,
    /// Tokens of all fragments, as the embedding model counts them.
    tokens: u64,
    /// Bytes of the documents' texts.
    bytes: u64,
    /// Numbers of a vector.
    dims: u64,
    /// Most tokens of a fragment.
    fragment_tokens: u64,
    /// Tokens that a fragment has in common with the one before.
    overlap: u64,
    /// When it was made, unix seconds.
    created: u64,
    /// When it was last written, unix seconds.
    updated: u64,
    /// What this request did; only where it added documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<WrittenReply>,
}

/// What an addition did.
#[derive(Debug, Serialize, ToSchema)]
pub struct WrittenReply {
    /// Documents that were new, or other than before.
    documents: u64,
    /// Documents that were there with the same text.
    unchanged: u64,
    /// Fragments of the written ones.
    fragments: u64,
    /// Tokens that were embedded.
    tokens: u64,
    /// Fragments that were longer than the embedding model reads: their ends have no part in their vectors.
    truncated: u64,
}

impl CorpusReply {
    /// A corpus, and what was added to it.
    pub fn new(corpus: &Corpus, written: Option<Written>) -> Self {
        let reply = |written: Written| WrittenReply {
            documents: written.documents,
            unchanged: written.unchanged,
            fragments: written.fragments,
            tokens: written.tokens.0,
            truncated: written.truncated,
        };
        Self {
            object: "corpus",
            name: corpus.name.clone(),
            documents: corpus.documents,
            fragments: corpus.fragments,
            tokens: corpus.tokens.0,
            bytes: corpus.bytes.0,
            dims: corpus.dims,
            fragment_tokens: corpus.fragment_tokens.0,
            overlap: corpus.overlap.0,
            created: corpus.created.0 / 1_000,
            updated: corpus.updated.0 / 1_000,
            written: written.map(reply),
        }
    }
}

/// All corpora of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct CorporaReply {
    object: &'static str,
    data: Vec<CorpusReply>,
}

impl CorporaReply {
    /// A list.
    pub fn new(corpora: &[Corpus]) -> Self {
        Self { object: "list", data: corpora.iter().map(|corpus| CorpusReply::new(corpus, None)).collect() }
    }
}

/// What a search found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundReply {
    object: &'static str,
    /// The corpus' name.
    corpus: String,
    /// The fragments, the nearest first.
    data: Vec<HitReply>,
    /// Tokens of the question that were embedded.
    query_tokens: u64,
    /// Whether the question was longer than the embedding model reads.
    query_truncated: bool,
}

/// A fragment that was found.
#[derive(Debug, Serialize, ToSchema)]
pub struct HitReply {
    /// The document's name.
    document: String,
    /// Its place among the document's fragments, from 0.
    fragment: u32,
    /// What it says.
    text: String,
    /// Its tokens, as the embedding model counts them.
    tokens: u32,
    /// The cosine of its vector and the question's, from -1 to 1.
    score: f32,
}

impl FoundReply {
    /// What a search of a corpus found.
    pub fn new(corpus: &str, found: &Found) -> Self {
        let hit = |hit: &retrieval::Hit| HitReply {
            document: hit.fragment.document.to_string(),
            fragment: hit.fragment.number,
            text: hit.fragment.text.to_string(),
            tokens: hit.fragment.tokens,
            score: hit.score,
        };
        Self {
            object: "list",
            corpus: corpus.to_owned(),
            data: found.hits.iter().map(hit).collect(),
            query_tokens: found.tokens.0,
            query_truncated: found.is_truncated,
        }
    }
}
