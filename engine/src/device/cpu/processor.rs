//! A processor as the rest of the engine sees it: its threads, and its kernels.
//!
//! It knows no layout, kernel or product: those files add their operations to [`Cpu`] themselves.

use rayon::ThreadPool;

use super::fastest::fastest;
use super::isa::Isa;

/// A CPU with its own threads.
pub struct Cpu {
    pub(crate) isa: Isa,
    pool: ThreadPool,
}

impl Cpu {
    /// A device of `threads` threads (`None`: as many as there are cores) with the fastest kernels of this
    /// machine.
    pub fn new(threads: Option<usize>) -> std::io::Result<Self> {
        Self::with_isa(threads, fastest())
    }

    /// A device with given kernels, where the machine has them.
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

    /// Runs `work` on this device's threads and, meanwhile, `beside` on the caller's; returns when both have
    /// ended.
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
