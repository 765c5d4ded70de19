//! The kernels' source, and the structs that they take.

use super::Address;

/// The source of all kernels, one unit of CUDA C++ that includes nothing.
pub fn source() -> String {
    [
        include_str!("kernels/prelude.cuh"),
        include_str!("kernels/rows.cuh"),
        include_str!("kernels/fp8.cuh"),
        include_str!("kernels/kept.cuh"),
        include_str!("kernels/product.cuh"),
        include_str!("kernels/q4.cuh"),
        include_str!("kernels/attention.cuh"),
        include_str!("kernels/tensor_core.cuh"),
        include_str!("kernels/warpgroup.cuh"),
        include_str!("kernels/sampling.cuh"),
    ]
    .concat()
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
