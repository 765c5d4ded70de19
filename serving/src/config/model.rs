//! What is served.

use std::path::{Path, PathBuf};

use base::TokenCount;
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, PriceSettings, invalid};

/// What is served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face folder or a GGUF file, or a name that `relserve pull` lists, which `serve` fetches where it is
    /// not there; without it the built-in demo model runs.
    pub dir: Option<PathBuf>,
    /// What the built-in demo model may be asked by a function: what it can do, or all, nonsense included, to try what
    /// is around it.
    pub demo_functions: DemoFunctions,
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
    /// Price of a million prompt tokens, in the same currency for all models and replicas; what tenants' budgets of
    /// money count with. Replicas may have their own. Without any price rows cost nothing.
    pub prompt_price: Option<f64>,
    /// Price of a million prompt tokens that the prefix cache had; by default that of others.
    pub cached_price: Option<f64>,
    /// Price of a million output tokens.
    pub output_price: Option<f64>,
}

/// What the built-in demo model may be asked by a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemoFunctions {
    /// To pick among given answers: labels, ratings, yes or no. The rest is refused.
    #[default]
    Picks,
    /// Anything.
    All,
}

/// What is served, by whichever section says so.
#[derive(Clone, Copy, Debug)]
pub struct ModelSettings<'a> {
    /// A checkpoint for the local engine.
    pub dir: Option<&'a Path>,
    /// See [`ModelConfig::demo_functions`].
    pub demo_functions: DemoFunctions,
    pub name: Option<&'a str>,
    pub aliases: &'a [String],
    /// Makes the prompts of servers that take token ids.
    pub tokenizer: Option<&'a Path>,
    /// Most tokens of a prompt and its output, where only servers run rows.
    pub context_max: Option<TokenCount>,
    /// Whether the executor is measured whatever is stored.
    pub recalibrate: bool,
    /// Where replicas have none of their own.
    pub prices: PriceSettings,
}

impl ModelConfig {
    /// The section's settings.
    pub fn settings(&self) -> ModelSettings<'_> {
        ModelSettings {
            dir: self.dir.as_deref(),
            demo_functions: self.demo_functions,
            name: self.name.as_deref(),
            aliases: &self.aliases,
            tokenizer: self.tokenizer.as_deref(),
            context_max: self.context_max,
            recalibrate: self.recalibrate,
            prices: PriceSettings {
                prompt: self.prompt_price,
                cached: self.cached_price,
                output: self.output_price,
            },
        }
    }
}

impl ModelSettings<'_> {
    /// Refuses names and prices that are none, and aliases that are the model's name or the same twice.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.prices.validate("model")?;
        let mut known: Vec<&str> = Vec::new();
        let aliases = self.aliases.iter().enumerate();
        let aliases = aliases.map(|(index, alias)| (format!("model.aliases[{index}]"), alias.as_str()));
        let name = self.name.map(|name| ("model.name".to_owned(), name));
        for (field, name) in name.into_iter().chain(aliases) {
            if name.is_empty() {
                return Err(invalid(&field, "must not be empty"));
            }
            if name.contains(char::is_control) {
                return Err(invalid(&field, "must hold no control characters"));
            }
            if known.contains(&name) {
                return Err(invalid(&field, "is a name of the model already"));
            }
            known.push(name);
        }
        Ok(())
    }
}
