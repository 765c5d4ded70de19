//! Beside the figures: how the ratios depend on what the paper does not print, the size of the KV memory.

use serde_json::{Value, json};

use crate::chart::{Chart, Key, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, Table};
use crate::reproduce::run::Results;
use crate::reproduce::setting::{
    Case, Dataset, Line, Machine, OURS, OURS_HIDDEN, PREFILL_FIRST, RELSERVE, STATIC, STATIC_WEAK, VLLM,
};

const LINES: [Line; 6] = [VLLM, STATIC, STATIC_WEAK, PREFILL_FIRST, OURS, OURS_HIDDEN];
/// KV memory in tokens: from well below to well above what the rows of a full step hold.
const CAPACITIES: [u32; 5] = [6_000, 10_000, 16_000, 32_000, 100_000];

fn case(scope: &Scope, capacity: u32, line: Line) -> Case {
    let load = scope.largest(Machine::Opt13b);
    Case { kv_tokens: Some(capacity), ..Case::new(Machine::Opt13b, Dataset::Rotten, load, line) }
}

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Case> {
    let lines = || LINES.into_iter().chain([RELSERVE]);
    CAPACITIES.into_iter().flat_map(|capacity| lines().map(move |line| case(scope, capacity, line))).collect()
}

/// The latency of `line` as a multiple of RelServe's.
fn factor(scope: &Scope, results: &Results, capacity: u32, line: Line) -> f64 {
    results.latency(&case(scope, capacity, line)) / results.latency(&case(scope, capacity, RELSERVE))
}

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let line = |line: Line| {
        let at =
            |(place, capacity): (usize, &u32)| (place as f64 + 0.5, factor(scope, results, *capacity, line));
        (Key::new(line.name, line.colour), CAPACITIES.iter().enumerate().map(at).collect())
    };
    let panel = Panel {
        title: "OPT-13B · Rotten · largest load".into(),
        notes: Vec::new(),
        across: Across::Names(CAPACITIES.map(|capacity| format!("{}k", capacity / 1_000)).to_vec()),
        x_label: "KV memory (tokens)".into(),
        y_label: "mean latency / RelServe's".into(),
        y_from: 0.0,
        marks: Marks::Lines(LINES.map(line).to_vec()),
        rules: vec![(2.3, "paper, vLLM: 2.3 at least".into()), (1.4, "paper, vLLM-SP: 1.4 at least".into())],
    };
    let over = |line: Line| CAPACITIES.map(|capacity| factor(scope, results, capacity, line)).to_vec();
    let data = LINES.iter().map(|line| (line.key.to_owned(), json!(over(*line))));
    Figure {
        id: "sensitivity",
        title: "Sensitivity: the ratios by size of the KV memory",
        setting: "OPT-13B, Rotten, the largest load. The paper does not print how many tokens of KV memory its engine had; \
                  everything else is as in Figure 9."
            .to_owned(),
        chart: Chart { title: "Ratios by size of the KV memory".into(), panels: vec![panel], columns: 1 },
        claims: claims(&over),
        tables: vec![table(&over)],
        data: json!({
            "kv_tokens": CAPACITIES,
            "times_relserve": data.collect::<serde_json::Map<String, Value>>(),
        }),
    }
}

fn claims(over: &dyn Fn(Line) -> Vec<f64>) -> Vec<Claim> {
    let claim = |line: Line, paper: &str, least: f64, see| {
        let count = over(line).iter().filter(|factor| **factor >= least - 0.05).count();
        Claim::so_in(paper, count, CAPACITIES.len(), "so at sizes of the KV memory:").see(see)
    };
    vec![
        claim(VLLM, "at least 2.3 times lower than vLLM", 2.3, "Ratio to FCFS"),
        claim(STATIC, "at least 1.4 times lower than vLLM-SP (linear reading)", 1.4, "Static priority"),
        claim(
            STATIC_WEAK,
            "at least 1.4 times lower than vLLM-SP (token sums, evicting)",
            1.4,
            "Static priority",
        ),
    ]
}

fn table(over: &dyn Fn(Line) -> Vec<f64>) -> Table {
    let sizes = CAPACITIES.iter().map(|capacity| format!("{capacity} tokens"));
    let header = std::iter::once("policy".to_owned()).chain(sizes).collect();
    let row = |line: Line| {
        let cells = over(line).into_iter().map(|factor| format!("{factor:.2}"));
        std::iter::once(line.name.to_owned()).chain(cells).collect()
    };
    let caption = "Mean latency as a multiple of RelServe's".into();
    Table { caption, header, rows: LINES.map(row).to_vec(), is_open: true }
}
