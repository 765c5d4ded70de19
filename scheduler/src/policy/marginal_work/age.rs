//! Age in the order: waiting makes work count less, so nothing is overtaken for ever.
//!
//! The published guard (RelServe, Eq. 13) divides waiting by the number of requests: it frees small
//! relQueries, which the order serves first anyway. Serving the oldest first now and then works, but
//! costs the mean more for the same longest wait than this does.

use base::{Nanos, Time};

use super::config::MarginalWorkConfig;
use crate::Scheduler;
use crate::breakdown::PriorityParts;
use crate::policy::Policy;

/// A number that orders relQueries by `work / 2^(age / half)` at every instant, without changing as
/// they age: the logarithm of it, less what all of them share.
///
/// ```text
/// half * log2(work) + arrival
/// ```
///
/// So a relQuery is overtaken by a later one only if that arrives within `half * log2(work / other's
/// work)` after it: the bound on starvation that [`overtaken_until`] states.
pub fn aged(work: Nanos, arrival: Time, half: Option<Nanos>) -> Nanos {
    let Some(half) = half else { return work };
    Nanos(log_scaled(work, half).saturating_add(arrival.0))
}

/// The last instant at which a relQuery may arrive that goes before one that waits since `arrival`.
/// `least` is the least work that any relQuery is.
pub fn overtaken_until(work: Nanos, arrival: Time, least: Nanos, half: Nanos) -> Time {
    arrival + Nanos(log_scaled(work, half).saturating_sub(log_scaled(least, half)))
}

/// `half * log2(work)`, rounded down.
fn log_scaled(work: Nanos, half: Nanos) -> u64 {
    let product = u128::from(half.0) * u128::from(log2_q16(work.0));
    u64::try_from(product >> 16).unwrap_or(u64::MAX)
}

/// RelQueries after which older ones count half in the mean work.
const WINDOW: u64 = 64;

/// The half-life of age on the machine's own scale of time: so many times the mean work of the relQueries that came
/// lately. What keeps one machine busy for a minute and another for a second is overtaken on both for as many
/// relQueries' time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HalfLife {
    relqueries: u64,
    /// Their work together, in ns.
    work: u128,
    /// Which many times the mean is in force.
    scaled: Nanos,
}

impl HalfLife {
    /// The half-life in force under a policy; `None` where age does not count.
    pub(crate) fn get(&self, settings: &MarginalWorkConfig, policy: Policy) -> Option<Nanos> {
        let half = settings.age_half_ms.map(|least| Nanos::from(least).max(self.scaled));
        half.map(|half| Nanos(half.0.saturating_mul(policy.age_times())))
    }

    /// Counts a relQuery that came. True where another half-life is in force now: the keys of all must be made
    /// anew, so it follows the mean only where that has moved by a quarter.
    fn count(&mut self, work: Nanos, settings: &MarginalWorkConfig) -> bool {
        if self.relqueries >= WINDOW {
            (self.relqueries, self.work) = (self.relqueries / 2, self.work / 2);
        }
        (self.relqueries, self.work) = (self.relqueries + 1, self.work + u128::from(work.0));
        let before = self.scaled;
        let wanted = self.work / u128::from(self.relqueries) * u128::from(settings.age_half_works);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        if wanted.abs_diff(self.scaled.0) > self.scaled.0 / 4 {
            self.scaled = Nanos(wanted);
        }
        let least = settings.age_half_ms.map(Nanos::from);
        least.is_some_and(|least| self.scaled.max(least) != before.max(least))
    }
}

impl Scheduler {
    /// A relQuery got its first priority: its work counts in the half-life.
    pub(crate) fn count_work(&mut self, work: Nanos) {
        if !self.estimates.half_life.count(work, &self.config.marginal_work) {
            return;
        }
        let half = self.estimates.half_life.get(&self.config.marginal_work, self.config.policy);
        let ids: Vec<base::RelQueryId> = self.relqueries.keys().copied().collect();
        for id in ids {
            let Some(relquery) = self.relqueries.get_mut(&id) else { continue };
            if relquery.priority.is_some() && relquery.breakdown.parts != PriorityParts::First {
                let key = aged(relquery.breakdown.work(), relquery.arrival, half);
                relquery.priority = Some(key.0);
                self.place(id);
            }
        }
    }
}

/// The binary logarithm in 1/65536, rounded down; 0 of 0.
fn log2_q16(value: u64) -> u64 {
    let Some(whole) = value.checked_ilog2() else { return 0 };
    // The mantissa in [1, 2) with 32 binary digits; each squaring yields one digit of the logarithm.
    let mut mantissa = (u128::from(value) << 32) >> whole;
    let mut log = u64::from(whole);
    for _ in 0..16 {
        mantissa = (mantissa * mantissa) >> 32;
        log <<= 1;
        if mantissa >= 2 << 32 {
            mantissa >>= 1;
            log |= 1;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use base::Millis;

    use super::*;

    #[test]
    fn the_logarithm_is_exact_at_powers_and_grows_with_its_argument() {
        for power in 0..64 {
            assert_eq!(log2_q16(1 << power), power << 16);
        }
        assert_eq!(log2_q16(10), (std::f64::consts::LOG2_10 * 65_536.0) as u64);
        let logs: Vec<u64> = (1..5_000).map(log2_q16).collect();
        assert!(logs.is_sorted());
        assert_eq!(log2_q16(0), 0);
    }

    #[test]
    fn waiting_half_a_life_halves_the_work() {
        let half = Some(Nanos(1_000_000));
        let old = aged(Nanos(2_000_000), Time(0), half);
        assert!(aged(Nanos(1_000_001), Time(999_000), half) < old, "less work, a little later");
        assert!(aged(Nanos(1_000_001), Time(1_000_100), half) > old, "the half-life has passed");
        assert_eq!(aged(Nanos(7), Time(9), None), Nanos(7));
    }

    #[test]
    fn nobody_is_overtaken_by_what_arrives_after_its_bound() {
        let half = Nanos(20_000_000);
        let (work, arrival) = (Nanos(3_000_000), Time(77));
        let until = overtaken_until(work, arrival, Nanos(1_000), half);
        let mine = aged(work, arrival, Some(half));
        for other in [1_000, 5_000, 2_000_000] {
            assert!(aged(Nanos(other), Time(until.0 + 2), Some(half)) >= mine, "{other}");
        }
        assert!(aged(Nanos(1_000), Time(until.0 - 1_000), Some(half)) < mine, "and the bound is tight");
    }

    #[test]
    fn the_half_life_follows_the_work_that_comes_and_is_never_less_than_is_set() {
        let settings = MarginalWorkConfig {
            age_half_ms: Some(Millis(100)),
            age_half_works: 10,
            ..MarginalWorkConfig::default()
        };
        let mut half = HalfLife::default();
        assert!(!half.count(Nanos(5_000_000), &settings), "ten times 5 ms are less than 100");
        assert_eq!(half.get(&settings, Policy::MarginalWork), Some(Nanos(100_000_000)));
        assert!(half.count(Nanos(45_000_000), &settings), "25 ms on average");
        assert_eq!(half.get(&settings, Policy::MarginalWork), Some(Nanos(250_000_000)));
        assert_eq!(half.get(&settings, Policy::MarginalWorkSlowAging), Some(Nanos(750_000_000)));
        assert!(!half.count(Nanos(40_000_000), &settings), "the mean has moved by a fifth");
        let changes = (0..200).filter(|_| half.count(Nanos(60_000_000), &settings)).count();
        let Some(Nanos(followed)) = half.get(&settings, Policy::MarginalWork) else { panic!("age counts") };
        assert!((450_000_000..=600_000_000).contains(&followed), "{followed} of 600 ms");
        assert!(changes <= 5, "{changes} times all keys were made anew");
        assert_eq!(
            half.get(&MarginalWorkConfig { age_half_ms: None, ..settings }, Policy::MarginalWork),
            None
        );
    }
}
