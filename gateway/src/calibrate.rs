//! Fits the cost model to an executor by running it for a moment before the server starts.
//!
//! Synthetic prompts on blocks that nobody uses yet: prefills of growing size, then decode steps of growing
//! width over them. The median of a few repetitions counts. The result is kept per model revision and
//! machine; the scheduler refits it while it serves, and the writer keeps that too.

use std::sync::Arc;

use base::{
    BatchPlan, BlockId, ExecError, Executor, Generation, Nanos, RequestId, Run, SampleSpec, Slot, StepId,
    TokenCount, TokenId,
};
use scheduler::{CostModel, Sample};
use store::{Store, UnixMillis};

use crate::model::Model;

/// Prompt tokens of the measured prefills; those that do not fit the model are left out.
const PREFILL_TOKENS: [u32; 4] = [16, 64, 192, 384];
/// Sequences of the measured decode steps.
const DECODE_SEQUENCES: [u32; 4] = [1, 4, 8, 16];
/// Prompt tokens under each measured decode.
const DECODE_PROMPT: u32 = 16;
/// Repetitions, of which the median counts.
const REPETITIONS: usize = 3;
/// Requests of a calibration are numbered from here, far from the scheduler's.
const FIRST_REQUEST: u64 = u64::MAX / 2;

/// Numbers steps and requests of a calibration.
struct Lab<'a> {
    executor: &'a mut dyn Executor,
    block_tokens: u32,
    vocab: u32,
    next_step: u64,
    next_request: u64,
    retired: Vec<RequestId>,
    generation: Arc<Generation>,
}

/// Measures an executor. The model's KV pool must be unused.
pub fn measure(executor: &mut dyn Executor, model: &Model) -> Result<CostModel, ExecError> {
    let generation =
        Generation { output_max: TokenCount(1_000_000), ignore_end: true, ..Generation::default() };
    let mut lab = Lab {
        executor,
        block_tokens: model.block_tokens,
        vocab: model.vocab,
        next_step: FIRST_REQUEST,
        next_request: FIRST_REQUEST,
        retired: Vec::new(),
        generation: Arc::new(generation),
    };
    let fits = |sequences: u32, tokens: u32| {
        let blocks = sequences * (tokens + 1).div_ceil(model.block_tokens);
        blocks <= model.kv_blocks && u64::from(tokens) < model.context_max.0
    };
    let mut samples = Vec::new();
    for tokens in PREFILL_TOKENS.into_iter().filter(|tokens| fits(1, *tokens)) {
        let elapsed = lab.median(|lab| {
            let (elapsed, requests) = lab.prefill(1, tokens)?;
            lab.retired.extend(requests);
            Ok(elapsed)
        })?;
        samples.push(Sample::Prefill { tokens: TokenCount(u64::from(tokens)), elapsed });
    }
    for sequences in DECODE_SEQUENCES.into_iter().filter(|sequences| fits(*sequences, DECODE_PROMPT)) {
        let elapsed = lab.median(|lab| {
            let (_, requests) = lab.prefill(sequences, DECODE_PROMPT)?;
            let elapsed = lab.decode(&requests)?;
            lab.retired.extend(requests);
            Ok(elapsed)
        })?;
        samples.push(Sample::Decode { sequences: u64::from(sequences), elapsed });
    }
    Ok(CostModel::fit(&samples))
}

impl Lab<'_> {
    fn median(
        &mut self,
        mut run: impl FnMut(&mut Self) -> Result<Nanos, ExecError>,
    ) -> Result<Nanos, ExecError> {
        let mut spans = Vec::with_capacity(REPETITIONS);
        for _ in 0..REPETITIONS {
            spans.push(run(self)?);
        }
        spans.sort_unstable();
        Ok(spans[REPETITIONS / 2])
    }

    fn run(&mut self, slots: Vec<Slot>) -> Result<Nanos, ExecError> {
        self.next_step += 1;
        let plan =
            BatchPlan { step: StepId(self.next_step), slots, retired: std::mem::take(&mut self.retired) };
        self.executor.step(&plan).map(|outcome| outcome.elapsed)
    }

    /// The blocks of sequence number `index`, each with room for `tokens`.
    fn blocks(&self, index: u32, tokens: u32) -> Vec<BlockId> {
        let each = tokens.div_ceil(self.block_tokens);
        (index * each..(index + 1) * each).map(BlockId).collect()
    }

    fn sample(&self, output_index: u32) -> Option<SampleSpec> {
        Some(SampleSpec { generation: Arc::clone(&self.generation), seed: 0, output_index })
    }

    /// Prefills `sequences` prompts of different tokens in one step.
    fn prefill(&mut self, sequences: u32, tokens: u32) -> Result<(Nanos, Vec<RequestId>), ExecError> {
        let mut slots = Vec::new();
        for index in 0..sequences {
            self.next_request += 1;
            let word = |position: u32| TokenId((index * 7 + position * 13) % self.vocab.max(1));
            let blocks = self.blocks(index, tokens + 1);
            let blocks = blocks[..tokens.div_ceil(self.block_tokens) as usize].to_vec();
            slots.push(Slot {
                request: RequestId(self.next_request),
                start: 0,
                input: (0..tokens).map(word).collect(),
                context: Vec::new(),
                write_blocks: blocks,
                write_offset: 0,
                sample: self.sample(0),
                is_prefill: true,
            });
        }
        let requests = slots.iter().map(|slot| slot.request).collect();
        Ok((self.run(slots)?, requests))
    }

    /// Extends each request by one token.
    fn decode(&mut self, requests: &[RequestId]) -> Result<Nanos, ExecError> {
        let mut slots = Vec::new();
        for (index, request) in (0..).zip(requests) {
            let blocks = self.blocks(index, DECODE_PROMPT + 1);
            let used = DECODE_PROMPT.div_ceil(self.block_tokens) as usize;
            let offset = DECODE_PROMPT % self.block_tokens;
            let write = if offset == 0 { blocks[used..=used].to_vec() } else { vec![blocks[used - 1]] };
            slots.push(Slot {
                request: *request,
                start: DECODE_PROMPT,
                input: vec![TokenId(1 % self.vocab.max(1))],
                context: vec![Run {
                    blocks: blocks[..used].into(),
                    tokens: TokenCount(u64::from(DECODE_PROMPT)),
                    shift: 0,
                }],
                write_blocks: write,
                write_offset: offset,
                sample: self.sample(1),
                is_prefill: false,
            });
        }
        self.run(slots)
    }
}

/// What identifies this machine's speed: processor model and threads would differ, host names need not.
fn machine() -> String {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}-{}-{threads}", std::env::consts::OS, std::env::consts::ARCH)
}

/// The cost model kept for this model and machine.
pub async fn kept(store: &Store, model: &Model) -> Option<CostModel> {
    match store.calibration(&revision(model), &machine()).await {
        Ok(fitted) => fitted.and_then(|fitted| serde_json::from_str(&fitted).ok()),
        Err(error) => {
            tracing::warn!(%error, "the kept calibration cannot be read");
            None
        }
    }
}

/// Keeps a cost model for the next start.
pub async fn keep(store: &Store, model: &Model, cost: CostModel, unix_ms: u64) {
    let fitted = serde_json::to_string(&cost).expect("a cost model is four numbers");
    let put = store.put_calibration(&revision(model), &machine(), &fitted, UnixMillis(unix_ms)).await;
    if let Err(error) = put {
        tracing::warn!(%error, "the calibration was not kept");
    }
}

fn revision(model: &Model) -> String {
    format!("{:032x}", model.revision)
}
