//! The approximate index: hierarchical navigable small worlds of the crate `hnsw_rs`, and nothing of it shows
//! outside.
//!
//! Points go in one by one in the order of their numbers, so that the same vectors make the same graph. The
//! crate can lose points: many copies of one text take all each other's links, and what came later has none.
//! So each point is looked for when all are in, and what is not found is a candidate of every search.

use hnsw_rs::prelude::{Distance, Hnsw};

/// Links of a point in each layer (M of the algorithm); twice as many in the lowest.
const LINKS: usize = 24;
/// Candidates that are looked at for a new point's links.
const BUILD_BREADTH: usize = 128;
/// Most layers: what the crate allows.
const LAYERS: usize = 16;
/// Candidates that are looked at in a search, at least.
const SEARCH_BREADTH: usize = 160;

/// Scores this near are the same: those of copies of one text.
const SAME_SCORE: f32 = 1e-5;

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
    /// Points that links do not lead to.
    loose: Vec<usize>,
}

impl Graph {
    /// The graph of vectors of `dims` numbers each; none where `stop` said so.
    pub(crate) fn of(vectors: &[f32], dims: usize, stop: &dyn Fn() -> bool) -> Option<Self> {
        let points = vectors.len() / dims;
        let inner = Hnsw::new(LINKS, points, LAYERS, BUILD_BREADTH, Angle);
        let mut graph = Self { points, inner, loose: Vec::new() };
        for (point, vector) in vectors.chunks_exact(dims).enumerate() {
            if stop() {
                return None;
            }
            graph.inner.insert((vector, point));
        }
        for (point, vector) in vectors.chunks_exact(dims).enumerate() {
            if stop() {
                return None;
            }
            // A copy will do.
            let score = |found: usize| dot(vector, &vectors[found * dims..][..dims]);
            let is_found = graph.linked(vector, 1).any(|found| score(found) >= score(point) - SAME_SCORE);
            if !is_found {
                graph.loose.push(point);
            }
        }
        Some(graph)
    }

    /// Points in it.
    pub(crate) fn points(&self) -> usize {
        self.points
    }

    /// Points near a vector, most of the `count` nearest among them, each once.
    pub(crate) fn near(&self, vector: &[f32], count: usize) -> Vec<usize> {
        let mut near: Vec<usize> = self.linked(vector, count).chain(self.loose.iter().copied()).collect();
        near.sort_unstable();
        near.dedup();
        near
    }

    fn linked(&self, vector: &[f32], count: usize) -> impl Iterator<Item = usize> + use<> {
        let breadth = SEARCH_BREADTH.max(2 * count);
        self.inner.search(vector, count, breadth).into_iter().map(|point| point.d_id)
    }
}
