//! `ai_retrieve`: the fragments of a tenant's corpus that are most like the rows' texts.

use std::sync::Arc;

use actix_web::web::Data;
use base::TenantId;
use futures_util::StreamExt as _;
use ir::Cell;
use serde_json::json;
use serving::error::RequestError;
use sql::runner::{CorpusSearch, Outcome, RowAnswer, RunError, Tokens};
use tokio::sync::mpsc::UnboundedSender;

use crate::services::corpora;
use crate::state::App;

/// Looks rows up, as many at a time as the embedding model takes; each failure is its row's.
pub(super) async fn look_up(
    app: Data<App>,
    (tenant, search, known_only): (TenantId, CorpusSearch, bool),
    rows: Vec<(u64, Vec<Cell>)>,
    answers: UnboundedSender<RowAnswer>,
) {
    let tasks_max = app.config.retrieval.tasks_max.max(1);
    let (app, search) = (app.into_inner(), &search);
    let found = futures_util::stream::iter(rows).map(|(id, cells)| {
        let app = Arc::clone(&app);
        async move {
            if known_only {
                return (id, Outcome::Unknown);
            }
            let text = cells.first().map_or_else(String::new, |cell| cell.text().into_owned());
            let found = corpora::retrieve(&app, tenant, &search.corpus, &text, search.count).await;
            let outcome = match found {
                Ok(texts) => {
                    Outcome::text(json!(texts.iter().map(|text| &**text).collect::<Vec<_>>()).to_string())
                }
                Err(error) => failed(&error),
            };
            (id, outcome)
        }
    });
    let mut found = found.buffer_unordered(tasks_max);
    while let Some((id, outcome)) = found.next().await {
        let is_computed = outcome != Outcome::Unknown;
        if answers.send(RowAnswer { id, outcome, tokens: Tokens::default(), is_computed }).is_err() {
            return;
        }
    }
}

/// What becomes of a row whose search fails.
fn failed(error: &RequestError) -> Outcome {
    match error {
        // No word about the row: a table made of such NULLs would look complete.
        RequestError::TenantBudget { .. }
        | RequestError::TooLarge { .. }
        | RequestError::ModelNotFound { .. }
        | RequestError::ShuttingDown => Outcome::Stopped(RunError::caused_by(error.clone())),
        _ => Outcome::Failed(error.to_string()),
    }
}
