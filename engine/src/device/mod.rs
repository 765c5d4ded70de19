//! Where a decoder's fused operations run.
//!
//! One device today; a second one gets the same operations beside it. Nothing here knows of
//! requests, blocks or layers: slices of numbers come in and go out. The only `unsafe` is below.

pub mod cpu;

pub use cpu::{Activation, Cpu, Format, Isa, Limits, Matrix, Scratch};
