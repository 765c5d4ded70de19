//! GPUs as the ranks of one model: sums over them by NCCL.

use std::ffi::c_void;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::CUstream;
use cudarc::nccl::{result, sys};

use super::{CudaDevice, device_count};
use crate::device::cuda::{Address, CudaError, CudaRuntime, Gpu, GpuError, KernelSet};

/// How long an orderly end is waited for.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// A place in a group that is about to meet.
pub(super) struct GroupPlace {
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

/// Fails where the library is missing.
pub(super) fn require() -> Result<(), CudaError> {
    let remedy = "it comes with PyPI's nvidia-nccl-cu13, whose folder needs a link libnccl.so to libnccl.so.2 and a \
                  place in LD_LIBRARY_PATH";
    // SAFETY: it looks for a library and closes it again.
    super::require(unsafe { sys::is_culib_present() }, "NCCL (libnccl.so)", remedy)
}

fn failed(error: result::NcclError) -> GpuError {
    GpuError::Lost(format!("NCCL: {:?}", error.0))
}

impl CudaRuntime {
    /// Opens GPUs with all kernels, one rank each. `with_nccl` makes a single one go through NCCL too.
    pub fn open(
        self: &Arc<Self>,
        ordinals: &[usize],
        with_nccl: bool,
    ) -> Result<Vec<Arc<dyn Gpu>>, CudaError> {
        self.open_ranks(ordinals, with_nccl, None)
    }

    /// Opens GPUs for a model that needs these kernels, one rank each.
    pub fn open_for(
        self: &Arc<Self>,
        ordinals: &[usize],
        set: KernelSet,
    ) -> Result<Vec<Arc<dyn Gpu>>, CudaError> {
        self.open_ranks(ordinals, false, Some(set))
    }

    fn open_ranks(
        self: &Arc<Self>,
        ordinals: &[usize],
        with_nccl: bool,
        set: Option<KernelSet>,
    ) -> Result<Vec<Arc<dyn Gpu>>, CudaError> {
        let open = |ordinal: usize| CudaDevice::open(Arc::clone(self), ordinal, set);
        if ordinals.len() == 1 && !with_nccl {
            return Ok(vec![Arc::new(open(ordinals[0])?)]);
        }
        device_count()?;
        require()?;
        // First all that may fail: in the group each waits for the others.
        let jobs = ordinals.iter().map(|ordinal| move || open(*ordinal)).collect();
        let mut devices: Vec<CudaDevice> = side_by_side(jobs)?;
        let id = result::get_uniqueid().map_err(failed)?;
        let place = |rank| GroupPlace { id, rank, ranks: ordinals.len() };
        let jobs = devices.iter_mut().enumerate().map(|(rank, device)| move || device.join(place(rank)));
        side_by_side(jobs.collect())?;
        Ok(devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Gpu>).collect())
    }
}

impl CudaDevice {
    /// Joins a group, and adds up a number in it: what connects ranks at their first sum does so now.
    fn join(&mut self, place: GroupPlace) -> Result<(), CudaError> {
        self.comm = Some(self.within(|| Comm::join(place))?);
        let number = self.allocate(size_of::<f32>())?;
        self.all_reduce(number, 1)?;
        self.read(number, &mut [0; size_of::<f32>()])?;
        self.free(number);
        Ok(())
    }
}

/// What all jobs give, each on a thread of its own, or the first failure.
fn side_by_side<T: Send>(
    jobs: Vec<impl FnOnce() -> Result<T, CudaError> + Send>,
) -> Result<Vec<T>, CudaError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let all: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("opening a GPU does not panic")).collect();
        all.into_iter().collect()
    })
}

impl Comm {
    /// Joins the group from the current context; returns when all have.
    pub(super) fn join(place: GroupPlace) -> Result<Self, GpuError> {
        let mut handle = std::ptr::null_mut();
        let (rank, ranks) = (place.rank as i32, place.ranks as i32);
        // SAFETY: the handle is written before it is read, and given back in `drop`.
        unsafe { result::comm_init_rank(&mut handle, ranks, place.id, rank) }.map_err(failed)?;
        Ok(Self { handle: Mutex::new(Some(handle)), rank: place.rank, ranks: place.ranks })
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Adds up single-precision numbers in place.
    pub(super) fn all_reduce(&self, values: Address, count: usize, stream: CUstream) -> Result<(), GpuError> {
        // The lock is not kept: a sum may wait for another rank, and to end that is what `abort` is for.
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).ok_or(GpuError::OtherRank)?;
        let (kind, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        let values = values.0 as *mut c_void;
        // SAFETY: the group is alive, or NCCL is ending it and lets go whoever is in it; memory is by the
        // contract of `Gpu`.
        unsafe { result::all_reduce(values, values, count, kind, sum, handle, stream.cast()) }
            .map_err(failed)?;
        Ok(())
    }

    /// Ends what waits for others, on all its ranks.
    ///
    /// Returns at once. NCCL sets its flag first, which ends what waits, and then waits itself until no
    /// recorded step names the group any more: those are dropped later, by whoever this must not hold up.
    pub(super) fn abort(&self) {
        drop(self.end());
    }

    /// Ends the group where nothing waits for it and no recorded step is left, and waits for that for a
    /// while.
    pub(super) fn close(&self) {
        let ended = self.end();
        if ended.recv_timeout(CLOSE_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("NCCL does not end its group");
        }
    }

    /// Says when the group has ended; gone already where it has before.
    fn end(&self) -> Receiver<()> {
        let (sender, ended) = mpsc::channel();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle.map(Handle) {
            std::thread::spawn(move || {
                let Handle(handle) = { handle };
                // SAFETY: it was taken out of its place: nobody begins anything with it any more.
                let _ = unsafe { result::comm_abort(handle) };
                let _ = sender.send(());
            });
        }
        ended
    }
}

/// A group's handle on its way to another thread.
struct Handle(sys::ncclComm_t);

// SAFETY: NCCL ends a group from any thread.
unsafe impl Send for Handle {}
