//! Rewrite rules: equal plans that cost less.
//!
//! Each rule is a name, a stage, a condition and a form `left -> right`; stages run in order, rules of a
//! stage in the order of [`RULES`], each once from the leaves up. Every rule can be switched off. None of
//! them changes a row's prompt tokens or the answer that a greedy row gets, but `order_fields`: that one runs
//! only for callers that say that the order of a record's entries says nothing.

mod dedup_rows;
mod flatten;
mod hoist_prefix;
mod order_fields;
mod order_rows;
mod rule;
mod tables;

use std::collections::BTreeSet;

pub use order_fields::{order_records, record_column};
use rule::RuleInput;
pub use rule::{Measure, Rule, characters};

use crate::plan::Plan;

/// All rules, in the order they run.
pub const RULES: [Rule; 5] =
    [flatten::RULE, dedup_rows::RULE, order_fields::RULE, order_rows::RULE, hoist_prefix::RULE];

/// Which rules run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: BTreeSet<String>,
    fields_commute: bool,
    dependencies: Vec<Vec<String>>,
}

impl Rules {
    /// All rules that change no prompt.
    pub fn all() -> Self {
        Self::default()
    }

    /// These rules, and the one that orders the entries of records.
    #[must_use]
    pub fn with_fields(self) -> Self {
        Self { fields_commute: true, ..self }
    }

    /// These rules, told of groups of columns that determine each other. What a table does not bear out is
    /// left out; without any group dependencies are looked for.
    #[must_use]
    pub fn with_dependencies(self, groups: Vec<Vec<String>>) -> Self {
        Self { dependencies: groups, ..self }
    }

    /// These rules without one. An unknown name is no rule, so leaving it out changes nothing.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.off.insert(name.to_owned());
        self
    }

    /// Whether a rule runs.
    pub fn has(&self, name: &str) -> bool {
        !self.off.contains(name) && (self.fields_commute || name != order_fields::RULE.name)
    }
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The rule's name.
    pub rule: &'static str,
    /// `Ok`: what changed. `Err`: why it was skipped.
    pub outcome: Result<String, String>,
}

/// Rewrites a plan; says what every rule did.
pub fn rewrite(plan: Plan, rules: &Rules, measure: Measure<'_>) -> (Plan, Vec<Applied>) {
    let mut plan = plan;
    let mut log = Vec::with_capacity(RULES.len());
    for rule in &RULES {
        let outcome = if !rules.has(rule.name) {
            let is_off = rules.off.contains(rule.name);
            Err(if is_off { "switched off" } else { "nobody said that fields commute" }.to_owned())
        } else {
            let (rewritten, outcome) =
                (rule.apply)(plan, RuleInput { measure, dependencies: &rules.dependencies });
            plan = rewritten;
            outcome
        };
        log.push(Applied { rule: rule.name, outcome });
    }
    (plan, log)
}
