//! Two ways of computing answers, compared: how far one's next-token distributions are from the other's.
//!
//! The reference answers each prompt greedily and the candidate is given the same tokens, so that both are
//! asked for the same distributions to the end. It must not know how either keeps its weights, nor why a
//! prompt is in sections.

use std::ops::Range;
use std::sync::Arc;

use base::{
    BlockId, Bytes, Generation, RequestId, Run, SampleSpec, Section, Sees, Slot, TokenCount, TokenId, repairs,
};

use crate::parallel::{Ranks, ShardedModel, StepError};
use crate::pool::PoolError;

/// Tokens of each answer, where the model does not end it sooner.
const OUTPUT_TOKENS: usize = 16;

/// Prompts that are answered together, and their tokens where those of one are fewer.
const ROWS: usize = 16;
const TOKENS: usize = 8_192;

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
    /// Keys that cannot be read.
    #[error("keys of a model on a GPU are not compared")]
    OnGpu,
    /// A rank failed.
    #[error(transparent)]
    StepError(#[from] StepError),
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

/// A prompt, in sections or (where there are none) undivided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub tokens: Vec<TokenId>,
    /// Its sections, as in [`base::WorkItem::sections`].
    pub sections: Arc<[Section]>,
}

impl Prompt {
    /// An undivided prompt.
    pub fn whole(tokens: Vec<TokenId>) -> Self {
        Self { tokens, sections: Arc::default() }
    }

    /// The same text undivided: what a reader of all of it sees, in the order of positions.
    pub fn undivided(&self) -> Self {
        let mut start = 0;
        let mut stretches: Vec<(u32, &[TokenId])> = Vec::new();
        for section in &*self.sections {
            let tokens = &self.tokens[start..start + section.tokens.0 as usize];
            start += tokens.len();
            if !section.is_placeholder() {
                stretches.push((section.position, tokens));
            }
        }
        if stretches.is_empty() {
            return self.clone();
        }
        stretches.sort_by_key(|(position, _)| *position);
        let mut end = 0;
        // What repairs another section stands behind it here, and is the same text.
        stretches.retain(|(position, tokens)| {
            let is_new = *position >= end;
            end = end.max(position + tokens.len() as u32);
            is_new
        });
        Self::whole(stretches.into_iter().flat_map(|(_, tokens)| tokens).copied().collect())
    }

    /// The position behind its last.
    fn end(&self) -> usize {
        let last = self.sections.last();
        last.map_or(self.tokens.len(), |last| last.position as usize + last.tokens.0 as usize)
    }
}

/// Compares `candidate` with `reference`, of the same checkpoint, on prompts that may be put to each in
/// another form; answers end with one of `ends`.
///
/// Token ids from `ids_end` on are padding of the vocabulary and left out.
pub fn compare(
    (reference, candidate): (&ShardedModel, &ShardedModel),
    prompts: &[(Prompt, Prompt)],
    (ends, ids_end): (&[TokenId], usize),
) -> Result<Comparison, CompareError> {
    let max = reference.config().context_max;
    for (number, (one, other)) in (1..).zip(prompts) {
        match one.end().max(other.end()) {
            _ if one.tokens.is_empty() || other.tokens.is_empty() => {
                return Err(CompareError::PromptEmpty(number));
            }
            tokens if tokens + OUTPUT_TOKENS > max => {
                return Err(CompareError::PromptTooLong { number, tokens, max });
            }
            _ => {}
        }
    }
    let mut found = Comparison::default();
    let mut left = prompts;
    while !left.is_empty() {
        let mut tokens = 0;
        let fit = left.iter().take(ROWS).take_while(|(one, other)| {
            tokens += one.tokens.len().max(other.tokens.len());
            tokens <= TOKENS
        });
        let (group, rest) = left.split_at(fit.count().max(1));
        left = rest;
        let rows = |of: fn(&(Prompt, Prompt)) -> &Prompt| {
            let mut blocks = 0;
            let rows: Vec<ComparedRow> =
                group.iter().map(|pair| ComparedRow::new(of(pair), &mut blocks)).collect();
            (rows, blocks)
        };
        let ((ones, ones_blocks), (others, others_blocks)) = (rows(|pair| &pair.0), rows(|pair| &pair.1));
        let mut ranks = [start(reference, ones_blocks)?, start(candidate, others_blocks)?];
        let mut rows: Vec<(ComparedRow, ComparedRow)> = ones.into_iter().zip(others).collect();
        for index in 0..OUTPUT_TOKENS {
            if rows.is_empty() {
                break;
            }
            let slots = |of: fn(&(ComparedRow, ComparedRow)) -> &ComparedRow| -> Vec<Slot> {
                rows.iter().zip(0..).flat_map(|(pair, id)| of(pair).slots(id, index)).collect()
            };
            let reference = logits(&mut ranks[0], &slots(|pair| &pair.0))?;
            let candidate = logits(&mut ranks[1], &slots(|pair| &pair.1))?;
            let width = reference.len() / rows.len();
            let pairs = reference.chunks_exact(width).zip(candidate.chunks_exact(width));
            rows = rows
                .into_iter()
                .zip(pairs)
                .filter_map(|((mut one, mut other), (reference, candidate))| {
                    found.add(&reference[..ids_end], &candidate[..ids_end]);
                    let token = likeliest(&reference[..ids_end]);
                    one.push(token);
                    other.push(token);
                    (!ends.contains(&token)).then_some((one, other))
                })
                .collect();
        }
    }
    Ok(found)
}

/// Ranks of a model with so many blocks.
pub(crate) fn start(model: &ShardedModel, blocks: u32) -> Result<Ranks, PoolError> {
    let mut shape = model.pool_shape(BLOCK_TOKENS as u32, Bytes(u64::MAX))?;
    shape.blocks = blocks as usize;
    Ranks::start(model, shape)
}

fn logits(ranks: &mut Ranks, slots: &[Slot]) -> Result<Vec<f32>, StepError> {
    let hidden = ranks.forward(slots)?;
    ranks.logits(&hidden, 0..hidden.rows())
}

/// A prompt and its answer so far, each section in blocks of its own.
pub(crate) struct ComparedRow {
    parts: Vec<ComparedSection>,
}

/// A section; the last one grows with the answer.
struct ComparedSection {
    section: Section,
    /// Which of its tokens others repair.
    repaired: Vec<Range<u32>>,
    tokens: Vec<TokenId>,
    /// How many of them have keys and values.
    done: usize,
    blocks: Vec<BlockId>,
}

impl ComparedRow {
    pub(crate) fn new(prompt: &Prompt, next_block: &mut u32) -> Self {
        let whole =
            Section { tokens: TokenCount(prompt.tokens.len() as u64), position: 0, sees: Sees::Before };
        let sections = if prompt.sections.is_empty() { &[whole][..] } else { &prompt.sections };
        let (mut start, mut parts) = (0, Vec::with_capacity(sections.len()));
        for (number, (section, repaired)) in sections.iter().zip(repairs(sections)).enumerate() {
            let end = start + section.tokens.0 as usize;
            let room = if number + 1 == sections.len() { OUTPUT_TOKENS } else { 0 };
            let first = *next_block;
            *next_block += (end - start + room).div_ceil(BLOCK_TOKENS) as u32;
            let blocks = (first..*next_block).map(BlockId).collect();
            parts.push(ComparedSection {
                section: *section,
                repaired,
                tokens: prompt.tokens[start..end].to_vec(),
                done: 0,
                blocks,
            });
            start = end;
        }
        Self { parts }
    }

    /// The slots of the tokens that are new; the last one samples.
    pub(crate) fn slots(&self, id: u64, index: usize) -> Vec<Slot> {
        let new = (0..self.parts.len()).filter(|number| self.parts[*number].is_new());
        new.map(|number| self.slot(id, index, number)).collect()
    }

    fn slot(&self, id: u64, index: usize, number: usize) -> Slot {
        let part = &self.parts[number];
        let before = self.parts[..number].iter().enumerate();
        let mut context: Vec<Run> = before
            .filter_map(|(number, other)| Some((other, part.section.shift_of(number, &other.section)?)))
            .flat_map(|(other, shift)| {
                let tokens = part.section.reads_of(&other.section, &other.repaired);
                tokens.map(move |tokens| other.run(tokens, shift))
            })
            .collect();
        if part.done > 0 {
            context.push(part.run(0..part.done as u32, 0));
        }
        let generation = Arc::new(Generation::default());
        let samples = number + 1 == self.parts.len();
        Slot {
            request: RequestId(id),
            start: part.section.numbering() + part.done as u32,
            input: part.tokens[part.done..].to_vec(),
            guesses: 0,
            prompt_targets: None,
            context,
            write_blocks: part.blocks[part.done / BLOCK_TOKENS..part.tokens.len().div_ceil(BLOCK_TOKENS)]
                .to_vec(),
            write_offset: (part.done % BLOCK_TOKENS) as u32,
            sample: samples.then_some(SampleSpec {
                generation,
                seed: 0,
                output_index: index as u32,
                already_generated: Vec::new(),
                prompt: None,
            }),
            is_prefill: index == 0,
        }
    }

    /// Takes the next token.
    fn push(&mut self, token: TokenId) {
        for part in &mut self.parts {
            part.done = part.tokens.len();
        }
        let own = self.parts.last_mut().expect("a prompt has a section");
        own.tokens.push(token);
    }
}

impl ComparedSection {
    fn is_new(&self) -> bool {
        self.done < self.tokens.len()
    }

    /// Some of its tokens, read `shift` positions further on.
    fn run(&self, tokens: Range<u32>, shift: u32) -> Run {
        let (start, end) = (tokens.start as usize, tokens.end as usize);
        Run {
            blocks: self.blocks[start / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)].into(),
            skip: (start % BLOCK_TOKENS) as u32,
            tokens: TokenCount((end - start) as u64),
            shift,
        }
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
    use crate::settings::{Keep, KvFormat, Quantize};

    fn model(keep: Keep) -> ShardedModel {
        let synthetic = Synthetic::tiny(Family::Qwen2, 3);
        let cpus = [Arc::new(Cpu::new(Some(1)).expect("threads start"))];
        ShardedModel::load(&synthetic.config, &synthetic.weights(), &cpus, keep).expect("it is whole")
    }

    fn prompts() -> Vec<(Prompt, Prompt)> {
        (0..ROWS + 3)
            .map(|row| both((0..5 + row).map(|i| TokenId(((7 * row + 3 * i) % 200) as u32)).collect()))
            .collect()
    }

    fn both(tokens: Vec<TokenId>) -> (Prompt, Prompt) {
        (Prompt::whole(tokens.clone()), Prompt::whole(tokens))
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
    fn sections_that_see_all_before_them_change_nothing_and_independent_ones_do() {
        let f32s = model(Keep { dtype: Some(Dtype::F32), ..Keep::default() });
        let section =
            |tokens: u64, position: u32, sees: Sees| Section { tokens: TokenCount(tokens), position, sees };
        let unit =
            |first: u32, origin: u32, is_placeholder: bool| Sees::Unit { first, origin, is_placeholder };
        let tokens: Vec<TokenId> = (0..60).map(|i| TokenId((i * 37 + i * i) % 200)).collect();
        let found = |sections: &[Section]| {
            let divided = Prompt { tokens: tokens.clone(), sections: sections.into() };
            compare((&f32s, &f32s), &[(divided.undivided(), divided)], (&[], 200)).expect("it fits")
        };
        let exact = found(&[
            section(23, 0, Sees::Before),
            section(17, 23, Sees::Before),
            section(20, 40, Sees::Before),
        ]);
        assert_eq!((exact.positions, exact.agreement()), (OUTPUT_TOKENS as u64, Some(1.0)));
        assert!(exact.divergence_max < 1e-6, "{exact:?}");
        // The first unit sees what it would see anyway; the second does not see the first.
        let first = found(&[section(23, 0, unit(0, 0, false)), section(37, 23, Sees::Before)]);
        assert!(first.divergence_max < 1e-6, "{first:?}");
        let second = found(&[
            section(23, 0, unit(0, 0, false)),
            section(17, 23, unit(1, 23, false)),
            section(20, 40, Sees::Before),
        ]);
        assert!(second.divergence_max > 1e-4, "{second:?}");
        // Repaired from its beginning on it sees it, and the more of it the better; all of it is exact.
        let repaired = |first: usize| {
            let repeated = [&tokens[..40], &tokens[23..23 + first], &tokens[40..]].concat();
            let sections = [
                section(23, 0, unit(0, 0, false)),
                section(17, 23, unit(1, 23, false)),
                section(first as u64, 23, Sees::Before),
                section(20, 40, Sees::Before),
            ];
            let divided = Prompt { tokens: repeated, sections: sections.into() };
            assert_eq!(divided.undivided().tokens, tokens);
            compare((&f32s, &f32s), &[(divided.undivided(), divided)], (&[], 200)).expect("it fits")
        };
        assert!(repaired(17).divergence_max < 1e-6, "{:?}", repaired(17));
        assert!(repaired(9).divergence < second.divergence, "{:?} {second:?}", repaired(9));
        assert!(repaired(9).divergence_max > 1e-5, "{:?}", repaired(9));
        // What only stands in is no text of the prompt.
        let undivided = Prompt {
            tokens: tokens.clone(),
            sections: Arc::from([section(23, 0, unit(0, 0, true)), section(37, 0, Sees::Before)]),
        };
        assert_eq!(undivided.undivided(), Prompt::whole(tokens[23..].to_vec()));
    }

    #[test]
    fn keys_and_values_of_eight_bits_hardly_move_a_distribution() {
        let with = |kv| model(Keep { kv: Some(kv), ..Keep::default() });
        let found = compare((&with(KvFormat::F32), &with(KvFormat::Q8)), &prompts(), (&[], 200))
            .expect("prompts fit");
        let (agreement, mean) = (found.agreement().expect("some"), found.mean().expect("some"));
        // Found: 0.987, 0.00009 and 0.0008, the weights being random; a wrong scale is hundreds of times
        // that.
        assert!(agreement >= 0.97 && mean < 2e-4 && found.divergence_max < 2e-3, "{found:?}");
        assert!(found.divergence > 0.0, "they are rounded");
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
        let refused = |prompts: &[(Prompt, Prompt)]| {
            compare((&model, &model), prompts, (&[], 200)).expect_err("refused").to_string()
        };
        let error = refused(&[both(vec![TokenId(1)]), both(long)]);
        assert_eq!(error, "prompt 2 has 256 tokens; with 16 of answer the model takes 256");
        assert_eq!(refused(&[both(Vec::new())]), "prompt 1 is empty");
    }
}
