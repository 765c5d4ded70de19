//! Different servers side by side: a table per load, and one picture of all. Pure.

use std::path::Path;

use crate::Error;
use crate::agreement::ranking;
use crate::chart::{Chart, LegendEntry, Marks, Panel};
use crate::peers::{Load, PeerRun};
use crate::plot::{Across, colour};
use crate::summary::{MeanPeriods, RunSummary, Stats};

/// A table for each load; the last columns say how many times a baseline's mean latency is a server's.
pub fn table(loads: &[Load], runs: &[PeerRun], baselines: &[String]) -> String {
    let mut text = String::new();
    for load in loads {
        let rate = load.scenario.rate_per_s;
        let own: Vec<&PeerRun> = runs.iter().filter(|run| run.rate_per_s == rate).collect();
        let rows: usize = load.trace.iter().map(|relquery| relquery.rows.len()).sum();
        let output = load.output_tokens().map_or("free".into(), |tokens| tokens.to_string());
        text += &format!(
            "{rate} relQueries per s: {} relQueries, {rows} rows, output tokens: {output}\n",
            load.trace.len()
        );
        text += &format!(
            "{:<40}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>6}{:>7}{:>8}{:>8}",
            "server (ms)",
            "mean",
            "p50",
            "p95",
            "p99",
            "waiting",
            "core",
            "tail",
            "lost",
            "twice",
            "done s",
            "hits %"
        );
        for name in baselines {
            text += &format!("{:>14}", format!("{name}/it"));
        }
        text.push('\n');
        for run in &own {
            text += &line(run);
            for name in baselines {
                let base = own.iter().find(|base| base.summary().name == *name);
                text +=
                    &gain(base.copied(), run).map_or(format!("{:>14}", "-"), |gain| format!("{gain:>14.2}"));
            }
            text.push('\n');
            for error in &run.summary().errors {
                text += &format!("  ! {error}\n");
            }
        }
        text += &agreement(&own);
        text.push('\n');
    }
    text
}

/// What the simulator says of a load's runs, and whether it puts them in the same order.
fn agreement(runs: &[&PeerRun]) -> String {
    let summaries: Vec<RunSummary> = runs.iter().map(|run| run.summary().clone()).collect();
    let mut text = String::new();
    for (run, summary) in runs.iter().zip(&summaries) {
        let Some((live, simulated)) = summary.mean_ms().zip(summary.simulated) else { continue };
        text += &format!(
            "  simulated {:<38} mean {:>7.0}, live over simulated {:.3}, done s {:.1}, hits {:.1} %, live {}\n",
            summary.name,
            simulated.mean_ms,
            live / simulated.mean_ms,
            simulated.done_s,
            simulated.hit * 1e2,
            run.hit.map_or_else(|| "-".into(), |hit| format!("{:.1} %", hit * 1e2)),
        );
    }
    text + &ranking(&summaries)
}

fn line(run: &PeerRun) -> String {
    let latency = run.summary().latency_ms;
    let cells = [
        latency.map(|stats| stats.mean),
        latency.map(|stats| stats.p50),
        latency.map(|stats| stats.p95),
        latency.map(|stats| stats.p99),
        run.summary().periods.map(|periods| periods.waiting_ms),
        run.summary().periods.map(|periods| periods.core_ms),
        run.summary().periods.map(|periods| periods.tail_ms),
    ];
    let mut text = format!("{:<40}", run.summary().name);
    for cell in cells {
        text += &cell.map_or(format!("{:>9}", "-"), |value| format!("{value:>9.0}"));
    }
    let RunSummary { rows_lost, rows_twice, span_s, .. } = run.summary();
    text += &format!("{rows_lost:>6}{rows_twice:>7}{span_s:>8.1}");
    text + &run.hit.map_or(format!("{:>8}", "-"), |hit| format!("{:>8.1}", hit * 1e2))
}

/// How many times as long a baseline's relQueries take on average.
fn gain(base: Option<&PeerRun>, run: &PeerRun) -> Option<f64> {
    Some(base?.summary().mean_ms()? / run.summary().mean_ms()?)
}

/// Whether every row of every run was answered, each as long as was asked for.
pub fn is_sound(runs: &[PeerRun]) -> bool {
    runs.iter().all(|run| run.summary().is_sound() && run.summary().errors.is_empty())
}

/// A line per run, times in milliseconds; what a server does not tell is empty.
pub fn csv(runs: &[PeerRun]) -> Result<String, Error> {
    let fail = |error: &dyn std::fmt::Display| Error::file(Path::new("latency.csv"), error);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = [
        "rate_per_s",
        "server",
        "mean_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "first_row_ms",
        "waiting_ms",
        "core_ms",
        "tail_ms",
        "span_s",
        "hit",
        "rows_done",
        "rows_lost",
        "rows_twice",
        "simulated_mean_ms",
    ];
    writer.write_record(header).map_err(|error| fail(&error))?;
    for run in runs {
        let summary = run.summary();
        let latency = |of: fn(&Stats) -> f64| summary.latency_ms.as_ref().map(of);
        let period = |of: fn(&MeanPeriods) -> f64| summary.periods.as_ref().map(of);
        let times = [
            latency(|stats| stats.mean),
            latency(|stats| stats.p50),
            latency(|stats| stats.p95),
            latency(|stats| stats.p99),
            summary.first_row_ms.map(|stats| stats.mean),
            period(|periods| periods.waiting_ms),
            period(|periods| periods.core_ms),
            period(|periods| periods.tail_ms),
            Some(summary.span_s),
            run.hit,
        ];
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
        let rows = [summary.rows_done, summary.rows_lost, summary.rows_twice].map(|rows| rows.to_string());
        let cells = [run.rate_per_s.to_string(), summary.name.clone()].into_iter();
        let cells = cells.chain(times.map(number)).chain(rows);
        let cells = cells.chain([number(summary.simulated.map(|simulated| simulated.mean_ms))]);
        writer.write_record(cells.collect::<Vec<_>>()).map_err(|error| fail(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| fail(&error))?;
    String::from_utf8(bytes).map_err(|error| fail(&error))
}

/// Mean, median and 99th percentile of each server over the loads.
pub fn chart(runs: &[PeerRun]) -> Chart {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.summary().name.as_str()) {
            names.push(&run.summary().name);
        }
    }
    let rates = || runs.iter().map(|run| run.rate_per_s);
    let across = Across::Numbers(0.0, rates().fold(0.0, f64::max) * 1.02);
    let panel = |title: &str, of: fn(&Stats) -> f64| {
        let points = |name: &str| {
            let own = runs.iter().filter(|run| run.summary().name == name);
            let point = |run: &PeerRun| Some((run.rate_per_s, of(&run.summary().latency_ms?) / 1e3));
            own.filter_map(point).collect::<Vec<_>>()
        };
        let lines = names.iter().enumerate();
        Panel {
            title: title.into(),
            notes: Vec::new(),
            across: across.clone(),
            x_label: "relQueries per s".into(),
            y_label: "latency (s)".into(),
            y_from: 0.0,
            marks: Marks::Lines(
                lines.map(|(i, name)| (LegendEntry::new(*name, colour(i)), points(name))).collect(),
            ),
            rules: Vec::new(),
        }
    };
    Chart {
        title: "Latency of relQueries by server and load".into(),
        panels: vec![
            panel("mean", |stats| stats.mean),
            panel("median", |stats| stats.p50),
            panel("99th percentile", |stats| stats.p99),
        ],
        columns: 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::RecordedRun;
    use crate::scenario::{Scenario, TableSpec};
    use crate::summary::tests::record;
    use crate::table::SourceTable;
    use crate::workload::trace;

    fn run(rate_per_s: f64, name: &str, ms: f64, hit: Option<f64>) -> PeerRun {
        let records = vec![record(0, Some(ms))];
        let summary = RunSummary::of(name, &records);
        PeerRun { rate_per_s, hit, recorded: RecordedRun { summary, records } }
    }

    fn load(rate_per_s: f64) -> Load {
        let scenario = Scenario { rate_per_s, relqueries: 3, rows_max: 4, ..Scenario::default() };
        let table = SourceTable::load(&TableSpec::default(), 1).expect("generated");
        Load { trace: trace(&scenario, &[table]), scenario, only: Vec::new() }
    }

    #[test]
    fn each_loads_table_divides_the_baselines_means_by_each_servers() {
        let runs = [
            run(0.5, "vLLM", 100.0, Some(0.25)),
            run(2.0, "vLLM", 300.0, None),
            run(0.5, "ours", 50.0, None),
            run(2.0, "ours", 60.0, Some(0.5)),
        ];
        let text = table(&[load(0.5), load(2.0)], &runs, &["vLLM".into(), "gone".into()]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0][..5], ["0.5", "relQueries", "per", "s:", "3"], "{text}");
        let ends = |line: usize| words[line][words[line].len() - 3..].to_vec();
        assert_eq!((words[2][0], ends(2)), ("vLLM", vec!["25.0", "1.00", "-"]), "{text}");
        assert_eq!((words[3][0], ends(3)), ("ours", vec!["-", "2.00", "-"]), "{text}");
        assert_eq!((words[8][0], ends(8)), ("ours", vec!["50.0", "5.00", "-"]), "{text}");
    }

    #[test]
    fn a_line_of_the_csv_file_has_a_run_and_leaves_out_what_is_not_told() {
        let text = csv(&[run(0.5, "a, b", 100.0, Some(0.25)), run(2.0, "c", 3.0, None)]).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let times = "100.000,100.000,100.000,100.000,100.000,1.000,2.000,3.000,0.100";
        assert_eq!(lines[1], format!("0.5,\"a, b\",{times},0.250,2,0,0,"));
        assert!(lines[2].starts_with("2,c,3.000,") && lines[2].ends_with(",,2,0,0,"), "{text}");
    }

    #[test]
    fn one_picture_has_a_line_per_server_and_a_point_per_load() {
        let runs = [run(0.5, "a", 1.0, None), run(2.0, "a", 3.0, None), run(0.5, "b", 1.0, None)];
        let svg = chart(&runs).svg();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (6, 9), "{svg}");
        assert!(!chart(&[]).svg().contains("NaN"));
    }

    #[test]
    fn a_run_whose_rows_are_not_as_long_as_asked_is_not_sound() {
        let mut one = run(0.5, "a", 1.0, None);
        assert!(is_sound(std::slice::from_ref(&one)));
        one.recorded.summary.errors.push("output tokens: Some(3), and 4 were asked for".into());
        assert!(!is_sound(&[one]));
    }
}
