//! Two ways of keeping a model's weights, compared: how far one's next-token distributions are from the other's.
//!
//! The reference answers each prompt greedily and the candidate is given the same tokens, so that both are asked for
//! the same distributions to the end. It must not know how either keeps its weights.

use std::sync::Arc;

use base::{BlockId, Bytes, Generation, RequestId, Run, SampleSpec, Slot, TokenCount, TokenId};

use crate::parallel::{Broken, Memory, Ranks};
use crate::pool::PoolError;

/// Tokens of each answer, where the model does not end it sooner.
const OUTPUT_TOKENS: usize = 16;

/// Prompts that are answered together.
const ROWS: usize = 16;

/// Positions of a KV block.
const BLOCK_TOKENS: usize = 16;

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Distributions compared: one per answer token, ends included.
    pub positions: u64,
    /// Those of which both find the same token the most likely.
    pub agreeing: u64,
    /// Sum of the Kullback-Leibler divergences from the reference, in nats; [`Self::mean`] divides it.
    pub divergence: f64,
    /// The largest of them.
    pub divergence_max: f64,
}

/// Why two models cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A prompt that leaves no room for an answer.
    #[error("prompt {number} has {tokens} tokens; with {OUTPUT_TOKENS} of answer the model takes {max}")]
    PromptTooLong {
        /// Which, from 1.
        number: usize,
        /// Its length.
        tokens: usize,
        /// The model's context.
        max: usize,
    },
    /// A prompt without tokens.
    #[error("prompt {0} is empty")]
    PromptEmpty(usize),
    /// The KV pool.
    #[error("the KV pool cannot be made: {0}")]
    Pool(#[from] PoolError),
    /// A rank failed.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Comparison {
    /// Mean divergence, in nats; `None` where nothing was compared.
    pub fn mean(&self) -> Option<f64> {
        (self.positions > 0).then(|| self.divergence / self.positions as f64)
    }

    /// Share of positions with the same most likely token; `None` where nothing was compared.
    pub fn agreement(&self) -> Option<f64> {
        (self.positions > 0).then(|| self.agreeing as f64 / self.positions as f64)
    }

    fn add(&mut self, reference: &[f32], candidate: &[f32]) {
        let divergence = divergence(reference, candidate);
        self.positions += 1;
        self.agreeing += u64::from(likeliest(reference) == likeliest(candidate));
        self.divergence += divergence;
        // What is not a number is the worst that can be found, and stays so.
        self.divergence_max =
            if divergence <= self.divergence_max { self.divergence_max } else { divergence };
    }
}

/// Compares `candidate` with `reference`, of the same checkpoint, on `prompts`; answers end with one of `ends`.
///
/// Token ids from `ids_end` on are padding of the vocabulary and left out.
pub fn compare(
    (reference, candidate): (&Ranks, &Ranks),
    prompts: &[Vec<TokenId>],
    (ends, ids_end): (&[TokenId], usize),
) -> Result<Comparison, CompareError> {
    let max = reference.config().context_max;
    for (number, prompt) in (1..).zip(prompts) {
        match prompt.len() {
            0 => return Err(CompareError::PromptEmpty(number)),
            tokens if tokens + OUTPUT_TOKENS > max => {
                return Err(CompareError::PromptTooLong { number, tokens, max });
            }
            _ => {}
        }
    }
    let mut found = Comparison::default();
    for prompts in prompts.chunks(ROWS) {
        let mut rows = Vec::with_capacity(prompts.len());
        let mut blocks = 0;
        for prompt in prompts {
            rows.push(Row::new(prompt, &mut blocks));
        }
        let mut memory = [memory(reference, blocks)?, memory(candidate, blocks)?];
        for index in 0..OUTPUT_TOKENS {
            let slots: Vec<Slot> = rows.iter().zip(0..).map(|(row, id)| row.slot(id, index)).collect();
            if slots.is_empty() {
                break;
            }
            let [reference, candidate] =
                [logits(reference, &mut memory[0], &slots)?, logits(candidate, &mut memory[1], &slots)?];
            let width = reference.len() / slots.len();
            let pairs = reference.chunks_exact(width).zip(candidate.chunks_exact(width));
            rows = rows
                .into_iter()
                .zip(pairs)
                .filter_map(|(mut row, (reference, candidate))| {
                    found.add(&reference[..ids_end], &candidate[..ids_end]);
                    row.push(likeliest(&reference[..ids_end]), ends).then_some(row)
                })
                .collect();
        }
    }
    Ok(found)
}

fn memory(model: &Ranks, blocks: u32) -> Result<Vec<Memory>, PoolError> {
    let mut shape = model.pool_shape(BLOCK_TOKENS as u32, Bytes(u64::MAX))?;
    shape.blocks = blocks as usize;
    Ok(model.memory(shape))
}

fn logits(model: &Ranks, memory: &mut [Memory], slots: &[Slot]) -> Result<Vec<f32>, Broken> {
    let hidden = model.forward(memory, slots)?;
    model.logits(memory, &hidden)
}

/// A prompt and its answer so far, in blocks of its own.
struct Row {
    tokens: Vec<TokenId>,
    /// How many of them have keys and values.
    done: usize,
    blocks: Vec<BlockId>,
}

impl Row {
    fn new(prompt: &[TokenId], next_block: &mut u32) -> Self {
        let first = *next_block;
        *next_block += (prompt.len() + OUTPUT_TOKENS).div_ceil(BLOCK_TOKENS) as u32;
        Self { tokens: prompt.to_vec(), done: 0, blocks: (first..*next_block).map(BlockId).collect() }
    }

    /// The slot of the tokens that are new.
    fn slot(&self, id: u64, index: usize) -> Slot {
        let (done, len) = (self.done, self.tokens.len());
        let blocks = &self.blocks;
        let used = || Run {
            blocks: blocks[..done.div_ceil(BLOCK_TOKENS)].into(),
            tokens: TokenCount(done as u64),
            shift: 0,
        };
        let generation = Arc::new(Generation::default());
        Slot {
            request: RequestId(id),
            start: done as u32,
            input: self.tokens[done..].to_vec(),
            guesses: 0,
            context: if done == 0 { Vec::new() } else { vec![used()] },
            write_blocks: blocks[done / BLOCK_TOKENS..len.div_ceil(BLOCK_TOKENS)].to_vec(),
            write_offset: (done % BLOCK_TOKENS) as u32,
            sample: Some(SampleSpec { generation, seed: 0, output_index: index as u32 }),
            is_prefill: done == 0,
        }
    }

    /// Takes the next token; whether the answer goes on.
    fn push(&mut self, token: TokenId, ends: &[TokenId]) -> bool {
        self.done = self.tokens.len();
        self.tokens.push(token);
        !ends.contains(&token)
    }
}

/// The first of the largest; the first id where there is no number.
fn likeliest(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    TokenId(best as u32)
}

/// `sum of p ln(p / q)` over the softmaxes `p` of `reference` and `q` of `candidate`, in nats.
fn divergence(reference: &[f32], candidate: &[f32]) -> f64 {
    let normaliser = |logits: &[f32]| {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
        f64::from(max) + sum.ln()
    };
    let (p_all, q_all) = (normaliser(reference), normaliser(candidate));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - p_all, f64::from(*q) - q_all);
        p.exp() * (p - q)
    };
    // Rounding can leave a hair below zero, which no divergence is.
    let sum: f64 = reference.iter().zip(candidate).map(term).sum();
    if sum < 0.0 { 0.0 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::config::Family;
    use crate::checkpoint::{Dtype, Synthetic};
    use crate::device::Cpu;
    use crate::settings::{Keep, Quantize};

    fn model(keep: Keep) -> Ranks {
        let synthetic = Synthetic::tiny(Family::Qwen2, 3);
        let cpus = [Arc::new(Cpu::new(Some(1)).expect("threads start"))];
        Ranks::load(&synthetic.config, &synthetic.weights(), &cpus, keep).expect("it is whole")
    }

    fn prompts() -> Vec<Vec<TokenId>> {
        (0..ROWS + 3)
            .map(|row| (0..5 + row).map(|i| TokenId(((7 * row + 3 * i) % 200) as u32)).collect())
            .collect()
    }

    #[test]
    fn a_divergence_is_that_of_the_definition() {
        let ln = |shares: [f32; 3]| shares.map(f32::ln);
        let (p, q) = (ln([0.5, 0.25, 0.25]), ln([0.25, 0.5, 0.25]).map(|logit| logit + 3.0));
        let exact = 0.5 * 2f64.ln() + 0.25 * 0.5f64.ln();
        assert!((divergence(&p, &q) - exact).abs() < 1e-6);
        assert!(divergence(&p, &p) < 1e-12);
        assert!(divergence(&p, &[0.0, f32::NAN, 0.0]).is_nan());
    }

    #[test]
    fn a_model_agrees_with_itself_and_fewer_bits_agree_less() {
        let f32s = || model(Keep { dtype: Some(Dtype::F32), ..Keep::default() });
        let ids = (&[][..], 200);
        let same = compare((&f32s(), &f32s()), &prompts(), ids).expect("prompts fit");
        assert_eq!(same.positions, (prompts().len() * OUTPUT_TOKENS) as u64);
        assert_eq!((same.agreement(), same.mean()), (Some(1.0), Some(0.0)));
        let q8 = model(Keep { quantize: Some(Quantize::Q8), ..Keep::default() });
        let q8 = compare((&f32s(), &q8), &prompts(), ids).expect("prompts fit");
        assert_eq!(q8.positions, same.positions);
        assert!(q8.divergence > 0.0 && q8.divergence_max >= q8.divergence / q8.positions as f64);
    }

    #[test]
    fn an_answer_ends_with_an_end_token() {
        let model = model(Keep::default());
        let every: Vec<TokenId> = (0..200).map(TokenId).collect();
        let found = compare((&model, &model), &prompts(), (&every, 200)).expect("prompts fit");
        assert_eq!(found.positions, prompts().len() as u64);
    }

    #[test]
    fn prompts_that_cannot_be_answered_are_refused_by_number() {
        let model = model(Keep::default());
        let long = vec![TokenId(1); model.config().context_max];
        let refused = |prompts: &[Vec<TokenId>]| {
            compare((&model, &model), prompts, (&[], 200)).expect_err("refused").to_string()
        };
        let error = refused(&[vec![TokenId(1)], long]);
        assert_eq!(error, "prompt 2 has 256 tokens; with 16 of answer the model takes 256");
        assert_eq!(refused(&[Vec::new()]), "prompt 1 is empty");
    }
}
