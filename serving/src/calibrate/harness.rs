//! Steps made for measuring: numbers, blocks and prompts of their own.
//!
//! It knows no cost model; it hands in plans and adds up what the executor says they took.

use std::sync::Arc;

use base::{
    BatchPlan, BlockId, ExecError, Executor, Generation, Moves, Nanos, RequestId, Run, SampleSpec, Slot,
    StepId, TokenCount, TokenId,
};

use super::REPETITIONS;
use crate::model::Model;

/// Requests and steps of a calibration are numbered from here, far from the scheduler's.
const FIRST: u64 = u64::MAX / 2;

/// An executor under measurement. Its pool is cut into equal places, each with room for a prompt and a token.
pub(super) struct Harness<'a> {
    executor: &'a mut dyn Executor,
    block_tokens: u32,
    blocks: u32,
    vocab: u32,
    prompt: u32,
    next: u64,
    retired: Vec<RequestId>,
    generation: Arc<Generation>,
    spent: Nanos,
    /// Places whose context was computed, from the first.
    held: u32,
}

impl<'a> Harness<'a> {
    /// A harness for prompts of `prompt` tokens, or as many as model and pool have room for twice.
    pub(super) fn new(executor: &'a mut dyn Executor, model: &Model, prompt: u32) -> Self {
        let context = u32::try_from(model.context_max.0).unwrap_or(u32::MAX);
        let pool = model.kv_blocks / 2 * model.block_tokens;
        let generation =
            Generation { output_max: TokenCount(1_000_000), ignore_end: true, ..Generation::default() };
        let prompt = prompt.min(context.saturating_sub(1)).min(pool.saturating_sub(1)).max(1);
        // Whole blocks where there is one, so that a context can be read by several sequences.
        let whole = prompt / model.block_tokens * model.block_tokens;
        Self {
            executor,
            block_tokens: model.block_tokens,
            blocks: model.kv_blocks,
            vocab: model.vocab.max(1),
            prompt: if whole > 0 { whole } else { prompt },
            next: FIRST,
            retired: Vec::new(),
            generation: Arc::new(generation),
            spent: Nanos(0),
            held: 0,
        }
    }

    /// Tokens of a prompt.
    pub(super) fn prompt(&self) -> u32 {
        self.prompt
    }

    /// How many places the pool has.
    pub(super) fn places(&self) -> u32 {
        (self.blocks / self.place_blocks()).max(1)
    }

    /// How many of them hold a context.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// How many sequences can decode: as many as have a place, each on a context of its own or, where only
    /// whole blocks are read, on one that several share.
    pub(super) fn width_max(&self, room: u32) -> u32 {
        if self.prompt.is_multiple_of(self.block_tokens) { room } else { self.held.min(room) }
    }

    /// What all steps took so far.
    pub(super) fn spent(&self) -> Nanos {
        self.spent
    }

    /// The median of some runs; of one, where `until` is reached with it.
    pub(super) fn median(
        &mut self,
        until: Nanos,
        mut run: impl FnMut(&mut Self) -> Result<Nanos, ExecError>,
    ) -> Result<Nanos, ExecError> {
        let mut spans = vec![run(self)?];
        while spans.len() < REPETITIONS && self.spent < until {
            spans.push(run(self)?);
        }
        spans.sort_unstable();
        Ok(spans[spans.len() / 2])
    }

    /// Prefills `tokens` tokens as prompts into the places from `first` on.
    pub(super) fn prefill(&mut self, first: u32, tokens: u32) -> Result<Nanos, ExecError> {
        let slots = self.prompts(first, tokens);
        let elapsed = self.run(slots)?;
        if first <= self.held {
            self.held = self.held.max(first + tokens / self.prompt);
        }
        Ok(elapsed)
    }

    /// Extends the first `width` places by a token each.
    pub(super) fn decode(&mut self, width: u32) -> Result<Nanos, ExecError> {
        let slots = self.decodes(width);
        self.run(slots)
    }

    /// Extends the first `width` places and prefills `tokens` tokens from place `first` on, in one step.
    pub(super) fn mixed(&mut self, width: u32, first: u32, tokens: u32) -> Result<Nanos, ExecError> {
        let mut slots = self.decodes(width);
        slots.extend(self.prompts(first, tokens));
        self.run(slots)
    }

    /// A last step, with which the executor forgets all earlier ones.
    pub(super) fn finish(mut self) -> Result<(), ExecError> {
        let slots = self.prompts(0, 1);
        self.run(slots).map(|_| ())
    }

    fn place_blocks(&self) -> u32 {
        (self.prompt + 1).div_ceil(self.block_tokens)
    }

    fn place(&self, index: u32, tokens: u32) -> Vec<BlockId> {
        let first = index * self.place_blocks();
        (first..first + tokens.div_ceil(self.block_tokens)).map(BlockId).collect()
    }

    /// Runs one step; every request is retired with the next.
    fn run(&mut self, slots: Vec<Slot>) -> Result<Nanos, ExecError> {
        self.next += 1;
        let requests: Vec<RequestId> = slots.iter().map(|slot| slot.request).collect();
        let plan = BatchPlan {
            step: StepId(self.next),
            moves: Moves::default(),
            slots,
            retired: std::mem::replace(&mut self.retired, requests),
        };
        let elapsed = self.executor.step(&plan)?.elapsed;
        self.spent = Nanos(self.spent.0.saturating_add(elapsed.0));
        Ok(elapsed)
    }

    fn request(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    fn sample(&self, output_index: u32) -> Option<SampleSpec> {
        Some(SampleSpec {
            generation: Arc::clone(&self.generation),
            seed: 0,
            output_index,
            already_generated: Vec::new(),
            prompt: None,
        })
    }

    /// Prompts of different tokens, the last one cut so that they have `tokens` together.
    fn prompts(&mut self, first: u32, tokens: u32) -> Vec<Slot> {
        let mut slots = Vec::new();
        let (mut index, mut left) = (first, tokens);
        while left > 0 {
            let count = left.min(self.prompt);
            let word = |position: u32| TokenId((index * 7 + position * 13) % self.vocab);
            let input = (0..count).map(word).collect();
            let (write_blocks, sample) = (self.place(index, count), self.sample(0));
            let request = self.request();
            slots.push(Slot {
                request,
                start: 0,
                input,
                guesses: 0,
                prompt_targets: None,
                context: Vec::new(),
                write_blocks,
                write_offset: 0,
                sample,
                is_prefill: true,
            });
            (index, left) = (index + 1, left - count);
        }
        slots
    }

    fn decodes(&mut self, width: u32) -> Vec<Slot> {
        let mut slots = Vec::new();
        for index in 0..width {
            let own = self.place(index, self.prompt + 1);
            let used = self.prompt.div_ceil(self.block_tokens) as usize;
            let write_offset = self.prompt % self.block_tokens;
            let write = if write_offset == 0 { used } else { used - 1 };
            let read = self.place(index % self.held.max(1), self.prompt);
            let request = self.request();
            slots.push(Slot {
                request,
                start: self.prompt,
                input: vec![TokenId(1 % self.vocab)],
                guesses: 0,
                prompt_targets: None,
                context: vec![Run {
                    skip: 0,
                    blocks: read.into(),
                    tokens: TokenCount(u64::from(self.prompt)),
                    shift: 0,
                }],
                write_blocks: vec![own[write]],
                write_offset,
                sample: self.sample(1),
                is_prefill: false,
            });
        }
        slots
    }
}
