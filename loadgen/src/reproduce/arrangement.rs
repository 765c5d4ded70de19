//! Figure 10: the adaptive arranger against always prefilling and always decoding first, latency normalised
//! to RelServe's.

use serde_json::{Value, json};

use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::{Results, mean};
use crate::reproduce::setting::{
    DECODE_FIRST, Dataset, Machine, PREFILL_FIRST, PolicySeries, RELSERVE, Setting, rate,
};

const LINES: [PolicySeries; 3] = [RELSERVE, PREFILL_FIRST, DECODE_FIRST];
/// Two means that differ by less are the same: within the noise of three traces.
const TIE: f64 = 0.01;

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    scope.grid(&LINES)
}

/// The latency of `line` as a multiple of RelServe's.
fn normalised(
    results: &Results,
    (machine, dataset): (Machine, Dataset),
    load: u32,
    line: PolicySeries,
) -> f64 {
    let latency = |line| results.latency(&Setting::new(machine, dataset, load, line));
    latency(line) / latency(RELSERVE)
}

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let panels = scope.panels();
    Figure {
        id: "figure-10",
        title: "Figure 10: prefill first, decode first, or adaptively",
        setting: "Mean latency as a multiple of RelServe's on the same traces. PP prefills first in the transitional \
                  case, DP decodes first; the other cases are the same."
            .to_owned(),
        chart: Chart {
            title: "Latency of PP and DP as a multiple of RelServe's".into(),
            panels: panels.iter().map(|at| panel(scope, results, *at)).collect(),
            columns: Dataset::ALL.len(),
        },
        claims: claims(scope, results),
        tables: vec![table(scope, results)],
        data: json!({ "panels": panels.iter().map(|at| data(scope, results, *at)).collect::<Vec<Value>>() }),
    }
}

fn panel(scope: &Scope, results: &Results, at: (Machine, Dataset)) -> Panel {
    let loads = scope.loads(at.0);
    let line = |line: PolicySeries| {
        let points = loads.iter().map(|load| (rate(*load), normalised(results, at, *load, line)));
        (LegendEntry::new(line.name, line.colour), points.collect())
    };
    let lines = LINES.map(line).to_vec();
    let least = lines.iter().flat_map(|(_, points): &(LegendEntry, Vec<(f64, f64)>)| points).map(|(_, y)| *y);
    let least = least.fold(1.0, f64::min);
    let first = loads.first().copied().unwrap_or_default();
    Panel {
        title: format!("{} · {}", at.0.name(), at.1.name()),
        notes: Vec::new(),
        across: Across::Numbers(rate(first), rate(scope.largest(at.0))),
        x_label: "load (relQueries/s)".into(),
        y_label: "latency / RelServe's".into(),
        // All that matters is near 1.
        y_from: (least * 10.0 - 1.0).floor().max(0.0) / 10.0,
        marks: Marks::Lines(lines),
        rules: Vec::new(),
    }
}

fn data(scope: &Scope, results: &Results, at: (Machine, Dataset)) -> Value {
    let loads = scope.loads(at.0);
    let over = |line| loads.iter().map(|load| normalised(results, at, *load, line)).collect::<Vec<f64>>();
    json!({
        "machine": at.0.name(), "dataset": at.1.name(),
        "loads": loads.iter().map(|load| rate(*load)).collect::<Vec<f64>>(),
        "prefill_first": over(PREFILL_FIRST), "decode_first": over(DECODE_FIRST),
    })
}

/// Every panel and load.
fn points(scope: &Scope) -> Vec<((Machine, Dataset), u32)> {
    let panels = scope.panels().into_iter();
    panels.flat_map(|at| scope.loads(at.0).into_iter().map(move |load| (at, load))).collect()
}

fn claims(scope: &Scope, results: &Results) -> Vec<Claim> {
    let points = points(scope);
    let of =
        |line| points.iter().map(|(at, load)| normalised(results, *at, *load, line)).collect::<Vec<f64>>();
    let (prefill, decode) = (of(PREFILL_FIRST), of(DECODE_FIRST));
    let lowest = prefill.iter().zip(&decode).filter(|(p, d)| p.min(**d) >= 1.0 - TIE).count();
    let strictly = prefill.iter().zip(&decode).filter(|(p, d)| p.min(**d) > 1.0).count();
    let mut claims = vec![
        Claim::so_in(
            "RelServe has the lowest latency in all settings",
            lowest,
            points.len(),
            "settings: lowest or within 1 %",
        )
        .and(&format!(
            "strictly in {strictly}; PP {:.2}×, DP {:.2}× on average",
            mean(prefill.iter().copied()),
            mean(decode.iter().copied())
        ))
        .see("The arranger"),
    ];
    // Which of the two is better, where the paper says so: over all loads, the better one's factor.
    let compare =
        |machine: Machine, dataset: Dataset, paper: &str, better: PolicySeries, worse: PolicySeries| {
            let here = |line| -> f64 {
                let loads = scope.loads(machine);
                mean(loads.iter().map(|load| normalised(results, (machine, dataset), *load, line)))
            };
            let loads = scope.loads(machine);
            let count = loads.iter().filter(|load| {
                let at = |line| normalised(results, (machine, dataset), **load, line);
                at(better) <= at(worse)
            });
            Claim::so_in(paper, count.count(), loads.len(), "loads")
                .and(&format!("PP {:.2}×, DP {:.2}× over all loads", here(PREFILL_FIRST), here(DECODE_FIRST)))
                .see("The arranger")
        };
    if scope.machines.contains(&Machine::Opt13b) {
        let paper = "PP beats DP on Amazon with OPT-13B";
        claims.push(compare(Machine::Opt13b, Dataset::Amazon, paper, PREFILL_FIRST, DECODE_FIRST));
    }
    if scope.machines.contains(&Machine::Llama70b) {
        let paper = "DP beats PP on PDMX with Llama2-70B";
        claims.push(compare(Machine::Llama70b, Dataset::Pdmx, paper, DECODE_FIRST, PREFILL_FIRST));
    }
    claims
}

fn table(scope: &Scope, results: &Results) -> FigureTable {
    let header = ["machine", "dataset", "policy", "× RelServe, load by load"].map(str::to_owned).to_vec();
    let mut rows = Vec::new();
    for at in scope.panels() {
        for line in [PREFILL_FIRST, DECODE_FIRST] {
            let loads = scope.loads(at.0);
            let cells = loads
                .iter()
                .map(|load| format!("{:.2}/s: {:.2}", rate(*load), normalised(results, at, *load, line)));
            let cells: Vec<String> = cells.collect();
            rows.push(vec![at.0.name().into(), at.1.name().into(), line.name.into(), cells.join(", ")]);
        }
    }
    FigureTable { caption: "Latency as a multiple of RelServe's".into(), header, rows, is_open: false }
}
