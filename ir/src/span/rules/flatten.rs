//! `flatten_join`, `flatten_plus` and `unwrap_plus`: joins in joins are one (Fig. 7c and its family).

use super::joins::splice;
use super::rule::Rule;
use crate::span::query::SpanQuery;

pub(super) const JOIN: Rule = Rule {
    name: "flatten_join",
    stage: 2,
    condition: "always: both keep the order as written",
    form: "seq|cross[a, seq|cross[b, c]] -> seq|cross[a, b, c]; seq|cross[a] -> a",
    apply: |query, _| {
        let (SpanQuery::Seq(parts) | SpanQuery::Cross(parts)) = query else { return Ok(false) };
        if parts.len() == 1 {
            *query = parts.remove(0);
            return Ok(true);
        }
        Ok(splice(parts, |part| match part {
            SpanQuery::Seq(inner) | SpanQuery::Cross(inner) => Ok(inner),
            other => Err(other),
        }))
    },
};

pub(super) const PLUS: Rule = Rule {
    name: "flatten_plus",
    stage: 2,
    condition: "always: + is associative",
    form: "plus[a, plus[b, c]] -> plus[a, b, c]",
    apply: |query, _| {
        let SpanQuery::Plus(parts) = query else { return Ok(false) };
        Ok(splice(parts, |part| match part {
            SpanQuery::Plus(inner) => Ok(inner),
            other => Err(other),
        }))
    },
};

pub(super) const SINGLE: Rule = Rule {
    name: "unwrap_plus",
    stage: 2,
    condition: "always: one span has nothing to commute with, so its prompt may as well be exact",
    form: "plus[a] -> a; plus[prepare(a)] -> a",
    apply: |query, _| {
        let SpanQuery::Plus(parts) = query else { return Ok(false) };
        if parts.len() != 1 {
            return Ok(false);
        }
        *query = match parts.remove(0) {
            SpanQuery::Prepare(inner) => *inner,
            other => other,
        };
        Ok(true)
    },
};
