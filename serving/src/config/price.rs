//! Prices as the sections of models and replicas have them.

use super::{InvalidConfig, invalid};
use crate::price::{Price, TokenPrices};

/// Prices of a million tokens, as one section has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PriceSettings {
    pub prompt: Option<f64>,
    /// Of prompt tokens that a prefix cache had.
    pub cached: Option<f64>,
    pub output: Option<f64>,
}

impl PriceSettings {
    /// Refuses what is no price; `place`: of the section, or nothing.
    pub fn validate(self, place: &str) -> Result<(), InvalidConfig> {
        /// Of a million tokens; more is a slip of the pen.
        const PRICE_MAX: f64 = 1e9;
        let prices =
            [("prompt_price", self.prompt), ("cached_price", self.cached), ("output_price", self.output)];
        let is_bad = |price: Option<f64>| price.is_some_and(|price| !(0.0..=PRICE_MAX).contains(&price));
        let Some((field, _)) = prices.into_iter().find(|(_, price)| is_bad(*price)) else { return Ok(()) };
        let field = if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") };
        Err(invalid(&field, "must be a number from 0 to 1000000000"))
    }

    /// Prices of a replica that has these: the model's where it has none. A kind that has no price costs nothing, but
    /// for cached tokens, which then cost what others of a prompt do.
    pub fn within(self, model: Self) -> TokenPrices {
        let cached = self.cached.or(self.prompt).or(model.cached).or(model.prompt);
        let price = |price: Option<f64>| price.map(Price::of).unwrap_or_default();
        TokenPrices {
            prompt: price(self.prompt.or(model.prompt)),
            cached: price(cached),
            output: price(self.output.or(model.output)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicas_price_stands_before_the_models() {
        let model = PriceSettings { prompt: Some(2.0), cached: Some(0.5), output: None };
        let check = |replica: PriceSettings, model, expected: [f64; 3]| {
            let TokenPrices { prompt, cached, output } = replica.within(model);
            assert_eq!([prompt, cached, output], expected.map(Price::of), "{replica:?}");
        };
        let none = PriceSettings::default();
        check(none, none, [0.0; 3]);
        check(none, model, [2.0, 0.5, 0.0]);
        check(PriceSettings { prompt: Some(3.0), ..none }, model, [3.0, 3.0, 0.0]);
        let all = PriceSettings { prompt: Some(3.0), cached: Some(1.0), output: Some(4.0) };
        check(all, model, [3.0, 1.0, 4.0]);
        check(none, PriceSettings { cached: None, ..model }, [2.0, 2.0, 0.0]);
    }
}
