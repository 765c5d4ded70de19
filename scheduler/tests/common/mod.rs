//! A memory model of an executor: what the scheduler's promises are tested against.
//!
//! The model keeps, for every position of every block, a hash of the token there and of all tokens
//! before it. A slot whose context does not hold exactly its request's own tokens is a wrong answer in
//! a real engine; here it is a failed test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    BatchPlan, End, Generation, Nanos, PromptOutcome, PromptToken, RelQueryId, RequestId, RowError,
    RowOutcome, Sampled, ServiceClass, Slot, Span, SpanKind, StepOutcome, Submission, TenantId, Time,
    TokenCount, TokenId, WorkItem,
};

/// A row of these tokens.
pub(crate) fn item(row: u32, prompt: Vec<u32>, output_max: u64, seed: u64) -> WorkItem {
    let tokens = TokenCount(prompt.len() as u64);
    WorkItem {
        row,
        prompt: prompt.into_iter().map(TokenId).collect(),
        spans: Arc::from([Span { kind: SpanKind::Field, tokens }]),
        sections: Arc::default(),
        generation: Arc::new(Generation { output_max: TokenCount(output_max), ..Generation::default() }),
        seed,
    }
}

/// A relQuery of these rows, arriving at `arrival`.
pub(crate) fn submission(id: u64, arrival: u64, items: Vec<WorkItem>) -> Submission {
    Submission {
        id: RelQueryId(id),
        tenant: TenantId(1),
        weight: 1_000,
        scope: 7,
        class: ServiceClass::Interactive,
        arrival: Time(arrival),
        deadline: None,
        items,
    }
}

/// An executor whose "keys and values" are hashes of everything up to a position.
#[derive(Default)]
pub(crate) struct Memory {
    block_tokens: usize,
    /// What lies in each block that was written.
    pub(crate) cells: BTreeMap<u32, Vec<u64>>,
    /// What lies in each block of the host tier.
    host: BTreeMap<u32, Vec<u64>>,
    /// Prompts by seed, and outputs so far by request.
    prompts: BTreeMap<u64, Arc<[TokenId]>>,
    outputs: BTreeMap<RequestId, Vec<TokenId>>,
    seeds: BTreeMap<RequestId, u64>,
    /// Tokens that each sampled one forces behind it.
    pub(crate) forced: usize,
    /// Seeds whose outputs rows have in turn; none: each has its own.
    pub(crate) voices: Vec<u64>,
    /// Rows whose logits are not numbers, by seed.
    pub(crate) broken: Vec<u64>,
}

/// What a slot asks to be told of its prompt: which tokens they are.
fn scored(slot: &Slot) -> Option<PromptOutcome> {
    let targets = slot.prompt_targets.as_ref()?;
    let known = slot.input[1..].iter().zip(&targets.tokens);
    assert!(known.into_iter().all(|(next, target)| next == target), "a target is what follows: {slot:?}");
    let first = (slot.start == 0).then(|| slot.input[0]);
    let token = |id| PromptToken { id, text: String::new(), bytes: None, likelihood: None };
    let told = first.into_iter().chain(targets.tokens.iter().copied()).map(token);
    Some(PromptOutcome { request: slot.request, result: Ok(told.collect()) })
}

fn mix(before: u64, token: TokenId) -> u64 {
    (before ^ u64::from(token.0).wrapping_add(0x51)).wrapping_mul(0x0100_0000_01b3).rotate_left(23) ^ before
}

impl Memory {
    pub(crate) fn new(block_tokens: u32) -> Self {
        Self { block_tokens: block_tokens as usize, ..Self::default() }
    }

    pub(crate) fn know(&mut self, items: &[WorkItem]) {
        for item in items {
            self.prompts.insert(item.seed, item.prompt.clone());
        }
    }

    /// The executor is lost, and another takes its place: it knows prompts, and nothing that was computed.
    pub(crate) fn lose(&mut self) {
        self.cells.clear();
        self.outputs.clear();
        self.seeds.clear();
    }

    /// The output of the row with this seed, whatever happens on the way.
    pub(crate) fn truth(&self, seed: u64, output_max: u64) -> Vec<TokenId> {
        let all: Vec<TokenId> = (0..output_max as usize).map(|index| self.token(seed, index)).collect();
        let end = all.iter().position(|token| token.0 < 5).map_or(all.len(), |end| end + 1);
        all[..end].to_vec()
    }

    /// The token at an output position depends on the seed and the position alone.
    fn token(&self, seed: u64, index: usize) -> TokenId {
        let seed = match self.voices.len() {
            0 => seed,
            count => self.voices[seed as usize % count],
        };
        TokenId((mix(seed, TokenId(index as u32)) % 50) as u32)
    }

    /// Copies between pool and host.
    fn move_blocks(&mut self, plan: &BatchPlan) {
        let mut named = BTreeSet::new();
        for moved in &plan.moves.out {
            assert!(named.insert(moved.to), "no host block is named twice");
            self.host.insert(moved.to.0, self.cells[&moved.from.0].clone());
        }
        for moved in &plan.moves.back {
            assert!(named.insert(moved.from), "no host block is named twice");
            self.cells.insert(moved.to.0, self.host[&moved.from.0].clone());
            let written = plan.slots.iter().any(|slot| slot.write_blocks.contains(&moved.to));
            assert!(!written, "what moves back is not written");
        }
    }

    /// A plan that fails: what it was to write or to move is anything.
    pub(crate) fn fail(&mut self, plan: &BatchPlan) {
        const GARBAGE: u64 = 0xdead;
        for slot in &plan.slots {
            for at in (slot.write_offset as usize..).take(slot.input.len()) {
                let block = slot.write_blocks[at / self.block_tokens];
                let cells = self.cells.entry(block.0).or_insert_with(|| vec![0; self.block_tokens]);
                cells[at % self.block_tokens] = GARBAGE;
            }
        }
        let moved = plan.moves.out.iter().map(|moved| moved.from);
        for block in moved.chain(plan.moves.back.iter().map(|moved| moved.to)) {
            self.cells.insert(block.0, vec![GARBAGE; self.block_tokens]);
        }
        for moved in &plan.moves.out {
            self.host.insert(moved.to.0, vec![GARBAGE; self.block_tokens]);
        }
    }

    /// Writes of one slot, then the check of what it reads.
    fn write(&mut self, slot: &Slot) {
        let mut hash = self.context(slot).last().copied().unwrap_or(0);
        for (i, token) in slot.input.iter().enumerate() {
            hash = mix(hash, *token);
            let at = slot.write_offset as usize + i;
            let block = slot.write_blocks[at / self.block_tokens];
            let cells = self.cells.entry(block.0).or_insert_with(|| vec![0; self.block_tokens]);
            cells[at % self.block_tokens] = hash;
        }
    }

    fn context(&self, slot: &Slot) -> Vec<u64> {
        let mut hashes = Vec::new();
        for run in &slot.context {
            assert_eq!(run.shift, 0);
            assert_eq!(run.blocks.len(), (run.tokens.0 as usize).div_ceil(self.block_tokens));
            let cells = run.blocks.iter().flat_map(|block| self.cells[&block.0].iter().copied());
            hashes.extend(cells.take(run.tokens.0 as usize));
        }
        assert_eq!(hashes.len(), slot.start as usize, "the context ends where the input starts");
        hashes
    }

    /// Runs a plan as `base::Executor` promises to, and checks it on the way.
    pub(crate) fn step(&mut self, plan: &BatchPlan) -> StepOutcome {
        assert!(!plan.slots.is_empty());
        for request in &plan.retired {
            self.outputs.remove(request);
            self.seeds.remove(request);
        }
        self.move_blocks(plan);
        for slot in &plan.slots {
            self.write(slot);
        }
        let rows = plan.slots.iter().filter_map(|slot| self.finish(slot)).collect();
        let sequences = plan.decode_sequences() + plan.guesses();
        let elapsed = Nanos(1_000 + 10 * plan.prefill_tokens().0 + sequences);
        let prompts = plan.slots.iter().filter_map(scored).collect();
        StepOutcome { step: plan.step, elapsed, rows, prompts }
    }

    fn finish(&mut self, slot: &Slot) -> Option<RowOutcome> {
        if let Some(sample) = &slot.sample {
            self.seeds.insert(slot.request, sample.seed);
            self.outputs.entry(slot.request).or_insert_with(|| sample.already_generated.clone());
        }
        if let Some(seed) = self.seeds.get(&slot.request) {
            let output = self.outputs.entry(slot.request).or_default();
            let mut hash = 0;
            let all = self.prompts[seed].iter().chain(output.iter());
            let expected: Vec<u64> = all
                .map(|token| {
                    hash = mix(hash, *token);
                    hash
                })
                .collect();
            assert_eq!(self.context(slot), expected[..slot.start as usize], "the context is the row's own");
        }
        let sample = slot.sample.as_ref()?;
        if self.broken.contains(&sample.seed) {
            return Some(RowOutcome { request: slot.request, result: Err(RowError::NotANumber) });
        }
        let said = sample.output_index as usize;
        let truth = |index: usize| self.token(sample.seed, index);
        let guesses = slot.input[slot.input.len() - slot.guesses as usize..].iter();
        let right = guesses.enumerate().take_while(|(at, drafted)| **drafted == truth(said + at)).count();
        let tokens: Vec<TokenId> = (said..said + right + 1 + self.forced).map(truth).collect();
        let output = self.outputs.entry(slot.request).or_default();
        assert_eq!(output.len(), said, "no token is sampled twice");
        let mut sampled = Sampled::default();
        for token in tokens {
            output.push(token);
            sampled.tokens.push(token);
            sampled.text += &format!("{} ", token.0);
            let is_last = output.len() as u64 == sample.generation.output_max.0;
            sampled.end = match token.0 {
                0..5 => Some(End::Stop),
                _ => is_last.then_some(End::Length),
            };
            if sampled.end.is_some() {
                break;
            }
        }
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }
}
