//! What tokens cost: prices of a model, and of replicas of it that have their own.
//!
//! Integers throughout, so that what is set aside for a row is never less than what it is charged.

use std::sync::{Mutex, PoisonError};

use base::Money;
use scheduler::Usage;

/// The price of a million tokens, in millionths of the currency: of one token, in millionths of a millionth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub u64);

impl Price {
    /// A price as a configuration has it, to a millionth.
    pub fn of(units: f64) -> Self {
        // A float becomes the nearest integer that there is.
        Self((units * 1e6).round() as u64)
    }
}

/// Prices of tokens at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrices {
    /// Prompt tokens that are computed.
    pub prompt: Price,
    /// Prompt tokens that a prefix cache has.
    pub cached: Price,
    pub output: Price,
}

impl TokenPrices {
    /// Of each kind the higher price.
    pub fn dearest(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            cached: self.cached.max(other.cached),
            output: self.output.max(other.output),
        }
    }

    /// What a row cost that ran here.
    pub fn cost(self, usage: Usage) -> Money {
        sum([(usage.computed.0, self.prompt), (usage.cached.0, self.cached), (usage.output.0, self.output)])
    }

    /// The most that a row of so many tokens can cost here.
    pub fn cost_max(self, prompt: u64, output: u64) -> Money {
        sum([(prompt, self.prompt.max(self.cached)), (output, self.output)])
    }
}

/// Rounded up once, to the next billionth.
fn sum<const N: usize>(parts: [(u64, Price); N]) -> Money {
    let exact = parts
        .into_iter()
        .fold(0u128, |sum, (tokens, price)| sum.saturating_add(u128::from(tokens) * u128::from(price.0)));
    Money(u64::try_from(exact.div_ceil(1_000)).unwrap_or(u64::MAX))
}

/// What rows of a model may cost, wherever they run.
#[derive(Debug)]
pub struct ModelPrices {
    /// The model's own, and those of all replicas that the configuration names.
    configured: TokenPrices,
    /// Those and what came since.
    dearest: Mutex<TokenPrices>,
}

impl ModelPrices {
    /// Those of the configuration, each at its highest.
    pub fn new(configured: TokenPrices) -> Self {
        Self { configured, dearest: Mutex::new(configured) }
    }

    /// Of each kind the highest price: what a row is set aside at.
    pub fn dearest(&self) -> TokenPrices {
        *self.dearest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The replicas have these prices now.
    pub(crate) fn set(&self, replicas: impl Iterator<Item = TokenPrices>) {
        let dearest = replicas.fold(self.configured, TokenPrices::dearest);
        *self.dearest.lock().unwrap_or_else(PoisonError::into_inner) = dearest;
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use super::*;

    fn usage(computed: u64, cached: u64, output: u64) -> Usage {
        Usage {
            prompt: TokenCount(computed + cached),
            computed: TokenCount(computed),
            cached: TokenCount(cached),
            output: TokenCount(output),
            ..Usage::default()
        }
    }

    #[test]
    fn tokens_of_each_kind_have_their_price_and_fractions_are_rounded_up_once() {
        let prices =
            TokenPrices { prompt: Price::of(0.15), cached: Price::of(0.0025), output: Price::of(0.6) };
        assert_eq!(prices.cost(usage(1_000_000, 0, 0)), Money(150_000_000));
        assert_eq!(prices.cost(usage(0, 1_000_000, 1_000_000)), Money(602_500_000));
        // 150 and 2.5 and 600 billionths.
        assert_eq!(prices.cost(usage(1, 1, 1)), Money(753));
        assert_eq!(prices.cost(usage(0, 2, 0)), Money(5));
        assert_eq!(prices.cost(Usage::default()), Money(0));
        let all = Price(u64::MAX);
        let dear = TokenPrices { prompt: all, cached: all, output: all };
        assert_eq!(dear.cost_max(u64::MAX, u64::MAX), Money(u64::MAX), "it ends at the largest amount");
    }

    #[test]
    fn a_row_costs_at_most_what_it_is_set_aside_at() {
        let cheap = TokenPrices { prompt: Price(7), cached: Price(11), output: Price(1) };
        let dear = TokenPrices { prompt: Price(5), cached: Price(2), output: Price(9) };
        let all = ModelPrices::new(cheap);
        all.set([dear].into_iter());
        for prices in [cheap, dear] {
            for (computed, cached, output) in [(0, 10, 3), (10, 0, 3), (4, 6, 0), (1, 0, 1)] {
                let most = all.dearest().cost_max(10, 3);
                assert!(prices.cost(usage(computed, cached, output)) <= most);
            }
        }
        all.set(std::iter::empty());
        assert_eq!(all.dearest(), cheap, "the dear one has left");
    }
}
