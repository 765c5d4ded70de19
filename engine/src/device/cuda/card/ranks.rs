//! GPUs as the ranks of one model: sums over them by NCCL.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::CUstream;
use cudarc::nccl::{result, sys};

use super::{Card, CardError};
use crate::device::cuda::{Address, Gpu, GpuError};

/// A place in a group that is about to meet.
pub(super) struct Seat {
    id: sys::ncclUniqueId,
    rank: usize,
    ranks: usize,
}

/// One rank's end of a group.
pub(super) struct Comm {
    /// `None` once it is aborted.
    handle: Mutex<Option<sys::ncclComm_t>>,
    rank: usize,
    ranks: usize,
}

fn failed(error: result::NcclError) -> GpuError {
    GpuError::Lost(format!("NCCL: {:?}", error.0))
}

impl Card {
    /// Opens GPUs, one rank each. `with_nccl` makes a single one go through NCCL too.
    pub fn group(ordinals: &[usize], with_nccl: bool) -> Result<Vec<Arc<dyn Gpu>>, CardError> {
        if ordinals.len() == 1 && !with_nccl {
            return Ok(vec![Arc::new(Self::open(ordinals[0], None)?)]);
        }
        super::cards()?;
        let remedy = "it comes with PyPI's nvidia-nccl-cu13, whose folder needs a link libnccl.so to libnccl.so.2 and a \
                      place in LD_LIBRARY_PATH";
        // SAFETY: it looks for a library and closes it again.
        super::require(unsafe { sys::is_culib_present() }, "NCCL (libnccl.so)", remedy)?;
        let id = result::get_uniqueid().map_err(failed)?;
        // Each waits for the others to join.
        let cards = std::thread::scope(|scope| {
            let open = |(rank, ordinal): (usize, &usize)| {
                let (ordinal, seat) = (*ordinal, Seat { id, rank, ranks: ordinals.len() });
                scope.spawn(move || Self::open(ordinal, Some(seat)))
            };
            let opening: Vec<_> = ordinals.iter().enumerate().map(open).collect();
            opening.into_iter().map(|thread| thread.join().expect("opening a GPU does not panic")).collect()
        });
        let cards: Result<Vec<Self>, CardError> = cards;
        Ok(cards?.into_iter().map(|card| Arc::new(card) as Arc<dyn Gpu>).collect())
    }
}

impl Comm {
    /// Joins the group from the current context; returns when all have.
    pub(super) fn join(seat: Seat) -> Result<Self, GpuError> {
        let mut handle = std::ptr::null_mut();
        let (rank, ranks) = (seat.rank as i32, seat.ranks as i32);
        // SAFETY: the handle is written before it is read, and given back in `drop`.
        unsafe { result::comm_init_rank(&mut handle, ranks, seat.id, rank) }.map_err(failed)?;
        Ok(Self { handle: Mutex::new(Some(handle)), rank: seat.rank, ranks: seat.ranks })
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Adds up single-precision numbers in place.
    pub(super) fn all_reduce(&self, values: Address, count: usize, stream: CUstream) -> Result<(), GpuError> {
        let handle = self.handle.lock().expect("no holder panics");
        let handle = handle.ok_or(GpuError::OtherRank)?;
        let (kind, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        let values = values.0 as *mut c_void;
        // SAFETY: the group is alive while the lock is held; memory is by the contract of `Gpu`.
        unsafe { result::all_reduce(values, values, count, kind, sum, handle, stream.cast()) }
            .map_err(failed)?;
        Ok(())
    }

    /// Ends what waits for others, on all its ranks.
    pub(super) fn abort(&self) {
        if let Some(handle) = self.handle.lock().expect("no holder panics").take() {
            // SAFETY: it is taken out of its place: nobody else has it.
            let _ = unsafe { result::comm_abort(handle) };
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.abort();
    }
}
