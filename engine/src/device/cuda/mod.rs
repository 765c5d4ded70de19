//! CUDA: kernels of our own, and the seam behind which a driver runs them.
//!
//! [`Gpu`] is all that the decoder asks of a driver: memory, kernels by name, products, sums over ranks. A
//! [`CudaDevice`] is the real one, opened by a [`CudaRuntime`], whose libraries are looked for at run time,
//! so that one binary serves machines with and without a GPU. The tests have another, which runs the same
//! kernels on the processor.

mod cuda_device;
mod error;
mod four_bits;
mod gpu;
mod kernels;
mod runtime;
mod split;

pub use cuda_device::{CudaDevice, GpuInfo, device_count, gpu_info, missing_libraries};
pub use error::CudaError;
pub(crate) use four_bits::{LANE_INPUTS, Q4_ROWS, pack_q4, unpacking_blocks};
pub use gpu::{
    Address, Buffer, Element, Factors, Gate, Gpu, GpuError, Graph, Grid, HostBuffer, Linear, Scales,
};
pub(crate) use gpu::{
    FEW_ROWS, PRODUCT_DEPTH, SMALL_PRODUCT_DEPTH, product_grid, product_ring, recorded_rows,
};
pub(crate) use kernels::{Args, kernel_names, source_of};
pub use kernels::{KernelSet, source};
pub use runtime::CudaRuntime;
pub(crate) use split::split_cluster;
