//! Texts to unit vectors by a BERT of candle-transformers, in single precision on the CPU.
//!
//! Texts of like lengths are computed together; a vector depends on its own text alone (up to the rounding of
//! products of another shape). The threads are the embedder's own, so that it takes no more of a machine than
//! it was given.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::BertModel;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::folder::{self, Described, Pooling};
use crate::fragment::{self, Cut, FragmentRange};
use crate::tokens::{Ids, TokenizedTexts, TokenizerPair};

/// The file of weights.
const WEIGHTS: &str = "model.safetensors";
/// Largest file of weights.
const WEIGHT_BYTES_MAX: u64 = 16 << 30;
/// Most tokens that are computed at once, padding included: what is held in memory between layers grows with
/// it.
const BATCH_TOKENS: usize = 2_048;
/// Below this length a vector has no direction.
const LENGTH_MIN: f64 = 1e-12;

/// A text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Of length 1.
    pub vector: Vec<f32>,
    /// Tokens that were computed, special ones included.
    pub tokens: usize,
    /// Whether the text was longer than the model reads, so that its end has no part in the vector.
    pub is_truncated: bool,
}

/// An embedding model.
pub struct Embedder {
    model: BertModel,
    tokens: TokenizerPair,
    pooling: Pooling,
    dims: usize,
    tokens_max: usize,
    revision: [u8; 32],
    threads: ThreadPool,
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pooling, dims, tokens_max, .. } = self;
        write!(f, "Embedder {{ dims: {dims}, tokens_max: {tokens_max}, pooling: {pooling:?} }}")
    }
}

impl Embedder {
    /// Reads a model's folder, to be run on `threads` threads.
    pub fn load(folder: &Path, threads: usize) -> Result<Self, Error> {
        let described = folder::describe(folder)?;
        let config = &described.config;
        let tokenizer = folder.join("tokenizer.json");
        let tokens =
            TokenizerPair::read(&tokenizer, &described.tokenizer, config.vocab_size, described.tokens_max)?;
        let path = folder.join(WEIGHTS);
        let (model, weights) = model(&path, &described)?;
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("relserve-embed-{number}"))
            .build()
            .map_err(|error| Error::Model(error.to_string()))?;
        let embedder = Self {
            model,
            tokens,
            pooling: described.pooling,
            dims: config.hidden_size,
            tokens_max: described.tokens_max,
            revision: revision(&described, &weights),
            threads,
        };
        // Weights that are no numbers show here, not at a client's text.
        embedder.embed(&["The first text."], &|| false).map_err(|error| Error::file(&path, error))?;
        Ok(embedder)
    }

    /// Numbers of a vector.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Most tokens of a fragment that the model reads whole.
    pub fn fragment_tokens_max(&self) -> usize {
        self.tokens_max - self.tokens.specials
    }

    /// The model's identity: a hash of all that decides a vector. Vectors of one identity can be compared.
    pub fn revision(&self) -> [u8; 32] {
        self.revision
    }

    /// Cuts a text into fragments.
    pub fn fragments(&self, text: &str, cut: Cut) -> Result<Vec<FragmentRange>, Error> {
        cut.validate()?;
        if cut.tokens_max > self.fragment_tokens_max() {
            let reason =
                format!("must be at most {}, what the embedding model reads", self.fragment_tokens_max());
            return Err(Error::Invalid { field: "fragment_tokens", reason });
        }
        Ok(fragment::cut(text, self.tokens.spans(text)?, cut))
    }

    /// The vectors of texts, in their order. `stop` is asked between batches; where it says so,
    /// [`Error::Stopped`], which says what was computed.
    pub fn embed(&self, texts: &[&str], stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Embedding>, Error> {
        self.embed_tokenized(self.tokenize(texts, stop)?, stop)
    }

    /// Texts as the model reads them: what they take is known before anything is computed. `stop` as in [`Self::embed`].
    pub fn tokenize(
        &self,
        texts: &[&str],
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<TokenizedTexts, Error> {
        let ids = |text: &&str| match stop() {
            true => Err(Error::Stopped { texts: 0, tokens: 0 }),
            false => self.tokens.ids(text),
        };
        texts.iter().map(ids).collect::<Result<_, _>>().map(TokenizedTexts)
    }

    /// The vectors of texts that this embedder has tokenized, as [`Self::embed`] gives them.
    pub fn embed_tokenized(
        &self,
        texts: TokenizedTexts,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Embedding>, Error> {
        self.threads.install(|| self.compute(texts.0, stop))
    }

    fn compute(&self, ids: Vec<Ids>, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Embedding>, Error> {
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|text| ids[*text].ids.len());
        let mut vectors: Vec<Option<Vec<f32>>> = vec![None; ids.len()];
        let mut rest = order.as_slice();
        let (mut texts, mut tokens) = (0, 0);
        while !rest.is_empty() {
            if stop() {
                return Err(Error::Stopped { texts, tokens });
            }
            let (batch, later) = rest.split_at(batch_of(rest, &ids));
            let rows: Vec<&[u32]> = batch.iter().map(|text| ids[*text].ids.as_slice()).collect();
            for (text, vector) in batch.iter().zip(self.forward(&rows)?) {
                vectors[*text] = Some(unit(vector).ok_or(Error::Unsound { text: *text })?);
            }
            texts += batch.len() as u64;
            tokens += batch.iter().map(|text| ids[*text].ids.len() as u64).sum::<u64>();
            rest = later;
        }
        let embedding = |(vector, ids): (Option<Vec<f32>>, Ids)| Embedding {
            vector: vector.expect("each text is in one batch"),
            tokens: ids.ids.len(),
            is_truncated: ids.is_truncated,
        };
        Ok(vectors.into_iter().zip(ids).map(embedding).collect())
    }

    /// The pooled vectors of texts of like lengths; shorter ones are padded, which the mask hides.
    fn forward(&self, rows: &[&[u32]]) -> candle_core::Result<Vec<Vec<f32>>> {
        let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in rows {
            ids.extend_from_slice(row);
            ids.resize(ids.len() + width - row.len(), 0);
            mask.resize(mask.len() + row.len(), 1_f32);
            mask.resize(mask.len() + width - row.len(), 0_f32);
        }
        let ids = Tensor::from_vec(ids, (rows.len(), width), &Device::Cpu)?; // [texts, tokens]
        let mask = Tensor::from_vec(mask, (rows.len(), width), &Device::Cpu)?; // [texts, tokens]
        let hidden = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?; // [texts, tokens, dims]
        let pooled = match self.pooling {
            Pooling::First => hidden.narrow(1, 0, 1)?.squeeze(1)?,
            Pooling::Mean => {
                let sum = hidden.broadcast_mul(&mask.unsqueeze(D::Minus1)?)?.sum(1)?;
                sum.broadcast_div(&mask.sum_keepdim(1)?)?
            }
        };
        pooled.to_vec2() // [texts, dims]
    }
}

/// How many of the texts in order of length are computed together.
fn batch_of(order: &[usize], ids: &[Ids]) -> usize {
    let fits = |count: &usize| count * ids[order[count - 1]].ids.len() <= BATCH_TOKENS;
    (1..=order.len()).take_while(fits).last().unwrap_or(1)
}

/// A vector's direction; none where it has none.
fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !(length.is_finite() && length >= LENGTH_MIN) {
        return None;
    }
    for x in &mut vector {
        *x = (f64::from(*x) / length) as f32;
    }
    Some(vector)
}

/// Reads the weights, and gives their bytes too.
fn model(path: &Path, described: &Described) -> Result<(BertModel, Vec<u8>), Error> {
    let bytes = std::fs::metadata(path).map_err(|error| Error::file(path, error))?.len();
    if bytes > WEIGHT_BYTES_MAX {
        return Err(Error::file(path, format!("has {bytes} bytes, more than {WEIGHT_BYTES_MAX}")));
    }
    let bytes = std::fs::read(path).map_err(|error| Error::file(path, error))?;
    let bad = |error: candle_core::Error| Error::file(path, error);
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).map_err(bad)?;
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    Ok((BertModel::load(weights, &described.config).map_err(bad)?, bytes))
}

/// A hash of all that decides a vector.
fn revision(described: &Described, weights: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in described.texts.iter().chain([&described.tokenizer]).map(Vec::as_slice).chain([weights]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_without_a_direction_is_none() {
        assert_eq!(unit(vec![3.0, 4.0]), Some(vec![0.6, 0.8]));
        assert_eq!(unit(vec![0.0, 0.0]), None);
        assert_eq!(unit(vec![f32::NAN, 1.0]), None);
        assert_eq!(unit(vec![f32::INFINITY, 1.0]), None);
    }

    #[test]
    fn a_batch_holds_no_more_tokens_than_it_may_and_one_text_at_least() {
        let ids = |count| Ids { ids: vec![0; count], is_truncated: false };
        let texts = [ids(1), ids(500), ids(1_000), ids(1_100), ids(4_000)];
        assert_eq!(batch_of(&[0, 1, 2, 3, 4], &texts), 2);
        assert_eq!(batch_of(&[2, 3, 4], &texts), 1);
        assert_eq!(batch_of(&[4], &texts), 1);
    }
}
