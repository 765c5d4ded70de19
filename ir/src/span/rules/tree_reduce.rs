//! `tree_reduce`: a judge of many candidates becomes plies of judges of few (Span Queries, section 6 and Fig.
//! 16).

use super::rule::{Rewriting, Rule};
use crate::span::error::SpanError;
use crate::span::query::{Generate, SpanQuery};

pub(super) const RULE: Rule = Rule {
    name: "tree_reduce",
    stage: 3,
    condition: "asked for k at a time; one plus of more than k generates, and no generate beside it; one that is left \
                over goes on unjudged",
    form: "g(seq[s, plus[n > k generates], u]) -> g(seq[s, plus[g(seq[s, plus[k of them], u]), ..], u])",
    apply: |query, with| {
        let (SpanQuery::Generate(judge), Some(k)) = (query, with.judges) else { return Ok(false) };
        let k = k.max(2) as usize;
        let Some(place) = place(&judge.input).filter(|place| candidates(judge, *place).len() > k) else {
            return Ok(false);
        };
        let all = std::mem::take(candidates(judge, place));
        // The judge without its candidates is what every ply copies.
        check_copies(judge, all.len() / k, with)?;
        let bare = judge.clone();
        let ply = all.chunks(k).map(|few| match few {
            [one] => one.clone(),
            few => {
                let mut judge = bare.clone();
                // It has spans, so nobody can take its prompt with its output.
                judge.with_input = false;
                *candidates(&mut judge, place) = few.to_vec();
                SpanQuery::Generate(judge)
            }
        });
        *candidates(judge, place) = ply.collect();
        Ok(true)
    },
};

/// The parts of a judge's input.
fn parts(input: &mut SpanQuery) -> &mut [SpanQuery] {
    match input {
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) => parts,
        other => std::slice::from_mut(other),
    }
}

/// Which part is the plus of generates; there is one, and nothing else generates.
fn place(input: &SpanQuery) -> Option<usize> {
    let parts = match input {
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) => parts,
        other => std::slice::from_ref(other),
    };
    let mut generating = parts.iter().enumerate().filter(|(_, part)| generates(part));
    let (place, part) = generating.next()?;
    let SpanQuery::Plus(members) = part else { return None };
    let is_choice = members.iter().all(|member| matches!(member, SpanQuery::Generate(_)));
    (is_choice && generating.next().is_none()).then_some(place)
}

/// What a judge chooses from.
fn candidates(judge: &mut Generate, place: usize) -> &mut Vec<SpanQuery> {
    match &mut parts(&mut judge.input)[place] {
        SpanQuery::Plus(members) => members,
        _ => unreachable!("the place is that of a plus"),
    }
}

fn generates(query: &SpanQuery) -> bool {
    let mut found = false;
    query.visit(&mut |query| found |= matches!(query, SpanQuery::Generate(_) | SpanQuery::Chat { .. }));
    found
}

/// Refuses more copies of a judge's instructions than a query can have, before they are made.
fn check_copies(bare: &Generate, judges: usize, with: &Rewriting<'_>) -> Result<(), SpanError> {
    let size = bare.input.size();
    let found = size.nodes.saturating_mul(judges);
    let limit = with.limits.nodes_max;
    if found > limit {
        return Err(SpanError::TooLarge { what: "nodes", found, limit });
    }
    Ok(())
}
