//! What a decoder needs to know of a checkpoint, whatever family it comes from.
//!
//! Families differ by the values of [`ModelConfig`] only; the decoder has no branch on names.

/// Which Hugging Face family a checkpoint belongs to; decides tensor names and defaults, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2, Llama 3.
    Llama,
    /// Mistral.
    Mistral,
    /// Qwen2, Qwen2.5.
    Qwen2,
    /// Qwen3.
    Qwen3,
    /// OPT.
    Opt,
}

impl Family {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Opt => "opt",
        }
    }
}

/// A layer's normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// Root mean square, with weight.
    Rms {
        /// Added to the mean square.
        epsilon: f32,
    },
    /// Mean and variance, with weight and bias.
    Layer {
        /// Added to the variance.
        epsilon: f32,
    },
}

/// Rescaling of rotary frequencies for long contexts (`rope_scaling` of config.json).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Llama 3: low frequencies divided, high ones kept, a smooth step between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f32,
        /// Below this many turns over the original context a frequency is low.
        low_freq_factor: f32,
        /// Above this many turns it is high.
        high_freq_factor: f32,
        /// Context the model was trained on first.
        original_context: u32,
    },
    /// Every frequency divided by its own factor, which the weights bring (GGUF: `rope_freqs.weight`).
    Stored,
}

/// How positions enter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Position {
    /// Queries and keys are rotated (half-split pairs, as Hugging Face stores them).
    Rotary {
        /// Base of the frequencies.
        theta: f32,
        /// Their rescaling.
        scaling: RopeScaling,
    },
    /// A learned vector per position is added to the embedding.
    Learned {
        /// Rows of the table before position 0 (OPT: 2).
        offset: u32,
    },
}

/// The feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// `down(silu(gate(x)) * up(x))`.
    GatedSilu,
    /// `fc2(relu(fc1(x)))`.
    PlainRelu,
}

/// Everything the decoder is parameterised by.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Its family.
    pub family: Family,
    /// Rows of the embedding (may exceed the tokenizer's ids: padding).
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of embedding and head where it differs from `hidden` (OPT-350m), else equal.
    pub embedding: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; `heads * head_dim` may differ from `hidden` (Qwen3).
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub intermediate: usize,
    /// Normalisation.
    pub norm: Norm,
    /// Normalise before each block (all but OPT-350m) or after it.
    pub norm_first: bool,
    /// Whether a last normalisation precedes the head.
    pub final_norm: bool,
    /// Positions.
    pub position: Position,
    /// Feed-forward kind.
    pub mlp: Mlp,
    /// Query, key and value projections have biases.
    pub qkv_bias: bool,
    /// The attention's output projection has a bias.
    pub out_bias: bool,
    /// The feed-forward projections have biases.
    pub mlp_bias: bool,
    /// Queries and keys are RMS-normalised per head before rotation (Qwen3).
    pub qk_norm: bool,
    /// The head is the embedding.
    pub tied_head: bool,
    /// Most positions of one request.
    pub context_max: usize,
    /// Tokens a query sees backwards, where limited (Mistral 0.1).
    pub sliding_window: Option<usize>,
}
