//! Which set of kernels is the fastest on this machine: not always the best that it has.

use std::sync::OnceLock;

use super::isa::Isa;
use super::registers::pairs_over_single;

/// The fastest set of kernels of this machine, found once per process.
///
/// Processors that have a matrix unit multiply pairs of bf16 in vectors at half of their rate in single precision, and a
/// virtual machine may hide the unit. Weights of bf16 are widened there, and meet whole activations.
pub(super) fn fastest() -> Isa {
    static FASTEST: OnceLock<Isa> = OnceLock::new();
    *FASTEST.get_or_init(|| {
        let best = Isa::detect();
        let Some(ratio) = pairs_over_single(best) else { return best };
        let isa = choose(best, ratio);
        tracing::info!(?isa, pairs_over_single = ratio, "products of bf16 pairs were timed");
        isa
    })
}

/// The set for a machine whose best one is `best`, on which vectors multiply pairs of bf16 `pairs_over_single` times as fast
/// as numbers of single precision.
fn choose(best: Isa, pairs_over_single: f64) -> Isa {
    let is_slower = best == Isa::Avx512Bf16 && pairs_over_single < 1.0;
    if is_slower { Isa::Avx512Vnni } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_are_slower_than_singles_are_left_to_a_matrix_unit() {
        for (best, ratio, expected) in [
            (Isa::Avx512Bf16, 0.48, Isa::Avx512Vnni),
            (Isa::Avx512Bf16, 2.0, Isa::Avx512Bf16),
            (Isa::Amx, 0.48, Isa::Amx),
            (Isa::Avx2, 0.5, Isa::Avx2),
        ] {
            assert_eq!(choose(best, ratio), expected, "{best:?} at {ratio}");
        }
    }

    #[test]
    fn the_fastest_is_one_that_the_machine_has_and_stays_the_same() {
        let isa = fastest();
        assert!(isa.is_available(), "{isa:?}");
        assert!(isa >= Isa::detect().min(Isa::Avx512Vnni), "{isa:?} of {:?}", Isa::detect());
        assert_eq!(fastest(), isa);
    }
}
