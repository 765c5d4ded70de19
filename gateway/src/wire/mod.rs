//! JSON shapes of the public APIs, one file each. They convert to inner types by hand, so that either
//! side changes alone.

pub mod cells;
pub mod constraint;
pub mod openai;
pub mod relquery;
pub mod sampling;
pub mod usage;
