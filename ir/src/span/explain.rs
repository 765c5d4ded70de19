//! `explain` for span queries: the tree, what each rule did to it, and the calls it takes.

use std::fmt::Write as _;

use base::Constraint;

use super::plan::{Call, Item, Plan, SpanPart};
use super::query::{Generate, Params, SpanQuery};
use super::rules::RULES;
use crate::explain::{estimate, line};
use crate::rewrite::Applied;

/// Characters of a text that are shown.
const TEXT_SHOWN_MAX: usize = 60;

/// Explains a query and the rewriting that led to it.
pub fn explain(query: &SpanQuery, log: &[Applied]) -> String {
    let mut out = String::new();
    tree(query, 0, &mut out);
    if !log.is_empty() {
        out.push_str("rules\n");
    }
    for applied in log {
        let stage = RULES.iter().find(|rule| rule.name == applied.rule).map_or(0, |rule| rule.stage);
        let (word, what) = match &applied.outcome {
            Ok(times) => ("applied", times),
            Err(reason) => ("skipped", reason),
        };
        line(&mut out, 1, &format!("{stage} {}: {word}, {what}", applied.rule));
    }
    out
}

/// The rules, each with its stage, its form and its condition.
pub fn explain_rules() -> String {
    let mut out = String::new();
    for rule in &RULES {
        line(&mut out, 0, &format!("{} {}", rule.stage, rule.name));
        line(&mut out, 1, rule.form);
        line(&mut out, 1, &format!("where: {}", rule.condition));
    }
    out
}

fn tree(query: &SpanQuery, depth: usize, out: &mut String) {
    let label = match query {
        SpanQuery::Message(role, text) => format!("{} {}", role.name(), quoted(text)),
        SpanQuery::Print(text) => format!("print {}", quoted(text)),
        SpanQuery::Seq(_) => "seq".into(),
        SpanQuery::Cross(_) => "cross".into(),
        SpanQuery::Plus(_) => "plus".into(),
        SpanQuery::Prepare(_) => "prepare".into(),
        SpanQuery::Generate(Generate { params, with_input, .. }) => {
            let taken = if *with_input { ", taken with its input" } else { "" };
            format!("g {}{taken}", shown_params(params))
        }
        SpanQuery::Chat { params, .. } => format!("chat {}", shown_params(params)),
        SpanQuery::Repeat { times, .. } => format!("repeat {times}"),
        SpanQuery::Retrieval(retrieval) => {
            format!(
                "retrieval of {} from {:?} for {}",
                retrieval.k,
                retrieval.corpus,
                quoted(&retrieval.query)
            )
        }
    };
    line(out, depth, &label);
    query.children().iter().for_each(|child| tree(child, depth + 1, out));
}

/// What is shown of a text: copies of a node share theirs, an explanation has one for each.
fn beginning(text: &str) -> String {
    let mut shown: String = text.chars().take(TEXT_SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn quoted(text: &str) -> String {
    format!("{:?} ~{}", beginning(text), estimate(text.len()))
}

/// The parameters that a query says.
fn shown_params(params: &Params) -> String {
    let mut out = format!("temperature={}", params.temperature);
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(out, " {name}={value}").expect("a string takes all that is written");
        }
    };
    say("model", params.model.as_deref().map(beginning));
    say("max_tokens", params.max_tokens.map(|tokens| tokens.to_string()));
    say("top_p", params.top_p.map(|share| share.to_string()));
    say("top_k", params.top_k.map(|count| count.to_string()));
    say("seed", params.seed.map(|seed| seed.to_string()));
    say("stop", (!params.stop.is_empty()).then(|| format!("{:?}", beginning(&params.stop.join(", ")))));
    say("constraint", params.constraint.as_ref().map(form));
    out
}

fn form(constraint: &Constraint) -> String {
    match constraint {
        Constraint::Choice(texts) => format!("choice of {}", texts.len()),
        Constraint::Integer { low, high } => format!("integer {low}..={high}"),
        Constraint::Regex(pattern) => format!("regex {:?}", beginning(pattern)),
        Constraint::JsonSchema(_) => "json_schema".into(),
        Constraint::StructuralTag(_) | Constraint::TriggeredTags(_) => "structural_tag".into(),
        Constraint::Grammar(_) | Constraint::Ebnf(_) => "grammar".into(),
        Constraint::Excerpt { .. } => "excerpt".into(),
        Constraint::Reading { .. } => "reading".into(),
        Constraint::Items(items) => format!("{} to {} items", items.count_min, items.count_max),
    }
}

impl Plan {
    /// The calls and what each one reads, as text.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        for call in &self.calls {
            line(&mut out, 0, &heading(call));
            for item in &call.items {
                match item {
                    Item::Part(found) => line(&mut out, 1, &part(found)),
                    Item::Group(members) => {
                        line(&mut out, 1, "spans that see only themselves");
                        for member in members {
                            let parts: Vec<String> = member.parts.iter().map(part).collect();
                            let ahead = if member.is_prepared { ", prepared" } else { "" };
                            line(&mut out, 2, &format!("{}{ahead}", parts.join(", ")));
                        }
                    }
                }
            }
        }
        let output: Vec<String> = self.output.iter().map(part).collect();
        line(&mut out, 0, &format!("result: {}", output.join(", ")));
        out
    }
}

fn heading(call: &Call) -> String {
    let inputs: Vec<String> = call.inputs.iter().map(|input| input.0.to_string()).collect();
    let behind = if inputs.is_empty() { String::new() } else { format!(" behind {}", inputs.join(", ")) };
    format!("call {} in batch {}{behind}: {}", call.id.0, call.batch, shown_params(&call.params))
}

fn part(part: &SpanPart) -> String {
    match part {
        SpanPart::Message(role, text) => format!("{} {}", role.name(), quoted(text)),
        SpanPart::Output(id) => format!("output of call {}", id.0),
        SpanPart::Whole(id) => format!("prompt and output of call {}", id.0),
    }
}
