//! Priorities: fractions of nanoseconds, and the estimate they come from (Algorithm 1).

use std::cmp::Ordering;

use super::Machine;

/// A fraction with a positive denominator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    pub(crate) over: i128,
    pub(crate) under: i128,
}

impl Fraction {
    pub(crate) const ZERO: Self = Self { over: 0, under: 1 };
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

/// A relQuery's place in the order: priority, arrival, id.
pub(crate) type PriorityKey = (Fraction, i128, u64);

/// A row that runs, as Algorithm 1 sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningRow {
    /// Output limit less what is generated.
    pub(crate) steps_left: i128,
    /// Unique and generated tokens.
    pub(crate) own_tokens: i128,
}

/// A row that waits, as Algorithm 1 sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRow {
    /// Prompt and generated tokens.
    pub(crate) tokens: i128,
    /// Tokens generated before a preemption.
    pub(crate) generated: i128,
}

/// A group in the making: rows that decode together, and the prefill batch not closed yet. Tokens are
/// multiplied by the miss ratio's denominator.
#[derive(Default)]
struct RowGroup {
    rows: usize,
    accum: i128,
    steps_max: i128,
    steps_sum: i128,
    batch_tokens: i128,
    has_batch: bool,
}

impl RowGroup {
    fn add(&mut self, steps: i128) {
        self.rows += 1;
        self.steps_max = self.steps_max.max(steps);
        self.steps_sum += steps;
    }
}

/// Estimated time of a relQuery's rows, with uncached tokens = tokens x `ratio`.
pub(crate) fn estimate(
    machine: &Machine,
    limit: i128,
    running: &[RunningRow],
    waiting: &[WaitingRow],
    ratio: Fraction,
    as_printed: bool,
) -> Fraction {
    let under = ratio.under;
    let (cap, mnbt) = (i128::from(machine.cap) * under, i128::from(machine.mnbt) * under);
    // Times the denominator.
    let mut total = 0;
    let prefill = |tokens: i128| machine.a_p * tokens + machine.b_p * under;
    let decode = |group: &RowGroup| (machine.b_d * group.steps_max + machine.a_d * group.steps_sum) * under;
    let mut group = RowGroup::default();
    if !as_printed {
        for row in running {
            group.add(row.steps_left);
            group.accum += row.own_tokens * under;
        }
    }
    for row in waiting {
        let tokens = row.tokens * ratio.over;
        if group.rows > 0 && (group.accum + tokens > cap || group.rows + 1 > machine.mns) {
            if group.has_batch || as_printed {
                total += prefill(group.batch_tokens);
            }
            total += decode(&group);
            let accum = if as_printed { group.accum } else { 0 };
            group = RowGroup { accum, ..RowGroup::default() };
        }
        if group.has_batch && group.batch_tokens + tokens > mnbt {
            total += prefill(group.batch_tokens);
            (group.batch_tokens, group.has_batch) = (0, false);
        }
        group.add(if as_printed { limit } else { limit - row.generated - 1 });
        group.accum += tokens;
        group.batch_tokens += tokens;
        group.has_batch = true;
    }
    if group.has_batch {
        total += prefill(group.batch_tokens);
    }
    if group.has_batch || !as_printed {
        total += decode(&group);
    }
    Fraction { over: total, under }
}
