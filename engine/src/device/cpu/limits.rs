//! What this machine can do at most: the yardsticks of which a speed is given as a fraction.
//!
//! Rates on registers, not of somebody's matrix product: no product can be faster. It must not know models.

use std::hint::black_box;

use rayon::prelude::*;

use super::isa::Isa;
use super::kernels::amx::{self, Amx};
use super::kernels::matrix_unit::{multiply_in_place, operations_in_place};
use super::kernels::matrix_unit_bytes;
use super::processor::Cpu;
use super::registers::{SUMS, TIMES, best_of, bytes, halves, pairs, single};

/// Rounds of products on a matrix unit.
const TILE_TIMES: usize = 200_000;

/// Words read by a run: far beyond any cache.
const WORDS: usize = 64 << 20;

/// What the threads of a device reach together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes read from memory per second.
    pub read: f64,
    /// Operations per second in single precision, a multiplication and an addition counted as two.
    pub single: f64,
    /// The same by the instructions that meet weights of bf16, on pairs of them or on half floats; `None` where the
    /// device's kernels widen them.
    pub bf16: Option<f64>,
    /// The same on eight-bit integers in vectors; `None` where the device's kernels have no such instruction.
    pub int8: Option<f64>,
    /// The same on a matrix unit; `None` where none of the device's kernels multiplies integers on one.
    pub int8_unit: Option<f64>,
}

impl Limits {
    /// Measures them: about a second, on an idle machine.
    pub fn measure(cpu: &Cpu) -> Self {
        let isa = cpu.isa();
        let rate = |operations: usize, kernel: &(dyn Fn() + Sync)| {
            let seconds = cpu.run(|| best(|| drop(rayon::broadcast(|_| kernel()))));
            operations as f64 * cpu.threads() as f64 / seconds
        };
        let (lanes, kernel) = single(isa);
        let single = rate(2 * lanes * SUMS * TIMES, &|| kernel(TIMES));
        let bf16 = match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Amx => Some(rate(operations_in_place(TILE_TIMES), &|| unsafe {
                multiply_in_place::<Amx>(TILE_TIMES);
            })),
            _ if isa.multiplies_halves() => {
                halves(isa).map(|(lanes, kernel)| rate(2 * lanes * SUMS * TIMES, &|| kernel(TIMES)))
            }
            _ => pairs(isa).map(|(lanes, kernel)| rate(4 * lanes * SUMS * TIMES, &|| kernel(TIMES))),
        };
        let int8 = bytes(isa).map(|(lanes, kernel)| rate(8 * lanes * SUMS * TIMES, &|| kernel(TIMES)));
        let int8_unit = (isa == Isa::Amx && amx::multiplies_bytes()).then(|| {
            // SAFETY: as above, and the unit multiplies bytes.
            rate(matrix_unit_bytes::operations_in_place(TILE_TIMES), &|| unsafe {
                matrix_unit_bytes::multiply_in_place::<Amx>(TILE_TIMES);
            })
        });
        Self { read: read_rate(cpu), single, bf16, int8, int8_unit }
    }

    /// The most that products with weights in eight bits may reach: those in four are multiplied in vectors alone.
    pub fn of_eight_bits(&self) -> Option<f64> {
        self.int8_unit.or(self.int8)
    }
}

fn read_rate(cpu: &Cpu) -> f64 {
    let memory = vec![1u64; WORDS];
    let sum = |chunk: &[u64]| chunk.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let seconds = cpu.run(|| {
        best(|| {
            black_box(memory.par_chunks(1 << 20).map(sum).reduce(|| 0, u64::wrapping_add));
        })
    });
    size_of_val(&memory[..]) as f64 / seconds
}

/// The shortest of some runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let [seconds] = best_of([&mut run]);
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_this_machine_has_limits() {
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(Some(1), isa).expect("threads start");
            let limits = Limits::measure(&cpu);
            assert!(limits.read > 0.0 && limits.single > 0.0, "{isa:?} {limits:?}");
            let narrow = isa.rounds_activations() || isa.multiplies_halves();
            assert_eq!(limits.bf16.is_some(), narrow, "{isa:?}");
            assert_eq!(limits.int8.is_some(), isa > Isa::Portable, "{isa:?}");
            let has_unit = isa == Isa::Amx && amx::multiplies_bytes();
            assert_eq!(limits.int8_unit.is_some(), has_unit, "{isa:?}");
        }
    }

    #[test]
    fn eight_bits_have_the_units_limit_where_there_is_one() {
        let vectors = Limits { read: 1.0, single: 2.0, bf16: None, int8: Some(3.0), int8_unit: None };
        assert_eq!(vectors.of_eight_bits(), Some(3.0));
        assert_eq!(Limits { int8_unit: Some(9.0), ..vectors }.of_eight_bits(), Some(9.0));
        assert_eq!(Limits { int8: None, ..vectors }.of_eight_bits(), None);
    }
}
