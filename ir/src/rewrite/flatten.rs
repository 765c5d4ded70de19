//! `flatten`: a sequence in a sequence is one sequence; neighbouring texts are one text.

use super::rule::Rule;
use crate::plan::Plan;

pub(super) const RULE: Rule = Rule {
    name: "flatten",
    stage: 1,
    condition: "always",
    form: "seq[a, seq[b, text x], text y, text \"\"] -> seq[a, b, text xy]; seq[a] -> a",
    apply: |plan, _| {
        let before = count(&plan);
        let plan = flatten(plan);
        let removed = before - count(&plan);
        let outcome =
            if removed > 0 { Ok(format!("{removed} nodes fewer")) } else { Err("already flat".into()) };
        (plan, outcome)
    },
};

fn count(plan: &Plan) -> usize {
    let mut nodes = 0;
    plan.visit(&mut |_| nodes += 1);
    nodes
}

fn flatten(plan: Plan) -> Plan {
    match plan.map_children(&mut flatten) {
        Plan::Seq(children) => sequence(children),
        other => other,
    }
}

fn sequence(children: Vec<Plan>) -> Plan {
    let mut flat: Vec<Plan> = Vec::with_capacity(children.len());
    for child in children {
        let parts = match child {
            Plan::Seq(parts) => parts,
            other => vec![other],
        };
        for part in parts {
            match (flat.last_mut(), part) {
                (_, Plan::Text(text)) if text.is_empty() => {}
                (Some(Plan::Text(last)), Plan::Text(text)) => last.push_str(&text),
                (_, other) => flat.push(other),
            }
        }
    }
    match flat.pop() {
        Some(only) if flat.is_empty() => only,
        last => {
            flat.extend(last);
            Plan::Seq(flat)
        }
    }
}
