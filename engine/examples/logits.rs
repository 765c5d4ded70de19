//! Logits of a checkpoint on a device, for whoever has another implementation to hold them against:
//! `cargo run --release -p engine --example logits -- DIR cuda:0 FILE`.
//!
//! One prompt of [`TOKENS`] made-up tokens; `FILE` gets its logits `[tokens, vocabulary]` as they lie in
//! memory, single precision. Prints the prompt's tokens (tests/gpu/peers.py reads both).
#![expect(clippy::print_stdout, reason = "the tokens are its result")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use base::{Bytes, Generation, RequestId, SampleSpec, Slot, TokenId};
use engine::parallel::Ranks;
use engine::{EngineConfig, load_dir};

/// Tokens of the prompt: several tiles of attention, and of products.
const TOKENS: u32 = 200;

/// Positions of a block.
const BLOCK: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, device, file] = &arguments[..] else { return Err("usage: logits DIR DEVICE FILE".into()) };
    let config = EngineConfig { device: device.parse()?, ..EngineConfig::default() };
    let engine = load_dir(Path::new(dir), &config, &Arc::default())?;
    let model = engine.executor.model();
    let tokens: Vec<u32> = (0..TOKENS).map(|i| 5 + 37 * i % 250).collect();
    // All tokens but the first are guesses: the slot is sampled at each of them.
    let slot = Slot {
        request: RequestId(1),
        start: 0,
        input: tokens.iter().copied().map(TokenId).collect(),
        guesses: TOKENS - 1,
        prompt_targets: None,
        context: Vec::new(),
        write_blocks: (0..TOKENS.div_ceil(BLOCK)).map(base::BlockId).collect(),
        write_offset: 0,
        sample: Some(SampleSpec {
            generation: Arc::new(Generation::default()),
            seed: 0,
            output_index: 0,
            already_generated: Vec::new(),
            prompt: None,
        }),
        is_prefill: true,
    };
    let mut ranks = Ranks::start(model, model.pool_shape(BLOCK, Bytes(1 << 30))?)?;
    let hidden = ranks.forward(&[slot])?;
    let logits = ranks.logits(&hidden, 0..hidden.rows())?;
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_ne_bytes()).collect();
    std::fs::write(file, bytes)?;
    println!("{tokens:?}");
    Ok(())
}
