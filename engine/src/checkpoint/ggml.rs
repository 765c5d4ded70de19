//! The block formats of GGUF tensors: how many bytes a block has, and which numbers it means.
//!
//! Layouts are those of ggml's `ggml-common.h`; this knows neither files nor names.

use half::{bf16, f16};

use crate::checkpoint::dtype::Dtype;

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFormat {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// 32 signed bytes under one scale.
    Q8_0,
    /// 32 four-bit numbers under one scale.
    Q4_0,
    /// 32 four-bit numbers under one scale, above one minimum.
    Q4_1,
    /// 32 five-bit numbers under one scale.
    Q5_0,
    /// 32 five-bit numbers under one scale, above one minimum.
    Q5_1,
    /// 256 four-bit numbers in eight groups, each with a six-bit scale and minimum.
    Q4K,
    /// 256 five-bit numbers in eight groups, each with a six-bit scale and minimum.
    Q5K,
    /// 256 six-bit numbers in sixteen groups, each with an eight-bit scale.
    Q6K,
}

/// Every format, with what GGUF files and people call it.
const FORMATS: [(BlockFormat, u32, &str); 11] = [
    (BlockFormat::F32, 0, "F32"),
    (BlockFormat::F16, 1, "F16"),
    (BlockFormat::Q4_0, 2, "Q4_0"),
    (BlockFormat::Q4_1, 3, "Q4_1"),
    (BlockFormat::Q5_0, 6, "Q5_0"),
    (BlockFormat::Q5_1, 7, "Q5_1"),
    (BlockFormat::Q8_0, 8, "Q8_0"),
    (BlockFormat::Q4K, 12, "Q4_K"),
    (BlockFormat::Q5K, 13, "Q5_K"),
    (BlockFormat::Q6K, 14, "Q6_K"),
    (BlockFormat::Bf16, 30, "BF16"),
];

impl BlockFormat {
    /// The format that a GGUF file calls `id`; `None` where this engine does not know it.
    pub fn of_id(id: u32) -> Option<Self> {
        FORMATS.iter().find(|(_, known, _)| *known == id).map(|(format, ..)| *format)
    }

    /// What a GGUF file calls it.
    pub fn id(self) -> u32 {
        self.entry().1
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// The names of all formats.
    pub fn names() -> String {
        FORMATS.map(|(.., name)| name).join(", ")
    }

    fn entry(self) -> (Self, u32, &'static str) {
        *FORMATS.iter().find(|(format, ..)| *format == self).expect("every format stands in the list")
    }

    /// The plain type of the same numbers; `None` for blocks.
    pub fn plain(self) -> Option<Dtype> {
        match self {
            Self::F32 => Some(Dtype::F32),
            Self::F16 => Some(Dtype::F16),
            Self::Bf16 => Some(Dtype::Bf16),
            _ => None,
        }
    }

    /// Elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 2 + 32,
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q4K => 2 + 2 + 12 + 128,
            Self::Q5K => 2 + 2 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// The groups of 32 numbers of whole blocks of four bits: `each` gets a group's numbers, what one is worth, and
    /// what 0 is. Nothing of blocks of other formats.
    pub fn four_bit_groups(self, data: &[u8], each: &mut dyn FnMut([u8; 32], f16, f16)) {
        for block in data.chunks_exact(self.bytes()) {
            match self {
                Self::Q4_0 => {
                    let scale = half_at(block, 0);
                    each(nibbles(&block[2..]), f16::from_f32(scale), f16::from_f32(-8.0 * scale));
                }
                Self::Q4_1 => {
                    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                    each(nibbles(&block[4..]), f16::from_f32(scale), f16::from_f32(minimum));
                }
                Self::Q4K => {
                    for_groups_of_q4k(block, |scale, minimum, numbers| {
                        each(numbers, f16::from_f32(scale), f16::from_f32(-minimum));
                    });
                }
                _ => {}
            }
        }
    }

    /// The numbers of whole blocks; a rest that fills no block is left out.
    pub fn to_f32(self, data: &[u8]) -> Vec<f32> {
        let mut values = Vec::with_capacity(data.len() / self.bytes() * self.elements());
        for block in data.chunks_exact(self.bytes()) {
            match self {
                Self::F32 => values.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Self::F16 => values.push(half_at(block, 0)),
                Self::Bf16 => values.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Self::Q8_0 => {
                    let scale = half_at(block, 0);
                    values.extend(block[2..].iter().map(|q| f32::from(*q as i8) * scale));
                }
                Self::Q4_0 => {
                    let scale = half_at(block, 0);
                    push_halves(&block[2..], &[0; 4], &mut values, |q| (q - 8.0) * scale);
                }
                Self::Q4_1 => {
                    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                    push_halves(&block[4..], &[0; 4], &mut values, |q| q * scale + minimum);
                }
                Self::Q5_0 => {
                    let scale = half_at(block, 0);
                    push_halves(&block[6..], &block[2..6], &mut values, |q| (q - 16.0) * scale);
                }
                Self::Q5_1 => {
                    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                    push_halves(&block[8..], &block[4..8], &mut values, |q| q * scale + minimum);
                }
                Self::Q4K => push_q4k(block, &mut values),
                Self::Q5K => push_q5k(block, &mut values),
                Self::Q6K => push_q6k(block, &mut values),
            }
        }
        values
    }
}

/// The half at byte `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 numbers: the lower halves of 16 bytes, then the upper ones, each with its fifth bit out of `high`.
fn push_halves(low: &[u8], high: &[u8], values: &mut Vec<f32>, value: impl Fn(f32) -> f32) {
    for shift in [0, 4] {
        values.extend(low.iter().enumerate().map(|(at, byte)| {
            let index = 4 * shift + at;
            let fifth = high[index / 8] >> (index % 8) & 1;
            value(f32::from(byte >> shift & 15 | fifth << 4))
        }));
    }
}

/// The lower halves of 16 bytes, then the upper ones.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|at| bytes[at % 16] >> (at / 16 * 4) & 15)
}

/// `value = d * scale * q - d_min * minimum`: two halves, twelve bytes of scales and minima, the numbers.
fn push_q4k(block: &[u8], values: &mut Vec<f32>) {
    for_groups_of_q4k(block, |scale, minimum, numbers| {
        values.extend(numbers.map(|q| scale * f32::from(q) - minimum));
    });
}

/// Each group's `d * scale` and `d_min * minimum`, and its numbers.
fn for_groups_of_q4k(block: &[u8], mut each: impl FnMut(f32, f32, [u8; 32])) {
    let (d, d_min, packed) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    for (pair, numbers) in block[16..].as_chunks::<32>().0.iter().enumerate() {
        for (group, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (scale, minimum) = scale_and_minimum(packed, group);
            each(d * f32::from(scale), d_min * f32::from(minimum), numbers.map(|q| q >> shift & 15));
        }
    }
}

/// As [`push_q4k`], with 32 bytes before the numbers that hold fifth bits: bit `g` of a byte belongs to group
/// `g`.
fn push_q5k(block: &[u8], values: &mut Vec<f32>) {
    let (d, d_min, packed, high) = (half_at(block, 0), half_at(block, 2), &block[4..16], &block[16..48]);
    for (pair, numbers) in block[48..].chunks_exact(32).enumerate() {
        for (group, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (scale, minimum) = scale_and_minimum(packed, group);
            let (scale, minimum) = (d * f32::from(scale), d_min * f32::from(minimum));
            let number = |(q, high): (&u8, &u8)| f32::from((q >> shift) & 15 | (high >> group & 1) << 4);
            values.extend(numbers.iter().zip(high).map(number).map(|q| scale * q - minimum));
        }
    }
}

/// Six bits each. Groups 4 to 7 keep their upper two bits above those of groups 0 to 3.
fn scale_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let low = packed[group + 4];
    ((low & 15) | (packed[group - 4] >> 6) << 4, (low >> 4) | (packed[group] >> 6) << 4)
}

/// `value = d * scale * (q - 32)`: lower four bits, upper two bits, scales, `d`.
fn push_q6k(block: &[u8], values: &mut Vec<f32>) {
    let d = half_at(block, 208);
    for part in 0..2 {
        let (low, high) = (&block[64 * part..][..64], &block[128 + 32 * part..][..32]);
        let scales = &block[192 + 8 * part..][..8];
        for quarter in 0..4 {
            for at in 0..32 {
                let low = low[32 * (quarter % 2) + at] >> (4 * (quarter / 2)) & 15;
                let q = low | (high[at] >> (2 * quarter) & 3) << 4;
                let scale = f32::from(scales[2 * quarter + at / 16] as i8);
                values.push(d * scale * (f32::from(q) - 32.0));
            }
        }
    }
}
