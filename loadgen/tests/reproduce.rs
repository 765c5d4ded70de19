//! The reproduction of the paper's figures, on a tiny workload: that it is whole, and that its parts agree.

use loadgen::reproduce::setting::{Machine, TraceSize};
use loadgen::reproduce::{Scope, reproduce};
use serde_json::Value;

/// The figures and tables that one command regenerates.
const IDS: [&str; 9] = [
    "figure-03",
    "figure-04",
    "figure-05",
    "figure-09",
    "figure-10",
    "figure-11",
    "figure-12",
    "table-06",
    "sensitivity",
];

/// Where differences are explained.
const DOCUMENT: &str = include_str!("../../docs/REPRODUCTION.md");

fn tiny() -> Scope {
    Scope {
        seeds: 1,
        size: TraceSize { relqueries: 24, rows_max: 100 },
        machines: vec![Machine::Opt13b],
        loads: vec![0, 5],
    }
}

/// The data of a figure.
fn data<'a>(json: &'a Value, id: &str) -> &'a Value {
    let figures = json["figures"].as_array().expect("a list of figures");
    &figures.iter().find(|figure| figure["id"] == id).expect("the figure is there")["data"]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} against {b}");
}

#[test]
fn one_command_draws_every_figure_and_their_numbers_agree() {
    let out = tempfile::tempdir().expect("a directory");
    let figures = reproduce(&tiny(), out.path()).expect("a report");
    assert_eq!(figures.iter().map(|figure| figure.id).collect::<Vec<_>>(), IDS);

    let read = |name: &str| std::fs::read_to_string(out.path().join(name)).expect("the file was written");
    let page = read("reproduction.html");
    let summary = read("summary.md");
    for figure in &figures {
        assert!(read(&format!("{}.svg", figure.id)).starts_with("<svg"), "{}", figure.id);
        assert!(page.contains(&format!("<h2 id=\"{}\">", figure.id)), "{}", figure.id);
        assert!(!figure.claims.is_empty(), "{} has no claim", figure.id);
        for claim in &figure.claims {
            assert!(claim.value.is_some_and(f64::is_finite), "{claim:?}");
            assert!(summary.contains(&claim.ours), "{claim:?}");
            let is_explained = |section| DOCUMENT.lines().any(|line| line == format!("## {section}"));
            assert!(claim.see.is_none_or(is_explained), "no section of the document: {claim:?}");
        }
    }
    assert_eq!(page.matches("<svg").count(), IDS.len());
    for outside in ["http:", "https:", "<script", "src=", "@import", "url(", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }

    let json: Value = serde_json::from_str(&read("figures.json")).expect("JSON");
    let panels = data(&json, "figure-09")["panels"].as_array().expect("panels");
    assert_eq!(panels.len(), 4, "one machine, four datasets");
    for panel in panels {
        let factors = &panel["times_relserve_at_largest_load"];
        assert!(number(&factors["vllm"]) > 1.0, "under load RelServe's mean is below that of FCFS: {panel}");
        close(number(&factors["relserve"]), 1.0);
    }
    // Figures 11 and 12 are about a setting that Figure 9 has too.
    let beer = panels.iter().find(|panel| panel["dataset"] == "Beer").expect("Beer");
    let mean = number(&beer["mean_latency_s"]["relserve"][1]);
    let periods = data(&json, "figure-11")["policies"]["relserve"][1].as_array().expect("periods");
    close(periods.iter().map(number).sum(), mean);
    let starvation = data(&json, "figure-12");
    let last = starvation["mean_s"].as_array().and_then(|loads| loads.last()).expect("loads");
    close(number(&last[0]), mean);
    let greatest = starvation["greatest_s"].as_array().and_then(|loads| loads.last()).expect("loads");
    assert!(number(&greatest[0]) >= mean);
    for panel in data(&json, "figure-10")["panels"].as_array().expect("panels") {
        assert!(number(&panel["prefill_first"][1]) > 0.5 && number(&panel["decode_first"][1]) > 0.5);
    }
    let share = |id: &str, field: &str| number(&data(&json, id)[field]);
    for share in [
        share("figure-03", "remaining_work"),
        share("figure-04", "mean_hit_ratio"),
        share("figure-05", "core_share"),
        share("figure-05", "computed_tokens_in_tail"),
    ] {
        assert!(share > 0.0 && share < 1.0, "{share}");
    }
    for load in data(&json, "table-06").as_array().expect("loads") {
        assert!(number(&load["dpu_s"]) > 0.0 && number(&load["aba_s"]) > 0.0, "both were timed: {load}");
        assert!(number(&load["e2e_s"]) > 1.0, "{load}");
    }
}
