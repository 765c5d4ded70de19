//! What the engine's tests share: random models, and batch plans built by hand with a trivial block
//! allocator.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod reference;

use std::ops::Range;
use std::sync::Arc;

use base::text::ByteText;
use base::{
    BatchPlan, BlockId, Bytes, Executor as _, Generation, Moves, RequestId, RowError, Run, SampleSpec,
    Sampled, Slot, StepId, TokenCount, TokenId,
};
use engine::checkpoint::Dtype;
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint::weights::{MapWeights, WeightSource as _};
use engine::decoder::{Decoder, LoadOptions, Workspace};
use engine::device::{Cpu, Isa};
use engine::executor::{LocalExecutor, PoolSettings};
use engine::pool::{KvPool, PoolShape};
use engine::{Keep, KvFormat};

/// A decoder of these weights on two threads.
pub(crate) fn decoder(model: &Synthetic, weights: &MapWeights) -> Decoder {
    decoder_on(Isa::detect(), model, weights)
}

/// The best kernels of this machine that take activations as they are.
pub(crate) fn widening() -> Isa {
    let widens = |isa: &Isa| !isa.rounds_activations() && !isa.multiplies_halves();
    Isa::available().filter(widens).last().expect("the portable ones do")
}

/// How weights, keys and values are kept on `isa`: on kernels that take activations as they are, keys and
/// values are not rounded either, so that what is left is the rounding of single precision.
pub(crate) fn keep(isa: Isa) -> Keep {
    Keep { kv: (!isa.rounds_activations()).then_some(KvFormat::F32), ..Keep::default() }
}

/// A decoder of these weights on given kernels.
pub(crate) fn decoder_on(isa: Isa, model: &Synthetic, weights: &MapWeights) -> Decoder {
    decoder_keeping(keep(isa), isa, model, weights)
}

/// The same with weights, keys and values kept in a given way.
pub(crate) fn decoder_keeping(keep: Keep, isa: Isa, model: &Synthetic, weights: &MapWeights) -> Decoder {
    let cpu = Arc::new(Cpu::with_isa(Some(2), isa).expect("threads start"));
    Decoder::load(&model.config, weights, LoadOptions { cpu, keep }).expect("the weights are complete")
}

/// An executor of `model` over bytes as text, with `ByteText::END` as the model's end token.
pub(crate) fn executor(model: &Synthetic, block_tokens: u32) -> LocalExecutor {
    executor_of(decoder(model, &model.weights()), block_tokens)
}

/// An executor of a decoder.
pub(crate) fn executor_of(decoder: Decoder, block_tokens: u32) -> LocalExecutor {
    let settings = PoolSettings { block_tokens, kv_bytes: Bytes(4 << 20) };
    LocalExecutor::new(decoder, Arc::new(ByteText), vec![ByteText::END], settings).expect("the pool fits")
}

/// A model's weights, but the embedding of `token` is not a number.
pub(crate) fn with_unsound_token(model: &Synthetic, token: TokenId) -> MapWeights {
    let mut weights = model.weights();
    let name = "model.embed_tokens.weight";
    let raw = weights.tensor(name).expect("every model has it");
    let (shape, mut values) = (raw.shape.clone(), raw.to_f32());
    values[token.0 as usize * model.config.hidden] = f32::NAN;
    weights.insert(name, Dtype::F32, &shape, &values);
    weights
}

/// Pseudo-random byte tokens.
pub(crate) fn tokens(seed: u64, count: usize) -> Vec<TokenId> {
    let mix = |i: u64| (seed * 7919 + i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (0..count as u64).map(|i| TokenId((mix(i) % 250) as u32)).collect()
}

/// Hands out block ids, never twice.
#[derive(Default)]
pub(crate) struct Blocks(u32);

impl Blocks {
    /// `count` fresh blocks.
    pub(crate) fn take(&mut self, count: usize) -> Vec<BlockId> {
        let first = self.0;
        self.0 += count as u32;
        (first..self.0).map(BlockId).collect()
    }
}

/// One request with the blocks of all its positions.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) id: u64,
    /// Prompt and, later, outputs.
    pub(crate) tokens: Vec<TokenId>,
    /// Of every position; leading ones may belong to other rows too.
    pub(crate) blocks: Vec<BlockId>,
    /// Whole blocks after which its context is cut into runs.
    pub(crate) cuts: Vec<usize>,
    pub(crate) block_tokens: usize,
    pub(crate) prompt: usize,
    pub(crate) generation: Arc<Generation>,
    pub(crate) seed: u64,
}

impl Row {
    /// A greedy row with room for `room` positions in fresh blocks.
    pub(crate) fn new(
        id: u64,
        prompt: Vec<TokenId>,
        room: usize,
        block_tokens: usize,
        blocks: &mut Blocks,
    ) -> Self {
        let generation = Generation { ignore_end: true, ..Generation::default() };
        Self {
            id,
            prompt: prompt.len(),
            tokens: prompt,
            blocks: blocks.take(room.div_ceil(block_tokens)),
            cuts: Vec::new(),
            block_tokens,
            generation: Arc::new(generation),
            seed: id,
        }
    }

    /// The same row with its first `count` blocks those of `other`.
    pub(crate) fn sharing(mut self, other: &Self, count: usize) -> Self {
        self.blocks[..count].copy_from_slice(&other.blocks[..count]);
        self.cuts.push(count);
        self
    }

    /// The runs of its first `end` positions.
    pub(crate) fn context(&self, end: usize) -> Vec<Run> {
        let mut ends: Vec<usize> =
            self.cuts.iter().map(|cut| cut * self.block_tokens).filter(|cut| *cut < end).collect();
        ends.push(end);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let run = |(start, end): (usize, &usize)| Run {
            skip: 0,
            blocks: self.blocks[start / self.block_tokens..end.div_ceil(self.block_tokens)].into(),
            tokens: TokenCount((end - start) as u64),
            shift: 0,
        };
        starts.zip(&ends).filter(|(start, end)| start < *end).map(run).collect()
    }

    /// The slot that computes these positions; it samples where they end the tokens.
    pub(crate) fn slot(&self, positions: Range<usize>) -> Slot {
        let is_prefill = positions.start < self.prompt;
        let sample = (positions.end == self.tokens.len()).then(|| SampleSpec {
            generation: Arc::clone(&self.generation),
            seed: self.seed,
            output_index: (self.tokens.len() - self.prompt) as u32,
            already_generated: if positions.start < self.prompt {
                self.tokens[self.prompt..].to_vec()
            } else {
                Vec::new()
            },
            prompt: self.generation.needs_prompt().then(|| self.tokens[..self.prompt].into()),
        });
        let first = positions.start / self.block_tokens;
        Slot {
            request: RequestId(self.id),
            start: positions.start as u32,
            input: self.tokens[positions.clone()].to_vec(),
            guesses: 0,
            prompt_targets: None,
            context: self.context(positions.start),
            write_blocks: self.blocks[first..positions.end.div_ceil(self.block_tokens)].to_vec(),
            write_offset: (positions.start % self.block_tokens) as u32,
            sample,
            is_prefill,
        }
    }

    /// The slot that computes its last token.
    pub(crate) fn decode(&self) -> Slot {
        self.slot(self.tokens.len() - 1..self.tokens.len())
    }

    /// The slot that computes what follows the first `computed` positions.
    pub(crate) fn rest(&self, computed: usize) -> Slot {
        self.slot(computed..self.tokens.len())
    }
}

/// Has `compute` compute three rows on one template of two blocks, one of them in two chunks, then decode
/// steps of all.
pub(crate) fn shared_rows(seed: u64, block_tokens: usize, mut compute: impl FnMut(&[Slot])) {
    let mut blocks = Blocks::default();
    let prompt =
        |row: u64| [tokens(seed, 2 * block_tokens), tokens(seed + row, 5 + 9 * row as usize)].concat();
    let first = Row { cuts: vec![2], ..Row::new(1, prompt(1), 96, block_tokens, &mut blocks) };
    let mut rows = vec![first.clone()];
    rows.extend((2..4).map(|id| Row::new(id, prompt(id), 96, block_tokens, &mut blocks).sharing(&first, 2)));
    compute(&[rows[0].slot(0..40)]);
    compute(&[rows[0].slot(40..rows[0].prompt), rows[1].slot(32..50), rows[2].slot(32..rows[2].prompt)]);
    compute(&[rows[1].slot(50..rows[1].prompt)]);
    for token in 0..4 {
        rows.iter_mut().for_each(|row| row.tokens.push(TokenId(7 * token + 3)));
        compute(&rows.iter().map(Row::decode).collect::<Vec<_>>());
    }
}

/// A plan of slots.
pub(crate) fn plan(slots: Vec<Slot>) -> BatchPlan {
    BatchPlan { step: StepId(1), moves: Moves::default(), slots, retired: Vec::new() }
}

/// Runs slots and gives back what was sampled, in order.
pub(crate) fn step(executor: &mut LocalExecutor, slots: Vec<Slot>) -> Vec<Result<Sampled, RowError>> {
    let outcome = executor.step(&plan(slots)).expect("the plan is sound");
    outcome.rows.into_iter().map(|row| row.result).collect()
}

/// Runs slots and appends each sampled token to its row.
pub(crate) fn advance(executor: &mut LocalExecutor, rows: &mut [Row], slots: Vec<Slot>) {
    let outcome = executor.step(&plan(slots)).expect("the plan is sound");
    for sampled in outcome.rows {
        let row = rows.iter_mut().find(|row| row.id == sampled.request.0).expect("only rows of the plan");
        row.tokens.extend(sampled.result.expect("logits are numbers").tokens);
    }
}

/// Decodes all rows together until each has `outputs` output tokens, and gives these back.
pub(crate) fn decode_all(
    executor: &mut LocalExecutor,
    rows: &mut [Row],
    outputs: usize,
) -> Vec<Vec<TokenId>> {
    while rows.iter().any(|row| row.tokens.len() < row.prompt + outputs) {
        let slots =
            rows.iter().filter(|row| row.tokens.len() < row.prompt + outputs).map(Row::decode).collect();
        advance(executor, rows, slots);
    }
    rows.iter().map(|row| row.tokens[row.prompt..].to_vec()).collect()
}

/// A decoder with a pool, below the executor: for tests that look at logits.
pub(crate) struct Bare {
    pub(crate) decoder: Decoder,
    pub(crate) pool: KvPool,
    pub(crate) work: Workspace,
}

impl Bare {
    pub(crate) fn new(decoder: Decoder, block_tokens: u32) -> Self {
        let shape = PoolShape::fit(decoder.config(), decoder.kv(), block_tokens, Bytes(4 << 20))
            .expect("the pool fits");
        Self { decoder, pool: KvPool::new(shape), work: Workspace::default() }
    }

    /// Logits of the slots that sample, one row each.
    pub(crate) fn logits(&mut self, slots: &[Slot]) -> Vec<Vec<f32>> {
        let hidden =
            self.decoder.forward(&mut self.pool, slots, &mut self.work).expect("no other rank fails");
        let logits = self.decoder.logits(&hidden, &mut self.work).expect("no other rank fails");
        logits.chunks_exact(self.decoder.config().vocab).map(<[f32]>::to_vec).collect()
    }
}

/// The natural logarithm of each token's probability.
pub(crate) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits.iter().map(|logit| logit - max - sum.ln()).collect()
}

/// The largest difference between two rows, in units of the second's largest magnitude.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(0.0f32, |size, x| size.max(x.abs()));
    let worst = found.iter().zip(expected).fold(0.0f32, |worst, (a, b)| {
        let apart = (a - b).abs();
        if apart > worst || apart.is_nan() { apart } else { worst }
    });
    worst / size
}
