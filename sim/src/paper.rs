//! The paper's workload (RelServe, section 5.1), drawn from a seed: 100 relQueries of 1..100 rows over five
//! tasks, Poisson arrivals, lengths as of its four datasets (Table 4).
//!
//! Lengths only, no text: what a scheduler sees. The means are the published ones; what the paper does not
//! print is chosen so that its hit ratio (38 % on Amazon) and durations come out: prompts begin with their
//! task's template, and in six of ten relQueries the first attribute repeats over five rows on average, half
//! of the time in shuffled row order. Everything varies by relQuery and by row.
//!
//! What that comes to on `opt-13b-a100`, as means of 30 seeds (`relserve sim --workload paper --dataset
//! rotten --rate 1.0 --seed 0 --seeds 30 --policy fcfs,relserve`):
//!
//! | | the paper | here |
//! | --- | --- | --- |
//! | vLLM, mean latency on Rotten at 1.0/s | 35 s | 39.6 s |
//! | RelServe, the same | 13 s | 17.3 s |
//! | RelServe's makespan on Beer at 0.5/s and 1.0/s | 202 s, 147 s | 203 s, 140 s |
//! | prefix hit ratio on Amazon at 1.0/s | 38 % | 38 % |
//!
//! Seeds differ by a factor of two and more (vLLM on Rotten at 1.0/s: 19 to 78 s), as 100 relQueries are a
//! short time: compare policies on the same trace, and take means over many.

use std::ops::RangeInclusive;

use base::ServiceClass;
use serde::{Deserialize, Serialize};

use crate::draws::Draws;
use crate::trace::{Trace, TraceRelQuery, TraceTemplate};

/// A dataset of the paper (Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dataset {
    /// Product descriptions and comments.
    Amazon,
    /// Films and their reviews.
    Rotten,
    /// Beers and their reviews.
    Beer,
    /// Metadata of public-domain music.
    Pdmx,
}

impl Dataset {
    /// All, in the order of the paper.
    pub const ALL: [Self; 4] = [Self::Amazon, Self::Rotten, Self::Beer, Self::Pdmx];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amazon => "Amazon",
            Self::Rotten => "Rotten",
            Self::Beer => "Beer",
            Self::Pdmx => "PDMX",
        }
    }

    /// Mean tokens of a prompt and of an output (Table 4).
    pub fn mean_tokens(self) -> (f64, f64) {
        match self {
            Self::Amazon => (234.0, 18.0),
            Self::Rotten => (215.0, 21.0),
            Self::Beer => (174.0, 19.0),
            Self::Pdmx => (158.0, 23.0),
        }
    }
}

impl std::str::FromStr for Dataset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|dataset| dataset.name().to_lowercase()).join(", ");
        let found = Self::ALL.into_iter().find(|dataset| dataset.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("dataset `{name}` is not one of {}", known()))
    }
}

/// A task type: its output limit (section 5.1) and the tokens of its template.
struct PaperTask {
    name: &'static str,
    output_max: u64,
    template: u64,
}

/// Filtering, classification, rating, summarisation, open questions.
const TASKS: [PaperTask; 5] = [
    PaperTask { name: "filter", output_max: 5, template: 41 },
    PaperTask { name: "classify", output_max: 10, template: 46 },
    PaperTask { name: "rate", output_max: 5, template: 43 },
    PaperTask { name: "summarize", output_max: 50, template: 52 },
    PaperTask { name: "open", output_max: 100, template: 40 },
];
/// Mean outputs of the three short tasks.
const SHORT_OUTPUTS: [f64; 3] = [2.9, 5.0, 2.9];
/// What the limits cut off the mean of the two long ones, made up for in advance.
const CUT_OFF: f64 = 1.02;
/// How many of ten relQueries share an attribute, over how many rows on average, and how much of a row it is.
const SHARING_OF_TEN: u64 = 6;
const ROWS_PER_VALUE: f64 = 5.0;
const SHARED_PART: f64 = 0.5;
/// Spread of lengths (of their logarithm): of a shared value, of the rest of a row, of a relQuery's mean.
const VALUE_SPREAD: f64 = 0.35;
const ROW_SPREAD: f64 = 0.5;
const RELQUERY_SPREAD: f64 = 0.08;
/// Spread of outputs, as parts of their mean: among relQueries and among the rows of one.
const OUTPUT_SPREAD: (f64, f64) = (0.12, 0.35);
/// Least tokens of a value.
const VALUE_MIN: u64 = 4;

/// A workload to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Whose lengths.
    pub dataset: Dataset,
    /// Mean arrivals per second.
    pub rate: f64,
    /// How many relQueries.
    pub relqueries: usize,
    /// Fewest and most rows of one.
    pub rows: (u64, u64),
    /// A second tenant beside, until the last arrival of the first.
    pub offline: Option<Offline>,
    /// What makes one trace differ from another.
    pub seed: u64,
}

/// A second tenant, of class `bulk`, with large relQueries at fixed times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offline {
    /// Seconds between two of them.
    pub every: f64,
    /// Fewest and most rows of one.
    pub rows: (u64, u64),
}

impl Default for Offline {
    /// Beside an interactive tenant, well over what one A100 can do for OPT-13B.
    fn default() -> Self {
        Self { every: 30.0, rows: (300, 900) }
    }
}

impl Default for Workload {
    /// The paper's on Rotten at its largest load.
    fn default() -> Self {
        Self::new(Dataset::Rotten, 1.0, 0)
    }
}

impl Workload {
    /// The paper's: 100 relQueries of 1..100 rows.
    pub fn new(dataset: Dataset, rate: f64, seed: u64) -> Self {
        Self { dataset, rate, relqueries: 100, rows: (1, 100), offline: None, seed }
    }
}

/// Draws a workload: a function of its description.
///
/// Arrivals have random numbers of their own: at another rate the same relQueries come in other intervals.
pub fn generate(workload: &Workload) -> Trace {
    let mut gaps = Draws::new(workload.seed, 1);
    let mut draws = Draws::new(workload.seed, 2);
    let mut arrival = 0.0;
    let relqueries = (0..workload.relqueries as u64).map(|rel_id| {
        arrival += gaps.exponential() / workload.rate;
        draw_relquery(&mut draws, workload, workload.rows.0..=workload.rows.1, rel_id, arrival)
    });
    let mut relqueries: Vec<_> = relqueries.collect();
    if let Some(offline) = workload.offline {
        let times = (0_u32..).map(|i| f64::from(i) * offline.every).take_while(|at| *at < arrival);
        for (rel_id, at) in (workload.relqueries as u64..).zip(times) {
            let drawn = draw_relquery(&mut draws, workload, offline.rows.0..=offline.rows.1, rel_id, at);
            let class = Some(ServiceClass::Bulk);
            relqueries.push(TraceRelQuery { tenant: "offline".into(), class, ..drawn });
        }
        relqueries.sort_by(|a, b| a.arrival.total_cmp(&b.arrival).then(a.rel_id.cmp(&b.rel_id)));
    }
    let templates = TASKS.iter().zip(0..).map(|(task, id)| TraceTemplate { id, tokens: task.template });
    Trace {
        schema: "relserve-trace/1".into(),
        name: format!("{}-{:.2}-{}", workload.dataset.name(), workload.rate, workload.seed),
        note: None,
        dataset: Some(workload.dataset.name().to_lowercase()),
        rate: Some(workload.rate),
        seed: Some(workload.seed),
        templates: templates.collect(),
        relqueries,
    }
}

/// Mean output of a task, such that the five average to the dataset's.
fn mean_output(dataset: Dataset, task: usize) -> f64 {
    if let Some(short) = SHORT_OUTPUTS.get(task) {
        return *short;
    }
    let (_, mean) = dataset.mean_tokens();
    let long = (TASKS.len() as f64 * mean - SHORT_OUTPUTS.iter().sum::<f64>()) * CUT_OFF;
    // An open answer is twice as long as a summary, as its limit is.
    if task == 3 { long / 3.0 } else { long * 2.0 / 3.0 }
}

fn draw_relquery(
    draws: &mut Draws,
    workload: &Workload,
    rows: RangeInclusive<u64>,
    rel_id: u64,
    arrival: f64,
) -> TraceRelQuery {
    let place = draws.between(0, TASKS.len() as u64 - 1) as usize;
    let task = &TASKS[place];
    let count = draws.between(*rows.start(), *rows.end());
    let (prompt, _) = workload.dataset.mean_tokens();
    let mean_template = TASKS.iter().map(|task| task.template).sum::<u64>() as f64 / TASKS.len() as f64;
    let body = (prompt - mean_template) * draws.log_normal(RELQUERY_SPREAD);
    let output = mean_output(workload.dataset, place) * (1.0 + OUTPUT_SPREAD.0 * draws.normal());
    let shares = draws.between(1, 10) <= SHARING_OF_TEN;
    let (values, groups) =
        if shares { draw_values(draws, count, body * SHARED_PART) } else { Default::default() };
    let unique = if shares { body * (1.0 - SHARED_PART) } else { body };
    let rows = (0..count as usize).map(|row| {
        let tokens = whole(unique * draws.log_normal(ROW_SPREAD)).max(VALUE_MIN);
        let out = whole(output * (1.0 + OUTPUT_SPREAD.1 * draws.normal())).clamp(1, task.output_max);
        [groups.get(row).map_or(-1, |group| *group as i64), tokens as i64, out as i64]
    });
    TraceRelQuery {
        rel_id,
        tenant: "online".into(),
        weight: None,
        task: Some(task.name.into()),
        class: None,
        rows: rows.collect(),
        arrival: (arrival * 1e6).round() / 1e6,
        template_id: place as u64,
        ol: task.output_max,
        groups: values,
        samplings: Vec::new(),
    }
}

/// Values that rows share: their lengths, and which of them each row has.
fn draw_values(draws: &mut Draws, count: u64, mean: f64) -> (Vec<u64>, Vec<u64>) {
    let (mut values, mut groups) = (Vec::new(), Vec::new());
    while (groups.len() as u64) < count {
        if values.is_empty() || draws.unit() <= 1.0 / ROWS_PER_VALUE {
            values.push(whole(mean * draws.log_normal(VALUE_SPREAD)).max(VALUE_MIN));
        }
        groups.push(values.len() as u64 - 1);
    }
    if draws.between(0, 1) == 1 {
        draws.shuffle(&mut groups);
    }
    (values, groups)
}

/// The nearest whole number of tokens.
fn whole(tokens: f64) -> u64 {
    tokens.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean prompt and output tokens of a row, over seeds.
    fn means(dataset: Dataset, seeds: u64) -> (f64, f64) {
        let (mut prompt, mut output, mut rows) = (0.0, 0.0, 0.0);
        for seed in 1..=seeds {
            let trace = generate(&Workload::new(dataset, 1.0, seed));
            for relquery in &trace.relqueries {
                for [group, unique, out] in &relquery.rows {
                    let shared = usize::try_from(*group).map_or(0, |group| relquery.groups[group]);
                    let template = trace.templates[relquery.template_id as usize].tokens;
                    prompt += (template + shared) as f64 + *unique as f64;
                    output += *out as f64;
                    rows += 1.0;
                }
            }
        }
        (prompt / rows, output / rows)
    }

    #[test]
    fn prompts_and_outputs_average_the_published_lengths() {
        for dataset in Dataset::ALL {
            let ((prompt, output), published) = (means(dataset, 40), dataset.mean_tokens());
            let name = dataset.name();
            assert!((prompt / published.0 - 1.0).abs() < 0.03, "{name}: {prompt:.1} of {:.1}", published.0);
            assert!((output / published.1 - 1.0).abs() < 0.03, "{name}: {output:.2} of {:.2}", published.1);
        }
    }

    #[test]
    fn a_trace_is_a_function_of_its_description_and_the_rate_moves_arrivals_only() {
        let workload = Workload::new(Dataset::Beer, 0.5, 7);
        let (trace, faster) = (generate(&workload), generate(&Workload { rate: 1.0, ..workload }));
        assert_eq!(trace, generate(&workload));
        assert_ne!(trace.relqueries, generate(&Workload { seed: 8, ..workload }).relqueries);
        for (one, other) in trace.relqueries.iter().zip(&faster.relqueries) {
            assert_eq!(one.rows, other.rows);
            assert!((one.arrival - 2.0 * other.arrival).abs() < 1e-5);
        }
        assert!(trace.relqueries.iter().all(|one| (1..=100).contains(&one.rows.len())));
        assert!(trace.relqueries.iter().any(|one| !one.groups.is_empty()));
    }
}
