//! Sampling where logits are: what ranks on GPUs find in their parts of the vocabulary, put together.

use std::ops::Range;

use super::StepError;
use super::gpu_logits::GpuLogits;
use super::model::ShardedModel;
use crate::decoder::{Draw, LogitPlace, LogitQueries, LogitStats, PlaceQuery, SampleQuery};
use crate::device::Cpu;
use crate::device::cuda::GpuError;

/// A row of logits on GPUs: what all ranks found in it, and what each did.
#[derive(Clone, Debug)]
pub struct RowStats {
    /// Of the whole vocabulary.
    pub whole: LogitStats,
    /// The highest logit and the sum of weights of each rank's part.
    parts: Vec<(f32, f64)>,
}

/// Where a part's weights stand beside those of which `max` has weight 1.
fn share(part: f32, max: f32, inverse_temperature: f32) -> f64 {
    if part.is_finite() { f64::from((part - max) * inverse_temperature).exp() } else { 0.0 }
}

impl RowStats {
    /// Of one rank's part; others follow by [`Self::append`].
    fn new(stats: LogitStats) -> Self {
        Self { parts: vec![(stats.max, stats.sum)], whole: stats }
    }

    /// Takes the part of the next rank, whose tokens have higher numbers.
    fn append(&mut self, part: &LogitStats, inverse_temperature: f32) {
        let LogitStats { top_k, max, sum } = &mut self.whole;
        top_k.append(&part.top_k);
        let higher = max.max(part.max);
        let share = |max: f32| share(max, higher, inverse_temperature);
        *sum = *sum * share(*max) + part.sum * share(part.max);
        *max = higher;
        self.parts.push((part.max, part.sum));
    }

    /// On which rank the draw `uniform` of `[0, 1)` falls, and where there; `None` where no token has any
    /// weight.
    fn place(&self, row: usize, query: SampleQuery, uniform: f64) -> Option<(usize, Draw)> {
        let SampleQuery { inverse_temperature, mask, .. } = query;
        let target = uniform * self.whole.sum;
        let (mut before, mut last) = (0.0, None);
        for (rank, (max, sum)) in self.parts.iter().enumerate().filter(|(_, (_, sum))| *sum > 0.0) {
            let share = share(*max, self.whole.max, inverse_temperature);
            if share > 0.0 {
                let target = ((target - before) / share).max(0.0);
                last = Some((rank, Draw { row, inverse_temperature, max: *max, mask, target }));
                before += sum * share;
                if before > self.whole.sum * uniform {
                    break;
                }
            }
        }
        last
    }
}

/// A draw of `[0, 1)` in a row.
#[derive(Clone, Copy, Debug)]
pub struct RowDraw<'a> {
    /// Its number among those that were asked about last.
    pub row: usize,
    /// What it was found to be.
    pub stats: &'a RowStats,
    /// What was asked of it.
    pub query: SampleQuery,
    pub uniform: f64,
}

/// Ranks on GPUs, whose logits are drawn from where they are.
pub struct GpuRanks<'a> {
    model: &'a ShardedModel,
    ranks: Vec<GpuLogits<'a>>,
}

impl<'a> GpuRanks<'a> {
    pub(super) fn new(model: &'a ShardedModel, ranks: Vec<GpuLogits<'a>>) -> Self {
        Self { model, ranks }
    }

    /// The processor of rank 0, which samples.
    pub fn cpu(&self) -> &'a Cpu {
        self.model.cpu()
    }

    /// Waits until a step is computed of which nothing is read.
    pub fn wait(&mut self) -> Result<(), StepError> {
        self.together(|_, rank| rank.wait()).map(drop)
    }

    /// What rows of the last step have of what is asked of each.
    pub fn query_logits(&mut self, asked: LogitQueries<'_>) -> Result<Vec<RowStats>, StepError> {
        let mut parts = self.together(|_, rank| rank.query_logits(asked))?.into_iter();
        let lowest = parts.next().expect("a model has a rank");
        let mut rows: Vec<RowStats> = lowest.into_iter().map(RowStats::new).collect();
        for part in parts {
            for ((row, part), query) in rows.iter_mut().zip(&part).zip(asked.queries) {
                row.append(part, query.inverse_temperature);
            }
        }
        Ok(rows)
    }

    /// The place of a token in each of the rows that were asked about last.
    pub fn token_places(&mut self, tokens: &[u32], ids_end: usize) -> Result<Vec<LogitPlace>, StepError> {
        let unknown: Vec<PlaceQuery> =
            tokens.iter().map(|token| PlaceQuery { token: *token, logit: None }).collect();
        let mut parts = self.together(|_, rank| rank.token_places(&unknown, ids_end))?;
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        // One rank has a token: now that its logit is known, all compare theirs with it.
        let known = |(row, token): (usize, &u32)| {
            let logit = parts.iter().map(|part| part[row].logit).fold(f32::NEG_INFINITY, f32::max);
            PlaceQuery { token: *token, logit: Some(logit) }
        };
        let known: Vec<PlaceQuery> = tokens.iter().enumerate().map(known).collect();
        let mut parts = self.together(|_, rank| rank.token_places(&known, ids_end))?.into_iter();
        let mut whole = parts.next().expect("a model has a rank");
        for part in parts {
            whole.iter_mut().zip(part).for_each(|(whole, part)| whole.above += part.above);
        }
        Ok(whole)
    }

    /// Logits `[rows, vocab]` of some rows that were asked about last.
    pub fn queried_logits(&mut self, rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        let mut parts = self.together(|_, rank| rank.queried_logits(rows.clone()))?;
        Ok(match parts.len() {
            1 => parts.swap_remove(0),
            _ => self.model.whole_rows(&parts, rows.len()),
        })
    }

    /// The tokens that draws fall on in rows that were asked about last, by their weights; `None` where no
    /// token has any.
    pub fn draw(&mut self, draws: &[RowDraw<'_>], ids_end: usize) -> Result<Vec<Option<u32>>, StepError> {
        if draws.is_empty() {
            return Ok(Vec::new());
        }
        let placed: Vec<Option<(usize, Draw)>> =
            draws.iter().map(|draw| draw.stats.place(draw.row, draw.query, draw.uniform)).collect();
        let own = |rank: usize| -> Vec<Draw> {
            placed.iter().flatten().filter(|(of, _)| *of == rank).map(|(_, draw)| *draw).collect()
        };
        let found = self.together(|number, rank| rank.draw(&own(number), ids_end))?;
        let mut found: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        Ok(placed.iter().map(|draw| found[draw.as_ref()?.0].next().flatten()).collect())
    }

    fn together<T: Send>(
        &mut self,
        work: impl Fn(usize, &mut GpuLogits<'a>) -> Result<T, GpuError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        self.model.peers().together(self.ranks.iter_mut(), |number, rank| Ok(work(number, rank)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::TopK;

    /// What a rank finds in logits.
    fn query_logits(logits: &[f32], inverse_temperature: f32) -> LogitStats {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum = logits.iter().map(|logit| f64::from((logit - max) * inverse_temperature).exp()).sum();
        LogitStats { top_k: TopK::gathered(0, true, Vec::new()), max, sum }
    }

    #[test]
    fn a_draw_falls_on_the_rank_and_weight_that_it_falls_on_in_the_whole() {
        let logits = [0.5_f32, -1.0, 3.0, 2.0, f32::NEG_INFINITY, 0.0, 1.0, 2.5];
        let inverse_temperature = 0.8;
        let query = SampleQuery { inverse_temperature, mask: Some(3), ..SampleQuery::default() };
        let mut found = RowStats::new(query_logits(&logits[..4], inverse_temperature));
        // A rank whose tokens may not be drawn.
        let none =
            LogitStats { top_k: TopK::gathered(0, true, Vec::new()), max: f32::NEG_INFINITY, sum: 0.0 };
        found.append(&none, inverse_temperature);
        found.append(&query_logits(&logits[5..], inverse_temperature), inverse_temperature);
        assert!((found.whole.sum - query_logits(&logits, inverse_temperature).sum).abs() < 1e-6);
        let weight = |logit: f32| f64::from((logit - 3.0) * inverse_temperature).exp();
        for step in 0..100 {
            let uniform = f64::from(step) / 100.0;
            let (rank, draw) = found.place(7, query, uniform).expect("some have weight");
            let first: f64 = logits[..4].iter().map(|logit| weight(*logit)).sum();
            let (on, base, max) =
                if uniform * found.whole.sum < first { (0, 0.0, 3.0) } else { (2, first, 2.5) };
            assert_eq!((rank, draw.row, draw.max, draw.mask), (on, 7, max, Some(3)));
            let target = (uniform * found.whole.sum - base) / weight(max);
            assert!((draw.target - target).abs() < 1e-6, "{} {target}", draw.target);
        }
        assert_eq!(RowStats::new(none).place(0, query, 0.5), None);
    }
}
