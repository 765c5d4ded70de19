//! What is served.

use std::path::PathBuf;

use base::TokenCount;
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, invalid};

/// What is served.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face folder or a GGUF file; without it the built-in demo model runs.
    pub dir: Option<PathBuf>,
    /// The name clients see; by default the checkpoint's own.
    pub name: Option<String>,
    /// Other names that clients may ask for it by; `/v1/models` lists them, and replies carry `name`.
    pub aliases: Vec<String>,
    /// A Hugging Face folder whose tokenizer and chat template make the prompts of a fleet of servers that
    /// take token ids; its weights are not read and need not be there. Without it such a fleet is sent texts.
    pub tokenizer: Option<PathBuf>,
    /// Most tokens of a prompt and its output, where only servers run rows; by default what `tokenizer` says,
    /// or no bound but theirs.
    pub context_max: Option<TokenCount>,
    /// Measure the executor at start even when a measurement for this model and machine is stored.
    pub recalibrate: bool,
}

impl ModelConfig {
    /// Refuses aliases that name nothing, or the same twice.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let mut known: Vec<&String> = self.name.iter().collect();
        for (index, alias) in self.aliases.iter().enumerate() {
            let field = format!("model.aliases[{index}]");
            if alias.is_empty() {
                return Err(invalid(&field, "must not be empty"));
            }
            if known.contains(&alias) {
                return Err(invalid(&field, "is a name of the model already"));
            }
            known.push(alias);
        }
        Ok(())
    }
}
