//! The report: one self-contained HTML page, no script, nothing loaded from anywhere.

use crate::plot::{Plot, Rectangle, STYLE, colour, escape};
use crate::record::Record;
use crate::report::table;
use crate::summary::RunSummary;

/// A run with its records.
pub struct RecordedRun {
    /// Its figures.
    pub summary: RunSummary,
    /// Its relQueries.
    pub records: Vec<Record>,
}

const PAGE_STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;\
color:#222;background:#fff}svg{width:100%;height:auto}pre{overflow-x:auto;background:#f5f5f5;padding:1em;font-size:13px}\
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}h2{margin-top:2em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}svg text{fill:#aaa}.grid{stroke:#333}\
svg .ruled,svg .note{stroke:#181818}pre{background:#222}}";

/// Colours of the three periods, in the timeline and the bars.
const PERIODS: [(&str, &str); 3] = [("waiting", "#999999"), ("core", "#0072b2"), ("tail", "#e69f00")];

/// The page of one run or of several that replayed the same trace.
pub fn page(title: &str, runs: &[RecordedRun]) -> String {
    let summaries: Vec<RunSummary> = runs.iter().map(|run| run.summary.clone()).collect();
    let mut body = format!("<h1>{}</h1>", escape(title));
    if runs.len() > 1 {
        body += &format!("<pre>{}</pre>", escape(&table(&summaries)));
        body += &format!("<h2>Mean latency by period</h2>{}{}", period_key(), period_bars(runs));
    }
    for summary in &summaries {
        body += &format!("<pre>{}</pre>", escape(&summary.text()));
    }
    body += &format!("<h2>Latency: share of relQueries answered within</h2>{}{}", run_key(runs), cdf(runs));
    body += &format!("<h2>Latency against rows</h2>{}{}", run_key(runs), scatter(runs));
    for run in runs {
        body += &format!("<h2>Timeline: {}</h2>{}{}", escape(&run.summary.name), period_key(), timeline(run));
    }
    document(title, &body)
}

/// A page around `body`.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title><style>{STYLE}{PAGE_STYLE}</style><body>{body}</body></html>\n",
        escape(title)
    )
}

fn key(colour: &str, name: &str) -> String {
    format!("<span class=\"key\" style=\"background:{colour}\"></span>{}", escape(name))
}

fn run_key(runs: &[RecordedRun]) -> String {
    runs.iter().enumerate().map(|(i, run)| key(colour(i), &run.summary.name)).collect()
}

fn period_key() -> String {
    PERIODS.iter().map(|(name, colour)| key(colour, name)).collect()
}

/// Latencies in seconds, ascending.
fn latencies(run: &RecordedRun) -> Vec<f64> {
    let mut sorted: Vec<f64> =
        run.records.iter().filter_map(|record| record.latency_ms).map(|ms| ms / 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

fn cdf(runs: &[RecordedRun]) -> String {
    let mut plot = Plot::new(largest(runs.iter().flat_map(latencies)), 1.0, "latency (s)", "share");
    for (i, run) in runs.iter().enumerate() {
        let sorted = latencies(run);
        let mut points = vec![(0.0, 0.0)];
        for (rank, latency) in sorted.iter().enumerate() {
            points.push((*latency, rank as f64 / sorted.len() as f64));
            points.push((*latency, (rank + 1) as f64 / sorted.len() as f64));
        }
        plot.line(&points, colour(i));
    }
    plot.finish("Cumulative distribution of latency")
}

fn scatter(runs: &[RecordedRun]) -> String {
    let rows = largest(runs.iter().flat_map(|run| run.records.iter().map(|record| f64::from(record.rows))));
    let mut plot = Plot::new(rows, largest(runs.iter().flat_map(latencies)), "rows", "latency (s)");
    for (i, run) in runs.iter().enumerate() {
        for record in &run.records {
            let Some(latency) = record.latency_ms else { continue };
            let tip =
                format!("{}: no. {} ({}, {} rows)", run.summary.name, record.index, record.task, record.rows);
            plot.point(f64::from(record.rows), latency / 1e3, colour(i), &tip);
        }
    }
    plot.finish("Latency against rows")
}

/// One bar per relQuery from its arrival on, cut into the server's periods; grey-red where it failed.
fn timeline(run: &RecordedRun) -> String {
    const PITCH: f64 = 7.0;
    let end =
        largest(run.records.iter().map(|record| record.arrival_ms + record.latency_ms.unwrap_or(0.0))) / 1e3;
    let inner = PITCH * run.records.len().max(1) as f64;
    let mut plot = Plot::bare(end, 1.0, Plot::height_for(inner), "time since the start (s)");
    for (line, record) in run.records.iter().enumerate() {
        let bar = |x: f64, width: f64| Rectangle { x, y: line as f64 * PITCH, width, height: PITCH - 1.5 };
        let tip = format!("no. {}: {}, {} rows", record.index, record.task, record.rows);
        let mut from = record.arrival_ms / 1e3;
        match (&record.error, record.periods, record.latency_ms) {
            (Some(error), _, _) => plot.bar(bar(from, end / 100.0), "#cc0000", &format!("{tip}: {error}")),
            (None, Some(periods), _) => {
                let parts = [periods.waiting_ms, periods.core_ms, periods.tail_ms];
                for ((name, colour), part) in PERIODS.iter().zip(parts) {
                    plot.bar(bar(from, part / 1e3), colour, &format!("{tip}: {name} {part:.0} ms"));
                    from += part / 1e3;
                }
            }
            (None, None, latency) => plot.bar(bar(from, latency.unwrap_or(0.0) / 1e3), colour(0), &tip),
        }
    }
    plot.finish("Timeline of relQueries")
}

/// Mean latency of each run as a bar of its periods.
fn period_bars(runs: &[RecordedRun]) -> String {
    const PITCH: f64 = 30.0;
    let means = |run: &RecordedRun| run.summary.periods.map(|p| [p.waiting_ms, p.core_ms, p.tail_ms]);
    let longest = largest(runs.iter().filter_map(means).map(|parts| parts.iter().sum::<f64>() / 1e3));
    let height = Plot::height_for(PITCH * runs.len() as f64);
    let mut plot = Plot::bare(longest, 1.0, height, "mean latency by the server's clock (s)");
    for (line, run) in runs.iter().enumerate() {
        let top = line as f64 * PITCH;
        // Long names would leave the picture: the key and the table have them whole.
        let name: String = run.summary.name.chars().take(16).collect();
        plot.name(top + 17.0, &name);
        let mut from = 0.0;
        for ((period, colour), part) in PERIODS.iter().zip(means(run).unwrap_or_default()) {
            let bar = Rectangle { x: from, y: top + 3.0, width: part / 1e3, height: PITCH - 8.0 };
            plot.bar(bar, colour, &format!("{period} {part:.0} ms"));
            from += part / 1e3;
        }
    }
    plot.finish("Mean latency by period")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Periods, RelQueryOutcome};
    use crate::replay::Simulated;
    use crate::scenario::{Scenario, TableSpec};
    use crate::table::SourceTable;
    use crate::workload::trace;

    #[test]
    fn the_page_holds_every_plot_and_needs_nothing_from_outside() {
        let scenario = Scenario { relqueries: 4, ..Scenario::default() };
        let trace = trace(&scenario, &[SourceTable::load(&TableSpec::default(), 1).expect("generated")]);
        let run = |name: &str| {
            let record = |(i, relquery): (usize, _)| {
                let periods = (i != 1).then_some(Periods { waiting_ms: 5.0, core_ms: 10.0, tail_ms: 2.0 });
                let error = (i == 2).then(|| "<b>429</b>".to_owned());
                let outcome = RelQueryOutcome { rows_done: 1, periods, error, ..RelQueryOutcome::default() };
                Record::new(relquery, outcome, Some(8.0), 17.0)
            };
            let records: Vec<Record> = trace.iter().enumerate().map(record).collect();
            let simulated = Some(Simulated { mean_ms: 34.0, ..Simulated::default() });
            RecordedRun { summary: RunSummary { simulated, ..RunSummary::of(name, &records) }, records }
        };
        let page = page("A & B", &[run("fcfs"), run("relserve")]);
        assert_eq!(page.matches("<svg").count(), 5, "bars, distribution, sizes, two timelines");
        assert!(page.contains("A &amp; B") && page.contains("0.500"));
        for outside in ["http:", "https:", "<script", "src=", "@import", "url(", "<b>429", "NaN"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(super::page("nothing", &[]).contains("</html>"), "no run is no panic");
    }
}
