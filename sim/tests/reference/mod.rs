//! A second simulator, written from the rules of the reference traces and from nothing of the scheduler, so
//! that the two can be wrong only apart. It keeps whole segments (template, shared value, own tokens)
//! instead of blocks, looks at every row in every step, and computes each number anew: slow and plain.
//! Times are integer nanoseconds and priorities are fractions, so that equal numbers are equal.

mod engine;
mod memory;
mod order;
mod policy;
pub(crate) mod traces;

use sim::Trace;

/// Who is served first, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Policy {
    /// First come first served, prefill first.
    Vllm,
    /// First come first served, every step decodes all and prefills with what 512 tokens leave.
    Sarathi,
    /// Prefill first in the order of a number fixed at arrival, linear in time.
    StaticPriority,
    /// The same with prompt + output limit as the number, and preemption of strictly later relQueries.
    StaticPriorityWeak,
    /// The paper's policy, or a variant of it.
    RelServe(Variant),
}

/// What relserve does when the first waiting relQuery comes after the running ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transition {
    /// Prefills if Delta is negative.
    Weigh,
    /// Always prefills.
    Prefill,
    /// Always decodes.
    Decode,
}

/// How the paper is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Variant {
    /// The last case of Eq. 14.
    pub(crate) transition: Transition,
    /// Eq. 17 adds Eq. 16.
    pub(crate) sign_as_printed: bool,
    /// Algorithm 1 as printed.
    pub(crate) decomposition_as_printed: bool,
    /// A priority is computed once and never again.
    pub(crate) is_frozen: bool,
    /// Nanoseconds of waiting per row after which a relQuery gets priority 0.
    pub(crate) starves_after: Option<i128>,
}

/// The paper's policy as corrected.
pub(crate) const RELSERVE: Variant = Variant {
    transition: Transition::Weigh,
    sign_as_printed: false,
    decomposition_as_printed: false,
    is_frozen: false,
    starves_after: None,
};

/// A machine: costs in nanoseconds, limits in tokens and rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Per uncached prompt token.
    pub(crate) a_p: i128,
    /// Per prefill iteration.
    pub(crate) b_p: i128,
    /// Per decoding request.
    pub(crate) a_d: i128,
    /// Per decode iteration.
    pub(crate) b_d: i128,
    /// Share of `b_d - b_p` that a mixed iteration hides, in thousandths.
    pub(crate) hide_permille: i128,
    /// KV capacity.
    pub(crate) cap: u64,
    /// Most uncached tokens of a prefill iteration.
    pub(crate) mnbt: u64,
    /// Most rows at work.
    pub(crate) mns: usize,
    /// Share of the capacity that an admission leaves free, in thousandths.
    pub(crate) watermark_permille: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            a_p: 100_000,
            b_p: 10_000_000,
            a_d: 450_000,
            b_d: 25_000_000,
            hide_permille: 1_000,
            cap: 10_000,
            mnbt: 2_048,
            mns: 256,
            watermark_permille: 10,
        }
    }
}

impl Machine {
    /// How long an iteration with `tokens` uncached prompt tokens and `rows` decoding requests takes.
    pub(crate) fn duration(&self, tokens: u64, rows: usize) -> i128 {
        let (prefill, decode) = (self.a_p * i128::from(tokens), self.a_d * rows as i128);
        match (tokens, rows) {
            (_, 0) => prefill + self.b_p,
            (0, _) => decode + self.b_d,
            _ => {
                let hidden = self.hide_permille * (self.b_d - self.b_p) / 1_000;
                self.b_d + decode + (prefill - hidden).max(0)
            }
        }
    }
}

/// What a trace came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReferenceOutcome {
    /// End of each relQuery in seconds, in file order.
    pub(crate) t_done: Vec<f64>,
    /// Rows that lost their memory.
    pub(crate) preempts: u64,
    /// Start, uncached prompt tokens and decoding requests of each iteration.
    pub(crate) iterations: Vec<(i128, u64, usize)>,
}

/// Runs a trace.
pub(crate) fn run(trace: &Trace, policy: Policy, machine: Machine) -> ReferenceOutcome {
    engine::ReferenceEngine::new(trace, policy, machine).run()
}
