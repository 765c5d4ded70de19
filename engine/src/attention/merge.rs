//! Merging partial attention: the exact softmax over a union from the softmaxes over its pieces.
//!
//! FlashAttention (arXiv 2205.14135), section 3.1: outputs with their maxima and sums of exponentials merge
//! in any order and grouping. Maxima are whole numbers in powers of two, so factors are exact.

use super::layer::two_to;

/// `out` = the attention over all `partials`, each `[unnormalised output.., maximum, sum]` of the same query.
///
/// Elements beyond `out`'s width and before the last two are padding. A piece of which the query sees nothing
/// has maximum minus infinity and adds nothing.
pub(super) fn merge<'a>(partials: impl Iterator<Item = &'a [f32]> + Clone, out: &mut [f32]) {
    let tail = |partial: &[f32]| (partial[partial.len() - 2], partial[partial.len() - 1]);
    let mut rest = partials.clone();
    if let (Some(only), None) = (rest.next(), rest.next()) {
        let share = 1.0 / tail(only).1;
        out.iter_mut().zip(only).for_each(|(out, value)| *out = value * share);
        return;
    }
    let max = partials.clone().map(|partial| tail(partial).0).fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    out.fill(0.0);
    for partial in partials {
        let (own, sum) = tail(partial);
        let factor = if own == f32::NEG_INFINITY { 0.0 } else { two_to(own - max) };
        if factor == 0.0 && sum == 0.0 {
            continue;
        }
        total += factor * sum;
        for (out, value) in out.iter_mut().zip(partial) {
            *out += factor * value;
        }
    }
    let share = 1.0 / total;
    out.iter_mut().for_each(|out| *out *= share);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The partial of scores and two-wide values, as a task leaves it.
    fn partial(keys: &[(f32, [f32; 2])]) -> Vec<f32> {
        let max = keys.iter().map(|(score, _)| score.ceil()).fold(f32::NEG_INFINITY, f32::max);
        let weight = |score: f32| if max == f32::NEG_INFINITY { 0.0 } else { (score - max).exp2() };
        let column = |d: usize| keys.iter().map(|(score, value)| weight(*score) * value[d]).sum();
        vec![column(0), column(1), 0.0, max, keys.iter().map(|(score, _)| weight(*score)).sum()]
    }

    #[test]
    fn pieces_merge_to_the_whole_however_they_are_cut_and_ordered() {
        let keys: Vec<(f32, [f32; 2])> =
            (0..12).map(|i| ((i as f32 * 1.7).sin() * 20.0, [i as f32, (i * i) as f32 / 10.0])).collect();
        let mut whole = [0.0; 2];
        merge([partial(&keys)].iter().map(Vec::as_slice), &mut whole);
        for cuts in [[1, 2], [4, 8], [0, 12], [5, 5]] {
            let mut pieces =
                [partial(&keys[..cuts[0]]), partial(&keys[cuts[0]..cuts[1]]), partial(&keys[cuts[1]..])];
            for _ in 0..3 {
                pieces.rotate_left(1);
                let mut out = [0.0; 2];
                merge(pieces.iter().map(Vec::as_slice), &mut out);
                assert!((0..2).all(|d| (out[d] - whole[d]).abs() < 1e-5), "{cuts:?}: {out:?} for {whole:?}");
            }
        }
    }

    #[test]
    fn a_piece_that_is_not_a_number_is_not_hidden() {
        let mut out = [0.0; 2];
        merge([partial(&[(1.0, [1.0, 2.0])]), vec![f32::NAN; 5]].iter().map(Vec::as_slice), &mut out);
        assert!(out[0].is_nan());
    }
}
