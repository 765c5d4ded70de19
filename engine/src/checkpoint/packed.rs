//! Checkpoints of AWQ (arXiv 2306.00978) and GPTQ (arXiv 2210.17323): four-bit integers of a few inputs or outputs in a
//! word, a scale and a zero point for each output and group of inputs, to the rows that a model asks for.
//!
//! `weight = scale * (number - zero)` is a number above a minimum, as a block of ggml's Q4_1 has it: such blocks are handed out
//! to devices that multiply them. There the minimum `-scale * zero` is rounded to half precision, 2^-11 of itself.

use rayon::prelude::*;
use serde_json::Value;

use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields, parse_object};
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::safetensors::Safetensors;
use crate::checkpoint::weights::{BlockMatrix, RawTensor, WeightSource};

/// The object of config.json that says how weights are stored in fewer bits.
const FIELD: &str = "quantization_config";

/// Numbers in a word.
const IN_WORD: usize = 8;

/// Where AWQ has the number of each of eight outputs in its word.
const AWQ_PLACES: [usize; IN_WORD] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Inputs of the groups that devices multiply, whose multiples the stored ones must be.
const GROUP: usize = 32;

/// What integers lie beside each other in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// AWQ's: eight outputs.
    Outputs,
    /// GPTQ's: eight inputs. Zero points are stored so much below what they are.
    Inputs { zeros_below: u8 },
}

/// How a checkpoint stores its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedForm {
    packing: Packing,
    /// Inputs under one scale; `None`: all.
    group: Option<usize>,
}

impl PackedForm {
    /// Reads it from the text of a config.json; `None` where weights are stored as plain numbers.
    pub fn read(text: &str) -> Result<Option<Self>, CheckpointError> {
        let value = parse_object(CONFIG_FILE, text)?;
        Self::of(&Fields::of(CONFIG_FILE, "", &value).expect("parse_object gives an object"))
    }

    /// The same from its fields.
    pub(crate) fn of(config: &Fields<'_>) -> Result<Option<Self>, CheckpointError> {
        let Some(value) = config.get(FIELD) else { return Ok(None) };
        let fields = Fields::of(CONFIG_FILE, "quantization_config.", value);
        let fields = fields.ok_or_else(|| config.error(FIELD, "must be an object"))?;
        let packing = match fields.text("quant_method")? {
            Some("awq") => {
                let version = fields.text("version")?.unwrap_or("gemm");
                if !version.eq_ignore_ascii_case("gemm") {
                    return Err(fields.error("version", format!("`{version}` is not supported, only `gemm`")));
                }
                fields.only("zero_point", &Value::Bool(true))?;
                Packing::Outputs
            }
            Some("gptq") => {
                // With it inputs of a group lie anywhere.
                fields.only("desc_act", &Value::Bool(false))?;
                match fields.text("checkpoint_format")? {
                    None | Some("gptq") => Packing::Inputs { zeros_below: 1 },
                    Some("gptq_v2") => Packing::Inputs { zeros_below: 0 },
                    Some(other) => {
                        let reason = format!("`{other}` is not supported, only `gptq` and `gptq_v2`");
                        return Err(fields.error("checkpoint_format", reason));
                    }
                }
            }
            Some(other) => {
                let reason = format!("`{other}` is not supported, only `awq` and `gptq`");
                return Err(fields.error("quant_method", reason));
            }
            None => return Err(fields.error("quant_method", "is missing")),
        };
        if fields.get("bits").is_none() {
            return Err(fields.error("bits", "is missing"));
        }
        fields.only("bits", &Value::from(4))?;
        // Other bits for some modules.
        if fields.get("dynamic").is_some_and(|rules| rules.as_object().is_none_or(|rules| !rules.is_empty()))
        {
            return Err(fields.error("dynamic", "is not supported"));
        }
        let group = match fields.get("group_size").map(Value::as_i64) {
            Some(Some(-1)) => None,
            Some(Some(size)) if size > 0 && size % GROUP as i64 == 0 => Some(size as usize),
            Some(_) => {
                let reason = format!("must be -1 or a multiple of {GROUP}");
                return Err(fields.error("group_size", reason));
            }
            None => return Err(fields.error("group_size", "is missing")),
        };
        Ok(Some(Self { packing, group }))
    }
}

/// Tensors of a checkpoint, those that are packed among them as any others.
#[derive(Debug)]
pub struct PackedWeights {
    source: Safetensors,
    /// `None`: none are packed.
    form: Option<PackedForm>,
}

/// A packed matrix.
struct PackedMatrix<'a> {
    packing: Packing,
    outputs: usize,
    inputs: usize,
    /// Inputs under one scale.
    group: usize,
    numbers: &'a [[u8; 4]],
    /// `[groups, outputs / 8]`
    zeros: &'a [[u8; 4]],
    /// `[groups, outputs]`
    scales: Vec<f32>,
    /// What scales are stored as.
    dtype: Dtype,
}

impl PackedWeights {
    /// The tensors of `source`, packed in this form or not.
    pub fn new(source: Safetensors, form: Option<PackedForm>) -> Result<Self, CheckpointError> {
        if form.is_some()
            && let Some(name) = source.names().into_iter().find(|name| name.ends_with(".act.scales"))
        {
            return Err(CheckpointError::malformed(name, "activations with scales are not supported"));
        }
        Ok(Self { source, form })
    }

    /// The tensors as they are stored.
    pub fn stored(&self) -> &Safetensors {
        &self.source
    }

    /// The matrix called `name`, where it is packed.
    fn packed(&self, name: &str) -> Result<Option<PackedMatrix<'_>>, CheckpointError> {
        let (Some(form), Some(module)) = (self.form, name.strip_suffix(".weight")) else { return Ok(None) };
        let stored = |part: &str| format!("{module}.{part}");
        let Some(numbers) = self.source.integers(&stored("qweight"))? else { return Ok(None) };
        let missing = || CheckpointError::MissingTensor { name: stored("qzeros") };
        let zeros = self.source.integers(&stored("qzeros"))?.ok_or_else(missing)?;
        let scales = self.source.tensor(&stored("scales"))?;
        let bad = |reason: String| CheckpointError::malformed(module, reason);
        let (inputs, outputs) = match (form.packing, numbers.shape) {
            (Packing::Outputs, [inputs, words]) => (*inputs, words.saturating_mul(IN_WORD)),
            (Packing::Inputs { .. }, [words, outputs]) => (words.saturating_mul(IN_WORD), *outputs),
            (_, other) => return Err(bad(format!("qweight has shape {other:?}, and should be a matrix"))),
        };
        let group = form.group.unwrap_or(inputs);
        let are_whole = outputs.is_multiple_of(IN_WORD) && inputs.is_multiple_of(GROUP);
        if inputs == 0 || outputs == 0 || !are_whole || !inputs.is_multiple_of(group) {
            let reason = format!(
                "is {outputs} x {inputs}: outputs must be multiples of {IN_WORD}, inputs of {GROUP} and of groups of {group}"
            );
            return Err(bad(reason));
        }
        let groups = inputs / group;
        if scales.shape != [groups, outputs] || *zeros.shape != [groups, outputs / IN_WORD] {
            let reason = format!("has scales of shape {:?} and qzeros of {:?}", scales.shape, zeros.shape);
            return Err(bad(format!("{reason} for {outputs} outputs and {groups} groups of inputs")));
        }
        if let Some(groups_of) = self.source.integers(&stored("g_idx"))? {
            let is_in_order = |(input, group_of): (usize, &[u8; 4])| {
                usize::try_from(i32::from_le_bytes(*group_of)) == Ok(input / group)
            };
            let of_inputs = groups_of.words;
            if of_inputs.len() != inputs || !of_inputs.iter().enumerate().all(is_in_order) {
                return Err(bad(
                    "g_idx has inputs of a group anywhere (desc_act), which is not supported".into()
                ));
            }
        }
        let (dtype, scales) = (scales.dtype, scales.to_f32());
        let (packing, numbers, zeros) = (form.packing, numbers.words, zeros.words);
        Ok(Some(PackedMatrix { packing, outputs, inputs, group, numbers, zeros, scales, dtype }))
    }
}

impl PackedMatrix<'_> {
    /// The number of an output and an input.
    fn number(&self, output: usize, input: usize) -> u8 {
        let (word, place) = match self.packing {
            Packing::Outputs => {
                (input * (self.outputs / IN_WORD) + output / IN_WORD, AWQ_PLACES[output % IN_WORD])
            }
            Packing::Inputs { .. } => (input / IN_WORD * self.outputs + output, input % IN_WORD),
        };
        nibble(self.numbers[word], place)
    }

    /// Scale and zero point of an output in a group of inputs.
    fn scale_and_zero(&self, output: usize, group: usize) -> (f32, u8) {
        let zeros = self.zeros[group * (self.outputs / IN_WORD) + output / IN_WORD];
        let zero = match self.packing {
            Packing::Outputs => nibble(zeros, AWQ_PLACES[output % IN_WORD]),
            Packing::Inputs { zeros_below } => nibble(zeros, output % IN_WORD) + zeros_below,
        };
        (self.scales[group * self.outputs + output], zero)
    }

    /// All rows, of so many bytes each, which `write` writes: an output's.
    fn rows(&self, bytes: usize, write: impl Fn(usize, &mut [u8]) + Sync) -> Vec<u8> {
        let mut data = vec![0; self.outputs * bytes];
        data.par_chunks_mut(bytes).enumerate().for_each(|(output, row)| write(output, row));
        data
    }

    /// Its weights, rounded to numbers of this type.
    fn plain(&self, dtype: Dtype) -> RawTensor<'static> {
        let (inputs, each) = (self.inputs, dtype.bytes());
        let data = self.rows(inputs * each, |output, row| {
            for (input, to) in row.chunks_exact_mut(each).enumerate() {
                let (scale, zero) = self.scale_and_zero(output, input / self.group);
                let weight = scale * (f32::from(self.number(output, input)) - f32::from(zero));
                match dtype {
                    Dtype::F32 => to.copy_from_slice(&weight.to_le_bytes()),
                    Dtype::F16 => to.copy_from_slice(&half::f16::from_f32(weight).to_le_bytes()),
                    Dtype::Bf16 => to.copy_from_slice(&half::bf16::from_f32(weight).to_le_bytes()),
                }
            }
        });
        RawTensor { dtype, shape: vec![self.outputs, inputs], data: data.into() }
    }

    /// The same as blocks of ggml's Q4_1: scale, minimum, and 16 bytes of numbers, those of the second half above those of the
    /// first.
    fn blocks(&self) -> Vec<u8> {
        let block = BlockFormat::Q4_1.bytes();
        self.rows(self.inputs / GROUP * block, |output, row| {
            for (piece, to) in row.chunks_exact_mut(block).enumerate() {
                let first = piece * GROUP;
                let (scale, zero) = self.scale_and_zero(output, first / self.group);
                to[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
                to[2..4].copy_from_slice(&half::f16::from_f32(-scale * f32::from(zero)).to_le_bytes());
                for (at, byte) in to[4..].iter_mut().enumerate() {
                    let [low, high] = [0, GROUP / 2].map(|half| self.number(output, first + half + at));
                    *byte = low | high << 4;
                }
            }
        })
    }
}

/// The number at a place of a word.
fn nibble(word: [u8; 4], place: usize) -> u8 {
    word[place / 2] >> (place % 2 * 4) & 15
}

impl WeightSource for PackedWeights {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        let Some(matrix) = self.packed(name)? else { return self.source.tensor(name) };
        Ok(matrix.plain(matrix.dtype)) // what its scales are stored as
    }

    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        let Some(matrix) = self.packed(name)? else { return self.source.exact(name) };
        Ok(matrix.plain(Dtype::F32))
    }

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        match self.packed(name)? {
            Some(matrix) => Ok((matrix.dtype, vec![matrix.outputs, matrix.inputs])),
            None => self.source.layout(name),
        }
    }

    fn blocks(&self, name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        let blocks = |matrix: PackedMatrix<'_>| BlockMatrix {
            format: BlockFormat::Q4_1,
            inputs: matrix.inputs,
            data: matrix.blocks().into(),
        };
        Ok(self.packed(name)?.map(blocks))
    }

    fn will_read(&self, name: &str) {
        self.source.will_read(name);
        if let Some(module) = name.strip_suffix(".weight").filter(|_| self.form.is_some()) {
            self.source.will_read(&format!("{module}.qweight"));
        }
    }

    fn names(&self) -> Vec<String> {
        let stored = self.source.names();
        if self.form.is_none() {
            return stored;
        }
        let is_packed = |module: &str| stored.binary_search(&format!("{module}.qweight")).is_ok();
        let own = |name: &String| match name.rsplit_once('.') {
            Some((module, "qweight")) => Some(format!("{module}.weight")),
            Some((module, "qzeros" | "scales" | "g_idx")) if is_packed(module) => None,
            _ => Some(name.clone()),
        };
        let mut names: Vec<String> = stored.iter().filter_map(own).collect();
        names.sort();
        names
    }
}
