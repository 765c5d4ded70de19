//! Why a relQuery stands where it stands, in words: what its priority is made of, and what changed it since
//! somebody last looked. Text is made here, when it is read; the scheduler only keeps the numbers.

use std::fmt::Write;

use base::ServiceClass;
use scheduler::breakdown::{PriorityBreakdown, PriorityParts};
use scheduler::snapshot::RelQueryStatus;

/// The word of a class.
pub fn class(class: ServiceClass) -> &'static str {
    match class {
        ServiceClass::Interactive => "interactive",
        ServiceClass::Dashboard => "dashboard",
        ServiceClass::Bulk => "bulk",
    }
}

/// What a priority is made of.
pub fn breakdown(status: &RelQueryStatus) -> String {
    match status.breakdown {
        Some(PriorityBreakdown { parts, is_aged: true, .. }) => format!("{parts}; less for its age"),
        Some(PriorityBreakdown { parts, .. }) => parts.to_string(),
        None => "what is left of it, in prompt tokens or their like".to_owned(),
    }
}

/// What changed since `before`, the most telling first; nothing where nothing did.
pub fn changed(before: Option<&RelQueryStatus>, now: &RelQueryStatus) -> Option<String> {
    let Some(before) = before else { return Some(format!("it came: {}", breakdown(now))) };
    let mut reasons = Vec::new();
    if before.class != now.class {
        reasons.push(format!("it counts as {} now", class(now.class)));
    }
    let goes_first =
        |one: &RelQueryStatus| one.breakdown.is_some_and(|breakdown| breakdown.parts == PriorityParts::First);
    let is_late = |one: &RelQueryStatus| one.breakdown.is_some_and(|breakdown| breakdown.is_late);
    if is_late(now) && !is_late(before) {
        reasons.push(
            "nothing that came later goes before it any more: it has waited long enough (O13)".to_owned(),
        );
    }
    if goes_first(now) && !goes_first(before) {
        reasons.push("it waited too long, or is urgent, and goes first (Eq. 13)".to_owned());
    }
    reasons.extend(rows(before, now));
    reasons.extend(parts(before, now));
    if reasons.is_empty() && before.priority != now.priority {
        reasons.push("the order of those around it, or its age, changed".to_owned());
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// What became of its rows.
fn rows(before: &RelQueryStatus, now: &RelQueryStatus) -> Option<String> {
    let more = |now: u64, before: u64| now.saturating_sub(before);
    let open = |one: &RelQueryStatus| one.rows.waiting + one.rows.prefilling;
    let joined = more(now.rows.submitted, before.rows.submitted);
    let prompts = more(open(before) + joined, open(now));
    let back = more(open(now), open(before) + joined);
    let ended = more(now.rows.ended(), before.rows.ended());
    let mut reasons = Vec::new();
    for (count, what) in [
        (joined, "joined"),
        (prompts, "had their prompts computed"),
        (back, "gave up their memory"),
        (ended, "ended"),
    ] {
        if count > 0 {
            let noun = if count == 1 { "row" } else { "rows" };
            reasons.push(format!("{count} {noun} {what}"));
        }
    }
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// Which of its parts grew or fell.
fn parts(before: &RelQueryStatus, now: &RelQueryStatus) -> Option<String> {
    let mut reasons = String::new();
    let mut part = |name: &str, before: u64, now: u64| {
        if before == now {
            return;
        }
        let (sign, by) = if now < before { ('−', before - now) } else { ('+', now - before) };
        let lead = if reasons.is_empty() { "" } else { ", " };
        // Writing into a string cannot fail.
        let _ = write!(reasons, "{lead}{name} {sign}{}", time(by));
    };
    match (before.breakdown.map(|breakdown| breakdown.parts), now.breakdown.map(|breakdown| breakdown.parts))
    {
        (Some(PriorityParts::Estimate(old)), Some(PriorityParts::Estimate(new))) => {
            part("prompts", old.prefill_tokens.0, new.prefill_tokens.0);
            part("prefills", old.prefill_bases.0, new.prefill_bases.0);
            part("decode steps", old.decode_bases.0, new.decode_bases.0);
            part("sequences", old.decode_sequences.0, new.decode_sequences.0);
            let (was, is) = (miss(old.missed, old.sampled), miss(new.missed, new.sampled));
            if was != is {
                let lead = if reasons.is_empty() { "" } else { ", " };
                let _ = write!(reasons, "{lead}miss ratio {was} → {is} (Eq. 11)");
            }
        }
        (Some(PriorityParts::Work(old)), Some(PriorityParts::Work(new))) => {
            part("prompts", old.prompt.0, new.prompt.0);
            part("outputs", old.output.0, new.output.0);
            part("share of the steps", old.share.0, new.share.0);
        }
        _ => {}
    }
    (!reasons.is_empty()).then_some(reasons)
}

/// A time of so many nanoseconds, in the unit that suits it.
fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.0} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// A miss ratio in per cent.
fn miss(missed: u64, sampled: u64) -> String {
    match sampled {
        0 => "none waits".to_owned(),
        _ => format!("{} %", (100 * missed + sampled / 2) / sampled),
    }
}

#[cfg(test)]
mod tests {
    use base::{Nanos, RelQueryId, TenantId, Time};
    use scheduler::breakdown::{Estimate, WorkTime};
    use scheduler::snapshot::RowCounts;

    use super::*;

    fn status(rows: [u64; 4], parts: PriorityParts) -> RelQueryStatus {
        let [submitted, waiting, prefilling, running] = rows;
        RelQueryStatus {
            id: RelQueryId(1),
            tenant: TenantId(1),
            class: ServiceClass::Interactive,
            arrival: Time(0),
            started: None,
            prefilled: None,
            rows: RowCounts { submitted, waiting, prefilling, running },
            priority: 5,
            breakdown: Some(PriorityBreakdown::of(parts)),
            is_new: true,
        }
    }

    fn estimate(prompts: u64, steps: u64, missed: u64) -> PriorityParts {
        PriorityParts::Estimate(Estimate {
            prefill_tokens: Nanos(prompts),
            decode_bases: Nanos(steps),
            missed,
            sampled: 10,
            ..Estimate::default()
        })
    }

    #[test]
    fn a_priority_that_fell_says_by_what() {
        let before = status([9, 9, 0, 0], estimate(500_000_000, 100_000_000, 10));
        let now = status([9, 4, 0, 4], estimate(200_000_000, 150_000_000, 3));
        assert_eq!(
            changed(Some(&before), &now).as_deref(),
            Some(
                "5 rows had their prompts computed, 1 row ended; prompts −300.0 ms, decode steps +50.0 ms, \
                 miss ratio 100 % → 30 % (Eq. 11)"
            )
        );
        assert_eq!(changed(Some(&now), &now), None, "one that was reused says nothing (Eq. 12)");
    }

    #[test]
    fn arrivals_rises_and_starvation_are_named() {
        let work = PriorityParts::Work(WorkTime { prompt: Nanos(1), output: Nanos(2), share: Nanos(3) });
        let came = status([3, 3, 0, 0], work);
        assert!(changed(None, &came).is_some_and(|text| text.starts_with("it came: prompts")));
        let first =
            RelQueryStatus { class: ServiceClass::Interactive, ..status([3, 3, 0, 0], PriorityParts::First) };
        let bulk = RelQueryStatus { class: ServiceClass::Bulk, ..came };
        let text = changed(Some(&bulk), &first).unwrap_or_default();
        assert_eq!(
            text,
            "it counts as interactive now; it waited too long, or is urgent, and goes first (Eq. 13)"
        );
        let more = status([5, 5, 0, 0], work);
        assert_eq!(changed(Some(&came), &more).as_deref(), Some("2 rows joined"));
        let older = RelQueryStatus { priority: 4, ..came };
        assert!(changed(Some(&came), &older).is_some_and(|text| text.contains("its age")));
    }
}
