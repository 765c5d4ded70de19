//! Beside the figures: how the ratios depend on what the paper does not print, the size of the KV memory and
//! how far above capacity its largest load is.

use serde_json::{Value, json};

use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::Results;
use crate::reproduce::setting::{
    Dataset, MARGINAL_WORK, Machine, PolicySeries, RELSERVE, STATIC, STATIC_WEAK, Setting, VLLM, rate,
};

const LINES: [PolicySeries; 4] = [VLLM, STATIC, STATIC_WEAK, MARGINAL_WORK];
/// KV memory in tokens: from well below to well above what the rows of a full step hold.
const CAPACITIES: [u32; 5] = [6_000, 10_000, 16_000, 32_000, 100_000];
/// Loads as percentages of the figure's largest.
const LOADS: [u32; 5] = [100, 125, 150, 200, 300];

/// Something that is varied on one machine.
struct Sweep {
    machine: Machine,
    title: String,
    x_label: &'static str,
    /// A value of it, and the setting without a policy.
    points: Vec<(String, Setting)>,
}

/// The sweeps of the smallest and the largest machine.
fn sweeps(scope: &Scope) -> Vec<Sweep> {
    let machines = [Machine::Opt13b, Machine::Llama70b];
    let machines = machines.into_iter().filter(|machine| scope.machines.contains(machine));
    machines.flat_map(|machine| [capacities(scope, machine), loads(scope, machine)]).collect()
}

fn capacities(scope: &Scope, machine: Machine) -> Sweep {
    let case = Setting::new(machine, Dataset::Rotten, scope.largest(machine), RELSERVE);
    let point = |tokens: u32| (format!("{}k", tokens / 1_000), Setting { kv_tokens: Some(tokens), ..case });
    Sweep {
        machine,
        title: format!("{} · Rotten · {:.1}/s", machine.name(), case.rate()),
        x_label: "KV memory (tokens)",
        points: CAPACITIES.map(point).to_vec(),
    }
}

fn loads(scope: &Scope, machine: Machine) -> Sweep {
    let point = |percent: u32| {
        let load = scope.largest(machine) * percent / 100;
        (format!("{:.2}", rate(load)), Setting::new(machine, Dataset::Rotten, load, RELSERVE))
    };
    let tokens = machine.config(0).scheduler.kv_tokens();
    Sweep {
        machine,
        title: format!("{} · Rotten · KV memory of {tokens} tokens", machine.name()),
        x_label: "load (relQueries/s)",
        points: LOADS.map(point).to_vec(),
    }
}

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    let points = sweeps(scope).into_iter().flat_map(|sweep| sweep.points);
    let with = |(_, case): (String, Setting)| {
        LINES.into_iter().chain([RELSERVE]).map(move |line| Setting { line, ..case })
    };
    points.flat_map(with).collect()
}

/// The latency of `line` as a multiple of RelServe's, point by point.
fn factors(results: &Results, sweep: &Sweep, line: PolicySeries) -> Vec<f64> {
    let factor = |case: &Setting| {
        results.latency(&Setting { line, ..*case }) / results.latency(&Setting { line: RELSERVE, ..*case })
    };
    sweep.points.iter().map(|(_, case)| factor(case)).collect()
}

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let sweeps = sweeps(scope);
    Figure {
        id: "sensitivity",
        title: "Sensitivity: the ratios by KV memory and by load",
        setting: "Rotten. Left at the largest load of Figure 9, which has 10k tokens of KV memory for OPT-13B, right at the \
                  machine's own memory. The paper prints neither its engine's KV memory nor the capacity that its loads \
                  compare with."
            .to_owned(),
        chart: Chart {
            title: "Ratios by size of the KV memory and by load".into(),
            panels: sweeps.iter().map(|sweep| panel(results, sweep)).collect(),
            columns: 2,
        },
        claims: claims(results, &sweeps),
        tables: sweeps.iter().map(|sweep| table(results, sweep)).collect(),
        data: json!(sweeps.iter().map(|sweep| data(results, sweep)).collect::<Vec<Value>>()),
    }
}

fn panel(results: &Results, sweep: &Sweep) -> Panel {
    let line = |line: PolicySeries| {
        let factors = factors(results, sweep, line).into_iter().enumerate();
        let points = factors.map(|(place, factor)| (place as f64 + 0.5, factor));
        (LegendEntry::new(line.name, line.colour), points.collect())
    };
    Panel {
        title: sweep.title.clone(),
        notes: Vec::new(),
        across: Across::Names(sweep.points.iter().map(|(name, _)| name.clone()).collect()),
        x_label: sweep.x_label.into(),
        y_label: "latency / RelServe's".into(),
        y_from: 0.0,
        marks: Marks::Lines(LINES.map(line).to_vec()),
        rules: vec![(2.3, "paper, vLLM: 2.3 to 3.1".into()), (1.4, "paper, vLLM-SP: 1.4 to 2.2".into())],
    }
}

fn claims(results: &Results, sweeps: &[Sweep]) -> Vec<Claim> {
    let claim = |line: PolicySeries, paper: &str, least: f64, see| {
        let all: Vec<f64> = sweeps.iter().flat_map(|sweep| factors(results, sweep, line)).collect();
        let count = all.iter().filter(|factor| **factor >= least - 0.05).count();
        let most = all.iter().copied().fold(0.0, f64::max);
        Claim::so_in(paper, count, all.len(), "points").and(&format!("at most {most:.2}×")).see(see)
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

fn data(results: &Results, sweep: &Sweep) -> Value {
    let lines = LINES.iter().map(|line| (line.key.to_owned(), json!(factors(results, sweep, *line))));
    json!({
        "machine": sweep.machine.name(),
        "varied": sweep.x_label,
        "values": sweep.points.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "times_relserve": lines.collect::<serde_json::Map<String, Value>>(),
    })
}

fn table(results: &Results, sweep: &Sweep) -> FigureTable {
    let values = sweep.points.iter().map(|(name, _)| name.clone());
    let row = |line: PolicySeries| {
        let cells = factors(results, sweep, line).into_iter().map(|factor| format!("{factor:.2}"));
        std::iter::once(line.name.to_owned()).chain(cells).collect()
    };
    FigureTable {
        caption: format!("{}: mean latency as a multiple of RelServe's, by {}", sweep.title, sweep.x_label),
        header: std::iter::once("policy".to_owned()).chain(values).collect(),
        rows: LINES.map(row).to_vec(),
        is_open: false,
    }
}
