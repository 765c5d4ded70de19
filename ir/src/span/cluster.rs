//! `cluster_bulk`: an order of many queries in which those that share fragments follow one another (Span
//! Queries, section 5.8).

use std::collections::HashMap;
use std::hash::Hash;

/// Queries of one fragment that are looked at when the next is chosen: a fragment that more have in common is
/// in use all the time anyway, and looking at all of them each time would take the square of their number.
const LOOKED_AT_MAX: usize = 64;

/// The order in which to run queries, given the fragments of each: greedily, next is the query that shares
/// most with the last one, the earliest of such; where none does, the earliest. A permutation of the queries'
/// numbers, the same every time, in about the time it takes to read them.
pub fn cluster_bulk<F: Eq + Hash>(queries: &[impl AsRef<[F]>]) -> Vec<usize> {
    let fragments = numbered(queries);
    let mut readers: Vec<Vec<usize>> =
        vec![Vec::new(); fragments.iter().flatten().max().map_or(0, |max| max + 1)];
    // The earliest last, so that those that have run are popped.
    for (query, fragments) in fragments.iter().enumerate().rev() {
        fragments.iter().for_each(|fragment| readers[*fragment].push(query));
    }
    let mut has_run = vec![false; queries.len()];
    let mut earliest = 0;
    let mut order = Vec::with_capacity(queries.len());
    let mut next = None;
    loop {
        while has_run.get(earliest) == Some(&true) {
            earliest += 1;
        }
        let query = next.unwrap_or(earliest);
        if query == queries.len() {
            return order;
        }
        has_run[query] = true;
        order.push(query);
        next = nearest(&fragments[query], &mut readers, &has_run);
    }
}

/// The fragments of each query as small numbers, each once.
fn numbered<F: Eq + Hash>(queries: &[impl AsRef<[F]>]) -> Vec<Vec<usize>> {
    let mut numbers: HashMap<&F, usize> = HashMap::new();
    let mut all = Vec::with_capacity(queries.len());
    for query in queries {
        let mut fragments = Vec::new();
        for fragment in query.as_ref() {
            let next = numbers.len();
            fragments.push(*numbers.entry(fragment).or_insert(next));
        }
        fragments.sort_unstable();
        fragments.dedup();
        all.push(fragments);
    }
    all
}

/// The query that shares most of these fragments and has not run.
fn nearest(fragments: &[usize], readers: &mut [Vec<usize>], has_run: &[bool]) -> Option<usize> {
    let mut shared: Vec<usize> = Vec::new();
    for fragment in fragments {
        let readers = &mut readers[*fragment];
        // Each that has run is met once more, and gone.
        let mut waiting = Vec::new();
        while let Some(reader) = readers.pop_if(|_| waiting.len() < LOOKED_AT_MAX) {
            if !has_run[reader] {
                waiting.push(reader);
            }
        }
        shared.extend(&waiting);
        readers.extend(waiting.into_iter().rev());
    }
    shared.sort_unstable();
    let runs = shared.chunk_by(|one, other| one == other);
    // Of equals the first is kept.
    let most = runs.fold(None, |most: Option<&[usize]>, run| match most {
        Some(most) if most.len() >= run.len() => Some(most),
        _ => Some(run),
    });
    most.map(|run| run[0])
}
