//! What the slots of a step attend to, stacked: equal runs of different slots become one part.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{Run, Slot};

/// Which runs are cut to pieces that are read side by side, so that all threads find work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Tokens of a piece.
    pub(crate) tokens: usize,
    /// Most tokens' queries of a stack whose runs are cut.
    pub(crate) rows_max: usize,
}

impl Cut {
    /// On a processor, whose threads share few tasks.
    pub(crate) const ON_PROCESSOR: Self = Self { tokens: 512, rows_max: 32 };
}

/// Consecutive cached positions that some slots of the step read.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The blocks' indices.
    pub(crate) blocks: Vec<usize>,
    /// Where in the first block the part begins.
    pub(crate) first_lane: usize,
    /// Its length.
    pub(crate) tokens: usize,
    /// Position of its first token as it is read.
    pub(crate) position: usize,
    /// Whether it is a slot's own input: a query sees it up to its own position.
    pub(crate) is_causal: bool,
    /// Whose queries read it.
    pub(crate) members: Vec<Member>,
    /// Tokens of all members.
    pub(crate) rows: usize,
    /// Tokens of all members of the parts before it.
    pub(crate) first_row: usize,
}

impl Part {
    /// The blocks of this run and `input` behind it, where one reader alone has the run, unshifted, and its
    /// own input goes on where the run ends.
    fn blocks_with(&self, input: &Self, block_tokens: usize) -> Option<Vec<usize>> {
        let ([reader], [own]) = (&self.members[..], &input.members[..]) else { return None };
        let (whole, rest) = (self.tokens / block_tokens, self.tokens % block_tokens);
        let is_next = !self.is_causal && self.first_lane == 0 && input.first_lane == rest;
        let has_place = rest == 0 || self.blocks.last() == input.blocks.first();
        if !is_next
            || !has_place
            || reader.angle != own.angle
            || self.blocks.len() != whole + usize::from(rest > 0)
        {
            return None;
        }
        Some([&self.blocks[..whole], &input.blocks[..]].concat())
    }
}

/// A slot as a reader of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The slot's first token in the step.
    pub(crate) token: usize,
    pub(crate) tokens: usize,
    /// Position of the first.
    pub(crate) position: usize,
    /// The position to which queries of the first turn as they read this part: its own, less the part's
    /// shift.
    pub(crate) angle: usize,
    /// Its first row in the part's stack.
    pub(crate) row: usize,
}

/// The parts of a step, and who reads which.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttentionPlan {
    pub(crate) parts: Vec<Part>,
    /// Per slot: the parts it reads, each with the slot's first row there.
    pub(super) readers: Vec<Vec<(usize, usize)>>,
    /// Per token: its slot, and its number in the slot.
    pub(super) tokens: Vec<(usize, usize)>,
}

impl AttentionPlan {
    /// Plans a step's slots, which must have been checked; `cut` is told the parts before any is cut.
    ///
    /// `is_stacked` false keeps equal runs of different slots apart: tests compare the two.
    pub(crate) fn new(
        slots: &[Slot],
        block_tokens: usize,
        is_stacked: bool,
        cut: impl FnOnce(&[Part]) -> Cut,
    ) -> Self {
        let mut builder = Builder { plan: Self::default(), shared: HashMap::new(), block_tokens, is_stacked };
        let mut token = 0;
        for (number, slot) in slots.iter().enumerate() {
            builder.plan.readers.push(Vec::new());
            // Counted back from the input, which lies right behind what it goes on from: sections before that
            // may leave positions free, and there only that all of them come before the input counts.
            let context: u64 = slot.context.iter().map(|run| run.tokens.0).sum();
            let mut position = slot.start as usize - context as usize;
            for run in &slot.context {
                builder.read_run(number, slot, run, position, token);
                position += run.tokens.0 as usize;
            }
            builder.read_own(number, slot, token);
            builder.plan.tokens.extend((0..slot.input.len()).map(|i| (number, i)));
            token += slot.input.len();
        }
        let cut = cut(&builder.plan.parts);
        builder.finish(cut)
    }

    /// Query rows of all parts, per head.
    pub(crate) fn rows(&self) -> usize {
        self.parts.last().map_or(0, |part| part.first_row + part.rows)
    }

    /// The parts that token `token` reads, each with the token's row there.
    pub(crate) fn rows_of(&self, token: usize) -> impl Iterator<Item = (&Part, usize)> + Clone {
        let (slot, offset) = self.tokens[token];
        self.readers[slot].iter().map(move |(part, row)| (&self.parts[*part], row + offset))
    }
}

/// A run by its content, which is not read where it need not be: runs that are equal mostly are one list in
/// memory.
#[derive(Eq)]
struct Content<'a>(&'a Run);

impl PartialEq for Content<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (Run { blocks, skip, tokens, shift }, other) = (self.0, other.0);
        let is_like = (skip, tokens, shift) == (&other.skip, &other.tokens, &other.shift);
        is_like && (Arc::ptr_eq(blocks, &other.blocks) || blocks == &other.blocks)
    }
}

impl Hash for Content<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Run { blocks, skip, tokens, shift } = self.0;
        (blocks.first(), blocks.last(), skip, tokens, shift).hash(state);
    }
}

struct Builder<'a> {
    plan: AttentionPlan,
    /// First part of a run, by its content.
    shared: HashMap<Content<'a>, usize>,
    block_tokens: usize,
    is_stacked: bool,
}

impl<'a> Builder<'a> {
    fn read_run(&mut self, number: usize, slot: &Slot, run: &'a Run, position: usize, token: usize) {
        let next = self.plan.parts.len();
        let part = if self.is_stacked { *self.shared.entry(Content(run)).or_insert(next) } else { next };
        if part == next {
            self.plan.parts.push(Part {
                blocks: run.blocks.iter().map(|block| block.0 as usize).collect(),
                first_lane: run.skip as usize,
                tokens: run.tokens.0 as usize,
                position,
                is_causal: false,
                members: Vec::new(),
                rows: 0,
                first_row: 0,
            });
        }
        self.join(number, slot, part, (token, slot.start - run.shift));
    }

    fn read_own(&mut self, number: usize, slot: &Slot, token: usize) {
        let (skipped, first_lane) =
            (slot.write_offset as usize / self.block_tokens, slot.write_offset as usize % self.block_tokens);
        let used = (first_lane + slot.input.len()).div_ceil(self.block_tokens);
        self.plan.parts.push(Part {
            blocks: slot.write_blocks[skipped..skipped + used].iter().map(|block| block.0 as usize).collect(),
            first_lane,
            tokens: slot.input.len(),
            position: slot.start as usize,
            is_causal: true,
            members: Vec::new(),
            rows: 0,
            first_row: 0,
        });
        self.join(number, slot, self.plan.parts.len() - 1, (token, slot.start));
    }

    fn join(&mut self, number: usize, slot: &Slot, part: usize, (token, angle): (usize, u32)) {
        let stack = &mut self.plan.parts[part];
        let (tokens, position, angle) = (slot.input.len(), slot.start as usize, angle as usize);
        let member = Member { token, tokens, position, angle, row: stack.rows };
        stack.rows += member.tokens;
        stack.members.push(member);
        self.plan.readers[number].push((part, member.row));
    }

    /// Makes one part of a slot's own input and the run before it, where nobody else reads that run and the
    /// input lies right behind it: what a row of its own has cost is mostly the number of parts.
    fn join_own(&mut self, (blocks_per_cut, rows_max): (usize, usize)) {
        for reads in &mut self.plan.readers {
            let [.., (before, _), (own, row)] = reads[..] else { continue };
            let (run, input) = (&self.plan.parts[before], &self.plan.parts[own]);
            // Only what no cut would have made several of.
            let is_whole = run.blocks.len() <= blocks_per_cut || run.rows > rows_max;
            let Some(blocks) = run.blocks_with(input, self.block_tokens).filter(|_| is_whole) else {
                continue;
            };
            let (tokens, position) = (run.tokens + input.tokens, run.position);
            let joined = Part { blocks, first_lane: 0, tokens, position, ..input.clone() };
            self.plan.parts[own] = joined;
            self.plan.parts[before].members.clear();
            reads.truncate(reads.len() - 2);
            reads.push((own, row));
        }
    }

    /// Cuts long runs of small stacks and numbers the rows.
    fn finish(mut self, Cut { tokens, rows_max }: Cut) -> AttentionPlan {
        let blocks_per_cut = (tokens / self.block_tokens).max(1);
        if self.is_stacked {
            self.join_own((blocks_per_cut, rows_max));
        }
        let whole = std::mem::take(&mut self.plan.parts);
        let mut pieces_of: Vec<std::ops::Range<usize>> = Vec::with_capacity(whole.len());
        for part in whole {
            let first = self.plan.parts.len();
            if part.members.is_empty() {
                // It was joined to another, and nobody reads it any more.
            } else if part.is_causal || part.rows > rows_max || part.blocks.len() <= blocks_per_cut {
                self.plan.parts.push(part);
            } else {
                for (piece, blocks) in part.blocks.chunks(blocks_per_cut).enumerate() {
                    // In lanes from the part's first block on.
                    let begin = piece * blocks_per_cut * self.block_tokens;
                    let from = begin.max(part.first_lane);
                    let to = (begin + blocks.len() * self.block_tokens).min(part.first_lane + part.tokens);
                    self.plan.parts.push(Part {
                        blocks: blocks.to_vec(),
                        first_lane: from - begin,
                        tokens: to - from,
                        position: part.position + from - part.first_lane,
                        ..part.clone()
                    });
                }
            }
            pieces_of.push(first..self.plan.parts.len());
        }
        let mut first_row = 0;
        for part in &mut self.plan.parts {
            part.first_row = first_row;
            first_row += part.rows;
        }
        for reads in &mut self.plan.readers {
            *reads = reads
                .iter()
                .flat_map(|(part, row)| pieces_of[*part].clone().map(move |piece| (piece, *row)))
                .collect();
        }
        self.plan
    }
}
