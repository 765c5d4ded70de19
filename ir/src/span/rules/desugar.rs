//! `desugar_chat` and `desugar_retrieval`: sugar in terms of the core (Fig. 7a and 7b).

use std::sync::Arc;

use base::Role;

use super::rule::Rule;
use crate::span::query::{Generate, SpanQuery};

pub(super) const CHAT: Rule = Rule {
    name: "desugar_chat",
    stage: 1,
    condition: "always",
    form: "chat[a, b] -> g(cross[a, b])",
    apply: |query, _| {
        let SpanQuery::Chat { input, params } = query else { return Ok(false) };
        let input = Box::new(SpanQuery::Cross(std::mem::take(input)));
        *query = SpanQuery::Generate(Generate { input, params: Arc::clone(params), with_input: false });
        Ok(true)
    },
};

pub(super) const RETRIEVAL: Rule = Rule {
    name: "desugar_retrieval",
    stage: 1,
    condition: "the corpus was searched; a fragment is a user's message",
    form: "retrieval -> plus[prepare(user fragment), ..]",
    apply: |query, with| {
        let SpanQuery::Retrieval(retrieval) = query else { return Ok(false) };
        let Some(fragments) = with.found.get(retrieval) else { return Ok(false) };
        let prepared = |text| SpanQuery::Prepare(Box::new(SpanQuery::Message(Role::User, Arc::clone(text))));
        *query = SpanQuery::Plus(fragments.iter().map(prepared).collect());
        Ok(true)
    },
};
