//! The kernels' source, and the structs that they take.

use super::{Address, Element};

/// The source of all kernels, one unit of CUDA C++ that includes nothing.
pub fn source() -> String {
    [
        include_str!("kernels/prelude.cuh"),
        include_str!("kernels/rows.cuh"),
        include_str!("kernels/fp8.cuh"),
        include_str!("kernels/kept.cuh"),
        include_str!("kernels/product.cuh"),
        include_str!("kernels/q4.cuh"),
        include_str!("kernels/split.cuh"),
        include_str!("kernels/attention.cuh"),
        include_str!("kernels/tensor_core.cuh"),
        include_str!("kernels/warpgroup.cuh"),
        include_str!("kernels/sampling.cuh"),
    ]
    .concat()
}

/// The kernels that a model needs. Of those that there are for each type it has the ones of its own: all of them are
/// several times as many, and the compiler's time is the start's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelSet {
    /// What weights and activations are kept as.
    pub element: Element,
    /// The part of names that says what keys and values are, where they are not as `element` says: `q8` or `fp8`.
    pub kept: Option<&'static str>,
    /// The same of weights: `q4` or `e4m3`.
    pub weights: Option<&'static str>,
}

impl KernelSet {
    /// Whether a kernel of this name may be launched.
    pub fn has(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.split('_').collect();
        let has = |part: &str| parts.contains(&part);
        // Beside any type there are single-precision numbers.
        let is_of_element =
            [Element::Bf16, Element::F16].iter().all(|other| *other == self.element || !has(other.suffix()));
        let is_of_format = match parts[0] {
            "rotate" | "attend" => {
                let is_as_kept = |kept: &'static str| has(kept) == (self.kept == Some(kept));
                has(self.element.suffix()) && ["q8", "fp8"].into_iter().all(is_as_kept)
            }
            "product" => {
                let is_of_weights = |other: &'static str| !has(other) || self.weights == Some(other);
                ["q4", "e4m3"].into_iter().all(is_of_weights)
            }
            _ => true,
        };
        is_of_element && is_of_format
    }
}

/// The source of the kernels of `set`, or of all.
pub(crate) fn source_of(set: Option<KernelSet>) -> String {
    let all = source();
    let Some(set) = set else { return all };
    // A kernel that there is for several types is a line, which has the compiler make it of a template.
    let is_needed = |line: &&str| !line.ends_with('}') || kernel_name(line).is_none_or(|name| set.has(name));
    all.lines().filter(is_needed).flat_map(|line| [line, "\n"]).collect()
}

/// The names of the kernels that a source declares.
pub(crate) fn kernel_names(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(kernel_name)
}

/// The kernel that a line begins to declare.
fn kernel_name(line: &str) -> Option<&str> {
    let rest = ["KERNEL(", "KERNEL_AHEAD(", "KERNEL_LATE(", "KERNEL_SPLIT("]
        .iter()
        .find_map(|start| line.strip_prefix(start))?;
    rest.split(',').next()
}

/// A kernel's struct of arguments as it lies in memory: addresses first, then numbers of four bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
}

impl Args {
    /// Its addresses; `None` is null.
    pub(crate) fn new(addresses: impl IntoIterator<Item = Option<Address>>) -> Self {
        let address = |address: Option<Address>| address.map_or(0, |address| address.0).to_ne_bytes();
        Self { bytes: addresses.into_iter().flat_map(address).collect() }
    }

    /// Those of `activate_sums`: sums of eight-bit floats and what makes them numbers, then where these and each row's largest go.
    pub(crate) fn activate_sums(
        sums: [Option<Address>; 4],
        to: [Option<Address>; 2],
        [width, activation]: [usize; 2],
    ) -> Self {
        Self::new(sums.into_iter().chain(to)).numbers(&[width, activation])
    }

    /// Whole numbers behind what is there.
    pub(crate) fn numbers(mut self, numbers: &[usize]) -> Self {
        self.bytes.extend(numbers.iter().flat_map(|number| (*number as i32).to_ne_bytes()));
        self
    }

    /// A number behind what is there.
    pub(crate) fn float(mut self, number: f32) -> Self {
        self.bytes.extend(number.to_ne_bytes());
        self
    }

    /// The struct, whose size is whole addresses.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len().next_multiple_of(size_of::<u64>()), 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_own_types_kernels_and_all_that_there_is_once() {
        let bf16 = KernelSet { element: Element::Bf16, kept: None, weights: None };
        let q8 = KernelSet { kept: Some("q8"), ..bf16 };
        for name in
            ["draw", "norm_e4m3", "norm_f32", "norm_bf16", "product_bf16_f32_8", "product_split_bf16_f32_16"]
        {
            assert!(bf16.has(name) && q8.has(name), "{name}");
        }
        for name in ["rotate_bf16", "attend_bf16", "attend_flat_64_bf16", "attend_wgmma_128_bf16"] {
            assert!(bf16.has(name) && !q8.has(name), "{name}");
        }
        for name in ["rotate_q8_bf16", "attend_q8_bf16", "attend_tall_128_q8_bf16"] {
            assert!(!bf16.has(name) && q8.has(name), "{name}");
        }
        for name in ["norm_f16", "rotate_f32", "attend_fp8_bf16", "attend_q8_f32", "product_q4_bf16_f32_8"] {
            assert!(!bf16.has(name) && !q8.has(name), "{name}");
        }
        for (weights, name) in [("q4", "product_q4_bf16_bf16_8"), ("e4m3", "product_e4m3_f32_32")] {
            assert!(!bf16.has(name), "{name}");
            assert!(KernelSet { weights: Some(weights), ..bf16 }.has(name), "{name}");
        }
    }

    #[test]
    fn the_source_of_a_set_declares_its_kernels_and_lacks_no_other_line() {
        let all = source();
        assert_eq!(source_of(None), all);
        for element in [Element::F32, Element::Bf16, Element::F16] {
            for (kept, weights) in [(None, None), (Some("q8"), Some("q4")), (Some("fp8"), Some("e4m3"))] {
                let set = KernelSet { element, kept, weights };
                let source = source_of(Some(set));
                let expected: Vec<&str> = kernel_names(&all).filter(|name| set.has(name)).collect();
                assert_eq!(kernel_names(&source).collect::<Vec<_>>(), expected, "{set:?}");
                assert!(expected.len() < kernel_names(&all).count() * 2 / 3, "{set:?}: {}", expected.len());
                let others = |source: &str| source.lines().filter(|line| kernel_name(line).is_none()).count();
                assert_eq!(others(&source), others(&all), "{set:?}");
            }
        }
    }
}
