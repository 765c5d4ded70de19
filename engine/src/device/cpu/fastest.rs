//! Which set of kernels is the fastest on this machine: not always the best that it has.

use std::sync::OnceLock;

use super::isa::Isa;
use super::registers::{halves_over_single, pairs_over_single};

/// The fastest set of kernels of this machine, found once per process.
///
/// Processors that have a matrix unit multiply pairs of bf16 in vectors at half of their rate in single precision, and a
/// virtual machine may hide the unit. Weights of bf16 are multiplied as half floats there, at twice that rate, where the
/// processor has these; else they are widened, and meet whole activations.
pub(super) fn fastest() -> Isa {
    static FASTEST: OnceLock<Isa> = OnceLock::new();
    *FASTEST.get_or_init(|| {
        let best = Isa::detect();
        let Some(pairs) = pairs_over_single(best) else { return best };
        let halves = halves_over_single();
        let isa = choose(best, pairs, halves);
        tracing::info!(
            ?isa,
            pairs_over_single = pairs,
            ?halves,
            "products of bf16 pairs and half floats were timed"
        );
        isa
    })
}

/// How many times as fast half floats must be as what is taken without them. Rates of instructions are whole multiples of
/// one another, and where two are the same, noise must not choose at each start: a model's revision depends on it.
const CLEARLY_FASTER: f64 = 1.25;

/// The set for a machine whose best one is `best`, on which vectors multiply pairs of bf16 so many times as fast as
/// numbers of single precision, and `halves` times where it has instructions for half floats.
fn choose(best: Isa, pairs: f64, halves: Option<f64>) -> Isa {
    if best != Isa::Avx512Bf16 {
        return best;
    }
    match halves {
        Some(halves) if halves > CLEARLY_FASTER * pairs.max(1.0) => Isa::Avx512Fp16,
        _ if pairs < 1.0 => Isa::Avx512Vnni,
        _ => best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_pairs_half_floats_and_singles_is_taken_and_pairs_where_noise_would_choose() {
        for (best, pairs, halves, expected) in [
            (Isa::Avx512Bf16, 0.48, None, Isa::Avx512Vnni),
            (Isa::Avx512Bf16, 2.0, None, Isa::Avx512Bf16),
            (Isa::Avx512Bf16, 0.48, Some(2.1), Isa::Avx512Fp16),
            (Isa::Avx512Bf16, 2.0, Some(1.9), Isa::Avx512Bf16),
            (Isa::Avx512Bf16, 2.0, Some(2.1), Isa::Avx512Bf16),
            (Isa::Avx512Bf16, 1.0, Some(2.0), Isa::Avx512Fp16),
            (Isa::Avx512Bf16, 0.48, Some(0.9), Isa::Avx512Vnni),
            (Isa::Amx, 0.48, Some(2.1), Isa::Amx),
            (Isa::Avx2, 0.5, None, Isa::Avx2),
        ] {
            assert_eq!(choose(best, pairs, halves), expected, "{best:?} at {pairs} and {halves:?}");
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
