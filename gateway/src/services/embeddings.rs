//! Vectors of texts that are in no corpus, by the embedding model that corpora have. Must not know HTTP.

use std::sync::Arc;

use base::TenantId;
use retrieval::Embedding;
use serving::account::Account;
use serving::error::RequestError;

use crate::services::corpora;
use crate::state::App;
use crate::wire::embeddings::Texts;

/// Vectors, and the model that they are of.
pub struct Embedded {
    pub model: String,
    pub vectors: Vec<Embedding>,
}

/// The vectors of a tenant's texts, in their order.
pub async fn vectors(
    app: &Arc<App>,
    (tenant, route): (TenantId, &'static str),
    asked: &Texts,
) -> Result<Embedded, RequestError> {
    let model = app.config.retrieval.model_name();
    if let Some(named) = asked.model.as_ref().filter(|named| **named != model) {
        let may_use = app.runtime.shared.budgets.allows(tenant, &model).is_ok();
        return Err(RequestError::unknown_model(named, may_use.then_some(model.as_str()).into_iter()));
    }
    let vectors = corpora::vectors(app, Account { tenant, route }, asked.texts.clone()).await?;
    let cut = vectors.iter().position(|vector| vector.is_truncated && !asked.may_truncate);
    if let Some(place) = cut {
        let reason = "has more tokens than the embedding model reads. Please reduce the length of the input prompt; with \
            `truncate_prompt_tokens: -1` its beginning is taken";
        return Err(RequestError::invalid(asked.name(place), reason));
    }
    Ok(Embedded { model, vectors })
}
