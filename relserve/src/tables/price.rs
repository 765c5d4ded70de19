//! What prompts cost where a provider charges less for what its cache has.

use std::str::FromStr;

/// Prices of a million input tokens, in dollars.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// What to call it.
    pub name: String,
    /// A token that the cache does not have, written to it where that costs more.
    pub uncached: f64,
    /// A token that it has.
    pub cached: f64,
}

impl Price {
    /// The pricing schemes of section 6.3 of *Optimizing LLM Queries in Relational Data Analytics Workloads*:
    /// GPT-4o-mini (cached at half the price) and Claude 3.5 Sonnet (written at 1.25, read at 0.1 of 3
    /// dollars).
    pub fn published() -> [Self; 2] {
        let price = |name: &str, uncached, cached| Self { name: name.into(), uncached, cached };
        [price("openai", 0.15, 0.075), price("anthropic", 3.75, 0.30)]
    }

    /// What so many prompt tokens cost, of which `hit` were in the cache.
    pub fn of(&self, prompt: u64, hit: u64) -> f64 {
        ((prompt - hit) as f64 * self.uncached + hit as f64 * self.cached) / 1e6
    }
}

/// `openai`, `anthropic`, or `UNCACHED:CACHED` in dollars.
impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(price) = Self::published().into_iter().find(|price| price.name == text) {
            return Ok(price);
        }
        let number = |text: &str| text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
        let pair = text.split_once(':').and_then(|(new, old)| Some((number(new)?, number(old)?)));
        let (uncached, cached) =
            pair.ok_or("must be openai, anthropic, or dollars for a million tokens as UNCACHED:CACHED")?;
        Ok(Self { name: text.into(), uncached, cached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4 of the paper, computed from its hit rates: OpenAI's column follows.
    #[test]
    fn the_published_savings_follow_from_the_published_hit_rates() {
        let [openai, _] = Price::published();
        let published =
            [(34.6, 85.7, 31), (26.7, 83.3, 33), (10.4, 84.8, 39), (11.8, 56.6, 24), (49.9, 80.1, 20)];
        for (original, ggr, saved) in published {
            let cost = |percent: f64| openai.of(100_000, (percent * 1_000.0) as u64);
            let found = 100.0 * (1.0 - cost(ggr) / cost(original));
            assert_eq!(found.round() as i32, saved, "{original} {ggr}: {found}");
        }
    }

    #[test]
    fn prices_are_named_or_given() {
        assert_eq!("openai".parse::<Price>().map(|price| price.of(1_000_000, 500_000)), Ok(0.1125));
        assert_eq!("2:1".parse::<Price>().map(|price| price.of(1_000_000, 1_000_000)), Ok(1.0));
        for bad in ["", "2", "2:x", "-1:0", "inf:1"] {
            assert!(bad.parse::<Price>().is_err(), "{bad}");
        }
    }
}
