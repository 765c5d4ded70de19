//! `remove_empty`: what says nothing to a model is left out.

use super::joins::parts;
use super::rule::Rule;
use crate::span::query::SpanQuery;

pub(super) const RULE: Rule = Rule {
    name: "remove_empty",
    stage: 2,
    condition: "always; a message without text is a message",
    form: "join[a, join[], print, b] -> join[a, b]",
    apply: |query, _| {
        let Some(parts) = parts(query) else { return Ok(false) };
        let before = parts.len();
        parts.retain(|part| !is_empty(part));
        Ok(parts.len() < before)
    },
};

fn is_empty(query: &SpanQuery) -> bool {
    match query {
        SpanQuery::Print(_) => true,
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) | SpanQuery::Plus(parts) => parts.is_empty(),
        _ => false,
    }
}
