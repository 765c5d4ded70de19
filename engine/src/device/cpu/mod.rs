//! The CPU: one thread pool, kernels chosen once by what the processor can do.
//!
//! Every product is the same small tile, `c[m, n] += a[m, k] * b[k, n]` with `n` in vector lanes, so there
//! is no horizontal sum anywhere and an output does not depend on what else is in the batch. Weights are
//! packed for it once; keys and values lie in the pool as a tile of their own, the strip, wants them. Weights kept as bf16 meet activations
//! rounded to bf16 where the processor multiplies such pairs, and are widened to single precision where not. Weights
//! kept as eight-bit integers meet activations rounded to such integers, on every processor.

mod amx;
mod avx2;
mod avx2bytes;
mod avx512;
mod avx512bf16;
mod avx512vnni;
mod bytes;
mod emulated;
mod finish;
mod groups;
mod highest;
mod isa;
mod layout;
mod limits;
mod matrix;
mod matrix_unit;
mod pack;
mod packed;
mod pairs;
mod portable;
mod product;
mod rows;
mod softmax;
mod strip;
mod tile;
mod wide;

pub(crate) use bytes::{BytePair, kept_scales, scale, widen};
pub(crate) use highest::KEPT_MAX;
pub use highest::TopK;
pub use isa::Isa;
pub use limits::Limits;
pub use matrix::{Activation, Format, Matrix, Scratch};
pub(crate) use packed::Packed;
pub use rows::Norm;
pub(crate) use strip::{
    PIECES_MAX, Pair, Product, ROWS_MAX, Rounded, SCORES_MAX, Singles, Stored, Widened, rows_max,
    strip_scores, strip_values,
};
pub(crate) use tile::{LANES, row_blocks};

use rayon::ThreadPool;

/// A CPU with its own threads.
pub struct Cpu {
    pub(crate) isa: Isa,
    pool: ThreadPool,
}

impl Cpu {
    /// A device of `threads` threads (`None`: as many as there are cores) with the best kernels of this machine.
    pub fn new(threads: Option<usize>) -> std::io::Result<Self> {
        Self::with_isa(threads, Isa::detect())
    }

    /// A device with given kernels, where the machine has them; tests compare kernels with it.
    pub fn with_isa(threads: Option<usize>, isa: Isa) -> std::io::Result<Self> {
        let isa = if isa.is_available() { isa } else { Isa::detect() };
        let threads = match threads {
            Some(threads) => threads.max(1),
            None => std::thread::available_parallelism()?.get(),
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("engine-{index}"))
            .build()
            .map_err(std::io::Error::other)?;
        Ok(Self { isa, pool })
    }

    /// Runs `work` on this device's threads: parallel operations inside it use them all.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }

    /// Runs `work` on this device's threads and, meanwhile, `beside` on the caller's; returns when both have ended.
    pub fn run_beside(&self, work: impl FnOnce() + Send, beside: impl FnOnce()) {
        self.pool.in_place_scope(|scope| {
            scope.spawn(|_| work());
            beside();
        });
    }

    /// The kernels in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}
