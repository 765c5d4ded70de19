//! `distribute_plus`: the output of a generate in a plus stands behind its input, where it was computed (Fig.
//! 7d, Fig. 8).

use super::rule::Rule;
use crate::span::query::{Generate, SpanQuery};

pub(super) const RULE: Rule = Rule {
    name: "distribute_plus",
    stage: 4,
    condition: "one model for both; the inner input has no plus, so that input and output are one chain of keys",
    form: "g(plus[g(a), g(b)]) -> g(plus[cross[a, output of g(a)], cross[b, output of g(b)]])",
    apply: |query, _| {
        let SpanQuery::Generate(Generate { input, params, .. }) = query else { return Ok(false) };
        let mut has_any = false;
        for inner in members(input) {
            let SpanQuery::Generate(inner) = inner else { continue };
            if !inner.with_input && inner.params.model == params.model && !has_plus(&inner.input) {
                inner.with_input = true;
                has_any = true;
            }
        }
        Ok(has_any)
    },
};

/// The members of every plus on the way from a generate's input through its joins.
fn members(input: &mut SpanQuery) -> Vec<&mut SpanQuery> {
    match input {
        SpanQuery::Plus(parts) => parts.iter_mut().collect(),
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) => parts.iter_mut().flat_map(members).collect(),
        _ => Vec::new(),
    }
}

/// Whether the prompt made from an input has spans of its own.
fn has_plus(input: &SpanQuery) -> bool {
    match input {
        SpanQuery::Plus(_) => true,
        // Another call's, of which only the output comes here.
        SpanQuery::Generate(_) => false,
        other => other.children().iter().any(has_plus),
    }
}
