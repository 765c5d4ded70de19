//! What a response tells at its end beside its answer: its tokens, or why it failed.

use serde::Serialize;
use serving::relquery_state::Usage;
use utoipa::ToSchema;

use crate::error::ErrorObject;

/// Tokens of a response.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(super) struct ResponseUsage {
    /// Of the prompt.
    input_tokens: u64,
    input_tokens_details: InputDetails,
    /// Of the answer.
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    /// Both.
    total_tokens: u64,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct InputDetails {
    /// Those that were not computed again.
    cached_tokens: u64,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct OutputDetails {
    /// Always 0.
    reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt.0,
            input_tokens_details: InputDetails { cached_tokens: usage.cached.0 },
            output_tokens: usage.output.0,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: usage.prompt.0 + usage.output.0,
        }
    }
}

/// Why a response failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ResponseFailure {
    /// For programs: the code of the error, or its class.
    code: String,
    /// For people.
    message: String,
}

impl ResponseFailure {
    /// Of an error as other replies have it.
    pub(super) fn new(error: ErrorObject) -> Self {
        Self { code: error.code.unwrap_or(error.kind), message: error.message }
    }
}
