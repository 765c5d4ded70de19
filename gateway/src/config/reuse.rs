//! How modules and spans that saw only themselves are read in prompts.

use serde::{Deserialize, Serialize};

/// How modules and spans that saw only themselves are read in prompts; of models that the local engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReuseConfig {
    /// First tokens of each module and span that a prompt computes again, seeing all that stands before them;
    /// 0 reads them as they are. A request may say otherwise (`repair_tokens`), and so may a schema (`repair`).
    pub repair_tokens: u32,
}

impl Default for ReuseConfig {
    fn default() -> Self {
        Self { repair_tokens: 16 }
    }
}
