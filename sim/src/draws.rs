//! Seeded random numbers for workloads: the same everywhere and for ever, whatever a library does.

/// The next 64 bits of a generator in this state (SplitMix64: Steele, Lea, Flood 2014).
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of numbers ([`split_mix`]).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream of a seed and a purpose: drawing more for one purpose changes no other.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut draws = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        draws.next();
        draws
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless stream is no iterator to its callers")]
    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// In `low..=high`; `low` where the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = u128::from(high.saturating_sub(low)) + 1;
        low + ((u128::from(self.next()) * width) >> 64) as u64
    }

    /// In (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed, mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// About normally distributed, mean 0, deviation 1: a sum of twelve.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Mean 1, whose logarithm deviates by `spread`.
    pub fn log_normal(&mut self, spread: f64) -> f64 {
        (spread * self.normal() - spread * spread / 2.0).exp()
    }

    /// Puts `items` into an order of chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u64) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        assert_eq!(split_mix(&mut 0), 0xe220_a839_7b1d_cdaf, "its first output from state 0");
    }

    #[test]
    fn draws_have_the_moments_they_promise() {
        let mut draws = Draws::new(1, 0);
        let n = 20_000;
        let mut mean =
            |draw: fn(&mut Draws) -> f64| (0..n).map(|_| draw(&mut draws)).sum::<f64>() / f64::from(n);
        assert!((mean(Draws::exponential) - 1.0).abs() < 0.03);
        assert!(mean(Draws::normal).abs() < 0.03);
        assert!((mean(|draws| draws.normal().powi(2)) - 1.0).abs() < 0.04);
        assert!((mean(|draws| draws.log_normal(0.5)) - 1.0).abs() < 0.03);
    }

    #[test]
    fn a_shuffle_loses_nothing_and_purposes_differ() {
        let mut items: Vec<u32> = (0..50).collect();
        Draws::new(3, 1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..50));
        assert_ne!(Draws::new(3, 1).next(), Draws::new(3, 2).next());
    }
}
