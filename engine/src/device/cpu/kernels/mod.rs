//! The inner loops, each written for one instruction set, or once for all of them as a macro.
//!
//! A kernel knows the layout of its operands and nothing else: which kernel runs is chosen above, by
//! [`super::isa::Isa`], which callers vouch for.

pub(super) mod ahead;
pub(super) mod amx;
pub(super) mod avx2;
pub(super) mod avx2_bytes;
pub(super) mod avx2_nibbles;
pub(super) mod avx512;
pub(super) mod avx512_bf16;
pub(super) mod avx512_fp16;
pub(super) mod avx512_nibbles;
pub(super) mod avx512_vnni;
pub(super) mod by_rows;
pub(super) mod emulated;
pub(super) mod matrix_unit;
pub(super) mod matrix_unit_bytes;
pub(super) mod neon;
pub(super) mod neon_bytes;
pub(super) mod neon_dotprod;
pub(super) mod neon_i8mm;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon_loop;
pub(super) mod portable;
pub(super) mod quantise;
pub(super) mod strip_loop;
pub(super) mod tile_loop;
