//! Seeded random numbers that never change with a library's version: the same seed is the same trace for
//! ever.

use sim::draws::split_mix;

/// SplitMix64: small, equidistributed, good enough for workloads.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of a seed and a purpose. Purposes have streams of their own, so that drawing more of one
    /// thing does not change another.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a of the purpose, spread by one step of the generator.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Self(seed ^ hash);
        random.next();
        random
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless stream is no iterator to its callers")]
    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low..=high`; `low` where the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = u128::from(high.saturating_sub(low)) + 1;
        // Multiply-shift: the bias is below 2^-64 * width, nothing at these widths.
        low + u64::try_from((u128::from(self.next()) * width) >> 64)
            .expect("below width, which fits with low")
    }

    /// One of `items`; `None` where there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let last = items.len().checked_sub(1)?;
        items.get(self.between(0, last as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_purpose_always_give_the_same_numbers() {
        let draw = |seed, purpose| {
            let mut random = SplitMix64::new(seed, purpose);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn ranges_are_covered_and_kept() {
        let mut random = SplitMix64::new(3, "range");
        let mut seen = [0u32; 5];
        for _ in 0..5_000 {
            seen[usize::try_from(random.between(2, 6) - 2).expect("small")] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!(random.between(9, 3), 9);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
