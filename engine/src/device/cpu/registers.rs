//! Loops of one instruction on registers: what the units of a processor do at most, at which no product arrives.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::isa::Isa;
pub(super) use kernels::{SUMS, bytes, halves, pairs, single};

/// Rounds of a loop on registers.
pub(super) const TIMES: usize = 1_000_000;

/// The same where only a ratio is asked for, as a server starts: a fraction of a millisecond.
const SHORT_TIMES: usize = 20_000;

/// Runs of each measurement; the shortest counts, for others only ever make it longer.
const RUNS: usize = 5;

/// How many times as fast this thread multiplies pairs of bf16 in vectors as numbers of single precision; `None` where `isa`
/// has no instruction for pairs.
pub(super) fn pairs_over_single(isa: Isa) -> Option<f64> {
    Some(over_single(isa, 2, pairs(isa)?))
}

/// The same of half floats, where the processor has [`Isa::Avx512Fp16`].
pub(super) fn halves_over_single() -> Option<f64> {
    let isa = Some(Isa::Avx512Fp16).filter(|isa| isa.is_available())?;
    Some(over_single(isa, 1, halves(isa)?))
}

/// The same of a loop of so many lanes, each of which multiplies so many `numbers`.
fn over_single(isa: Isa, numbers: usize, (lanes_of_it, kernel): (usize, fn(usize))) -> f64 {
    let (lanes, single) = single(isa);
    let [single_seconds, seconds] = best_of([&mut || single(SHORT_TIMES), &mut || kernel(SHORT_TIMES)]);
    (numbers * lanes_of_it) as f64 / lanes as f64 * single_seconds / seconds
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

    /// Sums that do not wait for one another: more than the instructions' latency leaves idle.
    pub(crate) const SUMS: usize = 12;

    /// Lanes and the loop of the widest multiplication in single precision.
    pub(crate) fn single(isa: Isa) -> (usize, fn(usize)) {
        match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => {
                (16, |times| unsafe { single_512(times) })
            }
            // SAFETY: as above.
            Isa::Avx2 => (8, |times| unsafe { single_256(times) }),
            Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => (4, super::portable),
        }
    }

    /// Lanes of pairs, and the loop, where there is an instruction for them.
    pub(crate) fn pairs(isa: Isa) -> Option<(usize, fn(usize))> {
        // SAFETY: as above.
        isa.rounds_activations().then_some((16, |times| unsafe { pairs_512(times) }))
    }

    /// Lanes of half floats, and the loop, where there is an instruction for them.
    pub(crate) fn halves(isa: Isa) -> Option<(usize, fn(usize))> {
        // SAFETY: as above.
        isa.multiplies_halves().then_some((32, |times| unsafe { halves_512(times) }))
    }

    /// Lanes of four integers, and the loop, where there are instructions for them.
    pub(crate) fn bytes(isa: Isa) -> Option<(usize, fn(usize))> {
        match isa {
            Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => None,
            // SAFETY: as above.
            Isa::Avx2 | Isa::Avx512 => Some((8, |times| unsafe { bytes_256(times) })),
            // SAFETY: as above.
            Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => {
                Some((16, |times| unsafe { bytes_512(times) }))
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn single_512(times: usize) {
        let one = _mm512_set1_ps(black_box(1.0));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(one, one, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    fn single_256(times: usize) {
        let one = _mm256_set1_ps(black_box(1.0));
        let mut sums = [_mm256_setzero_ps(); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(one, one, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn pairs_512(times: usize) {
        let one = _mm512_set1_ps(black_box(1.0));
        let ones = _mm512_cvtne2ps_pbh(one, one);
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512fp16")]
    fn halves_512(times: usize) {
        let one = _mm512_castsi512_ph(_mm512_set1_epi16(black_box(0x3C00)));
        let mut sums = [_mm512_setzero_ph(); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ph(one, one, *sum);
            }
        }
        black_box(sums);
    }

    /// Products of bytes, summed up in 16 bits: what weights of four bits take.
    #[target_feature(enable = "avx2")]
    fn bytes_256(times: usize) {
        let ones = _mm256_set1_epi8(black_box(1));
        let mut sums = [_mm256_setzero_si256(); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(black_box(ones), ones));
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn bytes_512(times: usize) {
        let ones = _mm512_set1_epi8(black_box(1));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..times {
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

    use super::Isa;
    use crate::device::cpu::kernels::{neon_bytes, neon_dotprod, neon_i8mm};

    /// Sums that do not wait for one another: more than the instructions' latency leaves idle.
    pub(crate) const SUMS: usize = 16;

    /// Lanes and the loop of the widest multiplication in single precision.
    pub(crate) fn single(isa: Isa) -> (usize, fn(usize)) {
        match isa {
            // SAFETY: a device has only kernels that its processor has (`Cpu::with_isa`).
            Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => (4, |times| unsafe { single_128(times) }),
            _ => (4, super::portable),
        }
    }

    /// Lanes of half floats: no kernel multiplies such.
    pub(crate) fn halves(_isa: Isa) -> Option<(usize, fn(usize))> {
        None
    }

    /// Lanes of pairs: no kernel multiplies such.
    pub(crate) fn pairs(_isa: Isa) -> Option<(usize, fn(usize))> {
        None
    }

    /// Lanes of four integers, and the loop, where there are instructions for them.
    pub(crate) fn bytes(isa: Isa) -> Option<(usize, fn(usize))> {
        match isa {
            // SAFETY: as above.
            Isa::Neon => Some((4, |times| unsafe { bytes_128(times) })),
            // SAFETY: as above.
            Isa::NeonDotprod => Some((4, |times| unsafe { fours_128(times) })),
            // SAFETY: as above.
            Isa::NeonI8mm => Some((8, |times| unsafe { eights_128(times) })),
            _ => None,
        }
    }

    #[target_feature(enable = "neon")]
    fn single_128(times: usize) {
        let one = vdupq_n_f32(black_box(1.0));
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, one, one);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon")]
    fn bytes_128(times: usize) {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = neon_bytes::dot::<0>(*sum, black_box(ones), ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon,dotprod")]
    fn fours_128(times: usize) {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..times {
            for sum in &mut sums {
                *sum = neon_dotprod::dot::<0>(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "neon,i8mm")]
    fn eights_128(times: usize) {
        let ones = vdupq_n_s8(black_box(1));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..times {
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

    pub(crate) fn bytes(_isa: Isa) -> Option<(usize, fn(usize))> {
        None
    }

    pub(crate) const SUMS: usize = 12;

    pub(crate) fn single(_isa: Isa) -> (usize, fn(usize)) {
        (4, super::portable)
    }

    pub(crate) fn pairs(_isa: Isa) -> Option<(usize, fn(usize))> {
        None
    }

    pub(crate) fn halves(_isa: Isa) -> Option<(usize, fn(usize))> {
        None
    }
}

/// What the compiler makes of four lanes.
fn portable(times: usize) {
    let one = black_box(1.0f32);
    let mut sums = [[0.0f32; 4]; SUMS];
    for _ in 0..times {
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
    fn what_is_compared_takes_turns() {
        let order = RefCell::new(Vec::new());
        let times = best_of([&mut || order.borrow_mut().push(0), &mut || order.borrow_mut().push(1)]);
        assert_eq!(order.into_inner(), [0, 1].repeat(RUNS));
        assert!(times.iter().all(|seconds| *seconds < Duration::MAX.as_secs_f64()), "{times:?}");
    }
}
