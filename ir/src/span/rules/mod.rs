//! Rewrite rules: a query that says the same with less sugar, and has outputs where their keys and values
//! already lie (Span Queries, section 5.1 and Fig. 7; section 6).
//!
//! Each rule is a name, a stage, a condition and a form `left -> right`. A stage walks the tree from its
//! root; at each node the first rule of the stage that matches is applied and its right side spliced in,
//! until none matches; and it walks again until a walk changes nothing. So do all stages together, until a
//! round changes nothing. Every rule makes something less (sugar, nodes, candidates of a judge, generates not
//! distributed), so that there is an end.

mod desugar;
mod distribute_plus;
mod expand_repeat;
mod flatten;
mod joins;
mod remove_empty;
mod rule;
mod tree_reduce;

pub use rule::{Found, Rewriting, Rule};

use super::error::SpanError;
use super::query::SpanQuery;
use super::read::SpanLimits;
use crate::rewrite::Applied;

/// All rules, in the order they are tried.
pub const RULES: [Rule; 9] = [
    expand_repeat::RULE,
    desugar::CHAT,
    desugar::RETRIEVAL,
    remove_empty::RULE,
    flatten::JOIN,
    flatten::PLUS,
    flatten::SINGLE,
    tree_reduce::RULE,
    distribute_plus::RULE,
];

/// Rounds of all stages, steps and nodes are bounded together: so many steps for each node that a query can
/// have.
const STEPS_PER_NODE: usize = 8;

/// Rewrites a query to its fixed point; says what every rule did.
pub fn rewrite(query: SpanQuery, with: &Rewriting<'_>) -> Result<(SpanQuery, Vec<Applied>), SpanError> {
    let mut query = query;
    let mut rewriter = Rewriter { with, times: [0; RULES.len()] };
    let last = RULES.iter().map(|rule| rule.stage).max().unwrap_or_default();
    loop {
        let before = rewriter.times;
        for stage in 1..=last {
            while rewriter.walk(&mut query, stage)? {}
            check_size(&query, &with.limits)?;
        }
        if rewriter.times == before {
            break;
        }
    }
    let outcome = |rule: &Rule, times| match times {
        _ if !with.rules.has(rule.name) => Err("switched off".to_owned()),
        0 if rule.name == tree_reduce::RULE.name && with.judges.is_none() => Err("not asked for".to_owned()),
        0 => Err("no match".to_owned()),
        1 => Ok("once".to_owned()),
        times => Ok(format!("{times} times")),
    };
    let log = RULES.iter().zip(rewriter.times);
    Ok((query, log.map(|(rule, times)| Applied { rule: rule.name, outcome: outcome(rule, times) }).collect()))
}

/// Refuses a query that is larger than allowed.
fn check_size(query: &SpanQuery, limits: &SpanLimits) -> Result<(), SpanError> {
    let size = query.size();
    for (what, found, limit) in
        [("nodes", size.nodes, limits.nodes_max), ("bytes of text", size.bytes, limits.bytes_max)]
    {
        if found > limit {
            return Err(SpanError::TooLarge { what, found, limit });
        }
    }
    Ok(())
}

struct Rewriter<'a> {
    with: &'a Rewriting<'a>,
    /// How often each rule was applied.
    times: [usize; RULES.len()],
}

impl Rewriter<'_> {
    /// Applies the rules of a stage at each node until none matches there; whether any did.
    fn walk(&mut self, query: &mut SpanQuery, stage: u8) -> Result<bool, SpanError> {
        let mut has_changed = false;
        while self.step(query, stage)? {
            has_changed = true;
        }
        for child in query.children_mut() {
            has_changed |= self.walk(child, stage)?;
        }
        Ok(has_changed)
    }

    /// Applies the first rule that matches.
    fn step(&mut self, query: &mut SpanQuery, stage: u8) -> Result<bool, SpanError> {
        for (rule, times) in RULES.iter().zip(&mut self.times) {
            let is_on = rule.stage == stage && self.with.rules.has(rule.name);
            if is_on && (rule.apply)(query, self.with)? {
                *times += 1;
                let (found, limit) =
                    (self.times.iter().sum(), self.with.limits.nodes_max.saturating_mul(STEPS_PER_NODE));
                return if found > limit {
                    Err(SpanError::TooLarge { what: "steps", found, limit })
                } else {
                    Ok(true)
                };
            }
        }
        Ok(false)
    }
}
