//! The CPU: one thread pool, kernels chosen once by what the processor can do.
//!
//! Every product is the same small tile, `c[m, n] += a[m, k] * b[k, n]` with `n` in vector lanes, so there is
//! no horizontal sum anywhere and an output does not depend on what else is in the batch. Weights are packed
//! for it once; keys and values lie in the pool as a tile of their own, the strip, wants them. Weights kept
//! as bf16 meet activations rounded to bf16 where the processor multiplies such pairs fast. Where it multiplies
//! half floats faster, weights of 16 bits and the activations that they meet become such; elsewhere these weights
//! are widened to single precision. Weights kept as integers, of eight bits or four, meet activations rounded to
//! eight-bit ones, on every processor.
//!
//! Imports point one way: [`layout`] (how operands lie) knows nothing, [`kernels`] (the loops of one
//! instruction set) know layouts, [`isa`] knows which kernels the processor has, and every other file here, a
//! product or an operation on rows, picks a kernel by that and hands it operands. Files import each other by
//! name, never this one.

mod bytes;
mod fastest;
mod finish;
mod groups;
mod groups_on_unit;
mod halves;
mod highest;
mod isa;
mod kernels;
mod layout;
mod limits;
mod matrix;
mod nibbles;
mod on_unit;
mod operand;
mod pack;
mod pairs;
mod per_isa;
mod processor;
mod product;
mod registers;
mod rows;
mod softmax;
mod stored;
mod strip;
mod tiles;
mod wide;

pub(crate) use bytes::{kept_scales, scale, widen};
pub(crate) use highest::KEPT_MAX;
pub use highest::TopK;
pub use isa::Isa;
pub(crate) use kernels::amx::Amx;
#[cfg(test)]
pub(crate) use kernels::emulated::Emulated;
pub(crate) use layout::aligned::Aligned;
pub(crate) use layout::blocks::{LANES, row_blocks};
pub(crate) use layout::bytes::BytePair;
pub(crate) use layout::nibbles::NibbleGroup;
pub(crate) use layout::packed::Packed;
pub(crate) use layout::pairs::Pair;
pub(crate) use layout::strip::SCORES_MAX;
pub use limits::Limits;
pub use matrix::{Activation, Format, Matrix, Scratch};
pub(crate) use on_unit::{OnUnit, fits};
pub use operand::{LeftOperand, Operand};
pub use processor::Cpu;
pub use rows::Norm;
pub(crate) use softmax::{bend, bias_by_distance, bias_by_rounded_distance};
pub(crate) use stored::Stored;
pub(crate) use strip::{
    KeyBlocks, Product, Rounded, STRIP_ROWS, ScaledScores, Singles, Strided, StridedMut, ValueBlocks, Widened,
};
