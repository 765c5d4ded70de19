//! What can be wrong with a plan as a whole, and with one row of it.

use base::{Bytes, TextError, TokenCount};

use crate::template::TemplateError;

/// A plan that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IrError {
    /// The template does not parse or does not fit the table.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The chat template refuses the conversation.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Messages for a model that has no chat template.
    #[error("the model has no chat template: send a raw prompt (`chat`: false)")]
    NoChatTemplate,
    /// Text beside messages: no chat template says where it belongs.
    #[error("a prompt is either messages or raw text, not both")]
    MixedPrompt,
    /// A tree that the exact lowering cannot express.
    #[error("unsupported plan: {0}")]
    Unsupported(&'static str),
    /// A plan that generates nothing.
    #[error("the plan has no `generate`")]
    NoGenerate,
    /// More rows than a relQuery can number.
    #[error("{rows} rows are more than the {limit} a relQuery can have")]
    TooManyRows {
        /// Rows sent.
        rows: usize,
        /// Most rows possible.
        limit: u32,
    },
    /// A table (built by hand) in which some input row is answered twice or never.
    #[error("input row {row} is answered {times} times")]
    RowMap {
        /// The input row.
        row: u32,
        /// How many rows of the table answer it.
        times: usize,
    },
}

/// What is wrong with one row. Its neighbours are unaffected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowProblem {
    /// Ragged row.
    #[error("the row has {found} cells, the table has {expected} columns")]
    CellCount {
        /// Cells of the row.
        found: usize,
        /// Columns of the table.
        expected: usize,
    },
    /// Nothing but white space is left after filling the template.
    #[error("the prompt is empty after filling the template")]
    EmptyPrompt,
    /// The chat template refuses what the row makes of it.
    #[error("the model's chat template refuses the conversation: {0}")]
    Template(String),
    /// Too much text to even tokenize.
    #[error("the filled prompt has {found} bytes, the limit is {limit}", found = found.0, limit = limit.0)]
    TooManyBytes {
        /// Bytes of the filled template.
        found: Bytes,
        /// Most bytes.
        limit: Bytes,
    },
    /// The prompt and the output asked for exceed the context.
    #[error(
        "the prompt's {prompt} and `max_tokens` {output} exceed the context of {context}",
        output = output_max.0
    )]
    TooLong {
        prompt: TokenCount,
        /// Output asked for.
        output_max: TokenCount,
        /// Most tokens of prompt and output together.
        context: TokenCount,
    },
}
