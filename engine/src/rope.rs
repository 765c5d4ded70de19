//! Rotary position embedding: the angles of a position, and the rotation of one head.
//!
//! RoFormer (arXiv 2104.09864), Eq. 34, with pairs `(i, i + head_dim / 2)` as Hugging Face stores them.

use crate::checkpoint::config::RopeScaling;

/// Rotary frequencies of a model.
#[derive(Clone, Debug)]
pub(crate) struct Rope {
    /// Radians per position, one per pair.
    frequencies: Vec<f32>,
}

/// Cosines and sines of all positions up to one, computed once: a step's own would cost it a good part of a
/// decode step of a GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Angles {
    /// Pairs per position; 0 where the model does not rotate.
    pairs: usize,
    /// `[positions][cosines, sines][pairs]`
    numbers: Vec<f32>,
}

impl Rope {
    /// Frequencies `theta^(-2i / head_dim)`, rescaled.
    pub(crate) fn new(head_dim: usize, theta: f32, scaling: RopeScaling) -> Self {
        let exponent = |pair: usize| -2.0 * pair as f64 / head_dim as f64;
        let frequencies = (0..head_dim / 2)
            .map(|pair| scale(f64::from(theta).powf(exponent(pair)), scaling) as f32)
            .collect();
        Self { frequencies }
    }

    /// Divides each frequency by its factor, as llama.cpp does with `rope_freqs.weight`.
    pub(crate) fn divide(&mut self, factors: &[f32]) {
        self.frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
    }

    /// The cosines of `position`, then its sines (in double precision: positions reach far).
    fn push(&self, position: usize, numbers: &mut Vec<f32>) {
        let turn = |frequency: &f32| (position as f64 * f64::from(*frequency)).sin_cos();
        let (sines, cosines): (Vec<f64>, Vec<f64>) = self.frequencies.iter().map(turn).unzip();
        numbers.extend(cosines.into_iter().chain(sines).map(|number| number as f32));
    }
}

/// The frequency after `rope_scaling`; the Llama 3 case as in Hugging Face's `_compute_llama3_parameters`.
fn scale(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None | RopeScaling::Stored => frequency, // the stored factors follow: `divide`
        RopeScaling::Linear { factor } => frequency / f64::from(factor),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let (factor, low, high) =
                (f64::from(factor), f64::from(low_freq_factor), f64::from(high_freq_factor));
            let turns = f64::from(original_context) * frequency / std::f64::consts::TAU;
            if turns < low {
                frequency / factor
            } else if turns > high {
                frequency
            } else {
                let smooth = (turns - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

impl Angles {
    /// Has those of all positions below `end`. Always for the same model.
    pub(crate) fn reach(&mut self, rope: &Rope, end: usize) {
        self.pairs = rope.frequencies.len();
        let known = self.numbers.len() / (2 * self.pairs).max(1);
        (known..end).for_each(|position| rope.push(position, &mut self.numbers));
    }

    /// `[positions][cosines, sines][pairs]`
    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// `out` = `head` rotated to `position`.
    pub(crate) fn rotate(&self, position: usize, head: &[f32], out: &mut [f32]) {
        let half = self.pairs;
        if half == 0 {
            out.copy_from_slice(head);
            return;
        }
        let (cos, sin) = self.numbers[2 * position * half..][..2 * half].split_at(half);
        let ((first, second), (a, b)) = (head.split_at(half), out.split_at_mut(half));
        for (((x, y), (cos, sin)), (a, b)) in
            first.iter().zip(second).zip(cos.iter().zip(sin)).zip(a.iter_mut().zip(b))
        {
            *a = x * cos - y * sin;
            *b = y * cos + x * sin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(rope: &Rope, position: usize, head: &[f32]) -> Vec<f32> {
        let mut angles = Angles::default();
        angles.reach(rope, position + 1);
        let mut out = vec![0.0; head.len()];
        angles.rotate(position, head, &mut out);
        out
    }

    #[test]
    fn a_rotated_query_and_key_depend_on_their_distance_only() {
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64,
        };
        for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 4.0 }, llama3] {
            let rope = Rope::new(16, 10_000.0, scaling);
            let q: Vec<f32> = (0..16).map(|i| (i as f32).sin()).collect();
            let k: Vec<f32> = (0..16).map(|i| (i as f32 * 1.3).cos()).collect();
            let score = |p: usize, j: usize| -> f32 {
                rotated(&rope, p, &q).iter().zip(rotated(&rope, j, &k)).map(|(a, b)| a * b).sum()
            };
            for (p, j, shift) in [(20, 3, 7), (500, 100, 60), (5000, 4000, 999)] {
                assert!((score(p + shift, j + shift) - score(p, j)).abs() < 1e-5);
            }
            assert_eq!(rotated(&rope, 0, &q), q);
        }
    }

    #[test]
    fn llama3_scaling_keeps_high_frequencies_and_divides_low_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192,
        };
        let (plain, scaled) =
            (Rope::new(64, 500_000.0, RopeScaling::None), Rope::new(64, 500_000.0, scaling));
        assert_eq!(plain.frequencies[0], scaled.frequencies[0]);
        assert!((plain.frequencies[31] / scaled.frequencies[31] - 8.0).abs() < 1e-5);
        assert!(
            plain
                .frequencies
                .iter()
                .zip(&scaled.frequencies)
                .all(|(p, s)| *p / *s >= 1.0 && *p / *s <= 8.0001)
        );
    }
}
