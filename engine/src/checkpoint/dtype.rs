//! The types that single elements of a tensor are stored in.

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision: half the memory of `f32`. On the processor widened by its kernels, which gives
    /// the same answers to the bit, but for `isa` `avx512fp16`, which rounds activations to such numbers and sums up
    /// a few products as such; a GPU rounds activations too, and keeps keys and values as bf16.
    F16,
    /// The upper half of a single.
    Bf16,
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}
