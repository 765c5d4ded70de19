//! Every family's logits equal an independent implementation's.

mod common;

use common::{
    Bare, Blocks, Row, decoder, decoder_keeping, decoder_on, difference, reference, tokens, widening,
};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::{Family, Position, RopeScaling};
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Isa;
use engine::{Keep, KvFormat};

/// Largest difference from the reference, in units of the largest logit: single-precision rounding.
const TOLERANCE: f32 = 1e-4;

/// The same where activations are rounded to bf16, eight binary places, before each product: what one
/// rounding moves, 2^-8, a few times over. The kernels themselves are held to exact sums over rounded
/// activations.
const ROUNDED_TOLERANCE: f32 = 2e-2;

/// Compares logits on this machine's best kernels, on those of half floats, and on the best that take activations as
/// they are.
fn check(model: &Synthetic) {
    check_on(widening(), model);
    if Isa::Avx512Fp16.is_available() && model.dtype != Dtype::F32 {
        check_on(Isa::Avx512Fp16, model);
    }
    if Isa::detect().rounds_activations() && model.dtype == Dtype::Bf16 {
        check_on(Isa::detect(), model);
    }
}

/// Compares logits after a prompt of more than one block, then after each of several decode steps.
fn check_on(isa: Isa, model: &Synthetic) {
    let is_rounded = match model.dtype {
        Dtype::F32 => false,
        Dtype::F16 => isa.multiplies_halves(),
        Dtype::Bf16 => isa.multiplies_halves() || isa.rounds_activations(),
    };
    let tolerance = if is_rounded { ROUNDED_TOLERANCE } else { TOLERANCE };
    let weights = model.weights();
    let mut bare = Bare::new(decoder_on(isa, model, &weights), 16);
    let mut blocks = Blocks::default();
    let mut row = Row::new(1, tokens(model.seed, 37), 64, 16, &mut blocks);
    for _ in 0..14 {
        let slot = if row.tokens.len() == row.prompt { row.slot(0..row.prompt) } else { row.decode() };
        let found = bare.logits(&[slot]).remove(0);
        let ids: Vec<u32> = row.tokens.iter().map(|token| token.0).collect();
        let expected = reference::logits(&model.config, &weights, &ids);
        let apart = difference(&found, &expected);
        assert!(
            apart < tolerance,
            "{isa:?} {:?} {:?}, {} tokens: {apart}",
            model.config.family,
            model.dtype,
            ids.len()
        );
        row.tokens.extend(tokens(ids.len() as u64, 1));
    }
}

#[test]
fn each_family_in_each_type_equals_its_reference() {
    for family in [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3, Family::Opt] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            check(&Synthetic { dtype, ..Synthetic::tiny(family, 5) });
        }
    }
}

#[test]
fn weights_of_half_precision_are_kept_so_and_give_the_bits_of_the_same_in_single_precision() {
    for (isa, family) in Isa::available().filter(|isa| !isa.multiplies_halves()).flat_map(|isa| {
        [Family::Llama, Family::Opt, Family::Falcon, Family::Gemma3].map(|family| (isa, family))
    }) {
        let model = Synthetic { dtype: Dtype::F16, ..Synthetic::tiny(family, 19) };
        let weights = model.weights();
        let of = |dtype: Option<Dtype>| {
            let keep = Keep { dtype, kv: Some(KvFormat::F32), ..Keep::default() };
            let decoder = decoder_keeping(keep, isa, &model, &weights);
            let bytes = decoder.step_bytes();
            let mut bare = Bare::new(decoder, 16);
            let mut row = Row::new(1, tokens(3, 37), 64, 16, &mut Blocks::default());
            let mut found = bare.logits(&[row.slot(0..row.prompt)]).remove(0);
            row.tokens.extend(tokens(5, 1));
            found.extend(bare.logits(&[row.decode()]).remove(0));
            (bytes, found.iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>())
        };
        let (kept, widened) = (of(None), of(Some(Dtype::F32)));
        assert_eq!(2 * kept.0, widened.0, "half the memory");
        assert!(kept.1 == widened.1, "{isa:?} {family:?}: a half is a single too, and sums are in one order");
    }
}

/// A chunk that ends a prompt, then a token at a time, so that runs end within pairs of positions and between
/// them: how far from the reference logits are at most, and at least.
fn apart_with(kv: KvFormat, isa: Isa, model: &Synthetic) -> [f32; 2] {
    let weights = model.weights();
    let keep = Keep { kv: Some(kv), ..Keep::default() };
    let mut bare = Bare::new(decoder_keeping(keep, isa, model, &weights), 5);
    let mut row = Row::new(1, tokens(3, 21), 40, 5, &mut Blocks::default());
    bare.logits(&[row.slot(0..12)]);
    let mut found = [0.0, f32::INFINITY];
    for computed in 12..20 {
        let slot = if computed == 12 { row.slot(12..row.prompt) } else { row.decode() };
        let logits = bare.logits(&[slot]).remove(0);
        let ids: Vec<u32> = row.tokens.iter().map(|token| token.0).collect();
        let apart = difference(&logits, &reference::logits(&model.config, &weights, &ids));
        found = [if apart < found[0] { found[0] } else { apart }, found[1].min(apart)];
        row.tokens.extend(tokens(computed as u64, 1));
    }
    found
}

#[test]
fn keys_and_values_in_fewer_bits_move_logits_by_their_rounding_alone_on_every_instruction_set() {
    for (isa, family) in Isa::available().zip([Family::Llama, Family::Qwen3, Family::Opt].into_iter().cycle())
    {
        for kv in [KvFormat::Bf16, KvFormat::Q8] {
            let [most, least] = apart_with(kv, isa, &Synthetic::tiny(family, 13));
            assert!(
                least > TOLERANCE / 100.0 && most < ROUNDED_TOLERANCE,
                "{isa:?} {family:?} {kv:?}: {most}"
            );
        }
    }
}

#[test]
fn keys_and_values_of_eight_bits_are_read_in_heads_of_every_size() {
    for (isa, head_dim) in Isa::available().flat_map(|isa| [20, 64, 80, 96, 128].map(|dim| (isa, dim))) {
        let mut model = Synthetic::tiny(Family::Mistral, 17);
        model.config.head_dim = head_dim;
        let [most, least] = apart_with(KvFormat::Q8, isa, &model);
        assert!(
            least > TOLERANCE / 100.0 && most < ROUNDED_TOLERANCE,
            "{isa:?}, heads of {head_dim}: {most}"
        );
    }
}

#[test]
fn a_tied_head_equals_its_reference() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let mut model = Synthetic::tiny(family, 6);
        model.config.tied_head = true;
        check(&model);
    }
}

#[test]
fn llama3_rope_scaling_equals_its_reference() {
    let mut model = Synthetic::tiny(Family::Llama, 7);
    model.config.hidden = 64;
    model.config.embedding = 64;
    model.config.head_dim = 16;
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 32,
    };
    model.config.position = Position::Rotary { theta: 10_000.0, scaling };
    check(&model);
}

#[test]
fn a_sliding_window_equals_its_reference() {
    let mut model = Synthetic::tiny(Family::Mistral, 8);
    for window in [5, 16, 23] {
        model.config.sliding_window = Some(window);
        let weights = model.weights();
        let mut bare = Bare::new(decoder(&model, &weights), 8);
        let prompt = tokens(9, 60);
        let ids: Vec<u32> = prompt.iter().map(|token| token.0).collect();
        let row = Row::new(1, prompt, 60, 8, &mut Blocks::default());
        let expected = reference::logits(&model.config, &weights, &ids);
        let whole = bare.logits(&[row.slot(0..60)]).remove(0);
        assert!(difference(&whole, &expected) < TOLERANCE);
        // The same in two chunks: the second sees a cached run through its window.
        bare.logits(&[row.slot(0..41)]);
        let chunked = bare.logits(&[row.slot(41..60)]).remove(0);
        assert!(difference(&chunked, &expected) < TOLERANCE);
    }
}

#[test]
fn opt_350m_projects_in_and_out_and_normalises_behind_its_blocks() {
    let mut model = Synthetic::tiny(Family::Opt, 10);
    model.config.embedding = 16;
    model.config.norm_first = false;
    model.config.final_norm = false;
    for dtype in [Dtype::F32, Dtype::F16] {
        check(&Synthetic { dtype, ..model.clone() });
    }
}

#[test]
fn heads_and_blocks_of_odd_sizes_equal_the_reference() {
    let mut model = Synthetic::tiny(Family::Mistral, 12);
    model.config.heads = 6;
    model.config.kv_heads = 2;
    model.config.head_dim = 20;
    model.config.intermediate = 37;
    let weights = model.weights();
    for block_tokens in [1, 5, 16, 33, 128] {
        let mut bare = Bare::new(decoder(&model, &weights), block_tokens);
        let prompt = tokens(3, 50);
        let ids: Vec<u32> = prompt.iter().map(|token| token.0).collect();
        let row = Row::new(1, prompt, 50, block_tokens as usize, &mut Blocks::default());
        bare.logits(&[row.slot(0..31)]);
        let found = bare.logits(&[row.slot(31..50)]).remove(0);
        let expected = reference::logits(&model.config, &weights, &ids);
        assert!(difference(&found, &expected) < TOLERANCE, "blocks of {block_tokens}");
    }
}
