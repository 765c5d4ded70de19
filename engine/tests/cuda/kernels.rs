//! Kernels by themselves, each against what it is defined to give.

use std::sync::Arc;

use engine::device::cuda::{Buffer, Gpu, Grid};

use crate::emulated;

/// Logits of a piece of a row, as the kernels say it.
const LOGIT_PIECE: usize = 8192;

/// What the kernels `logit_pieces` and `logit_stats` find in one row of logits: whether it is sound, logits with their tokens in
/// order, the highest logit and the sum of weights at a temperature.
fn logit_stats(
    gpu: &Arc<dyn Gpu>,
    logits: &[f32],
    allowed: Option<&[u32]>,
    (end, wanted, inverse_temperature): (usize, usize, f32),
) -> (bool, Vec<(f32, u32)>, f32, f64) {
    let words = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Buffer::of(gpu, &bytes).expect("it fits")
    };
    let row = floats(gpu, logits);
    let mask = allowed.map(words);
    let query = words(&[wanted as u32, inverse_temperature.to_bits(), allowed.map_or(u32::MAX, |_| 0)]);
    let out = Buffer::new(gpu, 4 * (4 + 2 * wanted)).expect("it fits");
    let pieces = Buffer::new(gpu, 24 * logits.len().div_ceil(LOGIT_PIECE)).expect("it fits");
    let buffers = [Some(&row), mask.as_ref(), Some(&query), Some(&pieces), Some(&out)];
    for (kernel, blocks) in [("logit_pieces", logits.len().div_ceil(LOGIT_PIECE)), ("logit_stats", 1)] {
        launch(gpu, kernel, blocks, &buffers, &[logits.len() as u32, end as u32, wanted as u32]);
    }
    let mut found = vec![0; out.bytes()];
    gpu.read(out.address(), &mut found).expect("it is there");
    let sum = f64::from_ne_bytes(found[8..16].try_into().expect("eight bytes"));
    let found: Vec<u32> = found.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let (values, tokens) = found[4..].split_at(wanted);
    let kept = values.iter().zip(tokens).map(|(value, token)| (f32::from_bits(*value), *token));
    let mut kept: Vec<(f32, u32)> = kept.filter(|(value, _)| value.is_finite()).collect();
    kept.sort_by(|(x, i), (y, j)| y.total_cmp(x).then(i.cmp(j)));
    (found[0] == 1, kept, f32::from_bits(found[1]), sum)
}

#[test]
fn of_equal_logits_the_lowest_token_comes_first_and_what_may_not_be_drawn_is_left_out() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let mut logits: Vec<f32> = (0..1500).map(|token| -1.0 - (token % 97) as f32).collect();
    for token in [3, 700, 701, 1400] {
        logits[token] = 5.0;
    }
    let kept = |end, wanted| logit_stats(&gpu, &logits, None, (end, wanted, 0.0)).1;
    assert_eq!(kept(1500, 1), [(5.0, 3)]);
    assert_eq!(kept(1500, 3), [(5.0, 3), (5.0, 700), (5.0, 701)]);
    assert_eq!(kept(1500, 5)[3..], [(5.0, 1400), (-1.0, 0)]);
    assert_eq!(kept(701, 3), [(5.0, 3), (5.0, 700), (-1.0, 0)], "from token 701 on nothing is drawn");
    for (end, wanted) in [(1500, 2), (1500, 300), (1500, 1024), (1200, 257), (40, 64)] {
        let mut all: Vec<(f32, u32)> = logits[..end].iter().copied().zip(0..).collect();
        all.sort_by(|(x, i), (y, j)| y.total_cmp(x).then(i.cmp(j)));
        all.truncate(wanted);
        assert_eq!(kept(end, wanted), all, "{wanted} of {end}");
    }
    let mut allowed = vec![0; 1500_usize.div_ceil(32)];
    for token in [40, 700, 1499] {
        allowed[token / 32] |= 1 << (token % 32);
    }
    for wanted in [1, 5] {
        let (is_sound, found, max, _) = logit_stats(&gpu, &logits, Some(&allowed), (1500, wanted, 0.0));
        assert_eq!((is_sound, found.len(), max), (true, wanted.min(3), 5.0), "{found:?}");
        assert_eq!(found[0], (5.0, 700));
    }
    let zeros = [0.0, -0.0, 0.0, -0.0];
    let tokens: Vec<u32> =
        logit_stats(&gpu, &zeros, None, (4, 2, 0.0)).1.into_iter().map(|(_, token)| token).collect();
    assert_eq!(tokens, [0, 1], "both zeros are the same");
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = logits.clone();
        logits[900] = odd;
        let (is_sound, ..) = logit_stats(&gpu, &logits, Some(&allowed), (600, 1, 0.0));
        assert!(!is_sound, "{odd} counts wherever it stands");
    }
}

#[test]
fn what_is_found_in_the_pieces_of_a_row_is_taken_together() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let mut logits: Vec<f32> = (0..20_000).map(|token| -1.0 - (token % 97) as f32).collect();
    for token in [9_000, 9_001, 17_000] {
        logits[token] = 5.0;
    }
    let (is_sound, kept, max, sum) = logit_stats(&gpu, &logits, None, (20_000, 1, 1.0));
    assert_eq!((is_sound, kept, max), (true, vec![(5.0, 9_000)], 5.0), "the first of equals");
    let expected: f64 = logits.iter().map(|logit| f64::from(logit - 5.0).exp()).sum();
    assert!((sum - expected).abs() < 1e-5 * expected, "{sum} for {expected}");
    // No piece has a token that may be drawn; then the second alone has one.
    let mut allowed = vec![0; 20_000_usize.div_ceil(32)];
    let (is_sound, kept, max, sum) = logit_stats(&gpu, &logits, Some(&allowed), (20_000, 1, 1.0));
    assert_eq!((is_sound, kept, max, sum), (true, Vec::new(), f32::NEG_INFINITY, 0.0));
    allowed[12_000 / 32] = 1 << (12_000 % 32);
    let (is_sound, kept, max, sum) = logit_stats(&gpu, &logits, Some(&allowed), (20_000, 1, 1.0));
    assert_eq!((is_sound, kept, max, sum), (true, vec![(logits[12_000], 12_000)], logits[12_000], 1.0));
    for at in [0, 19_999] {
        let mut logits = logits.clone();
        logits[at] = f32::NAN;
        assert!(!logit_stats(&gpu, &logits, None, (8_000, 1, 0.0)).0, "{at} counts");
    }
}

#[test]
fn a_draw_falls_on_the_token_at_which_the_weights_pass_it() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let inverse_temperature = 1.0 / 0.7;
    // The last has three pieces, of which the last has nothing that may be drawn.
    for (vocab, end) in [(7_usize, 7), (64, 60), (65, 65), (700, 690), (5_000, 900), (20_000, 16_300)] {
        let logits: Vec<f32> = (0..vocab).map(|token| ((token * token) as f32 * 0.61).sin() * 4.0).collect();
        let bits: Vec<u32> =
            (0..vocab.div_ceil(32)).map(|word| 0x9bdf_7731_u32.rotate_left(word as u32)).collect();
        for allowed in [None, Some(&bits[..])] {
            let may = |token: &usize| allowed.is_none_or(|bits| bits[token / 32] >> (token % 32) & 1 == 1);
            let tokens: Vec<usize> = (0..end).filter(may).collect();
            let max = tokens.iter().map(|token| logits[*token]).fold(f32::NEG_INFINITY, f32::max);
            let weight = |token: usize| f64::from(((logits[token] - max) * inverse_temperature).exp());
            let total: f64 = tokens.iter().map(|token| weight(*token)).sum();
            let (_, _, found, sum) = logit_stats(&gpu, &logits, allowed, (end, 0, inverse_temperature));
            assert!(found == max && (sum - total).abs() < 1e-4 * total, "{sum} for {total}");
            // The last one is above all of them, as rounding may have it.
            let targets: Vec<f64> = (0..40).map(|step| f64::from(step) / 39.0 * 1.0001 * total).collect();
            let draws: Vec<u8> = targets
                .iter()
                .flat_map(|target| {
                    let words =
                        [0, inverse_temperature.to_bits(), max.to_bits(), allowed.map_or(u32::MAX, |_| 0)]
                            .map(u32::to_ne_bytes);
                    [words.as_flattened(), &target.to_ne_bytes()].concat()
                })
                .collect();
            let (row, draws) = (floats(&gpu, &logits), Buffer::of(&gpu, &draws).expect("it fits"));
            let mask = allowed.map(|bits| {
                let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_ne_bytes()).collect();
                Buffer::of(&gpu, &bytes).expect("it fits")
            });
            let across = vocab.div_ceil(LOGIT_PIECE);
            let pieces = Buffer::new(&gpu, 24 * across).expect("it fits");
            let query = [0, inverse_temperature.to_bits(), allowed.map_or(u32::MAX, |_| 0)];
            let query = Buffer::of(&gpu, query.map(u32::to_ne_bytes).as_flattened()).expect("it fits");
            let buffers = [Some(&row), mask.as_ref(), Some(&query), Some(&pieces), None];
            launch(&gpu, "logit_pieces", across, &buffers, &[vocab as u32, end as u32, 0]);
            let out = Buffer::new(&gpu, 4 * targets.len()).expect("it fits");
            let buffers = [Some(&row), mask.as_ref(), Some(&draws), Some(&pieces), Some(&out)];
            launch(&gpu, "draw", targets.len(), &buffers, &[vocab as u32, end as u32]);
            let mut found = vec![0; out.bytes()];
            gpu.read(out.address(), &mut found).expect("it is there");
            for (target, found) in targets.iter().zip(found.as_chunks::<4>().0) {
                let found = u32::from_ne_bytes(*found) as usize;
                // Sums in another order may put a border elsewhere by a hair.
                let before: f64 =
                    tokens.iter().take_while(|token| **token < found).map(|token| weight(*token)).sum();
                let hair = 1e-5 * total;
                assert!(tokens.contains(&found), "{found} may not be drawn");
                if *target > total {
                    assert_eq!(Some(&found), tokens.last());
                    continue;
                }
                assert!(
                    before <= target + hair && before + weight(found) >= target - hair,
                    "{found} for {target}"
                );
            }
        }
    }
}

#[test]
fn a_tokens_place_is_behind_those_above_it_that_may_be_drawn() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let (vocab, end) = (1500, 1400);
    // Many are equal, and the last tokens of the vocabulary are padding.
    let row = |seed: usize| (0..vocab).map(move |token| ((token * seed) % 97) as f32 - 40.0);
    let logits: Vec<f32> = [7, 31, 53].into_iter().flat_map(row).collect();
    // A token of each row, one that is padding among them; and one of another part of the vocabulary.
    let asked = [(3, 0.0), (1450, 0.0), (-1, 12.5_f32)];
    let query = |(token, logit): (i32, f32)| [token.to_ne_bytes(), logit.to_ne_bytes()];
    let queries: Vec<u8> = asked.into_iter().flat_map(query).flatten().collect();
    let (logits_on, queries) = (floats(&gpu, &logits), Buffer::of(&gpu, &queries).expect("it fits"));
    let out = Buffer::new(&gpu, 8 * asked.len()).expect("it fits");
    let buffers = [Some(&logits_on), Some(&queries), Some(&out)];
    launch(&gpu, "token_places", asked.len(), &buffers, &[vocab as u32, end as u32]);
    let mut found = vec![0; out.bytes()];
    gpu.read(out.address(), &mut found).expect("it is there");
    let words: Vec<u32> = found.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    for (at, ((token, given), row)) in asked.into_iter().zip(logits.chunks_exact(vocab)).enumerate() {
        let logit = usize::try_from(token).map_or(given, |token| row[token]);
        let above = row[..end].iter().filter(|other| **other > logit).count() as u32;
        assert_eq!((f32::from_bits(words[2 * at]), words[2 * at + 1]), (logit, above), "row {at}");
    }
}

/// Runs a kernel on `rows` rows with these buffers and numbers.
fn launch(gpu: &Arc<dyn Gpu>, kernel: &str, rows: usize, buffers: &[Option<&Buffer>], numbers: &[u32]) {
    let address = |buffer: &Option<&Buffer>| buffer.map_or(0, |buffer| buffer.address().0).to_ne_bytes();
    let mut args: Vec<u8> = buffers.iter().flat_map(address).collect();
    args.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    args.resize(args.len().next_multiple_of(8), 0);
    // As the decoder launches them.
    let threads = match kernel {
        "logit_pieces" | "logit_stats" | "draw" | "token_places" => 512,
        "merge_f32" => 128,
        _ => 256,
    };
    let by_columns =
        ["scale_", "activate_sums_", "round_known_"].iter().any(|start| kernel.starts_with(start));
    let columns = if by_columns { numbers[0].div_ceil(4 * threads) } else { 1 };
    let shared = if kernel.starts_with("product") { 3 * 8 * 4096 } else { 0 };
    let grid = Grid { blocks: [rows as u32, columns], threads, shared, cluster: 1 };
    gpu.launch(kernel, grid, &args).expect("it runs");
}

pub(crate) fn floats(gpu: &Arc<dyn Gpu>, numbers: &[f32]) -> Buffer {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    Buffer::of(gpu, &bytes).expect("it fits")
}

pub(crate) fn read_floats(gpu: &Arc<dyn Gpu>, buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.bytes()];
    gpu.read(buffer.address(), &mut bytes).expect("it is there");
    bytes.as_chunks::<4>().0.iter().map(|number| f32::from_ne_bytes(*number)).collect()
}

/// Numbers of `rows` rows of eight-bit floats under their scales.
fn read_fp8(gpu: &Arc<dyn Gpu>, (numbers, scales): (&Buffer, &Buffer)) -> Vec<f32> {
    let (mut bits, scales) = (vec![0; numbers.bytes()], read_floats(gpu, scales));
    gpu.read(numbers.address(), &mut bits).expect("it is there");
    let width = bits.len() / scales.len();
    let number = |(at, bits): (usize, &u8)| float8::F8E4M3::from_bits(*bits).to_f32() * scales[at / width];
    bits.iter().enumerate().map(number).collect()
}

/// The eight-bit floats of a row are this row, each to an eighth of itself or of the least that the row can
/// show.
fn assert_fp8(found: &[f32], expected: &[f32], width: usize) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.chunks(width).zip(expected.chunks(width)) {
        let most = expected.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let bound = (expected.abs() / 15.0).max(most / 448.0 / 500.0);
            assert!((found - expected).abs() <= bound, "{found} for {expected}");
        }
    }
}

/// The normal distribution's share below `x`, by Simpson's rule.
fn share_below(x: f32) -> f32 {
    let density = |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let step = f64::from(x) / 400.0;
    let piece = |number: i32| {
        let from = f64::from(number) * step;
        step / 6.0 * (density(from) + 4.0 * density(from + step / 2.0) + density(from + step))
    };
    (0.5 + (0..400).map(piece).sum::<f64>()) as f32
}

#[test]
fn sums_of_eight_bit_floats_become_numbers_by_both_scales() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let (rows, width) = (3, 300);
    let wave = |scale: f32, count: usize| -> Vec<f32> {
        (0..count).map(|at| scale * ((at * at) as f32 * 0.37).sin()).collect()
    };
    let (sums, before) = (wave(50.0, rows * width), wave(2.0, rows * width));
    let (row_scales, bias) = ([0.5, 4.0, 0.01], wave(0.3, width));
    let scales: Vec<f32> = (0..width).map(|output| 0.01 * (1 + output % 7) as f32).collect();
    let number = |at: usize| sums[at] * row_scales[at / width] * scales[at % width] + bias[at % width];
    let all: Vec<f32> = (0..rows * width).map(number).collect();
    let [sums, row_scales, scales, bias] =
        [&sums[..], &row_scales, &scales, &bias].map(|numbers| floats(&gpu, numbers));
    let with = [&sums, &row_scales, &scales, &bias].map(Some);
    for adds in [0, 1] {
        let out = floats(&gpu, &before);
        launch(&gpu, "scale_f32", rows, &[&with[..], &[Some(&out)]].concat(), &[width as u32, adds]);
        for ((found, number), before) in read_floats(&gpu, &out).iter().zip(&all).zip(&before) {
            let expected = number + if adds == 1 { *before } else { 0.0 };
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
    }
    // Gated: the first half of each row opens the second; without gates what is below 0 goes.
    for activation in 0..4 {
        let is_gated = activation % 2 == 1;
        let inner = if is_gated { width / 2 } else { width };
        let to = Buffer::new(&gpu, rows * inner).expect("it fits");
        let (out, most) = (floats(&gpu, &vec![0.0; rows * inner]), floats(&gpu, &vec![0.0; rows]));
        let before = read_floats(&gpu, &row_scales);
        let buffers = [&with[..], &[Some(&out), Some(&most)]].concat();
        launch(&gpu, "activate_sums_f32", rows, &buffers, &[inner as u32, activation]);
        let buffers = [&out, &most, &to, &row_scales].map(Some);
        launch(&gpu, "round_known_f32", rows, &buffers, &[inner as u32]);
        let activated = |at: usize| {
            let gate = all[if is_gated { at / inner * width + at % inner } else { at }];
            let by_tanh = 0.797_884_6 * (gate + 0.044_715 * gate.powi(3));
            let number = match activation {
                0 => gate.max(0.0),
                1 => gate / (1.0 + (-gate).exp()),
                2 => gate * share_below(gate),
                _ => 0.5 * gate * (1.0 + by_tanh.tanh()),
            };
            if is_gated { number * all[at / inner * width + inner + at % inner] } else { number }
        };
        let expected: Vec<f32> = (0..rows * inner).map(activated).collect();
        assert_fp8(&read_fp8(&gpu, (&to, &row_scales)), &expected, inner);
        // The scales of what was read have given way to those of what was written.
        let bytes: Vec<u8> = before.iter().flat_map(|scale| scale.to_ne_bytes()).collect();
        gpu.write(row_scales.address(), &bytes).expect("it is written");
    }
}

#[test]
fn a_norm_in_eight_bits_is_the_norm_rounded() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let (rows, width) = (2, 290);
    let x: Vec<f32> =
        (0..rows * width).map(|at| (at as f32 * 0.7).cos() * (1 + at / width * 90) as f32).collect();
    let weight: Vec<f32> = (0..width).map(|at| 1.0 + (at % 5) as f32).collect();
    let [x, weight, bias] = [&x, &weight, &vec![0.25; width]].map(|numbers| floats(&gpu, numbers));
    let epsilon = 1e-5_f32.to_bits();
    for bias in [None, Some(&bias)] {
        let whole = Buffer::new(&gpu, rows * width * 4).expect("it fits");
        let from = [Some(&x), Some(&weight), bias];
        launch(&gpu, "norm_f32", rows, &[&from[..], &[Some(&whole)]].concat(), &[width as u32, epsilon]);
        let to = Buffer::new(&gpu, rows * width).expect("it fits");
        let scales = Buffer::new(&gpu, rows * 4).expect("it fits");
        let most = floats(&gpu, &vec![1.0; rows]);
        let buffers = [&from[..], &[Some(&to), Some(&scales), Some(&most)]].concat();
        launch(&gpu, "norm_e4m3", rows, &buffers, &[width as u32, epsilon]);
        assert_fp8(&read_fp8(&gpu, (&to, &scales)), &read_floats(&gpu, &whole), width);
        assert_eq!(read_floats(&gpu, &most), [0.0; 2], "what is raised later begins at nothing");
    }
}

/// What the kernel `quantize_f32` makes of a row: its scale, and the numbers' bits.
fn quantized(gpu: &Arc<dyn Gpu>, row: &[f32]) -> (f32, Vec<u8>) {
    let from = floats(gpu, row);
    let (to, scale) = (Buffer::new(gpu, row.len()).expect("it fits"), Buffer::new(gpu, 4).expect("it fits"));
    launch(gpu, "quantize_f32", 1, &[Some(&from), Some(&to), Some(&scale), None], &[row.len() as u32]);
    let mut numbers = vec![0; row.len()];
    gpu.read(to.address(), &mut numbers).expect("it is there");
    (read_floats(gpu, &scale)[0], numbers)
}

#[test]
fn eight_bit_floats_are_the_nearest_and_a_row_has_its_scale() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    // All there are, what lies between each two, and a little to either side of that.
    let exact = |bits: u8| float8::F8E4M3::from_bits(bits).to_f32();
    let mut numbers = vec![448.0];
    for bits in 0..0x7e {
        let between = (exact(bits) + exact(bits + 1)) / 2.0;
        numbers.extend([exact(bits), between, between.next_down(), between.next_up()]);
    }
    numbers.extend(numbers.clone().iter().map(|number| -number));
    let (scale, bits) = quantized(&gpu, &numbers);
    assert_eq!(scale, 1.0);
    for (number, bits) in numbers.iter().zip(bits) {
        assert_eq!(exact(bits), float8::F8E4M3::from_f32(*number).to_f32(), "{number}");
    }
    let (scale, bits) = quantized(&gpu, &[0.1, -0.05, 0.0, 3e-6]);
    assert_eq!((scale, exact(bits[0]), exact(bits[1]), bits[2]), (0.1 / 448.0, 448.0, -224.0, 0));
    assert_eq!(exact(bits[3]), 0.013_671_875, "of the small ones");
    assert_eq!(quantized(&gpu, &[0.0; 300]), (0.0, vec![0; 300]));
    let (_, odd) = quantized(&gpu, &[1.0, f32::NAN]);
    assert_eq!((exact(odd[0]), exact(odd[1]).is_nan()), (448.0, true));
}

#[test]
fn half_precision_is_the_nearest_and_ends_at_its_largest() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    // All finite ones, and what lies between each two.
    let exact = |bits: u16| half::f16::from_bits(bits).to_f32();
    let mut numbers: Vec<f32> = (0..0x7c00).map(exact).collect();
    numbers.extend((0..0x7bff).map(|bits| (exact(bits) + exact(bits + 1)) / 2.0));
    numbers.extend([1e-9, 65_519.0, 70_000.0, 1e30, f32::INFINITY, f32::NAN]);
    numbers.extend(numbers.clone().iter().map(|number| -number));
    let to = Buffer::new(&gpu, 2 * numbers.len()).expect("it fits");
    launch(&gpu, "round_f16", 4, &[Some(&floats(&gpu, &numbers)), Some(&to)], &[numbers.len() as u32]);
    let mut bytes = vec![0; to.bytes()];
    gpu.read(to.address(), &mut bytes).expect("it is there");
    for (number, found) in numbers.iter().zip(bytes.as_chunks::<2>().0) {
        let found = half::f16::from_le_bytes(*found);
        let expected = half::f16::from_f32(number.clamp(-65_504.0, 65_504.0));
        let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && number.is_nan();
        assert!(is_same, "{found} for {number}");
    }
}

/// Numbers rounded to what a kernel reads: their bytes, and what they are then.
pub(crate) fn rounded(kind: &str, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let round = |number: &f32| match kind {
        "bf16" => {
            let half = half::bf16::from_f32(*number);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
        "f16" => {
            let half = half::f16::from_f32(*number);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
        "e4m3" => {
            let eight = float8::F8E4M3::from_f32(*number);
            (vec![eight.to_bits()], eight.to_f32())
        }
        _ => (number.to_le_bytes().to_vec(), *number),
    };
    let (bytes, numbers): (Vec<Vec<u8>>, Vec<f32>) = numbers.iter().map(round).unzip();
    (bytes.concat(), numbers)
}

#[test]
fn products_of_few_rows_are_the_sums_over_their_inputs() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let buffer = |bytes: &[u8]| Buffer::of(&gpu, bytes).expect("it fits");
    let wave = |pace: f32, count: usize| -> Vec<f32> {
        (0..count).map(|at| 1.5 * ((at % 9_973) as f32 * pace).sin()).collect()
    };
    // The second has several rounds of each warp, the last of them of some lanes only.
    for (kind, inputs) in
        [("bf16", 40), ("bf16", 2_200), ("f16", 40), ("f16", 2_200), ("e4m3", 48), ("e4m3", 4_144)]
    {
        for (rows, most, block) in [(1, 8, 16), (8, 8, 16), (11, 16, 32), (29, 32, 32)] {
            // Such as activations are kept as, but that sums of eight-bit floats are always single precision.
            for (out, adds, has_scales) in [
                ("f32", false, false),
                ("f32", true, false),
                (kind, false, false),
                ("f32", true, true),
                ("bf16", false, true),
                ("f16", false, true),
            ] {
                let is_fp8 = kind == "e4m3";
                if out == "e4m3" || has_scales && !is_fp8 || (rows > 8 && inputs > 100 && adds) {
                    continue;
                }
                let outputs = 96; // several pieces of each block, or of one
                let (x_bytes, x) = rounded(kind, &wave(0.71, rows * inputs));
                let (w_bytes, w) = rounded(kind, &wave(0.37, outputs * inputs));
                let (bias_bytes, bias) = rounded(if is_fp8 { "f32" } else { out }, &wave(2.3, outputs));
                let (before_bytes, before) = rounded(out, &wave(1.3, rows * outputs));
                let [x_buffer, w_buffer, bias_buffer, y] =
                    [&x_bytes, &w_bytes, &bias_bytes, &before_bytes].map(|bytes| buffer(bytes));
                let has_bias = has_scales || !is_fp8;
                let (of_rows, of_outputs) = (wave(3.1, rows), wave(1.9, outputs));
                let scales = [&of_rows, &of_outputs].map(|scales| floats(&gpu, scales));
                let [row_scales, scales] = scales.each_ref().map(|scales| has_scales.then_some(scales));
                let with = [
                    Some(&x_buffer),
                    Some(&w_buffer),
                    has_bias.then_some(&bias_buffer),
                    Some(&y),
                    row_scales,
                    scales,
                ];
                let numbers = [rows, outputs, inputs, usize::from(adds)].map(|number| number as u32);
                let blocks = (outputs / block).div_ceil(2);
                launch(&gpu, &format!("product_{kind}_{out}_{most}"), blocks, &with, &numbers);
                let mut bytes = vec![0; y.bytes()];
                gpu.read(y.address(), &mut bytes).expect("it is there");
                for at in 0..rows * outputs {
                    let (row, output) = (at / outputs, at % outputs);
                    let pairs = x[row * inputs..][..inputs].iter().zip(&w[output * inputs..][..inputs]);
                    let mut expected: f64 = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    if has_scales {
                        expected *= f64::from(of_rows[row]) * f64::from(of_outputs[output]);
                    }
                    expected += if has_bias { f64::from(bias[output]) } else { 0.0 };
                    expected += if adds { f64::from(before[at]) } else { 0.0 };
                    let found = match out {
                        "bf16" => half::bf16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f32(),
                        "f16" => half::f16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f32(),
                        _ => f32::from_le_bytes(bytes[4 * at..][..4].try_into().expect("four bytes")),
                    };
                    let bound = match out {
                        "bf16" => 1e-3 + expected.abs() / 250.0,
                        "f16" => 1e-3 + expected.abs() / 2_000.0,
                        _ => 2e-3,
                    };
                    let apart = (f64::from(found) - expected).abs();
                    assert!(apart < bound, "{kind} {inputs} {rows} {out}, {at}: {found} for {expected}");
                }
            }
        }
    }
}

#[test]
fn results_of_more_parts_than_a_warp_has_lanes_are_put_together() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let (parts, dim) = (70_usize, 24_usize);
    let words = |words: Vec<u32>| {
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        Buffer::of(&gpu, &bytes).expect("it fits")
    };
    // Of each part: what is not yet divided by its sum, its highest score, its sum. The last has seen nothing.
    let partial = |part: usize| {
        let numbers = (0..dim).map(move |at| ((part * dim + at) as f32 * 0.37).sin());
        let end = if part + 1 == parts { [-1e30, 0.0] } else { [(part % 9) as f32 - 4.0, 1.0 + part as f32] };
        numbers.chain(end).collect::<Vec<f32>>()
    };
    let all: Vec<Vec<f32>> = (0..parts).map(partial).collect();
    let partials = floats(&gpu, &all.concat());
    // They are read in another order than they lie in.
    let readings = words((0..parts as u32).rev().collect());
    let first_reading = words(vec![0, parts as u32]);
    // `Tables`: twelve addresses, of which the tenth and the eleventh are looked at, then the number of tokens.
    let mut tables = [0_u64; 14];
    (tables[9], tables[10], tables[12]) = (first_reading.address().0, readings.address().0, 1);
    let bytes: Vec<u8> = tables.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let tables = Buffer::of(&gpu, &bytes).expect("it fits");
    let out = Buffer::new(&gpu, 4 * dim).expect("it fits");
    let buffers = [Some(&tables), None, None, None, Some(&partials), Some(&out)];
    let weight = |part: &[f32]| f64::from(part[dim]).exp2();
    let sum: f64 = all.iter().map(|part| f64::from(part[dim + 1]) * weight(part)).sum();
    for warps in [1, 4] {
        let numbers = [1, 1, dim as u32, 0, 16, 0, 0, 1.0_f32.to_bits(), warps];
        launch(&gpu, "merge_f32", 1, &buffers, &numbers);
        for (at, found) in read_floats(&gpu, &out).iter().enumerate() {
            let expected = all.iter().map(|part| f64::from(part[at]) * weight(part)).sum::<f64>() / sum;
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{warps}, {at}: {found} for {expected}");
        }
        gpu.write(out.address(), &vec![0xff; out.bytes()]).expect("it is written");
    }
}
