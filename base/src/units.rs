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

impl From<Millis> for Nanos {
    fn from(span: Millis) -> Self {
        Self(span.0.saturating_mul(1_000_000))
    }
}

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms", self.0)
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
    fn milliseconds_become_nanoseconds_without_overflow() {
        assert_eq!(Nanos::from(Millis(3)), Nanos(3_000_000));
        assert_eq!(Nanos::from(Millis(u64::MAX)), Nanos::MAX);
    }
}
