//! Rows of eight-bit integers under one scale each, as the pool keeps them.
//!
//! Integers lie in pairs, as bf16 do in [`super::pairs`]; a row's scale, a bf16, takes as many bits as a
//! pair.

use half::bf16;

/// Two integers next to each other; or a scale, in as many bits.
pub(crate) type BytePair = [i8; 2];

/// A scale as it is kept.
pub(crate) fn keep_scale(scale: bf16) -> BytePair {
    scale.to_le_bytes().map(u8::cast_signed)
}

/// A scale that was kept.
#[inline(always)]
pub(crate) fn kept_scale(kept: BytePair) -> f32 {
    // The upper half of a single.
    f32::from_bits(u32::from(u16::from_le_bytes(kept.map(i8::cast_unsigned))) << 16)
}
