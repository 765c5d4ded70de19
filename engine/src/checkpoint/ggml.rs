//! The block formats of GGUF tensors: how many bytes a block has, and which numbers it means.
//!
//! Layouts are those of ggml's `ggml-common.h`; this knows neither files nor names.

use half::{bf16, f16};

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
    /// 256 four-bit numbers in eight groups, each with a six-bit scale and minimum.
    Q4K,
    /// 256 six-bit numbers in sixteen groups, each with an eight-bit scale.
    Q6K,
}

impl BlockFormat {
    /// The format that a GGUF file calls `id`; `None` where this engine does not know it.
    pub fn of_id(id: u32) -> Option<Self> {
        match id {
            0 => Some(Self::F32),
            1 => Some(Self::F16),
            2 => Some(Self::Q4_0),
            8 => Some(Self::Q8_0),
            12 => Some(Self::Q4K),
            14 => Some(Self::Q6K),
            30 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 2 + 32,
            Self::Q4_0 => 2 + 16,
            Self::Q4K => 2 + 2 + 12 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
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
                    let value = |q: u8| (f32::from(q) - 8.0) * scale;
                    values.extend(block[2..].iter().map(|q| value(q & 15)));
                    values.extend(block[2..].iter().map(|q| value(q >> 4)));
                }
                Self::Q4K => push_q4k(block, &mut values),
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

/// `value = d * scale * q - d_min * minimum`: two halves, twelve bytes of scales and minima, the numbers.
fn push_q4k(block: &[u8], values: &mut Vec<f32>) {
    let (d, d_min, packed) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    for (pair, numbers) in block[16..].chunks_exact(32).enumerate() {
        for (group, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (scale, minimum) = scale_and_minimum(packed, group);
            let (scale, minimum) = (d * f32::from(scale), d_min * f32::from(minimum));
            values.extend(numbers.iter().map(|q| scale * f32::from((q >> shift) & 15) - minimum));
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
