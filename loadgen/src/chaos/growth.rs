//! Whether what processes hold under load goes on growing once their caches had time to fill: the middle of a run
//! beside its end. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Step;
use super::process::IdleFootprint;

/// The shortest run whose middle and end are compared: shorter ones are all caches that fill.
const SPAN_MIN: Duration = Duration::from_secs(300);
/// Memory that a process may hold in the last quarter beyond the most of the second one. The most that one was seen to
/// grow in ten minutes is 202 MiB; had it grown evenly to the end, that would be 102 MiB.
const RSS_MORE_MAX: u64 = 96 << 20;
/// The quarters that are compared, from 0.
const MIDDLE: usize = 1;
const LAST: usize = 3;

/// The most that each process held in each quarter of a run, in bytes; 0 where it did not run.
pub(super) struct RssPeaks {
    steps: u32,
    /// Whether the run is long enough to be judged.
    is_judged: bool,
    peaks: BTreeMap<String, [u64; 4]>,
}

impl RssPeaks {
    /// Of a run that has not begun. One whose steps are requests is not judged: how long it takes is the machine's.
    pub(super) fn new(steps: u32, step: Step) -> Self {
        let is_judged = match step {
            Step::Span(span) => span.saturating_mul(steps) >= SPAN_MIN,
            Step::Requests(_) => false,
        };
        Self { steps, is_judged, peaks: BTreeMap::new() }
    }

    /// Notes what processes hold in a step.
    pub(super) fn note(&mut self, step: u32, held: Vec<(String, IdleFootprint)>) {
        let quarter = (u64::from(step) * 4 / u64::from(self.steps.max(1))) as usize;
        for (name, held) in held {
            let peak = &mut self.peaks.entry(name).or_default()[quarter.min(LAST)];
            *peak = held.rss_bytes.max(*peak);
        }
    }

    /// Processes that went on growing. One that did not run in the middle is none of them.
    pub(super) fn grown(&self) -> Vec<String> {
        let has_grown =
            |peaks: &[u64; 4]| peaks[MIDDLE] > 0 && peaks[LAST] > peaks[MIDDLE].saturating_add(RSS_MORE_MAX);
        let grown = self.peaks.iter().filter(|(_, peaks)| self.is_judged && has_grown(peaks));
        grown.map(|(name, peaks)| shown(name, peaks)).collect()
    }

    /// A line of each process.
    pub(super) fn lines(&self) -> Vec<String> {
        self.peaks.iter().map(|(name, peaks)| shown(name, peaks)).collect()
    }
}

fn shown(name: &str, peaks: &[u64; 4]) -> String {
    let [first, second, third, last] = peaks.map(|bytes| bytes >> 20);
    format!("{name}: at most {first}, {second}, {third} and {last} MiB in the quarters of the run")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peaks of a run of ten minutes in which one replica held so many MiB in each step.
    fn peaks(step: Step, mib: impl Fn(u32) -> u64) -> RssPeaks {
        let mut peaks = RssPeaks::new(300, step);
        for number in 0..300 {
            let held = IdleFootprint { rss_bytes: mib(number) << 20, files: 60 };
            peaks.note(number, vec![("replica 1".into(), held)]);
        }
        peaks
    }

    const TEN_MINUTES: Step = Step::Span(Duration::from_secs(2));

    #[test]
    fn what_grows_to_the_end_of_a_run_is_seen_and_what_fills_up_early_is_not() {
        // From 186 to 388 MiB, evenly.
        let even = peaks(TEN_MINUTES, |step| 186 + u64::from(step) * 203 / 300);
        assert_eq!(
            even.grown(),
            ["replica 1: at most 236, 286, 337 and 388 MiB in the quarters of the run"],
            "{:?}",
            even.lines()
        );
        let early = peaks(TEN_MINUTES, |step| 186 + u64::from(step.min(140)) * 203 / 140);
        assert_eq!(early.grown(), Vec::<String>::new());
        assert_eq!(early.lines().len(), 1, "it is shown all the same");
    }

    #[test]
    fn short_runs_and_those_whose_steps_are_requests_are_shown_and_not_judged() {
        let grows = |step: u32| 100 + u64::from(step) * 10;
        for step in [Step::Span(Duration::from_millis(999)), Step::Requests(1_000)] {
            let peaks = peaks(step, grows);
            assert!(peaks.grown().is_empty() && peaks.lines().len() == 1, "{step:?}");
        }
        assert_eq!(peaks(Step::Span(Duration::from_secs(1)), grows).grown().len(), 1, "five minutes");
    }

    #[test]
    fn a_process_that_was_down_in_the_middle_has_nothing_to_be_held_against() {
        let mut peaks = RssPeaks::new(4, Step::Span(SPAN_MIN));
        let held =
            |mib: u64| vec![("gateway 0".to_owned(), IdleFootprint { rss_bytes: mib << 20, files: 60 })];
        peaks.note(0, held(100));
        peaks.note(3, held(400));
        assert_eq!(peaks.grown(), Vec::<String>::new());
        peaks.note(1, held(304));
        assert_eq!(peaks.grown(), Vec::<String>::new(), "96 MiB more are allowed");
    }
}
