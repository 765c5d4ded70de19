//! The memory of finished cells: what a look and a keep cost, and how many looks it answers.
//!
//! The workload of the hit ratio: two of three looks follow Zipf's law over four times as many cells as fit
//! (formulas that are recalculated), the third is the next cell of a sheet that is never read again. What is
//! missed is kept.

use std::hint::black_box;
use std::sync::Arc;

use base::{End, TenantId, TokenCount};
use criterion::{Criterion, criterion_group, criterion_main};
use serving::results::{Answer, Results};

/// `cache.memory_entries_max`, as it is by default.
const ENTRIES: u64 = 50_000;
/// Looks of the workload.
const LOOKS: u64 = 2_000_000;
/// First cell of the sheet that is read once.
const SHEET: u64 = 1 << 40;
const TENANT: TenantId = TenantId(1);

/// SplitMix64: numbers that look drawn, the same in every run.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a cell: as mixed as a hash.
fn key(cell: u64) -> [u8; 32] {
    let mut key = [0; 32];
    let mut part = cell;
    for bytes in key.as_chunks_mut::<8>().0 {
        part = mix(part);
        *bytes = part.to_le_bytes();
    }
    key
}

/// Cells by Zipf's law with exponent 1: the sum of the weights up to each.
fn zipf(cells: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let sums = (1..=cells).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    });
    sums.collect()
}

/// The cells of the workload, in their order.
fn workload() -> Vec<u64> {
    let sums = zipf(4 * ENTRIES);
    let total = sums.last().copied().unwrap_or_default();
    let cell = |look: u64| {
        if look.is_multiple_of(3) {
            return SHEET + look;
        }
        let drawn = mix(look) as f64 / u64::MAX as f64 * total;
        sums.partition_point(|sum| *sum < drawn) as u64
    };
    (0..LOOKS).map(cell).collect()
}

fn full(answer: &Answer) -> Results {
    let results = Results::new(ENTRIES as usize);
    (0..ENTRIES).for_each(|cell| results.put_in_memory(TENANT, key(cell), answer.clone()));
    results
}

fn bench(criterion: &mut Criterion) {
    let text: Arc<str> = "Positive".into();
    let answer =
        Answer { text, end: End::Stop, prompt: TokenCount(120), output: TokenCount(2), probability: None };
    let keys: Vec<[u8; 32]> = (0..ENTRIES).map(key).collect();
    let results = full(&answer);
    let mut turn = (0..keys.len()).cycle();
    criterion.bench_function("results/get, a hit", |bench| {
        bench.iter(|| results.get(TENANT, &keys[turn.next().unwrap_or_default()]));
    });
    let mut fresh = SHEET;
    criterion.bench_function("results/get, a miss", |bench| {
        bench.iter(|| {
            fresh += 1;
            results.get(TENANT, black_box(&key(fresh)))
        });
    });
    criterion.bench_function("results/put_in_memory, full", |bench| {
        bench.iter(|| {
            fresh += 1;
            results.put_in_memory(TENANT, key(fresh), answer.clone());
        });
    });
    let cells = workload();
    let (results, mut hits, mut again) = (Results::new(ENTRIES as usize), 0u64, 0u64);
    for cell in &cells {
        let is_hit = results.get(TENANT, &key(*cell)).is_some();
        hits += u64::from(is_hit);
        again += u64::from(*cell < SHEET);
        if !is_hit {
            results.put_in_memory(TENANT, key(*cell), answer.clone());
        }
    }
    let ratio = |of: u64| 100.0 * hits as f64 / of as f64;
    eprintln!(
        "results/hit ratio: {:.1} % of the looks at cells that recur, {:.1} % of all",
        ratio(again),
        ratio(LOOKS)
    );
}

criterion_group!(benches, bench);
criterion_main!(benches);
