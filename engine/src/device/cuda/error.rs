//! Why a GPU cannot be opened: what is missing, and where it is to be had.

use super::GpuError;

/// Why a GPU cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    #[error("no NVIDIA driver was found (libcuda.so.1)")]
    NoDriver,
    /// A library that belongs to it is missing.
    #[error("{library} was not found; {remedy}")]
    NoLibrary {
        library: &'static str,
        /// Where it is to be had.
        remedy: &'static str,
    },
    /// There are fewer GPUs.
    #[error("there is no GPU {ordinal}, the driver finds {count}")]
    NoDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// It is too old for the kernels.
    #[error("GPU {ordinal} has compute capability {major}.{minor}, the kernels need 8.0")]
    TooOld {
        /// Its number.
        ordinal: usize,
        /// Its capability.
        major: i32,
        /// Its capability.
        minor: i32,
    },
    /// The kernels do not compile.
    #[error("the kernels do not compile: {0}")]
    Kernels(String),
    /// Something of the driver or a library failed.
    #[error("{0}")]
    Failed(#[from] GpuError),
}
