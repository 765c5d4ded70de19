//! `relserve sim`: a trace under several policies in virtual time. Reads files and flags; the rest is the
//! simulator's.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sim::{
    Comparison, Dataset, FaultPlan, Fitted, Machine, Offline, ReplayConfig, Trace, Workload, generate,
};

use crate::terminal::{Failure, Meter};

/// Replays a trace under several policies in virtual time, and prints a table.
#[derive(Clone, Debug, Args)]
pub struct Simulate {
    /// A trace (`relserve-trace/1`); `-` is standard input. Without it --workload draws one.
    #[arg(long, value_name = "FILE", required_unless_present = "workload")]
    input: Option<PathBuf>,
    /// A workload to draw; without it --input is read.
    #[arg(long, conflicts_with = "input")]
    workload: Option<DrawnWorkload>,
    /// Whose lengths it has: amazon, rotten, beer or pdmx.
    #[arg(long, default_value = "rotten", conflicts_with = "input")]
    dataset: Dataset,
    /// Its relQueries per second.
    #[arg(long, default_value_t = 1.0, value_parser = rate, conflicts_with = "input")]
    rate: f64,
    /// How many relQueries it has.
    #[arg(
        long,
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        conflicts_with = "input"
    )]
    relqueries: u32,
    /// Puts a second tenant of class `bulk` beside it: 300 to 900 rows every 30 seconds.
    #[arg(long, conflicts_with = "input")]
    offline: bool,
    /// What it is drawn from.
    #[arg(long, default_value_t = 1, conflicts_with = "input")]
    seed: u64,
    /// Draws so many, with seeds from that one on, and prints means over all [default: one].
    #[arg(
        long,
        value_parser = clap::value_parser!(u64).range(1..=1_000),
        conflicts_with_all = ["input", "save_trace", "explain", "output"]
    )]
    seeds: Option<u64>,
    /// Writes the trace that was drawn; without it it is not kept.
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    save_trace: Option<PathBuf>,
    /// `all`, or policies with commas between them.
    #[arg(long, default_value = "all")]
    policy: String,
    /// opt-13b-a100, an estimate (qwen2.5-32b-2xa100, llama2-70b-4xa100), or the JSON file of a machine
    /// that was measured.
    #[arg(long, default_value = Machine::Opt13b.id(), value_name = "NAME|FILE")]
    machine: String,
    /// How much of the difference between a decode and a prefill step's base a mixed step hides, from 0
    /// to 1 [default: what the machine says, 1 for named ones].
    #[arg(long, value_parser = hide)]
    hide: Option<u64>,
    /// Sets a field of the scheduler's configuration: `sequences_max=64`, `marginal_work.marginal_key=false`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A list of faults (JSON), or `seed:N` for 20 drawn from a seed [default: none].
    #[arg(long, value_name = "FILE|seed:N")]
    faults: Option<String>,
    /// Prints why each of these steps is what it is, under each policy [default: none].
    #[arg(long, value_name = "STEP[..STEP]", value_parser = steps)]
    explain: Option<RangeInclusive<u64>>,
    /// Writes the results (`relserve-expected/1`); without it they are printed as a table alone.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Workloads that can be drawn.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DrawnWorkload {
    /// The paper's: relQueries of 1..100 rows, five tasks, Poisson arrivals.
    Paper,
}

/// Faults that `seed:N` draws.
const FAULTS: usize = 20;

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "must be a number")?;
    if (1e-3..=1e3).contains(&rate) { Ok(rate) } else { Err("must be from 0.001 to 1000".into()) }
}

/// Thousandths.
fn hide(text: &str) -> Result<u64, String> {
    let share: f64 = text.parse().map_err(|_| "must be a number")?;
    if (0.0..=1.0).contains(&share) {
        Ok((share * 1_000.0).round() as u64)
    } else {
        Err("must be from 0 to 1".into())
    }
}

fn steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim_start_matches('=').parse::<u64>().ok().filter(|step| *step > 0);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err("must be a step from 1 on, or FIRST..LAST".into()),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

fn write(path: &Path, value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}

/// Puts the file's name before what is wrong with it.
fn within(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> Failure {
    move |error| format!("{}: {error}", path.display()).into()
}

impl Simulate {
    /// Replays, writes files; what to print.
    pub fn run(&self) -> Result<String, Failure> {
        let trace = self.trace()?;
        if let Some(path) = &self.save_trace {
            write(path, &trace)?;
        }
        let config = self.config()?;
        let faults = self.faults(&trace)?;
        let headline = self.headline(&trace, &config, &faults);
        if let Some(seeds) = self.seeds {
            return Ok(format!(
                "{headline}\nmeans over {seeds} seeds from this one on:\n{}",
                self.mean(seeds)?
            ));
        }
        let comparison = self.compare(&trace, &config, &faults)?;
        if let Some(path) = &self.output {
            write(path, &comparison.results(&trace, &config))?;
        }
        Ok(format!("{headline}\n{comparison}"))
    }

    fn compare(
        &self,
        trace: &Trace,
        config: &ReplayConfig,
        faults: &FaultPlan,
    ) -> Result<Comparison, Failure> {
        let policies = sim::policies(&self.policy).map_err(|error| format!("--policy: {error}"))?;
        Ok(Comparison::of(trace, &policies, config, faults, self.explain.clone())?)
    }

    /// What so many traces come to on average.
    fn mean(&self, seeds: u64) -> Result<sim::PolicyTable, Failure> {
        let config = self.config()?;
        let mut meter = Meter::new();
        let table = |index: u64| {
            meter.show(index as f64 / seeds as f64, || format!("{index} of {seeds} seeds"));
            let trace = Self { seed: self.seed.wrapping_add(index), ..self.clone() }.trace()?;
            Ok(self.compare(&trace, &config, &self.faults(&trace)?)?.table())
        };
        let tables = (0..seeds).map(table).collect::<Result<Vec<_>, Failure>>()?;
        meter.end();
        Ok(sim::PolicyTable::mean_of(&tables))
    }

    fn trace(&self) -> Result<Trace, Failure> {
        match &self.input {
            Some(path) => Trace::parse(&read(path)?).map_err(|error| within(path)(&error)),
            None => {
                let relqueries = self.relqueries as usize;
                let offline = self.offline.then(Offline::default);
                let paper = Workload::new(self.dataset, self.rate, self.seed);
                Ok(generate(&Workload { relqueries, offline, ..paper }))
            }
        }
    }

    fn config(&self) -> Result<ReplayConfig, Failure> {
        let mut config = match self.machine.parse::<Machine>() {
            Ok(machine) => machine.config(1_000),
            Err(unknown) => {
                let path = Path::new(&self.machine);
                if !path.exists() {
                    return Err(format!("--machine: {unknown}").into());
                }
                let fitted = Fitted::parse(&read(path)?).and_then(|fitted| fitted.config());
                fitted.map_err(|error| within(path)(&error))?
            }
        };
        if let Some(permille) = self.hide {
            config.cost = config.cost.hiding(permille);
        }
        for assignment in &self.set {
            sim::set(&mut config.scheduler, assignment).map_err(|error| format!("--set: {error}"))?;
        }
        Ok(config)
    }

    fn faults(&self, trace: &Trace) -> Result<FaultPlan, Failure> {
        let Some(source) = &self.faults else { return Ok(FaultPlan::default()) };
        if let Some(seed) = source.strip_prefix("seed:") {
            let seed = seed.parse().map_err(|_| format!("--faults: `{seed}` is not a seed"))?;
            return Ok(FaultPlan::random(seed, trace, FAULTS));
        }
        let path = Path::new(source);
        let plan = FaultPlan::parse(&read(path)?).map_err(|error| within(path)(&error))?;
        plan.check(trace).map_err(|error| within(path)(&error))?;
        Ok(plan)
    }

    /// What was replayed on what.
    fn headline(&self, trace: &Trace, config: &ReplayConfig, faults: &FaultPlan) -> String {
        let rows: usize = trace.relqueries.iter().map(|relquery| relquery.rows.len()).sum();
        let hide = config
            .cost
            .hide_permille()
            .map_or_else(|| "not defined".to_owned(), |permille| format!("{:.2}", permille as f64 / 1_000.0));
        let kind = match self.machine.parse::<Machine>() {
            Ok(Machine::Qwen32b | Machine::Llama70b) => " (an estimate)",
            Ok(Machine::Opt13b) | Err(_) => "",
        };
        let limits = &config.scheduler;
        let host = match u64::from(limits.host_kv_blocks) * u64::from(limits.block_tokens) {
            0 => String::new(),
            tokens => format!(" and {tokens} on the host"),
        };
        format!(
            "{}: {} relQueries, {rows} rows; {}{kind}, {} tokens of KV{host}, hide {hide}; {} faults",
            trace.name,
            trace.relqueries.len(),
            self.machine,
            limits.kv_tokens(),
            faults.faults.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_with_limits_say_them() {
        assert_eq!(hide("0.75"), Ok(750));
        assert_eq!(hide("1.5"), Err("must be from 0 to 1".into()));
        assert_eq!(rate("0"), Err("must be from 0.001 to 1000".into()));
        assert_eq!(steps("7"), Ok(7..=7));
        assert_eq!(steps("7..9"), Ok(7..=9));
        assert!(steps("0").is_err() && steps("9..7").is_err() && steps("x").is_err());
    }
}
