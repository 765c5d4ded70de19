//! How likely the tokens of rows' prompts were, and tokens that are named in place of an answer's: kept from when it is
//! told until the one reply that tells it is written, and counted against a bound for so long. Must not know HTTP.

use std::sync::Arc;

use base::{Millis, PromptToken};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{AnswerRow, RelQueryState};
use crate::error::RequestError;

/// Log probabilities of prompts, and of named tokens, that one request may ask for. Each has some hundred bytes until the
/// reply is sent.
pub const SCORES_MAX: u64 = 131_072;

/// Those of all requests for a model that are not answered yet.
const TOGETHER_MAX: u64 = 4 * SCORES_MAX;

/// What requests for a model may have in memory together of log probabilities of prompts and of named tokens.
#[derive(Debug)]
pub struct ScoresBudget(Arc<Semaphore>);

impl Default for ScoresBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOGETHER_MAX as usize)))
    }
}

impl ScoresBudget {
    /// So many as a relQuery asks for, while it is held. Lines of a batch take as much as one request may at most: what
    /// is told of each is given up as it ends.
    pub(crate) fn take(&self, asked: u64) -> Result<Option<OwnedSemaphorePermit>, RequestError> {
        if asked == 0 {
            return Ok(None);
        }
        let permit = Arc::clone(&self.0).try_acquire_many_owned(asked.min(SCORES_MAX) as u32);
        permit.map(Some).map_err(|_| RequestError::Busy {
            what: "log probabilities of prompts' tokens and of named ones are asked for at once",
            limit: TOGETHER_MAX.to_string(),
            retry_after: Millis(1_000),
        })
    }
}

impl RelQueryState {
    /// Holds what its rows take of the budget until they are forgotten.
    pub(crate) fn hold_scores(&self, permit: Option<OwnedSemaphorePermit>) {
        self.read().scores = permit.map(Arc::new);
    }

    /// Further tokens of a row's prompt, and how likely they were: nobody reads those of a relQuery that is over.
    pub fn keep_prompt(&self, index: u32, tokens: Arc<[PromptToken]>) {
        let mut state = self.read();
        if !state.is_over() {
            state.rows[index as usize].prompt.push(tokens);
        }
    }

    /// Forgets how likely the tokens of its prompts were, and where it takes of the budget those of its answers; how
    /// many rows it has.
    pub(crate) fn forget_scores(&self) -> usize {
        let mut state = self.read();
        let is_counted = state.scores.take().is_some();
        let forget = |row: &mut AnswerRow| {
            let answer = if is_counted { std::mem::take(&mut row.logprobs) } else { Vec::new() };
            (std::mem::take(&mut row.prompt), answer)
        };
        let scores: Vec<_> = state.rows.iter_mut().map(forget).collect();
        // There may be many: they are freed once it is not locked any more.
        drop(state);
        scores.len()
    }
}

impl AnswerRow {
    /// The tokens of its prompt, where it was asked how likely they were.
    pub fn prompt_tokens(&self) -> impl Iterator<Item = &PromptToken> + Clone {
        self.prompt.iter().flat_map(|piece| &piece[..])
    }
}

#[cfg(test)]
mod tests {
    use base::{Logprob, RelQueryId, TenantId, Time, TokenLogprob};

    use super::*;
    use crate::relquery_state::{Arrival, RelQueryKind};

    #[test]
    fn what_is_in_memory_together_is_bounded_and_given_back_when_it_is_forgotten() {
        let budget = ScoresBudget::default();
        let take = || budget.take(SCORES_MAX);
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let relqueries: Vec<_> = (0..4)
            .map(|id| RelQueryState::new(RelQueryId(id), TenantId(1), RelQueryKind::RelQuery, 1, arrival))
            .collect();
        for relquery in &relqueries {
            relquery.hold_scores(take().expect("there is room"));
        }
        assert!(budget.take(1).is_err());
        let error = take().expect_err("there is none").to_string();
        assert!(error.contains("more than 524288 log probabilities"), "{error}");
        assert!(budget.take(0).expect("it needs none").is_none());
        let chosen = Logprob { id: None, token: "a".into(), logprob: -0.5, bytes: None };
        let told = TokenLogprob { chosen, is_hidden: false, top: Vec::new() };
        relqueries[2].keep_logprobs(0, std::slice::from_ref(&told));
        assert_eq!(relqueries[2].forget_scores(), 1);
        assert!(relqueries[2].read().rows[0].logprobs.is_empty(), "they were counted");
        let plain = RelQueryState::new(RelQueryId(9), TenantId(1), RelQueryKind::RelQuery, 1, arrival);
        plain.keep_logprobs(0, &[told]);
        plain.forget_scores();
        assert_eq!(plain.read().rows[0].logprobs.len(), 1, "nobody counted them");
        let many = budget.take(9 * SCORES_MAX);
        assert!(many.expect("they take as much as one request may").is_some());
        assert!(take().is_ok(), "what was given back is there again");
    }
}
