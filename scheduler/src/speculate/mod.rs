//! Guesses of what running rows say next, verified in the decode step that computes them: a step then yields
//! several tokens of a row (speculative decoding, Leviathan et al., ICML 2023, arXiv 2211.17192), without a
//! draft model. Rows of a relQuery answer one question about many cells, so they say the same things and copy
//! from their input:
//!
//! - what followed the last tokens in outputs of rows of the same relQuery that have ended (`grams`);
//! - what followed them in the row's own output and input (`own`; prompt lookup, Saxena, 2023).
//!
//! An executor draws each token as it would without guesses and keeps guesses that are what it drew, so
//! guesses change when a token comes and never which. They are not output until then: no row is preempted for
//! them, no block of them is published, and they are made only in steps that compute no prompt, for as many
//! rows as measured acceptance pays for (`pays`). Text and probabilities are none of this module's business.
//!
//! What a row's form has every output begin with (`{"label": "`) needs no guessing: it is computed behind the
//! prompt, in the same way, and the first token that somebody decides comes with the prefill.
//!
//! Guessing belongs to the machine and not to an order of serving: it is the same under every policy.

mod grams;
mod own;
mod pays;

use base::{Nanos, TokenId};
use serde::{Deserialize, Serialize};

use grams::SiblingOutputs;
use own::repeated;
use pays::Tally;

/// Turns of rows without a guess after which one is made that does not pay, to see whether that still holds.
const PROBE_EVERY: u32 = 32;

/// Whether steps guess tokens ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speculation {
    /// Never.
    Off,
    /// Where measured acceptance pays for what guesses cost.
    #[default]
    Auto,
}

/// Where guesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Outputs of rows of the same relQuery.
    Siblings,
    /// The row's own output and input.
    Own,
    /// What the row's form has every output begin with: no guess at all, but computed like one.
    Opening,
}

impl Source {
    /// Those that guess.
    const ALL: [Self; 2] = [Self::Siblings, Self::Own];
}

/// Tokens that may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraftTokens {
    pub(crate) source: Source,
    /// Never empty.
    pub(crate) tokens: Vec<TokenId>,
}

impl DraftTokens {
    /// How many of `drawn` came by guesses: all that were guessed but the last drawn one, whose keys and
    /// values the row's next slot computes in any case.
    pub(crate) fn kept(&self, drawn: &[TokenId]) -> u32 {
        let equal = self.tokens.iter().zip(drawn).take_while(|(guessed, drawn)| guessed == drawn).count();
        equal.min(drawn.len().saturating_sub(1)) as u32
    }
}

/// What a step's tokens cost, and how many more it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What a token of a row costs that decodes in a step of its own: what a guess that is right saves.
    pub(crate) saved: Nanos,
    /// What a guess adds to the step: a position that is computed and sampled at, like one more sequence.
    pub(crate) cost: Nanos,
}

/// What a row has said, and read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spoken<'a> {
    pub(crate) input: &'a [TokenId],
    pub(crate) output: &'a [TokenId],
}

/// What guesses of one relQuery are made of, and whether they pay. Its size is bounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafter {
    siblings: SiblingOutputs,
    tallies: [Tally; 2],
    /// Turns of rows for which no source that pays had a guess.
    idle: u32,
}

impl Drafter {
    /// Learns from the output of a row that has ended.
    pub(crate) fn learn(&mut self, output: &[TokenId]) {
        self.siblings.learn(output);
    }

    /// Counts what became of a guess.
    pub(crate) fn count(&mut self, drafted: &DraftTokens, kept: u32) {
        if let Some(tally) = self.tallies.get_mut(drafted.source as usize) {
            tally.count(drafted.tokens.len() as u32, kept);
        }
    }

    /// At most `most` tokens that a row may say next, from the source that pays for more of them.
    pub(crate) fn draft(&mut self, row: Spoken<'_>, terms: Terms, most: usize) -> Option<DraftTokens> {
        let depth = |source: Source| self.tallies[source as usize].depth(terms);
        let mut sources = Source::ALL.map(|source| (source, depth(source)));
        sources.sort_by_key(|(_, depth)| std::cmp::Reverse(*depth));
        let drafted = sources.into_iter().find_map(|(source, depth)| self.look(source, row, depth.min(most)));
        if drafted.is_some() {
            return drafted;
        }
        self.idle = self.idle.wrapping_add(1);
        let probe = self.idle / PROBE_EVERY;
        let is_due = self.idle.is_multiple_of(PROBE_EVERY);
        is_due.then(|| self.look(Source::ALL[probe as usize % 2], row, most.min(1))).flatten()
    }

    fn look(&self, source: Source, row: Spoken<'_>, most: usize) -> Option<DraftTokens> {
        let tokens = match source {
            Source::Siblings => self.siblings.follow(row.output, most),
            Source::Own => repeated(row, most),
            Source::Opening => Vec::new(), // It comes with the prompt.
        };
        (!tokens.is_empty()).then_some(DraftTokens { source, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().map(|id| TokenId(*id)).collect()
    }

    const CHEAP: Terms = Terms { saved: Nanos(1_000), cost: Nanos(100) };
    const DEAR: Terms = Terms { saved: Nanos(1_000), cost: Nanos(1_000) };

    #[test]
    fn what_is_kept_ends_where_guess_and_output_part_and_never_has_the_last_token() {
        let drafted = DraftTokens { source: Source::Own, tokens: ids(&[1, 2, 3]) };
        for (drawn, kept) in
            [(vec![1, 2, 3, 4], 3), (vec![1, 2, 3], 2), (vec![1, 9], 1), (vec![9], 0), (vec![1], 0)]
        {
            assert_eq!(drafted.kept(&ids(&drawn)), kept, "{drawn:?}");
        }
    }

    #[test]
    fn guesses_that_fail_stop_and_are_tried_again_now_and_then() {
        let (input, output) = (ids(&[5, 6, 7, 8, 9, 5, 6, 7]), ids(&[5, 6]));
        let row = Spoken { input: &input, output: &output };
        let mut drafter = Drafter::default();
        let mut made = 0;
        for _ in 0..1_000 {
            if let Some(drafted) = drafter.draft(row, CHEAP, 8) {
                made += 1;
                drafter.count(&drafted, 0);
            }
        }
        assert!((20..160).contains(&made), "{made} guesses in 1000 turns");
        // What is always right is soon believed again.
        let mut turns = 0;
        while drafter.draft(row, CHEAP, 8).is_none_or(|drafted| {
            drafter.count(&drafted, drafted.tokens.len() as u32);
            drafted.tokens.len() < 4
        }) {
            turns += 1;
            assert!(turns < 20 * PROBE_EVERY, "it never comes back");
        }
    }

    #[test]
    fn nothing_is_guessed_that_costs_what_it_saves() {
        let output = ids(&[1, 2, 3, 1, 2, 3, 1, 2, 3]);
        let row = Spoken { input: &[], output: &output };
        let mut drafter = Drafter::default();
        let guessed =
            (0..u64::from(PROBE_EVERY) * 4).filter(|_| drafter.draft(row, DEAR, 8).is_some()).count();
        assert_eq!(guessed, 2, "probes of this source: the other knows nothing");
        assert_eq!(drafter.draft(row, CHEAP, 8).map(|drafted| drafted.source), Some(Source::Own));
    }
}
