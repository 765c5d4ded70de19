//! Products with weights by cuBLASLt, bias and sum in the epilogue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::{result, sys};
use cudarc::driver::{result as driver, sys::CUstream};

use super::lost;
use crate::device::cuda::{Address, CudaError, Element, Factors, GpuError, Linear};

/// Memory that an algorithm may use: what NVIDIA advises for sm_90.
const WORKSPACE: usize = 32 << 20;

/// Bytes of which the addresses of factors and sums are multiples.
const ALIGNMENT: u32 = 16;

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
}

/// A product's description and its algorithm.
struct ProductPlan {
    product: sys::cublasLtMatmulDesc_t,
    w: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    y: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// The library, and the products it has met.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    plans: Mutex<HashMap<ProductShape, ProductPlan>>,
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
    }
}

fn kind_of(factors: Factors) -> sys::cudaDataType {
    match factors {
        Factors::Of(element) => kind(element),
        Factors::E4m3 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
    }
}

impl Products {
    /// In the current context, which must outlive it.
    pub(super) fn new() -> Result<Self, GpuError> {
        let handle = result::create_handle().map_err(failed)?;
        // SAFETY: given back by `close`.
        let workspace = unsafe { driver::malloc_sync(WORKSPACE) }.map_err(lost)?;
        Ok(Self { handle, workspace, plans: Mutex::default() })
    }

    /// Runs a product on the stream.
    ///
    /// The library's matrices have columns: `w` is `[inputs, outputs]` there, read transposed, `x` and `y`
    /// are `[inputs, rows]` and `[outputs, rows]`.
    pub(super) fn run(&self, product: &Linear, stream: CUstream) -> Result<(), GpuError> {
        let Linear { rows, outputs, inputs, factors, out, adds, .. } = *product;
        let shape =
            ProductShape { rows, outputs, inputs, factors, out, has_bias: product.bias.is_some(), adds };
        let mut plans = self.plans.lock().expect("no holder panics");
        let plan = match plans.entry(shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.plan(&shape, product.bias).map_err(failed)?),
        };
        let (one, beta) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
        let pointer = |address: u64| address as *const c_void;
        // SAFETY: descriptions live as long as `self`; memory is alive by the contract of `Gpu`.
        unsafe {
            if let Some(bias) = product.bias {
                set(plan.product, BIAS, &bias.0).map_err(failed)?;
            }
            result::matmul(
                self.handle,
                plan.product,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                pointer(product.w.0),
                plan.w,
                pointer(product.x.0),
                plan.x,
                pointer(product.y.0),
                plan.y,
                product.y.0 as *mut c_void,
                plan.y,
                &plan.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        }
        .map_err(failed)
    }

    /// Describes a product and asks the library for its best algorithm.
    fn plan(&self, shape: &ProductShape, bias: Option<Address>) -> Result<ProductPlan, result::CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_EPILOGUE as EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA as TRANSPOSED,
        };
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
        let single = sys::cudaDataType_t::CUDA_R_32F;
        // Sums in single precision; where the factors are single too, they are not cut to fewer bits.
        let product = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, single)?;
        let (rows, outputs, inputs) = (shape.rows as u64, shape.outputs as u64, shape.inputs as u64);
        let factors = kind_of(shape.factors);
        let w = result::create_matrix_layout(factors, inputs, outputs, inputs as i64)?;
        let x = result::create_matrix_layout(factors, inputs, rows, inputs as i64)?;
        let y = result::create_matrix_layout(kind(shape.out), outputs, rows, outputs as i64)?;
        let preference = result::create_matmul_pref()?;
        let (most, alignment) = (WORKSPACE, ALIGNMENT);
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
                (&raw const most).cast(),
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
            let found = result::get_matmul_algo_heuristic(self.handle, product, w, x, y, y, preference);
            result::destroy_matmul_pref(preference)?;
            Ok(ProductPlan { product, w, x, y, algorithm: found?.algo })
        }
    }

    /// Gives everything back; the context must be current.
    pub(super) fn close(&mut self) {
        let plans = std::mem::take(self.plans.get_mut().expect("no holder panics"));
        // SAFETY: nothing uses them any more.
        unsafe {
            for plan in plans.into_values() {
                let _ = result::destroy_matmul_desc(plan.product);
                for layout in [plan.w, plan.x, plan.y] {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
            let _ = driver::free_sync(self.workspace);
            let _ = result::destroy_handle(self.handle);
        }
    }
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
