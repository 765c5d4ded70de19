//! Where weights come from: tensors by name, whatever file, folder or buffer holds them.
//!
//! A source hands out raw bytes; it must not know which tensors a model needs or what for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;

/// A tensor as it lies in its file: row-major, little endian, possibly unaligned.
#[derive(Clone, Debug, PartialEq)]
pub struct RawTensor<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Extent per dimension, outermost first.
    pub shape: Vec<usize>,
    /// `shape` elements of `dtype`; the length is checked by whoever built this.
    pub data: Cow<'a, [u8]>,
}

impl RawTensor<'_> {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.data.len() / self.dtype.bytes()
    }

    /// Row `index` of a matrix whose rows are as long as `row`, widened to single precision.
    pub fn read_row(&self, index: usize, row: &mut [f32]) {
        let size = row.len() * self.dtype.bytes();
        let data = &self.data[index * size..(index + 1) * size];
        let words = data.as_chunks::<2>().0;
        match self.dtype {
            Dtype::F32 => fill(row, data.as_chunks::<4>().0, |word| f32::from_le_bytes(*word)),
            Dtype::F16 => fill(row, words, |word| half::f16::from_le_bytes(*word).to_f32()),
            Dtype::Bf16 => fill(row, words, |word| half::bf16::from_le_bytes(*word).to_f32()),
        }
    }

    /// All elements, widened to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => {
                self.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            Dtype::F16 => {
                self.data.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            Dtype::Bf16 => {
                self.data.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
        }
    }
}

/// `row[k] = value(words[k])`.
fn fill<W>(row: &mut [f32], words: &[W], value: impl Fn(&W) -> f32) {
    row.iter_mut().zip(words).for_each(|(to, word)| *to = value(word));
}

/// A matrix in blocks of integers, as it lies in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMatrix<'a> {
    /// How its blocks are stored.
    pub format: BlockFormat,
    /// Numbers of a row: whole blocks.
    pub inputs: usize,
    /// Rows of blocks.
    pub data: Cow<'a, [u8]>,
}

impl BlockMatrix<'_> {
    /// Its rows.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.data.chunks_exact((self.inputs / self.format.elements() * self.format.bytes()).max(1))
    }

    /// Whether its integers are of four bits.
    pub fn has_four_bits(&self) -> bool {
        matches!(self.format, BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K)
    }
}

/// Tensors by name.
pub trait WeightSource: Sync {
    /// The tensor called `name`; [`CheckpointError::MissingTensor`] where there is none.
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError>;

    /// The same with nothing rounded: of what is stored as integers, for which [`Self::tensor`] has a plain type of fewer
    /// bits, in single precision. For whoever keeps that, or rounds it to integers of their own.
    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.tensor(name)
    }

    /// Type and shape of [`Self::tensor`] alone, where those cost less than its numbers.
    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        self.tensor(name).map(|tensor| (tensor.dtype, tensor.shape))
    }

    /// The matrix called `name` in blocks of integers, where that is how it is stored: for a device that multiplies
    /// such as they are.
    fn blocks(&self, _name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        Ok(None)
    }

    /// Says that the tensor called `name` is read soon: who has it on a disk has it fetched meanwhile. Nothing is
    /// promised, and a name that is not there is no error.
    fn will_read(&self, _name: &str) {}

    /// All names, sorted.
    fn names(&self) -> Vec<String>;
}

/// Tensors built in memory: for tests, and for writers of checkpoints.
#[derive(Clone, Debug, Default)]
pub struct MapWeights {
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

impl MapWeights {
    /// Adds a tensor, rounding `values` to `dtype`.
    ///
    /// # Panics
    /// When `values` does not fill `shape`: the caller made both.
    pub fn insert(&mut self, name: &str, dtype: Dtype, shape: &[usize], values: &[f32]) {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "values of {name} fill its shape");
        let data = match dtype {
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
            Dtype::Bf16 => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        };
        self.tensors.insert(name.to_owned(), (dtype, shape.to_vec(), data));
    }

    /// Removes a tensor; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.tensors.remove(name).is_some()
    }
}

impl WeightSource for MapWeights {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        match self.tensors.get(name) {
            Some((dtype, shape, data)) => {
                Ok(RawTensor { dtype: *dtype, shape: shape.clone(), data: data.into() })
            }
            None => Err(CheckpointError::MissingTensor { name: name.to_owned() }),
        }
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_back_its_values_rounded_to_their_type() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let mut map = MapWeights::default();
            map.insert("a", dtype, &[2, 2], &[1.0, -0.5, 0.25, 3.0]);
            let tensor = map.tensor("a").expect("it was inserted");
            assert_eq!((tensor.shape.clone(), tensor.elements()), (vec![2, 2], 4));
            assert_eq!(tensor.to_f32(), [1.0, -0.5, 0.25, 3.0]);
            assert!(matches!(map.tensor("b"), Err(CheckpointError::MissingTensor { name }) if name == "b"));
        }
    }
}
