//! Rewrite rules: equal plans that cost less.
//!
//! Each rule is a name, a stage, a condition and a form `left -> right`; stages run in order, rules of
//! a stage in the order of [`RULES`], each once from the leaves up. Every rule can be switched off.
//! None of them changes a row's prompt tokens or the answer that a greedy row gets.

mod dedup_rows;
mod flatten;
mod hoist_prefix;
mod order_rows;

use std::collections::BTreeSet;

use crate::Plan;

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
    apply: fn(Plan) -> (Plan, Result<String, String>),
}

/// All rules, in the order they run.
pub const RULES: [Rule; 4] = [flatten::RULE, dedup_rows::RULE, order_rows::RULE, hoist_prefix::RULE];

/// Which rules run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: BTreeSet<String>,
}

impl Rules {
    /// All rules.
    pub fn all() -> Self {
        Self::default()
    }

    /// These rules without one. An unknown name is no rule, so leaving it out changes nothing.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.off.insert(name.to_owned());
        self
    }

    /// Whether a rule runs.
    pub fn has(&self, name: &str) -> bool {
        !self.off.contains(name)
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
pub fn rewrite(plan: Plan, rules: &Rules) -> (Plan, Vec<Applied>) {
    let mut plan = plan;
    let mut log = Vec::with_capacity(RULES.len());
    for rule in &RULES {
        let outcome = if !rules.has(rule.name) {
            Err("switched off".to_owned())
        } else {
            let (rewritten, outcome) = (rule.apply)(plan);
            plan = rewritten;
            outcome
        };
        log.push(Applied { rule: rule.name, outcome });
    }
    (plan, log)
}

/// Applies `change` to every table below `plan`, together with the template over it.
fn on_tables(plan: Plan, change: &mut dyn FnMut(&Plan, crate::Table) -> crate::Table) -> Plan {
    match plan.map_children(&mut |child| on_tables(child, change)) {
        Plan::Map { template, rows } => {
            let rows = change(&template, rows);
            Plan::Map { template, rows }
        }
        other => other,
    }
}

/// The texts of the template's fields in one row; `None` for a ragged row.
fn field_texts<'a>(
    positions: &[usize],
    columns: usize,
    row: &'a crate::Row,
) -> Option<Vec<std::borrow::Cow<'a, str>>> {
    (row.cells.len() == columns)
        .then(|| positions.iter().map(|position| row.cells[*position].text()).collect())
}

/// Positions of the columns that a template uses, in the order it uses them.
fn used_columns(template: &Plan, table: &crate::Table) -> Vec<usize> {
    template.fields().into_iter().filter_map(|name| table.column(name)).collect()
}
