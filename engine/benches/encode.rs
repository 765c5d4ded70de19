//! What the rows of a template cost to tokenise: one by one, and together (its beginning once, the rest in
//! parallel).

use std::hint::black_box;

use base::{After, Tokenizer as _};
use criterion::{Criterion, criterion_group, criterion_main};
use engine::text::{ModelText, TextFiles};

/// The demo model's tokenizer, and its token ids.
const TOKENIZER: &str = include_str!("../../models/demo/tokenizer.json");
const VOCAB: u32 = 6_144;
const WORDS: &str =
    "the film was a long and quiet story about people who wait for parcels that never come while music plays";

/// Words in an order of their own.
fn words(seed: usize, count: usize) -> String {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let word = |i: usize| words[(seed * 7_919 + i * i * 31 + i) % words.len()];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

fn encode(criterion: &mut Criterion) {
    let files = TextFiles { tokenizer: TOKENIZER, ..TextFiles::default() };
    let text = ModelText::new(files, VOCAB, &Default::default(), None).expect("the demo model's tokenizer");
    let head = words(1, 130) + "\n\nText: ";
    let rows: Vec<String> = (2..52).map(|row| head.clone() + &words(row, 60)).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    criterion.bench_function("50 rows of 130 + 60 words, one by one", |bencher| {
        bencher.iter(|| rows.iter().map(|row| text.encode_stretch(After::Nothing, row)).collect::<Vec<_>>());
    });
    criterion.bench_function("50 rows of 130 + 60 words, together", |bencher| {
        bencher.iter(|| text.encode_stretches(After::Nothing, black_box(&head), &rows));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = encode
}
criterion_main!(benches);
