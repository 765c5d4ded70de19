//! Token counts on the wire, in every reply; OpenAI's names where it has them.

use serde::Serialize;
use serving::relquery_state::{State, Usage};
use utoipa::ToSchema;

/// Prompt tokens that cost nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct PromptDetails {
    /// Prompt tokens that were not computed for this answer.
    pub cached_tokens: u64,
    /// Of those, tokens whose keys and values saw all that stands before them: answers are the same without.
    pub exact_tokens: u64,
    /// The others: of modules, which were computed seeing only themselves. An approximation, where it was
    /// asked for.
    pub shifted_tokens: u64,
    /// Prompt tokens that are wanted twice: in a module or span that saw only itself, and again, computed where
    /// they stand. `cached_tokens` and `computed_tokens` add up to the prompt's tokens and these.
    #[serde(skip_serializing_if = "crate::wire::is_zero")]
    pub repaired_tokens: u64,
}

/// Tokens of a row or a request.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct UsageReply {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Output tokens.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Prompt tokens really computed.
    pub computed_tokens: u64,
    /// Of the prompt tokens, those that were not.
    pub prompt_tokens_details: PromptDetails,
    /// Rows answered from the result cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_from_cache: Option<u64>,
    /// Rows that shared another row's run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_deduplicated: Option<u64>,
}

impl From<Usage> for UsageReply {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt.0,
            completion_tokens: usage.output.0,
            total_tokens: usage.prompt.0 + usage.output.0,
            computed_tokens: usage.computed.0,
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached.0,
                exact_tokens: usage.exact().0,
                shifted_tokens: usage.shifted.0,
                repaired_tokens: usage.repaired.0,
            },
            rows_from_cache: None,
            rows_deduplicated: None,
        }
    }
}

impl From<&State> for UsageReply {
    fn from(state: &State) -> Self {
        Self {
            rows_from_cache: Some(state.from_cache as u64),
            rows_deduplicated: Some(state.deduplicated as u64),
            ..Self::from(state.usage)
        }
    }
}
