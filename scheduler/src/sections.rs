//! Prompts in sections: where each lies, what it sees, and under which name its blocks are found (DESIGN 3
//! and 4).
//!
//! Every section has blocks of its own, so that it can be read at any shift and left out of any context. A
//! row's last section is its own text, which the row keeps itself, as it keeps the whole of an undivided
//! prompt; the others are [`PromptPart`]s. All that is computed of a row is named by indices into its prompt,
//! whatever their positions.

use base::{BlockId, Run, Section, Sees, TokenCount};

use crate::kv::{BlockKey, Hasher, PublicationId};

/// A section before a row's own text.
#[derive(Clone, Debug)]
pub(crate) struct PromptPart {
    pub(crate) section: Section,
    /// Index of its first token in the prompt.
    pub(crate) start: u32,
    /// Its blocks, and what was published of them.
    pub(crate) chain: Chain,
    /// Its first tokens that lay in the pool when the row was admitted.
    pub(crate) hit: u32,
}

/// Consecutive blocks that hold consecutive tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    /// What its keys begin with; `None` for an undivided prompt: the relQuery's.
    pub(crate) scope: Option<u128>,
    /// Blocks held, in reading order.
    pub(crate) blocks: Vec<BlockId>,
    /// Publications of the leading blocks; shorter than `blocks` where one is private.
    pub(crate) links: Vec<PublicationId>,
    /// Keys of the leading full blocks, made when first needed.
    pub(crate) keys: Vec<BlockKey>,
}

impl PromptPart {
    pub(crate) fn tokens(&self) -> u32 {
        self.section.tokens.0 as u32
    }

    /// The index behind its last token.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.tokens()
    }

    /// Its first `tokens` as something that a query at its prompt's positions reads.
    fn run(&self, tokens: u32, shift: u32, block_tokens: u32) -> Run {
        let blocks = &self.chain.blocks[..tokens.div_ceil(block_tokens) as usize];
        Run { blocks: blocks.into(), tokens: TokenCount(u64::from(tokens)), shift }
    }
}

/// Why these sections are not those of a prompt of `prompt` tokens; `None` where they are.
pub(crate) fn problem(sections: &[Section], prompt: usize) -> Option<&'static str> {
    let (own, others) = sections.split_last()?;
    let total: u64 = sections.iter().map(|section| section.tokens.0).sum();
    if total != prompt as u64 {
        return Some("the sections do not add up to the prompt");
    }
    if sections.iter().any(|section| section.tokens.0 == 0) {
        return Some("a section is empty");
    }
    if own.sees != Sees::Before {
        return Some("the last section is independent");
    }
    let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(sections.len());
    for (number, section) in sections.iter().enumerate() {
        if let Sees::Unit { first, origin, .. } = section.sees {
            let unit = sections.get(first as usize..=number).unwrap_or_default();
            let same = |other: &Section| matches!(other.sees, Sees::Unit { first: of, .. } if of == first);
            if unit.is_empty() || !unit.iter().all(same) || section.position < origin {
                return Some("a section's unit is not the sections before it");
            }
            let before = unit.iter().rev().nth(1);
            if before.is_some_and(|before| {
                u64::from(before.numbering()) + before.tokens.0 > section.numbering().into()
            }) {
                return Some("the sections of a unit are not in order");
            }
        }
        if !section.is_placeholder() {
            ranges.push((u64::from(section.position), u64::from(section.position) + section.tokens.0));
        }
    }
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Some("two sections have a position in common");
    }
    let last = others.iter().any(|section| section.position > own.position);
    last.then_some("the last section does not stand behind all others")
}

/// The sections of a prompt but the last, named by what they are and see.
pub(crate) fn parts(sections: &[Section]) -> Vec<PromptPart> {
    let Some((_, others)) = sections.split_last() else { return Vec::new() };
    let mut start = 0;
    let part = |section: &Section| {
        let part = PromptPart { section: *section, start, chain: Chain::default(), hit: 0 };
        start = part.end();
        part
    };
    others.iter().map(part).collect()
}

/// What section `number` (or the row's own, behind all parts) sees of the parts, each with its shift as the
/// section's queries read it.
pub(crate) fn seen(
    parts: &[PromptPart],
    section: Section,
    number: usize,
) -> impl Iterator<Item = (&PromptPart, u32)> {
    let from = match section.sees {
        Sees::Before => 0,
        Sees::Unit { first, .. } => first as usize, // It has no need to look at the others, however many.
    };
    let before = parts.iter().enumerate().take(number).skip(from);
    before.filter_map(move |(number, part)| Some((part, section.shift_of(number, &part.section)?)))
}

/// The runs of those.
pub(crate) fn runs(parts: &[PromptPart], section: Section, number: usize, block_tokens: u32) -> Vec<Run> {
    seen(parts, section, number).map(|(part, shift)| part.run(part.tokens(), shift, block_tokens)).collect()
}

/// What the keys of section `number` begin with: its kind, where its own numbering begins, and all that it
/// sees, by the last key of each and its shift. The parts it sees have all their keys.
///
/// A section that sees nothing and counts from 0 is what an undivided prompt is: the same tokens at the same
/// positions after nothing. It has that prompt's names, so a span that repeats another request's prompt and
/// answer finds the keys and values that the request left (the dual-output paradox of Span Queries 2, without
/// its cropping).
pub(crate) fn scope(
    hasher: &Hasher,
    scope: u128,
    parts: &[PromptPart],
    section: Section,
    number: usize,
) -> u128 {
    let is_exact = section.sees == Sees::Before;
    let mut seen = seen(parts, section, number)
        .map(|(part, shift)| (*part.chain.keys.last().expect("made before those of what sees it"), shift))
        .peekable();
    if section.numbering() == 0 && seen.peek().is_none() {
        return scope;
    }
    hasher.section(scope, is_exact, section.numbering(), seen)
}
