//! What the gateway knows of the model it serves: names, limits, and text to tokens and back.
//!
//! Made from the engine's checkpoint or by a test; the rest of the gateway never asks which.

use std::sync::Arc;

use base::{ChatTemplate, ConstraintCompiler, PromptEnd, SectionReuse, TokenCount, TokenId, Tokenizer};
use ir::Tags;

use crate::config::PromptForm;
use crate::replicas::text::{PlainText, PromptText};

/// Text and tokens of a model, chat template included.
pub trait Text: Tokenizer + ChatTemplate {}

impl<T: Tokenizer + ChatTemplate> Text for T {}

/// How a checkpoint wants to be sampled where the caller does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    pub temperature: f32,
    /// Nucleus.
    pub top_p: f32,
    /// Most likely tokens kept.
    pub top_k: Option<u32>,
}

/// What runs the model's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The local engine alone.
    Engine,
    /// Several replicas, which take prompts in this form.
    Fleet(PromptForm),
}

/// What the replicas of a fleet can do. Asked for each request: they come and go, and a fleet may begin without any.
pub trait ReplicaLimits: Send + Sync {
    /// Whether all that there may be say how likely the tokens of prompts are.
    fn can_score(&self) -> bool;
    /// Most tokens that one of them holds of a row, its prompt and its longest output, or one held that left lately.
    /// None: no limit is known.
    fn row_tokens_max(&self) -> Option<TokenCount>;
    /// The same of those that get rows now. None: no limit, or none gets any.
    fn serving_tokens_max(&self) -> Option<TokenCount>;
}

/// The served model.
#[derive(Clone)]
pub struct Model {
    /// The name clients see.
    pub name: String,
    /// Other names that they may ask for it by.
    pub aliases: Vec<String>,
    /// Family and size, for people.
    pub description: String,
    /// Whether it answers functions only where it picks among given answers: what it would write is nonsense.
    pub picks_only: bool,
    /// Whether it was trained on the functions' bare prompts: examples and calibration would lead it astray.
    pub knows_bare_prompts: bool,
    /// Text to tokens and back.
    pub text: Arc<dyn Text>,
    /// Whether the checkpoint brings a chat template.
    pub has_chat: bool,
    /// Compiles what outputs are held to; absent where the executor cannot hold them to anything.
    pub constraints: Option<Arc<dyn ConstraintCompiler>>,
    /// Longest prompt and output together.
    pub context_max: TokenCount,
    /// Token ids are below this.
    pub vocab: u32,
    /// Identity of weights and tokenizer; every cache is keyed by it.
    pub revision: u128,
    /// Blocks of the KV pool.
    pub kv_blocks: u32,
    /// Blocks of the host tier behind it.
    pub host_kv_blocks: u32,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Where keys of independent sections can be read.
    pub reuse: SectionReuse,
    /// Whether its engine says how likely the tokens of prompts are; true where it has none of its own.
    pub scores_prompts: bool,
    /// What its replicas can do, where it has any.
    pub replicas: Option<Arc<dyn ReplicaLimits>>,
    /// Sampling where the caller does not say.
    pub defaults: Defaults,
    /// When it was loaded, unix seconds.
    pub created: u64,
    /// What runs its rows.
    pub runs: Runs,
}

impl Model {
    /// The markup of messages, or why it has none.
    pub fn tags(&self) -> Result<Tags, String> {
        match self.has_chat {
            true => Tags::of(&*self.text, &*self.text).map_err(|error| error.to_string()),
            false => Err("the model has no chat template: it knows no system, user or assistant".into()),
        }
    }

    /// Whether this is what a client means that asks for a model by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Whether token ids mean anything to a caller.
    pub fn has_ids(&self) -> bool {
        self.runs != Runs::Fleet(PromptForm::Messages)
    }

    /// Whether sections of a prompt are computed apart, each seeing only itself. Only the local engine does
    /// that: where servers run rows, prompts made of modules and spans are sent as plain ones.
    pub fn has_sections(&self) -> bool {
        self.runs == Runs::Engine
    }

    /// Refuses a prompt that cannot be sent to those that run it: servers that take messages take no text
    /// outside of them, and answer them.
    pub fn check_prompt(&self, tokens: &[TokenId]) -> Result<(), String> {
        match self.runs {
            Runs::Fleet(PromptForm::Messages) => match PlainText::said(tokens)? {
                PromptText::Text(_) | PromptText::Messages(_, PromptEnd::Answer) => Ok(()),
                PromptText::Messages(_, PromptEnd::Message | PromptEnd::Text) => {
                    Err("the prompt does not end where an answer begins".into())
                }
            },
            Runs::Fleet(PromptForm::Tokens) | Runs::Engine => Ok(()),
        }
    }

    /// Whether all that may run its rows say how likely the tokens of prompts are.
    pub fn can_score_prompts(&self) -> bool {
        self.scores_prompts && self.replicas.as_ref().is_none_or(|replicas| replicas.can_score())
    }

    /// Tokens of which it may be told how likely they are, of a prompt that has these here.
    pub fn scored_tokens(&self, prompt: &[TokenId]) -> u64 {
        match self.runs {
            Runs::Fleet(PromptForm::Messages) => PlainText::tokens_max(prompt),
            Runs::Fleet(PromptForm::Tokens) | Runs::Engine => prompt.len() as u64,
        }
    }

    /// Tokens of the whole KV pool, or of what the largest of its replicas holds.
    pub fn kv_tokens(&self) -> u64 {
        let pool = u64::from(self.kv_blocks) * u64::from(self.block_tokens);
        let largest = self.replicas.as_ref().and_then(|replicas| replicas.row_tokens_max());
        largest.map_or(pool, |tokens| pool.min(tokens.0))
    }

    /// Tokens that an answer may have behind a prompt of so many: what the largest replica in service leaves, that the
    /// row need not wait for one that is away; of all that are known where the prompt fits no other.
    pub fn answer_room(&self, prompt: u64) -> u64 {
        let known = self.context_max.0.min(self.kv_tokens());
        let serving = self.replicas.as_ref().and_then(|replicas| replicas.serving_tokens_max());
        let serving = serving.map(|tokens| tokens.0.min(known)).filter(|room| *room > prompt);
        serving.unwrap_or(known).saturating_sub(prompt)
    }
}
