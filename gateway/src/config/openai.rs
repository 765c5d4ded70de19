//! How OpenAI's routes read requests, and what they keep.

use base::{Bytes, Millis};
use serde::{Deserialize, Serialize};

/// How OpenAI's routes read requests, and what `/v1/responses` keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiConfig {
    /// What becomes of fields that these routes do not know: `warn` leaves them out and names them in the reply's header
    /// `x-relserve-ignored-fields`, `ignore` does not name them, `refuse` is a 400. The same becomes of an output limit above
    /// `limits.output_tokens_max`, which is lowered to it, and of Anthropic's `thinking` and `context_management`, which have
    /// no effect. Any other field that is known, with a value that is not supported, is always refused.
    pub unknown_fields: UnknownFields,
    /// Whether a response is kept where its request does not say so by `store`; `previous_response_id` goes on from one
    /// that is kept.
    pub store_responses: bool,
    /// How long a response is kept.
    pub responses_ms_max: Millis,
    /// Bytes of the responses that one tenant keeps, each with its whole conversation; the oldest go first. One that is
    /// larger alone is not kept, and says so by `store`.
    pub tenant_responses_bytes_max: Bytes,
}

impl Default for OpenAiConfig {
    fn default() -> Self {
        Self {
            unknown_fields: UnknownFields::default(),
            store_responses: true,
            responses_ms_max: Millis(30 * 86_400_000),
            tenant_responses_bytes_max: Bytes(64 << 20),
        }
    }
}

/// What becomes of fields that a route does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFields {
    /// They are refused.
    Refuse,
    /// They are left out, and a header names them.
    #[default]
    Warn,
    /// They are left out.
    Ignore,
}
