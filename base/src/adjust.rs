//! What a row has done to its logits before a token is drawn from them: plain data. The engine does it.

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::units::TokenCount;

/// Changes of logits, in the order in which they are made. The default changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogitAdjustments {
    /// Output tokens before which neither an end token nor a stop token is drawn.
    pub output_min: TokenCount,
    /// Added to the logits of single tokens. Ordered by token, none twice.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The only tokens that are drawn; `None`: all may be. Ordered, none twice, never empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<TokenId>>,
    /// Positive logits of tokens that the prompt or the output has are divided by it, others multiplied. Above 0.
    pub repetition_penalty: f32,
    /// Subtracted once for each time that the output has the token.
    pub frequency_penalty: f32,
    /// Subtracted once where the output has the token.
    pub presence_penalty: f32,
    /// Tokens whose probability at the row's temperature is less than this share of the likeliest's are not drawn;
    /// 0 to 1.
    pub min_p: f32,
}

impl Default for LogitAdjustments {
    fn default() -> Self {
        Self {
            output_min: TokenCount(0),
            logit_bias: Vec::new(),
            allowed: None,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            min_p: 0.0,
        }
    }
}

impl LogitAdjustments {
    /// Whether they depend on the tokens of the prompt.
    pub fn needs_prompt(&self) -> bool {
        self.repetition_penalty != 1.0
    }

    /// Whether they depend on the tokens of the output.
    pub fn needs_output(&self) -> bool {
        self.needs_prompt() || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }
}
