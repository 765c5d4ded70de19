//! How long work takes on a GPU, by its own clock.

use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::result::event;
use cudarc::driver::{result, sys};

use super::lost;
use super::owned::Owned;
use crate::device::cuda::GpuError;

/// Bytes that push whatever came before out of the cache: twice what that of an H200 has.
const FLUSHED: usize = 128 << 20;

/// Times that it is written before the first timing: a card that has idled takes some ten milliseconds to come to its clock.
const WARMING: usize = 1000;

/// Two events, and memory to write to. Made before the first step and kept: memory that is given back while ranks wait for one
/// another would keep them waiting.
pub(super) struct Stopwatch {
    begin: sys::CUevent,
    end: sys::CUevent,
    scratch: u64,
    is_warm: AtomicBool,
}

impl Stopwatch {
    /// In the current context, which must outlive it; `None` where there is no memory for it.
    pub(super) fn new() -> Result<Option<Self>, GpuError> {
        // SAFETY: given back by `close`.
        let scratch = match unsafe { result::malloc_sync(FLUSHED) } {
            Ok(scratch) => scratch,
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Ok(None),
            Err(error) => return Err(lost(error)),
        };
        let scratch = Owned::new(scratch, |scratch| {
            // SAFETY: nobody uses it.
            let _ = unsafe { result::free_sync(scratch) };
        });
        let made = || -> Result<_, GpuError> {
            let event = event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(lost)?;
            Ok(Owned::new(event, |event| {
                // SAFETY: nobody uses it.
                let _ = unsafe { event::destroy(event) };
            }))
        };
        let (begin, end) = (made()?, made()?);
        let (begin, end, scratch) = (begin.keep(), end.keep(), scratch.keep());
        Ok(Some(Self { begin, end, scratch, is_warm: AtomicBool::new(false) }))
    }

    /// Gives everything back. The context must be current, and nothing may use it any more.
    pub(super) fn close(&mut self) {
        // SAFETY: they are its own.
        unsafe {
            let _ = event::destroy(self.begin);
            let _ = event::destroy(self.end);
            let _ = result::free_sync(self.scratch);
        }
    }

    /// Whether the work may write so many bytes to [`Self::scratch`].
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= FLUSHED
    }

    /// Memory that the work may write to.
    pub(super) fn scratch(&self) -> u64 {
        self.scratch
    }

    /// Milliseconds of a run on the stream, which finds nothing of its own in the cache.
    pub(super) fn time(
        &self,
        stream: sys::CUstream,
        work: impl Fn() -> Result<(), GpuError>,
    ) -> Result<f32, GpuError> {
        let writes = if self.is_warm.swap(true, Ordering::Relaxed) { 1 } else { WARMING };
        // SAFETY: the memory and the events are its own, and the stream is alive.
        unsafe {
            for _ in 0..writes {
                result::memset_d8_async(self.scratch, 0, FLUSHED, stream).map_err(lost)?;
            }
            event::record(self.begin, stream).map_err(lost)?;
            work()?;
            event::record(self.end, stream).map_err(lost)?;
            event::synchronize(self.end).map_err(lost)?;
            event::elapsed(self.begin, self.end).map_err(lost)
        }
    }
}
