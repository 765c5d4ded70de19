//! A model's tensors under the names that it asks for, where checkpoints store them otherwise: queries, keys and
//! values in one tensor, or a text model as a part of one that sees images too.
//!
//! MPT stacks the three. Falcon has, for each key-value head, the queries that read it, its key and its value;
//! which covers its three ways of sharing keys: one head for all queries, one for some, one for each.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::checkpoint::config::{Family, ModelConfig};
use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::names::{LayerNames, bias, layer_names, model_names, weight};
use crate::checkpoint::shapes::expected_tensors;
use crate::checkpoint::weights::{BlockMatrix, MapWeights, RawTensor, WeightSource};

/// Tensors of a source, fused ones taken apart.
#[derive(Debug)]
pub struct Unfused<S> {
    source: S,
    /// Where the rows of a tensor are that the source has as a part of another.
    parts: HashMap<String, FusedPart>,
    /// What the source has in place of [`TEXT`].
    prefix: Option<&'static str>,
}

/// What stands before the names of a text model's tensors.
const TEXT: &str = "model.";

/// The same where it is a part of another model: as Gemma 3 is published, and as transformers names it inside.
const TEXT_IN_OTHERS: [&str; 2] = ["language_model.model.", "model.language_model."];

/// Some rows of a fused tensor.
#[derive(Debug)]
struct FusedPart {
    /// The fused tensor.
    whole: String,
    /// Rows that it must have.
    rows: usize,
    /// Into how many equal pieces it is cut.
    pieces: usize,
    /// The rows of each piece that are the part's.
    first: usize,
    count: usize,
}

impl<S: WeightSource> Unfused<S> {
    /// The tensors that a model of this configuration asks for, out of a Hugging Face checkpoint.
    pub fn new(source: S, config: &ModelConfig) -> Self {
        Self::in_pieces(source, config, pieces(config))
    }

    /// The same out of a source that has queries, keys and values of every family behind each other (GGUF).
    pub fn stacked(source: S, config: &ModelConfig) -> Self {
        Self::in_pieces(source, config, 1)
    }

    fn in_pieces(source: S, config: &ModelConfig, pieces: usize) -> Self {
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let stretches = [
            (0, queries / pieces),
            (queries / pieces, keys / pieces),
            ((queries + keys) / pieces, keys / pieces),
        ];
        let embedding = weight(&model_names(config.family).embedding);
        let has = |name: &str| source.layout(name).is_ok();
        let prefix = embedding.strip_prefix(TEXT).and_then(|embedding| {
            TEXT_IN_OTHERS.into_iter().find(|prefix| has(&format!("{prefix}{embedding}")))
        });
        let mut parts = HashMap::new();
        // As many layers as a damaged configuration may state: no more than there is a tensor for.
        for names in (0..config.layers).map(|layer| layer_names(config, layer)) {
            let Some(fused) = names.qkv else { break };
            if !has(&weight(&fused)) {
                break; // refused by its name, as missing
            }
            for (module, (first, count)) in [names.q, names.k, names.v].iter().zip(stretches) {
                for name in [weight, bias] {
                    let (whole, rows) = (name(&fused), queries + 2 * keys);
                    parts.insert(name(module), FusedPart { whole, rows, pieces, first, count });
                }
            }
        }
        Self { source, parts, prefix }
    }

    /// What the source calls a tensor that is no part of another.
    fn stored_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match (self.prefix, name.strip_prefix(TEXT)) {
            (Some(prefix), Some(rest)) => Cow::Owned(format!("{prefix}{rest}")),
            _ => Cow::Borrowed(name),
        }
    }

    /// The other way round.
    fn own_name(&self, stored: String) -> String {
        match self.prefix.and_then(|prefix| stored.strip_prefix(prefix)) {
            Some(rest) => format!("{TEXT}{rest}"),
            None => stored,
        }
    }

    /// A tensor as `read` gives those of the source.
    fn read<'a>(
        &'a self,
        name: &str,
        read: impl Fn(&'a S, &str) -> Result<RawTensor<'a>, CheckpointError>,
    ) -> Result<RawTensor<'a>, CheckpointError> {
        let Some(part) = self.parts.get(name) else {
            return read(&self.source, &self.stored_name(name));
        };
        let RawTensor { dtype, shape, data } = read(&self.source, &part.whole)?;
        Ok(RawTensor { dtype, shape: part.shape(&shape)?, data: part.rows(data) })
    }

    /// The tensors as they are stored.
    pub fn stored(&self) -> &S {
        &self.source
    }
}

impl FusedPart {
    /// The shape of the part, where the whole has the right one.
    fn shape(&self, whole: &[usize]) -> Result<Vec<usize>, CheckpointError> {
        let mut shape = whole.to_vec();
        match shape.first_mut() {
            Some(rows) if *rows == self.rows => *rows = self.pieces * self.count,
            _ => {
                let expected = std::iter::once(self.rows).chain(whole.iter().skip(1).copied()).collect();
                let name = self.whole.clone();
                return Err(CheckpointError::WrongShape { name, found: whole.to_vec(), expected });
            }
        }
        Ok(shape)
    }

    /// The bytes of its rows.
    fn rows<'a>(&self, data: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let row = data.len() / self.rows;
        let (piece, bytes) =
            (self.rows / self.pieces * row, self.first * row..(self.first + self.count) * row);
        match data {
            Cow::Borrowed(data) if self.pieces == 1 => Cow::Borrowed(&data[bytes]),
            data => {
                data.chunks_exact(piece.max(1)).flat_map(|piece| &piece[bytes.clone()]).copied().collect()
            }
        }
    }
}

impl<S: WeightSource> WeightSource for Unfused<S> {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.read(name, S::tensor)
    }

    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.read(name, S::exact)
    }

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        let Some(part) = self.parts.get(name) else {
            return self.source.layout(&self.stored_name(name));
        };
        let (dtype, shape) = self.source.layout(&part.whole)?;
        Ok((dtype, part.shape(&shape)?))
    }

    fn blocks(&self, name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        let Some(part) = self.parts.get(name) else {
            return self.source.blocks(&self.stored_name(name));
        };
        part.shape(&self.source.layout(&part.whole)?.1)?;
        let blocks = self.source.blocks(&part.whole)?;
        Ok(blocks.map(|whole| BlockMatrix { data: part.rows(whole.data), ..whole }))
    }

    fn will_read(&self, name: &str) {
        match self.parts.get(name) {
            Some(part) => self.source.will_read(&part.whole),
            None => self.source.will_read(&self.stored_name(name)),
        }
    }

    fn names(&self) -> Vec<String> {
        let stored = self.source.names();
        let parts = self.parts.iter().filter(|(_, part)| stored.contains(&part.whole));
        let mut names: Vec<String> = parts.map(|(name, _)| name.clone()).collect();
        let others = stored.into_iter().filter(|name| !self.parts.values().any(|part| part.whole == *name));
        names.extend(others.map(|name| self.own_name(name)));
        names.sort();
        names
    }
}

/// Into how many pieces a family's Hugging Face checkpoints cut queries, keys and values.
fn pieces(config: &ModelConfig) -> usize {
    if config.family == Family::Falcon { config.kv_heads } else { 1 }
}

/// A model's weights as its family's Hugging Face checkpoints store them: the other way round, for writers.
pub(crate) fn fused(weights: &dyn WeightSource, config: &ModelConfig) -> Result<MapWeights, CheckpointError> {
    in_pieces(weights, config, pieces(config))
}

/// The same as GGUF stores them.
pub(crate) fn stacked(
    weights: &dyn WeightSource,
    config: &ModelConfig,
) -> Result<MapWeights, CheckpointError> {
    in_pieces(weights, config, 1)
}

fn in_pieces(
    weights: &dyn WeightSource,
    config: &ModelConfig,
    pieces: usize,
) -> Result<MapWeights, CheckpointError> {
    let mut stored = MapWeights::default();
    let all: Vec<LayerNames> = (0..config.layers).map(|layer| layer_names(config, layer)).collect();
    let in_layer = |name: &String| {
        all.iter()
            .filter(|names| names.qkv.is_some())
            .flat_map(|names| [&names.q, &names.k, &names.v])
            .any(|module| [weight(module), bias(module)].contains(name))
    };
    for (name, _) in expected_tensors(config).filter(|(name, _)| !in_layer(name)) {
        let tensor = weights.tensor(&name)?;
        stored.insert(&name, tensor.dtype, &tensor.shape, &tensor.to_f32());
    }
    for names in &all {
        let Some(whole) = &names.qkv else { continue };
        for kind in [weight, bias] {
            let parts = [&names.q, &names.k, &names.v].map(|module| weights.tensor(&kind(module)));
            let [Ok(q), Ok(k), Ok(v)] = parts else { continue };
            let mut shape = q.shape.clone();
            shape[0] += k.shape[0] + v.shape[0];
            let parts = [&q, &k, &v].map(RawTensor::to_f32);
            let stretch = |part: &Vec<f32>, piece: usize| {
                let len = part.len() / pieces;
                part[piece * len..(piece + 1) * len].to_vec()
            };
            let values: Vec<f32> = (0..pieces)
                .flat_map(|piece| parts.each_ref().map(|part| stretch(part, piece)).concat())
                .collect();
            stored.insert(&kind(whole), q.dtype, &shape, &values);
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Synthetic;
    use crate::checkpoint::config::Residual;
    use crate::decoder::tests_config;

    /// Rows of a fused tensor of one number each, which say where they lie, and the part's.
    fn rows(family: Family, (heads, kv_heads): (usize, usize), part: &str) -> Vec<f32> {
        let config = ModelConfig { family, heads, kv_heads, head_dim: 2, layers: 1, ..tests_config() };
        let count = 2 * (heads + 2 * kv_heads);
        let mut weights = MapWeights::default();
        let numbers: Vec<f32> = (0..count).map(|row| row as f32).collect();
        let names = layer_names(&config, 0);
        let fused = names.qkv.clone().expect("it is fused");
        weights.insert(&weight(&fused), Dtype::F32, &[count, 1], &numbers);
        let unfused = Unfused::new(weights, &config);
        let module =
            [("q", names.q), ("k", names.k), ("v", names.v)].into_iter().find(|(name, _)| *name == part);
        let name = weight(&module.expect("one of three").1);
        let tensor = unfused.tensor(&name).expect("it is there");
        assert_eq!(unfused.layout(&name).expect("it is there").1, tensor.shape);
        assert_eq!(tensor.shape, [tensor.elements(), 1]);
        tensor.to_f32()
    }

    #[test]
    fn what_is_fused_is_taken_apart_again() {
        for (family, kv_heads) in
            [(Family::Mpt, 4), (Family::Falcon, 1), (Family::Falcon, 2), (Family::Falcon, 4)]
        {
            let mut model = Synthetic::tiny(family, 3);
            model.config.kv_heads = kv_heads;
            (model.config.qkv_bias, model.config.residual) = (true, Residual::Sequential);
            let (weights, config) = (model.weights(), &model.config);
            let fused = Unfused::new(fused(&weights, config).expect("complete"), config);
            let stacked = Unfused::stacked(stacked(&weights, config).expect("complete"), config);
            for name in weights.names() {
                let tensor = weights.tensor(&name).expect("it is there");
                assert_eq!(fused.tensor(&name).expect("it is there"), tensor, "{name}");
                assert_eq!(stacked.tensor(&name).expect("it is there"), tensor, "{name}");
            }
            assert_eq!((fused.names(), stacked.names()), (weights.names(), weights.names()));
        }
    }

    #[test]
    fn parts_are_where_each_layout_has_them() {
        // Stacked: all queries, all keys, all values.
        assert_eq!(rows(Family::Mpt, (2, 2), "q"), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(rows(Family::Mpt, (2, 2), "v"), [8.0, 9.0, 10.0, 11.0]);
        // One key-value head for all queries.
        assert_eq!(rows(Family::Falcon, (3, 1), "q"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(rows(Family::Falcon, (3, 1), "k"), [6.0, 7.0]);
        // One for each query.
        assert_eq!(rows(Family::Falcon, (2, 2), "q"), [0.0, 1.0, 6.0, 7.0]);
        assert_eq!(rows(Family::Falcon, (2, 2), "k"), [2.0, 3.0, 8.0, 9.0]);
        // One for two.
        assert_eq!(rows(Family::Falcon, (4, 2), "v"), [6.0, 7.0, 14.0, 15.0]);
    }

    #[test]
    fn a_text_model_is_found_inside_one_that_sees_images() {
        let model = Synthetic::tiny(Family::Gemma3, 3);
        let (weights, config) = (model.weights(), &model.config);
        for prefix in TEXT_IN_OTHERS {
            let mut others = MapWeights::default();
            others.insert("vision_tower.patch.weight", Dtype::F32, &[1], &[0.5]);
            for name in weights.names() {
                let tensor = weights.tensor(&name).expect("it is there");
                let stored = name.replacen(TEXT, prefix, 1);
                others.insert(&stored, tensor.dtype, &tensor.shape, &tensor.to_f32());
            }
            let found = Unfused::new(others, config);
            for (name, shape) in expected_tensors(config) {
                assert_eq!(found.layout(&name).expect("it is there").1, shape);
                assert_eq!(found.tensor(&name).expect("it is there"), weights.tensor(&name).expect("too"));
            }
            assert_eq!(found.names(), [weights.names(), vec!["vision_tower.patch.weight".into()]].concat());
            let missing = found.tensor("model.other.weight").expect_err("refused").to_string();
            assert!(missing.contains(&format!("{prefix}other.weight")), "{missing}");
        }
    }

    #[test]
    fn a_fused_tensor_of_another_height_is_refused_by_its_own_name() {
        let config = ModelConfig { family: Family::Mpt, kv_heads: 4, ..tests_config() };
        let mut weights = MapWeights::default();
        weights.insert("transformer.blocks.0.attn.Wqkv.weight", Dtype::F32, &[5, 2], &[0.0; 10]);
        let unfused = Unfused::new(weights, &config);
        let error =
            unfused.tensor("transformer.blocks.0.attn.k_proj.weight").expect_err("refused").to_string();
        let name = "tensor `transformer.blocks.0.attn.Wqkv.weight`";
        assert_eq!(error, format!("{name} has shape [5, 2], the configuration asks for [96, 2]"));
        let missing = unfused.tensor("transformer.blocks.1.attn.k_proj.weight").expect_err("refused");
        assert!(matches!(missing, CheckpointError::MissingTensor { .. }));
    }
}
