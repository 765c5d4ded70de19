//! Texts of a column to vectors, some at a time: the first answers come before the last text is read.

use std::sync::Arc;

use base::TokenCount;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::runner::{
    Outcome, Row, RowAnswer, Run, RunError, RunOptions, TextEmbedder, TextVector, Tokens, Unsent,
};

/// Texts that are embedded together.
const TEXTS: usize = 128;

/// A column of texts that an embedding model reads. Dropping it stops what runs.
pub(super) struct EmbeddingRun {
    embedder: Result<Arc<dyn TextEmbedder>, RunError>,
    options: RunOptions,
    answers: UnboundedSender<RowAnswer>,
    tasks: JoinSet<()>,
}

impl EmbeddingRun {
    pub(super) fn new(
        embedder: Result<Arc<dyn TextEmbedder>, RunError>,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Self {
        Self { embedder, options, answers, tasks: JoinSet::new() }
    }
}

impl Run for EmbeddingRun {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move {
            let embedder = self.embedder.clone()?;
            while self.tasks.try_join_next().is_some() {}
            if self.options.cached_only {
                // Vectors are not kept beyond a statement.
                for row in rows {
                    tell(&self.answers, row.id, (Outcome::Unknown, TokenCount(0)), false);
                }
                return Ok(());
            }
            self.tasks.spawn(answer_all(embedder, rows, self.answers.clone()));
            Ok(())
        })
    }
}

async fn answer_all(embedder: Arc<dyn TextEmbedder>, rows: Vec<Row>, answers: UnboundedSender<RowAnswer>) {
    for (number, some) in rows.chunks(TEXTS).enumerate() {
        let text = |row: &Row| row.cells.first().map_or_else(String::new, |cell| cell.text().into_owned());
        let mut vectors = match embedder.embed(some.iter().map(text).collect()).await {
            Ok(vectors) => vectors.into_iter(),
            Err(error) => {
                // No word about any of the texts: those of later rows have no vectors either.
                for row in &rows[number * TEXTS..] {
                    tell(&answers, row.id, (Outcome::Stopped(error.clone()), TokenCount(0)), false);
                }
                return;
            }
        };
        for row in some {
            let vector = vectors.next().unwrap_or_else(|| Err("the text got no vector".into()));
            let is_computed = vector.is_ok();
            let outcome = match vector {
                Ok(TextVector { vector, tokens }) => (Outcome::Vector(vector), tokens),
                Err(reason) => (Outcome::Failed(reason), TokenCount(0)),
            };
            tell(&answers, row.id, outcome, is_computed);
        }
    }
}

fn tell(
    answers: &UnboundedSender<RowAnswer>,
    id: u64,
    (outcome, prompt): (Outcome, TokenCount),
    is_computed: bool,
) {
    let tokens = Tokens { prompt, ..Tokens::default() };
    // Whoever asked may be gone.
    let _ = answers.send(RowAnswer { id, outcome, tokens, is_computed });
}
