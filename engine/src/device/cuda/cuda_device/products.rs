//! Products with weights: by cuBLASLt, bias and sum in the epilogue, or by the kernels for few rows
//! (kernels/product.cuh, kernels/split.cuh), whichever is fastest for a shape when it first comes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::{result, sys};
use cudarc::driver::result as driver;

use super::owned::Owned;
use super::stopwatch::Stopwatch;
use super::{CudaDevice, lost};
use crate::device::cuda::{
    Address, Args, CudaError, Element, FEW_ROWS, Factors, GpuError, Grid, Linear, PRODUCT_DEPTH,
    SMALL_PRODUCT_DEPTH, product_grid, product_ring, recorded_rows,
};

/// Memory that an algorithm may use: what NVIDIA advises for sm_90.
const WORKSPACE: usize = 32 << 20;

/// Bytes of which the addresses of factors and sums are multiples.
const ALIGNMENT: u32 = 16;

/// Algorithms of the library that are tried for a product of at most [`TIMED_ROWS`] rows. With more its first guess is
/// as good as any.
const TRIED: usize = 8;
const TIMED_ROWS: usize = 256;

/// By how much one of the library's must be faster than one before it in the list: what differs less is noise, and the first of
/// equals is the same in every process.
const MARGIN: f32 = 0.97;

/// By how much it must be faster than the kernel of our own, which lets the kernel behind it come to the multiprocessors before it has
/// ended: timed by itself it does not show that.
const OWN_MARGIN: f32 = 0.95;

/// Milliseconds of such a kernel that are hidden where it comes early itself: 1.1 to 2.4 us on an H200, for products that take 9 to 73
/// (docs/measurements/h200-2026-11-27-b.txt).
const HIDDEN_MS: f32 = 0.002;

/// Rows of the kernels of our own that come to the multiprocessors before the one before has ended. With more they read `x` as much as
/// weights, and what comes early takes room from that; but for clusters of blocks, which keep it.
const EARLY_ROWS: usize = 16;

/// Rounds of timing, in each of which every algorithm runs once: the card's clock changes by and by.
const ROUNDS: usize = 5;

/// Where a product's bias is.
const BIAS: sys::cublasLtMatmulDescAttributes_t =
    sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;

/// `CUBLAS_OP_T`, which the bindings of this library leave out.
const OP_T: i32 = 1;

/// What decides the algorithm of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ProductShape {
    rows: usize,
    outputs: usize,
    inputs: usize,
    factors: Factors,
    out: Element,
    has_bias: bool,
    adds: bool,
    has_scales: bool,
    /// By what its outputs are activated, where half of them are gates.
    activation: Option<usize>,
}

/// A product's description and its algorithm.
struct ProductPlan {
    product: Owned<sys::cublasLtMatmulDesc_t>,
    w: Owned<sys::cublasLtMatrixLayout_t>,
    x: Owned<sys::cublasLtMatrixLayout_t>,
    y: Owned<sys::cublasLtMatrixLayout_t>,
    algorithm: ProductAlgorithm,
}

/// How a product is made.
#[derive(Clone, Copy)]
enum ProductAlgorithm {
    /// By an algorithm of the library.
    Library(sys::cublasLtMatmulAlgo_t),
    /// By a kernel of our own.
    Kernel,
}

/// The library, and the products it has met.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    plans: Mutex<HashMap<ProductShape, ProductPlan>>,
    stopwatch: Option<Stopwatch>,
}

/// Fails where the library is missing.
pub(super) fn require() -> Result<(), CudaError> {
    let remedy =
        "it comes with the CUDA toolkit and with PyPI's nvidia-cublas; name its folder in LD_LIBRARY_PATH";
    // SAFETY: it looks for a library and closes it again.
    super::require(unsafe { sys::is_culib_present() }, "cuBLASLt (libcublasLt.so)", remedy)
}

fn failed(error: result::CublasError) -> GpuError {
    GpuError::Lost(format!("cuBLASLt: {:?}", error.0))
}

fn kind(element: Element) -> sys::cudaDataType {
    match element {
        Element::F32 => sys::cudaDataType_t::CUDA_R_32F,
        Element::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        Element::F16 => sys::cudaDataType_t::CUDA_R_16F,
    }
}

fn kind_of(factors: Factors) -> sys::cudaDataType {
    match factors {
        Factors::Of(element) | Factors::Q4(element) => kind(element),
        Factors::E4m3 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
    }
}

impl CudaDevice {
    /// Runs a product on the stream.
    pub(super) fn multiply(&self, product: &Linear) -> Result<(), GpuError> {
        let Linear { rows, outputs, inputs, factors, out, adds, .. } = *product;
        if rows == 0 {
            return Ok(());
        }
        if let Factors::Q4(_) = factors {
            let launch = self.own_kernel(product).expect("with more rows they are unpacked");
            return self.multiply_few(rows, launch);
        }
        let (has_bias, has_scales) = (product.bias.is_some(), product.scales.is_some());
        let activation = product.gate.map(|gate| gate.activation);
        let shape =
            ProductShape { rows, outputs, inputs, factors, out, has_bias, adds, has_scales, activation };
        let mut plans = self.products.plans.lock().expect("no holder panics");
        if !plans.contains_key(&shape) {
            let plan = self.plan(&shape, product, &plans)?;
            plans.insert(shape, plan);
        }
        let plan = &plans[&shape];
        self.multiply_by(product, plan, plan.algorithm)
    }

    /// Describes a product and chooses its algorithm. Only those of recorded steps are timed: of other numbers of rows there are
    /// hundreds, and they take that of the next larger one.
    fn plan(
        &self,
        shape: &ProductShape,
        product: &Linear,
        known: &HashMap<ProductShape, ProductPlan>,
    ) -> Result<ProductPlan, GpuError> {
        let usual = recorded_rows(shape.rows);
        let is_timed = shape.rows <= TIMED_ROWS && usual == shape.rows;
        let most = if is_timed { TRIED } else { 1 };
        let (mut plan, algorithms) = self.products.describe(&product.bare(), most).map_err(failed)?;
        let own = self.own_kernel(product).map(|_| ProductAlgorithm::Kernel);
        let candidates: Vec<ProductAlgorithm> =
            own.into_iter().chain(algorithms.into_iter().map(ProductAlgorithm::Library)).collect();
        let larger = known.get(&ProductShape { rows: usual, ..*shape }).map(|plan| plan.algorithm);
        plan.algorithm = match (&candidates[..], larger) {
            ([], _) => {
                return Err(failed(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)));
            }
            ([only], _) => *only,
            (all, _) if is_timed => self.fastest(&plan, product, all),
            ([ProductAlgorithm::Kernel, ..], Some(ProductAlgorithm::Kernel)) => ProductAlgorithm::Kernel,
            ([ProductAlgorithm::Kernel, library, ..], _) => *library,
            ([first, ..], _) => *first,
        };
        Ok(plan)
    }

    /// The fastest of several algorithms, the first of them ours where there is one, each tried on these very numbers; the first where
    /// there is no memory to try them.
    fn fastest(
        &self,
        plan: &ProductPlan,
        product: &Linear,
        candidates: &[ProductAlgorithm],
    ) -> ProductAlgorithm {
        let bytes = product.rows * product.outputs * product.out.bytes();
        let stopwatch = self.products.stopwatch.as_ref().filter(|stopwatch| stopwatch.has_room(bytes));
        let Some(stopwatch) = stopwatch else { return candidates[0] };
        // Sums would change what they are added to.
        let tried = Linear { y: Address(stopwatch.scratch()), ..*product };
        let mut least = vec![f32::INFINITY; candidates.len()];
        for _ in 0..ROUNDS {
            for (algorithm, least) in candidates.iter().zip(&mut least) {
                // One that cannot run is left out; where that is the context's fault, whatever comes next says so.
                let run = || self.multiply_by(&tried, plan, *algorithm);
                *least = stopwatch.time(self.stream, run).map_or(f32::INFINITY, |time| least.min(time));
            }
        }
        let hidden_ms = self.own_kernel(product).map(|(_, grid, _)| {
            let is_early = self.is_early(product.rows, grid);
            if is_early { HIDDEN_MS } else { 0.0 }
        });
        let best = fastest(&least, hidden_ms);
        let (milliseconds, algorithm) = (least[best], candidates[best]);
        let by_kernel = matches!(algorithm, ProductAlgorithm::Kernel);
        tracing::debug!(
            ?product,
            milliseconds,
            by_kernel,
            times = ?least,
            hidden_ms = hidden_ms.unwrap_or_default(),
            "a product's fastest algorithm"
        );
        algorithm
    }

    /// Runs a product by a given algorithm; behind the library's a kernel brings sums to scale, or activates them.
    ///
    /// The library's matrices have columns: `w` is `[inputs, outputs]` there, read transposed, `x` and `y`
    /// are `[inputs, rows]` and `[outputs, rows]`.
    fn multiply_by(
        &self,
        product: &Linear,
        plan: &ProductPlan,
        algorithm: ProductAlgorithm,
    ) -> Result<(), GpuError> {
        let ProductAlgorithm::Library(algorithm) = algorithm else {
            let launch = self.own_kernel(product).expect("there is a kernel for it");
            return self.multiply_few(product.rows, launch);
        };
        let (product, behind) = (product.bare(), product.behind());
        let (one, beta) = (1.0_f32, if product.adds { 1.0_f32 } else { 0.0 });
        let pointer = |address: u64| address as *const c_void;
        // SAFETY: descriptions live as long as `self`; memory is alive by the contract of `Gpu`.
        unsafe {
            if let Some(bias) = product.bias {
                set(plan.product.raw(), BIAS, &bias.0).map_err(failed)?;
            }
            result::matmul(
                self.products.handle,
                plan.product.raw(),
                (&raw const one).cast(),
                (&raw const beta).cast(),
                pointer(product.w.0),
                plan.w.raw(),
                pointer(product.x.0),
                plan.x.raw(),
                pointer(product.y.0),
                plan.y.raw(),
                product.y.0 as *mut c_void,
                plan.y.raw(),
                &algorithm,
                self.products.workspace as *mut c_void,
                WORKSPACE,
                self.stream.cast(),
            )
        }
        .map_err(failed)?;
        behind.map_or(Ok(()), |(kernel, grid, args)| self.start(&kernel, grid, &args))
    }

    /// The kernel of our own for a product, where there is one: by clusters of blocks, where the card and the product's shape allow.
    fn own_kernel(&self, product: &Linear) -> Option<(String, Grid, Vec<u8>)> {
        let split = product.split().and_then(|(kernel, grid, args)| {
            let clusters = *self.clusters.get(&kernel)?;
            (clusters > 0).then(|| (kernel, grid.at_once(clusters), args))
        });
        split.or_else(|| {
            let (kernel, grid, args) = few_rows(product, self.multiprocessors)?;
            let shared = product_ring(product_depth(self.capability)) as u32;
            Some((kernel, Grid { shared, ..grid }, args))
        })
    }

    /// Runs a product of few rows by a kernel of our own.
    fn multiply_few(
        &self,
        rows: usize,
        (kernel, grid, args): (String, Grid, Vec<u8>),
    ) -> Result<(), GpuError> {
        self.start_when(self.is_early(rows, grid), &kernel, grid, &args)
    }

    /// Whether such a kernel comes to the multiprocessors before the one before it has ended.
    fn is_early(&self, rows: usize, grid: Grid) -> bool {
        self.capability >= (9, 0) && (rows <= EARLY_ROWS || grid.cluster > 1)
    }
}

/// The fastest of algorithms that took these milliseconds. Where the first is a kernel of our own, `hidden_ms` of its time are hidden.
fn fastest(times: &[f32], hidden_ms: Option<f32>) -> usize {
    let shown = |at: usize| times[at] - if at == 0 { hidden_ms.unwrap_or_default() } else { 0.0 };
    (1..times.len()).fold(0, |best, at| {
        let margin = if best == 0 && hidden_ms.is_some() { OWN_MARGIN } else { MARGIN };
        if shown(at) < shown(best) * margin { at } else { best }
    })
}

/// Units of weights that each warp of these kernels has in shared memory, on devices of a compute capability: those of 9 and 10 have 228 KiB
/// a multiprocessor, others 164 or 100.
pub(super) fn product_depth(capability: (i32, i32)) -> usize {
    if matches!(capability, (9..=10, _)) { PRODUCT_DEPTH } else { SMALL_PRODUCT_DEPTH }
}

/// The kernel for a product of few rows, where there is one.
fn few_rows(product: &Linear, multiprocessors: usize) -> Option<(String, Grid, Vec<u8>)> {
    if product.gate.is_some() {
        return product.gated(multiprocessors);
    }
    let Linear { rows, outputs, inputs, factors, x, w, bias, y, out, adds, .. } = *product;
    match factors {
        Factors::Of(Element::Bf16 | Element::F16) | Factors::E4m3 => {}
        Factors::Q4(_) => return product.four_bit(multiprocessors),
        Factors::Of(Element::F32) => return None,
    }
    let (most, block) = FEW_ROWS.into_iter().find(|(most, _)| rows <= *most)?;
    if !outputs.is_multiple_of(block) || !(inputs * factors.bytes()).is_multiple_of(16) {
        return None;
    }
    let scales = product.scales.map(|scales| [scales.rows, scales.outputs]);
    let [of_rows, of_outputs] = scales.map_or([None; 2], |scales| scales.map(Some));
    let args = Args::new([Some(x), Some(w), bias, Some(y), of_rows, of_outputs]).numbers(&[
        rows,
        outputs,
        inputs,
        usize::from(adds),
    ]);
    let kernel = format!("product_{}_{}_{most}", factors.name(), out.suffix());
    Some((kernel, product_grid(outputs / block, multiprocessors), args.bytes()))
}

impl Products {
    /// In the current context, which must outlive it.
    pub(super) fn new() -> Result<Self, GpuError> {
        let handle = Owned::new(result::create_handle().map_err(failed)?, |handle| {
            // SAFETY: nobody uses it.
            let _ = unsafe { result::destroy_handle(handle) };
        });
        // SAFETY: given back by `close`, or where the rest cannot be made.
        let workspace = unsafe { driver::malloc_sync(WORKSPACE) }.map_err(lost)?;
        let workspace = Owned::new(workspace, |workspace| {
            // SAFETY: nobody uses it.
            let _ = unsafe { driver::free_sync(workspace) };
        });
        let stopwatch = Stopwatch::new()?;
        let (handle, workspace) = (handle.keep(), workspace.keep());
        Ok(Self { handle, workspace, plans: Mutex::default(), stopwatch })
    }

    /// Describes a product, and asks the library for its best algorithms, `most` of them at most. They may be none.
    fn describe(
        &self,
        product: &Linear,
        most: usize,
    ) -> Result<(ProductPlan, Vec<sys::cublasLtMatmulAlgo_t>), result::CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_EPILOGUE as EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA as TRANSPOSED,
        };
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
        let single = sys::cudaDataType_t::CUDA_R_32F;
        let Linear { bias, out, .. } = *product;
        let (rows, outputs, inputs) = (product.rows as u64, product.outputs as u64, product.inputs as u64);
        let factors = kind_of(product.factors);
        // Sums in single precision; where the factors are single too, they are not cut to fewer bits.
        let described = description(single)?;
        let w = layout(factors, (inputs, outputs))?;
        let x = layout(factors, (inputs, rows))?;
        let y = layout(kind(out), (outputs, rows))?;
        let preferred = preference()?;
        let (product, preference) = (described.raw(), preferred.raw());
        let (workspace, alignment) = (WORKSPACE, ALIGNMENT);
        // SAFETY: all of them have just been made; the attributes have the types that the library documents.
        unsafe {
            set(product, TRANSPOSED, &OP_T)?;
            if let Some(bias) = bias {
                set(product, EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
                set(product, BIAS, &bias.0)?;
            }
            result::set_matmul_pref_attribute(
                preference,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<usize>(),
            )?;
            // Rows of a product may begin anywhere that its widest reading can; the library takes more for
            // granted.
            for side in [
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
            ] {
                result::set_matmul_pref_attribute(
                    preference,
                    side,
                    (&raw const alignment).cast(),
                    size_of::<u32>(),
                )?;
            }
            let mut found = Vec::with_capacity(most);
            let mut count = 0;
            let status = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                product,
                w.raw(),
                x.raw(),
                y.raw(),
                y.raw(),
                preference,
                most as i32,
                found.as_mut_ptr(),
                &mut count,
            );
            // It may know none: a kernel of our own may do.
            if status != sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
                status.result()?;
                found.set_len((count.max(0) as usize).min(most));
            }
            let works = |found: &sys::cublasLtMatmulHeuristicResult_t| {
                found.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            };
            let algorithms = found.iter().filter(|found| works(found)).map(|found| found.algo).collect();
            let algorithm = ProductAlgorithm::Kernel;
            Ok((ProductPlan { product: described, w, x, y, algorithm }, algorithms))
        }
    }

    /// Gives everything back; the context must be current.
    pub(super) fn close(&mut self) {
        self.plans.get_mut().expect("no holder panics").clear();
        // SAFETY: nothing uses them any more.
        unsafe {
            self.stopwatch.iter_mut().for_each(Stopwatch::close);
            let _ = driver::free_sync(self.workspace);
            let _ = result::destroy_handle(self.handle);
        }
    }
}

/// A description of a product whose sums are of this type, with nothing set.
fn description(sums: sys::cudaDataType) -> Result<Owned<sys::cublasLtMatmulDesc_t>, result::CublasError> {
    let made = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sums)?;
    Ok(Owned::new(made, |product| {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { result::destroy_matmul_desc(product) };
    }))
}

/// A description of a matrix without gaps between its columns.
fn layout(
    kind: sys::cudaDataType,
    (rows, columns): (u64, u64),
) -> Result<Owned<sys::cublasLtMatrixLayout_t>, result::CublasError> {
    let made = result::create_matrix_layout(kind, rows, columns, rows as i64)?;
    Ok(Owned::new(made, |layout| {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { result::destroy_matrix_layout(layout) };
    }))
}

/// What an algorithm has to be like, with nothing set.
fn preference() -> Result<Owned<sys::cublasLtMatmulPreference_t>, result::CublasError> {
    Ok(Owned::new(result::create_matmul_pref()?, |preference| {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
    }))
}

/// Sets an attribute of a product.
///
/// # Safety
/// The product must be alive, and `value` of the type that the library documents for the attribute.
unsafe fn set<T>(
    product: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), result::CublasError> {
    // SAFETY: as the caller promises.
    unsafe {
        result::set_matmul_desc_attribute(product, attribute, (value as *const T).cast(), size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_must_be_faster_by_a_margin_than_one_before_it_and_a_part_of_our_kernel_is_hidden() {
        for (times, hidden_ms, expected) in [
            ([0.0100, 0.0098, 0.0098], None, 0),
            ([0.0100, 0.0096, 0.0095], None, 1),
            ([0.0100, 0.0096, 0.0092], None, 2),
            ([0.0100, 0.0096, 0.0096], Some(0.0), 0),
            ([0.0100, 0.0094, 0.0093], Some(0.0), 1),
            ([0.0100, 0.0077, 0.0090], Some(HIDDEN_MS), 0),
            ([0.0100, 0.0075, 0.0071], Some(HIDDEN_MS), 2),
            ([f32::INFINITY, 0.0100, 0.0200], Some(HIDDEN_MS), 1),
            ([0.0100, f32::INFINITY, f32::INFINITY], None, 0),
        ] {
            assert_eq!(fastest(&times, hidden_ms), expected, "{times:?}, {hidden_ms:?}");
        }
    }

    #[test]
    fn rings_of_two_blocks_lie_on_a_multiprocessor_where_there_is_room_for_two_and_one_fits_everywhere() {
        let sums = (8 * 16 + 1) * 32 * size_of::<f32>(); // what a block of 32 rows declares itself, at most
        // Kilobytes of shared memory that a block may have, and that a multiprocessor has, each block with one of the system's own (CUDA
        // C++ programming guide, technical specifications for each compute capability).
        for (capability, of_block, of_all, blocks) in [
            ((8, 0), 163, 164, 2),
            ((8, 6), 99, 100, 1),
            ((8, 7), 163, 164, 2),
            ((8, 9), 99, 100, 1),
            ((9, 0), 227, 228, 2),
            ((10, 0), 227, 228, 2),
            ((10, 3), 227, 228, 2),
            ((12, 0), 99, 100, 1),
        ] {
            let bytes = product_ring(product_depth(capability)) + sums;
            assert!(bytes <= of_block * 1024, "{capability:?}: {bytes}");
            assert_eq!(of_all * 1024 / (bytes + 1024), blocks, "{capability:?}: {bytes}");
        }
    }
}
