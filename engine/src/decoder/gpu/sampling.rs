//! Sampling on a GPU: what a draw needs of logits is found where they are, and only that is copied; and so is what
//! says how likely a token of a prompt was.

use std::ops::Range;

use super::launches::Product;
use super::workspace::Sampling;
use super::{GpuDecoder, GpuMemory};
use crate::device::cpu::TopK;
use crate::device::cuda::{Address, Args, Element, GpuError, Grid};

/// Bytes of a [`LogitPlace`] as the kernel writes it.
const PLACE_BYTES: usize = 8;

/// Logits of a piece of a row, and bytes of what is found there: `LOGIT_PIECE` and `LogitPiece` of the kernels.
const LOGIT_PIECE: usize = 8192;
const PIECE_BYTES: usize = 24;

/// What must be known of a row of logits to draw from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleQuery {
    /// So many of the highest.
    pub top_k: usize,
    /// One over the temperature at which weights are added up; 0: they are not.
    pub inverse_temperature: f32,
    /// Which of the masks says what may be drawn; `None`: all may.
    pub mask: Option<usize>,
}

/// Rows of a step, what must be known of each, and which tokens may be drawn.
#[derive(Clone, Copy, Debug)]
pub struct LogitQueries<'a> {
    /// Number of the first row.
    pub first: usize,
    /// Of each row.
    pub queries: &'a [SampleQuery],
    /// Tokens from here on are not drawn.
    pub ids_end: usize,
    /// Bits of tokens that may be drawn, of the whole vocabulary; where one ends nothing more may.
    pub masks: &'a [&'a [u32]],
}

/// What was found in a row of logits among the tokens that may be drawn, or in a rank's part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitStats {
    /// The highest, as many as were wanted.
    pub top_k: TopK,
    /// The highest's logit; minus infinity where no token may be drawn.
    pub max: f32,
    /// The sum of weights, of which the highest's is 1.
    pub sum: f64,
}

/// A draw: the first token with which the weights of a row, added up in the order of tokens, exceed the
/// target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    pub row: usize,
    /// One over the temperature.
    pub inverse_temperature: f32,
    /// The logit whose weight is 1.
    pub max: f32,
    /// [`SampleQuery::mask`], as it was asked for.
    pub mask: Option<usize>,
    /// At most the sum of all.
    pub target: f64,
}

/// A token whose place in a row of logits is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceQuery {
    /// Of the whole vocabulary.
    pub token: u32,
    /// Its logit; `None`: the rank that has the token looks it up.
    pub logit: Option<f32>,
}

/// The place of a token in a row of logits, or in a rank's part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitPlace {
    /// The token's; minus infinity where it is another rank's and was not given.
    pub logit: f32,
    /// How many of those that may be drawn are above it.
    pub above: u32,
}

impl GpuDecoder {
    /// Writes logits of `rows` hidden states from number `first` on, of this rank's vocabulary.
    fn compute_logits(&self, memory: &mut GpuMemory, first: usize, rows: usize) -> Result<Address, GpuError> {
        let width = self.config.embedding * self.element.bytes();
        let bytes = rows * self.config.vocab * size_of::<f32>();
        let logits = memory.work.sampling.logits.room(&self.gpu, bytes)?;
        let (x, out) = (memory.work.hidden().at(first * width), Element::F32);
        let product = Product { weights: &self.head, x, y: logits, rows, out, adds: false };
        self.multiply(&memory.work, product)?;
        Ok(logits)
    }

    /// Logits `[rows, vocab]`, of this rank's vocabulary, of the hidden states that [`Self::forward`] kept.
    pub fn logits(&self, memory: &mut GpuMemory, rows: Range<usize>) -> Result<Vec<f32>, GpuError> {
        self.compute_logits(memory, rows.start, rows.len())?;
        self.queried_logits(memory, 0..rows.len())
    }

    /// What rows that [`Self::forward`] kept have of what is asked of each.
    pub fn query_logits(
        &self,
        memory: &mut GpuMemory,
        asked: LogitQueries<'_>,
    ) -> Result<Vec<LogitStats>, GpuError> {
        let LogitQueries { first, queries, ids_end, masks } = asked;
        let (vocab, rows) = (self.config.vocab, queries.len());
        let most = queries.iter().map(|query| query.top_k).max().unwrap_or(0);
        let logits = self.compute_logits(memory, first, rows)?;
        let sampling = &mut memory.work.sampling;
        let masks = self.write_masks(sampling, masks)?;
        let words = |query: &SampleQuery| {
            let top_k = (query.top_k as u32).to_ne_bytes();
            [top_k, query.inverse_temperature.to_ne_bytes(), number_of(query.mask).to_ne_bytes()]
        };
        let asked = self.ask(sampling, &queries.iter().flat_map(words).flatten().collect::<Vec<u8>>())?;
        let stride = 4 * (4 + 2 * most);
        let out = sampling.found.room(&self.gpu, rows * stride)?;
        let across = vocab.div_ceil(LOGIT_PIECE);
        let pieces = sampling.pieces.room(&self.gpu, rows * across * PIECE_BYTES)?;
        let numbers = [vocab, self.own_end(ids_end), most];
        let args = Args::new([Some(logits), masks, Some(asked), Some(pieces), Some(out)]).numbers(&numbers);
        let grid = Grid { blocks: [across as u32, rows as u32], threads: 512, shared: 0, cluster: 1 };
        self.launch("logit_pieces", None, grid, args.clone())?;
        self.launch("logit_stats", None, Grid::rows(rows, 512), args)?;
        let mut found = vec![0; rows * stride];
        self.gpu.read(out, &mut found)?;
        let rows = found.chunks_exact(stride).zip(queries);
        Ok(rows.map(|(row, query)| read_stats(row, query.top_k, self.first_token())).collect())
    }

    /// Logits of some rows that were asked about last, of this rank's vocabulary.
    pub fn queried_logits(&self, memory: &GpuMemory, rows: Range<usize>) -> Result<Vec<f32>, GpuError> {
        let width = self.config.vocab * size_of::<f32>();
        let mut bytes = vec![0; rows.len() * width];
        self.gpu.read(memory.work.sampling.logits.address().at(rows.start * width), &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|number| f32::from_ne_bytes(*number)).collect())
    }

    /// The tokens that draws fall on in rows that were asked about last, with the same `ids_end` and the same
    /// masks; `None` where this rank has no token of any weight.
    pub fn draw(
        &self,
        memory: &mut GpuMemory,
        draws: &[Draw],
        ids_end: usize,
    ) -> Result<Vec<Option<u32>>, GpuError> {
        if draws.is_empty() {
            return Ok(Vec::new());
        }
        let sampling = &mut memory.work.sampling;
        let mut bytes = Vec::with_capacity(draws.len() * 24);
        for Draw { row, inverse_temperature, max, mask, target } in draws {
            let [row, mask] = [*row as i32, number_of(*mask)].map(i32::to_ne_bytes);
            [row, inverse_temperature.to_ne_bytes(), max.to_ne_bytes(), mask]
                .iter()
                .for_each(|word| bytes.extend(word));
            bytes.extend(target.to_ne_bytes());
        }
        let asked = self.ask(sampling, &bytes)?;
        let out = sampling.found.room(&self.gpu, draws.len() * size_of::<i32>())?;
        let addresses = [&sampling.logits, &sampling.masks].map(|buffer| Some(buffer.address()));
        let pieces = sampling.pieces.address();
        let args = Args::new(addresses.into_iter().chain([asked, pieces, out].map(Some)))
            .numbers(&[self.config.vocab, self.own_end(ids_end)]);
        self.launch("draw", None, Grid::rows(draws.len(), 512), args)?;
        let mut found = vec![0; draws.len() * size_of::<i32>()];
        self.gpu.read(out, &mut found)?;
        let token = |bytes: &[u8; 4]| u32::try_from(i32::from_ne_bytes(*bytes)).ok();
        Ok(found.as_chunks::<4>().0.iter().map(token).map(|own| Some(own? + self.first_token())).collect())
    }

    /// The place of a token in each of the rows that were asked about last.
    pub fn token_places(
        &self,
        memory: &mut GpuMemory,
        queries: &[PlaceQuery],
        ids_end: usize,
    ) -> Result<Vec<LogitPlace>, GpuError> {
        let (vocab, first) = (self.config.vocab, self.first_token());
        let words = |query: &PlaceQuery| {
            let own = query.token.checked_sub(first).filter(|own| (*own as usize) < vocab);
            let own = own.filter(|_| query.logit.is_none()).map_or(-1, |own| own as i32);
            [own.to_ne_bytes(), query.logit.unwrap_or(f32::NEG_INFINITY).to_ne_bytes()]
        };
        let sampling = &mut memory.work.sampling;
        let asked = self.ask(sampling, &queries.iter().flat_map(words).flatten().collect::<Vec<u8>>())?;
        let out = sampling.found.room(&self.gpu, queries.len() * PLACE_BYTES)?;
        let args = Args::new([sampling.logits.address(), asked, out].map(Some))
            .numbers(&[vocab, self.own_end(ids_end)]);
        self.launch("token_places", None, Grid::rows(queries.len(), 512), args)?;
        let mut found = vec![0; queries.len() * PLACE_BYTES];
        self.gpu.read(out, &mut found)?;
        let place = |bytes: &[u8; PLACE_BYTES]| {
            let [l0, l1, l2, l3, above @ ..] = *bytes;
            LogitPlace { logit: f32::from_ne_bytes([l0, l1, l2, l3]), above: u32::from_ne_bytes(above) }
        };
        Ok(found.as_chunks::<PLACE_BYTES>().0.iter().map(place).collect())
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
fn read_stats(row: &[u8], wanted: usize, first: u32) -> LogitStats {
    let words = row.as_chunks::<4>().0;
    let float = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
    let sum: [u8; 8] = row[8..16].try_into().expect("eight bytes");
    let (values, tokens) = words[4..].split_at((words.len() - 4) / 2);
    let found = values.iter().zip(tokens).take(wanted);
    let found = found.map(|(value, token)| (float(value), u32::from_ne_bytes(*token)));
    let kept = found.filter(|(value, _)| value.is_finite()).map(|(value, token)| (value, first + token));
    LogitStats {
        top_k: TopK::gathered(wanted, u32::from_ne_bytes(words[0]) == 1, kept.collect()),
        max: float(&words[1]),
        sum: f64::from_ne_bytes(sum),
    }
}
