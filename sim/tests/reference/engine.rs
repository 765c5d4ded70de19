//! The engine: rows, iterations, admission and preemption.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sim::Trace;

use super::memory::ReferenceMemory;
use super::order::{Fraction, PriorityKey};
use super::{Machine, Policy, ReferenceOutcome};

/// A request. Segments of no tokens are left out of its path.
#[derive(Debug)]
pub(crate) struct EngineRow {
    path: Vec<usize>,
    pub(crate) prompt: u64,
    pub(crate) unique: u64,
    out: u64,
    pub(crate) generated: u64,
    slots: u64,
}

/// A relQuery.
#[derive(Debug)]
pub(crate) struct Rel {
    pub(crate) id: u64,
    pub(crate) arrival: i128,
    pub(crate) limit: u64,
    pub(crate) rows: Vec<EngineRow>,
    /// Rows without memory, in the order they are taken.
    pub(crate) waiting: VecDeque<usize>,
    left: usize,
    /// Start of its first prefill.
    pub(crate) started: Option<i128>,
    pub(crate) is_starving: bool,
    pub(crate) priority: Option<Fraction>,
    done: Option<i128>,
}

/// relQuery and row.
pub(crate) type Name = (usize, usize);

/// A row to be prefilled in an iteration: which, and how many uncached tokens of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) name: Name,
    /// All its uncached tokens.
    pub(crate) uncached: u64,
    /// Those of this iteration.
    pub(crate) now: u64,
}

/// The state of the engine.
pub(crate) struct ReferenceEngine {
    pub(crate) machine: Machine,
    pub(crate) policy: Policy,
    pub(crate) rels: Vec<Rel>,
    pub(crate) memory: ReferenceMemory,
    /// Rows that decode, in the order they came.
    pub(crate) running: Vec<Name>,
    /// Rows of which a part of the prompt is computed, and how many tokens are left.
    pub(crate) halves: Vec<(Name, u64)>,
    pub(crate) now: i128,
    pub(crate) preempts: u64,
    iterations: Vec<(i128, u64, usize)>,
}

/// What is admitted, and with which limits.
pub(crate) struct Budget {
    /// Uncached tokens.
    pub(crate) tokens: u64,
    /// Whether the last row is cut to fit, instead of the first being taken whatever its size.
    pub(crate) cuts: bool,
    /// Slots that decoding takes in the same iteration.
    pub(crate) decoding: u64,
}

impl ReferenceEngine {
    pub(crate) fn new(trace: &Trace, policy: Policy, machine: Machine) -> Self {
        let mut memory = ReferenceMemory::new(machine.cap);
        let templates: BTreeMap<u64, (usize, u64)> = trace
            .templates
            .iter()
            .map(|one| (one.id, (memory.add_segment(one.tokens), one.tokens)))
            .collect();
        let mut rels = Vec::new();
        for one in &trace.relqueries {
            let groups: Vec<usize> = one.groups.iter().map(|tokens| memory.add_segment(*tokens)).collect();
            let mut rows = Vec::new();
            for [group, unique, out] in &one.rows {
                let mut parts = vec![templates[&one.template_id]];
                if let Ok(group) = usize::try_from(*group) {
                    parts.push((groups[group], one.groups[group]));
                }
                parts.push((memory.add_segment(*unique as u64), *unique as u64));
                rows.push(EngineRow {
                    path: parts.iter().filter(|part| part.1 > 0).map(|part| part.0).collect(),
                    prompt: parts.iter().map(|part| part.1).sum(),
                    unique: *unique as u64,
                    out: *out as u64,
                    generated: 0,
                    slots: 0,
                });
            }
            rels.push(Rel {
                id: one.rel_id,
                arrival: (one.arrival * 1e9).round() as i128,
                limit: one.ol,
                waiting: (0..rows.len()).collect(),
                left: rows.len(),
                rows,
                started: None,
                is_starving: false,
                priority: None,
                done: None,
            });
        }
        let (running, halves, iterations) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, policy, rels, memory, running, halves, now: 0, preempts: 0, iterations }
    }

    pub(crate) fn run(mut self) -> ReferenceOutcome {
        while self.rels.iter().any(|rel| rel.done.is_none()) {
            if self.active().is_empty() {
                let next = self.rels.iter().filter(|rel| rel.done.is_none()).map(|rel| rel.arrival).min();
                self.now = next.expect("one is not done");
            }
            self.decide();
        }
        let ends = self.rels.iter().map(|rel| rel.done.expect("all are done") as f64 / 1e9);
        ReferenceOutcome { t_done: ends.collect(), preempts: self.preempts, iterations: self.iterations }
    }

    /// relQueries that have arrived and are not done.
    pub(crate) fn active(&self) -> Vec<usize> {
        let is_active = |rel: &Rel| rel.done.is_none() && rel.arrival <= self.now;
        (0..self.rels.len()).filter(|i| is_active(&self.rels[*i])).collect()
    }

    pub(crate) fn key(&self, rel: usize) -> PriorityKey {
        let one = &self.rels[rel];
        (one.priority.unwrap_or(Fraction::ZERO), one.arrival, one.id)
    }

    /// Active relQueries with a waiting row, the first in the order first.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        let mut waiting = self.active();
        waiting.retain(|rel| !self.rels[*rel].waiting.is_empty());
        waiting.sort_by_key(|rel| self.key(*rel));
        waiting
    }

    /// relQueries with a running row.
    pub(crate) fn running_rels(&self) -> BTreeSet<usize> {
        self.running.iter().map(|name| name.0).collect()
    }

    pub(crate) fn row(&self, (rel, row): Name) -> &EngineRow {
        &self.rels[rel].rows[row]
    }

    pub(crate) fn uncached(&self, name: Name, taken: &BTreeSet<usize>) -> u64 {
        let row = self.row(name);
        (row.prompt + row.generated - self.memory.hit(&row.path, taken)).max(1)
    }

    /// The rows of these relQueries that can be admitted: up to the first that does not fit.
    pub(crate) fn admissible(&self, rels: &[usize], budget: &Budget) -> Vec<Taken> {
        let mut admitted: Vec<Taken> = Vec::new();
        let mut taken = BTreeSet::new();
        let seats = self.machine.mns.saturating_sub(self.running.len() + self.halves.len());
        let mut tokens = budget.tokens;
        let kept = self.machine.cap * self.machine.watermark_permille / 1_000 + budget.decoding;
        let mut room = self.memory.room() as i128 - i128::from(kept);
        for name in rels.iter().flat_map(|rel| self.rels[*rel].waiting.iter().map(|row| (*rel, *row))) {
            let (row, uncached) = (self.row(name), self.uncached(name, &taken));
            let need = i128::from(self.memory.need(&row.path, &taken) + row.generated);
            let fits = if budget.cuts { tokens > 0 } else { uncached <= tokens || admitted.is_empty() };
            if admitted.len() >= seats || !fits || need > room {
                break;
            }
            room -= need;
            let now = if budget.cuts { uncached.min(tokens) } else { uncached };
            tokens = tokens.saturating_sub(now);
            taken.extend(row.path.iter().copied());
            admitted.push(Taken { name, uncached, now });
        }
        admitted
    }

    /// Takes a row's memory away; it is computed again later, before its relQuery's other waiting rows.
    pub(crate) fn preempt(&mut self, (rel, row): Name) {
        self.running.retain(|name| *name != (rel, row));
        self.halves.retain(|(name, _)| *name != (rel, row));
        let one = &mut self.rels[rel].rows[row];
        self.memory.release(&one.path, one.slots);
        one.slots = 0;
        self.rels[rel].waiting.push_front(row);
        self.preempts += 1;
    }

    /// The row that goes first when memory is short: of those that run, and of those half-prefilled, which
    /// hold memory as well.
    pub(crate) fn last_running(&self) -> Option<Name> {
        let halves = self.halves.iter().map(|half| half.0);
        self.running.iter().copied().chain(halves).max_by_key(|name| (self.key(name.0), name.1))
    }

    /// Preempts until every row left has room for one more token.
    pub(crate) fn make_decode_room(&mut self) {
        while self.running.len() as u64 > self.memory.room() {
            let last = self.last_running().expect("no running row needs no room");
            self.preempt(last);
        }
    }

    /// One iteration: `prefill` newly admitted rows, `halves` of earlier ones, and all running rows if
    /// `decodes`.
    pub(crate) fn step(&mut self, prefill: &[Taken], halves: &[Taken], decodes: bool) {
        // Rows that end together release their memory in the order of their keys: the rules leave it open.
        let mut decoding = if decodes { self.running.clone() } else { Vec::new() };
        decoding.sort_by_key(|name| (self.key(name.0), name.1));
        let tokens = prefill.iter().chain(halves).map(|taken| taken.now).sum();
        if tokens == 0 && decoding.is_empty() {
            return;
        }
        for taken in prefill {
            self.memory.pin(&self.rels[taken.name.0].rows[taken.name.1].path);
        }
        self.memory.take_slots(decoding.len() as u64);
        for taken in prefill {
            let rel = &mut self.rels[taken.name.0];
            rel.started.get_or_insert(self.now);
            rel.waiting.retain(|row| *row != taken.name.1);
            let row = &mut rel.rows[taken.name.1];
            self.memory.fill(&row.path);
            self.memory.take_slots(row.generated);
            row.slots = row.generated;
            self.halves.push((taken.name, taken.uncached));
        }
        self.iterations.push((self.now, tokens, decoding.len()));
        self.now += self.machine.duration(tokens, decoding.len());
        for name in decoding {
            self.rels[name.0].rows[name.1].slots += 1;
            self.advance(name);
        }
        for taken in halves.iter().chain(prefill) {
            let half = self.halves.iter().position(|half| half.0 == taken.name).expect("it is in progress");
            self.halves[half].1 -= taken.now;
            if self.halves[half].1 == 0 {
                self.halves.remove(half);
                self.running.push(taken.name);
                self.advance(taken.name);
            }
        }
    }

    /// One more token of a running row.
    fn advance(&mut self, (rel, row): Name) {
        let one = &mut self.rels[rel].rows[row];
        one.generated += 1;
        if one.generated == one.out {
            self.memory.release(&one.path, one.slots);
            self.running.retain(|name| *name != (rel, row));
            self.rels[rel].left -= 1;
            if self.rels[rel].left == 0 {
                self.rels[rel].done = Some(self.now);
            }
        }
    }
}
