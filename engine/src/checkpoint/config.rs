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
    /// MPT.
    Mpt,
    /// Falcon: 7B, 40B, 180B, 11B, and those of RefinedWeb.
    Falcon,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3, text alone.
    Gemma3,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 9] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Opt,
        Self::Mpt,
        Self::Falcon,
        Self::Gemma2,
        Self::Gemma3,
    ];

    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Opt => "opt",
            Self::Mpt => "mpt",
            Self::Falcon => "falcon",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
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
    /// Mean and variance, with weight and, but for MPT, bias.
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
#[derive(Clone, Debug, PartialEq)]
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
    /// Scores fall with distance ([`super::alibi`]).
    Alibi(Alibi),
}

/// How scores fall with distance: by `scale * slope` per position between query and key.
#[derive(Clone, Debug, PartialEq)]
pub struct Alibi {
    /// One per query head.
    pub slopes: Vec<f32>,
    /// What they are multiplied by, all alike.
    pub scale: f32,
    /// A key's position, and its product with a slope, are rounded to bf16 (Falcon).
    pub is_rounded: bool,
}

/// The feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// `down(silu(gate(x)) * up(x))`.
    GatedSilu,
    /// `down(gelu(gate(x)) * up(x))`, with GELU's approximation by tanh.
    GatedGelu,
    /// `fc2(relu(fc1(x)))`.
    PlainRelu,
    /// `fc2(gelu(fc1(x)))`, with GELU as it is defined.
    PlainGelu,
}

impl Mlp {
    /// Whether it has gates.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::GatedSilu | Self::GatedGelu)
    }
}

/// What a layer's feed-forward block reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// The stream with what attention has added to it.
    Sequential,
    /// The stream as attention reads it: both blocks add to the same (Falcon).
    Parallel {
        /// Whether one normalisation serves both blocks, or each has its own.
        shares_norm: bool,
    },
}

/// Which layers a window limits, where it is not all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalLayers {
    /// One per layer.
    pub is_local: Vec<bool>,
    /// Base of their rotary frequencies, which are not rescaled.
    pub theta: f32,
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
    /// Normalise what each block has computed before it is added to the stream, by weights of their own
    /// (Gemma).
    pub post_norms: bool,
    /// Normalisations by mean and variance have a bias.
    pub norm_bias: bool,
    /// A normalisation's weights are stored as what they are above 1 (Gemma's, but not in GGUF).
    pub norm_above_one: bool,
    /// Whether a last normalisation precedes the head.
    pub final_norm: bool,
    /// What the feed-forward block reads.
    pub residual: Residual,
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
    /// Queries, keys and values are held between this and its negative (MPT).
    pub qkv_clip: Option<f32>,
    /// Queries and keys are RMS-normalised per head before rotation (Qwen3, Gemma 3).
    pub qk_norm: bool,
    /// What products of queries and keys are multiplied by; `None`: one over the root of `head_dim`.
    pub score_scale: Option<f32>,
    /// Scores are bent to stay between this and its negative (Gemma 2).
    pub score_cap: Option<f32>,
    /// Embeddings are multiplied by the root of `hidden`, rounded to the type they are stored in (Gemma).
    pub scales_embedding: bool,
    /// The head is the embedding.
    pub tied_head: bool,
    /// Logits are bent to stay between this and its negative (Gemma 2).
    pub logit_cap: Option<f32>,
    /// Most positions of one request.
    pub context_max: usize,
    /// Tokens a query sees backwards, where limited (Mistral 0.1, Gemma).
    pub sliding_window: Option<usize>,
    /// The layers that the window limits; `None`: all of them.
    pub local_layers: Option<LocalLayers>,
}

impl ModelConfig {
    /// What products of queries and keys are multiplied by.
    pub fn scale_of_scores(&self) -> f32 {
        self.score_scale.unwrap_or_else(|| 1.0 / (self.head_dim as f32).sqrt())
    }

    /// Whether layer `layer` is one of those that have a window and frequencies of their own.
    pub fn is_local(&self, layer: usize) -> bool {
        self.local_layers.as_ref().is_some_and(|layers| layers.is_local[layer])
    }

    /// Tokens that a query of layer `layer` sees backwards, where they are limited.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.sliding_window.filter(|_| self.local_layers.is_none() || self.is_local(layer))
    }
}
