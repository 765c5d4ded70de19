//! Whether a plan can be run at all: after this, nothing indexes out of bounds.

use std::collections::HashSet;

use base::{BatchPlan, BlockId, Run, Slot};

use crate::checkpoint::ModelConfig;
use crate::checkpoint::config::Position;
use crate::pool::PoolShape;

/// What is wrong with `plan`, if anything.
pub(super) fn check(plan: &BatchPlan, config: &ModelConfig, shape: PoolShape) -> Result<(), String> {
    if plan.slots.is_empty() {
        return Err("the plan has no slots".into());
    }
    let mut requests = HashSet::new();
    let mut written = HashSet::new();
    for slot in &plan.slots {
        let fail = |reason: String| Err(format!("request {}: {reason}", slot.request));
        if slot.sample.is_some() && !requests.insert(slot.request) {
            return fail("it samples in two slots".into());
        }
        if let Err(reason) = check_slot(slot, config, shape) {
            return fail(reason);
        }
        for i in 0..slot.input.len() {
            let at = slot.write_offset as usize + i;
            let block = slot.write_blocks[at / shape.block_tokens];
            if !written.insert((block, at % shape.block_tokens)) {
                return fail(format!("block {block} position {} is written twice", at % shape.block_tokens));
            }
        }
    }
    Ok(())
}

/// What is wrong with a plan's moves between the pool and a tier of `tier_blocks`, if anything.
pub(super) fn check_moves(plan: &BatchPlan, shape: PoolShape, tier_blocks: usize) -> Result<(), String> {
    let (mut named, mut sources, mut targets) = (HashSet::new(), HashSet::new(), HashSet::new());
    let moves = &plan.moves;
    for block in moves.out.iter().map(|moved| moved.to).chain(moves.back.iter().map(|moved| moved.from)) {
        if block.0 as usize >= tier_blocks {
            return Err(format!("block {block} is not in the tier of {tier_blocks}"));
        }
        if !named.insert(block) {
            return Err(format!("block {block} of the tier moves twice"));
        }
    }
    for moved in &moves.out {
        check_blocks(&[moved.from], shape)?;
        if !sources.insert(moved.from) {
            return Err(format!("block {} moves out twice", moved.from));
        }
    }
    for moved in &moves.back {
        check_blocks(&[moved.to], shape)?;
        if !targets.insert(moved.to) {
            return Err(format!("two blocks move back to block {}", moved.to));
        }
    }
    let written = plan.slots.iter().flat_map(|slot| &slot.write_blocks).find(|block| targets.contains(block));
    match written {
        Some(block) => Err(format!("block {block} moves back and is written")),
        None => Ok(()),
    }
}

fn check_slot(slot: &Slot, config: &ModelConfig, shape: PoolShape) -> Result<(), String> {
    if slot.input.is_empty() {
        return Err("its input is empty".into());
    }
    if slot.guesses as usize >= slot.input.len() {
        return Err(format!("{} guesses leave nothing of an input of {}", slot.guesses, slot.input.len()));
    }
    if slot.guesses > 0 && slot.sample.is_none() {
        return Err("it guesses and does not sample".into());
    }
    if let Some(targets) = &slot.prompt_targets {
        // At its last known token a slot is sampled.
        let most = slot.input.len() - slot.guesses as usize - usize::from(slot.sample.is_some());
        if targets.tokens.len() > most {
            return Err(format!("{} targets follow {most} tokens", targets.tokens.len()));
        }
        if let Some(token) = targets.tokens.iter().find(|token| token.0 as usize >= config.vocab) {
            return Err(format!("target {token} is not in the vocabulary of {}", config.vocab));
        }
    }
    if let Some(sample) = &slot.sample
        && !sample.already_generated.is_empty()
    {
        if sample.already_generated.len() != sample.output_index as usize {
            return Err(format!(
                "{} tokens generated before output {}",
                sample.already_generated.len(),
                sample.output_index
            ));
        }
        if let Some(token) = sample.already_generated.iter().find(|token| token.0 as usize >= config.vocab) {
            return Err(format!(
                "token {token}, generated before, is not in the vocabulary of {}",
                config.vocab
            ));
        }
    }
    let end = (slot.start as usize).saturating_add(slot.input.len());
    if end > config.context_max {
        return Err(format!("it reaches position {end}, the model has {}", config.context_max));
    }
    if let Some(token) = slot.input.iter().find(|token| token.0 as usize >= config.vocab) {
        return Err(format!("token {token} is not in the vocabulary of {}", config.vocab));
    }
    check_blocks(&slot.write_blocks, shape)?;
    let room = slot.write_blocks.len() * shape.block_tokens;
    if slot.write_offset as usize >= shape.block_tokens {
        return Err(format!("write offset {} is beyond the first block", slot.write_offset));
    }
    if slot.write_offset as usize + slot.input.len() > room {
        return Err(format!(
            "{} tokens at offset {} do not fit in {room} positions",
            slot.input.len(),
            slot.write_offset
        ));
    }
    let mut position = 0;
    for run in &slot.context {
        check_run(run, slot.start, config, shape)?;
        position += run.tokens.0;
    }
    if position > u64::from(slot.start) {
        return Err(format!("it starts at {} after a context of {position} tokens", slot.start));
    }
    // Sections may leave positions free; a window counts positions, and finds them by counting tokens.
    if position < u64::from(slot.start) && config.sliding_window.is_some() {
        return Err("attention in a window needs a context without gaps".into());
    }
    Ok(())
}

fn check_run(run: &Run, start: u32, config: &ModelConfig, shape: PoolShape) -> Result<(), String> {
    check_blocks(&run.blocks, shape)?;
    let tokens = usize::try_from(run.tokens.0).unwrap_or(usize::MAX);
    let skip = run.skip as usize;
    if skip >= shape.block_tokens {
        return Err(format!("a run skips {skip} positions, blocks have {}", shape.block_tokens));
    }
    if tokens == 0 || tokens.saturating_add(skip).div_ceil(shape.block_tokens) != run.blocks.len() {
        return Err(format!("a run of {tokens} tokens behind {skip} has {} blocks", run.blocks.len()));
    }
    if run.shift != 0 && matches!(config.position, Position::Learned { .. }) {
        return Err("learned positions cannot be shifted".into());
    }
    if run.shift > start {
        return Err(format!("a run is shifted by {} for a query at position {start}", run.shift));
    }
    Ok(())
}

fn check_blocks(blocks: &[BlockId], shape: PoolShape) -> Result<(), String> {
    match blocks.iter().find(|block| block.0 as usize >= shape.blocks) {
        Some(block) => Err(format!("block {block} is not in the pool of {}", shape.blocks)),
        None => Ok(()),
    }
}
