//! The tensors of a GGUF file under the names, and in the row order, of the Hugging Face checkpoint it was
//! made of. Queries, keys and values that Falcon and MPT have in one tensor stay so: they are stacked.
//!
//! Blocks are turned to bf16, which rounds no more than the finest of them (Q8_0) has rounded already, or to single
//! precision, as ggml means them; they are also handed out as they are, to a device that multiplies them.

use std::borrow::Cow;

use half::bf16;

use super::file::Gguf;
use super::names::TensorNames;
use crate::checkpoint::config::{Family, ModelConfig};
use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::weights::{BlockMatrix, RawTensor, WeightSource};

/// The tensors of a file.
#[derive(Debug)]
pub struct GgufWeights {
    gguf: Gguf,
    names: TensorNames,
    /// The width of a head whose query and key rows lie as interleaved pairs; `None` where they lie in
    /// halves.
    interleaved: Option<usize>,
}

impl GgufWeights {
    /// The weights of `gguf`, whose configuration is `config`.
    pub fn new(gguf: Gguf, config: &ModelConfig) -> Self {
        // The converter of arch `llama` permutes queries and keys for ggml's "norm" rotation, which turns
        // neighbours; the other architectures use "neox", which turns halves, as Hugging Face does.
        let interleaved = (config.family == Family::Llama).then_some(config.head_dim);
        Self { gguf, names: TensorNames::of(config), interleaved }
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// A tensor; of one in blocks the numbers have this type, as which `bytes` writes them.
    fn plain<const N: usize>(
        &self,
        name: &str,
        of_blocks: Dtype,
        bytes: impl Fn(f32) -> [u8; N],
    ) -> Result<RawTensor<'_>, CheckpointError> {
        let missing = || CheckpointError::MissingTensor { name: name.to_owned() };
        let (shape, format, data) = self.gguf.tensor(&self.names.to_gguf(name).ok_or_else(missing)?)?;
        let (dtype, data) = match format.plain() {
            Some(dtype) => (dtype, Cow::Borrowed(data)),
            None => {
                let mut numbers = Vec::with_capacity(data.len() / format.bytes() * format.elements() * N);
                // A stretch at a time: all of them in single precision may be twice as many bytes again.
                for stretch in data.chunks(format.bytes() * 1024) {
                    numbers.extend(format.to_f32(stretch).into_iter().flat_map(&bytes));
                }
                (of_blocks, Cow::Owned(numbers))
            }
        };
        let data = self.ordered(name, shape, data);
        Ok(RawTensor { dtype, shape: shape.to_vec(), data })
    }

    /// The rows of a tensor where they should be.
    fn ordered<'a>(&self, name: &str, shape: &[usize], data: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        match (self.order(name), shape.first()) {
            (Some(order), Some(rows)) if *rows > 0 => Cow::Owned(reordered(&data, *rows, order)),
            _ => data,
        }
    }

    /// The row of the file that is row `row` of `name`, for all rows that are not where they should be.
    fn order(&self, name: &str) -> Option<impl Fn(usize) -> usize + use<>> {
        let is_rotated = name.contains(".q_proj.") || name.contains(".k_proj.");
        let width = self.interleaved.filter(|_| is_rotated)?;
        Some(move |row: usize| {
            let (head, within) = (row / width, row % width);
            let (half, pair) = (within / (width / 2), within % (width / 2));
            head * width + 2 * pair + half
        })
    }
}

impl WeightSource for GgufWeights {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.plain(name, Dtype::Bf16, |number| bf16::from_f32(number).to_le_bytes())
    }

    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.plain(name, Dtype::F32, f32::to_le_bytes)
    }

    fn blocks(&self, name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        let missing = || CheckpointError::MissingTensor { name: name.to_owned() };
        let (shape, format, data) = self.gguf.tensor(&self.names.to_gguf(name).ok_or_else(missing)?)?;
        Ok(match (format.plain(), shape) {
            (None, [_, inputs]) => {
                let data = self.ordered(name, shape, Cow::Borrowed(data));
                Some(BlockMatrix { format, inputs: *inputs, data })
            }
            _ => None,
        })
    }

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        let missing = || CheckpointError::MissingTensor { name: name.to_owned() };
        let (shape, format, _) = self.gguf.tensor(&self.names.to_gguf(name).ok_or_else(missing)?)?;
        Ok((format.plain().unwrap_or(Dtype::Bf16), shape.to_vec()))
    }

    fn will_read(&self, name: &str) {
        if let Some(name) = self.names.to_gguf(name) {
            self.gguf.will_read(&name);
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.gguf.names().filter_map(|name| self.names.hub_name(name)).collect();
        names.sort();
        names
    }
}

/// Rows in another order. One that points past the end is left out: the shape is not the configuration's, and
/// is refused for that.
fn reordered(data: &[u8], rows: usize, source: impl Fn(usize) -> usize) -> Vec<u8> {
    let width = data.len() / rows;
    let row = |row: usize| data.get(source(row) * width..(source(row) + 1) * width).unwrap_or_default();
    (0..rows).flat_map(|index| row(index).iter().copied()).collect()
}
