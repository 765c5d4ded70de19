//! Quantities as newtypes: only operations that mean something exist.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A number of tokens, prompt or output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenCount(pub u64);

/// A span of time in milliseconds, for configuration and the wire. The scheduler computes in [`Nanos`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A span of time in nanoseconds. Integer, so that a plan never depends on rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// An instant, in nanoseconds since a start that the owner of the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// An amount of money, in billionths of the one currency that all prices are in. Integer, so that sums are exact; the
/// largest is some 18 thousand million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Nanos {
    /// The longest representable span.
    pub const MAX: Self = Self(u64::MAX);

    /// This span in seconds, for reports only.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, or zero where `other` is longer.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Time {
    /// The time that passed since `earlier`; zero where `earlier` is later (a clock that went backwards).
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Money {
    /// Billionths of a millionth, to which people write amounts.
    const PER_MILLIONTH: u64 = 1_000;
    /// Most that people write: what lies above it has too many digits for a fraction to hold its millionths.
    const WRITTEN_MAX: f64 = 1e9;

    /// An amount as people write it: not negative, a thousand million at most, of millionths at least.
    pub fn of_units(units: f64) -> Option<Self> {
        if !(0.0..=Self::WRITTEN_MAX).contains(&units) {
            return None;
        }
        let millionths = (units * 1e6).round();
        // The fraction that is nearest to a number of so many digits, and to no other.
        (millionths / 1e6 == units).then_some(Self(millionths as u64 * Self::PER_MILLIONTH))
    }

    /// The amount in whole units, for replies only.
    pub fn as_units(self) -> f64 {
        // Of what people write, the fraction that they wrote, to the last digit.
        if self.0.is_multiple_of(Self::PER_MILLIONTH) {
            return (self.0 / Self::PER_MILLIONTH) as f64 / 1e6;
        }
        self.0 as f64 / 1e9
    }

    /// Both, or the largest amount.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or nothing where `other` is more.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match format!("{rest:09}").trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            fraction => write!(f, "{whole}.{fraction}"),
        }
    }
}

impl From<Millis> for Nanos {
    fn from(span: Millis) -> Self {
        Self(span.0.saturating_mul(1_000_000))
    }
}

/// Milliseconds; with `#` days, hours and minutes, rounded up, for people who wait.
impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !f.alternate() {
            return write!(f, "{} ms", self.0);
        }
        let minutes = self.0.div_ceil(60_000);
        match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
            (0, 0, minutes) => write!(f, "{minutes} min"),
            (0, hours, minutes) => write!(f, "{hours} h {minutes} min"),
            (days, hours, minutes) => write!(f, "{days} d {hours} h {minutes} min"),
        }
    }
}

impl std::fmt::Display for TokenCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0)
    }
}

/// Addition, difference and sums: the quantities that add up.
macro_rules! additive {
    ($($name:ident),*) => {$(
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                Self(items.map(|item| item.0).sum())
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }
    )*};
}
additive!(TokenCount, Nanos, Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_backwards_gives_no_time() {
        assert_eq!(Time(5).since(Time(9)), Nanos(0));
        assert_eq!(Time(9).since(Time(5)), Nanos(4));
    }

    #[test]
    fn a_wait_is_said_in_days_hours_and_minutes() {
        for (wait, said) in [
            (1, "1 min"),
            (59 * 60_000 + 1, "1 h 0 min"),
            (15_278_299, "4 h 15 min"),
            (86_400_000, "1 d 0 h 0 min"),
            (30 * 86_400_000 + 5_400_000, "30 d 1 h 30 min"),
        ] {
            assert_eq!(format!("{:#}", Millis(wait)), said);
        }
        assert_eq!(Millis(15_278_299).to_string(), "15278299 ms");
    }

    #[test]
    fn money_that_people_write_is_kept_to_the_last_digit() {
        for (written, billionths, shown) in [
            (0.0, 0, "0"),
            (12.5, 12_500_000_000, "12.5"),
            (0.1, 100_000_000, "0.1"),
            (0.000_001, 1_000, "0.000001"),
            (999_999_999.999_999, 999_999_999_999_999_000, "999999999.999999"),
        ] {
            assert_eq!(Money::of_units(written), Some(Money(billionths)), "{written}");
            assert_eq!(Money(billionths).to_string(), shown);
            assert_eq!(Money(billionths).as_units(), written);
        }
        for refused in [-0.1, 1.000_000_1, 1e9 + 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Money::of_units(refused), None, "{refused}");
        }
        assert_eq!(Money(1_000_000_007).to_string(), "1.000000007");
    }

    #[test]
    fn milliseconds_become_nanoseconds_without_overflow() {
        assert_eq!(Nanos::from(Millis(3)), Nanos(3_000_000));
        assert_eq!(Nanos::from(Millis(u64::MAX)), Nanos::MAX);
    }
}
