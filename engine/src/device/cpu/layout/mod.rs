//! How operands lie in memory: weights in panels, rows of activations in blocks, keys and values in strips.
//!
//! Plain data and the functions that put numbers in their places. Nothing here knows an instruction set or a
//! kernel.

pub(super) mod aligned;
pub(super) mod blocks;
pub(super) mod bytes;
pub(super) mod groups;
pub(super) mod halves;
pub(super) mod nibbles;
pub(super) mod packed;
pub(super) mod pairs;
pub(super) mod strip;
pub(super) mod tiles;
pub(super) mod wide;
