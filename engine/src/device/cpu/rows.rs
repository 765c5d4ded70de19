//! Operations on each row of activations by itself: normalisation, sums.

use rayon::prelude::*;

use super::processor::Cpu;
use super::softmax;
use crate::checkpoint::config::Norm as NormKind;

/// Rows that a task takes at least: less is not worth waking a thread for.
const ROWS_PER_TASK: usize = 8;

/// Numbers that a task bends.
const NUMBERS_PER_TASK: usize = 1 << 14;

/// A normalisation with its weights.
pub struct Norm {
    pub kind: NormKind,
    /// One factor per feature.
    pub weight: Vec<f32>,
    /// One summand per feature; empty where the kind has none.
    pub bias: Vec<f32>,
}

impl Norm {
    /// Normalises one row in place.
    pub fn apply(&self, row: &mut [f32]) {
        let (mean, scale) = self.moments(row);
        for (x, weight) in row.iter_mut().zip(&self.weight) {
            *x = (*x - mean) * scale * weight;
        }
        row.iter_mut().zip(self.summands()).for_each(|(x, bias)| *x += bias);
    }

    /// `out` = one row, normalised.
    pub(super) fn apply_to(&self, row: &[f32], out: &mut [f32]) {
        let (mean, scale) = self.moments(row);
        for ((out, x), weight) in out.iter_mut().zip(row).zip(&self.weight) {
            *out = (*x - mean) * scale * weight;
        }
        out.iter_mut().zip(self.summands()).for_each(|(out, bias)| *out += bias);
    }

    /// What is added in the end: nothing in the kind that has no bias.
    fn summands(&self) -> &[f32] {
        match self.kind {
            NormKind::Rms { .. } => &[],
            NormKind::Layer { .. } => &self.bias,
        }
    }

    /// What is taken from each feature of a row, and what it is then multiplied by.
    fn moments(&self, row: &[f32]) -> (f32, f32) {
        let width = row.len() as f32;
        match self.kind {
            NormKind::Rms { epsilon } => (0.0, 1.0 / (sum(row, |x| x * x) / width + epsilon).sqrt()),
            NormKind::Layer { epsilon } => {
                let mean = sum(row, |x| x) / width;
                let variance = sum(row, |x| (x - mean) * (x - mean)) / width;
                (mean, 1.0 / (variance + epsilon).sqrt())
            }
        }
    }
}

/// The sum of `f` over a row, in 16 running sums so that it becomes vectors.
fn sum(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0f32; 16];
    let (chunks, rest) = row.as_chunks::<16>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += f(*x);
        }
    }
    sums.into_iter().sum::<f32>() + rest.iter().map(|x| f(*x)).sum::<f32>()
}

impl Cpu {
    /// `out = norm(x)`, row by row.
    pub fn norm(&self, x: &[f32], norm: &Norm, out: &mut [f32]) {
        let width = norm.weight.len();
        let rows = x.par_chunks_exact(width).zip(out.par_chunks_exact_mut(width));
        rows.with_min_len(ROWS_PER_TASK).for_each(|(x, out)| norm.apply_to(x, out));
    }

    /// `x += norm(y)`, row by row; `y` is left normalised.
    pub fn add_norm(&self, x: &mut [f32], norm: &Norm, y: &mut [f32]) {
        let width = norm.weight.len();
        let rows = x.par_chunks_exact_mut(width).zip(y.par_chunks_exact_mut(width));
        rows.with_min_len(ROWS_PER_TASK).for_each(|(x, y)| {
            norm.apply(y);
            self.add(x, y);
        });
    }

    /// Bends numbers to stay between `cap` and its negative: `cap tanh(x / cap)`.
    pub fn bend(&self, numbers: &mut [f32], cap: f32) {
        numbers.par_chunks_mut(NUMBERS_PER_TASK).for_each(|numbers| softmax::bend(self.isa, numbers, cap));
    }

    /// `x += y`.
    pub fn add(&self, x: &mut [f32], y: &[f32]) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += *y);
    }

    /// Each logit becomes `e^((logit - base) * scale)`.
    pub fn exp(&self, logits: &mut [f32], base: f32, scale: f32) {
        softmax::exp_all(self.isa, logits, base, scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalisations_equal_their_definitions() {
        let row: Vec<f32> = (0..37).map(|i| (i as f32 * 0.7).cos() + 0.3).collect();
        let weight: Vec<f32> = (0..37).map(|i| 1.0 + i as f32 / 100.0).collect();
        let bias: Vec<f32> = (0..37).map(|i| i as f32 / 50.0).collect();
        let mean = row.iter().sum::<f32>() / 37.0;
        let square = row.iter().map(|x| x * x).sum::<f32>() / 37.0;
        for (kind, exact) in [
            (
                NormKind::Rms { epsilon: 1e-5 },
                Box::new(|i: usize| row[i] / (square + 1e-5).sqrt() * weight[i]) as Box<dyn Fn(usize) -> f32>,
            ),
            (
                NormKind::Layer { epsilon: 1e-5 },
                Box::new(|i: usize| {
                    (row[i] - mean) / (square - mean * mean + 1e-5).sqrt() * weight[i] + bias[i]
                }),
            ),
        ] {
            let mut out = row.clone();
            Norm { kind, weight: weight.clone(), bias: bias.clone() }.apply(&mut out);
            assert!((0..37).all(|i| (out[i] - exact(i)).abs() < 1e-5), "{kind:?}");
        }
    }
}
