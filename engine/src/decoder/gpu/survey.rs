//! Sampling on a GPU: what a draw needs of logits is found where they are, and only that is copied.

use std::ops::Range;

use super::work::Sampling;
use super::{GpuDecoder, GpuMemory};
use crate::device::cpu::Highest;
use crate::device::cuda::{Address, Args, Element, GpuError, Grid};

/// What is wanted of a row of logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wish {
    /// So many of the highest.
    pub highest: usize,
    /// One over the temperature at which weights are added up; 0: they are not.
    pub heat: f32,
    /// Which of the masks says what may be drawn; `None`: all may.
    pub mask: Option<usize>,
}

/// What was found in a row of logits among the tokens that may be drawn, or in a rank's part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The highest, as many as were wanted.
    pub highest: Highest,
    /// The highest's logit; minus infinity where no token may be drawn.
    pub max: f32,
    /// The sum of weights, of which the highest's is 1.
    pub sum: f64,
}

/// A draw: the first token with which the weights of a row, added up in the order of tokens, exceed the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// The row.
    pub row: usize,
    /// One over the temperature.
    pub heat: f32,
    /// The logit whose weight is 1.
    pub max: f32,
    /// [`Wish::mask`], as it was surveyed.
    pub mask: Option<usize>,
    /// At most the sum of all.
    pub target: f64,
}

impl GpuDecoder {
    /// Writes logits of `rows` hidden states from number `first` on, of this rank's vocabulary.
    fn compute_logits(
        &self,
        memory: &mut GpuMemory,
        (first, rows): (usize, usize),
    ) -> Result<Address, GpuError> {
        let width = self.config.embedding * self.element.bytes();
        let bytes = rows * self.config.vocab * size_of::<f32>();
        let logits = memory.work.sampling.logits.room(&self.gpu, bytes)?;
        let hidden = memory.work.hidden().at(first * width);
        self.linear(&self.head, &memory.work, (hidden, logits), rows, (Element::F32, false))?;
        Ok(logits)
    }

    /// Logits `[rows, vocab]`, of this rank's vocabulary, of the hidden states that [`Self::forward`] kept.
    pub fn logits(
        &self,
        memory: &mut GpuMemory,
        (first, rows): (usize, usize),
    ) -> Result<Vec<f32>, GpuError> {
        self.compute_logits(memory, (first, rows))?;
        self.surveyed(memory, 0..rows)
    }

    /// What rows that [`Self::forward`] kept, from row `first` on, have of what is wanted of each; tokens from `end` on are not drawn.
    /// `masks`: bits of those that may be, of the whole vocabulary; where one ends nothing more may.
    pub fn survey(
        &self,
        memory: &mut GpuMemory,
        first: usize,
        (wishes, end): (&[Wish], usize),
        masks: &[&[u32]],
    ) -> Result<Vec<Survey>, GpuError> {
        let (vocab, rows) = (self.config.vocab, wishes.len());
        let most = wishes.iter().map(|wish| wish.highest).max().unwrap_or(0);
        let logits = self.compute_logits(memory, (first, rows))?;
        let sampling = &mut memory.work.sampling;
        let masks = self.write_masks(sampling, masks)?;
        let wish = |wish: &Wish| {
            let highest = (wish.highest as u32).to_ne_bytes();
            [highest, wish.heat.to_ne_bytes(), number_of(wish.mask).to_ne_bytes()]
        };
        let asked = self.ask(sampling, &wishes.iter().flat_map(wish).flatten().collect::<Vec<u8>>())?;
        let stride = 4 * (4 + 2 * most);
        let out = sampling.found.room(&self.gpu, rows * stride)?;
        let args = Args::new([Some(logits), masks, Some(asked), Some(out)]).numbers(&[
            vocab,
            self.own_end(end),
            most,
        ]);
        self.launch("survey", None, Grid::rows(rows, 512), args)?;
        let mut found = vec![0; rows * stride];
        self.gpu.read(out, &mut found)?;
        let rows = found.chunks_exact(stride).zip(wishes);
        Ok(rows.map(|(row, wish)| read_survey(row, wish.highest, self.first_token())).collect())
    }

    /// Logits of some rows that were surveyed last, of this rank's vocabulary.
    pub fn surveyed(&self, memory: &GpuMemory, rows: Range<usize>) -> Result<Vec<f32>, GpuError> {
        let width = self.config.vocab * size_of::<f32>();
        let mut bytes = vec![0; rows.len() * width];
        self.gpu.read(memory.work.sampling.logits.address().at(rows.start * width), &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|number| f32::from_ne_bytes(*number)).collect())
    }

    /// The tokens that draws fall on in rows that were surveyed last, with the same `end` and the same masks; `None` where this
    /// rank has no token of any weight.
    pub fn pick(
        &self,
        memory: &mut GpuMemory,
        (picks, end): (&[Pick], usize),
    ) -> Result<Vec<Option<u32>>, GpuError> {
        if picks.is_empty() {
            return Ok(Vec::new());
        }
        let sampling = &mut memory.work.sampling;
        let mut bytes = Vec::with_capacity(picks.len() * 24);
        for Pick { row, heat, max, mask, target } in picks {
            let [row, mask] = [*row as i32, number_of(*mask)].map(i32::to_ne_bytes);
            [row, heat.to_ne_bytes(), max.to_ne_bytes(), mask].iter().for_each(|word| bytes.extend(word));
            bytes.extend(target.to_ne_bytes());
        }
        let asked = self.ask(sampling, &bytes)?;
        let out = sampling.found.room(&self.gpu, picks.len() * size_of::<i32>())?;
        let addresses = [&sampling.logits, &sampling.masks].map(|buffer| Some(buffer.address()));
        let args = Args::new(addresses.into_iter().chain([asked, out].map(Some)))
            .numbers(&[self.config.vocab, self.own_end(end)]);
        self.launch("pick", None, Grid::rows(picks.len(), 512), args)?;
        let mut found = vec![0; picks.len() * size_of::<i32>()];
        self.gpu.read(out, &mut found)?;
        let token = |bytes: &[u8; 4]| u32::try_from(i32::from_ne_bytes(*bytes)).ok();
        Ok(found.as_chunks::<4>().0.iter().map(token).map(|own| Some(own? + self.first_token())).collect())
    }

    /// The first token of this rank's vocabulary.
    fn first_token(&self) -> u32 {
        (self.gpu.rank() * self.config.vocab) as u32
    }

    /// Where of this rank's vocabulary the tokens end that may be drawn.
    fn own_end(&self, end: usize) -> usize {
        end.saturating_sub(self.first_token() as usize).min(self.config.vocab)
    }

    /// Writes what is asked of rows.
    fn ask(&self, sampling: &mut Sampling, bytes: &[u8]) -> Result<Address, GpuError> {
        let asked = sampling.asked.room(&self.gpu, bytes.len())?;
        self.gpu.write(asked, bytes)?;
        Ok(asked)
    }

    /// Writes this rank's part of masks over the whole vocabulary, if there are any.
    fn write_masks(&self, sampling: &mut Sampling, masks: &[&[u32]]) -> Result<Option<Address>, GpuError> {
        if masks.is_empty() {
            return Ok(None);
        }
        let (vocab, first) = (self.config.vocab, self.first_token() as usize);
        let mut bytes = Vec::with_capacity(masks.len() * vocab.div_ceil(32) * size_of::<u32>());
        for mask in masks {
            let word = |at: usize| mask.get(at).copied().unwrap_or(0);
            for bit in (first..first + vocab).step_by(32) {
                // A rank's first token may lie anywhere in a word.
                let both = u64::from(word(bit / 32)) | u64::from(word(bit / 32 + 1)) << 32;
                bytes.extend(((both >> (bit % 32)) as u32).to_ne_bytes());
            }
        }
        let address = sampling.masks.room(&self.gpu, bytes.len())?;
        self.gpu.write(address, &bytes)?;
        Ok(Some(address))
    }
}

/// A mask's number as the kernels read it.
fn number_of(mask: Option<usize>) -> i32 {
    mask.map_or(-1, |number| number as i32)
}

/// A row of what the kernel found, tokens counted from `first`.
fn read_survey(row: &[u8], wanted: usize, first: u32) -> Survey {
    let words = row.as_chunks::<4>().0;
    let float = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
    let sum: [u8; 8] = row[8..16].try_into().expect("eight bytes");
    let (values, tokens) = words[4..].split_at((words.len() - 4) / 2);
    let found = values.iter().zip(tokens).take(wanted);
    let found = found.map(|(value, token)| (float(value), u32::from_ne_bytes(*token)));
    let kept = found.filter(|(value, _)| value.is_finite()).map(|(value, token)| (value, first + token));
    Survey {
        highest: Highest::gathered(wanted, u32::from_ne_bytes(words[0]) == 1, kept.collect()),
        max: float(&words[1]),
        sum: f64::from_ne_bytes(sum),
    }
}
