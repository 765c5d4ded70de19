//! The order of AI conditions: least rank first, (selectivity - 1) / cost (Hellerstein, predicate migration).
//!
//! The first rows try each condition first in turn, which tells their selectivities at no extra cost; from
//! then on the order follows what rows have shown.

/// Rows that try each condition first before ranks count.
const SAMPLE_ROWS: u64 = 8;

/// What one condition has shown.
#[derive(Clone, Debug, Default)]
struct Shown {
    tried: u64,
    held: u64,
    tokens: u64,
}

/// The conditions of a filter.
#[derive(Debug)]
pub(super) struct ConditionOrder {
    shown: Vec<Shown>,
    started: u64,
}

impl ConditionOrder {
    pub(super) fn new(conditions: usize) -> Self {
        Self { shown: vec![Shown::default(); conditions], started: 0 }
    }

    /// A row's answer to a condition.
    pub(super) fn decided(&mut self, condition: usize, held: bool) {
        let shown = &mut self.shown[condition];
        shown.tried += 1;
        shown.held += u64::from(held);
    }

    /// A call of a condition was computed.
    pub(super) fn paid(&mut self, condition: usize, tokens: u64) {
        let shown = &mut self.shown[condition];
        shown.tokens += tokens;
    }

    /// The share of rows for which a condition holds; before anything is known, half.
    fn selectivity(&self, condition: usize) -> f64 {
        let shown = &self.shown[condition];
        (shown.held as f64 + 1.0) / (shown.tried as f64 + 2.0)
    }

    /// The share of rows that pass all.
    pub(super) fn passing(&self) -> f64 {
        (0..self.shown.len()).map(|condition| self.selectivity(condition)).product()
    }

    /// Rows that are to be undecided at a time while the first are tried; `None`: ranks are known.
    pub(super) fn sampling(&self) -> Option<usize> {
        let count = self.shown.len() as u64;
        let sample = SAMPLE_ROWS * count;
        let tried: u64 = self.shown.iter().map(|shown| shown.tried).sum();
        (count > 1 && tried < sample).then_some(sample as usize)
    }

    /// The condition that a row is to try next, of those that are left; those whose answers are known are free
    /// and come first.
    pub(super) fn next(
        &mut self,
        left: impl Iterator<Item = usize> + Clone,
        is_fresh: bool,
    ) -> Option<usize> {
        let count = self.shown.len() as u64;
        if is_fresh && self.started < SAMPLE_ROWS * count && count > 1 {
            self.started += 1;
            let first = ((self.started - 1) % count) as usize;
            return left.clone().find(|condition| *condition == first).or_else(|| left.clone().next());
        }
        left.min_by(|one, other| self.rank(*one).total_cmp(&self.rank(*other)))
    }

    fn rank(&self, condition: usize) -> f64 {
        let shown = &self.shown[condition];
        // Rows whose answer is known already are free: a condition on few distinct inputs is cheap.
        let cost = (shown.tokens as f64 + 1.0) / (shown.tried as f64 + 1.0);
        (self.selectivity(condition) - 1.0) / cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_that_drops_most_for_its_cost_comes_first() {
        let mut order = ConditionOrder::new(3);
        for row in 0..24 {
            let first = order.next(0..3, true).expect("three are left");
            assert_eq!(first, row % 3);
            order.paid(first, if first == 2 { 400 } else { 100 });
            // The first holds for seven of eight, the second for two, the last for none.
            order.decided(first, [row < 21, row < 6, false][first]);
        }
        assert_eq!(order.next(0..3, true), Some(1));
        assert_eq!(order.next([0, 2].into_iter(), false), Some(2));
        // What was true of the sample need not stay true.
        for _ in 0..200 {
            order.paid(1, 100);
            order.decided(1, true);
        }
        assert_eq!(order.next(0..3, true), Some(2));
    }
}
