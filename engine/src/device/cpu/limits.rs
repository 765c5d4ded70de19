//! What this machine can do at most: the yardsticks of which a speed is given as a fraction.
//!
//! Rates on registers, not of somebody's matrix product: no product can be faster. It must not know models.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::isa::Isa;
use super::kernels::amx::{self, Amx};
use super::kernels::matrix_unit::{multiply_in_place, operations_in_place};
use super::kernels::matrix_unit_bytes;
use super::processor::Cpu;

/// Rounds of products on a matrix unit.
const TILE_TIMES: usize = 200_000;

/// Runs of each measurement; the shortest counts, for others only ever make it longer.
const RUNS: usize = 5;

/// Words read by a run: far beyond any cache.
const WORDS: usize = 64 << 20;

/// What the threads of a device reach together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes read from memory per second.
    pub read: f64,
    /// Operations per second in single precision, a multiplication and an addition counted as two.
    pub single: f64,
    /// The same on pairs of bf16; `None` where the device's kernels have no such instruction.
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
        let rate = |operations: f64, kernel: fn()| {
            let seconds = cpu.run(|| best(|| drop(rayon::broadcast(|_| kernel()))));
            operations * cpu.threads() as f64 / seconds
        };
        let (lanes, kernel) = kernels::single(isa);
        let single = rate(2.0 * (lanes * kernels::SUMS * kernels::TIMES) as f64, kernel);
        let bf16 = match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Amx => Some(rate(operations_in_place(TILE_TIMES) as f64, || unsafe {
                multiply_in_place::<Amx>(TILE_TIMES);
            })),
            _ => kernels::pairs(isa)
                .map(|(lanes, kernel)| rate(4.0 * (lanes * kernels::SUMS * kernels::TIMES) as f64, kernel)),
        };
        let int8 = kernels::bytes(isa)
            .map(|(lanes, kernel)| rate(8.0 * (lanes * kernels::SUMS * kernels::TIMES) as f64, kernel));
        let int8_unit = (isa == Isa::Amx && amx::multiplies_bytes()).then(|| {
            // SAFETY: as above, and the unit multiplies bytes.
            rate(matrix_unit_bytes::operations_in_place(TILE_TIMES) as f64, || unsafe {
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

/// The shortest of some runs of each, in seconds. They take turns, so that what else the machine does, and how fast its
/// clock is, meets all of them alike.
pub(super) fn best_of<const N: usize>(mut all: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut shortest = [Duration::MAX; N];
    for _ in 0..RUNS {
        for (run, shortest) in all.iter_mut().zip(&mut shortest) {
            let start = Instant::now();
            run();
            *shortest = start.elapsed().min(*shortest);
        }
    }
    shortest.map(|time| time.as_secs_f64())
}

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Isa;

    /// Rounds of a kernel.
    pub(super) const TIMES: usize = 1_000_000;
    /// Sums that do not wait for one another: more than the instructions' latency leaves idle.
    pub(super) const SUMS: usize = 12;

    /// Lanes and the loop of the widest multiplication in single precision.
    pub(super) fn single(isa: Isa) -> (usize, fn()) {
        match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => (16, || unsafe { single_512() }),
            // SAFETY: as above.
            Isa::Avx2 => (8, || unsafe { single_256() }),
            Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => (4, super::portable),
        }
    }

    /// Lanes of pairs, and the loop, where there is an instruction for them.
    pub(super) fn pairs(isa: Isa) -> Option<(usize, fn())> {
        // SAFETY: as above.
        isa.rounds_activations().then_some((16, || unsafe { pairs_512() }))
    }

    /// Lanes of four integers, and the loop, where there are instructions for them.
    pub(super) fn bytes(isa: Isa) -> Option<(usize, fn())> {
        match isa {
            Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => None,
            // SAFETY: as above.
            Isa::Avx2 | Isa::Avx512 => Some((8, || unsafe { bytes_256() })),
            // SAFETY: as above.
            Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => Some((16, || unsafe { bytes_512() })),
        }
    }

    #[target_feature(enable = "avx512f")]
    fn single_512() {
        let one = _mm512_set1_ps(black_box(1.0));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(one, one, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    fn single_256() {
        let one = _mm256_set1_ps(black_box(1.0));
        let mut sums = [_mm256_setzero_ps(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(one, one, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn pairs_512() {
        let one = _mm512_set1_ps(black_box(1.0));
        let ones = _mm512_cvtne2ps_pbh(one, one);
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    /// Products of bytes, summed up in 16 bits: what weights of four bits take.
    #[target_feature(enable = "avx2")]
    fn bytes_256() {
        let ones = _mm256_set1_epi8(black_box(1));
        let mut sums = [_mm256_setzero_si256(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(black_box(ones), ones));
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn bytes_512() {
        let ones = _mm512_set1_epi8(black_box(1));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, ones, ones);
            }
        }
        black_box(sums);
    }
}

#[cfg(target_arch = "aarch64")]
mod kernels {
    use std::arch::aarch64::*;
    use std::hint::black_box;

    use super::super::kernels::{neon_bytes, neon_dotprod, neon_i8mm};
    use super::Isa;

    /// Rounds of a kernel.
    pub(super) const TIMES: usize = 1_000_000;
    /// Sums that do not wait for one another: more than the instructions' latency leaves idle.
    pub(super) const SUMS: usize = 16;

    /// Lanes and the loop of the widest multiplication in single precision.
    pub(super) fn single(isa: Isa) -> (usize, fn()) {
        match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => (4, || unsafe { single_128() }),
            _ => (4, super::portable),
        }
    }

    /// Lanes of pairs: no kernel multiplies such.
    pub(super) fn pairs(_isa: Isa) -> Option<(usize, fn())> {
        None
    }

    /// Lanes of four integers, and the loop, where there are instructions for them.
    pub(super) fn bytes(isa: Isa) -> Option<(usize, fn())> {
        match isa {
            // SAFETY: as above.
            Isa::Neon => Some((4, || unsafe { bytes_128() })),
            // SAFETY: as above.
            Isa::NeonDotprod => Some((4, || unsafe { fours_128() })),
            // SAFETY: as above.
            Isa::NeonI8mm => Some((8, || unsafe { eights_128() })),
            _ => None,
        }
    }

    #[target_feature(enable = "neon")]
    fn single_128() {
        let one = vdupq_n_f32(black_box(1.0));
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, one, one);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon")]
    fn bytes_128() {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = neon_bytes::dot::<0>(*sum, black_box(ones), ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon,dotprod")]
    fn fours_128() {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = neon_dotprod::dot::<0>(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon,i8mm")]
    fn eights_128() {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..TIMES {
            for sum in &mut sums {
                *sum = neon_i8mm::multiply(*sum, vreinterpretq_u8_s8(ones), ones);
            }
        }
        black_box(sums);
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod kernels {
    use super::Isa;

    pub(super) fn bytes(_isa: Isa) -> Option<(usize, fn())> {
        None
    }

    pub(super) const TIMES: usize = 1_000_000;
    pub(super) const SUMS: usize = 12;

    pub(super) fn single(_isa: Isa) -> (usize, fn()) {
        (4, super::portable)
    }

    pub(super) fn pairs(_isa: Isa) -> Option<(usize, fn())> {
        None
    }
}

/// What the compiler makes of four lanes.
fn portable() {
    let one = black_box(1.0f32);
    let mut sums = [[0.0f32; 4]; kernels::SUMS];
    for _ in 0..kernels::TIMES {
        for sum in sums.as_flattened_mut() {
            *sum += one * one;
        }
    }
    black_box(sums);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_kernel_of_this_machine_has_limits() {
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(Some(1), isa).expect("threads start");
            let limits = Limits::measure(&cpu);
            assert!(limits.read > 0.0 && limits.single > 0.0, "{isa:?} {limits:?}");
            assert_eq!(limits.bf16.is_some(), isa.rounds_activations(), "{isa:?}");
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

    #[test]
    fn what_is_compared_takes_turns() {
        let order = RefCell::new(Vec::new());
        let times = best_of([&mut || order.borrow_mut().push(0), &mut || order.borrow_mut().push(1)]);
        assert_eq!(order.into_inner(), [0, 1].repeat(RUNS));
        assert!(times.iter().all(|seconds| *seconds < Duration::MAX.as_secs_f64()), "{times:?}");
    }
}
