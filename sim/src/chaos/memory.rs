//! A memory model of an executor: is the context of each slot what the row itself computed?
//!
//! Every position of every block holds a hash of the token there and of all tokens before it. A slot that
//! reads anything but its own row's hashes would be a wrong answer in a real engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use base::{BatchPlan, HostBlockId, MoveBack, MoveOut, RequestId, Slot, TokenId, WorkItem};

/// What lies where a failed step or row wrote.
const GARBAGE: u64 = 0xdead_beef;

/// One row's text: its prompt, and its output, which depends on nothing but its seed.
#[derive(Clone, Debug)]
struct RowText {
    prompt: Arc<[TokenId]>,
    /// `chain[i]`: the hash of tokens `0..=i`, as far as it was needed.
    chain: Vec<u64>,
}

impl RowText {
    fn token(&self, seed: u64, position: usize) -> TokenId {
        let output = position.checked_sub(self.prompt.len());
        output.map_or_else(|| self.prompt[position], |index| token(seed, index))
    }

    fn extend(&mut self, seed: u64, len: usize) {
        while self.chain.len() < len {
            let before = self.chain.last().copied().unwrap_or(0);
            let token = self.token(seed, self.chain.len());
            self.chain.push(mix(before, token));
        }
    }
}

/// The memory behind the pool, and whose requests it has seen.
#[derive(Clone, Debug)]
pub(super) struct MemoryModel {
    block_tokens: usize,
    cells: Vec<u64>,
    /// The same of the host tier.
    host: Vec<u64>,
    texts: BTreeMap<u64, RowText>,
    seeds: BTreeMap<RequestId, u64>,
    /// Requests whose output so far this executor has sampled, or was told.
    known: BTreeSet<RequestId>,
}

impl MemoryModel {
    pub(super) fn new(blocks: u32, host_blocks: u32, block_tokens: u32) -> Self {
        Self {
            block_tokens: block_tokens as usize,
            cells: vec![0; (blocks * block_tokens) as usize],
            host: vec![0; (host_blocks * block_tokens) as usize],
            texts: BTreeMap::new(),
            seeds: BTreeMap::new(),
            known: BTreeSet::new(),
        }
    }

    pub(super) fn know(&mut self, items: &[WorkItem]) {
        for item in items {
            self.texts.insert(item.seed, RowText { prompt: item.prompt.clone(), chain: Vec::new() });
        }
    }

    /// Says whose request it is.
    pub(super) fn introduce(&mut self, request: RequestId, seed: u64) -> Result<(), String> {
        match *self.seeds.entry(request).or_insert(seed) == seed {
            true => Ok(()),
            false => Err(format!("request {request} changed its row")),
        }
    }

    /// The seed of the row a request belongs to.
    pub(super) fn seed(&self, request: RequestId) -> Option<u64> {
        self.seeds.get(&request).copied()
    }

    /// Runs a plan: all moves, then all writes, then the check of all reads.
    pub(super) fn run(&mut self, plan: &BatchPlan) -> Result<(), String> {
        self.move_blocks(plan)?;
        for slot in &plan.slots {
            self.write(slot)?;
        }
        plan.slots.iter().try_for_each(|slot| self.check(slot))
    }

    fn move_blocks(&mut self, plan: &BatchPlan) -> Result<(), String> {
        let mut named: Vec<HostBlockId> = plan.moves.out.iter().map(|moved| moved.to).collect();
        named.extend(plan.moves.back.iter().map(|moved| moved.from));
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("host block {} moves twice in a step", pair[0]));
        }
        for MoveOut { from, to } in &plan.moves.out {
            let (from, to) = (self.cells_of(from.0), self.cells_of(to.0));
            self.host[to].copy_from_slice(&self.cells[from]);
        }
        for MoveBack { from, to } in &plan.moves.back {
            let (from, to) = (self.cells_of(from.0), self.cells_of(to.0));
            self.cells[to].copy_from_slice(&self.host[from]);
        }
        Ok(())
    }

    /// The cells of a block.
    fn cells_of(&self, block: u32) -> Range<usize> {
        let start = block as usize * self.block_tokens;
        start..start + self.block_tokens
    }

    /// The cell of input token `i` of a slot.
    fn written(&self, slot: &Slot, i: usize) -> usize {
        let at = slot.write_offset as usize + i;
        slot.write_blocks[at / self.block_tokens].0 as usize * self.block_tokens + at % self.block_tokens
    }

    fn write(&mut self, slot: &Slot) -> Result<(), String> {
        let span = slot.write_offset as usize + slot.input.len();
        if slot.input.is_empty() || slot.write_blocks.len() != span.div_ceil(self.block_tokens) {
            return Err(format!("request {}: its blocks do not take its input", slot.request));
        }
        let mut hash = self.context(slot).last().unwrap_or(0);
        for (i, token) in slot.input.iter().enumerate() {
            hash = mix(hash, *token);
            let cell = self.written(slot, i);
            self.cells[cell] = hash;
        }
        Ok(())
    }

    /// What the slot reads before its input.
    fn context<'a>(&'a self, slot: &'a Slot) -> impl Iterator<Item = u64> + 'a {
        slot.context.iter().flat_map(|run| {
            let blocks = run.blocks.iter().map(|block| block.0 as usize * self.block_tokens);
            let cells = blocks.flat_map(|start| self.cells[start..start + self.block_tokens].iter());
            cells.copied().take(run.tokens.0 as usize)
        })
    }

    fn check(&mut self, slot: &Slot) -> Result<(), String> {
        let length: u64 = slot.context.iter().map(|run| run.tokens.0).sum();
        let block_tokens = self.block_tokens as u64;
        let is_whole = |run: &base::Run| run.blocks.len() as u64 == run.tokens.0.div_ceil(block_tokens);
        if length != u64::from(slot.start) || !slot.context.iter().all(is_whole) {
            return Err(format!("request {}: the context does not end where the input starts", slot.request));
        }
        let seed = self.seed(slot.request).ok_or("a request nobody introduced")?;
        if slot.guesses as usize >= slot.input.len() || (slot.guesses > 0 && slot.sample.is_none()) {
            return Err(format!("request {}: guesses behind nothing", slot.request));
        }
        // Guesses may be anything; what they write counts once they have come.
        let known = slot.input.len() - slot.guesses as usize;
        let (start, end) = (slot.start as usize, slot.start as usize + known);
        let text = self.texts.get_mut(&seed).ok_or("a row nobody submitted")?;
        text.extend(seed, end);
        let is_off = slot.sample.as_ref().is_some_and(|sample| {
            sample.seed != seed || text.prompt.len() + sample.output_index as usize != end
        });
        if is_off {
            return Err(format!("request {}: a sample of another row or output", slot.request));
        }
        if let Some(sample) = &slot.sample {
            let expected = (0..sample.output_index as usize).map(|index| token(seed, index));
            let is_given = sample.already_generated.iter().copied().eq(expected);
            if !is_given && (!sample.already_generated.is_empty() || !self.known.contains(&slot.request)) {
                return Err(format!("request {}: its executor is not told what it has said", slot.request));
            }
            self.known.insert(slot.request);
        }
        let text = &self.texts[&seed];
        if !self.context(slot).eq(text.chain[..start].iter().copied()) {
            return Err(format!("request {}: the context is not the row's own", slot.request));
        }
        let written = (0..known).map(|i| self.cells[self.written(slot, i)]);
        if !written.eq(text.chain[start..end].iter().copied()) {
            return Err(format!(
                "request {}: what it wrote is not its text, or was overwritten",
                slot.request
            ));
        }
        Ok(())
    }

    /// A step failed whole: what it was to write or move is anything, but what was to come back still lies on
    /// the host.
    pub(super) fn spoil(&mut self, plan: &BatchPlan) {
        for MoveOut { from, to } in &plan.moves.out {
            let (from, to) = (self.cells_of(from.0), self.cells_of(to.0));
            self.cells[from].fill(GARBAGE);
            self.host[to].fill(GARBAGE);
        }
        for MoveBack { to, .. } in &plan.moves.back {
            let to = self.cells_of(to.0);
            self.cells[to].fill(GARBAGE);
        }
        for slot in &plan.slots {
            self.spoil_slot(slot);
        }
    }

    /// Another executor, with nothing in its memory.
    pub(super) fn spoil_all(&mut self) {
        self.cells.fill(GARBAGE);
        self.host.fill(GARBAGE);
        self.known.clear();
    }

    /// A row failed: what it wrote is anything, unless another slot of the step has read it as well.
    pub(super) fn spoil_unshared(&mut self, plan: &BatchPlan, slot: &Slot) {
        let others = plan.slots.iter().filter(|other| other.request != slot.request);
        let mut runs = others.flat_map(|other| &other.context);
        if !runs.any(|run| run.blocks.iter().any(|block| slot.write_blocks.contains(block))) {
            self.spoil_slot(slot);
        }
    }

    fn spoil_slot(&mut self, slot: &Slot) {
        for i in 0..slot.input.len() {
            let cell = self.written(slot, i);
            self.cells[cell] = GARBAGE;
        }
    }
}

/// Token `index` of the output of the row with this seed.
pub(super) fn token(seed: u64, index: usize) -> TokenId {
    TokenId((mix(seed, TokenId(index as u32)) >> 7) as u32 % 4)
}

fn mix(before: u64, token: TokenId) -> u64 {
    (before ^ u64::from(token.0).wrapping_add(0x51)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        ^ before
}
