//! Kernels for one kind of GPU, compiled when it is opened.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};

use cudarc::driver::{result, sys as driver};
use cudarc::nvrtc::{result as nvrtc, sys};

use super::lost;
use super::products::product_depth;
use crate::device::cuda::{
    CudaError, GpuError, KernelSet, kernel_names, product_ring, source_of, split_cluster,
};

/// Shared memory that a block may ask for: more than the largest kernel does, and with what it declares
/// itself no more than the 99 kB that devices of 8.6 and 8.9 have.
const SHARED_MAX: i32 = 96 << 10;

/// The same for the kernels of warpgroups, on devices that have 227 kB.
const WGMMA_SHARED_MAX: i32 = 132 << 10;

/// Compiles on all processors. Old compilers do not know it.
const IN_PARALLEL: &str = "--split-compile=0";

/// Kernels as they are loaded.
pub(in super::super) type Cubin = Vec<c_char>;

/// Fails where the compiler is missing.
pub(super) fn require() -> Result<(), CudaError> {
    let remedy = "it comes with the CUDA toolkit and with PyPI's nvidia-cuda-nvrtc; name its folder in LD_LIBRARY_PATH";
    // SAFETY: it looks for a library and closes it again.
    super::require(unsafe { sys::is_culib_present() }, "NVRTC (libnvrtc.so)", remedy)
}

/// Whether devices of a compute capability multiply by warpgroups: 9.0 alone does so by `wgmma`.
pub(super) fn has_wgmma(capability: (i32, i32)) -> bool {
    capability == (9, 0)
}

/// Whether devices of a compute capability have clusters of blocks, and the memory that the kernels made of them take: those of 9 and 10.
/// Blocks of 12 have 99 kB.
pub(super) fn has_clusters(capability: (i32, i32)) -> bool {
    matches!(capability, (9..=10, _))
}

/// The kernels of a set, or all, for compute capability `major.minor`.
pub(in super::super) fn compile(capability: (i32, i32), set: Option<KernelSet>) -> Result<Cubin, CudaError> {
    compile_with(capability, set, IN_PARALLEL)
}

/// The same with an option that old compilers may not know, and do without.
fn compile_with(
    (major, minor): (i32, i32),
    set: Option<KernelSet>,
    option: &str,
) -> Result<Cubin, CudaError> {
    let failed = |error: nvrtc::NvrtcError| CudaError::Kernels(format!("{:?}", error.0));
    let source = CString::new(source_of(set)).expect("the source has no zero");
    let program = nvrtc::create_program(&source, Some(c"relserve.cu")).map_err(failed)?;
    // The variant of 9.0 has what no later one need have.
    let variant = if has_wgmma((major, minor)) { "a" } else { "" };
    let target = format!("--gpu-architecture=sm_{major}{minor}{variant}");
    let depth = format!("--define-macro=PRODUCT_DEPTH={}", product_depth((major, minor)));
    let options = [target.as_str(), "--std=c++17", depth.as_str(), option];
    // SAFETY: the program is alive until it is destroyed below, and read by nobody else.
    unsafe {
        let compiled = match nvrtc::compile_program(program, &options) {
            Err(nvrtc::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION)) => {
                nvrtc::compile_program(program, &options[..3])
            }
            compiled => compiled,
        };
        let image = match compiled {
            Ok(()) => cubin(program).map_err(failed),
            Err(error) => Err(match nvrtc::get_program_log(program) {
                Ok(log) => CudaError::Kernels(CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned()),
                Err(_) => failed(error),
            }),
        };
        nvrtc::destroy_program(program).map_err(failed)?;
        image
    }
}

/// What a program was compiled to.
///
/// # Safety
/// The program must have been compiled.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Vec<c_char>, nvrtc::NvrtcError> {
    let mut size = 0;
    // SAFETY: the program is compiled, and the buffer has the length that the library names.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut image = vec![0; size];
        sys::nvrtcGetCUBIN(program, image.as_mut_ptr()).result()?;
        Ok(image)
    }
}

/// The kernels of a loaded module, by name.
pub(super) fn functions(
    module: driver::CUmodule,
    capability: (i32, i32),
    set: Option<KernelSet>,
) -> Result<HashMap<String, driver::CUfunction>, GpuError> {
    use driver::CUfunction_attribute::{
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as CARVEOUT,
    };
    let one = |name: &str| {
        let symbol = CString::new(name).expect("names of kernels have no zero");
        // SAFETY: the module is loaded, and its functions live as long as it does.
        let function = unsafe { result::module::get_function(module, symbol) }.map_err(lost)?;
        let most = match name.starts_with("attend_wgmma") {
            true if has_wgmma(capability) => Some(WGMMA_SHARED_MAX),
            false if name.starts_with("attend") => Some(SHARED_MAX),
            false if name.starts_with("product") => match split_cluster(name) {
                Some(grid) => has_clusters(capability).then_some(grid.shared as i32),
                None => Some(product_ring(product_depth(capability)) as i32),
            },
            _ => None,
        };
        if let Some(most) = most {
            // SAFETY: the same.
            unsafe { result::function::set_function_attribute(function, SHARED, most) }.map_err(lost)?;
        }
        if capability >= (9, 0) {
            // A multiprocessor that parts its memory otherwise for the next kernel waits until the one before has left it.
            // SAFETY: the same.
            unsafe { result::function::set_function_attribute(function, CARVEOUT, 100) }.map_err(lost)?;
        }
        Ok((name.to_owned(), function))
    };
    kernel_names(&source_of(set)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::Element;

    #[test]
    fn every_kernel_of_the_source_is_named_once() {
        let source = source_of(None);
        let mut names: Vec<&str> = kernel_names(&source).collect();
        assert!(names.len() >= 20, "{names:?}");
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    /// Optimises hardly at all: a sixth of the time, with the same errors of a source and of what a card lacks.
    const IN_A_HURRY: &str = "--Ofast-compile=max";

    /// All kernels in a hurry, and two sets of them as servers have them.
    #[test]
    fn the_kernels_compile_where_the_compiler_is_at_hand() {
        if require().is_err() {
            eprintln!("skipped: no NVRTC on this machine");
            return;
        }
        let bf16 = KernelSet { element: Element::Bf16, kept: Some("q8"), weights: Some("q4") };
        let f32 = KernelSet { element: Element::F32, kept: None, weights: None };
        for ((major, minor), set, option) in [
            ((8, 0), None, IN_A_HURRY),
            ((9, 0), None, IN_A_HURRY),
            ((8, 0), Some(f32), IN_PARALLEL),
            ((9, 0), Some(bf16), IN_PARALLEL),
        ] {
            let image = compile_with((major, minor), set, option).expect("the kernels compile");
            let elf = image[..4].iter().map(|byte| *byte as u8).collect::<Vec<_>>();
            assert_eq!(elf, b"\x7fELF", "sm_{major}{minor}");
        }
    }
}
