//! Table 6: what the priority updater (DPU) and the batch arranger (ABA) cost in real time, beside the
//! virtual time of the service.
//!
//! The scheduler reads no clock: it tells when each phase of planning is over, and a stopwatch out here takes
//! the time. So the times are those of the very calls a server makes, on the machine this runs on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use sim::{Mark, Phase, Watcher, replay_watched};

use crate::Error;
use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::mean;
use crate::reproduce::setting::{Dataset, MARGINAL_WORK, Machine, PolicySeries, RELSERVE, Setting, rate};

/// The published rows: load in hundredths, DPU, ABA, E2E in seconds.
const PAPER: [(u32, f64, f64, f64); 6] = [
    (50, 0.45, 0.19, 202.2),
    (60, 0.33, 0.14, 171.1),
    (70, 0.36, 0.21, 158.1),
    (80, 0.51, 0.22, 156.4),
    (90, 0.41, 0.12, 152.6),
    (100, 0.40, 0.12, 146.7),
];

/// Adds up the real time between a mark and the one before it.
struct Stopwatch {
    last: Instant,
    spent: HashMap<Mark, Duration>,
}

impl Watcher for Stopwatch {
    fn mark(&mut self, mark: Mark) {
        let now = Instant::now();
        *self.spent.entry(mark).or_default() += now.duration_since(self.last);
        self.last = now;
    }
}

/// What one load costs, means over the seeds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    pub line: PolicySeries,
    /// RelQueries per second, in hundredths.
    pub load: u32,
    /// The priority updater, and the first priorities: all of `submit`.
    pub updater: f64,
    /// The choice of a batch, candidates included.
    pub arranger: f64,
    /// The rest of planning and applying: blocks, plans, events.
    pub rest: f64,
    /// The virtual time of the service.
    pub end_to_end: f64,
    pub steps: f64,
}

/// Times every load of OPT-13B and Beer, one replay at a time: RelServe's first, then those of our own
/// policy.
pub fn measure(scope: &Scope) -> Result<Vec<Overhead>, Error> {
    let loads = scope.loads(Machine::Opt13b);
    let all =
        [RELSERVE, MARGINAL_WORK].into_iter().flat_map(|line| loads.iter().map(move |load| (line, *load)));
    all.map(|(line, load)| mean_of_seeds(scope, line, load)).collect()
}

fn mean_of_seeds(scope: &Scope, line: PolicySeries, load: u32) -> Result<Overhead, Error> {
    let runs: Vec<Overhead> =
        (1..=scope.seeds).map(|seed| once(scope, line, load, seed)).collect::<Result<_, _>>()?;
    let mean = |what: fn(&Overhead) -> f64| mean(runs.iter().map(what));
    Ok(Overhead {
        line,
        load,
        updater: mean(|run| run.updater),
        arranger: mean(|run| run.arranger),
        rest: mean(|run| run.rest),
        end_to_end: mean(|run| run.end_to_end),
        steps: mean(|run| run.steps),
    })
}

fn once(scope: &Scope, line: PolicySeries, load: u32, seed: u64) -> Result<Overhead, Error> {
    let case = Setting::new(Machine::Opt13b, Dataset::Beer, load, line);
    let trace = case.trace(scope.size, seed);
    let mut watch = Stopwatch { last: Instant::now(), spent: HashMap::new() };
    let replay = replay_watched(&trace, line.policy, &case.config(), &mut watch)
        .map_err(|error| Error::Simulation(error.to_string()))?;
    let spent = |marks: &[Mark]| {
        marks.iter().filter_map(|mark| watch.spent.get(mark)).map(Duration::as_secs_f64).sum::<f64>()
    };
    Ok(Overhead {
        line,
        load,
        updater: spent(&[Mark::Planned(Phase::Updated), Mark::Submitted]),
        arranger: spent(&[Mark::Planned(Phase::Chosen)]),
        rest: spent(&[Mark::Planned(Phase::Granted), Mark::Applied]),
        end_to_end: replay.summary.makespan,
        steps: replay.counts.iters as f64,
    })
}

/// The published row of a load.
fn published(load: u32) -> Option<(f64, f64, f64)> {
    PAPER.iter().find(|row| row.0 == load).map(|(_, updater, arranger, e2e)| (*updater, *arranger, *e2e))
}

/// The table, with a chart of the shares.
pub fn figure(scope: &Scope, measured: &[Overhead]) -> Figure {
    let (relserve, all): (Vec<Overhead>, &[Overhead]) =
        (measured.iter().filter(|one| one.line == RELSERVE).copied().collect(), measured);
    let measured = relserve.as_slice();
    let line = |name: &str, colour, part: &dyn Fn(&Overhead) -> Option<f64>| {
        let points = measured.iter().filter_map(|one| Some((rate(one.load), part(one)?)));
        (LegendEntry::new(name, colour), points.collect())
    };
    let share = |part: fn(&Overhead) -> f64| move |one: &Overhead| Some(100.0 * part(one) / one.end_to_end);
    let paper = |one: &Overhead| published(one.load).map(|(dpu, aba, e2e)| 100.0 * (dpu + aba) / e2e);
    let loads = scope.loads(Machine::Opt13b);
    let panel = |title: &str, y_label: &str, lines| Panel {
        title: title.into(),
        notes: Vec::new(),
        across: Across::Numbers(
            loads.first().map_or(0.0, |load| rate(*load)),
            rate(scope.largest(Machine::Opt13b)),
        ),
        x_label: "load (relQueries/s)".into(),
        y_label: y_label.into(),
        y_from: 0.0,
        marks: Marks::Lines(lines),
        rules: Vec::new(),
    };
    let shares = vec![
        line("DPU, ours", "#0072b2", &share(|one| one.updater)),
        line("ABA, ours", "#e69f00", &share(|one| one.arranger)),
        line("DPU + ABA, paper", "#999999", &paper),
    ];
    let ends = vec![
        line("E2E, ours", "#009e73", &|one| Some(one.end_to_end)),
        line("E2E, paper", "#d55e00", &|one| published(one.load).map(|row| row.2)),
    ];
    Figure {
        id: "table-06",
        title: "Table 6: overhead of the priority updater and the batch arranger",
        setting: "OPT-13B, Beer, RelServe. DPU and ABA: real time on this machine, one core, added up over all steps of a \
                  replay. DPU is the updater and all of `submit`, where first priorities are computed; ABA is the choice of \
                  a batch with its candidates. E2E: virtual time from the first arrival to the last answer."
            .to_owned(),
        chart: Chart {
            title: "Overhead and duration by load".into(),
            panels: vec![panel("share of the service's duration", "share of E2E (%)", shares), panel("duration", "E2E (s)", ends)],
            columns: 2,
        },
        claims: claims(measured),
        tables: vec![table(all)],
        data: json!(
            all
                .iter()
                .map(|one| json!({
                    "policy": one.line.key, "load": rate(one.load), "dpu_s": one.updater, "aba_s": one.arranger, "rest_s": one.rest,
                    "e2e_s": one.end_to_end, "steps": one.steps,
                }))
                .collect::<Vec<_>>()
        ),
    }
}

fn claims(measured: &[Overhead]) -> Vec<Claim> {
    let most =
        measured.iter().map(|one| 100.0 * (one.updater + one.arranger) / one.end_to_end).fold(0.0, f64::max);
    let below = measured.iter().filter(|one| one.updater + one.arranger < 0.01 * one.end_to_end).count();
    let near: Vec<f64> = measured
        .iter()
        .filter_map(|one| Some((one.end_to_end / published(one.load)?.2 - 1.0).abs()))
        .collect();
    let farthest = near.iter().copied().fold(0.0, f64::max);
    vec![
        Claim::so_in(
            "DPU and ABA take less than 1 % of the service",
            below,
            measured.len(),
            "loads: below 1 %",
        )
        .and(&format!("at most {most:.3} %"))
        .see("Overhead"),
        Claim::so_in(
            "the service lasts 202.2 s at 0.5/s down to 146.7 s at 1.0/s",
            near.iter().filter(|off| **off <= 0.1).count(),
            near.len(),
            "loads: within 10 %",
        )
        .and(&format!("at most {:.0} % off", 100.0 * farthest))
        .see("Overhead"),
    ]
}

fn table(measured: &[Overhead]) -> FigureTable {
    let header = [
        "policy",
        "load",
        "DPU (s)",
        "paper",
        "ABA (s)",
        "paper",
        "rest of the scheduler (s)",
        "E2E (s)",
        "paper",
        "per step (µs)",
    ];
    let row = |one: &Overhead| {
        let paper = |part: fn((f64, f64, f64)) -> f64| {
            let row = published(one.load).filter(|_| one.line == RELSERVE);
            row.map_or_else(|| "-".to_owned(), |row| format!("{}", part(row)))
        };
        let all = one.updater + one.arranger + one.rest;
        vec![
            one.line.name.to_owned(),
            format!("{:.1}/s", rate(one.load)),
            format!("{:.4}", one.updater),
            paper(|row| row.0),
            format!("{:.4}", one.arranger),
            paper(|row| row.1),
            format!("{:.4}", one.rest),
            format!("{:.1}", one.end_to_end),
            paper(|row| row.2),
            format!("{:.1}", 1e6 * all / one.steps.max(1.0)),
        ]
    };
    FigureTable {
        caption: "Real seconds of the scheduler beside the virtual seconds of the service".into(),
        header: header.map(str::to_owned).to_vec(),
        rows: measured.iter().map(row).collect(),
        is_open: true,
    }
}
