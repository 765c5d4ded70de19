//! Settings of corpora and their embedding model.

use std::path::{Path, PathBuf};

use base::Bytes;
use serde::{Deserialize, Serialize};
use serving::config::PriceSettings;
use serving::price::TokenPrices;

use super::InvalidConfig;

/// Corpora, and the embedding model that makes their vectors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrievalConfig {
    /// A folder with an embedding model of the BERT family; without it corpora are refused.
    pub model: Option<PathBuf>,
    /// What `/v1/embeddings` calls it; by default its folder's name.
    pub name: Option<String>,
    /// Price of a million tokens that are embedded, in the currency of the models' prices; what tenants' budgets of money
    /// count with. Without it embedding costs nothing.
    pub prompt_price: Option<f64>,
    /// Threads that compute vectors, beside the engine's.
    pub threads: usize,
    /// Groups of texts that are embedded at the same time; more wait.
    pub tasks_max: usize,
    /// Groups that wait; more get a 429.
    pub waiting_max: usize,
    /// Most tokens of a fragment where the request does not say; never more than the model reads.
    pub fragment_tokens: usize,
    /// Corpora of a tenant.
    pub corpora_max: u64,
    /// Documents of a corpus.
    pub documents_max: u64,
    /// Fragments of a corpus.
    pub fragments_max: u64,
    /// Bytes of a corpus' texts.
    pub bytes_max: Bytes,
    /// Bytes of one tenant's corpora, texts and vectors; more documents get a 413.
    pub tenant_bytes_max: Bytes,
    /// Bytes of one document.
    pub document_bytes_max: Bytes,
    /// Bytes of a search's question.
    pub query_bytes_max: Bytes,
    /// Fragments that one search may ask for.
    pub results_max: usize,
    /// Bytes of indexes in memory, of all tenants; beyond it the one unused for longest goes, and is made
    /// again from the store when it is asked for. The one in use stays, whatever its size.
    pub memory_bytes_max: Bytes,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self {
            model: None,
            name: None,
            prompt_price: None,
            threads: 2,
            tasks_max: 2,
            waiting_max: 64,
            fragment_tokens: 256,
            corpora_max: 100,
            documents_max: 10_000,
            fragments_max: 50_000,
            bytes_max: Bytes(256 << 20),
            tenant_bytes_max: Bytes(2 << 30),
            document_bytes_max: Bytes(4 << 20),
            query_bytes_max: Bytes(64 << 10),
            results_max: 100,
            memory_bytes_max: Bytes(1 << 30),
        }
    }
}

impl RetrievalConfig {
    /// What the embedding model is called.
    pub fn model_name(&self) -> String {
        let folder = self.model.as_deref().and_then(Path::file_name);
        let named = || folder.map(|name| name.to_string_lossy().into_owned());
        self.name.clone().or_else(named).unwrap_or_else(|| "embedder".into())
    }

    /// What tokens cost that are embedded.
    pub fn prices(&self) -> TokenPrices {
        self.price_settings().within(PriceSettings::default())
    }

    fn price_settings(&self) -> PriceSettings {
        PriceSettings { prompt: self.prompt_price, ..PriceSettings::default() }
    }

    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("retrieval.threads", self.threads as u64),
            ("retrieval.tasks_max", self.tasks_max as u64),
            ("retrieval.fragment_tokens", self.fragment_tokens as u64),
            ("retrieval.corpora_max", self.corpora_max),
            ("retrieval.documents_max", self.documents_max),
            ("retrieval.fragments_max", self.fragments_max),
            ("retrieval.bytes_max", self.bytes_max.0),
            ("retrieval.tenant_bytes_max", self.tenant_bytes_max.0),
            ("retrieval.document_bytes_max", self.document_bytes_max.0),
            ("retrieval.query_bytes_max", self.query_bytes_max.0),
            ("retrieval.results_max", self.results_max as u64),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(super::invalid(field, "must be positive")),
            None => self.price_settings().validate("retrieval"),
        }
    }
}
