//! Figure 9: mean latency of every policy over loads, for every machine and dataset.

use serde_json::{Value, json};

use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable};
use crate::reproduce::run::{Results, mean};
use crate::reproduce::setting::{
    Dataset, MARGINAL_WORK, MARGINAL_WORK_HIDDEN, Machine, PolicySeries, RELSERVE, SARATHI, SARATHI_HIDDEN,
    STATIC, STATIC_WEAK, Setting, VLLM, rate,
};

/// The lines of the grid.
const LINES: [PolicySeries; 8] =
    [VLLM, SARATHI, SARATHI_HIDDEN, STATIC, STATIC_WEAK, RELSERVE, MARGINAL_WORK, MARGINAL_WORK_HIDDEN];
/// What RelServe is compared with where the paper says "among all frameworks". A mixed step that hides its
/// chunk is another engine than the paper's.
const PUBLISHED: [PolicySeries; 4] = [VLLM, SARATHI, STATIC, STATIC_WEAK];

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    scope.grid(&LINES)
}

/// The grid in numbers.
struct Grid<'a> {
    scope: &'a Scope,
    results: &'a Results,
}

impl Grid<'_> {
    fn latency(&self, (machine, dataset): (Machine, Dataset), load: u32, line: PolicySeries) -> f64 {
        self.results.latency(&Setting::new(machine, dataset, load, line))
    }

    /// How many times RelServe's mean `line`'s is, at the largest load of a panel.
    fn factor(&self, panel: (Machine, Dataset), line: PolicySeries) -> f64 {
        let load = self.scope.largest(panel.0);
        self.latency(panel, load, line) / self.latency(panel, load, RELSERVE)
    }

    /// The factors of the panels that `keep` keeps.
    fn factors(&self, line: PolicySeries, keep: impl Fn(Machine, Dataset) -> bool) -> Vec<f64> {
        let panels = self.scope.panels().into_iter().filter(|(machine, dataset)| keep(*machine, *dataset));
        panels.map(|panel| self.factor(panel, line)).collect()
    }

    fn panel(&self, panel: (Machine, Dataset)) -> Panel {
        let loads = self.scope.loads(panel.0);
        let line = |line: PolicySeries| {
            let points = loads.iter().map(|load| (rate(*load), self.latency(panel, *load, line)));
            (LegendEntry::new(line.name, line.colour), points.collect())
        };
        let first = loads.first().copied().unwrap_or_default();
        Panel {
            title: format!("{} · {}", panel.0.name(), panel.1.name()),
            notes: vec![
                "at the largest load, / RelServe:".into(),
                format!("vLLM {:.2} (paper 2.3-3.1)", self.factor(panel, VLLM)),
                format!(
                    "vLLM-SP {:.2} or {:.2} (paper 1.4-2.2)",
                    self.factor(panel, STATIC),
                    self.factor(panel, STATIC_WEAK)
                ),
            ],
            across: Across::Numbers(rate(first), rate(self.scope.largest(panel.0))),
            x_label: "load (relQueries/s)".into(),
            y_label: "mean latency (s)".into(),
            y_from: 0.0,
            marks: Marks::Lines(LINES.map(line).to_vec()),
            rules: Vec::new(),
        }
    }

    fn data(&self, panel: (Machine, Dataset)) -> Value {
        let loads = self.scope.loads(panel.0);
        let means = LINES.iter().map(|line| {
            let means: Vec<f64> = loads.iter().map(|load| self.latency(panel, *load, *line)).collect();
            (line.key.to_owned(), json!(means))
        });
        let factors = LINES.iter().map(|line| (line.key.to_owned(), json!(self.factor(panel, *line))));
        json!({
            "machine": panel.0.name(),
            "dataset": panel.1.name(),
            "loads": loads.iter().map(|load| rate(*load)).collect::<Vec<f64>>(),
            "mean_latency_s": means.collect::<serde_json::Map<String, Value>>(),
            "vllm_times_relserve_by_trace": self.by_trace(panel),
            "times_relserve_at_largest_load": factors.collect::<serde_json::Map<String, Value>>(),
        })
    }

    /// vLLM's mean as a multiple of RelServe's at the largest load, trace by trace.
    fn by_trace(&self, (machine, dataset): (Machine, Dataset)) -> Vec<f64> {
        let at = |line| Setting::new(machine, dataset, self.scope.largest(machine), line);
        let (vllm, relserve) = (at(VLLM), at(RELSERVE));
        let pairs = self.results.seeds(&vllm).zip(self.results.seeds(&relserve));
        pairs.map(|(vllm, relserve)| vllm.summary.mean / relserve.summary.mean).collect()
    }

    /// In how many panels and loads RelServe has the lowest mean of the published policies.
    fn lowest(&self) -> (usize, usize) {
        let mut count = (0, 0);
        for panel in self.scope.panels() {
            for load in self.scope.loads(panel.0) {
                let relserve = self.latency(panel, load, RELSERVE);
                count.0 +=
                    usize::from(PUBLISHED.iter().all(|line| relserve <= self.latency(panel, load, *line)));
                count.1 += 1;
            }
        }
        count
    }

    /// In how many panels the advantage over vLLM is larger at the largest load than at the least.
    fn growing(&self) -> usize {
        let grows = |panel: &(Machine, Dataset)| {
            let least = self.scope.loads(panel.0).into_iter().min().unwrap_or_default();
            let at_least = self.latency(*panel, least, VLLM) / self.latency(*panel, least, RELSERVE);
            self.factor(*panel, VLLM) > at_least
        };
        self.scope.panels().iter().filter(|panel| grows(panel)).count()
    }

    /// The claims of section 5.2 and of the introduction.
    fn claims(&self) -> Vec<Claim> {
        let every = |_, _| true;
        let (lowest, of) = self.lowest();
        let panels = self.scope.panels();
        let sarathi: Vec<f64> =
            panels.iter().map(|panel| self.factor(*panel, VLLM) / self.factor(*panel, SARATHI)).collect();
        let hidden: Vec<f64> = panels
            .iter()
            .map(|panel| self.factor(*panel, VLLM) / self.factor(*panel, SARATHI_HIDDEN))
            .collect();
        let statics = |line| -> Vec<f64> {
            panels.iter().map(|panel| self.factor(*panel, VLLM) / self.factor(*panel, line)).collect()
        };
        let mut claims = vec![
            Claim::factor(
                "at the largest load 2.3 to 3.1 times lower latency than vLLM",
                (2.3, 3.1),
                &self.factors(VLLM, every),
            )
            .see("Ratio to FCFS"),
            Claim::factor(
                "1.4 to 2.2 times lower than vLLM-SP (linear reading)",
                (1.4, 2.2),
                &self.factors(STATIC, every),
            )
            .see("Static priority"),
            Claim::factor(
                "1.4 to 2.2 times lower than vLLM-SP (token sums, evicting)",
                (1.4, 2.2),
                &self.factors(STATIC_WEAK, every),
            )
            .see("Static priority"),
            Claim::factor(
                "static priority lowers vLLM's latency 1.6 times (linear reading)",
                (1.6, 1.6),
                &statics(STATIC),
            )
            .see("Static priority"),
            Claim::factor(
                "static priority lowers vLLM's latency 1.6 times (token sums, evicting)",
                (1.6, 1.6),
                &statics(STATIC_WEAK),
            )
            .see("Static priority"),
            Claim::so_in(
                "RelServe has the lowest mean latency in all settings",
                lowest,
                of,
                "settings: lowest",
            )
            .see("Static priority"),
            Claim::so_in(
                "its advantage over vLLM grows with the load",
                self.growing(),
                panels.len(),
                "panels: larger at the largest load than at the least",
            ),
            Claim::number("vLLM and Sarathi perform alike", 1.0, mean(sarathi), "× (vLLM / Sarathi)")
                .and(&format!("{:.2}× were a chunk to hide behind the decodes (hide 1)", mean(hidden)))
                .see("Sarathi and hide"),
        ];
        claims.extend(self.claims_by_machine());
        claims.extend(self.claims_by_dataset());
        claims
    }

    fn claims_by_machine(&self) -> Vec<Claim> {
        if !self.scope.machines.contains(&Machine::Llama70b) {
            return Vec::new();
        }
        let over = |line| self.factors(line, |machine, _| machine == Machine::Llama70b);
        vec![
            Claim::factor("Llama2-70B: 2.8 times lower than vLLM", (2.8, 2.8), &over(VLLM))
                .see("Ratio to FCFS"),
            Claim::factor(
                "Llama2-70B: 1.9 times lower than vLLM-SP (linear reading)",
                (1.9, 1.9),
                &over(STATIC),
            )
            .see("Static priority"),
        ]
    }

    fn claims_by_dataset(&self) -> Vec<Claim> {
        let published = [(2.5, 1.6), (2.6, 1.8), (2.8, 1.5), (2.6, 1.6)];
        let claim = |(dataset, (vllm, sp)): (Dataset, (f64, f64))| {
            let over = |line| self.factors(line, |_, other| other == dataset);
            let text = format!("{}: {vllm} times lower than vLLM over all machines", dataset.name());
            let against = mean(over(STATIC_WEAK));
            Claim::factor(&text, (vllm, vllm), &over(VLLM))
                .and(&format!(
                    "vLLM-SP: paper {sp}, ours {:.2} (linear), {against:.2} (evicting)",
                    mean(over(STATIC))
                ))
                .see("Ratio to FCFS")
        };
        let mut claims: Vec<Claim> = Dataset::ALL.into_iter().zip(published).map(claim).collect();
        if self.scope.machines.contains(&Machine::Opt13b) {
            let panel = (Machine::Opt13b, Dataset::Rotten);
            let load = self.scope.largest(Machine::Opt13b);
            let at = |line| self.latency(panel, load, line);
            claims.push(Claim::number(
                "vLLM takes 35 s on Rotten, OPT-13B, 1.0 relQuery/s",
                35.0,
                at(VLLM),
                " s",
            ));
            claims.push(
                Claim::number("RelServe takes 13 s there", 13.0, at(RELSERVE), " s").see("Ratio to FCFS"),
            );
        }
        claims
    }

    fn table(&self, machine: Machine) -> FigureTable {
        let loads = self.scope.loads(machine);
        let mut header = vec!["dataset".to_owned(), "policy".to_owned()];
        header.extend(loads.iter().map(|load| format!("{:.2}/s", rate(*load))));
        header.push("× RelServe at the largest".to_owned());
        let mut rows = Vec::new();
        for dataset in Dataset::ALL {
            for line in LINES {
                let mut row = vec![dataset.name().to_owned(), line.name.to_owned()];
                row.extend(
                    loads.iter().map(|load| format!("{:.2}", self.latency((machine, dataset), *load, line))),
                );
                row.push(format!("{:.2}", self.factor((machine, dataset), line)));
                rows.push(row);
            }
        }
        FigureTable { caption: format!("{}: mean latency (s)", machine.name()), header, rows, is_open: false }
    }

    /// What our own policy gives on the same traces.
    fn beyond(&self) -> FigureTable {
        let header = [
            "machine",
            "dataset",
            "engine",
            "RelServe's mean / marginal work's, load by load",
            "RelServe's p99 / marginal work's, at the largest",
        ];
        let mut rows = Vec::new();
        for panel in self.scope.panels() {
            for (line, engine) in [(MARGINAL_WORK, "hides nothing"), (MARGINAL_WORK_HIDDEN, "hides a chunk")]
            {
                let loads = self.scope.loads(panel.0);
                let cells = loads.iter().map(|load| {
                    let factor = self.latency(panel, *load, RELSERVE) / self.latency(panel, *load, line);
                    format!("{:.2}/s: {factor:.2}", rate(*load))
                });
                let cells: Vec<String> = cells.collect();
                let p99 = |line| {
                    let case = Setting::new(panel.0, panel.1, self.scope.largest(panel.0), line);
                    self.results.mean(&case, |outcome| outcome.summary.p99)
                };
                let p99 = format!("{:.2}", p99(RELSERVE) / p99(line));
                rows.push(vec![
                    panel.0.name().into(),
                    panel.1.name().into(),
                    engine.into(),
                    cells.join(", "),
                    p99,
                ]);
            }
        }
        let caption =
            "Beyond the paper: how many times lower than RelServe's the latency of our own policy is".into();
        FigureTable { caption, header: header.map(str::to_owned).to_vec(), rows, is_open: true }
    }
}

/// The figure.
pub fn figure(scope: &Scope, results: &Results) -> Figure {
    let grid = Grid { scope, results };
    let panels = scope.panels();
    Figure {
        id: "figure-09",
        title: "Figure 9: mean latency over load, every machine and dataset",
        setting: "Mean latency of 100 relQueries of 1..100 rows, Poisson arrivals, mean over the seeds; every policy \
                  replays the same traces. Sarathi: chunks of 512 tokens, on an engine that hides nothing of a chunk \
                  behind the decodes, and on one that hides it (hide 1)."
            .to_owned(),
        chart: Chart {
            title: "Mean latency by load".into(),
            panels: panels.iter().map(|panel| grid.panel(*panel)).collect(),
            columns: Dataset::ALL.len(),
        },
        claims: grid.claims(),
        tables: std::iter::once(grid.beyond())
            .chain(scope.machines.iter().map(|machine| grid.table(*machine)))
            .collect(),
        data: json!({ "panels": panels.iter().map(|panel| grid.data(*panel)).collect::<Vec<Value>>() }),
    }
}
