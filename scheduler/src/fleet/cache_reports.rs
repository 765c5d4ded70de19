//! What replicas say of their caches, beside what the router remembers to have sent them (Eq. 11, from outside).
//!
//! The memory forgets as caches do, but it does not know them: one may be smaller, shared with others, or off. A reply
//! says how many prompt tokens its cache supplied:
//!
//! ```text
//! share kept = tokens told as cached / tokens that were sent there before, over the rows that were answered
//! ```
//!
//! Many servers tell nothing unless they are asked to; until one has told of any, the memory is believed.

use crate::event::Usage;

/// Thousandths: all that is remembered is there.
pub(crate) const ALL: u64 = 1_000;
/// Rows after which older ones count half.
const WINDOW: u64 = 512;
/// Rows with something to find before what they tell counts.
const ROWS_MIN: u64 = 16;

/// Sums over answered rows whose beginnings their replica had been sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheReports {
    rows: u64,
    remembered: u64,
    told: u64,
    /// Whether any was ever told of: none is something else after that.
    has_told: bool,
}

impl CacheReports {
    /// A row was answered, whose replica had been sent `remembered` of the `prompt` tokens that it has here.
    pub(crate) fn answered(&mut self, remembered: u64, prompt: u64, usage: Usage) {
        if remembered == 0 || prompt == 0 {
            return;
        }
        self.has_told |= usage.cached.0 > 0;
        // Where prompts are sent as texts there are bytes here, and tokens in the reply.
        let scaled = u128::from(remembered) * u128::from(usage.prompt.0) / u128::from(prompt);
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        self.rows += 1;
        self.remembered = self.remembered.saturating_add(scaled);
        // What it found beyond that makes up for nothing.
        self.told = self.told.saturating_add(usage.cached.0.min(scaled));
        if self.rows >= WINDOW {
            (self.rows, self.remembered, self.told) = (self.rows / 2, self.remembered / 2, self.told / 2);
        }
    }

    /// Thousandths of what is remembered that the caches have.
    pub(crate) fn kept_permille(&self) -> u64 {
        if self.rows < ROWS_MIN || !self.has_told {
            return ALL;
        }
        let share = u128::from(self.told) * u128::from(ALL) / u128::from(self.remembered.max(1));
        u64::try_from(share).unwrap_or(ALL).min(ALL)
    }
}

/// Prompt tokens that no cache supplies, of which all but `novel` are remembered.
pub(crate) fn uncached(novel: u64, prompts: u64, kept_permille: u64) -> u64 {
    let remembered = u128::from(prompts.saturating_sub(novel));
    let supplied = remembered * u128::from(kept_permille.min(ALL)) / u128::from(ALL);
    prompts.saturating_sub(u64::try_from(supplied).unwrap_or(u64::MAX)).max(novel.min(prompts))
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use super::*;

    fn told(rows: u64, remembered: u64, (prompt, cached): (u64, u64)) -> u64 {
        let mut told = CacheReports::default();
        for _ in 0..rows {
            let (prompt, cached) = (TokenCount(prompt), TokenCount(cached));
            told.answered(remembered, 400, Usage { prompt, cached, ..Usage::default() });
        }
        told.kept_permille()
    }

    #[test]
    fn the_share_that_is_kept_is_what_replies_tell_of_what_was_sent() {
        assert_eq!(told(ROWS_MIN, 200, (400, 50)), 250);
        assert_eq!(told(ROWS_MIN - 1, 200, (400, 50)), ALL, "a few rows say nothing");
        assert_eq!(told(900, 200, (400, 0)), ALL, "who tells of nothing has said nothing");
        assert_eq!(told(900, 0, (400, 400)), ALL, "there was nothing to find");
        assert_eq!(told(900, 200, (100, 25)), 500, "bytes here, tokens there");
        assert_eq!(told(900, 200, (400, 390)), ALL, "others had sent the rest");
    }

    #[test]
    fn a_cache_that_is_lost_keeps_nothing_however_long_ago_it_was() {
        let mut told = CacheReports::default();
        let mut answer = |cached: u64, rows: u64| {
            for _ in 0..rows {
                let (prompt, cached) = (TokenCount(400), TokenCount(cached));
                told.answered(200, 400, Usage { prompt, cached, ..Usage::default() });
            }
            told.kept_permille()
        };
        assert_eq!(answer(200, 40), ALL);
        assert_eq!(answer(0, 20_000), 0);
    }

    #[test]
    fn what_is_remembered_and_not_kept_is_computed() {
        assert_eq!(uncached(100, 500, ALL), 100);
        assert_eq!(uncached(100, 500, 250), 400);
        assert_eq!(uncached(100, 500, 0), 500);
        assert_eq!((uncached(0, 0, 500), uncached(9, 5, 500)), (0, 5));
    }
}
