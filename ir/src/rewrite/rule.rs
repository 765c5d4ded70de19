//! What a rewrite rule is.

use crate::plan::Plan;

/// A rewrite rule.
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
    /// The rewritten plan; `Ok` says what changed, `Err` why nothing did.
    pub(super) apply: fn(Plan, RuleInput<'_>) -> (Plan, Result<String, String>),
}

/// What rules are given beside the plan.
#[derive(Clone, Copy)]
pub(super) struct RuleInput<'a> {
    /// How long texts are.
    pub(super) measure: Measure<'a>,
    /// Columns that determine each other, group by group.
    pub(super) dependencies: &'a [Vec<String>],
}

/// How long texts are, in whatever unit the caller counts: tokens of its tokenizer, or characters.
pub type Measure<'a> = &'a dyn Fn(&[String]) -> Vec<u32>;

/// Lengths in characters.
pub fn characters(texts: &[String]) -> Vec<u32> {
    texts.iter().map(|text| u32::try_from(text.chars().count()).unwrap_or(u32::MAX)).collect()
}
