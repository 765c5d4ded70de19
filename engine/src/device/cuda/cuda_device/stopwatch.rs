//! How long work takes on a GPU, by its own clock.

use cudarc::driver::result::event;
use cudarc::driver::{result, sys};

use super::lost;
use crate::device::cuda::GpuError;

/// Bytes that push whatever came before out of the cache: twice what the largest of today's has.
const FLUSHED: usize = 128 << 20;

/// Two events on a stream, and memory to write to.
pub(super) struct Stopwatch {
    stream: sys::CUstream,
    begin: sys::CUevent,
    end: sys::CUevent,
    scratch: u64,
    bytes: usize,
}

impl Stopwatch {
    /// With `bytes` to write to, in the current context; `None` where there is no memory for it.
    pub(super) fn new(stream: sys::CUstream, bytes: usize) -> Result<Option<Self>, GpuError> {
        let bytes = bytes.max(FLUSHED);
        // SAFETY: given back in `drop`.
        let scratch = match unsafe { result::malloc_sync(bytes) } {
            Ok(scratch) => scratch,
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Ok(None),
            Err(error) => return Err(lost(error)),
        };
        let made = || event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(lost);
        let (begin, end) = (made()?, made()?);
        Ok(Some(Self { stream, begin, end, scratch, bytes }))
    }

    /// Memory that the work may write to.
    pub(super) fn scratch(&self) -> u64 {
        self.scratch
    }

    /// The least milliseconds of `runs` runs behind one that warms up. Each finds nothing of its own in the cache.
    pub(super) fn time(&self, runs: usize, work: impl Fn() -> Result<(), GpuError>) -> Result<f32, GpuError> {
        work()?;
        let mut least = f32::INFINITY;
        for _ in 0..runs {
            // SAFETY: the memory and the events are its own, and the stream outlives it.
            unsafe {
                result::memset_d8_async(self.scratch, 0, self.bytes, self.stream).map_err(lost)?;
                event::record(self.begin, self.stream).map_err(lost)?;
                work()?;
                event::record(self.end, self.stream).map_err(lost)?;
                event::synchronize(self.end).map_err(lost)?;
                least = least.min(event::elapsed(self.begin, self.end).map_err(lost)?);
            }
        }
        Ok(least)
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        // SAFETY: they are its own, and what used them is waited for or lost.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            let _ = event::destroy(self.begin);
            let _ = event::destroy(self.end);
            let _ = result::free_sync(self.scratch);
        }
    }
}
