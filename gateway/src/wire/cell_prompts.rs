//! `POST /v1/cells/prompts` on the wire: what calls are sent to the model as.

use serde::Serialize;
use serving::model::Model;
use serving::submit::Prepared;
use utoipa::ToSchema;

use crate::error::ErrorObject;

/// A prompt, or why there is none.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct CellPrompt {
    /// Its text, without special tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Its tokens, special ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// The most tokens that its answer can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    /// Why the call cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject>,
}

/// The prompts of calls.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CellPromptsReply {
    /// Always `cells.prompts`.
    object: &'static str,
    /// The model.
    model: String,
    /// The prompts in the order of the calls.
    prompts: Vec<CellPrompt>,
}

impl CellPromptsReply {
    /// Of calls that were made ready to run.
    pub fn new(work: &Prepared, model: &Model) -> Self {
        let mut prompts = vec![CellPrompt::default(); work.rows];
        for row in work.parts.iter().flat_map(|part| &part.rows) {
            for index in &row.targets {
                prompts[*index as usize] = CellPrompt {
                    text: Some(model.text.decode(&row.item.prompt)),
                    tokens: Some(row.item.prompt.len() as u64),
                    max_tokens: Some(row.item.generation.output_max.0),
                    error: None,
                };
            }
        }
        for (index, error) in &work.failed {
            let error = Some(crate::error::body(error).error);
            prompts[*index as usize] = CellPrompt { error, ..CellPrompt::default() };
        }
        Self { object: "cells.prompts", model: model.name.clone(), prompts }
    }
}
