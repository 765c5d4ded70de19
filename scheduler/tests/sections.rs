//! Prompts in sections: independent ones see their own unit and nothing else, the others all before them,
//! whatever is reused, shifted, evicted, preempted or failed on the way.
//!
//! The memory here keeps for each position a hash of the token there, of what it saw and of how far away that
//! was. A row's last token before an answer must have the hash that follows from its prompt alone.

mod common;
#[path = "sections/pins.rs"]
mod pins;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{
    BatchPlan, End, Nanos, RelQueryId, RowOutcome, Sampled, Section, Sees, Slot, StepOutcome, Time,
    TokenCount, TokenId, WorkItem,
};
use common::{item, submission};
use proptest::prelude::*;
use scheduler::{CostModel, Event, Policy, Refused, Scheduler, SchedulerConfig, Usage};

const BLOCK: usize = 4;

/// What a reader sees: where, and its hash.
type Seen = Vec<(u32, u64)>;

fn hash(token: TokenId, position: u32, seen: &Seen) -> u64 {
    let mut seen: Vec<(u32, u64)> = seen.iter().map(|(at, hash)| (position - at, *hash)).collect();
    seen.sort_unstable();
    let mix = |before: u64, word: u64| (before ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    seen.iter().fold(mix(11, token.0.into()), |hash, (far, other)| mix(mix(hash, (*far).into()), *other))
}

/// What follows from a prompt and its output alone: the hash of each token, section by section.
fn expected(item: &WorkItem, output: &[TokenId]) -> u64 {
    let mut sections: Vec<(Section, Seen)> = Vec::new();
    let mut start = 0;
    for (number, section) in item.sections.iter().enumerate() {
        let tokens = &item.prompt[start..start + section.tokens.0 as usize];
        start += tokens.len();
        let is_last = number + 1 == item.sections.len();
        let mut seen: Seen = Vec::new();
        // The positions that a section that saw all before it has computed again.
        let is_repaired = |position: u32| {
            sections.iter().any(|(other, _)| {
                other.sees == Sees::Before && other.positions().contains(&u64::from(position))
            })
        };
        for (other_number, (other, cells)) in sections.iter().enumerate() {
            // A unit counts from its own beginning, everything else by the prompt's positions.
            match section.sees {
                Sees::Before if !stands_in(other) => {
                    let placed = cells.iter().map(|(at, hash)| (at + origin(other), *hash));
                    seen.extend(placed.filter(|(at, _)| {
                        *at < section.position && (other.sees == Sees::Before || !is_repaired(*at))
                    }));
                }
                Sees::Unit { first, .. } if other_number >= first as usize => seen.extend(cells),
                _ => {}
            }
        }
        let mut cells = Vec::new();
        for (at, token) in tokens.iter().chain(output.iter().filter(|_| is_last)).enumerate() {
            let position = section.position - origin(section) + at as u32;
            let hash = hash(*token, position, &seen);
            seen.push((position, hash));
            cells.push((position, hash));
        }
        sections.push((*section, cells));
    }
    sections.last().and_then(|(_, cells)| cells.last()).expect("a prompt has a last token").1
}

/// The prompt's position of a section's own 0.
fn origin(section: &Section) -> u32 {
    match section.sees {
        Sees::Before => 0,
        Sees::Unit { origin, .. } => origin,
    }
}

fn stands_in(section: &Section) -> bool {
    matches!(section.sees, Sees::Unit { is_placeholder: true, .. })
}

#[derive(Default)]
struct SectionMemory {
    cells: BTreeMap<(u32, usize), (u32, u64)>,
    /// What lies in the blocks of the host tier; a last block of a section may be partly filled.
    host: BTreeMap<(u32, usize), (u32, u64)>,
    items: BTreeMap<u64, WorkItem>,
    outputs: BTreeMap<u64, Vec<TokenId>>,
    /// Prompt tokens that were computed.
    computed: u64,
}

impl SectionMemory {
    fn write(&mut self, slot: &Slot) -> u64 {
        let mut seen: Seen = Vec::new();
        for run in &slot.context {
            let skip = run.skip as usize;
            for at in skip..skip + run.tokens.0 as usize {
                let (position, hash) = self.cells[&(run.blocks[at / BLOCK].0, at % BLOCK)];
                seen.push((position + run.shift, hash));
            }
        }
        let mut last = 0;
        for (i, token) in slot.input.iter().enumerate() {
            let position = slot.start + i as u32;
            last = hash(*token, position, &seen);
            seen.push((position, last));
            let at = slot.write_offset as usize + i;
            self.cells.insert((slot.write_blocks[at / BLOCK].0, at % BLOCK), (position, last));
        }
        last
    }

    fn move_blocks(&mut self, plan: &BatchPlan) {
        let copy =
            |from: &BTreeMap<(u32, usize), _>, to: &mut BTreeMap<(u32, usize), _>, (a, b): (u32, u32)| {
                to.retain(|(block, _), _| *block != b);
                to.extend((0..BLOCK).filter_map(|at| Some(((b, at), *from.get(&(a, at))?))));
            };
        for moved in &plan.moves.out {
            copy(&self.cells, &mut self.host, (moved.from.0, moved.to.0));
        }
        for moved in &plan.moves.back {
            copy(&self.host, &mut self.cells, (moved.from.0, moved.to.0));
        }
    }

    fn step(&mut self, plan: &BatchPlan) -> StepOutcome {
        self.move_blocks(plan);
        let mut rows = Vec::new();
        for slot in &plan.slots {
            let last = self.write(slot);
            self.computed += if slot.is_prefill { slot.input.len() as u64 } else { 0 };
            let Some(sample) = &slot.sample else { continue };
            let output = self.outputs.entry(sample.seed).or_default();
            output.truncate(sample.output_index as usize);
            assert_eq!(last, expected(&self.items[&sample.seed], output), "of row {}", sample.seed);
            let token = TokenId((last % 1_000) as u32);
            output.push(token);
            let is_full = output.len() as u64 == sample.generation.output_max.0;
            let sampled =
                Sampled { tokens: vec![token], end: is_full.then_some(End::Length), ..Sampled::default() };
            rows.push(RowOutcome { request: slot.request, result: Ok(sampled) });
        }
        StepOutcome { step: plan.step, elapsed: Nanos(1_000), rows, prompts: Vec::new() }
    }
}

/// A stretch of a prompt: a module of the library, or new text.
#[derive(Clone, Debug)]
enum Stretch {
    Module(usize),
    Text(u32),
}

/// The library: a module has up to three pieces. The second of module 3 stands in for an argument.
fn pieces(module: usize) -> Vec<(u32, Vec<u32>)> {
    let piece = |number: usize, length: usize| -> Vec<u32> {
        (0..length).map(|at| (1_000 * (module + 1) + 100 * number + at) as u32).collect()
    };
    match module {
        0 => vec![(0, piece(0, 8))],
        1 => vec![(0, piece(0, 8))],
        2 => vec![(0, piece(0, 5)), (7, piece(1, 6))],
        _ => vec![(0, piece(0, 4)), (4, piece(1, 1)), (6, piece(2, 9))],
    }
}

/// A row of these stretches, in order, with some positions left free between them. The last piece of a module
/// may stand further from the others than where the module was computed.
fn row(number: u32, stretches: &[Stretch], gap: u32, own: u32, output_max: u64, seed: u64) -> WorkItem {
    let (mut position, mut modules, mut texts) = (0, Vec::new(), Vec::new());
    for stretch in stretches {
        match stretch {
            Stretch::Module(module) => {
                let pieces = pieces(*module);
                let end = pieces.last().map_or(0, |(at, tokens)| at + tokens.len() as u32);
                // An argument takes the placeholder's position.
                texts.extend((pieces.len() == 3).then(|| (position + 4, vec![8_000 + number])));
                modules.push((position, pieces));
                position += end + 2 * gap;
            }
            Stretch::Text(length) => {
                let tokens: Vec<u32> = (0..*length).map(|at| 9_000 + 10 * number + at).collect();
                texts.push((position, tokens));
                position += length + gap;
            }
        }
    }
    texts.push((position, (0..own).map(|at| 90_000 + 100 * number + at).collect()));
    let (mut prompt, mut sections) = (Vec::new(), Vec::new());
    for (origin, pieces) in modules {
        let first = sections.len() as u32;
        let last = pieces.len() - 1;
        for (number, (at, tokens)) in pieces.into_iter().enumerate() {
            let origin = if number == last && number > 0 { origin + gap } else { origin };
            let sees = Sees::Unit { first, origin, is_placeholder: last == 2 && number == 1 };
            let length = TokenCount(tokens.len() as u64);
            sections.push(Section { tokens: length, position: origin + at, sees });
            prompt.extend(tokens);
        }
    }
    for (position, tokens) in texts {
        sections.push(Section { tokens: TokenCount(tokens.len() as u64), position, sees: Sees::Before });
        prompt.extend(tokens);
    }
    WorkItem { sections: sections.into(), ..item(number, prompt, output_max, seed) }
}

/// Which tokens of a section of so many are computed again where they stand, by the number of a way to choose.
fn chosen(way: u32, tokens: u32) -> Vec<Range<u32>> {
    match way {
        0 => Vec::new(),
        1 => one(0..tokens.min(3)),
        2 if tokens > 5 => vec![1..2, 4..tokens],
        _ => one(0..tokens),
    }
}

fn one(range: Range<u32>) -> Vec<Range<u32>> {
    std::iter::once(range).collect()
}

/// The same row with tokens of its modules repaired.
fn repaired(item: WorkItem, way: u32) -> WorkItem {
    let (mut units, mut before, mut start) = (Vec::new(), Vec::new(), 0);
    for section in &*item.sections {
        let tokens = &item.prompt[start..start + section.tokens.0 as usize];
        start += tokens.len();
        match section.sees {
            Sees::Before => before.push((section.position, tokens)),
            Sees::Unit { .. } => {
                units.push((*section, tokens));
                let ranges = if stands_in(section) { Vec::new() } else { chosen(way, tokens.len() as u32) };
                let again = |range: Range<u32>| {
                    (section.position + range.start, &tokens[range.start as usize..range.end as usize])
                };
                before.extend(ranges.into_iter().map(again));
            }
        }
    }
    before.sort_by_key(|(position, _)| *position);
    let before = before.into_iter().map(|(position, tokens)| {
        (Section { tokens: TokenCount(tokens.len() as u64), position, sees: Sees::Before }, tokens)
    });
    let all: Vec<(Section, &[TokenId])> = units.into_iter().chain(before).collect();
    WorkItem {
        sections: all.iter().map(|(section, _)| *section).collect(),
        prompt: all.iter().flat_map(|(_, tokens)| *tokens).copied().collect(),
        ..item.clone()
    }
}

fn config(policy: Policy, kv_blocks: u32) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        kv_blocks,
        block_tokens: BLOCK as u32,
        sequences_max: 5,
        chunk_tokens: TokenCount(7),
        step_tokens_max: TokenCount(40),
        watermark_permille: 0,
        refit: false,
        attempts_max: 1_000,
        ..SchedulerConfig::default()
    }
}

/// Runs relQueries all at once; every `fails`th step fails.
fn run(config: SchedulerConfig, relqueries: Vec<Vec<WorkItem>>, fails: usize) -> (SectionMemory, Vec<u64>) {
    let mut world = World::new(config);
    relqueries.into_iter().for_each(|items| world.submit(items));
    let computed = world.drain(fails);
    (world.memory, computed)
}

struct World {
    scheduler: Scheduler,
    memory: SectionMemory,
    submitted: u64,
    now: Time,
}

impl World {
    fn new(config: SchedulerConfig) -> Self {
        let scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        Self { scheduler, memory: SectionMemory::default(), submitted: 0, now: Time(100) }
    }

    fn submit(&mut self, items: Vec<WorkItem>) {
        self.submitted += 1;
        self.memory.items.extend(items.iter().map(|item| (item.seed, item.clone())));
        self.scheduler.submit(submission(self.submitted, self.now.0, items)).expect("it fits");
    }

    /// Runs until nothing is left to do: computed tokens of each row, as the rows end.
    fn drain(&mut self, fails: usize) -> Vec<u64> {
        self.finish(fails).iter().map(|usage| usage.computed.0).collect()
    }

    /// The same, what each row used.
    fn finish(&mut self, fails: usize) -> Vec<Usage> {
        let (mut steps, mut done) = (0, Vec::new());
        while let Some(plan) = self.scheduler.plan(self.now) {
            steps += 1;
            self.now = self.now + Nanos(1_000);
            assert!(steps < 4_000, "no end in sight");
            let events = match fails > 0 && steps % fails == 0 {
                true => self.scheduler.abort_step(plan.step, "broken", self.now),
                false => self.scheduler.apply(&self.memory.step(&plan), self.now),
            };
            self.scheduler.check_invariants().expect("the books balance");
            done.extend(events.iter().filter_map(|event| match event {
                Event::RowDone { usage, .. } => Some(*usage),
                Event::RowFailed { error, .. } => panic!("{error}"),
                _ => None,
            }));
        }
        assert!(self.scheduler.is_idle());
        done
    }
}

#[test]
fn a_module_is_computed_once_wherever_it_stands() {
    use Stretch::{Module, Text};
    let first = row(0, &[Module(1), Module(2)], 0, 3, 2, 10);
    let shifted = row(1, &[Text(2), Module(2), Module(3), Module(1)], 1, 4, 2, 11);
    for policy in Policy::ALL {
        let both = vec![vec![first.clone()], vec![shifted.clone()]];
        let (memory, _) = run(config(policy, 64), both, 0);
        // Modules 1, 2 and 3: 8 + 11 + 14 tokens; new: 3, and 2 + 1 + 4.
        assert_eq!(memory.computed, 8 + 11 + 14 + 3 + 7, "{policy:?}");
    }
}

#[test]
fn a_repaired_module_is_private_and_the_module_stays_for_others() {
    use Stretch::{Module, Text};
    let plain = |number| row(number, &[Text(2), Module(0), Module(2)], 0, 3, 2, u64::from(number) + 1);
    for policy in Policy::ALL {
        let mut world = World::new(config(policy, 64));
        // Two new tokens, eight and eleven of modules, three own; what is repaired is read beside them.
        world.submit(vec![plain(0)]);
        assert_eq!(world.drain(0), [2 + 8 + 11 + 3], "{policy:?}");
        // The first three tokens of each of three pieces are computed; nothing of the modules is.
        world.submit(vec![repaired(plain(1), 1)]);
        assert_eq!(world.drain(0), [2 + 3 * 3 + 3], "{policy:?}");
        // All of them: a text like any other.
        world.submit(vec![repaired(plain(2), 3)]);
        assert_eq!(world.drain(0), [2 + 8 + 11 + 3], "{policy:?}");
        // Others find the modules as they were: their answers are held against what follows from their prompts.
        world.submit(vec![plain(3)]);
        assert_eq!(world.drain(0), [2 + 3], "{policy:?}");
        assert_eq!(world.scheduler.stats().kv_used_blocks, 0, "{policy:?}: all went back");
    }
}

#[test]
fn a_row_says_what_was_repaired_of_it() {
    use Stretch::{Module, Text};
    let mut world = World::new(config(Policy::MarginalWork, 64));
    let plain = |number| row(number, &[Text(2), Module(0), Module(2)], 0, 3, 2, u64::from(number) + 1);
    for (number, way, tokens_repaired) in [(0, 1, 9), (1, 1, 9), (2, 2, 13), (3, 0, 0)] {
        let item = repaired(plain(number), way);
        let tokens = item.prompt.len() as u64;
        world.submit(vec![item]);
        let usage = world.finish(0)[0];
        assert_eq!((usage.prompt.0, usage.prompt.0 + usage.repaired.0), (2 + 8 + 11 + 3, tokens));
        assert_eq!(usage.cached.0 + usage.computed.0, tokens);
        assert_eq!(usage.repaired.0, tokens_repaired);
    }
}

#[test]
fn the_same_text_behind_other_modules_is_another_text() {
    use Stretch::Module;
    // Equal own text behind equal last modules, and different ones before: never a hit.
    let rows = [&[Module(0), Module(2)][..], &[Module(1), Module(2)], &[Module(0), Module(2)]];
    let items: Vec<WorkItem> = (0..)
        .zip(rows)
        .map(|(number, stretches)| {
            let item = row(number, stretches, 0, 9, 1, u64::from(number));
            let own = item.prompt.len() - 9;
            let prompt: Vec<TokenId> =
                item.prompt[..own].iter().copied().chain((0..9).map(|at| TokenId(70_000 + at))).collect();
            WorkItem { prompt: Arc::from(prompt), ..item }
        })
        .collect();
    let (memory, computed) = run(config(Policy::MarginalWork, 64), vec![items], 0);
    // Modules 0, 1, 2: 8 + 8 + 11. The own text twice whole; the third time its two full blocks are there.
    assert_eq!(memory.computed, 8 + 8 + 11 + 9 + 9 + 1);
    assert_eq!(computed.iter().sum::<u64>(), memory.computed);
}

#[test]
fn a_span_that_repeats_a_prompt_and_its_answer_finds_what_they_left() {
    // 6 tokens in, 7 out: 12 of the 13 are in memory, three blocks.
    let inner = item(0, (0..6).collect(), 7, 1);
    let whole = Section { tokens: TokenCount(6), position: 0, sees: Sees::Before };
    let asked = WorkItem { sections: Arc::from([whole]), ..inner.clone() };
    let outer = |answer: &[TokenId]| {
        let system = (500..505).map(TokenId);
        let span: Vec<TokenId> = inner.prompt.iter().chain(answer).copied().chain([TokenId(600)]).collect();
        let length = TokenCount(span.len() as u64);
        let own = 5 + span.len() as u32;
        let sections = [
            Section { tokens: TokenCount(5), position: 0, sees: Sees::Before },
            Section {
                tokens: length,
                position: 5,
                sees: Sees::Unit { first: 1, origin: 5, is_placeholder: false },
            },
            Section { tokens: TokenCount(2), position: own, sees: Sees::Before },
        ];
        let prompt: Vec<TokenId> = system.chain(span).chain([TokenId(700), TokenId(701)]).collect();
        WorkItem { prompt: prompt.into(), sections: sections.into(), ..item(1, vec![0], 1, 2) }
    };
    for policy in Policy::ALL {
        for is_same in [true, false] {
            let mut world = World::new(config(policy, 64));
            world.submit(vec![asked.clone()]);
            assert_eq!(world.drain(0), [6], "{policy:?}");
            let mut answer = world.memory.outputs[&1].clone();
            if !is_same {
                answer[3] = TokenId(9_999);
            }
            world.submit(vec![outer(&answer)]);
            // Of the span's 14 tokens the last block's two: the answer's last, which nobody has computed, and
            // the closing one. Another answer shares the blocks before it parts from this one.
            let span = if is_same { 2 } else { 6 };
            assert_eq!(world.drain(0), [5 + span + 2], "{policy:?}");
        }
    }
}

#[test]
fn the_same_text_at_another_position_is_another_text() {
    let at = |position: u32, seed: u64| {
        let whole = Section { tokens: TokenCount(9), position, sees: Sees::Before };
        WorkItem { sections: Arc::from([whole]), ..item(0, (0..9).collect(), 1, seed) }
    };
    let (memory, _) =
        run(config(Policy::MarginalWork, 64), vec![vec![at(0, 1)], vec![at(5, 2)], vec![at(5, 3)]], 0);
    // The third finds the two full blocks of the second.
    assert_eq!(memory.computed, 9 + 9 + 1);
}

#[test]
fn sections_that_no_prompt_has_are_refused() {
    let refused = |change: &dyn Fn(&mut Vec<Section>)| {
        let item = row(0, &[Stretch::Module(2)], 0, 9, 1, 1);
        let mut sections = item.sections.to_vec();
        change(&mut sections);
        let item = WorkItem { sections: sections.into(), ..item };
        let mut scheduler = Scheduler::new(config(Policy::MarginalWork, 64), CostModel::default())
            .expect("a valid configuration");
        match scheduler.submit(submission(1, 0, vec![item])) {
            Err(Refused::Sections { row: 0, reason }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let unit = |first, origin| Sees::Unit { first, origin, is_placeholder: false };
    assert!(refused(&|sections| sections[0].tokens.0 += 1).contains("add up"));
    assert!(
        refused(&|sections| {
            sections[2].tokens.0 += sections[1].tokens.0;
            sections[1].tokens.0 = 0;
        })
        .contains("empty")
    );
    assert!(refused(&|sections| sections[2].sees = unit(2, 0)).contains("last section is independent"));
    assert!(refused(&|sections| sections[1].sees = unit(1, 99)).contains("unit"));
    assert!(refused(&|sections| sections[1].sees = unit(0, 3)).contains("not in order"));
    assert!(refused(&|sections| sections[1].sees = unit(7, 0)).contains("unit"));
    assert!(refused(&|sections| sections[2].position = 12).contains("in common"));
    assert!(refused(&|sections| sections[1].position = 30).contains("behind all others"));
    // Sections 0 and 1 are at positions 0 to 4 and 7 to 12; what repairs them lies in one and comes after it.
    let refused_repair = |number: usize, positions: Range<u32>| {
        refused(&|sections| {
            let tokens = TokenCount(u64::from(positions.end - positions.start));
            sections[2].tokens.0 -= tokens.0;
            sections.insert(number, Section { tokens, position: positions.start, sees: Sees::Before });
        })
    };
    assert!(refused_repair(2, 6..8).contains("neither lies in the other"));
    assert!(refused_repair(2, 12..14).contains("in common"));
    let before = |position| Section { tokens: TokenCount(1), position, sees: Sees::Before };
    assert!(
        refused(&|sections| {
            sections[2].tokens.0 -= 2;
            sections.splice(2..2, [before(9), before(8)]);
        })
        .contains("not from its beginning on")
    );
    assert!(
        refused(&|sections| {
            sections[2].tokens.0 -= 1;
            sections.insert(0, before(8));
            (sections[1].sees, sections[2].sees) = (unit(1, 0), unit(1, 0));
        })
        .contains("before it is computed")
    );
    let mut scheduler =
        Scheduler::new(config(Policy::MarginalWork, 5), CostModel::default()).expect("a valid configuration");
    let large = row(0, &[Stretch::Module(2)], 0, 3, 1, 1);
    assert!(matches!(scheduler.submit(submission(1, 0, vec![large])), Err(Refused::NeverFits { .. })));
    assert_eq!(scheduler.usage(RelQueryId(1)), None);
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let modules = Just(vec![0_usize, 1, 2, 3]).prop_shuffle();
    (modules, 0..4_usize, 0..3_u32, 0..4_usize).prop_map(|(modules, count, text, at)| {
        let mut stretches: Vec<Stretch> = modules.into_iter().take(count).map(Stretch::Module).collect();
        if text > 0 {
            stretches.insert(at.min(stretches.len()), Stretch::Text(text));
        }
        stretches
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_row_sees_what_its_prompt_says(
        rows in prop::collection::vec((stretches(), 0..3_u32, 1..9_u32, 1..9_u64, 0..4_u32), 1..9),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        kv_blocks in prop::sample::select(vec![40_u32, 48, 80]),
        host_kv_blocks in prop::sample::select(vec![0_u32, 1, 5, 40]),
        fails in prop::sample::select(vec![0_usize, 3, 7]),
        split in 1..4_usize,
    ) {
        let items = (0..).zip(&rows).map(|(number, (stretches, gap, own, output, way))| {
            repaired(row(number, stretches, *gap, *own, *output, u64::from(number) + 1), *way)
        });
        let items: Vec<WorkItem> = items.collect();
        let relqueries: Vec<Vec<WorkItem>> = items.chunks(split).map(<[WorkItem]>::to_vec).collect();
        let (_, done) = run(SchedulerConfig { host_kv_blocks, ..config(policy, kv_blocks) }, relqueries, fails);
        prop_assert_eq!(done.len(), rows.len());
    }
}
