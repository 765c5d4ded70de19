//! What sets a model's revision apart by the way it is run: the same files answer differently then.

use crate::checkpoint::Dtype;
use crate::settings::{KvFormat, Quantize};

/// Activations meet eight-bit weights in groups of 32 inputs. In releases before they did not: what these have answered is
/// not used again.
const FINE_ACTIVATIONS: u128 = 128;

/// What is stored in blocks of integers is widened to single precision as it is. In releases before it was rounded first:
/// likewise.
const EXACT_SINGLES: u128 = 1 << 96;

/// Products of half floats, sums of a few of which round as such.
const HALVES: u128 = 1 << 97;

/// What products round before they multiply, any of them: layers may be stored in another type than the embedding.
#[derive(Clone, Copy)]
pub(super) struct Rounds {
    /// Activations, to bf16, where weights are kept as bf16.
    pub(super) activations: bool,
    /// Both, to half floats, where weights are kept in 16 bits.
    pub(super) halves: bool,
}

/// Sets the revision apart where weights are kept in another type than they are stored, or activations are
/// rounded to meet them, or sums are split over ranks: they round to other answers.
pub(super) fn rounding_mark(
    (stored, kept): (Dtype, Dtype),
    rounds: Rounds,
    quantize: Option<Quantize>,
    ranks: usize,
) -> u128 {
    let weights = match (stored == kept, kept) {
        (true, _) => 0,
        (false, Dtype::F32) => 1 | EXACT_SINGLES,
        (false, Dtype::F16) => 2,
        (false, Dtype::Bf16) => 3,
    };
    let activations = match quantize {
        Some(Quantize::Q8) => 8 | FINE_ACTIVATIONS,
        Some(Quantize::Fp8) => 16,
        // Its vocabulary may be in eight bits.
        Some(Quantize::Q4) => 32 | FINE_ACTIVATIONS,
        Some(Quantize::Q8Wide) => 64,
        None if rounds.activations => 4,
        None if rounds.halves => HALVES,
        None => 0,
    };
    weights | activations | ((ranks as u128 - 1) << 8)
}

/// The same where keys and values are rounded, and queries to meet them.
pub(super) fn kv_mark(kv: KvFormat, rounds_activations: bool) -> u128 {
    match (kv, rounds_activations) {
        (KvFormat::F32, _) => 0,
        (KvFormat::Bf16, false) => 1 << 120,
        (KvFormat::Bf16, true) => 2 << 120,
        (KvFormat::Q8, false) => 3 << 120,
        (KvFormat::Q8, true) => 4 << 120,
        (KvFormat::Fp8, _) => 5 << 120,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_round_has_a_mark_of_its_own_whatever_the_embedding_is_kept_as() {
        let whole = Rounds { activations: false, halves: false };
        let [pairs, halves] = [Rounds { activations: true, ..whole }, Rounds { halves: true, ..whole }];
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let marks = [whole, pairs, halves].map(|it| rounding_mark((dtype, dtype), it, None, 1));
            assert_eq!(marks, [0, 4, HALVES], "{dtype:?}");
        }
    }
}
