//! How large a step is, as its kernels and their memory see it.

/// What the kernels of a step are launched over.
#[derive(Clone, Copy)]
pub(super) struct StepExtent {
    /// Rows of activations.
    pub(super) tokens: usize,
    /// Rows whose hidden states are kept: those before targets, and those that are sampled.
    pub(super) sampled: usize,
    /// Whether these are all rows, in their order: then they stay where they are.
    pub(super) keeps_all: bool,
    /// Blocks of threads for tasks of few rows, and of many.
    pub(super) flat: usize,
    pub(super) tall: usize,
    /// Whether any token's attention is made of several results.
    pub(super) merges: bool,
}
