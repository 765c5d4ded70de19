//! What a priority was made of: kept beside the number, so that a decision can be explained after it was
//! taken without computing anything again. Plain integers; who computes them is `update.rs`.

use base::Nanos;
use serde::Serialize;

/// The parts of a priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PriorityBreakdown {
    /// What it was computed from.
    pub parts: PriorityParts,
    /// Whether the number is that of `policy::marginal_work::age::aged`, in which waiting makes work count
    /// less, and not the sum of the parts.
    pub is_aged: bool,
    /// Whether it goes before all that is on time, whatever its work (`crate::tail`).
    pub is_late: bool,
}

/// What a priority was computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorityParts {
    /// Nothing: the order is that of arrival.
    #[default]
    Arrival,
    /// Nothing: it waited too long, or is urgent, and goes first.
    First,
    /// Tokens of prompts and output limits as submitted (RelServe, Eq. 6-7).
    Static {
        /// Prompt tokens of all rows.
        prompt: u64,
        /// Output limits of all rows.
        output: u64,
    },
    /// Time alone on the machine (RelServe, Eq. 10).
    Estimate(Estimate),
    /// Time added to a shared machine ([`crate::policy::marginal_work::work`]).
    Work(WorkTime),
}

impl PriorityBreakdown {
    /// Of these parts, which age does not change.
    pub fn of(parts: PriorityParts) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Whether it goes first, whatever its work: it waited too long, or is urgent.
    pub fn is_first(&self) -> bool {
        self.is_late || self.parts == PriorityParts::First
    }

    /// Machine time that it says is left; 0 where the order is not one of work.
    pub fn work(&self) -> Nanos {
        match self.parts {
            PriorityParts::Estimate(estimate) => estimate.total(),
            PriorityParts::Work(work) => work.total(),
            _ => Nanos(0),
        }
    }
}

/// The four sums of Eq. 10, and the miss ratio (Eq. 11) in the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// `a_p` times uncached prompt tokens.
    pub prefill_tokens: Nanos,
    /// `b_p` times prefill batches.
    pub prefill_bases: Nanos,
    /// `b_d` times decode steps.
    pub decode_bases: Nanos,
    /// `a_d` times sequences over all decode steps.
    pub decode_sequences: Nanos,
    /// Uncached tokens of the sampled rows.
    pub missed: u64,
    /// All tokens of the sampled rows.
    pub sampled: u64,
}

impl Estimate {
    /// Their sum.
    pub fn total(&self) -> Nanos {
        let parts = [self.prefill_tokens, self.prefill_bases, self.decode_bases, self.decode_sequences];
        Nanos(parts.iter().fold(0, |sum, part| sum.saturating_add(part.0)))
    }
}

/// The three sums of marginal work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkTime {
    /// `a_p` times prompt tokens to compute.
    pub prompt: Nanos,
    /// `a_d` times output tokens to come.
    pub output: Nanos,
    /// `b_d` times the share of memory, or of seats, that the rows keep from others while they decode.
    pub share: Nanos,
}

impl WorkTime {
    /// Their sum.
    pub fn total(&self) -> Nanos {
        Nanos(self.prompt.0.saturating_add(self.output.0).saturating_add(self.share.0))
    }
}
