//! `expand_repeat`: copies are written out.

use super::joins::{parts, splice};
use super::rule::Rule;
use crate::span::query::SpanQuery;

pub(super) const RULE: Rule = Rule {
    name: "expand_repeat",
    stage: 1,
    condition: "always; where one node is wanted the copies commute, for they are equal",
    form: "join[a, repeat(3, q), b] -> join[a, q, q, q, b]; repeat(3, q) -> plus[q, q, q]",
    apply: |query, _| {
        if let SpanQuery::Repeat { times, query: copied } = query {
            *query = SpanQuery::Plus(vec![(**copied).clone(); *times as usize]);
            return Ok(true);
        }
        let copies = |part| match part {
            SpanQuery::Repeat { times, query } => Ok(vec![*query; times as usize]),
            other => Err(other),
        };
        Ok(parts(query).is_some_and(|parts| splice(parts, copies)))
    },
};
