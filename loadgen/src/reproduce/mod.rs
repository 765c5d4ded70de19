//! The figures and tables of the RelServe paper, regenerated from the simulator, with its claims beside ours.
//!
//! A figure says which settings it needs and is then a pure function of their outcomes; [`run`] replays each
//! setting once for all figures. Nothing here judges by a wall clock but [`overhead`], whose table is about
//! wall time. Explanations of what differs are in docs/REPRODUCTION.md, by the sections that claims name.

pub mod arrangement;
pub mod breakdown;
pub mod figure;
pub mod latency;
pub mod motivation;
pub mod overhead;
pub mod page;
pub mod run;
pub mod sensitivity;
pub mod setting;
pub mod starvation;

use std::path::Path;

use crate::Error;
use figure::Figure;
use run::Results;
use setting::{Dataset, Machine, PolicySeries, Setting, TraceSize};

/// How much is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Traces per setting; their mean is reported.
    pub seeds: u64,
    /// How large each trace is.
    pub size: TraceSize,
    /// The machines of the grids; the other figures have one machine, as in the paper.
    pub machines: Vec<Machine>,
    /// Which of each machine's loads, by their place.
    pub loads: Vec<usize>,
}

impl Scope {
    /// What the paper has: three runs of every setting.
    pub fn paper() -> Self {
        Self { seeds: 3, size: TraceSize::PAPER, machines: Machine::ALL.to_vec(), loads: (0..6).collect() }
    }

    /// One seed, three loads: an impression in a tenth of the time.
    pub fn smoke() -> Self {
        Self { seeds: 1, loads: vec![0, 3, 5], ..Self::paper() }
    }

    /// The loads of a machine, ascending.
    pub fn loads(&self, machine: Machine) -> Vec<u32> {
        let all = machine.loads();
        self.loads.iter().filter_map(|place| all.get(*place).copied()).collect()
    }

    /// The largest load of a machine.
    pub fn largest(&self, machine: Machine) -> u32 {
        self.loads(machine).into_iter().max().unwrap_or_default()
    }

    /// The panels of a grid: every machine with every dataset.
    pub fn panels(&self) -> Vec<(Machine, Dataset)> {
        let row = |machine| Dataset::ALL.into_iter().map(move |dataset| (machine, dataset));
        self.machines.iter().copied().flat_map(row).collect()
    }

    /// The settings of a grid: every line at every load of every panel.
    pub fn grid(&self, lines: &[PolicySeries]) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (machine, dataset) in self.panels() {
            for load in self.loads(machine) {
                settings.extend(lines.iter().map(|line| Setting::new(machine, dataset, load, *line)));
            }
        }
        settings
    }
}

/// Every figure of a scope, in the paper's order.
pub fn figures(scope: &Scope) -> Result<Vec<Figure>, Error> {
    let cases = [
        motivation::cases(scope),
        latency::cases(scope),
        arrangement::cases(scope),
        breakdown::cases(scope),
        starvation::cases(scope),
        sensitivity::cases(scope),
    ];
    let results = Results::of(&cases.concat(), scope.seeds, scope.size)?;
    // Afterwards, when nothing else runs here: it times.
    let overhead = overhead::measure(scope)?;
    let mut figures = motivation::figures(scope, &results);
    figures.push(latency::figure(scope, &results));
    figures.push(arrangement::figure(scope, &results));
    figures.push(breakdown::figure(scope, &results));
    figures.push(starvation::figure(scope, &results));
    figures.push(overhead::figure(scope, &overhead));
    figures.push(sensitivity::figure(scope, &results));
    Ok(figures)
}

/// Makes the report: `reproduction.html`, `figures.json`, `summary.md` and an SVG file per figure in `out`.
pub fn reproduce(scope: &Scope, out: &Path) -> Result<Vec<Figure>, Error> {
    let figures = figures(scope)?;
    std::fs::create_dir_all(out).map_err(|error| Error::file(out, error))?;
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|error| Error::file(&path, error))
    };
    for figure in &figures {
        write(&format!("{}.svg", figure.id), &figure.chart.file())?;
    }
    write("reproduction.html", &page::html(scope, &figures))?;
    write("summary.md", &page::markdown(&figures))?;
    write("figures.json", &format!("{:#}\n", page::json(scope, &figures)))?;
    Ok(figures)
}
