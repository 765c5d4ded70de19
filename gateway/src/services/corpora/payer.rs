//! Who pays for what is embedded: what texts take is set aside in the tenant's budgets before, and counted after. The
//! embedding model is one of those that a tenant may use, or may not. Must not know HTTP.

use std::sync::Arc;

use base::TokenCount;
use retrieval::{Embedder, Embedding, Error};
use serving::Runtime;
use serving::account::{Account, Spent};
use serving::budgets::{BudgetAmount, BudgetReservation};
use serving::error::RequestError;
use serving::price::TokenPrices;
use serving::relquery_state::Usage;

use super::embedding::of_retrieval;
use crate::state::App;

/// The tenant that texts are embedded for, and at which prices.
#[derive(Clone)]
pub(super) struct Payer {
    runtime: Arc<Runtime>,
    account: Account,
    prices: TokenPrices,
}

impl Payer {
    /// Refuses a tenant that may not use the embedding model.
    pub(super) fn of(app: &App, account: Account) -> Result<Self, RequestError> {
        let (runtime, retrieval) = (Arc::clone(&app.runtime), &app.config.retrieval);
        runtime.shared.budgets.allows(account.tenant, &retrieval.model_name())?;
        Ok(Self { runtime, account, prices: retrieval.prices() })
    }

    /// Sets aside what groups of texts take, so many tokens each, all together or none; `None` for a tenant without a
    /// budget.
    pub(super) fn set_aside(
        &self,
        groups: impl IntoIterator<Item = u64>,
    ) -> Result<Option<Arc<BudgetReservation>>, RequestError> {
        let most = |tokens: u64| BudgetAmount { tokens, cost: self.prices.cost_max(tokens, 0) };
        let rows = (0..).zip(groups.into_iter().map(most));
        // What takes nothing is let in, however much is spent.
        let rows = rows.filter(|(_, most)| most.tokens > 0).collect();
        let shared = &self.runtime.shared;
        shared.budgets.reserve(self.account.tenant, rows, shared.unix_now(), false)
    }

    /// Counts texts that were embedded.
    pub(super) fn settle(&self, texts: u64, tokens: TokenCount) {
        let usage = Usage { prompt: tokens, computed: tokens, ..Usage::default() };
        let cost = self.prices.cost(usage);
        let shared = &self.runtime.shared;
        shared.accounts.add(self.account, Spent { requests: 1, rows: texts, usage, cost });
        shared.budgets.charge(self.account.tenant, BudgetAmount::of(usage, cost));
        shared.metrics.retrieval.embedded_texts.inc_by(texts);
        shared.metrics.retrieval.embedded_tokens.inc_by(tokens.0);
    }

    /// What it means to the caller that texts were not embedded. Who left midway pays for those that were by then; where the
    /// server ends, nobody does.
    pub(super) fn refused(&self, error: Error) -> RequestError {
        if let Error::Stopped { texts, tokens } = error
            && texts > 0
            && !self.runtime.is_draining()
        {
            self.settle(texts, TokenCount(tokens));
        }
        of_retrieval(error)
    }

    /// The vectors of texts, where the tenant's budgets have room for them.
    pub(super) fn embed(
        &self,
        embedder: &Embedder,
        texts: &[&str],
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Embedding>, RequestError> {
        let tokenized = embedder.tokenize(texts, stop).map_err(of_retrieval)?;
        let tokens = tokenized.tokens();
        let _held = self.set_aside([tokens])?;
        let vectors = embedder.embed_tokenized(tokenized, stop).map_err(|error| self.refused(error))?;
        self.settle(texts.len() as u64, TokenCount(tokens));
        Ok(vectors)
    }
}
