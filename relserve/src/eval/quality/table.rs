//! The table: a line for each task and variant, with intervals and the paired difference from the baseline.

use std::fmt::Write as _;

use serde::Serialize;

use super::bootstrap::{Interval, bootstrap};
use super::measures::RowScore;
use super::requests::Answer;
use super::tasks::EvalTask;
use super::variants::{EngineSetting, EvalVariant, VARIANTS};

/// A task's answers in one variant.
#[derive(Clone, Debug)]
pub(super) struct VariantAnswers {
    /// Its place among the tasks.
    pub(super) task: usize,
    pub(super) variant: &'static EvalVariant,
    pub(super) answers: Vec<Answer>,
}

/// A mean and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct ScoreInterval {
    mean: f64,
    low: f64,
    high: f64,
}

/// A line of the table; shares and differences from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) task: String,
    pub(super) variant: &'static str,
    pub(super) rows: usize,
    /// Rows without an answer: they count as wrong.
    pub(super) failed: usize,
    pub(super) accuracy: Option<ScoreInterval>,
    pub(super) f1: Option<ScoreInterval>,
    /// The rest is against the baseline. Rows with the same label or words.
    pub(super) agreement: Option<f64>,
    /// Rows with the same text, letter for letter.
    pub(super) same_text: Option<f64>,
    /// Of the F1, or of the accuracy where there is none: the paired bootstrap.
    pub(super) difference: Option<Interval>,
}

/// A row beside the baseline's.
struct PairedRow<'a> {
    score: RowScore,
    is_failed: bool,
    baseline: Option<BaselineRow<'a>>,
    answer: &'a Answer,
    third: Option<usize>,
    task: &'a EvalTask,
}

struct BaselineRow<'a> {
    score: RowScore,
    answer: &'a Answer,
}

/// Names of thirds.
const THIRDS: [&str; 3] = ["first", "middle", "last"];

/// The lines of all tasks, of the thirds of those that have such, and of all tasks together.
pub(super) fn lines(tasks: &[EvalTask], runs: &[VariantAnswers], seed: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut all: Vec<Vec<PairedRow<'_>>> = VARIANTS.iter().map(|_| Vec::new()).collect();
    for (number, task) in tasks.iter().enumerate() {
        let of_task = || runs.iter().filter(move |run| run.task == number);
        let baseline = of_task().find(|run| *run.variant == VARIANTS[0]);
        let mut thirds = Vec::new();
        for run in of_task() {
            let rows = paired(task, run, baseline);
            lines.push(line(task.name.to_owned(), run.variant, rows.iter(), seed));
            // Where the answer stands matters to how documents are read, not to formats of numbers.
            if run.variant.setting == EngineSetting::AsConfigured
                && rows.iter().any(|row| row.third.is_some())
            {
                thirds.extend(THIRDS.iter().enumerate().map(|(third, name)| {
                    let rows = rows.iter().filter(move |row| row.third == Some(third));
                    (
                        third,
                        line(format!("{}, answer in the {name} third", task.name), run.variant, rows, seed),
                    )
                }));
            }
            if let Some(at) = VARIANTS.iter().position(|variant| variant == run.variant) {
                all[at].extend(rows);
            }
        }
        thirds.sort_by_key(|(third, _)| *third);
        lines.extend(thirds.into_iter().map(|(_, line)| line).filter(|line| line.rows > 0));
    }
    if tasks.len() > 1 {
        let rows = VARIANTS.iter().zip(&all).skip(1).filter(|(_, rows)| !rows.is_empty());
        lines.extend(rows.map(|(variant, rows)| {
            let together = line("all rows of these tasks".into(), variant, rows.iter(), seed);
            // Accuracies of labels and F1 of words have no common mean: only differences do.
            Line { accuracy: None, f1: None, ..together }
        }));
    }
    lines
}

fn paired<'a>(
    task: &'a EvalTask,
    run: &'a VariantAnswers,
    baseline: Option<&'a VariantAnswers>,
) -> Vec<PairedRow<'a>> {
    let score =
        |row: usize, answer: &Answer| task.measure.score(&task.rows[row].accepted, answer.as_deref().ok());
    let row = |(number, answer): (usize, &'a Answer)| PairedRow {
        score: score(number, answer),
        is_failed: answer.is_err(),
        baseline: baseline.filter(|baseline| baseline.variant != run.variant).map(|baseline| {
            let answer = &baseline.answers[number];
            BaselineRow { score: score(number, answer), answer }
        }),
        answer,
        third: task.rows[number].third,
        task,
    };
    run.answers.iter().enumerate().map(row).collect()
}

fn line<'a, 'b: 'a>(
    task: String,
    variant: &'static EvalVariant,
    rows: impl Iterator<Item = &'a PairedRow<'b>> + Clone,
    seed: u64,
) -> Line {
    let of = |score: fn(RowScore) -> Option<f64>| {
        let scores: Vec<f64> = rows.clone().filter_map(|row| score(row.score)).collect();
        let Interval { low, high, .. } = bootstrap(&scores, seed)?;
        Some(ScoreInterval { mean: mean(&scores)?, low, high })
    };
    let pairs = || rows.clone().filter_map(|row| Some((row, row.baseline.as_ref()?)));
    let share = |holds: fn(&EvalTask, &str, &str) -> bool| {
        let shares: Vec<f64> = pairs()
            .map(|(row, baseline)| match (row.answer, baseline.answer) {
                (Ok(one), Ok(other)) => f64::from(holds(row.task, one, other)),
                (one, other) => f64::from(one.is_err() && other.is_err()),
            })
            .collect();
        mean(&shares)
    };
    let differences: Vec<f64> =
        pairs().map(|(row, baseline)| row.score.main() - baseline.score.main()).collect();
    Line {
        task,
        variant: variant.name,
        rows: rows.clone().count(),
        failed: rows.clone().filter(|row| row.is_failed).count(),
        accuracy: of(|score| score.accuracy),
        f1: of(|score| score.f1),
        agreement: share(|task, one, other| task.measure.essence(one) == task.measure.essence(other)),
        same_text: share(|_, one, other| one == other),
        difference: bootstrap(&differences, seed),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The table in Markdown; shares and differences in hundredths.
pub(super) fn markdown(lines: &[Line]) -> String {
    let mut text = "| task | variant | rows | accuracy | F1 | agreement | same text | difference |\n\
        | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    let shown = |estimate: Option<ScoreInterval>| {
        estimate.map_or_else(String::new, |ScoreInterval { mean, low, high }| {
            format!("{:.0} [{:.0}, {:.0}]", 100.0 * mean, 100.0 * low, 100.0 * high)
        })
    };
    let share =
        |share: Option<f64>| share.map_or_else(String::new, |share| format!("{:.0} %", 100.0 * share));
    for line in lines {
        let difference = line.difference.map_or_else(String::new, |Interval { low, median, high }| {
            format!("{} [{}, {}]", points(median), points(low), points(high))
        });
        let failed = if line.failed == 0 { String::new() } else { format!(" ({} failed)", line.failed) };
        let _ = writeln!(
            text,
            "| {} | {} | {}{failed} | {} | {} | {} | {} | {difference} |",
            line.task,
            line.variant,
            line.rows,
            shown(line.accuracy),
            shown(line.f1),
            share(line.agreement),
            share(line.same_text),
        );
    }
    text
}

/// A signed difference in hundredths.
fn points(value: f64) -> String {
    let rounded = (1_000.0 * value).round() / 10.0;
    if rounded == 0.0 { "0".into() } else { format!("{rounded:+.1}") }
}

#[cfg(test)]
mod tests;
