//! `hoist_prefix`: messages that are equal for all rows stand before the map, and are tokenized once.
//!
//! Only whole messages move: a cut inside a message would change how its characters join to tokens.

use super::rule::Rule;
use crate::plan::Plan;

pub(super) const RULE: Rule = Rule {
    name: "hoist_prefix",
    stage: 4,
    condition: "leading messages without fields; the cut is between messages",
    form: "map(generate(seq[fixed.., rest..]), rows) -> seq[fixed.., map(generate(seq[rest..]), rows)]",
    apply: |plan, _| {
        let mut hoisted = 0;
        let plan = hoist(plan, &mut hoisted);
        let outcome = match hoisted {
            0 => Err("no message before the first field".into()),
            count => Ok(format!("{count} messages before the map")),
        };
        (plan, outcome)
    },
};

fn hoist(plan: Plan, hoisted: &mut usize) -> Plan {
    let plan = plan.map_children(&mut |child| hoist(child, hoisted));
    let Plan::Map { template, rows } = plan else { return plan };
    let (input, generation) = match *template {
        Plan::Generate { input, generation } => (*input, generation),
        other => return Plan::Map { template: Box::new(other), rows },
    };
    let rebuilt = |input| {
        let generate = Plan::Generate { input: Box::new(input), generation };
        Plan::Map { template: Box::new(generate), rows }
    };
    let Plan::Seq(mut fixed) = input else { return rebuilt(input) };
    let is_fixed = |plan: &Plan| matches!(plan, Plan::Message(..)) && plan.fields().is_empty();
    // The last message stays: a generation needs an input.
    let count = fixed.iter().take_while(|plan| is_fixed(plan)).count().min(fixed.len().saturating_sub(1));
    let mut rest = fixed.split_off(count);
    *hoisted += count;
    let rest = if rest.len() == 1 { rest.remove(0) } else { Plan::Seq(rest) };
    let map = rebuilt(rest);
    if fixed.is_empty() {
        return map;
    }
    fixed.push(map);
    Plan::Seq(fixed)
}
