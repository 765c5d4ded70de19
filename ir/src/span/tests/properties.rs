//! What rewriting, planning and assembly promise for every query.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Random queries: every node there is, nested a few times.
fn a_query() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => ("(system|user|assistant)", "[a-z<>]{0,4}").prop_map(|(role, text)| json!({ (role): text })),
        1 => Just(json!({ "print": "soon" })),
        1 => (1..3_u32).prop_map(|k| json!({ "retrieval": { "corpus": "c", "query": "q", "k": k } })),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let few = prop::collection::vec(inner.clone(), 0..4);
        let model = prop_oneof![3 => Just(Value::Null), 1 => Just(json!("m"))];
        prop_oneof![
            2 => ("(seq|cross)", few.clone()).prop_map(|(join, parts)| json!({ (join): parts })),
            3 => few.clone().prop_map(|parts| json!({ "plus": parts })),
            4 => (inner.clone(), model, 0..3_u32)
                .prop_map(|(input, model, tokens)| json!({ "g": { "input": input, "model": model, "max_tokens": tokens } })),
            1 => few.prop_map(|parts| json!({ "chat": { "input": parts } })),
            1 => (inner, 1..4_u32).prop_map(|(query, n)| json!({ "repeat": { "n": n, "query": query } })),
        ]
    })
}

fn found() -> Found {
    let fragments = |k| (0..k).map(|i| Arc::from(format!("fragment {i}"))).collect();
    let retrieval = |k| Retrieval { corpus: "c".into(), query: "q".into(), k };
    (1..3).map(|k| (retrieval(k), fragments(k))).collect()
}

/// Counts what a model is told, and how it is asked.
type CallCounts = BTreeMap<String, usize>;

fn count_calls(query: &SpanQuery, found: &Found, times: usize, counts: &mut CallCounts) {
    let mut count = |what: String| *counts.entry(what).or_default() += times;
    let mut inner = times;
    match query {
        SpanQuery::Message(role, text) => count(format!("{} {text}", role.name())),
        SpanQuery::Generate(Generate { params, .. }) | SpanQuery::Chat { params, .. } => {
            count(format!("{params:?}"))
        }
        SpanQuery::Retrieval(retrieval) => {
            found[retrieval].iter().for_each(|text| count(format!("user {text}")))
        }
        SpanQuery::Repeat { times, .. } => inner *= *times as usize,
        _ => {}
    }
    query.children().iter().for_each(|child| count_calls(child, found, inner, counts));
}

/// A rewritten query and its plan, where it can be run within the limits.
fn rewritten(value: &Value, judges: Option<u32>) -> Option<(SpanQuery, SpanQuery)> {
    let limits = SpanLimits::default();
    let query = SpanQuery::read(value, &limits).ok()?;
    let (found, rules) = (found(), Rules::all());
    let with = Rewriting { rules, judges, found: &found, limits };
    let (once, _) = rewrite(query.clone(), &with).ok()?;
    let (twice, log) = rewrite(once.clone(), &with).expect("it fits as it did");
    assert_eq!(twice, once, "a fixed point");
    assert!(log.iter().all(|applied| applied.outcome.is_err()), "no rule matches it: {log:?}");
    Some((query, once))
}

proptest! {
    #[test]
    fn rewriting_keeps_what_is_said_and_how_it_is_asked(value in a_query()) {
        let Some((before, after)) = rewritten(&value, None) else { return Ok(()) };
        let (mut one, mut other) = (CallCounts::new(), CallCounts::new());
        count_calls(&before, &found(), 1, &mut one);
        count_calls(&after, &found(), 1, &mut other);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn every_output_is_read_once_and_inputs_stand_before_what_reads_them(value in a_query(), judges in prop::option::of(2..4_u32)) {
        let Some((_, query)) = rewritten(&value, judges) else { return Ok(()) };
        let Ok(plan) = Plan::new(&query) else { return Ok(()) };
        let mut read = vec![0; plan.calls.len()];
        for call in &plan.calls {
            prop_assert!(call.inputs.iter().all(|input| input < &call.id));
            prop_assert!(call.inputs.iter().all(|input| plan.call(*input).batch < call.batch));
            call.items.iter().flat_map(Item::parts).filter_map(SpanPart::call).for_each(|id| read[id.0] += 1);
            for other in plan.calls.iter().filter(|other| other.batch == call.batch) {
                let params = |call: &Call| Params { seed: None, ..(*call.params).clone() };
                prop_assert_eq!((other.level, params(other)), (call.level, params(call)));
                prop_assert!(other.params.is_like(&call.params));
            }
        }
        plan.output.iter().filter_map(SpanPart::call).for_each(|id| read[id.0] += 1);
        prop_assert!(read.iter().all(|times| *times == 1), "{:?}", read);
    }

    #[test]
    fn sections_are_what_the_scheduler_takes_and_prepared_spans_what_is_read(
        value in a_query(),
        output in prop::collection::vec(0..=256_u32, 0..4),
        judges in prop::option::of(2..4_u32),
    ) {
        let Some((_, query)) = rewritten(&value, judges) else { return Ok(()) };
        let Ok(plan) = Plan::new(&query) else { return Ok(()) };
        let output: Vec<TokenId> = output.into_iter().map(TokenId).collect();
        let outputs: Outputs<'_> = &|_| Output::Tokens(&output);
        for chat in [&ByteText as &dyn ChatTemplate, &Begun, &Bare] {
            let tags = Tags::of(chat, &ByteText).expect("messages stand one by one");
            let encoder = Encoder { tokenizer: &ByteText, chat: Some((chat, &tags)) };
            for call in &plan.calls {
                let sectioned = plan.assemble(call.id, encoder, LENGTH_MAX, outputs).expect("it fits");
                check_sections(&sectioned);
                prop_assert!(!sectioned.prompt.is_empty());
                for part in call.items.iter().flat_map(Item::parts) {
                    let SpanPart::Whole(inner) = part else { continue };
                    let inner = plan.assemble(*inner, encoder, LENGTH_MAX, outputs).expect("it fits");
                    prop_assert!(inner.sections.is_empty(), "a whole call is one chain");
                    let whole = [&inner.prompt[..], &output].concat();
                    let is_there = sectioned.prompt.windows(whole.len()).any(|tokens| tokens == whole);
                    prop_assert!(is_there, "token by token: {:?}", sectioned);
                }
            }
        }
    }

    #[test]
    fn clustering_moves_queries_and_loses_none(queries in prop::collection::vec(prop::collection::vec(0..12_u8, 0..5), 0..40)) {
        let order = cluster_bulk(&queries);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..queries.len()).collect::<Vec<_>>());
        // Greedy: nothing that waits shares more with the last than the next does.
        let shared = |one: usize, other: usize| (0..12).filter(|f| queries[one].contains(f) && queries[other].contains(f)).count();
        for (i, pair) in order.windows(2).enumerate() {
            let most = order[i + 1..].iter().map(|other| shared(pair[0], *other)).max();
            prop_assert_eq!(Some(shared(pair[0], pair[1])), most);
        }
    }
}

/// How often a cache of so many fragments, the least used of which goes first, is asked for one that it does
/// not have.
fn misses(queries: &[Vec<usize>], order: &[usize], capacity: usize) -> usize {
    let (mut cache, mut misses): (Vec<usize>, usize) = (Vec::new(), 0);
    for fragment in order.iter().flat_map(|query| &queries[*query]) {
        match cache.iter().position(|held| held == fragment) {
            Some(at) => drop(cache.remove(at)),
            None => misses += 1,
        }
        cache.push(*fragment);
        if cache.len() > capacity {
            cache.remove(0);
        }
    }
    misses
}

#[test]
fn clustered_queries_find_their_fragments_in_a_small_cache() {
    // 40 topics of six fragments, three of which each of 400 queries reads; topics come by turns.
    let queries: Vec<Vec<usize>> =
        (0..400).map(|i| (0..3).map(|j| (i % 40) * 6 + (i / 40 + 2 * j) % 6).collect()).collect();
    let as_sent: Vec<usize> = (0..queries.len()).collect();
    let clustered = cluster_bulk(&queries);
    assert_eq!(misses(&queries, &as_sent, 24), 1_200, "each waits for 39 topics");
    let found = misses(&queries, &clustered, 24);
    assert!(found <= 260, "{found} misses; 240 fragments are there");
}

#[test]
fn a_fragment_that_all_have_in_common_takes_no_square_of_time() {
    let queries: Vec<[usize; 2]> = (0..50_000).map(|i| [0, i / 2 + 1]).collect();
    let order = cluster_bulk(&queries);
    assert!(order.iter().enumerate().all(|(i, query)| i == *query), "pairs are together already");
}
