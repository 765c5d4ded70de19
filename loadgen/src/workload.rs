//! From tables to relQueries: which rows, which question, how long the answers. Pure.

use std::time::Duration;

use crate::arrival::poisson;
use crate::random::SplitMix64;
use crate::scenario::{AnswerLengths, Scenario};
use crate::table::SourceTable;

/// One relQuery of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct RelQuery {
    /// Its number, from 0, in order of arrival.
    pub index: u32,
    /// When it is sent, counted from the start.
    pub arrival: Duration,
    /// The task's name.
    pub task: String,
    /// The table's name.
    pub table: String,
    /// The prompt template; `{name}` stands for a cell.
    pub template: String,
    /// The columns that the template names.
    pub columns: Vec<String>,
    /// The rows' cells, in the columns' order.
    pub rows: Vec<Vec<String>>,
    /// Longest answer of a row, in tokens.
    pub max_tokens: u32,
    /// Whether every row is exactly that long.
    pub ignore_eos: bool,
    /// The answers that are allowed; empty: any text.
    pub choices: Vec<String>,
}

impl RelQuery {
    /// Whether a row may be answered by `text`.
    pub fn allows(&self, text: &str) -> bool {
        self.choices.is_empty() || self.choices.iter().any(|choice| choice == text)
    }

    /// Prompt and output tokens of all rows, with so many tokens to a character of a prompt.
    pub fn total_tokens(&self, tokens_per_char: f64) -> i64 {
        let prompts = self.prompt_chars() as f64 * tokens_per_char;
        prompts.round() as i64 + self.output_tokens_max() as i64
    }

    /// Characters of all rows' prompts.
    pub fn prompt_chars(&self) -> usize {
        self.rows.iter().map(|row| self.prompt(row).chars().count()).sum()
    }

    /// Most output tokens of all rows together; with `ignore_eos` exactly so many.
    pub fn output_tokens_max(&self) -> u64 {
        self.rows.len() as u64 * u64::from(self.max_tokens)
    }

    /// A row's prompt, filled by the client (single mode).
    pub fn prompt(&self, row: &[String]) -> String {
        self.parts(row).into_iter().map(|(text, _)| text).collect()
    }

    /// The same part by part: each with whether it is a cell, or else of the template.
    pub fn parts<'a>(&'a self, row: &'a [String]) -> Vec<(&'a str, bool)> {
        let mut parts = Vec::new();
        let mut rest = self.template.as_str();
        while let Some(brace) = rest.find(['{', '}']) {
            parts.push((&rest[..brace], false));
            let tail = &rest[brace..];
            if tail.starts_with("{{") || tail.starts_with("}}") {
                parts.push((&tail[..1], false));
                rest = &tail[2..];
                continue;
            }
            let end = tail.find('}').expect("templates are made by this module and close what they open");
            let name = &tail[1..end];
            let column =
                self.columns.iter().position(|column| column == name).expect("names its own columns");
            parts.push((row[column].as_str(), true));
            rest = &tail[end + 1..];
        }
        parts.push((rest, false));
        parts
    }
}

/// The relQueries of a scenario over its tables, in order of arrival. The same seed gives the same trace.
pub fn trace(scenario: &Scenario, tables: &[SourceTable]) -> Vec<RelQuery> {
    let mut sizes = SplitMix64::new(scenario.seed, "sizes");
    let mut kinds = SplitMix64::new(scenario.seed, "kinds");
    let mut places = SplitMix64::new(scenario.seed, "places");
    let mut lengths = SplitMix64::new(scenario.seed, "lengths");
    let mut handbooks = SplitMix64::new(scenario.seed, "handbooks");
    let texts: Vec<String> = (1..=scenario.handbooks).map(|number| handbook(scenario, number)).collect();
    let arrivals = poisson(scenario.seed, scenario.rate_per_s, scenario.relqueries);
    (0u32..)
        .zip(arrivals)
        .map(|(index, arrival)| {
            let task = kinds.pick(&scenario.tasks).expect("a valid scenario has tasks");
            let table = kinds.pick(tables).expect("a valid scenario has tables");
            let count = sizes.between(scenario.rows_min.into(), scenario.rows_max.into()) as usize;
            let first = places.between(0, table.rows.len() as u64 - 1) as usize;
            let rows = table.rows.iter().cycle().skip(first).take(count).cloned().collect();
            let drawn = lengths.between(task.output_min.into(), task.output_max.into());
            let (max_tokens, ignore_eos) = match scenario.lengths {
                AnswerLengths::Drawn => (u32::try_from(drawn).expect("between two u32"), true),
                AnswerLengths::Limit => (task.output_max, true),
                AnswerLengths::Free => (task.output_max, false),
            };
            RelQuery {
                index,
                arrival,
                task: task.name.clone(),
                table: table.name.clone(),
                template: template(
                    handbooks.pick(&texts).expect("a valid scenario has handbooks"),
                    &task.instruction,
                    &table.columns,
                ),
                columns: table.columns.clone(),
                rows,
                max_tokens,
                ignore_eos,
                choices: task.choices.clone(),
            }
        })
        .collect()
}

/// What rules of a handbook are put together from.
const WHEN: [&str; 6] = [
    "where the writer compares two things",
    "where only the price is mentioned",
    "where the text breaks off",
    "where praise and blame are mixed",
    "where the delivery is what went wrong",
    "where somebody else is quoted",
];
const RULE: [&str; 6] = [
    "the first of them counts.",
    "take what the last sentence says.",
    "decide by the words about the thing itself.",
    "the answer leans to the worse side.",
    "leave it out of account.",
    "treat it as if the writer had said it.",
];

/// The rules of one handbook, as long as the scenario says; no two begin alike.
fn handbook(scenario: &Scenario, number: u32) -> String {
    if scenario.handbook_chars == 0 {
        return String::new();
    }
    let mut random = SplitMix64::new(scenario.seed, &format!("handbook {number}"));
    let mut pick = |from: &[&'static str]| *random.pick(from).expect("the lists are not empty");
    let mut text = format!("Handbook no. {number}.");
    let mut rule = 1;
    while text.len() < scenario.handbook_chars {
        text += &format!(" Rule {rule}: {}, {}", pick(&WHEN), pick(&RULE));
        rule += 1;
    }
    // All of it is ASCII.
    text.truncate(scenario.handbook_chars);
    text + "\n\n"
}

/// The handbook, the question, then every field under its name. What is the same in all rows comes first.
fn template(handbook: &str, instruction: &str, columns: &[String]) -> String {
    let fields: Vec<String> = columns.iter().map(|column| format!("{column}: {{{column}}}")).collect();
    format!("{handbook}{}\n\n{}\n", instruction.replace('{', "{{").replace('}', "}}"), fields.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::TableSpec;

    fn make(seed: u64, lengths: AnswerLengths) -> Vec<RelQuery> {
        let scenario = Scenario { seed, lengths, relqueries: 400, ..Scenario::default() };
        let spec = TableSpec { rows: 50, ..TableSpec::default() };
        trace(&scenario, &[SourceTable::load(&spec, seed).expect("generated")])
    }

    #[test]
    fn a_trace_covers_all_sizes_and_tasks_and_depends_on_the_seed_alone() {
        let trace = make(1, AnswerLengths::Drawn);
        assert_eq!(trace, make(1, AnswerLengths::Drawn));
        assert_ne!(trace, make(2, AnswerLengths::Drawn));
        let sizes: Vec<usize> = trace.iter().map(|relquery| relquery.rows.len()).collect();
        assert!(sizes.iter().all(|size| (1..=100).contains(size)));
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert!((40.0..61.0).contains(&mean), "{mean}");
        for task in ["filter", "classify", "rate", "summarize", "open"] {
            let share = trace.iter().filter(|relquery| relquery.task == task).count();
            assert!((50..110).contains(&share), "{task}: {share}");
        }
    }

    #[test]
    fn lengths_are_drawn_limited_or_left_to_the_model() {
        let drawn = make(1, AnswerLengths::Drawn);
        let open: Vec<u32> = drawn.iter().filter(|r| r.task == "open").map(|r| r.max_tokens).collect();
        assert!(open.iter().all(|length| (1..=100).contains(length)));
        assert!(open.iter().max() > Some(&80) && open.iter().min() < Some(&20), "{open:?}");
        let limit = make(1, AnswerLengths::Limit);
        assert!(limit.iter().all(|r| r.ignore_eos && (r.task != "open" || r.max_tokens == 100)));
        assert!(make(1, AnswerLengths::Free).iter().all(|r| !r.ignore_eos));
        let rows = |trace: &[RelQuery]| trace.iter().map(|r| r.rows.clone()).collect::<Vec<_>>();
        assert_eq!(rows(&drawn), rows(&limit), "the lengths' stream is its own");
    }

    #[test]
    fn prompts_begin_with_one_of_the_handbooks() {
        let scenario = Scenario { handbooks: 3, handbook_chars: 200, relqueries: 60, ..Scenario::default() };
        let table = SourceTable::load(&TableSpec { rows: 50, ..TableSpec::default() }, 1).expect("generated");
        let with = trace(&scenario, std::slice::from_ref(&table));
        let mut beginnings: Vec<&str> = with.iter().map(|relquery| &relquery.template[..200]).collect();
        beginnings.sort_unstable();
        beginnings.dedup();
        assert_eq!(beginnings.len(), 3, "{beginnings:?}");
        let plain = trace(&Scenario { handbook_chars: 0, ..scenario }, &[table]);
        for (with, plain) in with.iter().zip(&plain) {
            assert_eq!(with.template[200..], format!("\n\n{}", plain.template));
            assert_eq!((&with.rows, with.max_tokens), (&plain.rows, plain.max_tokens), "a stream of its own");
        }
    }

    #[test]
    fn a_prompt_is_the_template_filled_once() {
        let columns = vec!["a".to_owned(), "b".to_owned()];
        let mut relquery = make(1, AnswerLengths::Drawn).swap_remove(0);
        relquery.template = template("", "Say {so}:", &columns);
        relquery.columns = columns;
        let row = ["{b}".to_owned(), "}x{".to_owned()];
        assert_eq!(relquery.prompt(&row), "Say {so}:\n\na: {b}\nb: }x{\n");
        (relquery.rows, relquery.max_tokens) = (vec![row.to_vec(), row.to_vec()], 7);
        assert_eq!((relquery.prompt_chars(), relquery.output_tokens_max()), (50, 14));
        assert_eq!(relquery.total_tokens(0.5), 39);
    }
}
