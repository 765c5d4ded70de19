//! A request of OpenAI's routes that is ready to run, with what its reply needs. Must not know how it is made ready.

use std::sync::Arc;

use serving::label::Label;
use serving::model::Model;
use serving::submit::Prepared;

use crate::services::client_loops::ClientLoop;
use crate::wire::openai::{Api, BestOf, CallReader, LoopHeaders, PromptReply, RowPrompts, UsageChunks};

/// A request, ready to run, and how its client wants the reply.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// The route.
    pub(crate) api: Api,
    /// What to run.
    pub(crate) work: Prepared,
    /// As chunks.
    pub(crate) stream: bool,
    /// Which of them have usage.
    pub(crate) usage: UsageChunks,
    /// Fields that were left out, by their names.
    pub(crate) ignored: Vec<String>,
    /// How calls of tools are read in its answers, where any can be called.
    pub(crate) tools: Option<Arc<CallReader>>,
    /// The prompts of its rows, where ids of tokens are told.
    pub(crate) prompts: Option<RowPrompts>,
    /// What else is told of them.
    pub(crate) prompt: PromptReply,
    /// At which texts its answers end.
    pub(crate) stops: Arc<[String]>,
    /// Which of the answers to each prompt are told, where that is not all.
    pub(crate) best_of: Option<BestOf>,
    /// The loop of its client that it may be of.
    pub(super) client_loop: Option<ClientLoop>,
}

impl PreparedRequest {
    /// The same, for this where it does not say what it is for.
    pub(crate) fn labelled(self, label: Option<Arc<Label>>) -> Self {
        Self { work: self.work.labelled(label.as_ref()), ..self }
    }

    /// The same, to join the rows of its client's loop. What has a deadline of its own goes by that.
    pub(crate) fn joining(mut self, headers: &LoopHeaders) -> Self {
        if self.work.deadline.is_none() {
            let open = self.client_loop.as_ref().and_then(|client_loop| client_loop.open_to(headers));
            self.work.parts.iter_mut().for_each(|part| part.open = open);
        }
        self
    }

    /// Tokens of its prompts, as far as they are known.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        let rows = self.work.parts.iter().flat_map(|part| &part.rows);
        rows.map(|row| row.item.prompt.len() as u64).sum()
    }

    /// Tokens of its prompts of which it may be told how likely they were.
    pub(super) fn scored_tokens(&self, model: &Model) -> u64 {
        let rows = self.work.parts.iter().flat_map(|part| &part.rows);
        rows.map(|row| model.scored_tokens(&row.item.prompt)).sum()
    }

    /// The same, of a loop of its client's, with the names of fields that were left out.
    pub(super) fn of_loop(self, client_loop: ClientLoop, ignored: Vec<String>) -> Self {
        Self { client_loop: Some(client_loop), ignored, ..self }
    }
}
