//! The approximate index: hierarchical navigable small worlds of the crate `hnsw_rs`, and nothing of it shows outside.
//!
//! Points go in one by one in the order of their numbers, so that the same vectors make the same graph. The crate neither
//! removes points nor tells which are reachable; [`crate::Index`] answers for both.

use hnsw_rs::prelude::{Distance, Hnsw};

/// Links of a point in each layer (M of the algorithm); twice as many in the lowest.
const LINKS: usize = 24;
/// Candidates that are looked at for a new point's links.
const BUILD_BREADTH: usize = 128;
/// Most layers: what the crate allows.
const LAYERS: usize = 16;
/// Candidates that are looked at in a search, at least.
const SEARCH_BREADTH: usize = 160;

/// `1 - a b` of unit vectors: half the square of their distance.
struct Angle;

impl Distance<f32> for Angle {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        // The crate panics at a negative distance, which rounding could give.
        (1.0 - dot(a, b)).max(0.0)
    }
}

/// The sum of products, in an order that a compiler can vectorise.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0_f32; 16];
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// A graph of points 0, 1, 2 and so on.
pub(crate) struct Graph {
    points: usize,
    inner: Hnsw<'static, f32, Angle>,
}

impl Graph {
    /// An empty graph, for about so many points.
    pub(crate) fn new(expected: usize) -> Self {
        Self { points: 0, inner: Hnsw::new(LINKS, expected, LAYERS, BUILD_BREADTH, Angle) }
    }

    /// Adds the next point.
    pub(crate) fn insert(&mut self, vector: &[f32]) {
        self.inner.insert((vector, self.points));
        self.points += 1;
    }

    /// Points near a vector: up to `count`, most of the nearest among them.
    pub(crate) fn near(&self, vector: &[f32], count: usize) -> impl Iterator<Item = usize> {
        let breadth = SEARCH_BREADTH.max(2 * count);
        self.inner.search(vector, count, breadth).into_iter().map(|point| point.d_id)
    }
}
