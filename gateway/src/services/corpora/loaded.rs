//! The embedding model and the corpora in memory. Must not know how a corpus is written or searched.

use retrieval::Embedder;
use serving::RequestError;

use super::embedding::Embedding;
use super::index_cache::IndexCache;
use crate::config::RetrievalConfig;

/// The setting that names the embedding model.
const SETTING: &str = "retrieval.model";

/// What serves corpora.
pub struct Corpora {
    pub(super) embedding: Option<Embedding>,
    pub(super) indexes: IndexCache,
    /// One graph is made at a time.
    pub(super) linking: tokio::sync::Mutex<()>,
}

impl Corpora {
    /// Reads the embedding model where one is configured.
    pub fn open(config: &RetrievalConfig) -> Result<Self, retrieval::Error> {
        let load = |folder| Embedder::load(folder, config.threads);
        let embedder = config.model.as_deref().map(load).transpose()?;
        let embedding = embedder.map(|embedder| Embedding::new(embedder, config));
        let indexes = IndexCache::new(config.memory_bytes_max.0);
        Ok(Self { embedding, indexes, linking: tokio::sync::Mutex::default() })
    }

    pub(super) fn embedding(&self) -> Result<&Embedding, RequestError> {
        self.embedding.as_ref().ok_or(RequestError::NotConfigured(SETTING))
    }
}
