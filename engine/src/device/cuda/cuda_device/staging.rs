//! Pinned host memory between the caller's and the GPU's: copies from it go on while the caller prepares the
//! next.

use std::ffi::c_void;

use cudarc::driver::{result, sys};

use super::lost;
use super::owned::Owned;
use crate::device::cuda::{Address, GpuError};

/// Bytes of one piece. Two of them take turns.
const PIECE: usize = 8 << 20;

/// A piece of pinned memory, and the end of the last copy from it.
struct StagingPiece {
    memory: *mut c_void,
    copied: sys::CUevent,
}

/// Two pieces in turn.
pub(super) struct Staging {
    pieces: [StagingPiece; 2],
    next: usize,
}

impl Staging {
    /// In the current context, which must outlive it.
    pub(super) fn new() -> Result<Self, GpuError> {
        let made = || -> Result<_, GpuError> {
            // SAFETY: given back by `close`, or where the rest cannot be made.
            let memory = unsafe { result::malloc_host(PIECE, 0) }.map_err(lost)?;
            let memory = Owned::new(memory, |memory| {
                // SAFETY: nobody uses it.
                let _ = unsafe { result::free_host(memory) };
            });
            let copied = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(lost)?;
            let copied = Owned::new(copied, |copied| {
                // SAFETY: nobody uses it.
                let _ = unsafe { result::event::destroy(copied) };
            });
            Ok((memory, copied))
        };
        let pieces = [made()?, made()?];
        let pieces =
            pieces.map(|(memory, copied)| StagingPiece { memory: memory.keep(), copied: copied.keep() });
        Ok(Self { pieces, next: 0 })
    }

    /// Gives its memory back. The context must be current, and all copies done.
    pub(super) fn close(&mut self) {
        for piece in &self.pieces {
            // SAFETY: both are the piece's own, and nobody uses them any more.
            unsafe {
                let _ = result::event::destroy(piece.copied);
                let _ = result::free_host(piece.memory);
            }
        }
    }

    /// The piece whose turn it is, when the copies from it are done.
    fn turn(&mut self) -> Result<&mut StagingPiece, GpuError> {
        self.next = 1 - self.next;
        let piece = &mut self.pieces[self.next];
        // SAFETY: the event is the piece's own; one that was never recorded is done.
        unsafe { result::event::synchronize(piece.copied) }.map_err(lost)?;
        Ok(piece)
    }

    /// Copies `bytes` to the GPU in the order of the stream.
    pub(super) fn write(&mut self, stream: sys::CUstream, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        for (number, bytes) in bytes.chunks(PIECE).enumerate() {
            let piece = self.turn()?;
            // SAFETY: the piece is of this length at least, and nobody reads it now.
            let pinned = unsafe { std::slice::from_raw_parts_mut(piece.memory.cast::<u8>(), bytes.len()) };
            pinned.copy_from_slice(bytes);
            // SAFETY: the piece is not written before the event says that it was read; `to` has room by
            // contract.
            unsafe {
                result::memcpy_htod_async(to.at(number * PIECE).0, pinned, stream).map_err(lost)?;
                result::event::record(piece.copied, stream).map_err(lost)?;
            }
        }
        Ok(())
    }

    /// Copies from the GPU; `wait` waits for the stream.
    pub(super) fn read(
        &mut self,
        stream: sys::CUstream,
        from: Address,
        bytes: &mut [u8],
        wait: impl Fn() -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        for (number, bytes) in bytes.chunks_mut(PIECE).enumerate() {
            let piece = self.turn()?;
            // SAFETY: the piece is of this length at least, and nobody uses it now.
            let pinned = unsafe { std::slice::from_raw_parts_mut(piece.memory.cast::<u8>(), bytes.len()) };
            // SAFETY: the copy is waited for before the piece is used again.
            unsafe { result::memcpy_dtoh_async(pinned, from.at(number * PIECE).0, stream) }.map_err(lost)?;
            wait()?;
            bytes.copy_from_slice(pinned);
        }
        Ok(())
    }
}
