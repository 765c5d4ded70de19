//! A replica in counts: what the real scheduler does for rows that come first and are served first, without
//! plans, slots or events, so that 200,000 rows on 128 replicas take seconds.
//!
//! First come, first served, prompts in chunks beside the decodes, blocks with a prefix cache whose least
//! recently used one gives way, the last row admitted gives up its memory where a decode finds none. A test
//! holds it against the real one: equal hits and times at small size, to a percent or so.

use std::collections::{BTreeMap, HashMap, VecDeque};

use base::{Time, TokenCount, WorkItem};
use scheduler::kv::{BlockKey, Hasher};
use scheduler::{CostModel, Refused, SchedulerConfig, Usage};

use super::l4::L4;
use super::replica::{EndedRow, Replica, ReplicaCounts};

/// The name of a block: of its content, or a number where nobody shares it.
type Name = u128;

#[derive(Debug)]
struct CountedRow {
    tag: u64,
    /// Names of the whole blocks of its prompt.
    keys: Vec<Name>,
    prompt: u32,
    output_max: u32,
    generated: u32,
    /// Tokens of prompt and output that are in its blocks.
    computed: u32,
    blocks: Vec<Name>,
    cached: Option<u32>,
}

impl CountedRow {
    /// Tokens to compute before it can decode.
    fn total(&self) -> u32 {
        self.prompt + self.generated
    }

    fn is_decoding(&self) -> bool {
        self.generated > 0 && self.computed + 1 == self.total()
    }
}

/// A replica that only counts rows, tokens and blocks.
#[derive(Debug)]
pub struct CountedReplica {
    cost: CostModel,
    config: SchedulerConfig,
    hasher: Hasher,
    waiting: VecDeque<CountedRow>,
    running: Vec<CountedRow>,
    /// Holders of each block, and when the last of them let it go.
    blocks: HashMap<Name, (u32, u64)>,
    /// Blocks without a holder, the least recently used first.
    idle: BTreeMap<u64, Name>,
    stamp: u64,
    private: u128,
    /// Prompt tokens that the step in flight computes, by place among the running.
    takes: Option<Vec<u32>>,
    tally: ReplicaCounts,
}

impl CountedReplica {
    /// An idle replica.
    pub fn new(machine: L4) -> Self {
        let config = machine.scheduler();
        Self {
            cost: machine.cost(),
            hasher: Hasher::new(config.prefix_hash_key),
            config,
            waiting: VecDeque::new(),
            running: Vec::new(),
            blocks: HashMap::new(),
            idle: BTreeMap::new(),
            stamp: 0,
            private: 0,
            takes: None,
            tally: ReplicaCounts::default(),
        }
    }

    /// Blocks that nobody holds.
    fn available(&self) -> u32 {
        self.config.kv_blocks - (self.blocks.len() - self.idle.len()) as u32
    }

    fn hold(&mut self, name: Name) {
        if let Some((holders, since)) = self.blocks.get_mut(&name) {
            if *holders == 0 {
                self.idle.remove(since);
            }
            *holders += 1;
            return;
        }
        if self.blocks.len() as u32 >= self.config.kv_blocks
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.blocks.remove(&oldest);
        }
        self.blocks.insert(name, (1, 0));
    }

    fn release(&mut self, names: &[Name]) {
        for name in names.iter().rev() {
            let Some((holders, since)) = self.blocks.get_mut(name) else { continue };
            *holders -= 1;
            if *holders == 0 {
                self.stamp += 1;
                *since = self.stamp;
                self.idle.insert(self.stamp, *name);
            }
        }
    }

    fn private(&mut self) -> Name {
        self.private += 1;
        // Content is named by a hash; a number as small is none in practice.
        self.private
    }

    /// Every decoding row gets the block that its next token may need; the last ones admitted give up theirs.
    fn make_decode_room(&mut self) {
        loop {
            let block = self.config.block_tokens;
            let needs = |row: &&CountedRow| {
                row.is_decoding() && row.total().div_ceil(block) as usize > row.blocks.len()
            };
            if self.running.iter().filter(needs).count() as u32 <= self.available() {
                break;
            }
            let Some(mut row) = self.running.pop() else { break };
            self.release(&std::mem::take(&mut row.blocks));
            row.computed = 0;
            self.tally.preemptions += 1;
            self.waiting.push_front(row);
        }
        for at in 0..self.running.len() {
            let row = &self.running[at];
            if row.is_decoding() && row.total().div_ceil(self.config.block_tokens) as usize > row.blocks.len()
            {
                let name = self.private();
                self.hold(name);
                self.running[at].blocks.push(name);
            }
        }
    }

    /// Lets waiting rows in while there is room and something left of the step.
    fn admit(&mut self, left: &mut u32, takes: &mut Vec<u32>) {
        let (block, watermark) = (self.config.block_tokens, self.config.watermark_blocks());
        while *left > 0 && (self.running.len() as u32) < self.config.sequences_max {
            let Some(row) = self.waiting.front() else { return };
            let hittable = ((row.total() - 1) / block).min(row.keys.len() as u32) as usize;
            let keys = &row.keys[..hittable];
            let hits = keys.iter().take_while(|name| self.blocks.contains_key(name)).count();
            let idle = keys[..hits].iter().filter(|name| self.blocks[name].0 == 0).count() as u32;
            let need = row.total().div_ceil(block) - hits as u32 + idle;
            let kept = if self.running.is_empty() { 0 } else { watermark };
            if need + kept > self.available() {
                return;
            }
            let Some(mut row) = self.waiting.pop_front() else { return };
            row.blocks = row.keys[..hits].to_vec();
            for at in 0..row.total().div_ceil(block) as usize {
                let name = match row.keys.get(at) {
                    Some(name) if at < hits || !self.blocks.contains_key(name) => *name,
                    _ => self.private(),
                };
                self.hold(name);
                if at >= hits {
                    row.blocks.push(name);
                }
            }
            row.computed = hits as u32 * block;
            row.cached.get_or_insert(row.computed);
            let take = (row.total() - row.computed).min(*left);
            *left -= take;
            takes.push(take);
            self.running.push(row);
        }
    }
}

impl Replica for CountedReplica {
    fn send(&mut self, tag: u64, item: WorkItem, _: Time) -> Result<(), Refused> {
        let mut parent: Option<BlockKey> = None;
        let blocks = item.prompt.chunks_exact(self.config.block_tokens as usize);
        let keys = blocks.map(|tokens| {
            let key = self.hasher.block(0, parent, tokens);
            parent = Some(key);
            key.0
        });
        self.waiting.push_back(CountedRow {
            tag,
            keys: keys.collect(),
            prompt: item.prompt.len() as u32,
            output_max: item.generation.output_max.0 as u32,
            generated: 0,
            computed: 0,
            blocks: Vec::new(),
            cached: None,
        });
        Ok(())
    }

    fn begin(&mut self, now: Time) -> Option<Time> {
        if self.takes.is_some() {
            return None;
        }
        self.make_decode_room();
        let decodes = self.running.iter().filter(|row| row.is_decoding()).count() as u32;
        let mut left = (self.config.chunk_tokens.0 as u32).saturating_sub(decodes);
        let mut takes: Vec<u32> = Vec::with_capacity(self.running.len());
        for row in &self.running {
            let take = if row.is_decoding() { 0 } else { (row.total() - row.computed).min(left) };
            left -= take;
            takes.push(take);
        }
        self.admit(&mut left, &mut takes);
        let prompts: u32 = takes.iter().sum();
        if prompts == 0 && decodes == 0 {
            return None;
        }
        let elapsed = self.cost.mixed(TokenCount(u64::from(prompts)), u64::from(decodes));
        self.takes = Some(takes);
        self.tally.busy += elapsed;
        self.tally.steps += 1;
        Some(now + elapsed)
    }

    fn end(&mut self, _: Time) -> Vec<EndedRow> {
        let Some(takes) = self.takes.take() else { return Vec::new() };
        for (row, take) in self.running.iter_mut().zip(takes) {
            let is_decoding = row.is_decoding();
            row.computed += if is_decoding { 1 } else { take };
            row.generated += u32::from(row.computed == row.total());
        }
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].generated < self.running[at].output_max {
                at += 1;
                continue;
            }
            let row = self.running.remove(at);
            self.release(&row.blocks);
            let prompt = TokenCount(u64::from(row.prompt));
            let cached = TokenCount(u64::from(row.cached.unwrap_or_default().min(row.prompt)));
            let output = TokenCount(u64::from(row.generated));
            let usage = Usage { prompt, cached, computed: prompt - cached, output, ..Usage::default() };
            ended.push(EndedRow { tag: row.tag, usage });
        }
        ended
    }

    fn tally(&self) -> ReplicaCounts {
        self.tally
    }
}
