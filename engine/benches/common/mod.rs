//! What the benches of steps share: slots and runs, with a trivial allocator of blocks, and a clock.
#![allow(dead_code, reason = "each bench uses a part of it")]

use std::sync::Arc;

use base::{BlockId, Generation, RequestId, Run, SampleSpec, Slot, TokenCount, TokenId};
use engine::device::Cpu;

/// Positions of a block.
pub(crate) const BLOCK: usize = 16;

/// A slot of `count` tokens after `runs`, writing to fresh blocks.
pub(crate) fn slot(id: usize, count: usize, runs: &[Run], next: &mut u32) -> Slot {
    let blocks = count.div_ceil(BLOCK) as u32;
    let write_blocks = (*next..*next + blocks).map(BlockId).collect();
    *next += blocks;
    let generation = Arc::new(Generation::default());
    Slot {
        request: RequestId(id as u64),
        start: runs.iter().map(|run| run.tokens.0 as u32).sum(),
        input: (0..count).map(|i| TokenId(((id * 31 + i * 7) % 32_000) as u32)).collect(),
        guesses: 0,
        prompt_targets: None,
        context: runs.to_vec(),
        write_blocks,
        write_offset: 0,
        sample: Some(SampleSpec {
            generation,
            seed: 0,
            output_index: 0,
            already_generated: Vec::new(),
            prompt: None,
        }),
        is_prefill: count > 1,
    }
}

/// A run of fresh, already written blocks.
pub(crate) fn run(tokens: usize, next: &mut u32) -> Run {
    let blocks = (tokens / BLOCK) as u32;
    *next += blocks;
    Run {
        skip: 0,
        blocks: (*next - blocks..*next).map(BlockId).collect(),
        tokens: TokenCount(tokens as u64),
        shift: 0,
    }
}

/// Seconds of a processor that a device's only thread has had: the system's own figure, in nanoseconds.
pub(crate) fn processor(cpu: &Cpu) -> f64 {
    let text = cpu.run(|| std::fs::read_to_string("/proc/thread-self/schedstat").ok());
    let text = text.expect("the system counts a thread's time");
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("it is a number") / 1e9
}

/// The one in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
