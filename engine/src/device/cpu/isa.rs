//! Which instructions the processor has, found at run time.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;

use serde::{Deserialize, Serialize};

use super::kernels::amx;

/// A set of kernels; each has all that those above it in this list need which are for the same processors, but for
/// [`Self::Avx512Fp16`]: not every processor that multiplies pairs of bf16 has half floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// Plain Rust, and the reference for the others.
    Portable,
    /// 128-bit vectors of ARM's processors.
    Neon,
    /// The same that multiply eight-bit integers, four at a time.
    NeonDotprod,
    /// The same that multiply eight-bit integers of two rows with two outputs', eight at a time.
    NeonI8mm,
    /// 256-bit vectors with fused multiply-add and half-float conversion.
    Avx2,
    /// 512-bit vectors.
    Avx512,
    /// 512-bit vectors that multiply eight-bit integers, four at a time.
    Avx512Vnni,
    /// 512-bit vectors that multiply half floats: weights kept as bf16 or f16 lie as such under a power of two for each
    /// output, and meet activations rounded to such.
    Avx512Fp16,
    /// 512-bit vectors that multiply pairs of bf16: weights kept as bf16 meet activations rounded to bf16.
    Avx512Bf16,
    /// The same pairs on a matrix unit, and eight-bit integers of many rows where that was timed to be faster.
    Amx,
}

impl Isa {
    /// All of them, the best last.
    pub const ALL: [Self; 10] = [
        Self::Portable,
        Self::Neon,
        Self::NeonDotprod,
        Self::NeonI8mm,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Vnni,
        Self::Avx512Fp16,
        Self::Avx512Bf16,
        Self::Amx,
    ];

    /// Those that this machine has, the best last.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The best one that this machine has, which need not be the fastest: [`super::Cpu::new`] takes that one.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDotprod => Self::Neon.is_available() && is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm => Self::NeonDotprod.is_available() && is_aarch64_feature_detected!("i8mm"),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon | Self::NeonDotprod | Self::NeonI8mm => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Self::Avx2.is_available() && is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => Self::Avx512.is_available() && is_x86_feature_detected!("avx512vnni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Fp16 => Self::Avx512Vnni.is_available() && is_x86_feature_detected!("avx512fp16"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => Self::Avx512Vnni.is_available() && is_x86_feature_detected!("avx512bf16"),
            Self::Amx => Self::Avx512Bf16.is_available() && amx::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Avx512Vnni | Self::Avx512Fp16 | Self::Avx512Bf16 => false,
        }
    }

    /// Whether a product with weights kept as bf16 rounds its activations to bf16 too, as a matrix unit does.
    pub fn rounds_activations(self) -> bool {
        self >= Self::Avx512Bf16
    }

    /// Whether a product with weights kept as bf16 or f16 rounds both to half floats.
    pub fn multiplies_halves(self) -> bool {
        self == Self::Avx512Fp16
    }

    /// Outputs of a product computed side by side: the width of a packed panel of weights.
    pub fn panel(self) -> usize {
        match self {
            Self::Portable | Self::Neon | Self::NeonDotprod | Self::NeonI8mm | Self::Avx2 => 16,
            Self::Avx512 | Self::Avx512Vnni | Self::Avx512Fp16 | Self::Avx512Bf16 | Self::Amx => 32,
        }
    }

    /// Most rows of one tile of vectors: what the registers hold as accumulators beside weights.
    pub fn rows_max(self) -> usize {
        match self {
            Self::Portable => 4,
            Self::Neon | Self::NeonDotprod | Self::NeonI8mm | Self::Avx2 => 6,
            Self::Avx512 | Self::Avx512Vnni | Self::Avx512Fp16 | Self::Avx512Bf16 | Self::Amx => 12,
        }
    }
}
