//! What a server's guesses of next tokens came to, for a simulator that makes none: the tokens of a dry run are made up,
//! and what follows them says nothing.
//!
//! A guess that is right saves its row a step; each one is computed in a step as one more sequence is. A server tells only
//! sums (`GET /v1/scheduler`), so each row has its share of them.

use base::Nanos;
use serde_json::Value;
use sim::{Lowered, ReplayConfig};

/// Counts since a server started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DraftCounts {
    /// Tokens of outputs.
    output: u64,
    /// Those of them that were guessed.
    accepted: u64,
    /// All that were guessed.
    guessed: u64,
}

impl DraftCounts {
    /// Of these servers together. One that does not tell made none.
    pub(crate) fn of<'a>(states: impl IntoIterator<Item = &'a Value>) -> Self {
        let count = |state: &Value, name: &str| state[name].as_u64().unwrap_or_default();
        states.into_iter().fold(Self::default(), |sum, state| Self {
            output: sum.output + count(state, "output_tokens"),
            accepted: sum.accepted + count(state, "accepted_tokens"),
            guessed: sum.guessed + count(state, "draft_tokens"),
        })
    }

    /// Steps of rows that gave all output tokens; none where that cannot be.
    fn steps(self) -> Option<f64> {
        let steps = self.output.checked_sub(self.accepted).filter(|steps| *steps > 0)?;
        Some(steps as f64)
    }

    /// Has rows take as many steps for their outputs as those of the server took.
    pub(crate) fn spread(self, lowered: &mut Lowered) {
        let Some(steps) = self.steps().filter(|_| self.accepted > 0) else { return };
        let per_token = steps / self.output as f64;
        let of_row = |(seed, tokens): &(u64, u64)| {
            let steps = (*tokens as f64 * per_token).round() as u64;
            (*seed, steps.max(1))
        };
        lowered.samplings = lowered.lengths.iter().map(of_row).collect();
    }

    /// Has a row of a decode step cost what it cost with the guesses beside it.
    pub(crate) fn price(self, machine: &mut ReplayConfig) {
        let Some(steps) = self.steps() else { return };
        let sequences = (steps + self.guessed as f64) / steps;
        let cost = &mut machine.cost.decode_per_sequence;
        *cost = Nanos((cost.0 as f64 * sequences).round() as u64);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(output: u64, accepted: u64, guessed: u64) -> Value {
        json!({"output_tokens": output, "accepted_tokens": accepted, "draft_tokens": guessed})
    }

    #[test]
    fn rows_take_the_steps_that_right_guesses_left_and_each_costs_the_guesses_beside_it() {
        // 100 tokens in 75 steps of rows, beside which 50 guesses were computed.
        let counts = DraftCounts::of([&state(60, 20, 30), &state(40, 5, 20)]);
        let mut lowered = Lowered { lengths: vec![(0, 40), (1, 1), (2, 10)], ..Lowered::default() };
        counts.spread(&mut lowered);
        assert_eq!(lowered.samplings, [(0, 30), (1, 1), (2, 8)]);
        let mut machine = ReplayConfig::default();
        machine.cost.decode_per_sequence = Nanos(300);
        counts.price(&mut machine);
        assert_eq!(machine.cost.decode_per_sequence, Nanos(500));
    }

    #[test]
    fn a_server_that_guesses_nothing_or_tells_nothing_changes_nothing() {
        for state in [state(100, 0, 0), json!({}), state(0, 0, 0), state(5, 9, 9)] {
            let counts = DraftCounts::of([&state]);
            let mut lowered = Lowered { lengths: vec![(0, 40)], ..Lowered::default() };
            counts.spread(&mut lowered);
            assert!(lowered.samplings.is_empty(), "{state}");
            let mut machine = ReplayConfig::default();
            counts.price(&mut machine);
            assert_eq!(machine, ReplayConfig::default(), "{state}");
        }
    }
}
