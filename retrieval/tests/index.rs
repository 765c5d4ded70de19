//! The index against a plain scan.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use proptest::prelude::*;
use retrieval::{Fragment, Index};

const DIMS: usize = 32;

/// Pseudo-random numbers, about normal.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 24) as f32
    }

    fn vector(&mut self) -> Vec<f32> {
        unit((0..DIMS).map(|_| (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0).collect())
    }
}

fn unit(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / length).collect()
}

fn fragment(document: usize, number: usize) -> Fragment {
    let text = format!("{document}/{number}").into();
    Fragment { document: document.to_string().into(), number: number as u32, text, tokens: 1 }
}

/// An index of these vectors, four to a document.
fn index(vectors: &[Vec<f32>]) -> Index {
    let mut index = Index::new(DIMS, vectors.len());
    for (i, vector) in vectors.iter().enumerate() {
        index.add(fragment(i / 4, i % 4), vector).unwrap();
    }
    link(&mut index);
    index
}

/// Gives an index its graph, where it wants one.
fn link(index: &mut Index) {
    if let Some(draft) = index.draft() {
        index.adopt(draft.finish(&|| false).unwrap());
    }
    assert!(index.draft().is_none(), "one graph is enough");
    index.check_invariants();
}

/// The nearest by a plain scan in double precision, among those of living documents.
fn nearest(vectors: &[Vec<f32>], query: &[f32], count: usize, dead: &HashSet<usize>) -> Vec<String> {
    let score = |v: &Vec<f32>| v.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let living = (0..vectors.len()).filter(|i| !dead.contains(&(i / 4)));
    let mut ranked: Vec<(f64, usize)> = living.map(|i| (score(&vectors[i]), i)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.iter().take(count).map(|(_, i)| format!("{}/{}", i / 4, i % 4)).collect()
}

fn found(index: &Index, query: &[f32], count: usize) -> Vec<String> {
    let hits = index.search(query, count).unwrap();
    assert!(hits.is_sorted_by(|a, b| a.score >= b.score), "the nearest first");
    hits.iter().map(|hit| hit.fragment.text.to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_small_index_answers_as_a_plain_scan_does_also_after_removals(
        seed: u64,
        size in 0_usize..400,
        count in 0_usize..20,
        dead in proptest::collection::hash_set(0_usize..100, 0..40),
    ) {
        let mut random = Random(seed);
        let vectors: Vec<_> = (0..size).map(|_| random.vector()).collect();
        let mut index = index(&vectors);
        for document in &dead {
            index.remove(&document.to_string());
            index.check_invariants();
        }
        let query = random.vector();
        prop_assert_eq!(found(&index, &query, count), nearest(&vectors, &query, count, &dead));
    }
}

/// The share of the true nearest that are found.
fn recall(index: &Index, vectors: &[Vec<f32>], dead: &HashSet<usize>, random: &mut Random) -> f64 {
    let (queries, count) = (100, 10);
    let mut right = 0;
    for _ in 0..queries {
        let query = random.vector();
        let true_ones: HashSet<String> = nearest(vectors, &query, count, dead).into_iter().collect();
        let found = found(index, &query, count);
        assert_eq!(found.len(), count);
        right += found.iter().filter(|text| true_ones.contains(*text)).count();
    }
    right as f64 / (queries * count) as f64
}

#[test]
fn nineteen_of_twenty_nearest_are_found_among_five_thousand_also_after_removals_and_additions() {
    let mut random = Random(5);
    let mut vectors: Vec<_> = (0..5_000).map(|_| random.vector()).collect();
    let mut index = index(&vectors);
    let share = recall(&index, &vectors, &HashSet::new(), &mut random);
    assert!(share >= 0.95, "recall {share}");

    let dead: HashSet<usize> = (0..1_250).filter(|document| document % 9 < 2).collect();
    for document in &dead {
        assert_eq!(index.remove(&document.to_string()), 4);
    }
    index.check_invariants();
    let share = recall(&index, &vectors, &dead, &mut random);
    assert!(share >= 0.95, "recall {share} with dead ones among them");
    for i in 5_000..6_000 {
        vectors.push(random.vector());
        index.add(fragment(i / 4, i % 4), &vectors[i]).unwrap();
    }
    index.check_invariants();
    let share = recall(&index, &vectors, &dead, &mut random);
    assert!(share >= 0.95, "recall {share} after additions");
}

#[test]
fn a_graph_is_made_beside_exact_searches_and_fits_its_own_numbering_only() {
    let mut random = Random(21);
    let vectors: Vec<_> = (0..2_100).map(|_| random.vector()).collect();
    let mut index = Index::new(DIMS, 10_000);
    for (i, vector) in vectors.iter().enumerate() {
        index.add(fragment(i / 4, i % 4), vector).unwrap();
    }
    let (draft, query) = (index.draft().unwrap(), random.vector());
    assert_eq!(found(&index, &query, 10), nearest(&vectors, &query, 10, &HashSet::new()));
    assert!(index.draft().unwrap().finish(&|| true).is_none(), "it can be stopped");
    // More than a quarter goes: what is left gets other numbers, so the graph of before would mix texts up.
    let dead: HashSet<usize> = (0..200).collect();
    dead.iter().for_each(|document| assert_eq!(index.remove(&document.to_string()), 4));
    index.adopt(draft.finish(&|| false).unwrap());
    index.check_invariants();
    assert_eq!(found(&index, &query, 10), nearest(&vectors, &query, 10, &dead));
}

#[test]
fn what_many_copies_of_one_text_surround_is_still_found() {
    let mut random = Random(9);
    let copied = random.vector();
    // Boilerplate that thousands of documents repeat, word for word; then the others.
    let mut vectors = vec![copied.clone(); 2_500];
    vectors.extend((0..300).map(|_| random.vector()));
    let index = index(&vectors);
    let is_lost = |i: &usize| found(&index, &vectors[*i], 1) != [format!("{}/{}", i / 4, i % 4)];
    assert_eq!((2_500..2_800).filter(is_lost).count(), 0, "of 300");
    assert_eq!(found(&index, &copied, 20).len(), 20);
}

#[test]
fn the_same_fragments_make_an_index_that_answers_alike() {
    let mut random = Random(11);
    let vectors: Vec<_> = (0..3_000).map(|_| random.vector()).collect();
    let (a, b) = (index(&vectors), index(&vectors));
    for _ in 0..50 {
        let query = random.vector();
        assert_eq!(a.search(&query, 10).unwrap(), b.search(&query, 10).unwrap());
    }
}

#[test]
fn an_index_is_bounded_and_takes_unit_vectors_of_its_size_only() {
    let mut random = Random(1);
    let vectors: Vec<_> = (0..4).map(|_| random.vector()).collect();
    let mut full = index(&vectors);
    assert!(full.add(fragment(9, 0), &vectors[0]).is_err_and(|error| error.to_string().contains("4")));
    assert_eq!(full.remove("0"), 4);
    for bad in [vec![], vec![0.0; DIMS], vec![2.0; DIMS], vec![f32::NAN; DIMS], vec![1.0; DIMS + 1]] {
        assert!(full.add(fragment(9, 0), &bad).is_err());
        assert!(full.search(&bad, 1).is_err());
    }
    full.add(fragment(9, 0), &vectors[0]).unwrap();
    assert_eq!(full.len(), 1);
}
