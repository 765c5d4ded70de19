//! How long prompts are here and at a replica. Where prompts are sent as texts a gateway knows bytes and the replica
//! counts tokens; what the replica says of its memory is in its own. Replies tell how many a prompt had there:
//!
//! ```text
//! tokens there = tokens here * prompts as told / prompts as counted here, over the rows that were answered
//! ```
//!
//! Until one has told, a token there is one here, which is never too much: no token is shorter than a byte.

/// Tokens told after which older ones count half.
const WINDOW: u64 = 1 << 20;

/// How prompts are counted here and at a replica: sums over answered rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptScale {
    here: u64,
    told: u64,
}

impl PromptScale {
    /// Of prompts that have so many tokens here, and so many as a replica told.
    pub fn of(here: u64, told: u64) -> Self {
        Self { here, told }
    }

    /// A row was answered whose prompt has so many tokens here, and so many as the replica told.
    pub(crate) fn answered(&mut self, here: u64, told: u64) {
        if here == 0 || told == 0 {
            return;
        }
        (self.here, self.told) = (self.here.saturating_add(here), self.told.saturating_add(told));
        if self.told >= WINDOW {
            (self.here, self.told) = (self.here / 2, self.told / 2);
        }
    }

    /// What so many tokens of the replica are here.
    pub(crate) fn here(self, tokens: u64) -> u64 {
        scaled(tokens, self.here, self.told)
    }

    /// What so many tokens are at the replica; `None`: no reply has told.
    pub fn as_told(self, tokens: u64) -> Option<u64> {
        (self.here > 0).then(|| self.there(tokens))
    }

    /// What so many tokens are at the replica.
    pub(crate) fn there(self, tokens: u64) -> u64 {
        scaled(tokens, self.told, self.here)
    }
}

/// Tokens by a ratio; where there is none, as they are.
fn scaled(tokens: u64, times: u64, over: u64) -> u64 {
    let product = u128::from(tokens) * u128::from(times);
    let scaled = product.checked_div(u128::from(over)).unwrap_or(u128::from(tokens));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicas_tokens_are_here_what_its_prompts_were() {
        let mut scale = PromptScale::default();
        assert_eq!((scale.here(1_000), scale.there(1_000)), (1_000, 1_000), "nothing is known");
        scale.answered(400, 0);
        assert_eq!(scale.here(1_000), 1_000, "a reply without usage says nothing");
        assert_eq!(scale.as_told(1_000), None);
        scale.answered(400, 100);
        scale.answered(800, 300);
        assert_eq!((scale.here(1_000), scale.there(3_000)), (3_000, 1_000));
        assert_eq!(scale.as_told(3_000), Some(1_000));
        scale.answered(0, 7);
        for _ in 0..100 {
            scale.answered(20_000, 20_000);
        }
        assert_eq!(scale.here(1_000), 1_000, "what was long ago counts less");
        assert_eq!(scale.here(u64::MAX), u64::MAX);
    }
}
