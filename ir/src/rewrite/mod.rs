//! Rewrite rules: equal plans that cost less.
//!
//! Each rule is a name, a stage, a condition and a form `left -> right`; stages run in order, rules of
//! a stage in the order of [`RULES`], each once from the leaves up. Every rule can be switched off.
//! None of them changes a row's prompt tokens or the answer that a greedy row gets, but `order_fields`: that one runs
//! only for callers that say that the order of a record's entries says nothing.

mod dedup_rows;
mod flatten;
mod hoist_prefix;
mod order_fields;
mod order_rows;

use std::borrow::Cow;
use std::collections::BTreeSet;

pub use order_fields::record_column;

use crate::{Plan, Row, Table};

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
    apply: fn(Plan, Measure<'_>) -> (Plan, Result<String, String>),
}

/// How long texts are, in whatever unit the caller counts: tokens of its tokenizer, or characters.
pub type Measure<'a> = &'a dyn Fn(&[String]) -> Vec<u32>;

/// Lengths in characters.
pub fn characters(texts: &[String]) -> Vec<u32> {
    texts.iter().map(|text| u32::try_from(text.chars().count()).unwrap_or(u32::MAX)).collect()
}

/// All rules, in the order they run.
pub const RULES: [Rule; 5] =
    [flatten::RULE, dedup_rows::RULE, order_fields::RULE, order_rows::RULE, hoist_prefix::RULE];

/// Which rules run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: BTreeSet<String>,
    fields_commute: bool,
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
            let (rewritten, outcome) = (rule.apply)(plan, measure);
            plan = rewritten;
            outcome
        };
        log.push(Applied { rule: rule.name, outcome });
    }
    (plan, log)
}

/// Applies `change` to every table below `plan`, together with the template over it.
fn on_tables(plan: Plan, change: &mut dyn FnMut(&Plan, Table) -> Table) -> Plan {
    match plan.map_children(&mut |child| on_tables(child, change)) {
        Plan::Map { template, rows } => {
            let rows = change(&template, rows);
            Plan::Map { template, rows }
        }
        other => other,
    }
}

/// A column whose cells stand in prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    column: usize,
    in_record: bool,
}

impl Used {
    /// What stands in the prompt of a row that has all its cells.
    fn text<'a>(&self, row: &'a Row) -> Cow<'a, str> {
        let cell = &row.cells[self.column];
        if self.in_record { cell.json() } else { cell.text() }
    }
}

/// The columns that a template uses, in the order it uses them, each way once.
fn used(template: &Plan, table: &Table) -> Vec<Used> {
    let mut found = Vec::new();
    let mut see = |name: &String, in_record| {
        let used = table.column(name).map(|column| Used { column, in_record });
        found.extend(used.filter(|used| !found.contains(used)));
    };
    template.visit(&mut |plan| match plan {
        Plan::Field(name) => see(name, false),
        Plan::Record(columns) => columns.iter().for_each(|name| see(name, true)),
        _ => {}
    });
    found
}

/// What stands in the prompt of one row; `None` for a ragged row.
fn texts<'a>(used: &[Used], columns: usize, row: &'a Row) -> Option<Vec<Cow<'a, str>>> {
    (row.cells.len() == columns).then(|| used.iter().map(|used| used.text(row)).collect())
}
