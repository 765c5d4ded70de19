//! Where a decoder's fused operations run: two twins, the processor and NVIDIA's GPUs.
//!
//! Nothing here knows of requests, blocks or layers: numbers come in and go out. The only `unsafe` is below.

pub mod cpu;
pub mod cuda;

pub use cpu::{Activation, Cpu, Format, Isa, LeftOperand, Limits, Matrix, Operand, Scratch};
