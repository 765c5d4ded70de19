//! When the first row of a relQuery comes that has the machine for itself, and when its last one does: as a server runs
//! it, by what steps were measured to cost on this machine, first rows early and all.

use base::Nanos;
use gateway::config::Config;

use super::first_token::{Asked, FirstTokenHarness, RowEnds, whole};
use super::{BenchError, Choice, MeasuredSteps, RowsCase, cases, fits, prompts};

/// The relQuery among the engine's cases; `None` where it was not asked for, or does not fit.
pub fn measure(config: &Config, choice: &Choice) -> Result<Option<String>, BenchError> {
    let is_asked = |case: &RowsCase| case.part == MeasuredSteps::Whole && case.name.starts_with(&choice.only);
    let Some(case) = cases().into_iter().find(is_asked) else { return Ok(None) };
    let mut harness = FirstTokenHarness::load(config)?;
    line(&mut harness, &case, choice.rounds)
}

/// Medians of some rounds.
fn line(harness: &mut FirstTokenHarness, case: &RowsCase, rounds: u64) -> Result<Option<String>, BenchError> {
    if !fits(case, harness.context() as usize, harness.room()) {
        return Ok(None);
    }
    let rows = asked(case, harness.engine.info.vocab);
    let mut ends = Vec::new();
    for _ in 0..rounds {
        let scope = harness.scope();
        ends.push(harness.row_ends(&rows, scope)?);
    }
    let median = |of: fn(&RowEnds) -> Nanos| {
        let mut spans: Vec<Nanos> = ends.iter().map(of).collect();
        spans.sort_unstable();
        spans[spans.len() / 2].as_seconds() * 1e3
    };
    let (first, last) = (median(|ends| ends.first), median(|ends| ends.last));
    let share = first / last;
    Ok(Some(format!("as it is served: first row {first:.0} ms, last {last:.0} ms: {share:.2} of it")))
}

/// A case's rows.
fn asked(case: &RowsCase, vocab: u32) -> Vec<Asked> {
    let row = |prompt| Asked { prompt: whole(prompt), output: case.output, temperature: 0.0, seed: 0 };
    prompts(case, vocab).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use scheduler::{CostModel, MarginalWorkConfig, SchedulerConfig};
    use serving::load;

    use super::*;

    #[test]
    fn first_rows_end_before_the_others_as_they_do_in_a_server() {
        let config = Config::default();
        let name = "a small one".to_owned();
        let part = MeasuredSteps::Whole;
        let case = RowsCase { name, rows: 12, shared: 8, own: 4..6, output: 4, part };
        // Steps whose bases cost nothing: nothing is lost by more of them.
        let cost = CostModel { prefill_base: Nanos(0), decode_base: Nanos(0), ..CostModel::default() };
        let steps_behind = |first_rows_permille: u32| {
            let engine = load::load(config.backend()).expect("the demo model loads");
            let marginal_work =
                MarginalWorkConfig { first_rows_permille, ..config.scheduler.marginal_work.clone() };
            let settings = SchedulerConfig { marginal_work, ..config.scheduler.clone() };
            let mut harness = FirstTokenHarness::new(engine, &settings, cost).expect("valid settings");
            let text = line(&mut harness, &case, 1).expect("steps succeed").expect("it fits");
            assert!(text.starts_with("as it is served: first row "), "{text}");
            let rows = asked(&case, harness.engine.info.vocab);
            let scope = harness.scope();
            harness.row_ends(&rows, scope).expect("steps succeed").steps_behind
        };
        assert_eq!(steps_behind(0), 0, "all rows end with one step");
        assert!(steps_behind(20) > 0);
    }
}
