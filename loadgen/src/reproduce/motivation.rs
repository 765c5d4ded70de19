//! Figures 3 to 5: what static priorities do not see, and the long tail of prefill-first batching. All three
//! under vLLM's order, OPT-13B, Amazon, at the largest load (the paper's footnote 4).

use serde_json::json;

use crate::chart::{Bar, Chart, LegendEntry, Marks, Panel};
use crate::plot::Across;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure};
use crate::reproduce::run::{ReplayOutcome, Results, Served, mean};
use crate::reproduce::setting::{Dataset, Machine, Setting, VLLM};

const SETTING: &str = "Amazon, OPT-13B, 1.0 relQuery/s, 100 relQueries, vLLM's order (FCFS, prefill first). \
The bars are the first trace; the numbers are means over all.";
/// Grey for what is done or free, strong colours for what costs.
const COSTS: &str = "#0072b2";
const FREE: &str = "#bbbbbb";
const TAIL: &str = "#e69f00";

fn case(scope: &Scope) -> Setting {
    Setting::new(Machine::Opt13b, Dataset::Amazon, scope.largest(Machine::Opt13b), VLLM)
}

/// The same with less KV memory, which moves the boundary between core and tail.
const LESS_MEMORY: u32 = 6_000;

fn with_less_memory(scope: &Scope) -> Setting {
    Setting { kv_tokens: Some(LESS_MEMORY), ..case(scope) }
}

/// What is to be replayed.
pub fn cases(scope: &Scope) -> Vec<Setting> {
    vec![case(scope), with_less_memory(scope)]
}

/// The three figures.
pub fn figures(scope: &Scope, results: &Results) -> Vec<Figure> {
    let case = case(scope);
    let outcomes: Vec<&ReplayOutcome> = results.seeds(&case).collect();
    let less = with_less_memory(scope);
    let less: Vec<&ReplayOutcome> = results.seeds(&less).collect();
    vec![remaining(&outcomes), cached(&outcomes), tail(&outcomes, &less)]
}

/// A chart of one stacked bar per relQuery.
fn bars(
    title: &str,
    y_label: &str,
    parts: Vec<LegendEntry>,
    bars: Vec<Bar>,
    rules: Vec<(f64, String)>,
) -> Chart {
    let tick = |i: usize| if i.is_multiple_of(10) { i.to_string() } else { String::new() };
    let across = Across::Names((0..bars.len()).map(tick).collect());
    let groups = bars.into_iter().map(|bar| vec![bar]).collect();
    let panel = Panel {
        title: String::new(),
        notes: Vec::new(),
        across,
        x_label: "relQuery, in the order of arrival".into(),
        y_label: y_label.into(),
        y_from: 0.0,
        marks: Marks::Stacks { parts, groups },
        rules,
    };
    Chart { title: title.into(), panels: vec![panel], columns: 1 }
}

fn remaining(outcomes: &[&ReplayOutcome]) -> Figure {
    let all = || outcomes.iter().flat_map(|outcome| &outcome.remaining);
    let work = 100.0 * mean(all().map(|one| one.work));
    let tokens = 100.0 * mean(all().map(|one| one.tokens));
    let first = 100.0 * mean(all().filter(|one| one.is_first).map(|one| one.work));
    let count = outcomes.first().map_or(0, |outcome| outcome.served.len());
    let of = |relquery: usize| {
        let of_it = outcomes.iter().take(1).flat_map(|outcome| &outcome.remaining);
        mean(of_it.filter(|one| one.relquery == relquery).map(|one| 100.0 * one.work))
    };
    let bar = |i: usize| Bar { name: format!("relQuery {i}"), parts: vec![of(i)] };
    let rules = vec![(work, format!("ours, all traces: {work:.0} %")), (34.0, "paper: 34 %".into())];
    let key = vec![LegendEntry::new("work left when another relQuery arrives", COSTS)];
    let title = "Work left of a running relQuery when the next one arrives";
    Figure {
        id: "figure-03",
        title: "Figure 3: remaining work of a running relQuery when the next one arrives",
        setting: format!(
            "{SETTING} Work is what the static priority weighs (Eq. 6: a_p per prompt token, a_d + b_d/64 per output \
             token), with true output lengths. No bar: nothing arrived while the relQuery ran."
        ),
        chart: bars(title, "work left (%)", key, (0..count).map(bar).collect(), rules),
        claims: vec![
            Claim::number("on average 34 % of the work of a running relQuery remains", 34.0, work, " %")
                .and(&format!("{tokens:.0} % counted in tokens, {first:.0} % at the first arrival only"))
                .see("Figures 3 to 5"),
        ],
        tables: Vec::new(),
        data: json!({ "remaining_work": work / 100.0, "remaining_tokens": tokens / 100.0, "at_first_arrival": first / 100.0 }),
    }
}

fn cached(outcomes: &[&ReplayOutcome]) -> Figure {
    let all = || outcomes.iter().flat_map(|outcome| &outcome.served);
    let ratio = 100.0 * mean(all().map(|one| one.cached / one.prompt.max(1.0)));
    let total =
        100.0 * all().map(|one| one.cached).sum::<f64>() / all().map(|one| one.prompt).sum::<f64>().max(1.0);
    let mut ratios: Vec<f64> = all().map(|one| one.cached / one.prompt.max(1.0)).collect();
    ratios.sort_by(f64::total_cmp);
    let decile =
        |share: f64| 100.0 * ratios.get((ratios.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let bar = |(i, one): (usize, &Served)| Bar {
        name: format!("relQuery {i}"),
        parts: vec![one.prompt - one.cached, one.cached],
    };
    let first = outcomes.iter().take(1).flat_map(|outcome| outcome.served.iter().enumerate());
    let parts = vec![LegendEntry::new("computed", COSTS), LegendEntry::new("cached", FREE)];
    Figure {
        id: "figure-04",
        title: "Figure 4: cached and uncached prompt tokens of each relQuery",
        setting: SETTING.to_owned(),
        chart: bars(
            "Cached and computed prompt tokens",
            "prompt tokens",
            parts,
            first.map(bar).collect(),
            Vec::new(),
        ),
        claims: vec![
            Claim::number("prefix hit ratios are diverse, 38 % on average", 38.0, ratio, " %")
                .and(&format!(
                    "{total:.0} % of all tokens; the middle 80 % of relQueries between {:.0} and {:.0} %",
                    decile(0.1),
                    decile(0.9)
                ))
                .see("Figures 3 to 5"),
        ],
        tables: Vec::new(),
        data: json!({ "mean_hit_ratio": ratio / 100.0, "hit_ratio_of_all_tokens": total / 100.0 }),
    }
}

/// The part of its running time that a relQuery is in its core, in percent.
fn core_share(one: &Served) -> f64 {
    100.0 * one.core / (one.core + one.tail).max(f64::MIN_POSITIVE)
}

/// Where relQueries spend their running time, and their tokens: percentages over all traces.
struct Shares {
    core: f64,
    tokens_in_tail: f64,
    computed_in_tail: f64,
}

impl Shares {
    fn of(outcomes: &[&ReplayOutcome]) -> Self {
        let all = || outcomes.iter().flat_map(|outcome| &outcome.served);
        let in_tail = 100.0 * all().map(|one| one.output_in_tail).sum::<f64>();
        let tokens = all().map(|one| one.prompt + one.output).sum::<f64>().max(1.0);
        let computed = all().map(|one| one.prompt - one.cached + one.output).sum::<f64>().max(1.0);
        Self {
            core: mean(all().map(core_share)),
            tokens_in_tail: in_tail / tokens,
            computed_in_tail: in_tail / computed,
        }
    }
}

fn tail(outcomes: &[&ReplayOutcome], with_less_memory: &[&ReplayOutcome]) -> Figure {
    let (shares, less) = (Shares::of(outcomes), Shares::of(with_less_memory));
    let core = shares.core;
    let memory = format!("with {LESS_MEMORY} tokens of KV memory");
    let bar = |(i, one): (usize, &Served)| Bar {
        name: format!("relQuery {i}"),
        parts: vec![core_share(one), 100.0 - core_share(one)],
    };
    let first = outcomes.iter().take(1).flat_map(|outcome| outcome.served.iter().enumerate());
    let parts = vec![LegendEntry::new("core running", COSTS), LegendEntry::new("tail running", TAIL)];
    let rules = vec![(core, format!("ours, all traces: {core:.0} %")), (54.0, "paper: 54 %".into())];
    let title = "Core and tail running time of each relQuery, normalised";
    Figure {
        id: "figure-05",
        title: "Figure 5: normalised core and tail running times under vLLM",
        setting: SETTING.to_owned(),
        chart: bars(title, "share of running time (%)", parts, first.map(bar).collect(), rules),
        claims: vec![
            Claim::number("core and tail running times are close, 54 : 46", 54.0, core, "")
                .and(&format!("that is {core:.0} : {:.0}", 100.0 - core))
                .and(&format!("{:.0} : {:.0} {memory}", less.core, 100.0 - less.core))
                .see("Figures 3 to 5"),
            Claim::number(
                "only 8 % of the tokens are processed in the tail",
                8.0,
                shares.computed_in_tail,
                " %",
            )
            .and(&format!(
                "of the tokens computed; {:.1} % if cached prompt tokens count as processed",
                shares.tokens_in_tail
            ))
            .see("Figures 3 to 5"),
        ],
        tables: Vec::new(),
        data: json!({
            "core_share": core / 100.0,
            "tokens_in_tail": shares.tokens_in_tail / 100.0,
            "computed_tokens_in_tail": shares.computed_in_tail / 100.0,
            "core_share_with_less_memory": less.core / 100.0,
        }),
    }
}
