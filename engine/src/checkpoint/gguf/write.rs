//! Writes GGUF files: an aid of tests, benches and examples, which need real files of any kind.

use half::{bf16, f16};

use super::read::ALIGNMENT;
use crate::checkpoint::ggml::BlockFormat;

/// A file under construction.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    /// Keys, and values behind their types.
    metadata: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<usize>, BlockFormat, Vec<u8>)>,
}

impl GgufWriter {
    /// Adds a string.
    pub fn text(&mut self, key: &str, value: &str) {
        put_text(self.key(key, 8), value);
    }

    /// Adds a whole number.
    pub fn unsigned(&mut self, key: &str, value: u32) {
        self.key(key, 4).extend(value.to_le_bytes());
    }

    /// Adds a single.
    pub fn float(&mut self, key: &str, value: f32) {
        self.key(key, 6).extend(value.to_le_bytes());
    }

    /// Adds true or false.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key, 7).push(value.into());
    }

    /// Adds a list of strings.
    pub fn texts(&mut self, key: &str, values: &[String]) {
        let bytes = self.list(key, 8, values.len());
        values.iter().for_each(|value| put_text(bytes, value));
    }

    /// Adds a list of whole numbers.
    pub fn integers(&mut self, key: &str, values: &[i32]) {
        self.list(key, 5, values.len()).extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Adds a list of singles.
    pub fn floats(&mut self, key: &str, values: &[f32]) {
        self.list(key, 6, values.len()).extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Adds a tensor, rounding `values` to `format`; `shape` is outermost extent first.
    ///
    /// # Panics
    /// When `values` does not fill `shape`, or rows are not whole blocks: the caller made both.
    pub fn tensor(&mut self, name: &str, shape: &[usize], format: BlockFormat, values: &[f32]) {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "values of {name} fill its shape");
        let row = shape.last().copied().unwrap_or(1);
        assert!(row.is_multiple_of(format.elements()), "rows of {name} are whole blocks");
        self.tensors.push((name.to_owned(), shape.to_vec(), format, to_blocks(format, values)));
    }

    /// Takes a value out, where there is one.
    pub fn remove(&mut self, key: &str) {
        self.metadata.retain(|(other, _)| other != key);
    }

    /// The whole file.
    pub fn finish(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(&mut bytes, key);
            bytes.extend(value);
        }
        let mut offset = 0_usize;
        for (name, shape, format, data) in &self.tensors {
            put_text(&mut bytes, name);
            bytes.extend((shape.len() as u32).to_le_bytes());
            bytes.extend(shape.iter().rev().flat_map(|extent| (*extent as u64).to_le_bytes()));
            bytes.extend(format.id().to_le_bytes());
            bytes.extend((offset as u64).to_le_bytes());
            offset += data.len().next_multiple_of(ALIGNMENT);
        }
        for (.., data) in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            bytes.extend(data);
        }
        bytes
    }

    /// The place of a value of type `kind`.
    fn key(&mut self, key: &str, kind: u32) -> &mut Vec<u8> {
        self.metadata.push((key.to_owned(), kind.to_le_bytes().to_vec()));
        &mut self.metadata.last_mut().expect("it was just added").1
    }

    fn list(&mut self, key: &str, kind: u32, count: usize) -> &mut Vec<u8> {
        let bytes = self.key(key, 9);
        bytes.extend(kind.to_le_bytes());
        bytes.extend((count as u64).to_le_bytes());
        bytes
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Values rounded to `format`. Blocks are rounded plainly; quantisers that look for better scales win a
/// little.
///
/// # Panics
/// For formats that no test writes.
fn to_blocks(format: BlockFormat, values: &[f32]) -> Vec<u8> {
    match format {
        BlockFormat::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        BlockFormat::F16 => values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        BlockFormat::Bf16 => values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        BlockFormat::Q8_0 => values.chunks(32).flat_map(q8_0).collect(),
        BlockFormat::Q4_0 => values.chunks(32).flat_map(q4_0).collect(),
        BlockFormat::Q4K => values.chunks(256).flat_map(q4k).collect(),
        other => unimplemented_format(other),
    }
}

fn unimplemented_format(format: BlockFormat) -> ! {
    panic!("{} can be read, not written", format.name())
}

/// The number of largest magnitude.
fn extreme(values: &[f32]) -> f32 {
    values.iter().copied().fold(0.0, |most, x| if x.abs() > most.abs() { x } else { most })
}

/// `x / scale`, or nothing where all numbers are zero.
fn divided(x: f32, scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { x / scale }
}

/// A scale, then a signed byte per number.
fn q8_0(values: &[f32]) -> Vec<u8> {
    let scale = f16::from_f32(extreme(values).abs() / 127.0);
    let mut block = scale.to_le_bytes().to_vec();
    let number = |x: &f32| divided(*x, scale.to_f32()).round().clamp(-127.0, 127.0) as i8 as u8;
    block.extend(values.iter().map(number));
    block
}

/// A scale, then 16 bytes of two numbers from -8 to 7, the extreme at -8.
fn q4_0(values: &[f32]) -> Vec<u8> {
    let scale = f16::from_f32(extreme(values) / -8.0);
    let number = |x: f32| (divided(x, scale.to_f32()).round() + 8.0).clamp(0.0, 15.0) as u8;
    let mut block = scale.to_le_bytes().to_vec();
    let (low, high) = values.split_at(16);
    block.extend(low.iter().zip(high).map(|(low, high)| number(*low) | number(*high) << 4));
    block
}

/// Eight groups of 32 between their least and their greatest number, in 15 steps; steps and minima in 63
/// steps of the block's greatest.
fn q4k(values: &[f32]) -> Vec<u8> {
    let bounds = values.chunks(32).map(|group| {
        let least = group.iter().copied().fold(0.0, f32::min);
        let most = group.iter().copied().fold(0.0, f32::max);
        ((most - least) / 15.0, -least)
    });
    let bounds: Vec<(f32, f32)> = bounds.collect();
    let unit = |numbers: &mut dyn Iterator<Item = f32>| f16::from_f32(numbers.fold(0.0, f32::max) / 63.0);
    let d = unit(&mut bounds.iter().map(|(step, _)| *step));
    let d_min = unit(&mut bounds.iter().map(|(_, minimum)| *minimum));
    let six = |x: f32, unit: f16| divided(x, unit.to_f32()).round().clamp(0.0, 63.0) as u8;
    let packed: Vec<(u8, u8)> =
        bounds.iter().map(|(step, minimum)| (six(*step, d), six(*minimum, d_min))).collect();
    let mut scales = [0_u8; 12];
    for (group, (step, minimum)) in packed.iter().enumerate() {
        if group < 4 {
            scales[group] |= step;
            scales[group + 4] |= minimum;
        } else {
            scales[group + 4] = step & 15 | (minimum & 15) << 4;
            scales[group - 4] |= step >> 4 << 6;
            scales[group] |= minimum >> 4 << 6;
        }
    }
    let mut block = [d.to_le_bytes(), d_min.to_le_bytes()].concat();
    block.extend(scales);
    let number = |group: usize, at: usize| {
        let (step, minimum) = (f32::from(packed[group].0) * d.to_f32(), f32::from(packed[group].1));
        let above = values[32 * group + at] + minimum * d_min.to_f32();
        divided(above, step).round().clamp(0.0, 15.0) as u8
    };
    for pair in 0..4 {
        block.extend((0..32).map(|at| number(2 * pair, at) | number(2 * pair + 1, at) << 4));
    }
    block
}
