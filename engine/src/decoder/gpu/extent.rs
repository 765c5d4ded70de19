//! How large a step is, as its kernels and their memory see it.

/// What the kernels of a step are launched over.
#[derive(Clone, Copy)]
pub(super) struct StepExtent {
    /// Rows of activations.
    pub(super) tokens: usize,
    /// Rows whose hidden states are kept: those that are sampled, and those before targets.
    pub(super) sampled: usize,
    /// Whether these are all rows, in their order: as many of them may lie in another one, where prompts are scored.
    pub(super) in_order: bool,
    /// Blocks of threads for tasks of few rows, and of many.
    pub(super) flat: usize,
    pub(super) tall: usize,
    /// Whether any token's attention is made of several results.
    pub(super) merges: bool,
}
