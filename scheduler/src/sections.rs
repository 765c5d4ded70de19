//! Prompts in sections: where each lies, what it sees, and under which name its blocks are found (DESIGN 3
//! and 4).
//!
//! Every section has blocks of its own, so that it can be read at any shift and left out of any context. A
//! row's last section is its own text, which the row keeps itself, as it keeps the whole of an undivided
//! prompt; the others are [`PromptPart`]s. All that is computed of a row is named by indices into its prompt,
//! whatever their positions.

use std::ops::Range;

use base::{BlockId, Run, Section, Sees, TokenCount, repairs};

use crate::kv::{BlockKey, Hasher, PublicationId, SeenTokens};

/// A section before a row's own text.
#[derive(Clone, Debug)]
pub(crate) struct PromptPart {
    pub(crate) section: Section,
    /// Which of its tokens others repair, in order.
    pub(crate) repaired: Vec<Range<u32>>,
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

    /// How many of its tokens others repair.
    pub(crate) fn repaired_tokens(&self) -> u32 {
        self.repaired.iter().map(|range| range.end - range.start).sum()
    }

    /// Some of its tokens as something that a query at its prompt's positions reads.
    fn run(&self, tokens: Range<u32>, shift: u32, block_tokens: u32) -> Run {
        let (first, end) = (tokens.start / block_tokens, tokens.end.div_ceil(block_tokens));
        Run {
            blocks: self.chain.blocks[first as usize..end as usize].into(),
            skip: tokens.start % block_tokens,
            tokens: TokenCount(u64::from(tokens.end - tokens.start)),
            shift,
        }
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
    }
    problem_of_positions(sections).or_else(|| {
        let last = others.iter().any(|section| section.position > own.position);
        last.then_some("the last section does not stand behind all others")
    })
}

/// Why no prompt has sections at these positions.
fn problem_of_positions(sections: &[Section]) -> Option<&'static str> {
    let numbered = || (0..).zip(sections).map(|(number, section): (usize, _)| (number, section));
    let sorted = |is_independent: bool| {
        let mut found: Vec<_> = numbered()
            .filter(|(_, section)| (section.sees != Sees::Before) == is_independent)
            .filter(|(_, section)| !section.is_placeholder())
            .map(|(number, section)| (section.positions(), number))
            .collect();
        found.sort_unstable_by_key(|(positions, number)| (positions.start, *number));
        found
    };
    let (independent, before) = (sorted(true), sorted(false));
    let overlap = |all: &[(Range<u64>, usize)]| all.windows(2).any(|pair| pair[0].0.end > pair[1].0.start);
    if overlap(&independent) || overlap(&before) {
        return Some("two sections have a position in common");
    }
    let last = sections.len() - 1;
    let mut repairs_before = 0;
    for (positions, number) in &before {
        let at = independent.partition_point(|(other, _)| other.end <= positions.start);
        let Some((other, of)) = independent.get(at).filter(|(other, _)| other.start < positions.end) else {
            continue;
        };
        if *number == last || other.start > positions.start || other.end < positions.end {
            return Some("two sections have a position in common, and neither lies in the other");
        }
        if of > number || repairs_before > *number {
            return Some("a section is repaired before it is computed, or not from its beginning on");
        }
        repairs_before = *number;
    }
    None
}

/// The sections of a prompt but the last, named by what they are and see.
pub(crate) fn parts(sections: &[Section]) -> Vec<PromptPart> {
    let Some((_, others)) = sections.split_last() else { return Vec::new() };
    let mut start = 0;
    let part = |(section, repaired): (&Section, Vec<Range<u32>>)| {
        let part = PromptPart { section: *section, repaired, start, chain: Chain::default(), hit: 0 };
        start = part.end();
        part
    };
    others.iter().zip(repairs(sections)).map(part).collect()
}

/// What section `number` (or the row's own, behind all parts) reads of the parts, each stretch with its shift as
/// the section's queries read it.
pub(crate) fn seen(
    parts: &[PromptPart],
    section: Section,
    number: usize,
) -> impl Iterator<Item = (&PromptPart, Range<u32>, u32)> {
    let from = match section.sees {
        Sees::Before => 0,
        Sees::Unit { first, .. } => first as usize, // It has no need to look at the others, however many.
    };
    let before = parts.iter().enumerate().take(number).skip(from);
    let shifted =
        before.filter_map(move |(number, part)| Some((part, section.shift_of(number, &part.section)?)));
    shifted.flat_map(move |(part, shift)| {
        section.reads_of(&part.section, &part.repaired).map(move |tokens| (part, tokens, shift))
    })
}

/// The runs of those.
pub(crate) fn runs(parts: &[PromptPart], section: Section, number: usize, block_tokens: u32) -> Vec<Run> {
    seen(parts, section, number).map(|(part, tokens, shift)| part.run(tokens, shift, block_tokens)).collect()
}

/// What the keys of section `number` begin with: its kind, where its own numbering begins, and all that it
/// sees, by the last key of each, which tokens of it, and their shift. The parts it sees have all their keys.
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
        .map(|(part, tokens, shift)| SeenTokens {
            key: *part.chain.keys.last().expect("made before those of what sees it"),
            part: (tokens != (0..part.tokens())).then_some(tokens),
            shift,
        })
        .peekable();
    if section.numbering() == 0 && seen.peek().is_none() {
        return scope;
    }
    hasher.section(scope, is_exact, section.numbering(), seen)
}
