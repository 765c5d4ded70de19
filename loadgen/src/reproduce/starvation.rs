//! Figure 12: mean and greatest latency of RelServe by starvation threshold (Eq. 13).

use base::Millis;
use serde_json::{Value, json};

use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::plot::{Across, colour};
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::{ReplayOutcome, Results};
use crate::reproduce::setting::{
    Dataset, MARGINAL_WORK, MARGINAL_WORK_HIDDEN, Machine, PolicySeries, RELSERVE, Setting, VLLM, rate,
};

/// Thresholds in ms of waiting per row, and none.
const THRESHOLDS: [Option<u64>; 9] =
    [None, Some(8_000), Some(4_000), Some(2_000), Some(1_000), Some(700), Some(500), Some(300), Some(100)];
/// The place of the paper's "tight" threshold of 2 s.
const TIGHT: usize = 3;

fn case(load: u32, threshold: Option<u64>) -> Setting {
    let case = Setting::new(Machine::Opt13b, Dataset::Beer, load, RELSERVE);
    Setting { unit_waiting_max: threshold.map(Millis), ..case }
}

/// A low, a middle and the largest load of the scope.
fn loads(scope: &Scope) -> Vec<u32> {
    let all = scope.loads(Machine::Opt13b);
    let Some(last) = all.len().checked_sub(1) else { return Vec::new() };
    let mut places = vec![last.min(1), last.div_ceil(2), last];
    places.dedup();
    places.into_iter().map(|place| all[place]).collect()
}

/// Our own policy, whose guard is another.
fn guarded(load: u32, line: PolicySeries) -> Setting {
    Setting::new(Machine::Opt13b, Dataset::Beer, load, line)
}

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    let mut cases = Vec::new();
    for load in loads(scope) {
        cases.extend(THRESHOLDS.map(|threshold| case(load, threshold)));
        cases.extend([VLLM, MARGINAL_WORK, MARGINAL_WORK_HIDDEN].map(|line| guarded(load, line)));
    }
    cases
}

fn name(threshold: Option<u64>) -> String {
    threshold.map_or_else(|| "none".to_owned(), |ms| format!("{}", ms as f64 / 1_000.0))
}

fn mean(outcome: &ReplayOutcome) -> f64 {
    outcome.summary.mean
}

fn p99(outcome: &ReplayOutcome) -> f64 {
    outcome.summary.p99
}

fn greatest(outcome: &ReplayOutcome) -> f64 {
    outcome.summary.max
}

/// Something of an outcome that is averaged over seeds.
type What = fn(&ReplayOutcome) -> f64;

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let loads = loads(scope);
    let panel = |title: &str, what: What| {
        let line = |(i, load): (usize, &u32)| {
            let at = |(place, threshold): (usize, &Option<u64>)| {
                (place as f64 + 0.5, results.mean(&case(*load, *threshold), what))
            };
            let points = THRESHOLDS.iter().enumerate().map(at).collect();
            (LegendEntry::new(format!("{:.1} relQueries/s", rate(*load)), colour(i)), points)
        };
        Panel {
            title: title.into(),
            notes: Vec::new(),
            across: Across::Names(THRESHOLDS.map(name).to_vec()),
            x_label: "threshold (s of waiting per row)".into(),
            y_label: "latency (s)".into(),
            y_from: 0.0,
            marks: Marks::Lines(loads.iter().enumerate().map(line).collect()),
            rules: Vec::new(),
        }
    };
    Figure {
        id: "figure-12",
        title: "Figure 12: starvation threshold, mean against greatest latency",
        setting: "OPT-13B, Beer, RelServe; the threshold is the unit waiting time of Eq. 13, from which a relQuery has \
                  priority zero."
            .to_owned(),
        chart: Chart {
            title: "Mean and greatest latency by starvation threshold".into(),
            panels: vec![panel("mean", mean), panel("greatest", greatest)],
            columns: 2,
        },
        claims: claims(&loads, results),
        tables: vec![table(&loads, results)],
        data: json!({
            "thresholds_s": THRESHOLDS.map(|ms| ms.map(|ms| ms as f64 / 1_000.0)),
            "loads": loads.iter().map(|load| rate(*load)).collect::<Vec<f64>>(),
            "mean_s": values(&loads, results, mean),
            "greatest_s": values(&loads, results, greatest),
            "tight_threshold_changes_latencies": loads.iter().map(|load| changed(results, *load)).collect::<Vec<usize>>(),
        }),
    }
}

fn values(loads: &[u32], results: &Results, what: What) -> Value {
    let of = |load: &u32| THRESHOLDS.map(|threshold| results.mean(&case(*load, threshold), what)).to_vec();
    json!(loads.iter().map(of).collect::<Vec<Vec<f64>>>())
}

/// How many relQueries of all traces have another latency under the threshold of 2 s than under none.
fn changed(results: &Results, load: u32) -> usize {
    let (none, tight) = (case(load, None), case(load, THRESHOLDS[TIGHT]));
    let pairs = results.seeds(&none).zip(results.seeds(&tight));
    let differ = |(a, b): (&ReplayOutcome, &ReplayOutcome)| {
        a.served.iter().zip(&b.served).filter(|(a, b)| a.latency != b.latency).count()
    };
    pairs.map(differ).sum()
}

fn claims(loads: &[u32], results: &Results) -> Vec<Claim> {
    let Some((first, last)) = loads.first().zip(loads.last()) else { return Vec::new() };
    // The least greatest latency that any threshold gives, against none.
    let guard = |load: u32| {
        let at = |threshold, what: What| results.mean(&case(load, threshold), what);
        let best = THRESHOLDS.into_iter().min_by(|a, b| at(*a, greatest).total_cmp(&at(*b, greatest)))?;
        Some((best, at(best, greatest) / at(None, greatest), at(best, mean) / at(None, mean)))
    };
    let trade = |load: u32| match guard(load) {
        Some((best, greatest, mean)) => format!(
            "at {:.1}/s the best threshold is {} s: greatest latency {greatest:.2}×, mean {mean:.2}× of none",
            rate(load),
            name(best)
        ),
        None => String::new(),
    };
    let works =
        |load: &&u32| guard(**load).is_some_and(|(_, greatest, mean)| greatest <= 0.95 && mean >= 1.0);
    let tight = changed(results, *last);
    let relqueries: usize = results.seeds(&case(*last, None)).map(|outcome| outcome.served.len()).sum();
    vec![
        Claim::so_in(
            "a lower threshold lowers the maximum latency at the cost of the mean",
            loads.iter().filter(works).count(),
            loads.len(),
            "loads: some threshold takes 5 % off the greatest latency",
        )
        .and(&trade(*first))
        .and(&trade(*last))
        .see("The starvation threshold"),
        Claim::so_in(
            "at the largest load and a threshold of 2 s most relQueries have priority zero",
            tight,
            relqueries,
            "relQueries have another latency than without a threshold",
        )
        .see("The starvation threshold"),
    ]
}

fn table(loads: &[u32], results: &Results) -> FigureTable {
    let mut header = vec!["threshold (s)".to_owned()];
    header.extend(loads.iter().map(|load| format!("{:.1}/s: mean / p99 / greatest (s)", rate(*load))));
    let row = |name: String, case: &dyn Fn(u32) -> Setting| {
        let cell = |load: &u32| {
            let at = |what: What| results.mean(&case(*load), what);
            format!("{:.2} / {:.1} / {:.1}", at(mean), at(p99), at(greatest))
        };
        std::iter::once(name).chain(loads.iter().map(cell)).collect::<Vec<String>>()
    };
    let thresholds = THRESHOLDS.map(|threshold| row(name(threshold), &|load| case(load, threshold)));
    let others = [VLLM, MARGINAL_WORK, MARGINAL_WORK_HIDDEN]
        .map(|line| row(line.name.to_owned(), &|load| guarded(load, line)));
    let rows = [thresholds.to_vec(), others.to_vec()].concat();
    let caption = "Latency of RelServe by threshold, and of policies that need none".into();
    FigureTable { caption, header, rows, is_open: false }
}
