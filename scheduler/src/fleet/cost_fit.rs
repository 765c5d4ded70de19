//! What a replica's steps cost, fitted to the rows it answered (RelServe, Eq. 9, from outside).
//!
//! Nobody tells when its steps begin and end. A row with `o` output tokens sees `o` decode steps, whose cost
//! grows with the rows beside it, and waits for the prompts that are computed meanwhile:
//!
//! ```text
//! time of a row = o * b_d  +  o * rows in flight * a_d  +  prompt tokens sent to it meanwhile * a_p
//! ```
//!
//! Least squares of relative errors, the older the less. Where rows are too much alike to tell the three apart
//! the model one starts from decides their ratios, at the pace that fits best. Sums and products of floating point only, in one order: the same rows give the same model everywhere.

use base::{Nanos, Time};

use crate::cost::CostModel;

/// Rows after which older ones count less by the factor e.
const WINDOW: f64 = 256.0;
/// Rows that the model one starts from counts as.
const PRIOR: f64 = 0.001;
/// Rows before a replica has a model of its own.
const ROWS_MIN: u64 = 16;

/// `b_d`, `a_d` and `a_p`, in ns.
type Coefficients = [f64; 3];

/// A replica's clock of work: what it had in flight, and what it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WorkClock {
    now: Time,
    rows: u32,
    /// Time of all rows in flight together, ns.
    row_time: u128,
    /// Prompt tokens that it was sent and has to compute.
    prompts: u64,
}

/// What the clock showed when a row was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentAt {
    pub(crate) time: Time,
    row_time: u128,
    /// Prompt tokens that the replica had been sent by then.
    pub(crate) prompts: u64,
}

impl WorkClock {
    fn advance(&mut self, now: Time) {
        let passed = now.since(self.now).0;
        self.row_time += u128::from(passed) * u128::from(self.rows);
        self.now = self.now.max(now);
    }

    /// A row is sent, of whose prompt so many tokens are not cached there.
    pub(crate) fn sent(&mut self, now: Time, computed: u64) -> SentAt {
        self.advance(now);
        let at = SentAt { time: now, row_time: self.row_time, prompts: self.prompts };
        self.rows += 1;
        self.prompts += computed;
        at
    }

    /// Prompt tokens that it was sent so far and has, or had, to compute.
    pub(crate) fn prompts(&self) -> u64 {
        self.prompts
    }

    /// A row has left.
    pub(crate) fn left(&mut self, now: Time) {
        self.advance(now);
        self.rows = self.rows.saturating_sub(1);
    }
}

/// The fit of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CostFit {
    /// Sums of products of what coefficients are multiplied with, each row's by its time, and of these alone.
    products: [Coefficients; 3],
    sums: Coefficients,
    rows: u64,
}

impl CostFit {
    /// A row was answered with so many output tokens.
    pub(crate) fn answered(&mut self, clock: &WorkClock, sent: SentAt, now: Time, output: u64) {
        let elapsed = now.since(sent.time).0;
        if elapsed == 0 || output == 0 {
            return;
        }
        let mut clock = *clock;
        clock.advance(now);
        let elapsed = elapsed as f64;
        let beside = (clock.row_time - sent.row_time) as f64 / elapsed;
        let output = output as f64;
        let prompts = (clock.prompts - sent.prompts) as f64;
        let row = [output, output * beside, prompts].map(|part| part / elapsed);
        let kept = 1.0 - 1.0 / WINDOW;
        for (place, one) in row.iter().enumerate() {
            self.sums[place] = self.sums[place] * kept + one;
            for (other, two) in row.iter().enumerate() {
                self.products[place][other] = self.products[place][other] * kept + one * two;
            }
        }
        self.rows += 1;
    }

    /// How many times slower than a model the rows were.
    fn pace(&self, model: &Coefficients) -> f64 {
        let (mut seen, mut thought) = (0.0, 0.0);
        for (place, one) in model.iter().enumerate() {
            seen += self.sums[place] * one;
            for (other, two) in model.iter().enumerate() {
                thought += self.products[place][other] * one * two;
            }
        }
        if thought > 0.0 { seen / thought } else { 1.0 }
    }

    /// Whether there were rows enough for a model.
    fn is_known(&self) -> bool {
        self.rows >= ROWS_MIN
    }

    /// The model, once there were rows enough. Coefficients are not below a thousandth of those that are
    /// thought.
    pub(crate) fn cost(&self, prior: &CostModel) -> Option<CostModel> {
        if !self.is_known() {
            return None;
        }
        let prior = [prior.decode_base, prior.decode_per_sequence, prior.prefill_per_token];
        let prior = prior.map(|coefficient| coefficient.0.max(1) as f64);
        let pace = self.pace(&prior);
        let prior = prior.map(|coefficient| coefficient * pace);
        let mut products = self.products;
        let mut sums = self.sums;
        for (place, prior) in prior.iter().enumerate() {
            products[place][place] += PRIOR / (prior * prior);
            sums[place] += PRIOR / prior;
        }
        let found = positive(&products, &sums, &prior.map(|coefficient| coefficient / 1_000.0));
        let [decode_base, decode_per_sequence, prefill_per_token] =
            found.map(|coefficient| Nanos((coefficient as u64).max(1)));
        Some(CostModel {
            decode_base,
            decode_per_sequence,
            prefill_per_token,
            // Its steps are its own: a prompt's share of one is in the slope.
            prefill_base: Nanos(0),
            mixed_hidden: 0,
            mixed_hidden_few: None,
        })
    }
}

/// The solution of `products * x = sums` of which no part is below its `least`: one that would be is held
/// there, and the others are solved for again.
fn positive(products: &[Coefficients; 3], sums: &Coefficients, least: &Coefficients) -> Coefficients {
    let mut held = [false; 3];
    loop {
        let found = solved(products, sums, least, &held);
        let below = (0..3).filter(|place| !held[*place] && found[*place] < least[*place]);
        // What is furthest below, in its own measure.
        let Some(worst) = below
            .min_by(|one, other| (found[*one] / least[*one]).total_cmp(&(found[*other] / least[*other])))
        else {
            return found;
        };
        held[worst] = true;
    }
}

/// Gauss-Jordan elimination over what is not held; the products are positive definite.
fn solved(
    products: &[Coefficients; 3],
    sums: &Coefficients,
    values: &Coefficients,
    held: &[bool; 3],
) -> Coefficients {
    let (mut left, mut right) = (*products, *sums);
    for place in (0..3).filter(|place| held[*place]) {
        for other in 0..3 {
            right[other] -= left[other][place] * values[place];
            (left[other][place], left[place][other]) = (0.0, 0.0);
        }
        left[place][place] = 1.0;
        right[place] = values[place];
    }
    for place in 0..3 {
        let pivot = left[place][place];
        for other in (0..3).filter(|other| *other != place) {
            let factor = left[other][place] / pivot;
            let row = left[place];
            for (part, pivoted) in left[other].iter_mut().zip(row) {
                *part -= factor * pivoted;
            }
            right[other] -= factor * right[place];
        }
    }
    [0, 1, 2].map(|place| right[place] / left[place][place])
}

/// The mean of several replicas' models; `None` where none has one.
pub(crate) fn mean(costs: impl Iterator<Item = CostModel>) -> Option<CostModel> {
    let costs: Vec<CostModel> = costs.collect();
    let count = costs.len() as u64;
    if count == 0 {
        return None;
    }
    let mean = |of: fn(&CostModel) -> Nanos| Nanos(costs.iter().map(|cost| of(cost).0).sum::<u64>() / count);
    Some(CostModel {
        decode_base: mean(|cost| cost.decode_base),
        decode_per_sequence: mean(|cost| cost.decode_per_sequence),
        prefill_per_token: mean(|cost| cost.prefill_per_token),
        ..costs[0]
    })
}

/// Whether two models differ so much that orders may.
pub(crate) fn differ(one: &CostModel, other: &CostModel) -> bool {
    let parts = |cost: &CostModel| [cost.decode_base, cost.decode_per_sequence, cost.prefill_per_token];
    parts(one).iter().zip(parts(other)).any(|(one, other)| one.0.abs_diff(other.0) > other.0 / 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a machine with these costs, in flight `beside` at a time.
    fn fitted(cost: &CostModel, rows: u64) -> CostModel {
        let mut fit = CostFit::default();
        let mut clock = WorkClock::default();
        let mut now = Time(1_000);
        for number in 0..rows {
            let (beside, output, prompt) = (1 + number % 7, 1 + number * 5 % 31, 10 + number * 37 % 200);
            let sent: Vec<SentAt> = (0..beside).map(|_| clock.sent(now, prompt)).collect();
            let step = cost.decode_base.0 + cost.decode_per_sequence.0 * beside;
            let took = Nanos(step * output + cost.prefill_per_token.0 * prompt * beside);
            now = now + took;
            for sent in sent {
                // Those that began later saw fewer prompts come: the first saw all of them.
                if sent.prompts == clock.prompts - prompt * beside {
                    fit.answered(&clock, sent, now, output);
                }
                clock.left(now);
            }
        }
        fit.cost(&CostModel::default()).expect("rows enough")
    }

    #[test]
    fn a_machines_costs_are_found_from_the_times_of_its_rows() {
        for (decode_base, decode_per_sequence, prefill_per_token) in
            [(25_000_000, 450_000, 100_000), (900_000, 300_000, 40_000), (8_000_000, 50_000, 2_000_000)]
        {
            let cost = CostModel {
                decode_base: Nanos(decode_base),
                decode_per_sequence: Nanos(decode_per_sequence),
                prefill_per_token: Nanos(prefill_per_token),
                ..CostModel::default()
            };
            let found = fitted(&cost, 600);
            // What is a small part of every row's time is not found by itself; times are.
            let time = |cost: &CostModel, rows: u64, output: u64, prompts: u64| {
                let step = cost.decode_base.0 + cost.decode_per_sequence.0 * rows;
                step * output + cost.prefill_per_token.0 * prompts
            };
            for (rows, output, prompts) in [(1, 30, 10), (7, 30, 10), (1, 2, 900), (7, 2, 900), (4, 16, 400)]
            {
                let wanted = time(&cost, rows, output, prompts);
                let got = time(&found, rows, output, prompts);
                assert!(
                    got.abs_diff(wanted) * 20 <= wanted * 2,
                    "{rows} {output} {prompts}: {found:?} of {cost:?}"
                );
            }
        }
    }

    #[test]
    fn a_few_rows_say_nothing_and_odd_ones_give_no_negative_costs() {
        let (mut fit, mut clock) = (CostFit::default(), WorkClock::default());
        for number in 1..40 {
            let sent = clock.sent(Time(number * 1_000), 1_000_000);
            clock.left(Time(number * 1_000 + 1));
            fit.answered(&clock, sent, Time(number * 1_000 + 1), 1);
            assert_eq!(fit.cost(&CostModel::default()).is_some(), number >= ROWS_MIN);
        }
        let found = fit.cost(&CostModel::default()).expect("rows enough");
        assert!(found.decode_base.0 > 0 && found.decode_per_sequence.0 > 0 && found.prefill_per_token.0 > 0);
    }
}
