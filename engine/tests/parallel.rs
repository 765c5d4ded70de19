//! A model on two or four ranks answers as it does on one.

mod common;

use std::sync::Arc;

use base::text::ByteText;
use base::{Bytes, Generation, RowError, Slot, TokenId};
use common::{Blocks, Row, advance, decode_all, difference, step, tokens, with_unsound_token};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint::weights::MapWeights;
use engine::device::{Cpu, Isa};
use engine::executor::{LocalExecutor, PoolSettings};
use engine::parallel::{Ranks, ShardedModel};
use engine::{Keep, KvFormat, Quantize};

const BLOCK: usize = 16;
const FAMILIES: [Family; 9] = Family::ALL;

/// Largest difference between numbers of ranks, in units of the largest logit: sums in another order.
const TOLERANCE: f32 = 1e-5;

/// The same where activations are rounded, to bf16, half floats or eight bits: a sum that another order moves across
/// a border of its last place moves by the whole place, 2^-8.
const ROUNDED_TOLERANCE: f32 = 2e-2;

/// A model on so many ranks; the second of them has two threads, the others one.
fn ranks_on(isa: Isa, model: &Synthetic, weights: &MapWeights, count: usize) -> ShardedModel {
    ranks_keeping(common::keep(isa), isa, model, weights, count)
}

fn ranks_keeping(
    keep: Keep,
    isa: Isa,
    model: &Synthetic,
    weights: &MapWeights,
    count: usize,
) -> ShardedModel {
    let cpu = |rank| Arc::new(Cpu::with_isa(Some(1 + usize::from(rank == 1)), isa).expect("threads start"));
    let cpus: Vec<Arc<Cpu>> = (0..count).map(cpu).collect();
    ShardedModel::load(&model.config, weights, &cpus, keep).expect("the model divides")
}

fn executor(model: &Synthetic, weights: &MapWeights, ranks: usize) -> LocalExecutor {
    let ranks = ranks_on(Isa::detect(), model, weights, ranks);
    let settings = PoolSettings { block_tokens: BLOCK as u32, kv_bytes: Bytes(8 << 20) };
    LocalExecutor::new(ranks, Arc::new(ByteText), vec![ByteText::END], settings).expect("the pool fits")
}

/// Logits of [`common::shared_rows`].
fn logits(model: &ShardedModel, seed: u64) -> Vec<Vec<f32>> {
    let shape = model.pool_shape(BLOCK as u32, Bytes(4 << 20)).expect("the pool fits");
    let mut ranks = Ranks::start(model, shape).expect("it fits");
    let mut found = Vec::new();
    common::shared_rows(seed, BLOCK, |slots: &[Slot]| {
        let hidden = ranks.forward(slots).expect("no rank fails");
        let logits = ranks.logits(&hidden, 0..hidden.rows()).expect("no rank fails");
        found.extend(logits.chunks_exact(model.config().vocab).map(<[f32]>::to_vec));
    });
    found
}

/// Compares two and four ranks with one, on this machine's best kernels, on those of half floats, and on the best that
/// do not round.
fn check(model: &Synthetic) {
    let rounds = |isa: Isa| match model.dtype {
        Dtype::F32 => false,
        Dtype::F16 => isa.multiplies_halves(),
        Dtype::Bf16 => isa.multiplies_halves() || isa.rounds_activations(),
    };
    let weights = model.weights();
    // Numbers in single precision are multiplied by the kernels that do not round.
    let is_another = |isa: &Isa| isa.is_available() && rounds(*isa) && *isa != Isa::detect();
    let halves = Some(Isa::Avx512Fp16).filter(is_another);
    for isa in [common::widening(), Isa::detect()].into_iter().chain(halves) {
        let expected = logits(&ranks_on(isa, model, &weights, 1), model.seed);
        let tolerance = if rounds(isa) { ROUNDED_TOLERANCE } else { TOLERANCE };
        for count in [2, 4] {
            let ranks = ranks_on(isa, model, &weights, count);
            let found = logits(&ranks, model.seed);
            assert_eq!(found.len(), expected.len());
            for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let apart = difference(found, expected);
                let family = model.config.family;
                assert!(apart < tolerance, "{isa:?} {family:?} on {count} ranks, row {row}: {apart}");
            }
            let again = logits(&ranks, model.seed);
            assert_eq!(found, again, "whoever comes first, sums are the same bits");
        }
    }
}

#[test]
fn logits_are_those_of_one_rank_to_rounding_in_every_family() {
    for family in FAMILIES {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            check(&Synthetic { dtype, ..Synthetic::tiny(family, 61) });
        }
    }
}

#[test]
fn logits_are_those_of_one_rank_where_the_head_is_tied_the_window_slides_or_opt_projects() {
    let mut tied = Synthetic::tiny(Family::Qwen2, 62);
    tied.config.tied_head = true;
    check(&tied);
    let mut sliding = Synthetic::tiny(Family::Mistral, 63);
    sliding.config.sliding_window = Some(23);
    check(&sliding);
    let mut projecting = Synthetic::tiny(Family::Opt, 64);
    projecting.config.embedding = 16;
    projecting.config.norm_first = false;
    projecting.config.final_norm = false;
    check(&projecting);
    // Twelve heads on twelve of keys and values, three or six to a rank; a width that fills no vector.
    let mut odd = Synthetic::tiny(Family::Llama, 65);
    (odd.config.heads, odd.config.kv_heads, odd.config.head_dim) = (12, 12, 20);
    odd.config.intermediate = 44;
    check(&odd);
}

/// Checks that 2 and 4 ranks give what one does, to the rounding of what is kept.
fn check_rounded(model: &Synthetic, keep: Keep) {
    let weights = model.weights();
    for isa in [common::widening(), Isa::detect()] {
        let on = |count| logits(&ranks_keeping(keep, isa, model, &weights, count), model.seed);
        let expected = on(1);
        for count in [2, 4] {
            for (found, expected) in on(count).iter().zip(&expected) {
                let apart = difference(found, expected);
                assert!(apart < ROUNDED_TOLERANCE, "{isa:?} on {count} ranks: {apart}");
            }
        }
    }
}

#[test]
fn weights_of_eight_bits_answer_as_on_one_rank_where_their_groups_are_not_cut() {
    let mut model = Synthetic::tiny(Family::Qwen2, 69);
    // Every rank's inputs of the output projection and of the down projection are whole groups of the largest
    // size.
    (model.config.head_dim, model.config.intermediate) = (128, 512);
    check_rounded(&model, Keep { quantize: Some(Quantize::Q8), ..Keep::default() });
}

#[test]
fn keys_and_values_of_eight_bits_answer_as_on_one_rank() {
    let model = Synthetic::tiny(Family::Qwen3, 70);
    check_rounded(&model, Keep { kv: Some(KvFormat::Q8), ..Keep::default() });
}

#[test]
fn the_highest_logits_are_found_among_all_ranks_tokens_and_padding_is_left_out() {
    let model = Synthetic::tiny(Family::Llama, 71);
    let weights = model.weights();
    for count in [1, 2, 4] {
        let sharded = ranks_on(Isa::detect(), &model, &weights, count);
        let shape = sharded.pool_shape(BLOCK as u32, Bytes(4 << 20)).expect("the pool fits");
        let (mut ranks, mut blocks) = (Ranks::start(&sharded, shape).expect("it fits"), Blocks::default());
        let rows = (0..3).map(|id| Row::new(id, tokens(id, 9), 16, BLOCK, &mut blocks));
        let slots: Vec<Slot> = rows.map(|row| row.slot(0..row.prompt)).collect();
        let hidden = ranks.forward(&slots).expect("no rank fails");
        let logits = ranks.logits(&hidden, 0..hidden.rows()).expect("no rank fails");
        let (wanted, vocab) = ([1, 5, 64], model.config.vocab);
        for end in [vocab, vocab / 3, 7, vocab + 9] {
            let found = ranks.top_k(&hidden, &wanted, end).expect("no rank fails");
            for ((logits, found), wanted) in logits.chunks_exact(vocab).zip(&found).zip(wanted) {
                let mut sorted: Vec<(f32, u32)> = logits.iter().copied().zip(0..).take(end).collect();
                sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                sorted.truncate(wanted);
                assert_eq!(found.kept(), Some(&sorted[..]), "{wanted} of {count} ranks before {end}");
            }
        }
    }
}

#[test]
fn a_whole_run_draws_the_tokens_of_one_rank() {
    for family in FAMILIES {
        let model = Synthetic::tiny(family, 66);
        let weights = model.weights();
        let run = |ranks: usize| {
            let (mut executor, mut blocks) = (executor(&model, &weights, ranks), Blocks::default());
            let prompt = |row: u64| [tokens(1, 2 * BLOCK), tokens(row + 2, 9 + 7 * row as usize)].concat();
            let mut rows: Vec<Row> = Vec::new();
            for id in 0..5 {
                let row = Row::new(id, prompt(id), 128, BLOCK, &mut blocks);
                let row = match rows.first() {
                    Some(first) => row.sharing(first, 2),
                    None => Row { cuts: vec![2], ..row },
                };
                rows.push(row);
            }
            // The template is computed once, in the step that also reads it.
            let first = rows[0].slot(0..rows[0].prompt);
            let others = rows[1..].iter().map(|row| row.slot(2 * BLOCK..row.prompt));
            let slots = std::iter::once(first).chain(others).collect();
            advance(&mut executor, &mut rows, slots);
            decode_all(&mut executor, &mut rows, 12)
        };
        let expected = run(1);
        assert_eq!(run(2), expected, "{family:?} on two ranks");
        assert_eq!(run(4), expected, "{family:?} on four ranks");
    }
}

#[test]
fn logits_that_are_not_numbers_fail_their_row_alone_on_every_rank() {
    let model = Synthetic::tiny(Family::Llama, 67);
    let weights = with_unsound_token(&model, TokenId(7));
    // Greedy rows, of which no logits are written; then beside one that is drawn from all of its own.
    for (id, temperature) in [(1, 0.0), (3, 1.0)] {
        let (mut executor, mut blocks) = (executor(&model, &weights, 2), Blocks::default());
        let mut good = Row::new(id, vec![TokenId(3); 20], 40, BLOCK, &mut blocks);
        good.generation = Arc::new(Generation { temperature, ..Generation::default() });
        let bad = Row::new(2, vec![TokenId(3), TokenId(7), TokenId(3)], 40, BLOCK, &mut blocks);
        let results = step(&mut executor, [&good, &bad].map(|row| row.slot(0..row.prompt)).to_vec());
        assert!(results[0].is_ok());
        assert_eq!(results[1], Err(RowError::NotANumber));
    }
}

#[test]
fn ranks_share_the_memory_for_keys_and_values() {
    let blocks = |family, count| {
        let model = Synthetic::tiny(family, 68);
        let ranks = ranks_on(Isa::detect(), &model, &model.weights(), count);
        ranks.pool_shape(BLOCK as u32, Bytes(1 << 20)).expect("the pool fits").blocks
    };
    let (one, two, four) = (blocks(Family::Opt, 1), blocks(Family::Opt, 2), blocks(Family::Opt, 4));
    assert!(two == one && four == one, "four heads: {one}, {two}, {four}");
    let (one, two, four) = (blocks(Family::Llama, 1), blocks(Family::Llama, 2), blocks(Family::Llama, 4));
    assert!(
        two == one && four == one / 2,
        "two heads, each of them twice on four ranks: {one}, {two}, {four}"
    );
}
