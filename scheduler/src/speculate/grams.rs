//! What followed the same few tokens in outputs of earlier rows.
//!
//! Per few tokens one candidate is kept, by majority vote (Boyer and Moore, MJRTY, 1981): what followed them
//! more often than everything else together is found in constant memory; where nothing did, no guess is worth
//! much.

use std::collections::BTreeMap;

use base::TokenId;

/// Tokens that a continuation is looked up by; where they were never seen, the last of them alone.
const LONG: usize = 3;
const SHORT: usize = 2;

/// Most entries of a table. A full one is forgotten and learned anew, which follows what is said now.
const ENTRIES_MAX: usize = 1_024;

/// The last tokens of an output; none before its start.
type Gram<const N: usize> = [Option<TokenId>; N];

/// A candidate, and by how many votes it leads.
#[derive(Clone, Copy, Debug)]
struct Vote {
    token: TokenId,
    lead: u32,
}

/// Candidates by what they followed.
#[derive(Clone, Debug, Default)]
struct Table<const N: usize>(BTreeMap<Gram<N>, Vote>);

impl<const N: usize> Table<N> {
    fn vote(&mut self, after: Gram<N>, token: TokenId) {
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&after) {
            self.0.clear();
        }
        let vote = self.0.entry(after).or_insert(Vote { token, lead: 0 });
        if vote.token == token {
            vote.lead = vote.lead.saturating_add(1);
        } else if vote.lead == 0 {
            *vote = Vote { token, lead: 1 };
        } else {
            vote.lead -= 1;
        }
    }

    fn find(&self, after: &Gram<N>) -> Option<TokenId> {
        self.0.get(after).map(|vote| vote.token)
    }
}

/// What rows have said.
#[derive(Clone, Debug, Default)]
pub(super) struct SiblingOutputs {
    long: Table<LONG>,
    short: Table<SHORT>,
}

impl SiblingOutputs {
    /// Learns an output: of a very long one the beginning. Its first token comes with a prompt, and its last
    /// one ends the row, so neither is ever guessed.
    pub(super) fn learn(&mut self, output: &[TokenId]) {
        let end = output.len().saturating_sub(1).min(ENTRIES_MAX);
        for at in 1..end {
            let before = &output[..at];
            self.long.vote(gram(before), output[at]);
            self.short.vote(gram(before), output[at]);
        }
    }

    /// At most `most` tokens that followed the last of `output`, each after the one before.
    pub(super) fn follow(&self, output: &[TokenId], most: usize) -> Vec<TokenId> {
        let mut last: Gram<LONG> = gram(output);
        let mut tokens = Vec::new();
        while tokens.len() < most {
            let short = [last[1], last[2]];
            let Some(next) = self.long.find(&last).or_else(|| self.short.find(&short)) else { break };
            tokens.push(next);
            last = [last[1], last[2], Some(next)];
        }
        tokens
    }
}

/// The last `N` tokens.
fn gram<const N: usize>(tokens: &[TokenId]) -> Gram<N> {
    std::array::from_fn(|at| (tokens.len() + at).checked_sub(N).map(|place| tokens[place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().map(|id| TokenId(*id)).collect()
    }

    #[test]
    fn the_most_frequent_continuation_is_followed_up_to_the_last_token_of_an_output() {
        let mut siblings = SiblingOutputs::default();
        for output in [[1, 2, 3, 4, 9], [1, 2, 5, 4, 9], [1, 2, 3, 4, 9]] {
            siblings.learn(&ids(&output));
        }
        assert_eq!(siblings.follow(&ids(&[1]), 8), ids(&[2, 3, 4]), "the end is no draft token");
        assert_eq!(siblings.follow(&ids(&[1, 2, 5]), 8), ids(&[4]), "a rarer way is known too");
        assert_eq!(
            siblings.follow(&ids(&[7, 7, 2, 3]), 8),
            ids(&[4]),
            "by two tokens where three were never seen"
        );
        assert_eq!(siblings.follow(&ids(&[8]), 8), []);
        assert_eq!(siblings.follow(&ids(&[1]), 1), ids(&[2]));
    }

    #[test]
    fn tables_are_bounded_and_go_on_learning() {
        let mut siblings = SiblingOutputs::default();
        let many: Vec<TokenId> = (0..200_000).map(TokenId).collect();
        siblings.learn(&many);
        for output in many.chunks(50) {
            siblings.learn(output);
        }
        assert!(siblings.long.0.len() <= ENTRIES_MAX && siblings.short.0.len() <= ENTRIES_MAX);
        let last = &many[199_960..199_963];
        assert_eq!(siblings.follow(last, 2), many[199_963..199_965]);
    }
}
