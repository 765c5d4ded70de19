//! Greedy tokens do not depend on how a row was computed: cached, chunked, shared, alone or in a batch.

mod common;

use base::TokenId;
use common::{Bare, Blocks, Row, advance, decode_all, decoder_keeping, executor, tokens};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::Isa;
use engine::{Keep, KvFormat, LocalExecutor};

const BLOCK: usize = 16;
const OUTPUTS: usize = 8;
/// Whole blocks of the template.
const SHARED: usize = 3;

/// Prompts that share a template and go on differently.
fn prompts() -> Vec<Vec<TokenId>> {
    let template = tokens(1, SHARED * BLOCK);
    (0..5).map(|row| [template.clone(), tokens(row + 2, 9 + 7 * row as usize)].concat()).collect()
}

/// What each row gives alone, whole and without any reuse.
fn expected(model: &Synthetic) -> Vec<Vec<TokenId>> {
    let alone = |(id, prompt): (usize, Vec<TokenId>)| {
        let mut executor = executor(model, BLOCK as u32);
        let mut rows = [Row::new(id as u64, prompt, 128, BLOCK, &mut Blocks::default())];
        let slot = rows[0].slot(0..rows[0].prompt);
        advance(&mut executor, &mut rows, vec![slot]);
        decode_all(&mut executor, &mut rows, OUTPUTS).remove(0)
    };
    prompts().into_iter().enumerate().map(alone).collect()
}

/// Rows that share no block.
fn separate_rows(blocks: &mut Blocks) -> Vec<Row> {
    let row = |(id, prompt): (usize, Vec<TokenId>)| Row::new(id as u64, prompt, 128, BLOCK, blocks);
    prompts().into_iter().enumerate().map(row).collect()
}

/// Rows whose template lies in the first row's blocks.
fn sharing_rows(blocks: &mut Blocks) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (id, prompt) in prompts().into_iter().enumerate() {
        let row = Row::new(id as u64, prompt, 128, BLOCK, blocks);
        let row = match rows.first() {
            Some(first) => row.sharing(first, SHARED),
            None => Row { cuts: vec![SHARED], ..row },
        };
        rows.push(row);
    }
    rows
}

const FAMILIES: [Family; 9] = Family::ALL;

fn models() -> Vec<Synthetic> {
    FAMILIES.map(|family| Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(family, 21) }).into()
}

/// Rows whose prompts are computed go on as each does alone.
fn check_outputs(model: &Synthetic, executor: &mut LocalExecutor, rows: &mut [Row]) {
    let family = model.config.family;
    assert_eq!(decode_all(executor, rows, OUTPUTS), expected(model), "{family:?}");
}

#[test]
fn a_batch_gives_what_its_rows_give_alone() {
    for model in models() {
        let (mut executor, mut blocks) = (executor(&model, BLOCK as u32), Blocks::default());
        let mut rows = separate_rows(&mut blocks);
        let slots = rows.iter().map(|row| row.slot(0..row.prompt)).collect();
        advance(&mut executor, &mut rows, slots);
        check_outputs(&model, &mut executor, &mut rows);
    }
}

#[test]
fn a_prefix_hit_changes_nothing() {
    for model in models() {
        let (mut executor, mut blocks) = (executor(&model, BLOCK as u32), Blocks::default());
        let mut rows = sharing_rows(&mut blocks);
        let first = rows[0].slot(0..rows[0].prompt);
        advance(&mut executor, &mut rows, vec![first]);
        let hits = rows[1..].iter().map(|row| row.slot(SHARED * BLOCK..row.prompt)).collect();
        advance(&mut executor, &mut rows, hits);
        check_outputs(&model, &mut executor, &mut rows);
    }
}

#[test]
fn chunked_prefill_mixed_with_decode_changes_nothing() {
    for model in models() {
        let (mut executor, mut blocks) = (executor(&model, BLOCK as u32), Blocks::default());
        let mut rows = separate_rows(&mut blocks);
        let mut computed = [0; 5];
        // Row after row is prefilled 11 tokens at a time, while those before it decode.
        while computed.iter().zip(&rows).any(|(computed, row)| *computed < row.prompt) {
            let mut slots = Vec::new();
            for (computed, row) in computed.iter_mut().zip(&rows) {
                if *computed < row.prompt {
                    let end = (*computed + 11).min(row.prompt);
                    slots.push(row.slot(*computed..end));
                    *computed = end;
                    break;
                } else if row.tokens.len() < row.prompt + OUTPUTS {
                    slots.push(row.decode());
                }
            }
            advance(&mut executor, &mut rows, slots);
        }
        check_outputs(&model, &mut executor, &mut rows);
    }
}

#[test]
fn trie_prefill_computes_a_template_once_in_the_step_that_uses_it() {
    for model in models() {
        let (mut executor, mut blocks) = (executor(&model, BLOCK as u32), Blocks::default());
        let mut rows = sharing_rows(&mut blocks);
        // The slot that writes the template stands last: readers come before it in the batch.
        let mut slots: Vec<_> = rows[1..].iter().map(|row| row.slot(SHARED * BLOCK..row.prompt)).collect();
        slots.push(rows[0].slot(0..rows[0].prompt));
        advance(&mut executor, &mut rows, slots);
        check_outputs(&model, &mut executor, &mut rows);
    }
}

#[test]
fn a_prefix_hit_moves_no_bit_however_keys_and_values_are_kept() {
    for (isa, kv) in Isa::available().flat_map(|isa| KvFormat::ON_CPU.map(|kv| (isa, kv))) {
        let model = Synthetic::tiny(Family::Qwen2, 23);
        let keep = Keep { kv: Some(kv), ..Keep::default() };
        // The template is computed in a step of its own, so what follows has the same shape with and without
        // a hit.
        let logits = |is_hit: bool| {
            let (mut blocks, at) = (Blocks::default(), SHARED * BLOCK);
            let decoder = decoder_keeping(keep, isa, &model, &model.weights());
            let mut bare = Bare::new(decoder, BLOCK as u32);
            let [first, mut second] = [0, 1].map(|id| {
                let prompt = prompts()[id].clone();
                Row { cuts: vec![SHARED], ..Row::new(id as u64, prompt, 128, BLOCK, &mut blocks) }
            });
            bare.logits(&[first.slot(0..at), first.slot(at..first.prompt)]);
            if is_hit {
                second.blocks[..SHARED].copy_from_slice(&first.blocks[..SHARED]);
            } else {
                bare.logits(&[second.slot(0..at)]);
            }
            let mut found = bare.logits(&[second.slot(at..second.prompt)]);
            for token in tokens(4, 3) {
                second.tokens.push(token);
                found.extend(bare.logits(&[second.decode()]));
            }
            found.concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(logits(true), logits(false), "{isa:?} {kv:?}");
    }
}
