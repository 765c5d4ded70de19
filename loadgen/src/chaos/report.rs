//! What a run came to: what was sent, which faults came, what was checked and what was broken.

use std::collections::BTreeMap;

use serde::Serialize;

/// Broken promises that are shown; the others are counted.
const SHOWN_MAX: usize = 40;

/// A fault of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct FaultLine {
    pub step: u32,
    pub kind: String,
    pub subject: String,
    pub began_s: f64,
    pub ended_s: f64,
}

/// A promise and how it was kept.
#[derive(Clone, Debug, Serialize)]
pub struct PromiseLine {
    pub promise: &'static str,
    /// How many things were held against it.
    pub checked: u64,
    /// What broke it.
    pub broken: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct ChaosReport {
    pub seed: u64,
    pub steps: u32,
    pub seconds: f64,
    /// Requests by kind and by what became of them.
    pub sent: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    pub faults: Vec<FaultLine>,
    /// Kinds that could not come here, and why.
    pub left_out: Vec<(String, &'static str)>,
    pub promises: Vec<PromiseLine>,
    /// Sums beside what they were held against.
    pub measured: Vec<String>,
}

impl ChaosReport {
    /// Whether every promise was kept.
    pub fn is_sound(&self) -> bool {
        self.promises.iter().all(|line| line.broken.is_empty())
    }

    /// For a person to read.
    pub fn text(&self) -> String {
        let Self { seed, steps, seconds, .. } = self;
        let mut text = format!("chaos, seed {seed}: {steps} steps in {seconds:.0} s\n\nsent\n");
        for (kind, ends) in &self.sent {
            let ends: Vec<String> = ends.iter().map(|(how, count)| format!("{count} {how}")).collect();
            text += &format!("  {kind:<26}{:>7}  {}\n", self.count(kind), ends.join(", "));
        }
        text += &format!("\nfaults {:>28}\n", self.faults.len());
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(&fault.kind).or_default() += 1;
        }
        for (kind, count) in kinds {
            text += &format!("  {kind:<26}{count:>7}\n");
        }
        for (kind, why) in &self.left_out {
            text += &format!("  {kind:<26}      -  skipped: {why}\n");
        }
        text += "\nchecked                          held  broken\n";
        for PromiseLine { promise, checked, broken } in &self.promises {
            text += &format!("  {promise:<34}{checked:>8}{:>8}\n", broken.len());
        }
        text += "\nmeasured\n";
        for line in &self.measured {
            text += &format!("  {line}\n");
        }
        for line in self.promises.iter().filter(|line| !line.broken.is_empty()) {
            text += &format!("\nBROKEN with seed {seed}: {}\n", line.promise);
            for what in line.broken.iter().take(SHOWN_MAX) {
                text += &format!("  {what}\n");
            }
        }
        text
    }

    fn count(&self, kind: &str) -> u64 {
        self.sent.get(kind).map_or(0, |ends| ends.values().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_named_with_its_seed_and_makes_the_run_unsound() {
        let kept = PromiseLine { promise: "usage is exact", checked: 3, broken: Vec::new() };
        let mut report = ChaosReport {
            seed: 7,
            steps: 30,
            seconds: 61.0,
            sent: BTreeMap::from([("cells", BTreeMap::from([("answered", 4), ("failed", 1)]))]),
            faults: Vec::new(),
            left_out: vec![("jump-clock".into(), "no C compiler is installed")],
            promises: vec![kept.clone()],
            measured: vec!["acme: 5 rows".into()],
        };
        assert!(report.is_sound());
        assert!(!report.text().contains("BROKEN"));
        report.promises.push(PromiseLine { broken: vec!["acme: 6 rows".into()], ..kept });
        assert!(!report.is_sound());
        let text = report.text();
        for part in [
            "cells                           5  4 answered, 1 failed",
            "jump-clock                      -  skipped: no C compiler is installed",
            "BROKEN with seed 7: usage is exact\n  acme: 6 rows",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
