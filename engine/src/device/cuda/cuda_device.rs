//! A real GPU: the driver, NVRTC for the kernels, cuBLASLt for products, NCCL for sums over ranks.
//!
//! Nothing here is linked: libraries are looked for when a GPU is asked for. What calls into them is `unsafe`
//! for one reason throughout: handles and addresses must be alive, and they are the device's own, given back
//! in its `drop` only.

mod compile;
mod graph;
mod launch;
mod nccl;
mod owned;
mod products;
mod staging;
mod stopwatch;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS;
use cudarc::driver::{result, sys};

use super::{Address, CudaError, CudaRuntime, Gpu, GpuError, Graph, Grid, KernelSet, Linear};
pub(super) use compile::{Cubin, compile};
use graph::RecordedGraph;
use nccl::Comm;
use owned::Owned;
use products::Products;
use staging::Staging;

/// Number of GPUs that the driver finds; an error that says what is missing where there is none.
pub fn device_count() -> Result<usize, CudaError> {
    // SAFETY: it looks for a library and closes it again.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    result::init().map_err(lost)?;
    let count = result::device::get_count().map_err(lost)?;
    Ok(count as usize)
}

/// A GPU as the driver tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    pub name: String,
    /// Bytes that could be allocated.
    pub free: u64,
    /// Those and what is allocated, by this process and others.
    pub total: u64,
    /// Whether it multiplies [`super::Factors::E4m3`].
    pub has_e4m3: bool,
}

/// What GPU `ordinal` is and has; fails where the kernels cannot run on it. Nothing is compiled, and no library but the driver is
/// needed.
pub fn gpu_info(ordinal: usize) -> Result<GpuInfo, CudaError> {
    let device = usable(ordinal)?;
    // SAFETY: the device is the driver's own; the context is released below.
    let context = unsafe { result::primary_ctx::retain(device) }.map_err(lost)?;
    // SAFETY: it has just been made.
    let memory = unsafe { result::ctx::set_current(context) }.and_then(|()| result::mem_get_info());
    // SAFETY: it was retained above, and nothing uses it any more.
    unsafe { result::primary_ctx::release(device) }.map_err(lost)?;
    let (free, total) = memory.map_err(lost)?;
    let name = result::device::get_name(device).map_err(lost)?;
    let has_e4m3 = multiplies_e4m3(capability(device)?);
    Ok(GpuInfo { name, free: free as u64, total: total as u64, has_e4m3 })
}

/// The device of this number, if the kernels can run on it.
fn usable(ordinal: usize) -> Result<sys::CUdevice, CudaError> {
    let count = device_count()?;
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    let device = result::device::get(ordinal as i32).map_err(lost)?;
    let (major, minor) = capability(device)?;
    if major < 8 {
        return Err(CudaError::TooOld { ordinal, major, minor });
    }
    Ok(device)
}

/// Whether devices of a compute capability have products of eight-bit floats.
fn multiplies_e4m3(capability: (i32, i32)) -> bool {
    capability >= (8, 9)
}

/// The libraries beside the driver that `ranks` GPUs need and that are not found, each with where it is to be
/// had.
pub fn missing_libraries(ranks: usize) -> Vec<CudaError> {
    let needed = [Some(compile::require()), Some(products::require()), (ranks > 1).then(nccl::require)];
    needed.into_iter().flatten().filter_map(Result::err).collect()
}

/// A GPU, opened.
pub struct CudaDevice {
    runtime: Arc<CudaRuntime>,
    name: String,
    /// Major, minor.
    capability: (i32, i32),
    multiprocessors: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    module: sys::CUmodule,
    functions: HashMap<String, sys::CUfunction>,
    /// Of kernels that are made of clusters of blocks, how many of them it has room for at once.
    clusters: HashMap<String, usize>,
    products: Products,
    staging: Mutex<Staging>,
    comm: Option<Comm>,
    /// Set when it is aborted.
    is_broken: AtomicBool,
    /// Set when its context can no longer be trusted.
    is_lost: Arc<AtomicBool>,
}

// SAFETY: its handles may be used on any thread that has made its context current, as every operation does;
// one thread at a time does so, by the contract of `Gpu`.
unsafe impl Send for CudaDevice {}
// SAFETY: the same; what `abort` uses beside another thread is atomic or locked.
unsafe impl Sync for CudaDevice {}

impl CudaDevice {
    /// Opens GPU `ordinal`, alone, with the kernels of `set`, or all.
    fn open(runtime: Arc<CudaRuntime>, ordinal: usize, set: Option<KernelSet>) -> Result<Self, CudaError> {
        let device = usable(ordinal)?;
        compile::require()?;
        products::require()?;
        let (major, minor) = capability(device)?;
        let kernels = runtime.kernels((major, minor), set)?;
        if runtime.must_reset(device) {
            // SAFETY: the device that had this context has given it up.
            let reset = unsafe { sys::cuDevicePrimaryCtxReset_v2(device) }.result();
            reset.inspect_err(|_| runtime.reset_later(device)).map_err(lost)?;
        }
        // SAFETY: the device is the driver's own; the context is released in `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(lost)?;
        let retained = Owned::new(device, |device| {
            // SAFETY: nothing of it is left.
            let _ = unsafe { result::primary_ctx::release(device) };
        });
        // SAFETY: it has just been made.
        unsafe { result::ctx::set_current(context) }.map_err(lost)?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(lost)?;
        let stream = Owned::new(stream, |stream| {
            // SAFETY: nothing was asked of it.
            let _ = unsafe { result::stream::destroy(stream) };
        });
        // SAFETY: the image is a whole cubin, which the driver copies.
        let module = unsafe { result::module::load_data(kernels.as_ptr().cast::<c_void>()) }.map_err(lost)?;
        let module = Owned::new(module, |module| {
            // SAFETY: nobody has its functions.
            let _ = unsafe { result::module::unload(module) };
        });
        let name = result::device::get_name(device).map_err(lost)?;
        let multiprocessors = attribute(device, MULTIPROCESSORS)?.max(1) as usize;
        let functions = compile::functions(module.raw(), (major, minor), set)?;
        let clusters = match compile::has_clusters((major, minor)) {
            true => launch::clusters_at_once(&functions)?,
            false => HashMap::new(),
        };
        let mut staging = Staging::new()?;
        let products = Products::new().inspect_err(|_| staging.close())?;
        Ok(Self {
            runtime,
            name,
            capability: (major, minor),
            multiprocessors,
            device: retained.keep(),
            context,
            stream: stream.keep(),
            module: module.keep(),
            functions,
            clusters,
            products,
            staging: Mutex::new(staging),
            comm: None,
            is_broken: AtomicBool::new(false),
            is_lost: Arc::default(),
        })
    }

    /// Does `work` in its context; whatever fails there, but for memory, loses the context.
    fn within<T>(&self, work: impl FnOnce() -> Result<T, GpuError>) -> Result<T, GpuError> {
        let result = self.enter().and_then(|()| work());
        if matches!(result, Err(GpuError::Lost(_))) && !self.is_lost.swap(true, Ordering::AcqRel) {
            self.runtime.reset_later(self.device);
        }
        result
    }

    /// Makes its context the thread's.
    fn enter(&self) -> Result<(), GpuError> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(GpuError::Lost("its context was lost before".into()));
        }
        if self.is_broken.load(Ordering::Acquire) {
            return Err(GpuError::OtherRank);
        }
        // SAFETY: the context lives as long as the device.
        unsafe { result::ctx::set_current(self.context) }.map_err(lost)
    }

    /// Launches a kernel in its context, unless there is nothing to do.
    ///
    /// From 9.0 on it may come to the multiprocessors before the kernel before it has ended, which it waits for
    /// itself (`KERNEL` in kernels/prelude.cuh).
    fn start(&self, kernel: &str, grid: Grid, args: &[u8]) -> Result<(), GpuError> {
        self.start_when(self.capability >= (9, 0), kernel, grid, args)
    }

    /// The same; `is_early`: whether it may come so early.
    fn start_when(&self, is_early: bool, kernel: &str, grid: Grid, args: &[u8]) -> Result<(), GpuError> {
        let function = self.functions.get(kernel);
        let function = *function.ok_or_else(|| GpuError::Lost(format!("there is no kernel {kernel}")))?;
        let mut parameters = [args.as_ptr().cast_mut().cast::<c_void>()];
        let [x, y] = grid.blocks;
        if x == 0 || y == 0 {
            return Ok(());
        }
        let mut attributes = launch::attributes(grid, is_early);
        let config = launch::config(grid, self.stream, &mut attributes);
        // SAFETY: the kernel takes one struct, which the driver copies before it returns, as it does the
        // configuration.
        unsafe { sys::cuLaunchKernelEx(&config, function, parameters.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .map_err(|error| GpuError::Lost(format!("{kernel}: {:?}", error.0)))
    }

    /// Waits for all work that was asked for.
    fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: the stream lives as long as the device.
        unsafe { result::stream::synchronize(self.stream) }.map_err(lost)?;
        if self.is_broken.load(Ordering::Acquire) { Err(GpuError::OtherRank) } else { Ok(()) }
    }
}

/// Fails where a library is missing.
fn require(is_present: bool, library: &'static str, remedy: &'static str) -> Result<(), CudaError> {
    if is_present { Ok(()) } else { Err(CudaError::NoLibrary { library, remedy }) }
}

/// A device's compute capability.
fn capability(device: sys::CUdevice) -> Result<(i32, i32), CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    Ok((attribute(device, MAJOR)?, attribute(device, MINOR)?))
}

/// What the driver says of a device.
fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<i32, CudaError> {
    // SAFETY: the device is the driver's own.
    Ok(unsafe { result::device::get_attribute(device, which) }.map_err(lost)?)
}

/// A driver's error as the decoder knows it.
fn lost(error: result::DriverError) -> GpuError {
    GpuError::Lost(format!("{:?}", error.0))
}

impl Gpu for CudaDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn has_e4m3(&self) -> bool {
        multiplies_e4m3(self.capability)
    }

    fn has_wgmma(&self) -> bool {
        compile::has_wgmma(self.capability)
    }

    fn has_clusters(&self) -> bool {
        !self.clusters.is_empty() && self.clusters.values().all(|clusters| *clusters > 0)
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn available(&self) -> Result<usize, GpuError> {
        self.within(|| result::mem_get_info().map(|(free, _)| free).map_err(lost))
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        self.within(|| {
            let full = |error: result::DriverError| match error.0 {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => GpuError::OutOfMemory { bytes },
                _ => lost(error),
            };
            // SAFETY: given back by `free`.
            let address = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(full)?;
            // SAFETY: it has just been made, of this length.
            unsafe { result::memset_d8_async(address, 0, bytes, self.stream) }.map_err(lost)?;
            Ok(Address(address))
        })
    }

    fn free(&self, address: Address) {
        if self.is_lost.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the context lives; the address came from `allocate`; the work that uses it is waited for.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            let _ = result::free_sync(address.0);
        }
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.within(|| self.staging.lock().expect("no holder panics").write(self.stream, to, bytes))
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.within(|| {
            self.staging.lock().expect("no holder panics").read(self.stream, from, bytes, || self.wait())
        })
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, GpuError> {
        self.within(|| {
            // SAFETY: given back by `free_host`.
            let memory = unsafe { result::malloc_host(bytes, 0) };
            memory.map(|memory| Address(memory as u64)).map_err(|error| match error.0 {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => GpuError::OutOfMemory { bytes },
                _ => lost(error),
            })
        })
    }

    fn free_host(&self, address: Address) {
        if self.is_lost.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the context lives; the address came from `allocate_host`; copies that use it are waited
        // for.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            let _ = result::free_host(address.0 as *mut c_void);
        }
    }

    fn copy_out(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.within(|| {
            // SAFETY: both have this length by contract, and `to` is this device's host memory, which is
            // alive.
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.0 as *mut c_void, from.0, bytes, self.stream) }
                .result()
                .map_err(lost)
        })
    }

    fn copy_back(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.within(|| {
            // SAFETY: the same the other way.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from.0 as *const c_void, bytes, self.stream) }
                .result()
                .map_err(lost)
        })
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.within(|| {
            // SAFETY: both have this length by contract.
            unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, self.stream) }.map_err(lost)
        })
    }

    fn launch(&self, kernel: &str, grid: Grid, args: &[u8]) -> Result<(), GpuError> {
        self.within(|| self.start(kernel, grid, args))
    }

    fn linear(&self, product: &Linear) -> Result<(), GpuError> {
        self.within(|| self.multiply(product))
    }

    fn all_reduce(&self, values: Address, count: usize) -> Result<(), GpuError> {
        self.within(|| match &self.comm {
            Some(comm) => comm.all_reduce(values, count, self.stream),
            None => Ok(()),
        })
    }

    fn rank(&self) -> usize {
        self.comm.as_ref().map_or(0, Comm::rank)
    }

    fn ranks(&self) -> usize {
        self.comm.as_ref().map_or(1, Comm::ranks)
    }

    fn abort(&self) {
        self.is_broken.store(true, Ordering::Release);
        if let Some(comm) = &self.comm {
            comm.abort();
        }
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn Graph>>, GpuError> {
        self.within(|| {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream lives as long as the device.
            unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(lost)?;
            let worked = work();
            // SAFETY: the same; a capture must be ended even where the work failed.
            let graph = unsafe { result::stream::end_capture(self.stream) }.map_err(lost)?;
            // SAFETY: the graph has just been made.
            let made = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
            let (context, is_lost) = (self.context, Arc::clone(&self.is_lost));
            let made = made.map(|graph| RecordedGraph { graph, context, is_lost });
            // SAFETY: what was made of it does not need it.
            unsafe { result::graph::destroy(graph) }.map_err(lost)?;
            worked?;
            Ok(Some(Box::new(made.map_err(lost)?) as Box<dyn Graph>))
        })
    }

    fn replay(&self, graph: &dyn Graph) -> Result<(), GpuError> {
        self.within(|| {
            let recorded = graph.as_any().downcast_ref::<RecordedGraph>();
            let recorded = recorded.ok_or_else(|| GpuError::Lost("another driver's graph".into()))?;
            // SAFETY: the graph and what it was recorded of are alive: its owner drops it first.
            unsafe { result::graph::launch(recorded.graph, self.stream) }.map_err(lost)
        })
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if self.is_lost.load(Ordering::Acquire) || self.is_broken.load(Ordering::Acquire) {
            // Its handles may wait for ever, or be another's by now.
            self.runtime.reset_later(self.device);
            return;
        }
        // SAFETY: the handles are the device's own and nothing uses them any more.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            self.comm.iter().for_each(Comm::close);
            self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).close();
            self.products.close();
            let _ = result::module::unload(self.module);
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
