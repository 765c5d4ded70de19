//! Which instructions the processor has, found at run time.

/// A set of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, and the reference for the others.
    Portable,
    /// 256-bit vectors with fused multiply-add and half-float conversion.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl Isa {
    /// The best one that this machine has.
    pub fn detect() -> Self {
        [Self::Avx512, Self::Avx2].into_iter().find(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Self::Avx2.is_available() && is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Outputs of a product computed side by side: the width of a packed panel of weights.
    pub fn panel(self) -> usize {
        match self {
            Self::Portable | Self::Avx2 => 16,
            Self::Avx512 => 32,
        }
    }

    /// Most rows of one tile: what the registers hold as accumulators beside weights.
    pub fn rows_max(self) -> usize {
        match self {
            Self::Portable => 4,
            Self::Avx2 => 6,
            Self::Avx512 => 12,
        }
    }
}
