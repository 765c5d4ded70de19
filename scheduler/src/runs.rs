//! Cuts the contexts of a batch into runs where they part, so that tokens which several slots share
//! are equal runs (one list of blocks in memory) and an executor reads them once per batch.

use std::sync::Arc;

use base::{BlockId, Run, TokenCount};

/// What a slot has before its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// Its blocks, in reading order; the last may be partly used.
    pub(crate) blocks: &'a [BlockId],
    /// How many positions of them count.
    pub(crate) tokens: u32,
}

/// Slots that share everything before block `depth`.
struct Group {
    slots: Vec<usize>,
    depth: usize,
}

/// The runs of each context: maximal stretches with the same set of readers.
pub(crate) fn cut(contexts: &[Context<'_>], block_tokens: u32) -> Vec<Vec<Run>> {
    let full = |slot: usize| (contexts[slot].tokens / block_tokens) as usize;
    let mut runs: Vec<Vec<Run>> = contexts.iter().map(|_| Vec::new()).collect();
    let mut open = vec![Group { slots: (0..contexts.len()).collect(), depth: 0 }];
    while let Some(Group { mut slots, depth }) = open.pop() {
        // A slot whose full blocks end here keeps at most a partly used block, which is its own.
        slots.retain(|slot| {
            let is_longer = full(*slot) > depth;
            if !is_longer {
                push(&mut runs[*slot], contexts[*slot], depth, block_tokens);
            }
            is_longer
        });
        slots.sort_by_key(|slot| (contexts[*slot].blocks[depth], *slot));
        for readers in slots.chunk_by(|a, b| contexts[*a].blocks[depth] == contexts[*b].blocks[depth]) {
            let first = readers[0];
            if readers.len() == 1 {
                push(&mut runs[first], contexts[first], depth, block_tokens);
                continue;
            }
            let mut end = full(first);
            for slot in &readers[1..] {
                end = shared(contexts[first].blocks, contexts[*slot].blocks, depth, end.min(full(*slot)));
            }
            let blocks: Arc<[BlockId]> = contexts[first].blocks[depth..end].into();
            let tokens = TokenCount((end - depth) as u64 * u64::from(block_tokens));
            for slot in readers {
                runs[*slot].push(Run { blocks: Arc::clone(&blocks), skip: 0, tokens, shift: 0 });
            }
            open.push(Group { slots: readers.to_vec(), depth: end });
        }
    }
    runs
}

/// Where two block lists part, looked for in `depth..end`.
fn shared(a: &[BlockId], b: &[BlockId], depth: usize, end: usize) -> usize {
    (depth..end).find(|at| a[*at] != b[*at]).unwrap_or(end)
}

/// The rest of a context that nobody else reads.
fn push(runs: &mut Vec<Run>, context: Context<'_>, depth: usize, block_tokens: u32) {
    let tokens = context.tokens - depth as u32 * block_tokens;
    if tokens > 0 {
        let end = context.tokens.div_ceil(block_tokens) as usize;
        let blocks = context.blocks[depth..end].into();
        runs.push(Run { blocks, skip: 0, tokens: TokenCount(u64::from(tokens)), shift: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lists: &[(&[u32], u32)], expected: &[&[(&[u32], u64)]]) {
        let lists: Vec<(Vec<BlockId>, u32)> = lists
            .iter()
            .map(|(ids, tokens)| (ids.iter().map(|id| BlockId(*id)).collect(), *tokens))
            .collect();
        let contexts: Vec<_> =
            lists.iter().map(|(blocks, tokens)| Context { blocks, tokens: *tokens }).collect();
        let got: Vec<Vec<(Vec<u32>, u64)>> = cut(&contexts, 4)
            .iter()
            .map(|runs| {
                runs.iter().map(|run| (run.blocks.iter().map(|id| id.0).collect(), run.tokens.0)).collect()
            })
            .collect();
        let expected: Vec<Vec<(Vec<u32>, u64)>> = expected
            .iter()
            .map(|runs| runs.iter().map(|(ids, tokens)| (ids.to_vec(), *tokens)).collect())
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn contexts_are_cut_where_they_part() {
        check(
            &[(&[1, 2, 3, 4], 15), (&[1, 2, 5], 12), (&[1, 2, 5, 6], 13), (&[9], 4), (&[], 0)],
            &[
                &[(&[1, 2], 8), (&[3, 4], 7)],
                &[(&[1, 2], 8), (&[5], 4)],
                &[(&[1, 2], 8), (&[5], 4), (&[6], 1)],
                &[(&[9], 4)],
                &[],
            ],
        );
    }

    #[test]
    fn shared_runs_are_one_list_in_memory() {
        let blocks = [BlockId(1), BlockId(2)];
        let contexts = [Context { blocks: &blocks, tokens: 8 }; 2];
        let runs = cut(&contexts, 4);
        assert!(Arc::ptr_eq(&runs[0][0].blocks, &runs[1][0].blocks));
    }
}
