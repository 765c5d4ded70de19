//! Runs side by side: the one table of a comparison. Pure.

use crate::agreement::ranking;
use crate::summary::RunSummary;

/// The one table of a comparison, with what the simulator says beside it where there is a prediction.
pub fn table(runs: &[RunSummary]) -> String {
    let base = baseline(runs);
    let with_prediction = runs.iter().any(|run| run.simulated.is_some());
    let mut text = format!(
        "{:<16}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>10}{:>11}",
        "policy (ms)", "mean", "p50", "p95", "p99", "max", "waiting", "core", "tail", "to base", "plan+apply"
    );
    if with_prediction {
        text += &format!("{:>11}{:>9}{:>13}", "simulated", "meas/sim", "hits m/s %");
    }
    text.push('\n');
    for run in runs {
        text += &line(run, base);
        if with_prediction {
            text += &prediction(run);
        }
        text.push('\n');
        if !run.is_sound() {
            let missing = run.relqueries - run.completed;
            text +=
                &format!("  ! {missing} relQueries and {} rows failed: {:?}\n", run.rows_failed, run.errors);
        }
    }
    if let Some(base) = base {
        text += &format!("base: {}\n", base.name);
    }
    for run in runs.iter().filter(|run| run.repeated_ms.len() > 1) {
        let means: Vec<String> = run.repeated_ms.iter().map(|mean| format!("{mean:.1}")).collect();
        text += &format!("repetitions of {}: {}; the median one is shown\n", run.name, means.join(", "));
    }
    if with_prediction {
        text += &ranking(runs);
    }
    text
}

/// What was measured of a run.
fn line(run: &RunSummary, base: Option<&RunSummary>) -> String {
    let latency = run.latency_ms;
    let cells = [
        latency.map(|stats| stats.mean),
        latency.map(|stats| stats.p50),
        latency.map(|stats| stats.p95),
        latency.map(|stats| stats.p99),
        latency.map(|stats| stats.max),
        run.periods.map(|periods| periods.waiting_ms),
        run.periods.map(|periods| periods.core_ms),
        run.periods.map(|periods| periods.tail_ms),
    ];
    let mut text = format!("{:<16}", run.name);
    for cell in cells {
        text += &cell.map_or(format!("{:>11}", "-"), |value| format!("{value:>11.1}"));
    }
    text += &ratio(run, base).map_or(format!("{:>10}", "-"), |ratio| format!("{ratio:>10.3}"));
    text += &run.scheduler_share.map_or(format!("{:>11}", "-"), |share| format!("{:>9.3} %", share * 1e2));
    text
}

/// What was simulated of it.
fn prediction(run: &RunSummary) -> String {
    let Some(simulated) = run.simulated else { return format!("{:>11}{:>9}{:>13}", "-", "-", "-") };
    let ratio = run.mean_ms().map_or("-".into(), |mean| format!("{:.3}", mean / simulated.mean_ms));
    let hits = run.hit().map_or("-".into(), |hit| format!("{:.0}", hit * 1e2));
    format!("{:>11.1}{ratio:>9}{:>13}", simulated.mean_ms, format!("{hits}/{:.0}", simulated.hit * 1e2))
}

/// The run that others are compared with: `fcfs`, or the first.
pub fn baseline(runs: &[RunSummary]) -> Option<&RunSummary> {
    runs.iter().find(|run| run.name == "fcfs").or(runs.first())
}

/// A run's mean latency relative to the baseline's.
pub fn ratio(run: &RunSummary, base: Option<&RunSummary>) -> Option<f64> {
    Some(run.latency_ms?.mean / base?.latency_ms?.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Simulated;
    use crate::summary::tests::record;

    #[test]
    fn the_table_relates_every_policy_to_fcfs() {
        let simulated = |mean_ms| Some(Simulated { mean_ms, hit: 0.5, ..Simulated::default() });
        let runs = [
            RunSummary {
                simulated: simulated(40.0),
                scheduler_share: Some(0.000_5),
                ..RunSummary::of("relserve", &[record(0, Some(50.0))])
            },
            RunSummary { simulated: simulated(200.0), ..RunSummary::of("fcfs", &[record(0, Some(200.0))]) },
        ];
        let text = table(&runs);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("relserve"), "{text}");
        for part in [" 0.250", " 0.050 %", " 40.0 ", " 1.250", " 40/50"] {
            assert!(lines[1].contains(part), "{part} is missing: {text}");
        }
        assert!(lines[2].starts_with("fcfs") && lines[2].contains("1.000"), "{text}");
        assert_eq!(lines[3], "base: fcfs");
        assert_eq!(lines[4], "ranking: 1 of 1 pairs of policies in the same order as simulated");
        assert!(table(&[RunSummary::of("fcfs", &[record(0, None)])]).contains("HTTP 429"));
    }
}
