//! Sampling where logits are: what ranks on GPUs find in their parts of the vocabulary, put together.

use std::ops::Range;

use super::{Memory, Ranks, StepError};
use crate::decoder::{Pick, Survey, Wish};

/// A row of logits on GPUs: what all ranks found in it, and what each did.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Of the whole vocabulary.
    pub whole: Survey,
    /// The highest logit and the sum of weights of each rank's part.
    parts: Vec<(f32, f64)>,
}

/// Where a part's weights stand beside those of which `max` has weight 1.
fn share(part: f32, max: f32, heat: f32) -> f64 {
    if part.is_finite() { f64::from((part - max) * heat).exp() } else { 0.0 }
}

impl Surveyed {
    /// Of one rank's part; others follow by [`Self::append`].
    fn new(survey: Survey) -> Self {
        Self { parts: vec![(survey.max, survey.sum)], whole: survey }
    }

    /// Takes the part of the next rank, whose tokens have higher numbers.
    fn append(&mut self, part: &Survey, heat: f32) {
        let Survey { highest, max, sum } = &mut self.whole;
        highest.append(&part.highest);
        let higher = max.max(part.max);
        *sum = *sum * share(*max, higher, heat) + part.sum * share(part.max, higher, heat);
        *max = higher;
        self.parts.push((part.max, part.sum));
    }

    /// On which rank the draw `uniform` of `[0, 1)` falls, and where there; `None` where no token has any weight.
    fn pick(&self, row: usize, Wish { heat, mask, .. }: Wish, uniform: f64) -> Option<(usize, Pick)> {
        let target = uniform * self.whole.sum;
        let (mut before, mut last) = (0.0, None);
        for (rank, (max, sum)) in self.parts.iter().enumerate().filter(|(_, (_, sum))| *sum > 0.0) {
            let share = share(*max, self.whole.max, heat);
            if share > 0.0 {
                let target = ((target - before) / share).max(0.0);
                last = Some((rank, Pick { row, heat, max: *max, mask, target }));
                before += sum * share;
                if before > self.whole.sum * uniform {
                    break;
                }
            }
        }
        last
    }
}

impl Ranks {
    /// Whether logits stay on devices, where [`Self::survey`] looks at them.
    pub fn surveys(&self) -> bool {
        self.gpus().next().is_some()
    }

    /// What rows of a step, from row `first` on, have of what is wanted of each; tokens from `end` on are not drawn. `masks`: bits of those
    /// that may be, where wishes name one. Only where [`Self::surveys`].
    pub fn survey(
        &self,
        memory: &mut [Memory],
        first: usize,
        (wishes, end): (&[Wish], usize),
        masks: &[&[u32]],
    ) -> Result<Vec<Surveyed>, StepError> {
        let found = self.together_on_gpus(memory, |_, decoder, memory| {
            decoder.survey(memory, first, (wishes, end), masks)
        })?;
        let mut parts = found.into_iter();
        let lowest = parts.next().expect("a model has a rank");
        let mut rows: Vec<Surveyed> = lowest.into_iter().map(Surveyed::new).collect();
        for part in parts {
            for ((row, part), wish) in rows.iter_mut().zip(&part).zip(wishes) {
                row.append(part, wish.heat);
            }
        }
        Ok(rows)
    }

    /// Logits `[rows, vocab]` of some rows that were surveyed last.
    pub fn surveyed(&self, memory: &mut [Memory], rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        let parts =
            self.together_on_gpus(memory, |_, decoder, memory| decoder.surveyed(memory, rows.clone()))?;
        Ok(self.whole(parts, rows.len()))
    }

    /// The tokens that draws of `[0, 1)` fall on in rows that were surveyed last, by their weights; `None` where no token has
    /// any. `draws`: a row, what it was found to be, what was wanted of it, the draw.
    pub fn pick(
        &self,
        memory: &mut [Memory],
        draws: &[(usize, &Surveyed, Wish, f64)],
        end: usize,
    ) -> Result<Vec<Option<u32>>, StepError> {
        if draws.is_empty() {
            return Ok(Vec::new());
        }
        let picks: Vec<Option<(usize, Pick)>> =
            draws.iter().map(|(row, found, wish, uniform)| found.pick(*row, *wish, *uniform)).collect();
        let own = |rank: usize| -> Vec<Pick> {
            picks.iter().flatten().filter(|(of, _)| *of == rank).map(|(_, pick)| *pick).collect()
        };
        let found =
            self.together_on_gpus(memory, |rank, decoder, memory| decoder.pick(memory, (&own(rank), end)))?;
        let mut found: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        Ok(picks.iter().map(|pick| found[pick.as_ref()?.0].next().flatten()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::Highest;

    /// What a rank finds in logits.
    fn survey(logits: &[f32], heat: f32) -> Survey {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum = logits.iter().map(|logit| f64::from((logit - max) * heat).exp()).sum();
        Survey { highest: Highest::gathered(0, true, Vec::new()), max, sum }
    }

    #[test]
    fn a_draw_falls_on_the_rank_and_weight_that_it_falls_on_in_the_whole() {
        let logits = [0.5_f32, -1.0, 3.0, 2.0, f32::NEG_INFINITY, 0.0, 1.0, 2.5];
        let heat = 0.8;
        let wish = Wish { heat, mask: Some(3), ..Wish::default() };
        let mut found = Surveyed::new(survey(&logits[..4], heat));
        // A rank whose tokens may not be drawn.
        let none =
            Survey { highest: Highest::gathered(0, true, Vec::new()), max: f32::NEG_INFINITY, sum: 0.0 };
        found.append(&none, heat);
        found.append(&survey(&logits[5..], heat), heat);
        assert!((found.whole.sum - survey(&logits, heat).sum).abs() < 1e-6);
        let weight = |logit: f32| f64::from((logit - 3.0) * heat).exp();
        for step in 0..100 {
            let uniform = f64::from(step) / 100.0;
            let (rank, pick) = found.pick(7, wish, uniform).expect("some have weight");
            let first: f64 = logits[..4].iter().map(|logit| weight(*logit)).sum();
            let (on, base, max) =
                if uniform * found.whole.sum < first { (0, 0.0, 3.0) } else { (2, first, 2.5) };
            assert_eq!((rank, pick.row, pick.max, pick.mask), (on, 7, max, Some(3)));
            let target = (uniform * found.whole.sum - base) / weight(max);
            assert!((pick.target - target).abs() < 1e-6, "{} {target}", pick.target);
        }
        assert_eq!(Surveyed::new(none).pick(0, wish, 0.5), None);
    }
}
