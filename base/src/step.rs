//! The contract between scheduler and executor: a plan goes out, an outcome comes back.
//!
//! Both sides depend on this module and never on each other.

use std::sync::Arc;

use crate::ids::{BlockId, HostBlockId, RequestId, StepId, TokenId};
use crate::logprob::{PromptToken, TokenLogprob};
use crate::units::{Nanos, TokenCount};
use crate::work::Generation;

/// Cached tokens that a slot attends to, read `shift` positions further on than their keys were
/// rotated for (DESIGN 4). All blocks but the first and the last are read whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The blocks, in reading order.
    pub blocks: Arc<[BlockId]>,
    /// Positions of the first block that come before the run: what lies there is not read. Fewer than a block
    /// has.
    pub skip: u32,
    /// How many positions behind those count; the last block may be partly used.
    pub tokens: TokenCount,
    /// Positions between the keys' own numbering and where they are read.
    pub shift: u32,
}

/// What a request needs to have its first token sampled; given with every slot that samples.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleSpec {
    /// How to generate; the executor also ends the row by it.
    pub generation: Arc<Generation>,
    /// The row's seed.
    pub seed: u64,
    /// Output position of the token this step samples, from 0.
    pub output_index: u32,
    /// The `output_index` tokens before it, where the slot computes them anew: an executor that has not
    /// sampled them itself (the one that did is gone) goes on from them, and says nothing of their text
    /// again. Else empty.
    pub already_generated: Vec<TokenId>,
    /// The row's prompt, where [`Generation::needs_prompt`].
    pub prompt: Option<Arc<[TokenId]>>,
}

/// Tokens of an undivided prompt of which is asked how likely they were, each behind those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptTargets {
    /// What follows each of the slot's first input tokens in the prompt. Fewer than the input has where it ends
    /// with the prompt: none follows the last one.
    pub tokens: Vec<TokenId>,
    /// How many of the most likely tokens are told beside each.
    pub top: u32,
}

/// One request's part of a step, or one of its parts where its prompt has sections: compute `input` at
/// positions `start..`, attending to `context` and, causally, to itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Whose tokens these are.
    pub request: RequestId,
    /// Position of the first input token, for which its key is rotated: the length of `context`, or more
    /// where sections of the prompt leave positions free. In an independent section, its unit's own
    /// numbering.
    pub start: u32,
    /// The tokens to compute. Never empty.
    pub input: Vec<TokenId>,
    /// How many of the last input tokens are guesses of what the slot will draw, fewer than all; 0 where it
    /// does not sample. Behind the end of a prompt they are the opening of the row's form
    /// ([`Compiled::opening`](crate::Compiled::opening)), or as much of it as there was room for. An executor
    /// samples at the token before them and then at each guess for as long as all before it are what was
    /// drawn: that is one token more than were right. It may also take no notice and sample one token.
    pub guesses: u32,
    /// What the request has before `start`, in reading order. Slots of one step that share cached
    /// tokens have equal runs for them (cut where their contexts part), so an executor can read a
    /// shared run once per batch. A run may lie in blocks that another slot of the same step writes
    /// (trie prefill): executors write all keys and values of a layer before any attention.
    pub context: Vec<Run>,
    /// Blocks that take the keys and values of `input`: token `i` goes to position
    /// `write_offset + i`, counted through these blocks.
    pub write_blocks: Vec<BlockId>,
    /// Positions of the first write block that are in use already.
    pub write_offset: u32,
    /// Tokens of the prompt of which is asked how likely they were; `None` where nobody asks.
    pub prompt_targets: Option<PromptTargets>,
    /// Present on all slots but the earlier chunks of a prefill, which yield no token.
    pub sample: Option<SampleSpec>,
    /// Whether this slot computes prompt tokens (prefill) or extends an output (decode).
    pub is_prefill: bool,
}

/// What a step is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BatchKind {
    /// Prompt tokens only.
    Prefill,
    /// Running requests, extended by the token that each samples and those that then are forced.
    Decode,
    /// Both.
    Mixed,
}

impl BatchKind {
    /// The word used in metrics and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
        }
    }
}

/// A block that leaves the pool for the host tier: all its bytes, in every layer, are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveOut {
    /// Whose content is kept; the step may write into it once it is copied.
    pub from: BlockId,
    /// What held nothing, or what is given up for it.
    pub to: HostBlockId,
}

/// A block that returns from the host tier to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveBack {
    /// What a step that was done moved out.
    pub from: HostBlockId,
    /// Where slots of this step and later ones read it; no slot of this step writes it.
    pub to: BlockId,
}

/// Copies of whole blocks between the pool and the host tier, done before a step's first write and read: all
/// that go out, then all that come back. A pool block may do both: its content goes, and another takes its
/// place.
///
/// In one step no host block is named twice, and no pool block twice on the same way. So a step that fails
/// has left every host block of `back` as it was; those of `out`, and all pool blocks named, may then hold
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// From the pool to the host.
    pub out: Vec<MoveOut>,
    /// From the host to the pool.
    pub back: Vec<MoveBack>,
}

impl Moves {
    /// Whether nothing moves: always, where there is no tier.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.back.is_empty()
    }
}

/// One model step. Slots are in execution order; their blocks are already granted.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// The step's number.
    pub step: StepId,
    /// What is copied between pool and host tier before anything else.
    pub moves: Moves,
    /// The work; never empty.
    pub slots: Vec<Slot>,
    /// Requests that will never appear again: the executor drops what it keeps of them.
    pub retired: Vec<RequestId>,
}

impl BatchPlan {
    /// What the step is made of.
    pub fn kind(&self) -> BatchKind {
        let prefills = self.slots.iter().filter(|slot| slot.is_prefill).count();
        match (prefills, self.slots.len() - prefills) {
            (0, _) => BatchKind::Decode,
            (_, 0) => BatchKind::Prefill,
            _ => BatchKind::Mixed,
        }
    }

    /// Prompt tokens that the step computes: `utok(p)` of RelServe, Eq. 9; and the openings behind them.
    pub fn prefill_tokens(&self) -> TokenCount {
        TokenCount(self.slots.iter().filter(|slot| slot.is_prefill).map(|slot| slot.input.len() as u64).sum())
    }

    /// Requests that the step extends: `req(d)` of RelServe, Eq. 9.
    pub fn decode_sequences(&self) -> u64 {
        self.slots.iter().filter(|slot| !slot.is_prefill).count() as u64
    }

    /// Tokens that the step computes beside the last one of each decoding request: forced ones, whose keys
    /// and values are still missing when the next token is sampled. Guesses are not among them.
    pub fn decode_extra(&self) -> TokenCount {
        let decodes = self.slots.iter().filter(|slot| !slot.is_prefill);
        TokenCount(decodes.map(|slot| slot.input.len() as u64 - 1 - u64::from(slot.guesses)).sum())
    }

    /// Tokens of decoding requests that the step computes and may sample at without knowing yet that they are
    /// right. Openings behind prompts are computed like these, and are among [`Self::prefill_tokens`].
    pub fn guesses(&self) -> u64 {
        let decodes = self.slots.iter().filter(|slot| !slot.is_prefill);
        decodes.map(|slot| u64::from(slot.guesses)).sum()
    }
}

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// An end token of the model's, or what nobody can tell apart from one.
    Stop,
    /// A stop string: its place among those of the row.
    StopText(u32),
    /// A stop token of the row's own.
    StopToken(TokenId),
    /// `output_max` tokens.
    Length,
}

impl End {
    /// Whether the row was not cut off.
    pub fn is_stop(self) -> bool {
        self != Self::Length
    }
}

/// A failure of one row that leaves its neighbours alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RowError {
    /// The model's output for this row is not a number.
    #[error("the model produced logits that are not numbers for this row")]
    NotANumber,
    /// Who runs the row does not take it as it is; whoever sent it can mend that.
    #[error("{0}")]
    Refused(String),
    /// Anything else an executor can say about one row.
    #[error("{0}")]
    Failed(String),
}

/// What a slot that samples adds to its row's output: the sampled token, and those that its constraint then
/// leaves no choice about; before them, as many of the slot's guesses as were drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The tokens, in order; never empty, and never more than the output may still take. The keys and values
    /// of those that begin the slot's guesses too are in the pool; the row's next slot computes the others,
    /// the last in any case.
    pub tokens: Vec<TokenId>,
    /// How likely each was, where the row asks for log probabilities and the token has text; else empty.
    pub logprobs: Vec<Option<TokenLogprob>>,
    /// Text that is final with these tokens; empty while a character or a possible stop string is
    /// incomplete. The concatenation over a row is the row's whole output.
    pub text: String,
    /// Set with the row's last tokens.
    pub end: Option<End>,
    /// With the end: how likely the whole output was among those that its constraint allows, 0 to 1. Of
    /// constraints that list all outputs, however a tokenizer may cut them.
    pub probability: Option<f64>,
}

impl Sampled {
    /// A single token.
    pub fn one(token: TokenId, text: String, end: Option<End>) -> Self {
        Self { tokens: vec![token], text, end, ..Self::default() }
    }
}

/// What became of one slot that sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutcome {
    /// The slot's request.
    pub request: RequestId,
    /// What it adds to the output, or why the row failed.
    pub result: Result<Sampled, RowError>,
}

/// How likely the tokens of a prompt were that a slot asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptOutcome {
    /// The slot's request.
    pub request: RequestId,
    /// The slot's targets, in order, behind the prompt's first token where the slot begins with that; or why the
    /// row failed.
    pub result: Result<Arc<[PromptToken]>, RowError>,
}

/// What came of a step: one [`RowOutcome`] per slot that samples, in slot order.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// The step's number.
    pub step: StepId,
    /// Measured duration (virtual in the simulator).
    pub elapsed: Nanos,
    pub rows: Vec<RowOutcome>,
    /// One per slot with [`PromptTargets`], in slot order.
    pub prompts: Vec<PromptOutcome>,
}

/// A step that failed as a whole.
///
/// The executor says which it is, and a panic of it counts as `Lost`. After the first two its owner has the
/// scheduler abort the step and plans the next one for the same executor. After `Lost` it drops the executor,
/// makes a fresh one, and has the scheduler forget all blocks: the rows in flight are computed anew.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The plan contradicts the executor's state or limits: a bug of the scheduler.
    #[error("the executor refuses the plan: {0}")]
    BadPlan(String),
    /// The step failed and the executor is as it was before it: out of memory in a large step, say. Another
    /// step may succeed, the same rows in a smaller one among them.
    #[error("the step failed: {0}")]
    Failed(String),
    /// The executor is of no use any more, and all it has computed is gone: a poisoned context, a rank that
    /// is gone.
    #[error("the device is lost: {0}")]
    Lost(String),
}

/// Something that can run batches: the local engine, remote replicas, the simulator.
///
/// One that has lost its device may hang or panic when it is dropped: its owner drops it where nothing waits
/// for it.
pub trait Executor: Send {
    /// Runs the whole plan or fails as a whole; on failure no slot has advanced.
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError>;
}
