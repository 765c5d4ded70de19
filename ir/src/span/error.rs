//! What can be wrong with a span query.

/// Why a query cannot be read, rewritten or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// What is wrong, and with which part of the JSON.
    #[error("`{path}`: {reason}")]
    At {
        /// Where: `$.g.input.seq[2].user`.
        path: String,
        reason: String,
    },
    /// Rewriting makes more of a query than is allowed.
    #[error("the rewritten query has {found} {what}; at most {limit} are allowed")]
    TooLarge {
        /// Nodes or bytes of text.
        what: &'static str,
        found: usize,
        /// Most of them.
        limit: usize,
    },
    /// Nothing to call a model for.
    #[error("the query generates nothing: it has no `g`")]
    NoGenerate,
    /// A node that rules take out of the way first.
    #[error("a query with `{0}` in it must be rewritten before it is planned")]
    Sugar(&'static str),
    /// Messages for a model that knows none.
    #[error("the model has no chat template, and a span query is made of messages")]
    NoChatTemplate,
    /// A prompt with more positions than there are.
    #[error("the prompt of call {call} needs more than the {limit} positions that there are")]
    TooLong {
        /// The call's number.
        call: usize,
        /// Positions that there are.
        limit: u32,
    },
}
