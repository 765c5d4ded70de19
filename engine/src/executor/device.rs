//! Sampling where logits stay on their device: it is asked for what each row's draw needs of them, in one look at all rows.

use std::collections::HashMap;
use std::sync::Arc;

use base::{RowError, RowOutcome, SampleSpec, TokenId};
use llguidance::toktrie::SimpleVob;

use super::draw::{Asked, allowed, draw, draw_rows, pushed};
use super::{LocalExecutor, together};
use crate::decoder::Wish;
use crate::parallel::{StepError, Surveyed};
use crate::sample::{FromSurvey, forbid, sample, sample_highest, sample_nucleus, uniform, wish};

/// Rows that are looked at together: bounds the memory of logits on the device.
const SURVEYED_ROWS_MAX: usize = 256;

/// A row's mask: tokens that may be drawn; `None` where all may.
type Mask = Option<Arc<SimpleVob>>;

/// A row of logits.
struct Row<'a> {
    spec: &'a SampleSpec,
    /// Its output position.
    index: u32,
    /// `None`: its slot is sampled as a whole, from logits.
    from: Option<FromSurvey>,
    wish: Wish,
    mask: Mask,
}

impl LocalExecutor {
    /// Samples slots, all of the step's.
    pub(super) fn sample_on_device(
        &mut self,
        mut asked: &[Asked<'_>],
        outcomes: &mut Vec<RowOutcome>,
    ) -> Result<(), StepError> {
        let mut done = 0;
        while !asked.is_empty() {
            let (slots, rows) = together(asked, SURVEYED_ROWS_MAX);
            let (now, later) = asked.split_at(slots);
            self.sample_surveyed(done, now, outcomes)?;
            (done, asked) = (done + rows, later);
        }
        Ok(())
    }

    /// Samples slots whose rows are surveyed together, the first of them row `first` of the step.
    fn sample_surveyed(
        &mut self,
        first: usize,
        asked: &[Asked<'_>],
        outcomes: &mut Vec<RowOutcome>,
    ) -> Result<(), StepError> {
        let ids_end = self.text.ids_end() as usize;
        let mut follows: Vec<_> = asked.iter().map(|asked| self.follow(asked.request, asked.spec)).collect();
        // Behind a guess nobody knows yet what a constraint allows.
        let guesses: Vec<bool> =
            asked.iter().map(|asked| asked.is_constrained() && asked.rows() > 1).collect();
        let masks: Vec<Result<Mask, RowError>> = follows
            .iter_mut()
            .zip(&guesses)
            .map(|(follow, guesses)| if *guesses { Ok(None) } else { allowed(follow) })
            .collect();
        let mut rows = Vec::new();
        for ((asked, mask), guesses) in asked.iter().zip(&masks).zip(&guesses) {
            let (from, wish) = match guesses {
                true => (None, Wish::default()),
                false => {
                    let (from, wish) = wish(&asked.spec.generation);
                    (Some(from), wish)
                }
            };
            let mask = mask.clone().ok().flatten();
            rows.extend((asked.spec.output_index..).take(asked.rows()).map(|index| Row {
                spec: asked.spec,
                index,
                from,
                wish,
                mask: mask.clone(),
            }));
        }
        let distinct = number_masks(&mut rows);
        let bits: Vec<&[u32]> = distinct.iter().map(|mask| mask.as_slice()).collect();
        let wishes: Vec<Wish> = rows.iter().map(|row| row.wish).collect();
        let found = self.ranks.survey(&mut self.memory, first, (&wishes, ids_end), &bits)?;
        let tokens = self.draw_surveyed(&rows, &found, ids_end)?;
        let mut at = 0;
        for (((asked, mut follow), mask), guesses) in asked.iter().zip(follows).zip(masks).zip(guesses) {
            let own = at..at + asked.rows();
            at = own.end;
            let drawn = if guesses {
                let mut logits = self.ranks.surveyed(&mut self.memory, own)?;
                let SampleSpec { generation, seed, .. } = asked.spec;
                draw(&mut logits, asked, &mut follow, |logits, index| {
                    sample(self.ranks.cpu(), logits, ids_end, generation, (*seed, index))
                })
            } else {
                mask.and_then(|_| {
                    draw_rows(asked, |row, _| {
                        let token =
                            tokens[own.start + row].clone().expect("its slot is not sampled as a whole");
                        pushed(&mut follow, token?, asked.forces)
                    })
                })
            };
            outcomes.push(self.outcome(asked, drawn, follow));
        }
        Ok(())
    }

    /// The token of each row, but of those whose slots are sampled as a whole.
    fn draw_surveyed(
        &mut self,
        rows: &[Row<'_>],
        found: &[Surveyed],
        end: usize,
    ) -> Result<Vec<Option<Result<TokenId, RowError>>>, StepError> {
        let is_sound = |row: usize| found[row].whole.highest.kept().is_some();
        let draws: Vec<_> = (0..rows.len())
            .filter(|row| rows[*row].from == Some(FromSurvey::All) && is_sound(*row))
            .map(|row| {
                let Row { spec, index, wish, .. } = &rows[row];
                (row, &found[row], *wish, uniform(spec.seed, *index))
            })
            .collect();
        let mut picked = self.ranks.pick(&mut self.memory, &draws, end)?.into_iter();
        let mut tokens = Vec::with_capacity(rows.len());
        for (at, (row, found)) in rows.iter().zip(found).enumerate() {
            let (generation, place) = (&row.spec.generation, (row.spec.seed, row.index));
            let cpu = self.ranks.cpu();
            let highest = &found.whole.highest;
            let Some(from) = row.from else {
                tokens.push(None);
                continue;
            };
            let token = match from {
                FromSurvey::Highest => sample_highest(cpu, highest, generation, place).map(Some),
                FromSurvey::All if !is_sound(at) => Err(RowError::NotANumber),
                // None: at a temperature next to nothing weights are no numbers.
                FromSurvey::All => Ok(picked.next().expect("one for each draw").map(TokenId)),
                FromSurvey::Nucleus => sample_nucleus(cpu, (highest, found.whole.sum), generation, place),
                FromSurvey::Logits => Ok(None),
            };
            tokens.push(Some(match token {
                Ok(None) => {
                    let mut logits = self.ranks.surveyed(&mut self.memory, at..at + 1)?;
                    if let Some(mask) = &row.mask {
                        forbid(&mut logits, |token| {
                            (token.0 as usize) < mask.len() && mask.is_allowed(token.0)
                        });
                    }
                    sample(self.ranks.cpu(), &mut logits, end, generation, place)
                }
                Ok(Some(token)) => Ok(token),
                Err(error) => Err(error),
            }));
        }
        Ok(tokens)
    }
}

/// The masks of all rows, each once: rows of a relQuery begin with the same one. A row's wish then has its mask's number.
fn number_masks(rows: &mut [Row<'_>]) -> Vec<Arc<SimpleVob>> {
    let mut masks: Vec<Arc<SimpleVob>> = Vec::new();
    let mut numbers = HashMap::new();
    for Row { mask, wish, .. } in rows {
        wish.mask = mask.as_ref().map(|mask| {
            *numbers.entry(Arc::as_ptr(mask)).or_insert_with(|| {
                masks.push(Arc::clone(mask));
                masks.len() - 1
            })
        });
    }
    masks
}
