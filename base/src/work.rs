//! Work items: one request as the scheduler sees it. `ir` makes them, `scheduler` takes them.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::adjust::LogitAdjustments;
use crate::constraint::{AnswerScoring, Compiled, Constraint};
use crate::ids::{RelQueryId, TenantId, TokenId};
use crate::units::{Nanos, Time, TokenCount};

/// How the output of a request is produced. Shared by the rows of a relQuery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Most output tokens, the end token included: OL(R) of the RelServe paper. At least 1.
    pub output_max: TokenCount,
    /// 0 is greedy; else the logits are divided by it. Finite, not negative.
    pub temperature: f32,
    /// Keep the most likely tokens whose probabilities sum to this; in (0, 1].
    pub top_p: f32,
    /// Keep this many most likely tokens; `None` keeps all.
    pub top_k: Option<u32>,
    /// Text that ends the output and is not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the output beside the model's own end tokens.
    pub stop_tokens: Vec<TokenId>,
    /// Generate through the model's end tokens (benchmarks). Without effect under a constraint.
    pub ignore_end: bool,
    /// The form of the output. It ends the row as soon as nothing is left to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// What `constraint` was compiled to; without it whoever runs the row compiles.
    #[serde(skip)]
    pub compiled: Compiled,
    /// Which of the constraint's answers is drawn, where not simply the likeliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoring: Option<AnswerScoring>,
    /// Log probabilities of the output's tokens, each with so many of the most likely ones there; `None` asks
    /// for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// Tokens whose log probabilities `logprobs` then tells in place of the most likely ones, beside the token's own.
    /// Empty: the most likely ones are told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprob_tokens: Vec<TokenId>,
    /// Log probabilities of the prompt's tokens, each behind those before it, with so many of the most likely ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    /// Whether `logprobs` has an entry for each token, the end token too, though it has no text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logprobs_of_each: bool,
    /// Whether the ids of the output's tokens are told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_tokens: bool,
    /// What is done to logits before a token is drawn; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjustments: Option<Box<LogitAdjustments>>,
    /// Whether the stop string or stop token that ends the output is part of its text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shows_stop: bool,
    /// Whether special tokens are part of its text, as they are written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shows_special: bool,
    /// Variables of the chat template (JSON text of an object), where whoever runs the row writes its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_variables: Option<String>,
    /// Whether its request named no limit: a replica that writes the conversation itself may go on while it has room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_open_end: bool,
    /// Whether text goes out as a server says it. It cannot be taken back: such a row is not tried again once
    /// it has begun.
    #[serde(skip)]
    pub streams: bool,
}

impl Default for Generation {
    fn default() -> Self {
        Self {
            output_max: TokenCount(64),
            temperature: 0.0,
            top_p: 1.0,
            top_k: None,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_end: false,
            constraint: None,
            compiled: Compiled::default(),
            scoring: None,
            logprobs: None,
            logprob_tokens: Vec::new(),
            prompt_logprobs: None,
            logprobs_of_each: false,
            tells_tokens: false,
            adjustments: None,
            shows_stop: false,
            shows_special: false,
            template_variables: None,
            has_open_end: false,
            streams: false,
        }
    }
}

impl Generation {
    /// Whether the executor must know the prompt's tokens to draw from its logits.
    pub fn needs_prompt(&self) -> bool {
        self.adjustments.as_ref().is_some_and(|adjustments| adjustments.needs_prompt())
    }

    /// Output tokens before which the output does not end by itself.
    pub fn output_min(&self) -> TokenCount {
        self.adjustments.as_ref().map_or(TokenCount(0), |adjustments| adjustments.output_min)
    }
}

/// What a stretch of prompt tokens is. Boundaries are metadata beside the tokens, never tokens
/// that a cell's text could forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpanKind {
    /// Markup of the chat template or text of the relQuery's own template.
    Template,
    /// Text that came out of a cell.
    Field,
}

/// A stretch of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub kind: SpanKind,
    /// Its length; the spans of a prompt add up to the prompt.
    pub tokens: TokenCount,
}

/// A stretch of a prompt with keys and values of its own (DESIGN 3 and 4). A section that is independent is
/// computed seeing only its unit, so it can be reused wherever its text stands; any other sees all that
/// stands before it.
///
/// One that sees all before it may have positions of an independent one: it *repairs* it. Its tokens are those
/// of the other at these positions, computed again, and whoever sees the prompt reads them instead
/// ([`repairs`]). The independent section stays as it is, for all its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Section {
    /// Its length; the sections of a prompt add up to the prompt.
    pub tokens: TokenCount,
    /// Position of its first token in the prompt.
    pub position: u32,
    /// What it sees beside itself.
    pub sees: Sees,
}

impl Section {
    /// Position for which the key of its first token is rotated.
    pub fn numbering(&self) -> u32 {
        match self.sees {
            Sees::Before => self.position,
            Sees::Unit { origin, .. } => self.position - origin,
        }
    }

    /// Whether nothing outside its unit sees it.
    pub fn is_placeholder(&self) -> bool {
        matches!(self.sees, Sees::Unit { is_placeholder: true, .. })
    }

    /// Whether it sees `other`, section `number` of the same prompt and computed before it; if so, by how
    /// many positions further on it reads the other's keys than they were rotated for.
    pub fn shift_of(&self, number: usize, other: &Self) -> Option<u32> {
        match self.sees {
            Sees::Before => {
                let sees = other.position < self.position && !other.is_placeholder();
                sees.then(|| other.position - other.numbering())
            }
            // Inside its unit a section counts as the unit does.
            Sees::Unit { first, .. } => (number >= first as usize).then_some(0),
        }
    }

    /// Which tokens of `other`, a section that it sees, it reads, in order: what stands before it, but for the
    /// tokens `repaired` of the other, in whose place it reads those that repair them.
    pub fn reads_of<'a>(
        &self,
        other: &Self,
        repaired: &'a [Range<u32>],
    ) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let tokens = other.tokens.0 as u32;
        let (end, holes) = match self.sees {
            Sees::Before => (tokens.min(self.position.saturating_sub(other.position)), repaired),
            Sees::Unit { .. } => (tokens, &[][..]),
        };
        let starts = std::iter::once(0).chain(holes.iter().map(|hole| hole.end));
        let ends = holes.iter().map(|hole| hole.start).chain(std::iter::once(end));
        starts.zip(ends).map(move |(from, to)| from..to.min(end)).filter(|range| !range.is_empty())
    }

    /// The positions of its tokens in the prompt.
    pub fn positions(&self) -> Range<u64> {
        let start = u64::from(self.position);
        start..start.saturating_add(self.tokens.0)
    }
}

/// Per section of a prompt, which of its tokens others repair, in order: none of a section that sees all before
/// it.
pub fn repairs(sections: &[Section]) -> Vec<Vec<Range<u32>>> {
    let mut found = vec![Vec::new(); sections.len()];
    let is_independent = |section: &Section| section.sees != Sees::Before && !section.is_placeholder();
    let mut independent: Vec<usize> =
        (0..sections.len()).filter(|number| is_independent(&sections[*number])).collect();
    independent.sort_by_key(|number| sections[*number].position);
    for section in sections.iter().filter(|section| section.sees == Sees::Before) {
        // The only one that can have its positions: independent sections have none in common.
        let behind = independent.partition_point(|number| sections[*number].position <= section.position);
        let Some(number) = behind.checked_sub(1).map(|at| independent[at]) else { continue };
        let (own, other) = (section.positions(), sections[number].positions());
        if own.start < other.end {
            let from = (own.start - other.start) as u32;
            found[number].push(from..(own.end.min(other.end) - other.start) as u32);
        }
    }
    found.iter_mut().for_each(|ranges| ranges.sort_unstable_by_key(|range| range.start));
    found
}

/// What the tokens of a section attend to beside those before them in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sees {
    /// All sections at lower positions.
    Before,
    /// The sections of its unit before it, at the distances of the unit's own numbering, whatever the
    /// prompt's.
    Unit {
        /// Number of the unit's first section; its own where it is that.
        first: u32,
        /// The prompt's position where the unit's own numbering would have its 0: keys are rotated for
        /// `position - origin`.
        origin: u32,
        /// Whether it only stands in for something else while its unit is computed (a parameter's argument,
        /// Prompt Cache section 3.3): nothing outside its unit sees it, and its positions may be another's.
        is_placeholder: bool,
    },
}

/// Where a model can read keys that an independent section left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionReuse {
    /// At any position: they are rotated, and so is what reads them, or scores fall with the distance that is
    /// read.
    Anywhere,
    /// Where they were computed: positions are learned.
    InPlace,
    /// Nowhere: attention has a window, which finds positions by counting tokens, and sections leave gaps.
    Never,
}

/// One request of a relQuery, ready to be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// Its row: results return under this number. Unique inside the relQuery.
    pub row: u32,
    /// The prompt. Never empty.
    pub prompt: Arc<[TokenId]>,
    /// The prompt's spans, in order.
    pub spans: Arc<[Span]>,
    /// The prompt's sections, in the order in which they are computed; those of a unit follow one another,
    /// and the last is not independent and stands behind all others. None: the prompt is one section, from
    /// position 0 on. Tokens that are repaired are in the prompt twice.
    pub sections: Arc<[Section]>,
    /// How to generate.
    pub generation: Arc<Generation>,
    /// Seed of this row's sampling; the token at output position `i` depends on `(seed, i)` alone,
    /// so a row that is preempted and recomputed draws the same tokens.
    pub seed: u64,
}

impl WorkItem {
    /// Positions of the KV pool that it may need: for its prompt, its longest output, and what its sections,
    /// each with blocks of its own, leave unused of their last ones.
    pub fn kv_tokens_max(&self, block_tokens: u32) -> TokenCount {
        let tokens = (self.prompt.len() as u64).saturating_add(self.generation.output_max.0);
        let unused = (self.sections.len() as u64).saturating_sub(1) * u64::from(block_tokens);
        TokenCount(tokens.saturating_add(unused))
    }
}

/// Who waits for the answer. Lower classes fill what higher ones leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceClass {
    /// A person looks at the cell.
    #[default]
    Interactive,
    /// A dashboard refreshes.
    Dashboard,
    /// A job runs over night.
    Bulk,
}

/// A relQuery handed to the scheduler: rows that share a template and one latency.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its identity, given by the caller.
    pub id: RelQueryId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The tenant's share of the machine relative to others, in thousandths; 1000 is usual.
    pub weight: u32,
    /// Prefix-cache namespace: only equal scopes ever share a block (model revision and tenant salt).
    pub scope: u128,
    /// Who waits.
    pub class: ServiceClass,
    /// When it arrived.
    pub arrival: Time,
    /// When its answer is no longer waited for.
    pub deadline: Option<Time>,
    /// Its rows. Never empty.
    pub items: Vec<WorkItem>,
}

/// The three periods of a relQuery's latency (RelServe, Eq. 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periods {
    /// Arrival to the start of its first prefill.
    pub waiting: Nanos,
    /// Start of its first prefill to the end of its last.
    pub core: Nanos,
    /// End of its last prefill to the end of its last decode.
    pub tail: Nanos,
}

impl Periods {
    /// What lies between these moments. What never began, or never ended, took no time before `end`.
    pub fn between(arrival: Time, started: Option<Time>, prefilled: Option<Time>, end: Time) -> Self {
        let started = started.unwrap_or(end);
        let prefilled = prefilled.unwrap_or(started);
        Self { waiting: started.since(arrival), core: prefilled.since(started), tail: end.since(prefilled) }
    }

    /// The latency: the sum of the three.
    pub fn total(&self) -> Nanos {
        self.waiting + self.core + self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(tokens: u64, position: u32, unit: Option<(u32, u32)>) -> Section {
        let sees =
            unit.map_or(Sees::Before, |(first, origin)| Sees::Unit { first, origin, is_placeholder: false });
        Section { tokens: TokenCount(tokens), position, sees }
    }

    fn one(range: Range<u32>) -> Vec<Range<u32>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn a_section_at_positions_of_an_independent_one_repairs_it_for_whoever_comes_after_it() {
        let sections = [
            section(5, 0, None),
            section(9, 5, Some((1, 5))),
            section(4, 14, Some((2, 14))),
            section(2, 5, None),  // the first two of section 1
            section(3, 10, None), // its tokens 5, 6 and 7
            section(4, 14, None), // all of section 2
            section(6, 18, None),
        ];
        let repaired = repairs(&sections);
        let (ranges, all) = (vec![0..2, 5..8], one(0..4));
        assert_eq!(repaired, [vec![], ranges, all, vec![], vec![], vec![], vec![]]);
        let read = |reader: usize, of: usize| -> Vec<Range<u32>> {
            sections[reader].reads_of(&sections[of], &repaired[of]).collect()
        };
        assert_eq!(read(6, 0), one(0..5));
        assert_eq!(read(6, 1), [2..5, 8..9], "the others are read where they are repaired");
        assert!(read(6, 2).is_empty());
        assert_eq!(read(6, 3), one(0..2));
        // What repairs it reads what stands before, and nothing of what it repairs.
        assert!(read(3, 1).is_empty());
        assert_eq!(read(4, 1), one(2..5));
        // Inside its unit a section is what it was.
        assert_eq!(read(1, 1), one(0..9));
    }
}
