//! Batch decomposition (RelServe, Algorithm 1): which batches a relQuery still needs.
//!
//! The errata of DESIGN 9 are applied: `accum` starts anew with each group, prefill and decode are closed
//! each by itself, nothing empty is counted, a row decodes `OL - 1` times (its prefill gives the first
//! token) and a running row `OL - generated` times, and a row over a limit is taken alone.
//!
//! [`DecompositionReading::AsPrinted`] leaves the errata in, to measure them.
//!
//! The cache miss ratio makes token counts fractions; all counts here are scaled by its denominator
//! and stay integers. Rows that never ran come as cumulative sums: a group or batch boundary is a
//! binary search, so the cost grows with the number of batches and not of rows.

use crate::miss_ratio::MissRatio;
use crate::paper_variant::DecompositionReading;

/// What is left of a relQuery.
#[derive(Clone, Copy, Debug)]
pub struct Remaining<'a> {
    /// Rows that run.
    pub running: Running,
    /// Rows that were taken back: tokens to prefill, output tokens already there.
    pub requeued: &'a [(u64, u64)],
    /// Cumulative prompt tokens of the rows that never ran; the first entry is an offset.
    pub fresh: &'a [u64],
    /// OL(R).
    pub output_max: u64,
}

/// The running rows of a relQuery, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// How many they are.
    pub rows: u64,
    /// Most decode steps any of them may still need.
    pub steps_max: u64,
    /// Decode steps all of them may still need.
    pub steps_sum: u64,
    /// Tokens that only they hold.
    pub held: u64,
}

/// The limits of Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `cap`: tokens the pool holds.
    pub kv_tokens: u64,
    /// `mns`: rows of a decode batch.
    pub sequences: u64,
    /// `mnbt`: tokens of a prefill batch.
    pub step_tokens: u64,
}

/// A number of tokens as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    scaled: u128,
    scale: u64,
}

impl Tokens {
    /// The numerator.
    pub fn floor_scaled(self) -> u128 {
        self.scaled
    }

    /// The denominator; never 0.
    pub fn denominator(self) -> u128 {
        u128::from(self.scale)
    }
}

/// What Eq. 10 needs to know of the batches: their number and their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    pub prefill_batches: u64,
    /// Uncached tokens over all of them: the sum of utok*.
    pub prefill_tokens: Tokens,
    pub decode_steps: u64,
    /// Sequences over all decode batches.
    pub decode_sequences: u64,
}

/// The loop of Algorithm 1: an open group of rows, and in it an open prefill batch.
struct Builder {
    ratio: u128,
    cap: u128,
    step_cap: u128,
    sequences: u64,
    group_rows: u64,
    group_tokens: u128,
    steps_max: u64,
    steps_sum: u64,
    batch_rows: u64,
    batch_tokens: u128,
    is_printed: bool,
    out: Batches,
}

impl Builder {
    fn new(ratio: MissRatio, limits: Limits, running: Running, reading: DecompositionReading) -> Self {
        let is_printed = reading == DecompositionReading::AsPrinted;
        let running = if is_printed { Running::default() } else { running };
        let scale = u128::from(ratio.total());
        Self {
            ratio: u128::from(ratio.missed()),
            cap: u128::from(limits.kv_tokens) * scale,
            step_cap: u128::from(limits.step_tokens) * scale,
            sequences: limits.sequences,
            group_rows: running.rows,
            group_tokens: u128::from(running.held) * scale,
            steps_max: running.steps_max,
            steps_sum: running.steps_sum,
            batch_rows: 0,
            batch_tokens: 0,
            is_printed,
            out: Batches {
                prefill_batches: 0,
                prefill_tokens: Tokens { scaled: 0, scale: ratio.total() },
                decode_steps: 0,
                decode_sequences: 0,
            },
        }
    }

    /// utok* of Eq. 11, scaled.
    fn uncached(&self, tokens: u64) -> u128 {
        u128::from(tokens) * self.ratio
    }

    /// Lines 4-10: closes what the next row does not fit into.
    fn make_room(&mut self, uncached: u128) {
        let is_full = self.group_tokens + uncached > self.cap || self.group_rows + 1 > self.sequences;
        if self.group_rows > 0 && is_full {
            self.close_group();
        }
        if self.batch_rows > 0 && self.batch_tokens + uncached > self.step_cap {
            self.close_batch();
        }
    }

    /// Line 11, for `rows` rows at once.
    fn add(&mut self, rows: u64, uncached: u128, steps: u64) {
        self.group_rows += rows;
        self.group_tokens += uncached;
        self.steps_max = self.steps_max.max(steps);
        self.steps_sum += rows * steps;
        self.batch_rows += rows;
        self.batch_tokens += uncached;
    }

    fn close_batch(&mut self) {
        if self.batch_rows > 0 {
            self.out.prefill_batches += 1;
            self.out.prefill_tokens.scaled += self.batch_tokens;
        }
        (self.batch_rows, self.batch_tokens) = (0, 0);
    }

    /// Decodes the group to its end.
    fn close_group(&mut self) {
        if self.is_printed && self.batch_rows == 0 {
            self.out.prefill_batches += 1;
        }
        self.close_batch();
        self.out.decode_steps += self.steps_max;
        self.out.decode_sequences += self.steps_sum;
        (self.group_rows, self.steps_max, self.steps_sum) = (0, 0, 0);
        if !self.is_printed {
            self.group_tokens = 0;
        }
    }

    /// Lines 12-15: the group that is open when no row is left.
    fn close_last(&mut self) {
        if self.batch_rows > 0 || !self.is_printed {
            self.close_group();
        }
    }

    /// Decode steps of a row with so many tokens generated.
    fn steps(&self, output_max: u64, generated: u64) -> u64 {
        if self.is_printed { output_max } else { output_max.saturating_sub(generated + 1) }
    }

    /// Adds rows that never ran, as many at a time as the open group and batch take.
    fn add_fresh(&mut self, sums: &[u64], steps: u64) {
        let rows = sums.len().saturating_sub(1);
        let mut at = 0;
        while at < rows {
            self.make_room(self.uncached(sums[at + 1] - sums[at]));
            let room = (self.cap.saturating_sub(self.group_tokens))
                .min(self.step_cap.saturating_sub(self.batch_tokens));
            let seats = usize::try_from(self.sequences.saturating_sub(self.group_rows)).unwrap_or(rows);
            let last = (at + seats).min(rows);
            let fitting = sums[at + 1..=last].partition_point(|sum| self.uncached(sum - sums[at]) <= room);
            // The first one is taken even if it alone is over a limit.
            let taken = fitting.max(1);
            self.add(taken as u64, self.uncached(sums[at + taken] - sums[at]), steps);
            at += taken;
        }
    }
}

/// Algorithm 1: the batches that the rest of a relQuery needs.
pub fn decompose(
    remaining: Remaining<'_>,
    ratio: MissRatio,
    limits: Limits,
    reading: DecompositionReading,
) -> Batches {
    let mut builder = Builder::new(ratio, limits, remaining.running, reading);
    for (tokens, generated) in remaining.requeued {
        let uncached = builder.uncached(*tokens);
        builder.make_room(uncached);
        builder.add(1, uncached, builder.steps(remaining.output_max, *generated));
    }
    builder.add_fresh(remaining.fresh, builder.steps(remaining.output_max, 0));
    builder.close_last();
    builder.out
}

#[cfg(test)]
mod tests {
    use base::{Nanos, TokenCount};

    use super::*;
    use crate::cost::CostModel;
    use crate::priority::estimate;

    const CORRECTED: DecompositionReading = DecompositionReading::Corrected;
    const LIMITS: Limits = Limits { kv_tokens: 10_000, sequences: 256, step_tokens: 2_048 };

    fn ratio(missed: u64, total: u64) -> MissRatio {
        MissRatio::of(std::iter::once((TokenCount(missed), TokenCount(total))))
    }

    #[test]
    fn the_two_priorities_of_the_hand_computed_trace() {
        // At .044 of `micro`: R0 runs three rows with four steps left; R1 waits with two rows of 100
        // tokens, 60 of which are not in the cache.
        let running = Running { rows: 3, steps_max: 4, steps_sum: 12, held: 303 };
        let first = decompose(
            Remaining { running, requeued: &[], fresh: &[0], output_max: 5 },
            MissRatio::ALL,
            LIMITS,
            CORRECTED,
        );
        assert_eq!(estimate(&CostModel::default(), &first, MissRatio::ALL).total(), Nanos(105_400_000));
        let second = decompose(
            Remaining { running: Running::default(), requeued: &[], fresh: &[0, 100, 200], output_max: 10 },
            ratio(60, 100),
            LIMITS,
            CORRECTED,
        );
        assert_eq!(estimate(&CostModel::default(), &second, ratio(60, 100)).total(), Nanos(255_100_000));
    }

    #[test]
    fn a_row_over_the_batch_limit_goes_alone_and_the_loop_ends() {
        let batches = decompose(
            Remaining {
                running: Running::default(),
                requeued: &[(5_000, 1)],
                fresh: &[7, 7 + 20_000, 7 + 20_001],
                output_max: 3,
            },
            MissRatio::ALL,
            LIMITS,
            CORRECTED,
        );
        // Groups: the row taken back; the row over the pool; the small one.
        assert_eq!(batches.prefill_batches, 3);
        assert_eq!(batches.decode_steps, 1 + 2 + 2);
    }

    #[test]
    fn as_printed_each_row_after_the_first_overflow_is_a_group_and_running_rows_count_for_nothing() {
        let running = Running { rows: 1, steps_max: 7, steps_sum: 7, held: 9 };
        let limits = Limits { kv_tokens: 100, ..LIMITS };
        let printed =
            |remaining| decompose(remaining, MissRatio::ALL, limits, DecompositionReading::AsPrinted);
        let waiting = Remaining { running, requeued: &[], fresh: &[0, 60, 120, 130, 140], output_max: 5 };
        let batches = printed(waiting);
        assert_eq!((batches.prefill_batches, batches.decode_steps, batches.decode_sequences), (4, 20, 20));
        let batches = printed(Remaining { fresh: &[0], ..waiting });
        assert_eq!((batches.prefill_batches, batches.decode_steps, batches.decode_sequences), (0, 0, 0));
        let batches = decompose(waiting, MissRatio::ALL, limits, CORRECTED);
        // The running row and the first; the three others.
        assert_eq!((batches.prefill_batches, batches.decode_steps, batches.decode_sequences), (2, 11, 23));
    }

    /// Algorithm 1 row by row, as the text has it.
    fn row_by_row(
        remaining: Remaining<'_>,
        ratio: MissRatio,
        limits: Limits,
        reading: DecompositionReading,
    ) -> Batches {
        let mut builder = Builder::new(ratio, limits, remaining.running, reading);
        let fresh = remaining.fresh.windows(2).map(|pair| (pair[1] - pair[0], 0));
        for (tokens, generated) in remaining.requeued.iter().copied().chain(fresh) {
            let uncached = builder.uncached(tokens);
            builder.make_room(uncached);
            builder.add(1, uncached, builder.steps(remaining.output_max, generated));
        }
        builder.close_last();
        builder.out
    }

    #[test]
    fn the_binary_searches_agree_with_the_loop_of_the_paper() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let mut fresh = vec![draw(1_000)];
            for _ in 0..draw(60) {
                let last = fresh[fresh.len() - 1];
                fresh.push(last + 1 + draw(400));
            }
            let requeued: Vec<_> = (0..draw(4)).map(|_| (1 + draw(400), draw(5))).collect();
            let running = Running { rows: draw(5), steps_max: draw(9), steps_sum: draw(40), held: draw(900) };
            let remaining =
                Remaining { running, requeued: &requeued, fresh: &fresh, output_max: 1 + draw(20) };
            let limits = Limits {
                kv_tokens: 200 + draw(3_000),
                sequences: 1 + draw(12),
                step_tokens: 100 + draw(900),
            };
            let ratio = ratio(1 + draw(300), 300);
            for reading in [CORRECTED, DecompositionReading::AsPrinted] {
                let loops = row_by_row(remaining, ratio, limits, reading);
                assert_eq!(decompose(remaining, ratio, limits, reading), loops);
            }
        }
    }
}
