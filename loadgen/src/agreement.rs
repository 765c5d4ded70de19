//! Whether measured and simulated latencies put policies in the same order. Pure.

use crate::summary::RunSummary;

/// Two policies whose order differs, and by how much each way.
#[derive(Clone, Debug, PartialEq)]
pub struct Swapped<'a> {
    /// The one that measured lower.
    pub lower: &'a str,
    /// The other.
    pub higher: &'a str,
    /// How much higher the other measured, as a share of the lower mean.
    pub measured: f64,
    /// How much lower it was simulated, as a share of the lower mean.
    pub simulated: f64,
}

/// All pairs of runs that have both means: how many there are, and those in different order.
pub fn compare(runs: &[RunSummary]) -> (usize, Vec<Swapped<'_>>) {
    let means = |run: &RunSummary| Some((run.mean_ms()?, run.simulated?.mean_ms));
    let both: Vec<_> = runs.iter().filter_map(|run| Some((run.name.as_str(), means(run)?))).collect();
    let (mut pairs, mut swapped) = (0, Vec::new());
    for (i, a) in both.iter().enumerate() {
        for b in &both[i + 1..] {
            pairs += 1;
            let (low, high) = if a.1.0 <= b.1.0 { (a, b) } else { (b, a) };
            if low.1.1 > high.1.1 {
                swapped.push(Swapped {
                    lower: low.0,
                    higher: high.0,
                    measured: high.1.0 / low.1.0 - 1.0,
                    simulated: low.1.1 / high.1.1 - 1.0,
                });
            }
        }
    }
    (pairs, swapped)
}

/// The same in words.
pub fn ranking(runs: &[RunSummary]) -> String {
    let (pairs, swapped) = compare(runs);
    if pairs == 0 {
        return String::new();
    }
    let agree = pairs - swapped.len();
    let mut text = format!("ranking: {agree} of {pairs} pairs of policies in the same order as simulated\n");
    for pair in swapped {
        text += &format!(
            "  {} measured {:.1} % below {}, simulated {:.1} % above\n",
            pair.lower,
            pair.measured * 1e2,
            pair.higher,
            pair.simulated * 1e2
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, RelQueryOutcome};
    use crate::replay::Simulated;
    use crate::scenario::{Scenario, TableSpec};
    use crate::table::SourceTable;
    use crate::workload::trace;

    fn run(name: &str, measured: f64, simulated: Option<f64>) -> RunSummary {
        let scenario = Scenario { relqueries: 1, ..Scenario::default() };
        let trace = trace(&scenario, &[SourceTable::load(&TableSpec::default(), 1).expect("generated")]);
        let record = Record::new(&trace[0], RelQueryOutcome::default(), None, measured);
        let simulated = simulated.map(|mean_ms| Simulated { mean_ms, ..Simulated::default() });
        RunSummary { simulated, ..RunSummary::of(name, &[record]) }
    }

    #[test]
    fn a_pair_in_another_order_is_named_with_both_distances() {
        let runs = [run("a", 100.0, Some(90.0)), run("b", 110.0, Some(80.0)), run("c", 200.0, Some(210.0))];
        let (pairs, swapped) = compare(&runs);
        assert_eq!((pairs, swapped.len(), swapped[0].lower, swapped[0].higher), (3, 1, "a", "b"));
        let text = ranking(&runs);
        assert!(
            text.contains("2 of 3") && text.contains("a measured 10.0 % below b, simulated 12.5 % above")
        );
    }

    #[test]
    fn runs_without_a_prediction_have_no_rank() {
        assert_eq!(ranking(&[run("a", 1.0, None), run("b", 2.0, Some(1.0))]), "");
        assert_eq!(compare(&[]).0, 0);
    }
}
