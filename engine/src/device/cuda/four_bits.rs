//! Weights of four bits as the kernels read them (kernels/q4.cuh): the groups that the processor's engine has too
//! ([`NibbleGroup`]), in tiles of 16 outputs by 64 inputs.
//!
//! Outputs are filled up to whole blocks of threads, inputs to whole tiles, by weights of 0.

use rayon::prelude::*;

use super::gpu::FEW_ROWS_OF_Q4;
use crate::device::cpu::NibbleGroup;

/// Inputs are multiples of so many: a lane's part of a group.
pub(crate) const LANE_INPUTS: usize = 8;

/// Rows of a product that reads them as they are. With more it is faster to unpack a matrix, and to multiply that.
pub(crate) const Q4_ROWS: usize = FEW_ROWS_OF_Q4[2].0;

/// A tile.
const OUTPUTS: usize = 16;
const INPUTS: usize = 64;
/// Its numbers, four bits each, then the scales and minima of two groups of each output.
const NUMBERS_BYTES: usize = OUTPUTS * INPUTS / 2;
const TILE_BYTES: usize = NUMBERS_BYTES + 2 * OUTPUTS * 4;

/// Outputs of the largest block of threads.
const BLOCK_OUTPUTS: usize = 32;

/// Packs `outputs` rows of `inputs` weights: the groups that `read` gives of each, in order.
pub(crate) fn pack_q4(
    outputs: usize,
    inputs: usize,
    read: impl Fn(usize, &mut dyn FnMut(NibbleGroup)) + Sync,
) -> Vec<u8> {
    let bytes = inputs.div_ceil(INPUTS) * TILE_BYTES; // of sixteen outputs
    let mut packed = vec![0; outputs.next_multiple_of(BLOCK_OUTPUTS) / OUTPUTS * bytes];
    packed.par_chunks_mut(bytes).enumerate().for_each(|(strip, tiles)| {
        let first = strip * OUTPUTS;
        for within in 0..OUTPUTS.min(outputs.saturating_sub(first)) {
            let mut group = 0;
            read(first + within, &mut |weights| {
                put(&mut tiles[group / 2 * TILE_BYTES..][..TILE_BYTES], (within, group % 2), &weights);
                group += 1;
            });
        }
    });
    packed
}

/// Writes a tile's group `number` of output `within`, which was all zero there.
fn put(tile: &mut [u8], (within, number): (usize, usize), group: &NibbleGroup) {
    let (eight, word) = (within % 8, 2 * number + within / 8);
    let (numbers, ends) = tile.split_at_mut(NUMBERS_BYTES);
    let numbers = &mut numbers.as_chunks_mut::<16>().0[4 * eight..][..4];
    for (lane, own) in numbers.iter_mut().zip(group.numbers.as_chunks::<LANE_INPUTS>().0) {
        let shifted = |at: usize| u32::from(own[at]) << (at / 2 * 4 + at % 2 * 16);
        let all = (0..LANE_INPUTS).fold(0, |all, at| all | shifted(at));
        lane.as_chunks_mut::<4>().0[word] = all.to_le_bytes();
    }
    let [scale, minimum] = [group.scale, group.minimum].map(half::f16::to_le_bytes);
    let ends = &mut ends.as_chunks_mut::<16>().0[eight];
    ends.as_chunks_mut::<4>().0[word] = [scale[0], scale[1], minimum[0], minimum[1]];
}

/// Those of what unpacks a matrix, of eight warps: a tile for each warp.
pub(crate) fn unpacking_blocks(outputs: usize, inputs: usize) -> [u32; 2] {
    [outputs.div_ceil(OUTPUTS) as u32, inputs.div_ceil(8 * INPUTS) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_has_its_place_and_what_fills_up_is_zero() {
        let (outputs, inputs) = (19, 104); // a second strip of three outputs, a second tile of two groups
        let packed = pack_q4(outputs, inputs, |output, put| {
            for group in 0..4 {
                let number =
                    |k: usize| if 32 * group + k < inputs { ((output + group + k) % 16) as u8 } else { 0 };
                put(NibbleGroup {
                    numbers: std::array::from_fn(number),
                    scale: half::f16::from_f32(1.0 + output as f32),
                    minimum: half::f16::from_f32(-(group as f32)),
                });
            }
        });
        assert_eq!(packed.len(), 2 * 2 * 640, "5 bits each of 32 outputs and 128 inputs");
        for output in 0..32 {
            for k in 0..128 {
                let tile = &packed[(output / 16 * 2 + k / 64) * 640..][..640];
                let (lane, word) = (output % 8 * 4 + k % 32 / 8, 2 * (k % 64 / 32) + output % 16 / 8);
                let at = k % 8;
                let byte = tile[16 * lane + 4 * word + at / 4 + at % 2 * 2];
                let number = byte >> (at / 2 % 2 * 4) & 15;
                let end = |from: usize| half::f16::from_le_bytes([tile[from], tile[from + 1]]).to_f32();
                let ends = 512 + output % 8 * 16 + 4 * word;
                let found = (number, end(ends), end(ends + 2));
                let expected = match (output < outputs, k < inputs) {
                    (true, true) => {
                        (((output + k / 32 + k % 32) % 16) as u8, 1.0 + output as f32, -((k / 32) as f32))
                    }
                    (true, false) => (0, 1.0 + output as f32, -3.0),
                    (false, _) => (0, 0.0, 0.0),
                };
                assert_eq!(found, expected, "output {output}, input {k}");
            }
        }
    }
}
