//! What a rewrite rule on span queries is, and what all of them go by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rewrite::Rules;
use crate::span::error::SpanError;
use crate::span::query::{Retrieval, SpanQuery};
use crate::span::read::SpanLimits;

/// A rewrite rule on span queries.
#[derive(Debug)]
pub struct Rule {
    /// Its name, for switches and `explain`.
    pub name: &'static str,
    /// When it runs.
    pub stage: u8,
    /// When it may run.
    pub condition: &'static str,
    /// What it does, `left -> right`.
    pub form: &'static str,
    /// Applies it where it matches at the root of a tree; whether it did.
    pub(super) apply: Apply,
}

type Apply = fn(&mut SpanQuery, &Rewriting<'_>) -> Result<bool, SpanError>;

/// What searches found: the fragments, best first.
pub type Found = BTreeMap<Retrieval, Vec<Arc<str>>>;

/// What rewriting goes by.
#[derive(Clone, Debug)]
pub struct Rewriting<'a> {
    /// Which rules run.
    pub rules: Rules,
    /// Candidates that one judge sees, at least 2; `None`: judges are left as they are.
    pub judges: Option<u32>,
    /// What was found of [`SpanQuery::retrievals`]; what is not there stays unsearched.
    pub found: &'a Found,
    /// Bounds of the rewritten query.
    pub limits: SpanLimits,
}
