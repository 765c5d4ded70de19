//! Figure 11: where the latency goes, waiting, core and tail, under static priority and RelServe.

use serde_json::{Value, json};

use crate::chart::{Bar, Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::{Results, mean};
use crate::reproduce::setting::{
    Dataset, MARGINAL_WORK, MARGINAL_WORK_HIDDEN, Machine, PolicySeries, RELSERVE, STATIC, STATIC_WEAK,
    Setting, rate,
};

/// The bars of a load, and what stands below them.
const LINES: [(PolicySeries, &str); 5] = [
    (STATIC, "SP"),
    (STATIC_WEAK, "SPe"),
    (RELSERVE, "RS"),
    (MARGINAL_WORK, "MW"),
    (MARGINAL_WORK_HIDDEN, "MW1"),
];
const PARTS: [(&str, &str); 3] = [("waiting", "#999999"), ("core", "#0072b2"), ("tail", "#e69f00")];

fn case(load: u32, line: PolicySeries) -> Setting {
    Setting::new(Machine::Opt13b, Dataset::Beer, load, line)
}

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    let loads = scope.loads(Machine::Opt13b).into_iter();
    loads.flat_map(|load| LINES.map(|(line, _)| case(load, line))).collect()
}

/// Waiting, core, tail: means over relQueries and seeds, s.
fn parts(results: &Results, load: u32, line: PolicySeries) -> [f64; 3] {
    let case = case(load, line);
    [
        results.mean(&case, |outcome| outcome.summary.waiting),
        results.mean(&case, |outcome| outcome.summary.core),
        results.mean(&case, |outcome| outcome.summary.tail),
    ]
}

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let loads = scope.loads(Machine::Opt13b);
    let group = |load: &u32| -> Vec<Bar> {
        let bar = |(line, short): (PolicySeries, &str)| Bar {
            name: short.into(),
            parts: parts(results, *load, line).to_vec(),
        };
        LINES.map(bar).to_vec()
    };
    let panel = Panel {
        title: "OPT-13B · Beer".into(),
        notes: Vec::new(),
        across: Across::Names(loads.iter().map(|load| format!("{:.1}/s", rate(*load))).collect()),
        x_label: String::new(),
        y_label: "mean latency (s)".into(),
        y_from: 0.0,
        marks: Marks::Stacks {
            parts: PARTS.map(|(name, colour)| LegendEntry::new(name, colour)).to_vec(),
            groups: loads.iter().map(group).collect(),
        },
        rules: Vec::new(),
    };
    Figure {
        id: "figure-11",
        title: "Figure 11: latency by period, static priority against RelServe",
        setting:
            "OPT-13B, Beer; means over relQueries and seeds. SP: linear static priority; SPe: token sums, \
                  evicting; RS: RelServe; MW: marginal work where a mixed step hides nothing, MW1: where it hides a chunk."
                .to_owned(),
        chart: Chart { title: "Latency by period".into(), panels: vec![panel], columns: 1 },
        claims: claims(scope, results),
        tables: vec![table(&loads, results)],
        data: json!({ "loads": loads.iter().map(|load| rate(*load)).collect::<Vec<f64>>(), "policies": data(&loads, results) }),
    }
}

/// How many times longer the period is under `line` than under RelServe, on average over the loads.
fn factor(scope: &Scope, results: &Results, line: PolicySeries, period: usize) -> f64 {
    let loads = scope.loads(Machine::Opt13b);
    let sum = |line| loads.iter().map(|load| parts(results, *load, line)[period]).sum::<f64>();
    sum(line) / sum(RELSERVE)
}

fn claims(scope: &Scope, results: &Results) -> Vec<Claim> {
    let both = |period| [STATIC, STATIC_WEAK].map(|line| factor(scope, results, line, period));
    let reported = |period| {
        let [linear, weak] = both(period);
        format!("linear {linear:.2}×, evicting {weak:.2}× of RelServe's")
    };
    let shorter = |paper: &str, period| {
        let factors = both(period);
        Claim::so_in(
            paper,
            factors.iter().filter(|x| **x >= 1.05).count(),
            2,
            "readings of vLLM-SP: at least 5 % shorter",
        )
        .and(&reported(period))
        .see("Where the time goes")
    };
    let share = |line: PolicySeries| -> (f64, f64) {
        let shares = scope.loads(Machine::Opt13b).into_iter().map(|load| {
            let [waiting, core, tail] = parts(results, load, line);
            100.0 * (core + tail) / (waiting + core + tail)
        });
        shares.fold((f64::INFINITY, 0.0), |(a, b), x| (a.min(x), b.max(x)))
    };
    let ((low, high), (weak_low, weak_high)) = (share(STATIC), share(STATIC_WEAK));
    vec![
        Claim::number("RelServe waits about as long as vLLM-SP", 1.0, mean(both(0)), "× (SP / RelServe)")
            .and(&reported(0))
            .see("Where the time goes"),
        shorter("the core running time is considerably shorter", 1),
        shorter("the tail running time decreases", 2),
        Claim::number("37 to 63 % of latency is core and tail under static priority", 50.0, (low + high) / 2.0, " %")
            .and(&format!("{low:.0} to {high:.0} % (linear), {weak_low:.0} to {weak_high:.0} % (evicting), from the largest load to the least"))
            .see("Where the time goes"),
    ]
}

fn data(loads: &[u32], results: &Results) -> Value {
    let of = |line: PolicySeries| {
        let all: Vec<[f64; 3]> = loads.iter().map(|load| parts(results, *load, line)).collect();
        (line.key.to_owned(), json!(all))
    };
    Value::Object(LINES.iter().map(|(line, _)| of(*line)).collect())
}

fn table(loads: &[u32], results: &Results) -> FigureTable {
    let mut header = vec!["policy".to_owned()];
    header.extend(loads.iter().map(|load| format!("{:.1}/s", rate(*load))));
    let row = |(line, _): (PolicySeries, &str)| {
        let cell = |load: &u32| {
            let [waiting, core, tail] = parts(results, *load, line);
            format!("{waiting:.2} / {core:.2} / {tail:.2}")
        };
        let mut row = vec![line.name.to_owned()];
        row.extend(loads.iter().map(cell));
        row
    };
    FigureTable {
        caption: "waiting / core / tail (s)".into(),
        header,
        rows: LINES.map(row).to_vec(),
        is_open: false,
    }
}
