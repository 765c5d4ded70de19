//! Age in the order: waiting makes work count less, so nothing is overtaken for ever.
//!
//! The published guard (RelServe, Eq. 13) divides waiting by the number of requests: it frees small
//! relQueries, which the order serves first anyway. Serving the oldest first now and then works, but
//! costs the mean more for the same longest wait than this does.

use base::{Millis, Nanos, Time};

/// The waiting that makes a relQuery's work count half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfLife {
    /// At least this.
    pub least: Millis,
    /// And at least so many times the work.
    pub works: u32,
}

/// A number that orders relQueries by `work / 2^(age / half)` at every instant, without changing as
/// they age: the logarithm of it, less what all of them share.
///
/// ```text
/// half * log2(work) + arrival
/// ```
///
/// So a relQuery is overtaken by a later one only if that arrives within `half * log2(work / other's
/// work)` after it: the bound on starvation that [`overtaken_until`] states. Where the half-life grows with
/// the work, the integral of it over the logarithm takes the place of the product.
pub fn aged(work: Nanos, arrival: Time, half: Option<HalfLife>) -> Nanos {
    let Some(half) = half else { return work };
    Nanos(overtaken_within(work, Nanos(1), half).0.saturating_add(arrival.0))
}

/// The last instant at which a relQuery may arrive that goes before one that waits since `arrival`.
/// `least` is the least work that any relQuery is.
pub fn overtaken_until(work: Nanos, arrival: Time, least: Nanos, half: HalfLife) -> Time {
    arrival + overtaken_within(work, least, half)
}

/// How much longer a relQuery of so much work may wait than one of the least: `half * log2(work / least)`, and
/// beyond the work from which on `works` times the work is longer than the half-life, `works / ln 2` times what it
/// is more. Rounded down.
fn overtaken_within(work: Nanos, least: Nanos, half: HalfLife) -> Nanos {
    let span = waits(work, half).saturating_sub(waits(least, half));
    Nanos(u64::try_from(span).unwrap_or(u64::MAX))
}

/// The integral of the half-life over the logarithm of the work, from 1 ns on.
fn waits(work: Nanos, HalfLife { least, works }: HalfLife) -> u128 {
    let half = Nanos::from(least).0;
    let usual = half.checked_div(works.into()).unwrap_or(u64::MAX).max(1);
    let below = (u128::from(half) * u128::from(log2_q16(work.0.min(usual)))) >> 16;
    let beyond = u128::from(work.0.saturating_sub(usual)) * u128::from(works);
    below + ((beyond * ONE_OVER_LN_2_Q16) >> 16)
}

/// `1 / ln 2` in 1/65536.
const ONE_OVER_LN_2_Q16: u128 = 94_548;

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
        let half = Some(HalfLife { least: Millis(1), works: 0 });
        let old = aged(Nanos(2_000_000), Time(0), half);
        assert!(aged(Nanos(1_000_001), Time(999_000), half) < old, "less work, a little later");
        assert!(aged(Nanos(1_000_001), Time(1_000_100), half) > old, "the half-life has passed");
        assert_eq!(aged(Nanos(7), Time(9), None), Nanos(7));
    }

    #[test]
    fn nobody_is_overtaken_by_what_arrives_after_its_bound() {
        let half = HalfLife { least: Millis(20), works: 0 };
        let (work, arrival) = (Nanos(3_000_000), Time(77));
        let until = overtaken_until(work, arrival, Nanos(1_000), half);
        let mine = aged(work, arrival, Some(half));
        for other in [1_000, 5_000, 2_000_000] {
            assert!(aged(Nanos(other), Time(until.0 + 2), Some(half)) >= mine, "{other}");
        }
        assert!(aged(Nanos(1_000), Time(until.0 - 1_000), Some(half)) < mine, "and the bound is tight");
    }

    #[test]
    fn a_half_life_of_so_many_works_is_longer_for_large_ones_alone() {
        let plain = HalfLife { least: Millis(20), works: 0 };
        let scaled = HalfLife { least: Millis(20), works: 100 };
        let at = |work, half| aged(Nanos(work), Time(0), Some(half)).0;
        for work in [1_000, 100_000, 200_000] {
            assert_eq!(at(work, scaled), at(work, plain), "20 ms are 100 times 200 us");
        }
        // From 1 to 2 ms of work: 100 / ln 2 ms more instead of one half-life of 20 ms.
        assert_eq!((at(2_000_000, scaled) - at(1_000_000, scaled)) / 1_000, 144_268);
        assert_eq!((at(2_000_000, plain) - at(1_000_000, plain)) / 1_000, 20_000);
    }
}
