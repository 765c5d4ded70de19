//! What each policy does in an iteration.

use std::collections::BTreeSet;

use super::engine::{Budget, ReferenceEngine, Taken};
use super::order::{Fraction, RunningRow, WaitingRow, estimate};
use super::{Policy, Transition, Variant};

/// Tokens of an iteration under sarathi.
const CHUNK_TOKENS: u64 = 512;
/// Rows that are taken to share a decode step, in the static priority.
const SHARERS: i128 = 64;
/// Rows of which the miss ratio is sampled.
const SAMPLES: usize = 8;

impl ReferenceEngine {
    /// Runs one iteration, or preempts the last running row.
    pub(crate) fn decide(&mut self) {
        match self.policy {
            Policy::Vllm => self.prefill_first(false),
            Policy::Sarathi => self.mix(),
            Policy::StaticPriority | Policy::StaticPriorityWeak => {
                for rel in self.active() {
                    self.rels[rel].priority = Some(self.static_priority(rel));
                }
                self.prefill_first(self.policy == Policy::StaticPriorityWeak);
            }
            Policy::RelServe(variant) => {
                for rel in self.active() {
                    self.update(rel, variant);
                }
                self.arrange(variant);
            }
        }
    }

    fn whole(&self) -> Budget {
        Budget { tokens: self.machine.mnbt, cuts: false, decoding: 0 }
    }

    fn decode_all(&mut self) {
        let before = self.running.len();
        self.make_decode_room();
        assert!(before > 0, "nothing runs and nothing can be admitted");
        self.step(&[], &[], true);
    }

    fn prefill_first(&mut self, evicts: bool) {
        let waiting = self.waiting();
        let admitted = self.admissible(&waiting, &self.whole());
        if !admitted.is_empty() {
            return self.step(&admitted, &[], false);
        }
        if let Some(front) = waiting.first().filter(|_| evicts) {
            while self.admissible(&[*front], &self.whole()).is_empty() {
                let Some(last) = self.last_running() else { break };
                if self.key(last.0).0 <= self.key(*front).0 {
                    break;
                }
                self.preempt(last);
            }
            if self.running.is_empty() {
                let admitted = self.admissible(&self.waiting(), &self.whole());
                return self.step(&admitted, &[], false);
            }
        }
        self.decode_all();
    }

    fn mix(&mut self) {
        self.make_decode_room();
        let decoding = self.running.len() as u64;
        let mut tokens = CHUNK_TOKENS.saturating_sub(decoding);
        let mut halves = Vec::new();
        for (name, left) in &self.halves {
            let now = tokens.min(*left);
            tokens -= now;
            halves.push(Taken { name: *name, uncached: *left, now });
        }
        let admitted = self.admissible(&self.waiting(), &Budget { tokens, cuts: true, decoding });
        self.step(&admitted, &halves, true);
    }

    fn static_priority(&self, rel: usize) -> Fraction {
        let (one, machine) = (&self.rels[rel], &self.machine);
        let (rows, limit) = (one.rows.len() as i128, i128::from(one.limit));
        let prompt: i128 = one.rows.iter().map(|row| i128::from(row.prompt)).sum();
        if self.policy == Policy::StaticPriorityWeak {
            return Fraction { over: prompt + rows * limit, under: 1 };
        }
        let per_token = machine.a_d * SHARERS + machine.b_d;
        Fraction { over: SHARERS * machine.a_p * prompt + per_token * rows * limit, under: SHARERS }
    }

    fn update(&mut self, rel: usize, variant: Variant) {
        let one = &self.rels[rel];
        if let Some(threshold) = variant.starves_after {
            let waited = one.started.unwrap_or(self.now) - one.arrival;
            if !one.waiting.is_empty() && waited > threshold * one.rows.len() as i128 {
                self.rels[rel].is_starving = true;
            }
        }
        let one = &self.rels[rel];
        let runs = self.running.iter().any(|name| name.0 == rel);
        if one.is_starving {
            self.rels[rel].priority = Some(Fraction::ZERO);
        } else if one.priority.is_none() || (runs && !variant.is_frozen) {
            self.rels[rel].priority = Some(self.estimated(rel, variant));
        }
    }

    fn estimated(&self, rel: usize, variant: Variant) -> Fraction {
        let one = &self.rels[rel];
        let limit = i128::from(one.limit);
        let of_rel = self.running.iter().filter(|name| name.0 == rel).map(|name| self.row(*name));
        let running: Vec<RunningRow> = of_rel
            .map(|row| RunningRow {
                steps_left: limit - i128::from(row.generated),
                own_tokens: i128::from(row.unique + row.generated),
            })
            .collect();
        let waiting: Vec<WaitingRow> = one
            .waiting
            .iter()
            .map(|row| &one.rows[*row])
            .map(|row| WaitingRow {
                tokens: i128::from(row.prompt + row.generated),
                generated: i128::from(row.generated),
            })
            .collect();
        let as_printed = variant.decomposition_as_printed;
        estimate(&self.machine, limit, &running, &waiting, self.miss_ratio(rel), as_printed)
    }

    fn miss_ratio(&self, rel: usize) -> Fraction {
        let waiting = &self.rels[rel].waiting;
        let samples = SAMPLES.min(waiting.len());
        let mut ratio = Fraction { over: 0, under: 0 };
        for j in 0..samples {
            let name = (rel, waiting[j * waiting.len() / samples]);
            let row = self.row(name);
            ratio.over += i128::from(self.uncached(name, &BTreeSet::new()));
            ratio.under += i128::from(row.prompt + row.generated);
        }
        if samples == 0 { Fraction::ZERO } else { ratio }
    }

    fn arrange(&mut self, variant: Variant) {
        let waiting = self.waiting();
        let front = waiting.first().copied();
        let candidates = front.map(|front| self.admissible(&[front], &self.whole())).unwrap_or_default();
        let Some(front) = front.filter(|_| !candidates.is_empty()) else { return self.decode_all() };
        let least = self.running_rels().into_iter().map(|rel| self.key(rel)).min();
        let prefills = least.is_none_or(|least| self.key(front) <= least)
            || match variant.transition {
                Transition::Prefill => true,
                Transition::Decode => false,
                Transition::Weigh => {
                    self.delta(front, &candidates, waiting.len(), variant.sign_as_printed) < 0
                }
            };
        if prefills { self.step(&candidates, &[], false) } else { self.decode_all() }
    }

    /// What a prefill of the candidates costs the running relQueries, less what it gives the waiting ones.
    fn delta(&self, front: usize, candidates: &[Taken], waiting: usize, as_printed: bool) -> i128 {
        let machine = &self.machine;
        let limit = |rel: usize| i128::from(self.rels[rel].limit);
        let tokens: i128 = candidates.iter().map(|taken| i128::from(taken.now)).sum();
        let rows = candidates.len() as i128;
        let loss: i128 = self
            .running_rels()
            .into_iter()
            .map(|rel| machine.a_p * tokens + machine.b_p + machine.a_d * rows * limit(rel).min(limit(front)))
            .sum();
        let longest = self.running_rels().into_iter().map(limit).max().expect("a relQuery runs");
        let gain = waiting as i128 * machine.b_d * limit(front).min(longest);
        if as_printed { loss + gain } else { loss - gain }
    }
}
