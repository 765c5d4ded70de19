//! The sampled share of prompt tokens that the prefix cache does not hold (RelServe, Eq. 11).

use base::TokenCount;

/// An exact share: `missed` of `total` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissRatio {
    missed: u64,
    total: u64,
}

impl MissRatio {
    /// Nothing is known or nothing waits: every token counts.
    pub const ALL: Self = Self { missed: 1, total: 1 };

    /// Eq. 11: the sum of utok(r) over the sum of tok(r), over the sampled rows.
    pub fn of(samples: impl Iterator<Item = (TokenCount, TokenCount)>) -> Self {
        let (mut missed, mut total) = (0, 0);
        for (uncached, tokens) in samples {
            missed += uncached.0;
            total += tokens.0;
        }
        if total == 0 { Self::ALL } else { Self { missed, total } }
    }

    /// The numerator.
    pub fn missed(self) -> u64 {
        self.missed
    }

    /// The denominator; never 0.
    pub fn total(self) -> u64 {
        self.total
    }
}

/// Which of `len` waiting rows are sampled: `k = min(limit, len)` of them, evenly spread. The paper
/// draws them at random; a fixed choice makes a plan a function of the state.
pub fn sample_positions(len: usize, limit: usize) -> impl Iterator<Item = usize> {
    let taken = len.min(limit);
    (0..taken).map(move |j| j * len / taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_weighs_rows_by_their_tokens() {
        let ratio =
            MissRatio::of([(10, 100), (300, 300)].map(|(u, t)| (TokenCount(u), TokenCount(t))).into_iter());
        assert_eq!((ratio.missed(), ratio.total()), (310, 400));
        assert_eq!(MissRatio::of(std::iter::empty()), MissRatio::ALL);
    }

    #[test]
    fn samples_spread_over_the_waiting_rows() {
        assert_eq!(sample_positions(3, 8).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sample_positions(16, 4).collect::<Vec<_>>(), [0, 4, 8, 12]);
        assert_eq!(sample_positions(0, 4).count(), 0);
    }
}
